// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check that a run leaks no resources in its process.

use std::fs;
use std::sync::Mutex;

use framepath::host::dismiss_spares;

use super::parts::{unpoisoned, wait_for};
use super::way::BEHIND;

/// Lock that a running check holds, because the counts cover the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Names of the threads that belong to a path, including the watchers of its workers.
const THREADS: [&str; 2] = [BEHIND, "fp-watch"];

/// Runs `check` while no other check runs in this process. Asserts that afterwards the process has
/// the same open files and child processes as before, and no thread of a path; waits up to about 20
/// s for the end of these threads. Ends this process's spare workers before and after.
pub fn none(check: impl FnOnce()) {
    let _alone = unpoisoned(&ALONE);
    // Spare workers for the next path do not belong to this one.
    dismiss_spares();
    let before = (open_files(), children());
    check();
    dismiss_spares();
    // A joined thread stays in /proc for a moment.
    wait_for("the end of the path's threads", || threads_behind() == 0);
    assert_eq!((open_files(), children()), before, "open files, children");
}

fn open_files() -> Vec<String> {
    let mut files: Vec<String> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .map(|link| link.display().to_string())
        // Excludes the descriptor of the folder itself, and all other files of /proc.
        .filter(|link| !link.starts_with("/proc/"))
        .collect();
    files.sort_unstable();
    files
}

fn threads_behind() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| THREADS.contains(&name.trim_end())).count()
}

/// Returns the process ids of the children of all threads of this process, including zombies.
fn children() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread may have ended in the meantime.
    let lists = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}
