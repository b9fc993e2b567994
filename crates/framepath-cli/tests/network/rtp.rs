// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of RTP datagrams.

use std::fs;
use std::path::Path;

use framepath_testkit::{ffmpeg, framepath, run, until, wait};

use crate::relay::{Relay, free_ports};
use crate::{FRAMES, clip, hashes, hashes_of};

/// Sends `clip` as RTP to `port`, in real time; writes the session description to `sdp`. Ends with a goodbye.
fn send(clip: &Path, port: u16, sdp: &Path, seconds: &str) {
    let (address, file) = (format!("rtp://127.0.0.1:{port}?pkt_size=1200"), sdp.to_str().unwrap());
    let input = ["-re", "-t", seconds, "-i", clip.to_str().unwrap(), "-c", "copy", "-an"];
    ffmpeg(&[&input[..], &["-f", "rtp", "-rtpflags", "send_bye", "-sdp_file", file, &address]].concat());
}

/// True if a socket of this machine is bound to UDP `port`.
fn is_bound(port: u16) -> bool {
    let text = fs::read_to_string("/proc/net/udp").unwrap();
    text.contains(&format!(":{port:04X} 00000000:0000"))
}

pub fn lost_datagrams_are_counted_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let clip = clip(folder.path());
    let (sdp, unused) = (folder.path().join("clip.sdp"), folder.path().join("unused.sdp"));
    let port = free_ports().0.local_addr().unwrap().port();
    // Writes the description; nobody receives these packets.
    send(&clip, port, &sdp, "0.1");
    let path = format!("rtp sdp={} timeout=9s ! decode ! framemd5 -", sdp.display());
    let child = framepath(&["run", "--quiet", &path]).spawn().unwrap();
    until("the session's port is bound", || is_bound(port) && is_bound(port + 1));
    let relay = Relay::start(port, 50);
    send(&clip, relay.port, &unused, "10");
    let output = wait(child, &path).ended(3);
    let dropped = relay.end();
    assert_eq!(dropped, 6);
    let output = output.prints("damaged stream: ");
    let lost = output.stderr.split_once(": lost ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    // A busy machine may drop more.
    assert!(lost.is_some_and(|lost: u64| lost >= dropped && lost < 2 * dropped), "{}", output.stderr);
    // Frames outside of the damaged groups of pictures are right.
    let (got, all) = (hashes(&output.frames()), hashes_of(&clip));
    let right = got.iter().filter(|hash| all.contains(hash)).count();
    assert!(got.len() > FRAMES / 2 && right > 0 && right < FRAMES, "{} frames, {right} right", got.len());
}

pub fn a_wrong_description_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let video = |port: &str| format!("v=0\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {port} RTP/AVP 96\n");
    // Nobody writes to it.
    let fifo = |name: &str| {
        let path = folder.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        path.display().to_string()
    };
    let long = format!("v=0\n{}", "a=x\n".repeat(10_000));
    let files = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n";
    for (path, part) in [
        (file("empty", ""), "begins with `v=0`"),
        (file("other", "#EXTM3U\nhttp://127.0.0.1/\n"), "begins with `v=0`"),
        (file("long", &long), "at most 16000 bytes"),
        (folder.path().join("missing").display().to_string(), "No such file"),
        (file("no-video", files), "no video"),
        (file("bare", "v=0\n"), "in the worker"),
        (file("port", &video("99999")), "the port `99999` of the video is not a number from 1 to 65535"),
        (file("ports", &video("65536/2")), "the port `65536` of the video"),
        (file("negative", &video("-5")), "the port `-5` of the video"),
        (file("zero", &video("0")), "the port `0` of the video"),
        (file("no-port", "v=0\nm=video\n"), "the port `` of the video"),
        (fifo("fifo"), "timed out"),
    ] {
        let output = run(&["run", &format!("rtp sdp={path} timeout=1s ! null")]).ended(1);
        assert!(output.stderr.contains(part), "{path}: {}", output.stderr);
    }
}

pub fn a_sender_that_never_begins_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let clip = clip(folder.path());
    let (sdp, port) = (folder.path().join("clip.sdp"), free_ports().0.local_addr().unwrap().port());
    send(&clip, port, &sdp, "0.1");
    let path = format!("rtp sdp={} timeout=1s ! decode ! null", sdp.display());
    // The worker's own wait has this text; the waits of libavformat are longer, and have other errors.
    run(&["run", &path]).ended(1).prints("no packet from the network").prints("is the sender running");
}
