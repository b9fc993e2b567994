// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTP timestamps of a stream.

use framepath_model::stream::{FrameMeta, Rational};

/// Ticks of RTP's clock for video.
const RTP: Rational = Rational::new(1, 90_000);
const NANOSECONDS: Rational = Rational::new(1, 1_000_000_000);

/// Step back of presentation times, RTP ticks, from which on it is not the order of B frames: a file is played again.
const STEP_BACK: i64 = 90_000;

/// RTP timestamps by presentation time, which keep the order of B frames. The first one is the birth of the first
/// frame. They go on when a file is played again.
#[derive(Debug)]
pub(super) struct RtpClock {
    time_base: Rational,
    /// Frame from which times count; `None` before the first.
    start: Option<ClockStart>,
    /// Timestamp and birth (nanoseconds) of the last frame.
    last: (i64, u64),
}

/// Frame from which the times of later ones count.
#[derive(Clone, Copy, Debug)]
struct ClockStart {
    /// Timestamp.
    time: i64,
    pts: Option<i64>,
    birth_ns: u64,
}

impl RtpClock {
    /// Makes the clock of a stream with this time base.
    pub(super) fn new(time_base: Rational) -> RtpClock {
        RtpClock { time_base, start: None, last: (0, 0) }
    }

    /// Returns the timestamp of a frame that was born at `birth_ns`. Without presentation times, the births count.
    pub(super) fn timestamp(&mut self, meta: &FrameMeta, birth_ns: u64) -> u32 {
        let ticks = |ns: u64| NANOSECONDS.rescale(i64::try_from(ns).unwrap_or(i64::MAX), RTP).unwrap_or(0);
        let pts = meta.pts;
        let start = *self.start.get_or_insert_with(|| ClockStart { time: ticks(birth_ns), pts, birth_ns });
        let by_pts = pts
            .zip(start.pts)
            .and_then(|(pts, first)| self.time_base.rescale(pts.saturating_sub(first), RTP));
        let elapsed = by_pts.unwrap_or_else(|| ticks(birth_ns.saturating_sub(start.birth_ns)));
        let mut time = start.time.wrapping_add(elapsed);
        let (last, last_birth_ns) = self.last;
        if by_pts.is_some() && time.saturating_add(STEP_BACK) < last {
            time = last.wrapping_add(ticks(birth_ns.saturating_sub(last_birth_ns)).max(1));
            self.start = Some(ClockStart { time, pts, birth_ns });
        }
        self.last = (time, birth_ns);
        // RTP's timestamps wrap.
        time as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pts: Option<i64>) -> FrameMeta {
        FrameMeta { pts, ..FrameMeta::default() }
    }

    #[test]
    fn timestamps_follow_presentation_times_from_the_first_birth() {
        let mut clock = RtpClock::new(Rational::new(1, 25));
        // 3 s; 2^32 ticks are 47,721.858844444 s.
        let stamps: Vec<u32> = [5, 8, 6, 4].map(|pts| clock.timestamp(&at(Some(pts)), 3_000_000_000)).into();
        assert_eq!(stamps, [270_000, 280_800, 273_600, 266_400]);
    }

    #[test]
    fn births_count_without_presentation_times() {
        let mut clock = RtpClock::new(Rational::new(1, 25));
        assert_eq!(clock.timestamp(&at(None), 1_000_000), 90);
        assert_eq!(clock.timestamp(&at(None), 41_000_000), 90 + 3600);
        assert_eq!(clock.timestamp(&at(Some(7)), 51_000_000), 90 + 4500);
    }

    #[test]
    fn timestamps_go_on_when_a_file_is_played_again() {
        let mut clock = RtpClock::new(Rational::new(1, 25));
        let mut stamp = |pts, birth_ms: u64| clock.timestamp(&at(Some(pts)), birth_ms * 1_000_000);
        let stamps = [stamp(0, 1000), stamp(100, 5000), stamp(0, 5040), stamp(2, 5120), stamp(1, 5080)];
        assert_eq!(stamps, [90_000, 450_000, 453_600, 460_800, 457_200]);
        // Births that do not pass.
        assert_eq!([stamp(100, 5080), stamp(0, 5080), stamp(1, 5080)], [813_600, 813_601, 817_201]);
    }

    #[test]
    fn timestamps_wrap() {
        let mut clock = RtpClock::new(Rational::new(1, 25));
        let end_ns = (u64::from(u32::MAX) + 1) * 100_000 / 9;
        assert!(clock.timestamp(&at(Some(0)), end_ns - 20_000_000) > u32::MAX - 2000);
        assert!(clock.timestamp(&at(Some(1)), end_ns) < 2000);
    }
}
