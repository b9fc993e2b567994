// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes which refresh of the screen is nearest to a time, from the refreshes that the screen has
//! reported. No I/O and no clock.

/// Minimum number of refreshes between the first and the last reported refresh, from which on the mean
/// interval counts as reliable.
const ENOUGH: u64 = 8;

/// Plausible refresh intervals of screens, nanoseconds: 500 Hz to 5 Hz.
const INTERVALS_NS: std::ops::RangeInclusive<f64> = 2e6..=2e8;

/// Maximum deviation of a reported refresh from the expected time, in refresh intervals. After a larger
/// deviation the clock starts anew, because the screen has changed its mode or was off.
const STRANGE: f64 = 3.0;

/// One refresh of the screen: number, and time in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Tick {
    number: u64,
    at_ns: u64,
}

/// Clock of the screen's refreshes: predicts later refreshes from the reported ones.
#[derive(Debug, Default)]
pub(super) struct Refresh {
    /// First and last reported refresh since the clock started or started anew; `None` before the first report.
    seen: Option<(Tick, Tick)>,
    /// Number of the last refresh that was assigned to a frame; 0 if none was since the clock started or started
    /// anew.
    assigned: u64,
}

/// Refresh that shows a frame, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nearest {
    /// The refresh interval is not known yet.
    Unknown,
    /// The frame is shown at this refresh.
    At(u64),
    /// All refreshes near the due time are assigned to other frames.
    Taken,
}

impl Refresh {
    /// Records refresh `number` of the screen at `at_ns`. Starts the clock anew if this refresh does not
    /// match the clock so far. Ignores a late report of an earlier refresh.
    pub(super) fn record_refresh(&mut self, number: u64, at_ns: u64) {
        let now = Tick { number, at_ns };
        self.seen = match self.seen {
            Some((first, last)) if self.follows(last, now) => Some((first, now)),
            // Ignores an earlier refresh that was reported late.
            Some(seen) if number <= seen.1.number && at_ns <= seen.1.at_ns => Some(seen),
            _ => {
                self.assigned = 0;
                Some((now, now))
            }
        };
    }

    /// Returns true if `now` may be a refresh after `last` by the same clock.
    fn follows(&self, last: Tick, now: Tick) -> bool {
        let (Some(numbers), Some(ns)) =
            (now.number.checked_sub(last.number), now.at_ns.checked_sub(last.at_ns))
        else {
            return false;
        };
        match self.interval_ns() {
            Some(interval) => (ns as f64 / interval - numbers as f64).abs() <= STRANGE,
            None => true,
        }
    }

    /// Returns the refresh interval, nanoseconds; `None` until it is reliable.
    fn interval_ns(&self) -> Option<f64> {
        let (first, last) = self.seen?;
        let numbers = last.number - first.number;
        let interval = (last.at_ns - first.at_ns) as f64 / numbers.max(1) as f64;
        (numbers >= ENOUGH && INTERVALS_NS.contains(&interval)).then_some(interval)
    }

    /// Assigns a refresh to the frame that is due at `due_ns`: the nearest one, or the next one if the
    /// previous frame has the nearest. Assigns none if the refresh would be before that of the previous
    /// frame, or more than one interval after the due time ([`Nearest::Taken`]), and before the interval is
    /// known ([`Nearest::Unknown`]).
    pub(super) fn nearest(&mut self, due_ns: u64) -> Nearest {
        let (Some(interval), Some((_, last))) = (self.interval_ns(), self.seen) else {
            return Nearest::Unknown;
        };
        let from_last = (due_ns as f64 - last.at_ns as f64) / interval;
        let nearest = last.number.saturating_add_signed(from_last.round() as i64);
        let number = if nearest == self.assigned { nearest + 1 } else { nearest };
        let beside = number as f64 - last.number as f64 - from_last;
        if number < self.assigned || beside > 1.0 {
            return Nearest::Taken;
        }
        self.assigned = number;
        Nearest::At(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Makes a clock of 60 Hz with refresh 1000 at 5 s.
    fn clock() -> Refresh {
        let mut refresh = Refresh::default();
        for number in [1000, 1002, 1018] {
            assert_eq!(refresh.nearest(6000 * MS), Nearest::Unknown);
            refresh.record_refresh(number, at(number));
        }
        refresh
    }

    fn at(number: u64) -> u64 {
        5_000 * MS + (number - 1000) * 16_666_667
    }

    #[test]
    fn a_frame_has_the_refresh_nearest_to_it() {
        let mut refresh = clock();
        for number in (1020..1200).step_by(2) {
            let jitter = number % 7 * MS;
            assert_eq!(refresh.nearest(at(number) + jitter), Nearest::At(number));
        }
    }

    #[test]
    fn frames_without_a_free_refresh_are_reported() {
        let mut refresh = clock();
        let due = (0..120).map(|frame| at(1100) + frame * 1_000_000_000 / 120);
        let assigned: Vec<Nearest> = due.map(|due| refresh.nearest(due)).collect();
        let taken = assigned.iter().filter(|nearest| **nearest == Nearest::Taken).count();
        assert!((55..=62).contains(&taken), "{taken} of 120 in 60 refreshes");
        let mut numbers: Vec<u64> = assigned
            .iter()
            .filter_map(|nearest| if let Nearest::At(number) = nearest { Some(*number) } else { None })
            .collect();
        let all = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), all, "each refresh has one frame");
    }

    #[test]
    fn a_stream_at_the_refresh_rate_loses_no_frame() {
        let mut refresh = clock();
        for frame in 0..600 {
            // On the edge between two refreshes, with some jitter.
            let due = at(1100) + 8_333_333 + frame * 16_666_667 + frame % 3 * MS / 4;
            assert!(matches!(refresh.nearest(due), Nearest::At(_)), "frame {frame}");
        }
    }

    #[test]
    fn a_changed_clock_is_determined_again() {
        let mut refresh = clock();
        // The screen was off for a second, and the screen's count of refreshes hardly rose.
        refresh.record_refresh(1020, at(1018) + 1000 * MS);
        assert_eq!(refresh.nearest(8000 * MS), Nearest::Unknown);
        refresh.record_refresh(1040, at(1018) + 1200 * MS);
        assert_eq!(refresh.nearest(at(1018) + 1220 * MS), Nearest::At(1042));
        // A late report changes nothing.
        refresh.record_refresh(1030, at(1018) + 1100 * MS);
        assert_eq!(refresh.nearest(at(1018) + 1240 * MS), Nearest::At(1044));
    }

    #[test]
    fn an_impossible_clock_is_not_used() {
        let mut refresh = Refresh::default();
        for number in 0..100 {
            refresh.record_refresh(number, 7);
        }
        assert_eq!(refresh.nearest(8), Nearest::Unknown);
    }
}
