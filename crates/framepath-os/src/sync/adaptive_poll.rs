// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decision to poll for a while before sleeping.

use crate::time::now_ns;

/// Number of checks before a thread sleeps, with [`PAUSES`] in between: 4 to 20 µs in total,
/// about the cost of a futex wake-up.
const LOOKS: u32 = 8;
/// Number of pauses between two checks. Each check moves the other side's cache line away from
/// it, so a check waits until a batch may have arrived.
const PAUSES: u32 = 32;
/// Sleeps shorter than this cost more than polling, nanoseconds.
const WORTH_SPINNING_NS: u64 = 50_000;

/// Polling state of one side. A short sleep turns polling on, the first long sleep turns it off.
/// A paced path never polls.
#[derive(Debug, Default)]
pub(crate) struct AdaptivePoll {
    polls: bool,
}

impl AdaptivePoll {
    /// Polls for a while if polling is on. Returns true if `ready` returned true.
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

    /// Sleeps by calling `asleep`, and turns polling on or off by the duration.
    pub(crate) fn sleep<R>(&mut self, asleep: impl FnOnce() -> R) -> R {
        let start = now_ns();
        let outcome = asleep();
        self.polls = now_ns() - start < WORTH_SPINNING_NS;
        outcome
    }
}
