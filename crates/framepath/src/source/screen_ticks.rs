// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of the frames of a screen that changes at any time.

/// Times of the frames at a rate. A frame may come before its time, so that the changes of a program that draws at this
/// rate are captured at once, whenever it draws. The number of frames in a longer time does not exceed the rate by more
/// than [`CATCH_UP`].
pub(super) struct ScreenTicks {
    /// Least mean time between frames, nanoseconds; 0: no limit.
    period_ns: u64,
    /// Time of the next frame, CLOCK_MONOTONIC nanoseconds.
    due_ns: u64,
}

/// Share by which the number of frames may exceed the rate. At exactly the rate, a frame too many, such as one of a
/// picture that is half drawn, would delay all later frames.
const CATCH_UP: f64 = 0.05;

/// Most nanoseconds by which a frame comes before its time. Below 10 frames a second, this is less than a period: two
/// frames in quick succession would be a surprise in a slow series of pictures.
const MOST_EARLY_NS: u64 = 100_000_000;

impl ScreenTicks {
    /// Makes the times of `hz` frames a second at most; 0: no limit.
    pub(super) fn new(hz: f64) -> ScreenTicks {
        ScreenTicks { period_ns: if hz > 0.0 { (1e9 / hz / (1.0 + CATCH_UP)) as u64 } else { 0 }, due_ns: 0 }
    }

    /// Returns the earliest time of the next frame, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn earliest_ns(&self) -> u64 {
        self.due_ns.saturating_sub(self.period_ns.min(MOST_EARLY_NS))
    }

    /// Sets the time of the frame behind the frame that is captured at `now_ns`. The times are equally spaced while
    /// frames follow each other, and begin anew after a pause. (This is the generic cell rate algorithm of ITU-T I.371.)
    pub(super) fn take(&mut self, now_ns: u64) {
        self.due_ns = self.due_ns.max(now_ns).saturating_add(self.period_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Captures changes at these times, ms, and returns the times of the frames.
    fn captured(hz: f64, changes: &[u64]) -> Vec<u64> {
        let mut ticks = ScreenTicks::new(hz);
        let capture = |change: &u64| {
            let now = ticks.earliest_ns().max(change * MS);
            ticks.take(now);
            now / MS
        };
        changes.iter().map(capture).collect()
    }

    #[test]
    fn a_program_that_draws_at_the_rate_is_captured_at_once() {
        let changes = [1000, 1003, 1013, 1024, 1033, 1043, 1053];
        assert_eq!(captured(100.0, &changes), changes);
        let after_a_pause = [1000, 1010, 5000, 5007, 5017];
        assert_eq!(captured(100.0, &after_a_pause), after_a_pause);
        // A few frames too many delay only those that follow soon.
        let many = [1000, 1001, 1002, 1003].into_iter().chain((1..60).map(|number| 1003 + number * 10));
        let changes: Vec<u64> = many.collect();
        let frames = captured(100.0, &changes);
        let delays: Vec<u64> = frames.iter().zip(&changes).map(|(frame, change)| frame - change).collect();
        assert!(delays[3] > 10 && delays[59..].iter().all(|delay| *delay == 0), "{delays:?}");
    }

    #[test]
    fn more_changes_than_the_rate_are_captured_at_the_rate() {
        let changes: Vec<u64> = (1000..2000).collect();
        let frames = captured(100.0, &changes);
        let in_ten_seconds = frames.iter().filter(|at| **at < 11_000).count();
        assert!((1000..=1052).contains(&in_ten_seconds), "{in_ten_seconds}");
        assert_eq!(captured(1.0, &[1000, 1001, 1002]), [1000, 1852, 2804]);
        assert_eq!(captured(0.0, &[7, 7, 8]), [7, 7, 8]);
        let mut rare = ScreenTicks::new(1e-30);
        rare.take(7);
        assert_eq!(rare.due_ns, u64::MAX);
    }
}
