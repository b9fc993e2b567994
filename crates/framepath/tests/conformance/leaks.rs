// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run must not leave behind in its process.

use std::fs;
use std::sync::Mutex;

use crate::parts::{unpoisoned, wait_for};
use crate::way::BEHIND;

/// Held by the one check that runs: the counts are of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs `check`; afterwards no more files are open than before, and no thread
/// of a path is left.
pub fn none(check: impl FnOnce()) {
    let _alone = unpoisoned(&ALONE);
    let before = open_files();
    check();
    // A thread that was joined stays listed for a moment.
    wait_for("the end of the path's threads", || threads_behind() == 0);
    assert_eq!(open_files(), before, "open files");
}

fn open_files() -> Vec<String> {
    let mut files: Vec<String> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .map(|link| link.display().to_string())
        // The folder that is being read.
        .filter(|link| !link.starts_with("/proc/"))
        .collect();
    files.sort_unstable();
    files
}

fn threads_behind() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == BEHIND).count()
}
