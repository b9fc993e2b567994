// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jitter buffer: decides how long a whole frame is kept, so that frames leave at even intervals although the network
//! delivers them at uneven ones. No clock and no I/O: times of arrival in, times of release out.
//!
//! The depth is a number of frame intervals. It is zero on a network that delivers evenly: then each frame leaves when
//! it has arrived. A frame is never dropped here, because others may depend on it: one that is too late leaves at once.

use std::collections::VecDeque;

/// Largest depth, frame intervals.
const MOST_DEPTH: u64 = 2;
/// Number of late frames, among [`GROWS_WITHIN`] frames, from which on the depth grows.
const MOST_LATE: u32 = 3;
/// Number of frames in which late ones are counted together: a second at 60 Hz. A keyframe, which takes longer than others,
/// is not late [`MOST_LATE`] times in it.
const GROWS_WITHIN: u32 = 60;
/// Number of frames, 10 s at 60 Hz, after which the depth shrinks if a smaller one would have been enough.
const SHRINKS_AFTER: u32 = 600;
/// Number of the latest distances between frames of which the median is the frame interval.
const DISTANCES: usize = 15;
/// Shortest and longest frame interval, nanoseconds. A screen that does not change has no frames for a while.
const INTERVAL_NS: (u64, u64) = (4_000_000, 100_000_000);
/// Time after which an early frame no longer counts as the earliest one, nanoseconds; at most twice this time. The clocks of both
/// ends drift apart by at most 0.2 ms meanwhile.
const EARLIEST_FOR_NS: u64 = 2_000_000_000;
/// Lateness of a frame from which on the sender has paused, or has set its clock, nanoseconds.
const RESTART_NS: u64 = 500_000_000;

/// Depth of a jitter buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JitterDepth {
    /// The number of frame intervals grows from 0 to 2 while frames are late, and shrinks again.
    Adaptive,
    /// This number of frame intervals, at most 2.
    Fixed(u64),
}

/// Times at which frames leave a jitter buffer. All times are of one clock, in nanoseconds.
#[derive(Debug)]
pub struct JitterBuffer {
    is_adaptive: bool,
    /// Depth, frame intervals.
    depth: u64,
    /// The latest distances between the timestamps of two frames.
    distances: VecDeque<u64>,
    /// Timestamp of the previous frame; `None` before the first frame.
    last_stamp_ns: Option<u64>,
    /// True once a frame has an earlier timestamp than the previous one (B frames): when a frame is due is not known then.
    is_reordered: bool,
    earliest: Earliest,
    /// Number of frames, and of late ones among them, since the last look at a larger depth.
    grows: (u32, u32),
    /// Number of frames, and of those that a smaller depth would have made late, since the last look at a smaller depth.
    shrinks: (u32, u32),
    last_release_ns: u64,
}

/// Smallest transit time, the arrival less the timestamp, of the latest frames.
#[derive(Debug, Default)]
struct Earliest {
    /// Smallest transit time since [`Earliest::since_ns`]; `None` before the first frame.
    now: Option<i128>,
    /// Smallest transit time of the span of time before that.
    before: Option<i128>,
    since_ns: u64,
}

impl Earliest {
    /// Returns how much later than the earliest of the latest frames a frame arrived, nanoseconds.
    fn lateness_ns(&mut self, stamp_ns: u64, arrived_ns: u64) -> u64 {
        let transit = i128::from(arrived_ns) - i128::from(stamp_ns);
        if arrived_ns.saturating_sub(self.since_ns) >= EARLIEST_FOR_NS {
            (self.before, self.now, self.since_ns) = (self.now, None, arrived_ns);
        }
        let now = *self.now.insert(self.now.map_or(transit, |now| now.min(transit)));
        let earliest = self.before.map_or(now, |before| before.min(now));
        u64::try_from(transit - earliest).unwrap_or(u64::MAX)
    }
}

impl JitterBuffer {
    /// Makes a buffer that has had no frame.
    pub fn new(depth: JitterDepth) -> JitterBuffer {
        let (is_adaptive, depth) = match depth {
            JitterDepth::Adaptive => (true, 0),
            JitterDepth::Fixed(depth) => (false, depth.min(MOST_DEPTH)),
        };
        JitterBuffer {
            is_adaptive,
            depth,
            distances: VecDeque::with_capacity(DISTANCES),
            last_stamp_ns: None,
            is_reordered: false,
            earliest: Earliest::default(),
            grows: (0, 0),
            shrinks: (0, 0),
            last_release_ns: 0,
        }
    }

    /// Returns the depth, frame intervals.
    pub fn depth(&self) -> u64 {
        self.depth
    }

