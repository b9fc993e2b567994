// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTP timestamps of a stream.

use framepath_model::stream::{FrameMeta, Rational};

/// Ticks of RTP's clock for video.
const RTP: Rational = Rational::new(1, 90_000);
const NANOSECONDS: Rational = Rational::new(1, 1_000_000_000);

/// RTP timestamps by presentation time, which keep the order of B frames. The first one is the birth of the first
/// frame.
#[derive(Debug)]
pub(super) struct RtpClock {
    time_base: Rational,
    /// Timestamp, presentation time and birth (nanoseconds) of the first frame; `None` before it.
    first: Option<(i64, Option<i64>, u64)>,
}

impl RtpClock {
    /// Makes the clock of a stream with this time base.
    pub(super) fn new(time_base: Rational) -> RtpClock {
        RtpClock { time_base, first: None }
    }

    /// Returns the timestamp of a frame that was born at `birth_ns`. Without presentation times, the births count.
    pub(super) fn timestamp(&mut self, meta: &FrameMeta, birth_ns: u64) -> u32 {
        let ticks = |ns: u64| NANOSECONDS.rescale(i64::try_from(ns).unwrap_or(i64::MAX), RTP).unwrap_or(0);
        let (start, first_pts, first_ns) = *self.first.get_or_insert((ticks(birth_ns), meta.pts, birth_ns));
        let by_pts = meta
            .pts
            .zip(first_pts)
            .and_then(|(pts, first)| self.time_base.rescale(pts.saturating_sub(first), RTP));
        let elapsed = by_pts.unwrap_or_else(|| ticks(birth_ns.saturating_sub(first_ns)));
        // RTP's timestamps wrap.
        start.wrapping_add(elapsed) as u32
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
    fn timestamps_wrap() {
        let mut clock = RtpClock::new(Rational::new(1, 25));
        let end_ns = (u64::from(u32::MAX) + 1) * 100_000 / 9;
        assert!(clock.timestamp(&at(Some(0)), end_ns - 20_000_000) > u32::MAX - 2000);
        assert!(clock.timestamp(&at(Some(1)), end_ns) < 2000);
    }
}
