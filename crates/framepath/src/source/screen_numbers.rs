// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers and times of the frames of a screen, which come when it changes.

use framepath_model::stream::FrameMeta;

/// Numbers and times of the frames so far.
#[derive(Debug, Default)]
pub(super) struct ScreenNumbers {
    next_seq: u64,
    /// Time of the first frame, CLOCK_MONOTONIC nanoseconds; `None` before.
    first_ns: Option<u64>,
}

impl ScreenNumbers {
    /// Returns the data of the next frame, of the picture at `at_ns` (CLOCK_MONOTONIC).
    pub(super) fn next(&mut self, at_ns: u64, birth_ns: u64) -> FrameMeta {
        let first_ns = *self.first_ns.get_or_insert(at_ns);
        let time_us = at_ns.saturating_sub(first_ns) / 1000;
        let seq = self.next_seq;
        self.next_seq += 1;
        FrameMeta { seq, birth_ns, pts: i64::try_from(time_us).ok(), ..FrameMeta::default() }
    }

    /// Leaves out the numbers of `frames` frames that were not made.
    #[cfg(feature = "kms")]
    pub(super) fn leave_out(&mut self, frames: u32) {
        self.next_seq += u64::from(frames);
    }

    /// Returns true once there was a frame.
    #[cfg(any(feature = "kms", feature = "wayland"))]
    pub(super) fn has_begun(&self) -> bool {
        self.first_ns.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_begin_at_the_first_frame() {
        let mut numbers = ScreenNumbers::default();
        let mut next = |at_ns| {
            let FrameMeta { seq, pts, .. } = numbers.next(at_ns, 7);
            (seq, pts)
        };
        assert_eq!(
            [next(5_000_000), next(5_017_000), next(4_000_000)],
            [(0, Some(0)), (1, Some(17)), (2, Some(0))]
        );
    }
}
