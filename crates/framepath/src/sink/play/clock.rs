// SPDX-License-Identifier: MIT OR Apache-2.0
//! Due times of frames: by the stream's timestamps, or by its rate if the stream has
//! none. Pure: the caller passes the time.

use framepath_model::stream::{FrameMeta, Rational, StreamInfo};

/// Interval between two frames of a stream without a rate, nanoseconds.
const USUAL_INTERVAL_NS: u64 = 40_000_000;

/// Difference of two timestamps from which on the step counts as a discontinuity, nanoseconds. Also the
/// longest interval between frames, because a file with an absurd frame rate would make the viewer wait
/// forever.
const JUMP_NS: u64 = 10_000_000_000;

/// Time without a shown frame after which a late frame is shown, nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Clock that determines the due times of a stream's frames.
#[derive(Debug)]
pub(crate) struct Clock {
    time_base: Rational,
    /// Interval between two frames by the stream's rate, nanoseconds, at most 10 s; 40 ms if the rate is
    /// unknown.
    interval_ns: u64,
    /// The previous frame; `None` before the first, and after a restart.
    last: Option<Last>,
}

/// The previous frame, shown or dropped.
#[derive(Clone, Copy, Debug)]
struct Last {
    pts: Option<i64>,
    due_ns: u64,
    /// Time when a frame was last shown, nanoseconds.
    shown_ns: u64,
}

impl Clock {
    pub(crate) fn new(info: &StreamInfo) -> Clock {
        let interval = info.frame_rate.value().map_or(USUAL_INTERVAL_NS, |rate| (1e9 / rate) as u64);
        Clock { time_base: info.time_base, interval_ns: interval.clamp(1, JUMP_NS), last: None }
    }

    /// True if a frame was shown since the start or the last [`Clock::restart`]. (The first frame is due at
    /// once.)
    pub(crate) fn runs(&self) -> bool {
        self.last.is_some()
    }

    /// Resets the clock: the next frame is the first.
    pub(crate) fn restart(&mut self) {
        self.last = None;
    }

    /// Starts the clock: the first frame, with the metadata `meta`, was shown at `now_ns`.
    pub(crate) fn start(&mut self, meta: &FrameMeta, now_ns: u64) {
        self.last = Some(Last { pts: meta.pts, due_ns: now_ns, shown_ns: now_ns });
    }

    /// Returns the due time of the next frame, whose metadata is `meta`, in nanoseconds; `None` for the first
    /// frame. A frame with a due time counts as the previous frame from then on.
    pub(crate) fn due(&mut self, meta: &FrameMeta) -> Option<u64> {
        let step = self.step_ns(meta)?;
        let last = self.last.as_mut()?;
        last.due_ns += step;
        last.pts = meta.pts;
        Some(last.due_ns)
    }

    /// True if a frame that is due at `due_ns` is too late to be shown: by more than half an interval, unless
    /// no frame was shown in the last second.
    pub(crate) fn is_late(&self, due_ns: u64, now_ns: u64) -> bool {
        let starved = self.last.is_some_and(|last| now_ns.saturating_sub(last.shown_ns) > PATIENCE_NS);
        now_ns > due_ns + self.interval_ns / 2 && !starved
    }

    /// Records that a frame was shown at `now_ns`.
    pub(crate) fn record_presented(&mut self, now_ns: u64) {
        if let Some(last) = &mut self.last {
            last.shown_ns = now_ns;
        }
    }

    /// Moves all due times by `ns`, the length of the viewer's pause.
    pub(crate) fn pause(&mut self, ns: u64) {
        if let Some(last) = &mut self.last {
            last.due_ns += ns;
            last.shown_ns += ns;
        }
    }

    /// Returns the time from the previous frame to this frame, nanoseconds; one interval if a timestamp is
    /// missing or the timestamps are discontinuous; `None` if there is no previous frame.
    fn step_ns(&self, meta: &FrameMeta) -> Option<u64> {
        let before = self.last?.pts;
        let stamped =
            before.zip(meta.pts).and_then(|(before, now)| now.checked_sub(before)).and_then(|ticks| {
                let ns = self.time_base.rescale(ticks, Rational::new(1, 1_000_000_000))?;
                u64::try_from(ns).ok().filter(|ns| (1..JUMP_NS).contains(ns))
            });
        Some(stamped.unwrap_or(self.interval_ns))
    }
}

