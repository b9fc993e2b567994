// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decision to poll for a while before sleeping.

use crate::time::now_ns;

/// Looks before a thread sleeps, with [`PAUSES`] between: 4 to 20 µs in all,
/// about what a futex wake-up costs.
const LOOKS: u32 = 8;
/// Pauses between two looks. Each look takes the other side's cache line away
/// from it, so a look waits until a batch can be there.
const PAUSES: u32 = 32;
/// A sleep shorter than this would have been cheaper awake.
const WORTH_SPINNING_NS: u64 = 50_000;

/// Polling state of one side: polling pays after a sleep that turned out short, and stops
/// paying with the first long one. A paced path never polls.
#[derive(Debug, Default)]
pub(crate) struct AdaptivePoll {
    polls: bool,
}

impl AdaptivePoll {
    /// Polls for a while, if that pays; returns true if `ready` came true.
    pub(crate) fn spin(&self, ready: impl Fn() -> bool) -> bool {
        // The model checker polls by itself, and a clock would disturb it.
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

    /// Sleeps by `asleep`, and learns from how long that took.
    pub(crate) fn sleep<R>(&mut self, asleep: impl FnOnce() -> R) -> R {
        let start = now_ns();
        let outcome = asleep();
        self.polls = now_ns() - start < WORTH_SPINNING_NS;
        outcome
    }
}
