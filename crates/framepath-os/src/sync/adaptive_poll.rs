// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polling for a few microseconds before a thread sleeps, if earlier sleeps were short.

use crate::time::now_ns;

/// Number of checks before a thread sleeps, with [`PAUSES`] pauses before each check: 4 to 20 µs in
/// total, about the cost of a futex wake-up.
const LOOKS: u32 = 8;
/// Number of pauses (`spin_loop`) before each check. A check moves the other side's cache line away
/// from that side, so the pauses give the other side time to add several values.
const PAUSES: u32 = 32;
/// Duration below which a sleep is short, nanoseconds. After a sleep shorter than this, the next wait polls
/// first, because polling would have cost less than the sleep.
const WORTH_SPINNING_NS: u64 = 50_000;

/// Polling state of one side that waits: an end of a queue or ring, or the owner of a pool. Polling is off
/// at first. A sleep shorter than [`WORTH_SPINNING_NS`] turns polling on; any other sleep turns it off. So
/// a paced path, whose sleeps are long, does not poll.
#[derive(Debug, Default)]
pub(crate) struct AdaptivePoll {
    polls: bool,
}

impl AdaptivePoll {
    /// Calls `ready` up to [`LOOKS`] times if polling is on. Returns true as soon as `ready` returns
    /// true. Returns false if `ready` never returns true, if polling is off, and always under loom.
    pub(crate) fn spin(&self, ready: impl Fn() -> bool) -> bool {
        // Under the model checker there is no polling: the checker explores all schedules itself,
        // and a clock would disturb it.
        if !self.polls || cfg!(loom) {
            return false;
        }
        for _ in 0..LOOKS {
            for _ in 0..PAUSES {
                std::hint::spin_loop();
            }
            if ready() {
                return true;
            }
        }
        false
    }

    /// Calls `asleep`, which sleeps, and returns its result. Turns polling on if the call took less
    /// than [`WORTH_SPINNING_NS`], and off otherwise.
    pub(crate) fn sleep<R>(&mut self, asleep: impl FnOnce() -> R) -> R {
        let start = now_ns();
        let outcome = asleep();
        self.polls = now_ns() - start < WORTH_SPINNING_NS;
        outcome
    }
}
