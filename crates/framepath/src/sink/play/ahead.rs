// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decision how far ahead of its due time a frame goes to a screen that shows frames at their times by
//! itself. Several frames go at once, and then none for as long, so that one wake-up serves
//! them all. Pure: the caller passes the time.

use std::collections::VecDeque;

/// Maximum number of frames that the screen holds before their due times.
pub(super) const FRAMES: usize = 4;

/// Number of frames that the screen still holds when the thread wakes up to prepare the next frames.
const LEFT: usize = 1;

/// Longest time from the hand-over of a frame to its due time, nanoseconds. It is limited because the
/// viewer's keys take effect only after these frames.
const LEAD_NS: u64 = 200_000_000;

/// Due times of the frames that the screen holds, nanoseconds, oldest first.
#[derive(Debug, Default)]
pub(super) struct Ahead(VecDeque<u64>);

impl Ahead {
    /// Returns the earliest time to hand over the frame that is due at `due_ns`; `None` if that is not after
    /// `now_ns`. Forgets the frames that were due by `now_ns`. All times are on one clock, in nanoseconds.
    pub(super) fn wait(&mut self, due_ns: u64, now_ns: u64) -> Option<u64> {
        self.0.retain(|due| *due > now_ns);
        let early = due_ns.saturating_sub(LEAD_NS);
        let full = if self.0.len() < FRAMES { 0 } else { self.0[self.0.len() - 1 - LEFT] };
        Some(early.max(full)).filter(|until| *until > now_ns)
    }

    /// Records that the frame that is due at `due_ns` was handed to the screen.
    pub(super) fn gone(&mut self, due_ns: u64) {
        self.0.push_back(due_ns);
    }

    /// Returns the due time of the last frame that was handed over, nanoseconds; `None` if there is none, or
    /// if the screen had shown it at the last [`Ahead::wait`].
    pub(super) fn last(&self) -> Option<u64> {
        self.0.back().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Plays frames that cost nothing to make; returns the number of sleeps.
    fn naps(interval_ms: u64, frames: u64) -> u64 {
        let (mut ahead, mut now, mut naps) = (Ahead::default(), 0, 0);
        for frame in 0..frames {
            let due = frame * interval_ms * MS;
            if let Some(until) = ahead.wait(due, now) {
                assert!(until > now, "it sleeps into the past");
                (now, naps) = (until, naps + 1);
            }
            assert!(due >= now, "frame {frame} is late");
            assert!(ahead.0.len() <= FRAMES);
            ahead.gone(due);
        }
        naps
    }

    #[test]
    fn a_wake_up_serves_several_frames() {
        assert_eq!(naps(33, 301), 99);
        assert_eq!(naps(16, 301), 99);
        // No frame goes to the screen more than `LEAD_NS` before its due time.
        assert_eq!(naps(1000, 11), 10);
    }

    #[test]
    fn nobody_waits_for_a_source_that_is_only_just_in_time() {
        let mut ahead = Ahead::default();
        for now in (0..100).map(|n| n * 40 * MS) {
            assert_eq!(ahead.wait(now + 10 * MS, now), None);
            ahead.gone(now + 10 * MS);
        }
        assert_eq!(ahead.last(), Some(99 * 40 * MS + 10 * MS));
    }
}
