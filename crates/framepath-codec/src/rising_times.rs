// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times that increase, as encoders and muxers need them.

/// Maker of times that increase from times that may be missing, repeat, or jump back where a stream restarts.
#[derive(Debug)]
pub(crate) struct RisingTimes {
    /// Distance of a time from the one before it where the input has none that is later, in ticks; at least 1.
    step: i64,
    /// Difference between the present output times and input times, ticks.
    shift: i64,
    /// Last output time; `None` before the first.
    last: Option<i64>,
}

impl RisingTimes {
    /// Makes the state before the first time. `step` is the duration of a frame in ticks; below 1 acts as 1.
    pub(crate) fn new(step: i64) -> RisingTimes {
        RisingTimes { step: step.max(1), shift: 0, last: None }
    }

    /// Returns the time for the input `time`: the same time, shifted by the restarts so far. A time that is not
    /// later than the last one is a restart: the output goes on one step behind the last. A missing time (`None`)
    /// is one step behind the last, too, and 0 at the start.
    pub(crate) fn next(&mut self, time: Option<i64>) -> i64 {
        let shifted = time.map(|time| time.saturating_add(self.shift));
        let next = match (shifted, self.last) {
            (Some(shifted), Some(last)) if shifted > last => shifted,
            (Some(shifted), None) => shifted,
            (_, last) => last.map_or(0, |last| last.saturating_add(self.step)),
        };
        if let Some(shifted) = shifted {
            self.shift = self.shift.saturating_add(next.saturating_sub(shifted));
        }
        self.last = Some(next);
        next
    }

    /// Returns the difference between the last output time and its input time, ticks.
    pub(crate) fn shift(&self) -> i64 {
        self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_rise_across_restarts_and_gaps() {
        let mut times = RisingTimes::new(40);
        let inputs = [Some(-80), Some(0), None, Some(100), Some(100), Some(-80), Some(0), Some(90)];
        let outputs = inputs.map(|time| times.next(time));
        assert_eq!(outputs, [-80, 0, 40, 100, 140, 180, 260, 350]);
        assert_eq!(times.shift(), 260);
    }

    #[test]
    fn hostile_times_do_not_overflow() {
        let mut times = RisingTimes::new(0);
        for time in [i64::MAX, i64::MIN, i64::MAX, 0, i64::MIN] {
            times.next(Some(time));
        }
    }
}
