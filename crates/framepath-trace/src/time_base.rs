// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units of presentation times.

use crate::calls::NO_PTS;

/// Offsets of the time base in a link between two filters (AVFilterLink). Source: the public headers of FFmpeg 4 to 6, and of
/// FFmpeg 7.1 and newer. In each, the other place is zero for video.
pub(crate) const TIME_BASES: [i32; 2] = [72, 96];

/// Unit of presentation times: a fraction of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeBase {
    numerator: i32,
    denominator: i32,
}

const SECOND_NS: i128 = 1_000_000_000;

impl TimeBase {
    /// Returns the unit in the word of an AVRational; `None` if it is no positive number.
    pub(crate) fn of_word(word: u64) -> Option<TimeBase> {
        let (numerator, denominator) = (word as i32, (word >> 32) as i32);
        (numerator > 0 && denominator > 0).then_some(TimeBase { numerator, denominator })
    }

    /// Returns a time in nanoseconds, rounded down; `None` for no time, and for one beyond the range of 64 bits.
    pub(crate) fn ns(self, pts: i64) -> Option<i64> {
        let ns = i128::from(pts) * i128::from(self.numerator) * SECOND_NS;
        (pts != NO_PTS).then(|| ns.div_euclid(self.denominator.into()).try_into().ok()).flatten()
    }

    /// Returns the last multiple of this unit up to a time in nanoseconds.
    pub(crate) fn last_before(self, ns: i64) -> i64 {
        let multiple = i128::from(ns) * i128::from(self.denominator);
        let multiple = multiple.div_euclid(i128::from(self.numerator) * SECOND_NS);
        multiple.try_into().unwrap_or(if ns < 0 { i64::MIN + 1 } else { i64::MAX })
    }

    /// Returns half a unit in nanoseconds, rounded down.
    pub(crate) fn half_ns(self) -> i64 {
        (i128::from(self.numerator) * SECOND_NS / (2 * i128::from(self.denominator))) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(numerator: u64, denominator: u64) -> TimeBase {
        TimeBase::of_word(denominator << 32 | numerator).unwrap()
    }

    #[test]
    fn a_unit_turns_times_into_nanoseconds_and_back() {
        let film = unit(1001, 24_000);
        assert_eq!(film.ns(24), Some(1_001_000_000));
        assert_eq!(film.last_before(1_001_000_000), 24);
        assert_eq!(film.half_ns(), 20_854_166);
        assert_eq!(unit(1, 10).last_before(99_999_999), 0);
        assert_eq!(unit(1, 10).last_before(-1), -1);
        assert_eq!(unit(1, 3).ns(-1), Some(-333_333_334));
    }

    #[test]
    fn what_is_no_time_or_no_unit_is_refused() {
        assert_eq!(unit(1, 25).ns(NO_PTS), None);
        assert_eq!(unit(i32::MAX as u64, 1).ns(i64::MAX), None);
        assert_eq!(unit(1, i32::MAX as u64).last_before(i64::MAX), i64::MAX);
        for word in [0, 1, 25 << 32, u64::MAX, 1 << 63 | 1] {
            assert_eq!(TimeBase::of_word(word), None);
        }
    }
}
