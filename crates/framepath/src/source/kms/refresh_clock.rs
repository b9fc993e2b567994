// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of a screen's refreshes, and which picture a refresh has shown.

use super::card::ScreenRefresh;

/// Times of the refreshes so far, from which the next one is predicted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RefreshClock {
    last: Option<ScreenRefresh>,
    /// Time between refreshes, nanoseconds; 0 while it is not known.
    period_ns: u64,
}

/// Longest credible time between refreshes, nanoseconds: a longer one is a pause of the screen.
const LONGEST_NS: u64 = 1_000_000_000;

impl RefreshClock {
    /// Makes a clock of the last refresh and the screen's nominal time between refreshes, nanoseconds.
    pub(super) fn of((last, period_ns): (ScreenRefresh, u64)) -> RefreshClock {
        RefreshClock { last: Some(last), period_ns }
    }

    /// Adds a refresh. Returns the number of refreshes between the one before and this one.
    pub(super) fn add(&mut self, refresh: ScreenRefresh) -> u32 {
        let mut between = 0;
        if let Some(last) = self.last.replace(refresh) {
            // The kernel's number wraps around.
            let steps = refresh.number.wrapping_sub(last.number);
            let period_ns = refresh.at_ns.saturating_sub(last.at_ns) / u64::from(steps.max(1));
            self.period_ns = if (1..LONGEST_NS).contains(&period_ns) { period_ns } else { 0 };
            between = if steps > u32::MAX / 2 { 0 } else { steps.saturating_sub(1) };
        }
        between
    }

    /// Returns the time shortly before the next refresh after `now_ns`, and the time of that refresh, CLOCK_MONOTONIC nanoseconds;
    /// `None` while the period is not known.
    pub(super) fn before_next(&self, now_ns: u64) -> Option<(u64, u64)> {
        let last = self.last.filter(|_| self.period_ns > 0)?;
        let passed = now_ns.saturating_sub(last.at_ns) / self.period_ns;
        let next_ns = last.at_ns.saturating_add((passed + 1).saturating_mul(self.period_ns));
        Some((next_ns - self.period_ns / 5, next_ns))
    }
}

/// Returns what a refresh has shown, of what the kernel's state had at three times: `before`, at the refresh before this one (what
/// that one has shown), `late`, shortly before this one, and `now`, after it; `None`: not known.
///
/// The state has what was committed, not what is shown: a program that is woken by the refresh may have committed its next picture
/// before the state is read. It cannot commit twice between two refreshes. So a picture that was committed before the refresh is
/// the one that the refresh has shown.
pub(super) fn shown<T: PartialEq>(before: Option<&T>, late: Option<T>, now: T) -> T {
    match late {
        Some(late) if Some(&late) != before => late,
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_has_shown_what_was_committed_before_it() {
        // No commit since the refresh before; then one at the last moment, or just after the refresh, which look alike.
        assert_eq!(shown(Some(&1), Some(1), 1), 1);
        assert_eq!(shown(Some(&1), Some(1), 2), 2);
        // A commit in time, and one more just after the refresh.
        assert_eq!(shown(Some(&1), Some(2), 2), 2);
        assert_eq!(shown(Some(&1), Some(2), 3), 2);
        // The first refresh.
        assert_eq!(shown(None, None, 1), 1);
        assert_eq!(shown(None, Some(1), 2), 1);
    }

    #[test]
    fn refreshes_are_predicted_and_counted() {
        let mut clock = RefreshClock::default();
        assert_eq!(clock.before_next(7), None);
        assert_eq!(clock.add(ScreenRefresh { number: u32::MAX, at_ns: 1_000 }), 0);
        assert_eq!(clock.before_next(1_500), None);
        assert_eq!(clock.add(ScreenRefresh { number: 1, at_ns: 3_000 }), 1);
        assert_eq!(clock.before_next(3_000), Some((3_800, 4_000)));
        assert_eq!(clock.before_next(3_999), Some((3_800, 4_000)));
        assert_eq!(clock.before_next(4_000), Some((4_800, 5_000)));
        let nominal = RefreshClock::of((ScreenRefresh { number: 7, at_ns: 3_000 }, 1_000));
        assert_eq!(nominal.before_next(3_001), Some((3_800, 4_000)));
        // A pause, and a count that begins anew.
        assert_eq!(clock.add(ScreenRefresh { number: 2, at_ns: 9_000_000_000 }), 0);
        assert_eq!(clock.before_next(9_000_000_001), None);
        assert_eq!(clock.add(ScreenRefresh { number: 0, at_ns: 9_000_001_000 }), 0);
    }
}