#[cfg(test)]
mod tests {
    use framepath_model::orientation::Orientation;

    use super::*;

    const MS: u64 = 1_000_000;

    fn info(rate: Rational) -> StreamInfo {
        StreamInfo {
            format: None,
            width: 16,
            height: 16,
            time_base: Rational::new(1, 1000),
            frame_rate: rate,
            sample_aspect: Rational::new(1, 1),
            orientation: Orientation::Upright,
        }
    }

    fn at(pts: Option<i64>) -> FrameMeta {
        FrameMeta { pts, ..FrameMeta::default() }
    }

    #[test]
    fn timestamps_say_when_and_do_not_drift() {
        let mut clock = Clock::new(&info(Rational::new(30, 1)));
        assert_eq!(clock.due(&at(Some(500))), None);
        clock.start(&at(Some(500)), 7 * MS);
        let due: Vec<u64> = [533, 567, 600, 700].map(|pts| clock.due(&at(Some(pts))).unwrap()).into();
        assert_eq!(due, [40 * MS, 74 * MS, 107 * MS, 207 * MS]);
    }

    #[test]
    fn without_timestamps_the_rate_counts() {
        let mut clock = Clock::new(&info(Rational::new(25, 1)));
        clock.start(&at(None), 0);
        assert_eq!([(); 3].map(|()| clock.due(&at(None)).unwrap()), [40 * MS, 80 * MS, 120 * MS]);
        assert_eq!(Clock::new(&info(Rational::new(0, 1))).interval_ns, USUAL_INTERVAL_NS);
    }

    #[test]
    fn a_rate_makes_no_longer_step_than_timestamps_do() {
        let mut clock = Clock::new(&info(Rational::new(1, i32::MAX)));
        clock.start(&at(Some(0)), 0);
        assert_eq!(clock.due(&at(None)), Some(JUMP_NS));
        // The timestamp is too far away, so the rate decides.
        assert_eq!(clock.due(&at(Some(i64::MAX))), Some(2 * JUMP_NS));
    }

    #[test]
    fn a_file_that_begins_again_goes_on() {
        let mut clock = Clock::new(&info(Rational::new(25, 1)));
        clock.start(&at(Some(9000)), 0);
        for (pts, due) in [(9040, 40), (0, 80), (40, 120), (i64::MAX, 160), (i64::MIN, 200)] {
            assert_eq!(clock.due(&at(Some(pts))), Some(due * MS), "{pts}");
        }
    }

    #[test]
    fn the_first_frame_behind_a_seek_is_due_at_once() {
        let mut clock = Clock::new(&info(Rational::new(25, 1)));
        clock.start(&at(Some(0)), 0);
        clock.restart();
        assert_eq!(clock.due(&at(Some(4000))), None);
        assert!(!clock.runs());
        clock.start(&at(Some(4000)), 70 * MS);
        assert_eq!(clock.due(&at(Some(4040))), Some(110 * MS));
    }

    #[test]
    fn late_is_more_than_half_an_interval() {
        let mut clock = Clock::new(&info(Rational::new(25, 1)));
        clock.start(&at(Some(0)), 0);
        let due = clock.due(&at(Some(40))).unwrap();
        assert!(!clock.is_late(due, due) && !clock.is_late(due, due + 20 * MS));
        assert!(clock.is_late(due, due + 20 * MS + 1));
        // After a second without a picture one is shown; later ones are dropped again.
        assert!(!clock.is_late(due, 1001 * MS));
        clock.record_presented(1001 * MS);
        assert!(clock.is_late(due, 1002 * MS));
    }

    #[test]
    fn a_pause_is_no_delay() {
        let mut clock = Clock::new(&info(Rational::new(25, 1)));
        clock.start(&at(Some(0)), 0);
        clock.pause(5000 * MS);
        assert_eq!(clock.due(&at(Some(40))), Some(5040 * MS));
    }
}
