// SPDX-License-Identifier: MIT OR Apache-2.0
//! A path with an honest worker, while a third process writes into the shared area: each
//! side must treat the other as hostile.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::peer::Random;

/// A part of the shared area that the third process writes into.
pub struct Part {
    pub name: &'static str,
    from: u64,
    words: u64,
    /// Bytes from one word to the next.
    step: u64,
}

pub const PARTS: &[Part] = &[
    Part { name: "positions-and-bells", from: 0, words: 11, step: 128 },
    Part { name: "give-back-words", from: 2048, words: (512 + 4096 * 4) / 8, step: 8 },
    Part { name: "cells", from: 2048 + 512 + 4096 * 4, words: 2 * 64 * 8, step: 8 },
    Part { name: "packets", from: 28_672, words: 64 << 10, step: 8 },
];

/// Duration of the writes into the shared areas.
const A_WHILE: Duration = Duration::from_secs(1);

/// Returns the open shared areas of process `pid`; none if the process has ended.
fn areas(pid: u32) -> Vec<File> {
    let folder = format!("/proc/{pid}/fd");
    let Ok(files) = fs::read_dir(Path::new(&folder)) else { return Vec::new() };
    let is_area = |path: &Path| {
        fs::read_link(path).is_ok_and(|name| name.to_string_lossy().starts_with("/memfd:framepath-area"))
    };
    let paths = files.flatten().map(|file| file.path()).filter(|path| is_area(path));
    paths.filter_map(|path| File::options().read(true).write(true).open(path).ok()).collect()
}

/// Runs a path and writes random values into `part` of its shared areas. Checks that the path ends in
/// time, by itself, with or without an error.
pub fn play(part: &Part) {
    let clip = framepath_testkit::in_checkout("clips/h264-180p8-high.h264");
    let path = format!(
        "file {} loop=30 rate=600 ! decode threads=2 host=process watchdog=200ms ! threshold \
         host=process watchdog=200ms ! null",
        clip.display()
    );
    let mut child = framepath_testkit::framepath(&["run", &path]).spawn().unwrap();
    let (mut random, mut written, mut first) = (Random(0x1234_5678_9abc_def1), 0, None::<Instant>);
    while first.is_none_or(|first| first.elapsed() < A_WHILE) && child.try_wait().unwrap().is_none() {
        // Each worker has an area of its own.
        for area in areas(child.id()) {
            for _ in 0..20 {
                let at = part.from + random.next() % part.words * part.step;
                let value = random.next() >> (random.next() % 64);
                written += u64::from(area.write_all_at(&value.to_le_bytes(), at).is_ok());
            }
            first.get_or_insert_with(Instant::now);
        }
        sleep(Duration::from_millis(5));
    }
    let ran = framepath_testkit::wait(child, &path);
    assert!(written > 0, "{}: it ended before anything was written: {ran:#?}", part.name);
    assert!(matches!(ran.code, Some(0 | 1)), "{}: {ran:#?}", part.name);
    assert!(!ran.stderr.contains("panicked"), "{}: {ran:#?}", part.name);
    if std::env::var_os("SHOW").is_some() {
        println!("{}: {written} words, {ran:#?}", part.name);
    }
}
