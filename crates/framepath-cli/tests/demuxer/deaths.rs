// SPDX-License-Identifier: MIT OR Apache-2.0
//! The worker of a demuxer or of a decoder dies before the end of the file.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::{ffmpeg, frames_of};
use framepath_testkit::{framepath, in_checkout, run, wait};

/// Path of a clip without reordering: its frames have the order of the packets.
const CLIP: &str = "clips/vp9-180p8.ivf";

#[test]
fn a_demuxer_death_fails_the_run_after_the_earlier_frames() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, part) = (folder.path().join("whole"), folder.path().join("part"));
    let clip = in_checkout(CLIP);
    let path = |options: &str, listing: &std::path::Path| {
        let (clip, listing) = (clip.display(), listing.display());
        format!("file {clip} {options} ! decode host=process threads=1 ! framemd5 {listing}")
    };
    run(&["run", &path("", &whole)]).ended(0);
    let whole = frames_of(&whole);
    for (fault, packets) in [("crash@0", 0), ("crash@1", 1), ("crash@17", 17), ("hang@9", 9), ("bomb@5", 5)] {
        let options = format!("fault={fault} watchdog=200ms memory=1GiB");
        let ran = run(&["run", &path(&options, &part)]).ended(1).prints("demuxer");
        assert_eq!(frames_of(&part), whole[..packets], "{fault}: {ran:#?}");
    }
}

#[test]
fn a_decoder_death_keeps_the_position_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let listing = folder.path().join("listing");
    let clip = in_checkout(CLIP);
    let mut listings = Vec::new();
    for fault in ["", "fault=crash@3,crash@20", "fault=hang@11 watchdog=200ms"] {
        let (clip, listing) = (clip.display(), listing.display());
        let path = format!("file {clip} loop=2 ! decode host=process {fault} ! framemd5 {listing}");
        run(&["run", &path]).ended(0);
        listings.push(frames_of(listing.to_string().as_ref()));
    }
    assert!(listings[0].len() > 40);
    assert!(listings.iter().all(|listing| *listing == listings[0]));
}

#[test]
fn a_demuxer_has_a_worker_although_its_decoder_is_inline() {
    let folder = tempfile::tempdir().unwrap();
    let listing = folder.path().join("listing");
    let clip = in_checkout(CLIP);
    let mut listings = Vec::new();
    for (source, decoder) in [("inline", "inline"), ("process", "inline"), ("inline", "process")] {
        let (clip, listing) = (clip.display(), listing.display());
        let path = format!("file {clip} host={source} ! decode host={decoder} ! framemd5 {listing}");
        run(&["run", &path]).ended(0);
        listings.push(frames_of(listing.to_string().as_ref()));
    }
    assert!(listings[0].len() > 20);
    assert!(listings.iter().all(|listing| *listing == listings[0]));
}

/// The watchdog ignores a worker whose input pipe is empty, but not a worker that has input.
#[test]
fn a_demuxer_that_hangs_on_a_full_pipe_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let path = format!("file {} fault=hang@3 watchdog=200ms ! decode host=process ! null", fifo.display());
    let child = framepath(&["run", &path]).spawn().unwrap();
    let writer = thread::spawn(move || {
        let clip = fs::read(in_checkout("clips/h264-1080p8.h264")).unwrap();
        // The reader closes the pipe before the writer has finished.
        let _ = fs::write(&fifo, clip);
    });
    wait(child, &path).ended(1).prints("demuxer");
    writer.join().unwrap();
}

#[test]
fn a_loop_over_a_pipe_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clip.h264");
    for host in ["inline", "process"] {
        fs::copy(in_checkout("clips/h264-180p8-high.h264"), &file).unwrap();
        let path = format!("file {} loop=inf rate=100 host={host} ! decode ! null", file.display());
        let child = framepath(&["run", &path]).spawn().unwrap();
        thread::sleep(Duration::from_millis(500));
        fs::File::create(&file).unwrap();
        wait(child, &path).ended(1).prints("cannot repeat");
    }
}

/// The replay log of a stream with a single keyframe is bounded. The frames lost at a
/// worker's death are reported.
#[test]
fn the_replay_log_of_a_stream_without_keyframes_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let (file, listing) = (folder.path().join("noise.mkv"), folder.path().join("listing"));
    let source = "color=gray:size=320x180:rate=30:duration=20,noise=alls=100:allf=t,format=yuv420p";
    let encoder = ["-c:v", "libx264", "-preset", "ultrafast", "-qp", "0", "-g", "9999", "-bf", "0"];
    ffmpeg(&[&["-f", "lavfi", "-i", source][..], &encoder, &[file.to_str().unwrap()]].concat());
    assert!(fs::metadata(&file).unwrap().len() > 32 << 20, "more than is kept");
    let path = |options: &str| {
        let (file, listing) = (file.display(), listing.display());
        format!("file {file} ! decode host=process threads=1 memory=64MiB {options} ! framemd5 {listing}")
    };
    run(&["run", &path("")]).ended(0);
    assert_eq!(frames_of(&listing).len(), 600);
    let ran = run(&["run", "--quiet", &path("fault=crash@550")]).ended(3).prints("skipped");
    let frames = frames_of(&listing).len();
    assert!((500..=550).contains(&frames), "{frames}: {ran:#?}");
}