    /// Returns the time at which the next frame leaves: `arrived_ns`, or later. The frame has the sender's timestamp
    /// `stamp_ns`, and its last packet arrived at `arrived_ns`. Frames leave in the order of the calls.
    pub fn release_ns(&mut self, stamp_ns: u64, arrived_ns: u64) -> u64 {
        self.add_distance(stamp_ns);
        let mut late_ns = self.earliest.lateness_ns(stamp_ns, arrived_ns);
        if late_ns >= RESTART_NS {
            self.earliest = Earliest::default();
            late_ns = self.earliest.lateness_ns(stamp_ns, arrived_ns);
        }
        let interval_ns = self.interval_ns();
        if self.is_adaptive && !self.is_reordered {
            self.adapt(late_ns, interval_ns);
        }
        let depth = if self.is_reordered { 0 } else { self.depth };
        let kept_ns = (depth * interval_ns).saturating_sub(late_ns);
        self.last_release_ns = arrived_ns.saturating_add(kept_ns).max(self.last_release_ns);
        self.last_release_ns
    }

    fn add_distance(&mut self, stamp_ns: u64) {
        let last_ns = self.last_stamp_ns.replace(stamp_ns);
        match last_ns.map(|last_ns| stamp_ns.checked_sub(last_ns)) {
            Some(None) => self.is_reordered = true,
            Some(Some(distance_ns)) if distance_ns > 0 => {
                if self.distances.len() == DISTANCES {
                    self.distances.pop_front();
                }
                self.distances.push_back(distance_ns);
            }
            _ => {}
        }
    }

    /// Returns the frame interval, nanoseconds.
    fn interval_ns(&self) -> u64 {
        let mut sorted = self.distances.clone();
        let sorted = sorted.make_contiguous();
        sorted.sort_unstable();
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or(INTERVAL_NS.0);
        median.clamp(INTERVAL_NS.0, INTERVAL_NS.1)
    }

