// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program may keep frames for any time. The watchdog does not kill an honest worker that
//! cannot output frames meanwhile, even with a short timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use framepath::{Frames, Pipeline};
use framepath_testkit::in_checkout;

/// Option with the watchdog's timeout: long for an honest worker on a busy machine, short for a test.
const WATCHDOG: &str = "watchdog=1s";
/// Duration of a pause of the program: three times the watchdog's timeout.
const PAUSE: Duration = Duration::from_secs(3);

fn frames(path: &str) -> Frames {
    framepath::host::set_worker_program(env!("CARGO_BIN_EXE_framepath"));
    Pipeline::parse(path).unwrap().frames().unwrap()
}

fn decode(clip: &str, options: &str) -> String {
    let clip = in_checkout("clips").join(clip);
    format!("file {} loop=5 host=inline ! decode host=process {WATCHDOG} {options}", clip.display())
}

#[track_caller]
fn assert_none_died(frames: &Frames) {
    let report = frames.report().unwrap();
    assert!(report.error.is_none(), "{:?}", report.error);
    assert_eq!(report.workers[0].deaths, 0, "{:?}", report.workers);
}

/// Receives all 150 frames of the path. Always keeps the last four, and pauses after frame 4 and
/// after frame 75.
fn keep_four(path: &str) {
    let mut frames = frames(path);
    let (mut kept, mut count) = (Vec::new(), 0);
    for frame in frames.by_ref() {
        kept.insert(0, frame.unwrap());
        kept.truncate(4);
        count += 1;
        if [4, 75].contains(&count) {
            thread::sleep(PAUSE);
        }
    }
    assert_eq!(count, 150, "{path}");
    assert_none_died(&frames);
}

#[test]
fn a_program_keeps_four_frames_of_each_decoder_and_requests_more() {
    let clips = ["h264-180p8-high.h264", "hevc-180p8.hevc", "vp9-180p8.ivf", "av1-180p8.ivf"];
    thread::scope(|scope| {
        for (clip, options) in
            clips.iter().flat_map(|clip| ["threads=1", "threads=4"].map(|options| (clip, options)))
        {
            scope.spawn(move || keep_four(&decode(clip, options)));
        }
    });
}

/// Keeps all frames until no frame arrives for three timeouts of the watchdog. Then drops them and
/// receives the rest. `expected` is the path's number of frames.
fn keep_all(path: &str, expected: usize) {
    let mut frames = frames(path);
    let (came, drops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, no_more) = (came.clone(), drops.clone());
    let (keep, kept) = channel();
    let program = thread::spawn(move || {
        for frame in frames.by_ref() {
            let frame = frame.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            if !no_more.load(Ordering::Relaxed) {
                keep.send(frame).unwrap();
            }
        }
        frames
    });
    let mut before = usize::MAX;
    while before != came.load(Ordering::Relaxed) {
        before = came.load(Ordering::Relaxed);
        thread::sleep(PAUSE);
    }
    assert!((1..expected).contains(&before), "{path}: {before}: its worker waits for a slot");
    drops.store(true, Ordering::Relaxed);
    // Includes frames that arrive later.
    while !program.is_finished() {
        drop(kept.try_iter().collect::<Vec<_>>());
        thread::sleep(Duration::from_millis(1));
    }
    assert_none_died(&program.join().unwrap());
    assert_eq!(came.load(Ordering::Relaxed), expected, "{path}");
}

#[test]
fn a_worker_waits_for_a_slot_while_the_program_keeps_all_frames() {
    let high = "h264-180p8-high.h264";
    let threshold = format!("test frames=100 size=64x36 format=yuv420p ! threshold host=process {WATCHDOG}");
    let convert =
        format!("test frames=100 size=64x36 format=yuv420p ! convert format=grey host=process {WATCHDOG}");
    let paths = [
        (decode(high, "threads=1"), 150),
        (decode(high, "threads=4"), 150),
        // The smallest pool that can decode this clip.
        (decode(high, "threads=1 pool=12"), 150),
        (decode("vp9-180p8.ivf", "threads=1"), 150),
        (decode("av1-180p8.ivf", "threads=2"), 150),
        (threshold, 100),
        (convert, 100),
    ];
    thread::scope(|scope| {
        for (path, expected) in &paths {
            scope.spawn(move || keep_all(path, *expected));
        }
    });
}
