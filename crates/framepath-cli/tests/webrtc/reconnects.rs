// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks that are away for a while, and senders that start again.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use framepath_testkit::{framepath, until, wait};
use rustix::process::Signal;

use crate::clip::{FRAMES, h264, hashes, hashes_of};
use crate::proxy::{Dropped, Proxy};
use crate::sender::{Sending, start, started};

/// Time for which the network is away.
const AWAY: Duration = Duration::from_secs(5);

/// Starts to send `clip` at a known port with a known token.
pub fn start_at(clip: &Path, port: u16, rate: u32) -> Sending {
    let file = clip.display();
    let token = "abcdefgh12345678".to_owned();
    let path = format!("file {file} rate={rate} ! send listen=127.0.0.1:{port} token={token} wait=1");
    let mut sending = started(&mut framepath(&["run", "-v", "--quiet", &path]));
    sending.token = token;
    sending
}

/// Lets a network be away for 5 s in the middle of a stream. Returns the viewer's standard error, and checks that the last
/// frames came.
fn away(options: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let all = hashes_of(&clip);
    // 16 s.
    let sending = start(&clip, "rate=50 loop=8", "wait=1");
    let proxy = Proxy::start(sending.port, Dropped::Nothing);
    let viewer = sending.watch_at(&proxy.url, options);
    until("100 frames have passed", || proxy.frames() >= FRAMES);
    proxy.cut(true);
    sleep(AWAY);
    proxy.cut(false);
    let output = wait(viewer, "recv").ended(3);
    let got = hashes(&output.frames());
    let lost = FRAMES * 8 - got.len();
    assert!(lost >= FRAMES && got.len() > FRAMES, "{} frames: {}", got.len(), output.stderr);
    assert_eq!(got.last(), all.last());
    // Each frame is one of the clip.
    assert!(got.iter().all(|hash| all.contains(hash)));
    sending.end().ended(0);
    proxy.end();
    output.stderr
}

pub fn a_session_outlives_a_network_that_is_away_for_five_seconds() {
    let stderr = away("timeout=60s latency=100ms");
    assert!(stderr.contains("RTP packets did not arrive in time"), "{stderr}");
    assert!(!stderr.contains("connection"), "{stderr}");
}

pub fn a_viewer_connects_again_when_the_network_is_back() {
    // At the end of the stream, six attempts take 6 s.
    let stderr = away("timeout=60s latency=100ms reconnect=6");
    assert!(stderr.contains("reconnected after"), "{stderr}");
    assert!(stderr.contains("lost 1 connection: reconnected"), "{stderr}");
}

pub fn a_viewer_goes_on_with_a_sender_that_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let all = hashes_of(&clip);
    let first = start_at(&clip, 0, 20);
    let port = first.port;
    let viewer = first.watch("timeout=60s latency=5s reconnect=8");
    first.until_begun();
    first.signal(Signal::KILL);
    assert_eq!(first.end().code, None);
    let second = start_at(&clip, port, 100);
    let output = wait(viewer, "recv").ended(3).prints("lost 1 connection: reconnected");
    let got = hashes(&output.frames());
    // The first frames of the first sender, and all of the second.
    let before = got.len() - FRAMES;
    assert_eq!(got, [&all[..before], &all[..]].concat());
    second.end().ended(0);
}

pub fn a_viewer_gives_up_after_the_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let sending = start(&clip, "rate=10", "wait=1");
    let viewer = sending.watch("timeout=4s reconnect=inf");
    sending.until_begun();
    sending.signal(Signal::KILL);
    assert_eq!(sending.end().code, None);
    wait(viewer, "recv").ended(1).prints("no datagram from 127.0.0.1:");
}

pub fn connections_without_a_frame_are_failed_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let sending = start(&clip, "rate=10 loop=10", "");
    // As behind a firewall that lets only HTTP pass.
    let proxy = Proxy::start(sending.port, Dropped::All);
    let output = wait(sending.watch_at(&proxy.url, "timeout=6s reconnect=inf"), "recv").ended(1);
    assert!(
        output.stderr.contains("no datagram from") && !output.stderr.contains("reconnected"),
        "{output:#?}"
    );
    sending.signal(Signal::INT);
    sending.end().ended(130);
    proxy.end();
}

pub fn a_viewer_that_comes_back_gets_a_keyframe_at_once() {
    // Only the first frame and requested ones are keyframes.
    let path = "test size=64x48 format=yuv420p rate=25 frames=0 ! encode h264 gop=inf ! send listen=127.0.0.1:0 wait=1";
    let sending = started(&mut framepath(&["run", "-v", "--quiet", path]));
    let proxy = Proxy::start(sending.port, Dropped::Nothing);
    let recv = format!("recv {} token={} timeout=60s reconnect=inf", proxy.url, sending.token);
    let path = format!("{recv} ! decode ! framemd5 -");
    let viewer = framepath(&["run", "--quiet", "--frames", "100", &path]).spawn().unwrap();
    until("50 frames have passed", || proxy.frames() >= 50);
    proxy.cut(true);
    sleep(AWAY);
    proxy.cut(false);
    let output = wait(viewer, "recv").ended(3).prints("lost 1 connection: reconnected");
    assert_eq!(output.frames().len(), 100);
    sending.signal(Signal::INT);
    sending.end().ended(130);
    proxy.end();
}
