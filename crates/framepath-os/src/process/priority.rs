// SPDX-License-Identifier: MIT OR Apache-2.0
//! Priority of a thread over other programs (nice value).

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::gettid;

/// Nice value of a thread with high priority: that of the threads of PipeWire.
const HIGH: i32 = -11;

/// True once a thread of this process was given high priority.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// High priority of the calling thread, and of the threads and processes that it starts, until this is dropped on the same thread.
/// Those that were started meanwhile keep theirs.
#[derive(Debug)]
pub struct HighPriority {
    /// True if the priority was changed.
    is_high: bool,
}

impl HighPriority {
    /// Gives the calling thread high priority. Does nothing where that is not allowed (it needs CAP_SYS_NICE or RLIMIT_NICE), or if the
    /// user has chosen another priority (`nice`).
    pub fn begin() -> HighPriority {
        let has_default = getpriority_process(Some(gettid())) == Ok(0);
        let is_high = has_default && setpriority_process(Some(gettid()), HIGH).is_ok();
        IS_USED.fetch_or(is_high, Ordering::Relaxed);
        HighPriority { is_high }
    }

    /// Gives the calling thread the default priority if it has high priority from the thread that has started it.
    pub fn disinherit() {
        if IS_USED.load(Ordering::Relaxed) && getpriority_process(Some(gettid())) == Ok(HIGH) {
            // Every thread may lower its priority.
            let _ = setpriority_process(Some(gettid()), 0);
        }
    }
}

impl Drop for HighPriority {
    fn drop(&mut self) {
        if self.is_high {
            // Every thread may lower its priority.
            let _ = setpriority_process(Some(gettid()), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    fn nice() -> i32 {
        getpriority_process(Some(gettid())).unwrap()
    }

    /// Runs `test` in a thread of its own, whose priority nothing else changes.
    fn alone<T: Send + 'static>(test: fn() -> T) -> T {
        thread::spawn(test).join().unwrap()
    }

    #[test]
    fn threads_that_are_started_meanwhile_have_the_priority() {
        let (before, seen) = alone(|| {
            let before = nice();
            let high = HighPriority::begin();
            let (go_on, wait) = channel();
            let child = thread::spawn(move || {
                wait.recv().unwrap();
                let inherited = nice();
                HighPriority::disinherit();
                [inherited, nice()]
            });
            let during = nice();
            drop(high);
            let after = nice();
            go_on.send(()).unwrap();
            let [inherited, disinherited] = child.join().unwrap();
            (before, [during, inherited, disinherited, after])
        });
        let is_allowed = alone(|| setpriority_process(Some(gettid()), HIGH).is_ok());
        let high = if is_allowed && before == 0 { HIGH } else { before };
        assert_eq!(seen, [high, high, before, before]);
    }

    #[test]
    fn a_priority_that_was_chosen_stays() {
        let seen = alone(|| {
            setpriority_process(Some(gettid()), 19).unwrap();
            let high = HighPriority::begin();
            let during = nice();
            drop(high);
            [during, nice()]
        });
        assert_eq!(seen, [19, 19]);
    }
}
