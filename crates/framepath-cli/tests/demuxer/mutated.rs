// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files with random damage, inline and in workers: each run ends by itself, with an
//! error or with the decodable frames, and leaks no resources.
//!
//! `FRAMEPATH_MUTATED=900` tests 900 files, which takes hours on an idle machine. The
//! default is a few files.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use framepath_testkit::{in_checkout, run};

const CLIPS: [&str; 9] = [
    "av1-180p8-container.mp4",
    "av1-99x57p8-odd.ivf",
    "h264-180p8-container.mp4",
    "h264-98x58p8-cropped.h264",
    "hevc-180p8-container.mkv",
    "hevc-180p8.hevc",
    "vp8-180p8-container.webm",
    "vp8-99x57p8-odd.ivf",
    "vp9-resize-180p8.ivf",
];

const MODES: [&str; 4] = ["host=inline threads=1", "host=inline", "host=process threads=1", "host=process"];

/// Number of files if FRAMEPATH_MUTATED is not set.
const FEW: usize = 27;

#[test]
fn runs_of_damaged_files_end_in_time() {
    let asked = std::env::var("FRAMEPATH_MUTATED").ok();
    let files = asked.map_or(FEW, |count| count.parse().expect("FRAMEPATH_MUTATED is a count"));
    let folder = tempfile::tempdir().unwrap();
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= files {
                        return;
                    }
                    let name = CLIPS[number % CLIPS.len()];
                    let bytes = mutated(&fs::read(in_checkout("clips").join(name)).unwrap(), number as u64);
                    let file = folder.path().join(format!("{number}-{name}"));
                    fs::write(&file, bytes).unwrap();
                    if !ends_in_every_mode(&file) {
                        failed.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    fs::remove_file(&file).unwrap();
                }
            });
        }
    });
    assert_eq!(failed.into_inner(), 0, "see above");
}

fn ends_in_every_mode(file: &Path) -> bool {
    let mut good = true;
    for mode in MODES {
        // `run` fails the test if the command does not end in time.
        let ran = run(&["run", "--quiet", &format!("file {} ! decode {mode} ! null", file.display())]);
        // 0: all frames; 1: failed after some frames; 3: something was skipped.
        if !matches!(ran.code, Some(0 | 1 | 3)) || ran.stderr.contains("panicked") {
            println!("{} {mode}: {ran:#?}", file.display());
            good = false;
        }
    }
    good
}

/// Returns `bytes` with damage that depends on `seed` alone.
fn mutated(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as usize % limit.max(1)
    };
    let mut bytes = bytes.to_vec();
    for _ in 0..=below(4) {
        let len = bytes.len();
        // Most damage is in the head, because most of the syntax is there.
        let reach = if below(2) == 0 { len.min(600) } else { len };
        let (at, span) = (below(reach), 1 + below(64));
        match below(6) {
            0 => bytes[at] ^= 1 << below(8),
            1 => {
                let end = (at + span).min(len);
                bytes[at..end].iter_mut().for_each(|byte| *byte = below(256) as u8);
            }
            2 => bytes.truncate(at.max(1)),
            3 => drop(bytes.drain(at..(at + span).min(len))),
            4 => {
                let part = bytes[at..(at + span).min(len)].to_vec();
                let place = below(len);
                bytes.splice(place..place, part);
            }
            _ => {
                let end = (at + 4).min(len);
                bytes[at..end].fill(if below(2) == 0 { 0xff } else { 0 });
            }
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes
}