    /// Adapts the depth to a frame that was late by `late_ns`.
    fn adapt(&mut self, late_ns: u64, interval_ns: u64) {
        let is_late = |depth: u64| late_ns > depth * interval_ns + interval_ns / 2;
        self.grows = (self.grows.0 + 1, self.grows.1 + u32::from(is_late(self.depth)));
        self.shrinks =
            (self.shrinks.0 + 1, self.shrinks.1 + u32::from(is_late(self.depth.saturating_sub(1))));
        if self.grows.1 >= MOST_LATE && self.depth < MOST_DEPTH {
            self.depth += 1;
            (self.grows, self.shrinks) = ((0, 0), (0, 0));
        } else if self.shrinks.0 >= SHRINKS_AFTER {
            self.depth -= u64::from(self.shrinks.1 < MOST_LATE && self.depth > 0);
            self.shrinks = (0, 0);
        }
        if self.grows.0 >= GROWS_WITHIN {
            self.grows = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;
    /// Frame interval of the tests.
    const INTERVAL: u64 = 16 * MS;
    /// Time of the first arrival; the sender's clock begins at 0.
    const START: u64 = 70_000 * MS;

    /// Passes `frames` frames, each of which is late by the time that `late_ns` returns for its number. Returns how long
    /// each one was kept.
    fn kept(
        buffer: &mut JitterBuffer,
        frames: std::ops::Range<u64>,
        late_ns: impl Fn(u64) -> u64,
    ) -> Vec<u64> {
        let pass = |number: u64| {
            let arrived_ns = START + number * INTERVAL + late_ns(number);
            buffer.release_ns(number * INTERVAL, arrived_ns) - arrived_ns
        };
        frames.map(pass).collect()
    }

    #[test]
    fn an_even_network_costs_no_time() {
        let mut buffer = JitterBuffer::new(JitterDepth::Adaptive);
        // Up to half an interval is not late.
        assert!(kept(&mut buffer, 0..5000, |number| number % 7 * MS).iter().all(|kept_ns| *kept_ns == 0));
        assert_eq!(buffer.depth(), 0);
    }

    #[test]
    fn slow_keyframes_alone_do_not_delay_the_others() {
        let mut buffer = JitterBuffer::new(JitterDepth::Adaptive);
        let kept = kept(&mut buffer, 0..5000, |number| if number % 60 == 0 { 14 * MS } else { 0 });
        assert!(kept.iter().all(|kept_ns| *kept_ns == 0));
    }

    #[test]
    fn late_frames_make_it_deeper_and_even() {
        let mut buffer = JitterBuffer::new(JitterDepth::Adaptive);
        // Every fifth frame is late by 0.75 intervals.
        let late = |number| if number % 5 == 4 { 12 * MS } else { 0 };
        let all = kept(&mut buffer, 0..100, late);
        assert_eq!(buffer.depth(), 1);
        // From the third late frame on: a frame that is not late waits for an interval, a late one for the rest.
        assert!(all[..14].iter().all(|kept_ns| *kept_ns == 0), "{all:?}");
        for (number, kept_ns) in (0..).zip(&all).skip(14) {
            assert_eq!(*kept_ns, INTERVAL - late(number));
        }
        // Later than one interval: two are needed. Later than two: no more than that.
        kept(&mut buffer, 100..200, |number| if number % 5 == 4 { 27 * MS } else { 0 });
        assert_eq!(buffer.depth(), 2);
        let all = kept(&mut buffer, 200..300, |number| if number % 5 == 4 { 45 * MS } else { 0 });
        assert_eq!((buffer.depth(), all.iter().max()), (2, Some(&(2 * INTERVAL))));
        // Too late: not kept at all.
        assert_eq!(all[4], 0);
    }

    #[test]
    fn it_shrinks_when_the_network_is_even_again() {
        let mut buffer = JitterBuffer::new(JitterDepth::Adaptive);
        kept(&mut buffer, 0..60, |number| if number % 5 == 4 { 30 * MS } else { 0 });
        assert_eq!(buffer.depth(), 2);
        let all = kept(&mut buffer, 60..2000, |_| 0);
        assert_eq!((buffer.depth(), all.last()), (0, Some(&0)));
    }

    #[test]
    fn frames_leave_in_order_when_the_depth_changes() {
        let mut buffer = JitterBuffer::new(JitterDepth::Fixed(9));
        assert_eq!(buffer.depth(), MOST_DEPTH);
        let mut last_ns = 0;
        for (number, late_ns) in [0, 0, 0, 50 * MS, 34 * MS, 18 * MS, 2 * MS, 0].into_iter().enumerate() {
            let stamp_ns = number as u64 * INTERVAL;
            let release_ns = buffer.release_ns(stamp_ns, START + stamp_ns + late_ns);
            assert!(release_ns >= last_ns);
            last_ns = release_ns;
        }
    }

    #[test]
    fn a_pause_of_the_sender_is_no_lateness() {
        let mut buffer = JitterBuffer::new(JitterDepth::Adaptive);
        kept(&mut buffer, 0..100, |_| 0);
        // Its timestamps go on where they were.
        let all = kept(&mut buffer, 100..1000, |_| 700 * MS);
        assert_eq!((buffer.depth(), all.iter().max()), (0, Some(&0)));
        // A screen that stands still for a minute has timestamps that jump, too.
        let stamp_ns = 1000 * INTERVAL + 60_000 * MS;
        let arrived_ns = START + stamp_ns + 700 * MS;
        assert_eq!(buffer.release_ns(stamp_ns, arrived_ns), arrived_ns);
        assert_eq!(buffer.interval_ns(), INTERVAL);
    }

    #[test]
    fn clocks_that_drift_apart_cause_no_lateness() {
        let mut buffer = JitterBuffer::new(JitterDepth::Adaptive);
        // 100 ppm for ten minutes: 60 ms.
        kept(&mut buffer, 0..37_500, |number| number * INTERVAL / 10_000);
        assert_eq!(buffer.depth(), 0);
    }

    #[test]
    fn b_frames_are_not_kept() {
        let mut buffer = JitterBuffer::new(JitterDepth::Fixed(2));
        let stamps = [0, 3, 1, 2, 6, 4, 5, 9, 7, 8].map(|number| number * INTERVAL);
        for (at, stamp_ns) in (0..).zip(stamps) {
            let arrived_ns = START + at * INTERVAL;
            let release_ns = buffer.release_ns(stamp_ns, arrived_ns);
            // The first two frames were kept before the order was known.
            assert!(at < 7 || release_ns == arrived_ns, "{at}");
        }
    }

    proptest! {
        #[test]
        fn no_frame_waits_longer_than_the_depth(
            frames in proptest::collection::vec((any::<u32>(), any::<u32>()), 1..200), fixed in 0..9u64,
        ) {
            let depth = if fixed > 4 { JitterDepth::Adaptive } else { JitterDepth::Fixed(fixed) };
            let (mut buffer, mut arrived_ns, mut last_ns) = (JitterBuffer::new(depth), START, 0);
            let mut latest_ns = 0;
            for (stamp, step) in frames {
                arrived_ns += u64::from(step);
                let release_ns = buffer.release_ns(u64::from(stamp), arrived_ns);
                latest_ns = latest_ns.max(arrived_ns + MOST_DEPTH * INTERVAL_NS.1);
                prop_assert!(release_ns >= last_ns.max(arrived_ns) && release_ns <= latest_ns);
                last_ns = release_ns;
            }
        }
    }
}
