// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipelines that are opened and dropped early leave nothing behind. A program of its
//! own: descriptors, threads and memory are those of the whole process.

use std::fs;

use framepath::Pipeline;

/// Pipelines of the first part, which fills caches of the libraries.
const WARM: usize = 200;
/// All pipelines.
const ALL: usize = 1000;

/// Descriptors, threads, mappings, and resident memory in KiB.
fn held() -> (usize, usize, usize, usize) {
    let entries = |folder: &str| fs::read_dir(folder).unwrap().count();
    let mappings = fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib = rss.trim().split(' ').next().unwrap().parse().unwrap();
    (entries("/proc/self/fd"), entries("/proc/self/task"), mappings, kib)
}

#[test]
fn a_thousand_pipelines_dropped_early_leave_nothing_behind() {
    let clip = |name: &str| format!("{}/../../clips/{name}", env!("CARGO_MANIFEST_DIR"));
    let texts = [
        "test frames=0 size=64x48 ! threshold ! queue depth=3".to_owned(),
        format!("file {} ! decode", clip("h264-180p8-high.h264")),
        format!("file {} loop=inf ! decode threads=1 ! queue", clip("vp9-180p8.ivf")),
        format!("file {} loop=inf ! decode ! convert format=rgba", clip("vp9-180p8.ivf")),
    ];
    let mut warm = None;
    for number in 0..ALL {
        let text = &texts[number % texts.len()];
        let pipeline = Pipeline::parse(text).unwrap();
        // One of eight is never run.
        if number % 8 < 7 {
            let mut frames = pipeline.frames().unwrap();
            assert_eq!(frames.by_ref().take(number % 5).map(Result::unwrap).count(), number % 5, "{text}");
        }
        if number == WARM {
            warm = Some(held());
        }
    }
    let (before, after) = (warm.unwrap(), held());
    println!("descriptors, threads, mappings, KiB: {before:?}, then {after:?}");
    assert_eq!((before.0, before.1), (after.0, after.1));
    assert!(after.2 <= before.2 + 8 && after.3 <= before.3 + 4096, "{before:?}, then {after:?}");
}
