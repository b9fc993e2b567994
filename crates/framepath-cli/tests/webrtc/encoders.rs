// SPDX-License-Identifier: MIT OR Apache-2.0
//! An encoder in front of `send`: it works once for all viewers, starts for late ones, and follows slow networks.

use framepath_testkit::{framepath, wait};
use serde_json::Value;

use crate::clip::{FRAMES, h264, hashes, noise};
use crate::proxy::Proxy;
use crate::sender::{Sending, started};

/// Starts to send the frames of the path `frames` with the encoder `encode`, and writes a summary to standard output.
fn send(frames: &str, encode: &str, options: &str) -> Sending {
    let path = format!("{frames} ! {encode} ! send listen=127.0.0.1:0 {options}");
    started(&mut framepath(&["run", "-v", "--quiet", "--json", "-", &path]))
}

/// Ends `sending`. Returns the numbers of frames that its encoder has encoded, and dropped because of congestion.
fn counts(sending: Sending) -> (u64, u64) {
    let summary: Value = serde_json::from_str(&sending.end().ended(0).stdout).unwrap();
    let run = &summary["rows"][0];
    let hops = run["hops"].as_array().unwrap();
    let encode = hops.iter().find(|hop| hop["hop"].as_str().unwrap().starts_with("encode")).unwrap();
    // Counted twice, by rows of the ledger and by the stage.
    assert_eq!(encode["dropped"].as_u64().unwrap() as f64, run["congested"].as_f64().unwrap());
    (encode["frames"].as_u64().unwrap(), encode["dropped"].as_u64().unwrap())
}

/// All packets are too large for the padding by which str0m looks for the network's bandwidth. With an empty packet among those that it keeps, it
/// would pad without end.
pub fn a_stream_of_large_packets_ends() {
    let frames = "test size=1920x1080 rate=5 frames=15 ! convert format=yuv420p";
    let sending = send(frames, "encode h264 bitrate=20M gop=5 preset=ultrafast", "wait=1");
    assert_eq!(wait(sending.watch("latency=5s"), "recv").ended(0).frames().len(), 15);
    assert_eq!(counts(sending), (15, 0));
}

pub fn ten_viewers_cost_one_encoding() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let frames = format!("file {} rate=20 ! decode", clip.display());
    // At a constant quality, nothing is dropped for a viewer that is late on a busy machine.
    let sending = send(&frames, "encode h264 crf=30 preset=ultrafast", "wait=10");
    let viewers: Vec<_> = (0..10).map(|_| sending.watch("latency=5s")).collect();
    for viewer in viewers {
        assert_eq!(wait(viewer, "recv").ended(0).frames().len(), FRAMES);
    }
    assert_eq!(counts(sending), (FRAMES as u64, 0));
}

pub fn a_viewer_decodes_what_the_sender_decodes() {
    let folder = tempfile::tempdir().unwrap();
    for encode in ["hevc crf=30", "vp8 crf=20", "vp9 crf=35", "av1 crf=40"] {
        let decoded = folder.path().join("decoded.framemd5");
        let path = format!(
            "test frames=60 rate=30 size=320x180 format=yuv420p ! encode {encode} gop=20 ! \
             tee ( queue ! decode ! framemd5 {} ) ( send listen=127.0.0.1:0 wait=1 )",
            decoded.display()
        );
        let sending = started(&mut framepath(&["run", "-v", "--quiet", &path]));
        let output = wait(sending.watch("latency=5s"), "recv").ended(0);
        sending.end().ended(0);
        let decoded = std::fs::read_to_string(&decoded).unwrap();
        let decoded =
            decoded.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!((hashes(&output.frames()), decoded.len()), (hashes(&decoded), 60), "{encode}");
        assert_eq!(output.stderr, "", "{encode}");
    }
}

pub fn a_late_viewer_of_a_gradual_refresh_gets_a_keyframe() {
    let frames = "test frames=400 rate=50 size=320x180 format=yuv420p";
    let sending = send(frames, "encode h264 intra_refresh=1 gop=inf crf=30", "wait=1");
    let first = sending.watch("latency=5s");
    sending.until_begun();
    let late = wait(sending.watch("latency=5s"), "late recv").ended(0);
    assert!((1..400).contains(&late.frames().len()), "{} frames", late.frames().len());
    assert_eq!(late.stderr, "");
    assert_eq!(wait(first, "first recv").ended(0).frames().len(), 400);
    assert_eq!(counts(sending), (400, 0));
}

pub fn the_death_of_an_encoder_in_a_worker_costs_viewers_no_frame() {
    let frames = "test frames=200 rate=50 size=160x96 format=yuv420p";
    let encode = "encode h264 gop=inf crf=30 preset=ultrafast host=process fault=crash@60";
    let sending = send(frames, encode, "wait=1");
    let first = sending.watch("latency=5s");
    sending.until_begun();
    // Starts at a keyframe that the worker makes on request.
    let late = wait(sending.watch("latency=5s"), "late recv").ended(0);
    assert!((1..200).contains(&late.frames().len()), "{} frames", late.frames().len());
    assert_eq!(wait(first, "first recv").ended(0).frames().len(), 200);
    assert_eq!(counts(sending), (200, 0));
}

pub fn a_slow_network_costs_frames_in_front_of_the_encoder_and_not_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let clip = noise(folder.path());
    let frames = format!("file {} rate=25 loop=3 ! decode", clip.display());
    let sending = send(&frames, "encode h264 bitrate=6M min_bitrate=1500k preset=ultrafast", "wait=1");
    // Half of the bit rate's megabits, and a queue of a quarter of a second.
    let proxy = Proxy::slow(sending.port, 3_000_000, 250);
    let shown = wait(sending.watch_at(&proxy.url, "latency=1s"), "recv").frames().len() as u64;
    proxy.end();
    let (encoded, dropped) = counts(sending);
    assert_eq!(encoded + dropped, 3 * FRAMES as u64);
    // A stream that does not follow the network loses more than half of its frames.
    assert!(shown <= encoded && shown * 10 >= encoded * 9, "{shown} of {encoded} frames, {dropped} dropped");
}

pub fn a_viewer_below_the_lowest_bit_rate_costs_another_no_frames() {
    let folder = tempfile::tempdir().unwrap();
    let clip = noise(folder.path());
    let frames = format!("file {} rate=25 loop=3 ! decode", clip.display());
    let sending = send(&frames, "encode h264 bitrate=2M min_bitrate=1M preset=ultrafast", "wait=2");
    let proxy = Proxy::slow(sending.port, 300_000, 500);
    let slow = sending.watch_at(&proxy.url, "latency=1s");
    let fast = wait(sending.watch("latency=5s"), "fast recv").ended(0).frames().len() as u64;
    let slow = wait(slow, "slow recv").frames().len() as u64;
    proxy.end();
    let (encoded, dropped) = counts(sending);
    assert_eq!((fast, encoded + dropped), (encoded, 3 * FRAMES as u64));
    assert!(slow < fast && encoded > dropped, "{fast} and {slow} of {encoded} frames, {dropped} dropped");
}
