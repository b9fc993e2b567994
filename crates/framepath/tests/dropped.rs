// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipelines that are opened and dropped early leave nothing behind. A program of its
//! own, because descriptors, threads and memory are counted for the whole process.

use std::fs;

use framepath::Pipeline;

/// Number of pipelines in one round. The first round fills caches of the libraries.
const ROUND: usize = 200;
/// Number of pipelines in all rounds together.
const ALL: usize = 1000;
/// Maximum growth of the resident memory, in KiB, in the round that grows least: 5 for each pipeline.
const SLACK_KIB: usize = 1024;

/// Returns this process's number of open descriptors, threads and mappings, and its resident memory in KiB.
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
    let mut rounds = Vec::new();
    for number in 0..ALL {
        let text = &texts[number % texts.len()];
        let pipeline = Pipeline::parse(text).unwrap();
        // One pipeline of eight is never run.
        if number % 8 < 7 {
            let mut frames = pipeline.frames().unwrap();
            assert_eq!(frames.by_ref().take(number % 5).map(Result::unwrap).count(), number % 5, "{text}");
        }
        if (number + 1) % ROUND == 0 {
            rounds.push(held());
        }
    }
    println!("descriptors, threads, mappings, KiB after each round: {rounds:?}");
    let (first, last) = (rounds[0], rounds[rounds.len() - 1]);
    assert_eq!((first.0, first.1), (last.0, last.1), "{rounds:?}");
    assert!(last.2 <= first.2 + 8, "{rounds:?}");
    // A leak grows in every round. A single round may grow without a leak, because the memory that the
    // allocator keeps depends on which threads ran at the same time.
    let least = rounds.windows(2).map(|pair| pair[1].3.saturating_sub(pair[0].3)).min();
    assert!(least <= Some(SLACK_KIB), "{rounds:?}");
}
