// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handshake between the thread of a [`Watcher`](super::Watcher), which may sleep without a limit, and
//! threads that report changes to it. No change is missed.
//!
//! In these steps, `quiet` is the word of [`WatcherSleep`]:
//!
//! ```text
//! watcher:  quiet = 1; fence; look again; sleep
//! notifier: change something; fence; where quiet is not 0: wake
//! ```
//!
//! At least one of the two sees the other's write.

use crate::sync::atomics::{AtomicU32, Ordering, fence};

/// Result of the function `look` of [`watch`](super::watch()), which checks the peer: the time of the next
/// call of `look`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchResult {
    /// Call `look` again after the watcher's period.
    Again,
    /// Call `look` once more immediately. If the result is `Quiet` again, do not call `look` until another
    /// thread reports a change, and then one period later.
    Quiet,
}

/// Word that is 1 while the thread of a [`Watcher`](super::Watcher) sleeps without a limit or is about to,
/// and 0 while the thread checks its peer every period.
#[derive(Debug)]
pub(super) struct WatcherSleep(AtomicU32);

impl WatcherSleep {
    pub(super) fn new() -> WatcherSleep {
        WatcherSleep(AtomicU32::new(0))
    }

    /// Calls `look` on the watcher's thread. If `look` returns `Quiet`, sets the word to 1 and calls
    /// `look` once more, so that a change after the first look and before the store is not missed. The
    /// word stays 1 if the second call returns `Quiet`, too, and is 0 otherwise. The caller of this
    /// function sleeps afterwards: without a limit if the word is 1 ([`WatcherSleep::is_settled`]).
    pub(super) fn check_and_sleep(&self, mut look: impl FnMut() -> WatchResult) {
        if look() == WatchResult::Again {
            return;
        }
        self.0.store(1, Ordering::Relaxed);
        // Pairs with the fence in `must_wake`: if the notifier found the word 0, the next look
        // sees its change.
        fence(Ordering::SeqCst);
        if look() == WatchResult::Again {
            self.wake_up();
        }
    }

    /// Sets the word to 0. Called by the watcher's thread: after another thread has woken it, or when it will
    /// not sleep without a limit after all.
    pub(super) fn wake_up(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Returns true if the word is 1, so that the watcher's thread may sleep without a limit. Called by that
    /// thread.
    pub(super) fn is_settled(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Returns true if the watcher's thread has to be woken to see a change. Called by a thread that reports
    /// a change, after the change.
    pub(super) fn must_wake(&self) -> bool {
        // Pairs with the fence in `check_and_sleep`. An atomic of any order is not enough: every
        // processor may reorder a store and a later load of another word.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;

    use super::*;

    /// Models a thread that makes `changes` changes, and a watcher that looks until it has seen the last
    /// one. `event` stands for the eventfd, whose reads and writes the kernel orders. A change that the
    /// watcher never sees ends the model as a livelock.
    fn every_change_is_looked_at(changes: u32) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(move || {
            let quiet = Arc::new(WatcherSleep::new());
            let work = Arc::new(AtomicU32::new(0));
            let event = Arc::new(AtomicU32::new(0));
            let stirrer = {
                let (quiet, work, event) = (quiet.clone(), work.clone(), event.clone());
                loom::thread::spawn(move || {
                    for change in 1..=changes {
                        work.store(change, Ordering::Relaxed);
                        if quiet.must_wake() {
                            event.fetch_add(1, Ordering::AcqRel);
                        }
                    }
                })
            };
            let mut seen = 0;
            while seen != changes {
                if quiet.is_settled() {
                    while event.swap(0, Ordering::AcqRel) == 0 {
                        loom::thread::yield_now();
                    }
                    quiet.wake_up();
                }
                quiet.check_and_sleep(|| {
                    let now = work.load(Ordering::Relaxed);
                    let new = now != seen;
                    seen = now;
                    if new { WatchResult::Again } else { WatchResult::Quiet }
                });
            }
            stirrer.join().unwrap();
        });
    }

    #[test]
    fn a_change_before_the_stir_is_looked_at() {
        every_change_is_looked_at(1);
    }

    #[test]
    fn changes_after_a_wake_up_are_looked_at() {
        every_change_is_looked_at(2);
    }
}
