// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU time of the threads that a library has started.

use std::fs;
use std::sync::{Mutex, PoisonError};

use crate::time::ThreadClock;

/// Held while a library starts threads, so that the threads of two callers are told apart.
static STARTING: Mutex<()> = Mutex::new(());

/// Threads that a library started for one object, such as a decoder.
#[derive(Clone, Debug, Default)]
pub struct LibraryThreads {
    clocks: Vec<ThreadClock>,
}

impl LibraryThreads {
    /// Runs `open`, in which a library starts threads from the calling thread, and returns its result and
    /// these threads: the new threads of this process that have the calling thread's name, as new threads do,
    /// or a name that libavcodec or dav1d gives to its threads (beginning with `av:` or `dav1d`). Also counts
    /// threads with such a name that other code starts meanwhile, but not those of other calls of this
    /// function, which wait for each other. Finds no thread without a readable `/proc`.
    pub fn started_by<R>(open: impl FnOnce() -> R) -> (R, LibraryThreads) {
        // The lock guards no data, so a panic of another holder changes nothing.
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let before = threads();
        let result = open();
        let own = name("thread-self");
        let is_library = |id: &i32| {
            name(&format!("self/task/{id}")).is_some_and(|name| {
                Some(&name) == own.as_ref() || name.starts_with("av:") || name.starts_with("dav1d")
            })
        };
        let started = threads().into_iter().filter(|id| !before.contains(id));
        (result, LibraryThreads { clocks: started.filter(is_library).map(ThreadClock::of).collect() })
    }

    /// Returns the number of threads that were found, also of those that have ended since.
    pub fn len(&self) -> usize {
        self.clocks.len()
    }

    /// Returns true if no thread of the library was found.
    pub fn is_empty(&self) -> bool {
        self.clocks.is_empty()
    }

    /// Returns the CPU time of the threads since their start, nanoseconds, without those that have ended. One
    /// system call for each thread. Any thread.
    pub fn cpu_ns(&self) -> u64 {
        self.clocks.iter().filter_map(|clock| clock.read()).sum()
    }
}

/// Returns the ids of the threads of this process; none without a readable `/proc`.
fn threads() -> Vec<i32> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the name of the thread with the folder `folder` below `/proc`, with a line break at its end;
/// `None` if the name cannot be read.
fn name(folder: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{folder}/comm")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_cpu_time_of_new_threads_is_counted_until_they_end() {
        let (end, ended) = channel::<()>();
        let (worked, works) = channel();
        let (thread, threads) = LibraryThreads::started_by(|| {
            // Started by the C library's function, as libraries do: it keeps the name of its creator.
            std::thread::spawn(move || {
                let until = crate::time::thread_cpu_ns() + 5_000_000;
                while crate::time::thread_cpu_ns() < until {}
                worked.send(()).unwrap();
                let _ = ended.recv();
            })
        });
        works.recv().unwrap();
        assert_eq!(threads.len(), 1);
        assert!(threads.cpu_ns() >= 5_000_000);
        drop(end);
        thread.join().unwrap();
        let (none, no_threads) = LibraryThreads::started_by(|| 7);
        assert_eq!((none, no_threads.is_empty(), no_threads.cpu_ns()), (7, true, 0));
    }
}
