// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decision of what the encoder is asked for, from what the viewers' networks carry.
//!
//! One encoder serves all viewers, and follows the slowest of those whose networks carry the lowest bit rate of the encoder. A slower
//! one is followed only if no other is there: it cannot slow the others, and misses frames.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Part of an estimate that the encoder gets. The rest is for packets that are sent again, and empties queues on the way.
const ENCODER_SHARE: f64 = 0.85;
/// Part of the highest bit rate at which a stream begins for its first viewer, whose network is not known: more would fill the queue of a
/// slower network before its first report, and lose frames.
const START_SHARE: f64 = 0.8;
/// Smallest change of the bit rate that the encoder is asked for, as a part of the last.
const LEAST_CHANGE: f64 = 0.03;

/// Shortest distance of two frames that congestion is measured by, and the distance before two frames are known.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(100));

/// Request of a sender to the encoder in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderRequest {
    /// A viewer needs a keyframe.
    Keyframe,
    /// The network carries at most this many bits per second of video.
    Bandwidth(u64),
    /// True: encoded frames wait for the network, so further frames should be dropped before they are encoded; false: no longer.
    Congested(bool),
}

/// Estimate of a viewer's network, and of what waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewerNetwork {
    /// Estimated bandwidth, bits per second.
    pub(crate) estimate: u64,
    /// Time until all waiting packets have left.
    pub(crate) backlog: Duration,
}

/// State of the requests about congestion. Without clock and sockets.
#[derive(Debug)]
pub(crate) struct CongestionControl {
    /// Lowest and highest bit rate of the encoder, bits per second.
    bit_rates: RangeInclusive<u64>,
    /// Bit rate that the encoder was asked for last.
    asked: u64,
    is_congested: bool,
    /// RTP timestamp of the last frame.
    last_time: Option<u32>,
    /// Shortest distance of two frames so far.
    interval: Duration,
}

impl CongestionControl {
    pub(crate) fn new(bit_rates: RangeInclusive<u64>) -> CongestionControl {
        let asked = *bit_rates.end();
        CongestionControl { bit_rates, asked, is_congested: false, last_time: None, interval: INTERVALS.1 }
    }

    /// Returns what is assumed of a viewer's network before its first report.
    pub(crate) fn unknown_network(&self) -> ViewerNetwork {
        let estimate = (*self.bit_rates.end() as f64 * START_SHARE / ENCODER_SHARE) as u64;
        ViewerNetwork { estimate, backlog: Duration::ZERO }
    }

    /// Measures the distance of the frames by the RTP timestamp of each.
    pub(crate) fn measure_interval(&mut self, time: u32) {
        let last = self.last_time.replace(time);
        let ticks = last.map_or(0, |last| time.wrapping_sub(last) as i32);
        if let Ok(ticks @ 1..) = u64::try_from(ticks) {
            let distance = Duration::from_micros(ticks * 100 / 9);
            self.interval = self.interval.min(distance.max(INTERVALS.0));
        }
    }

    /// Returns the new requests.
    pub(crate) fn update(
        &mut self,
        viewers: impl Iterator<Item = ViewerNetwork> + Clone,
    ) -> impl Iterator<Item = SenderRequest> {
        let (lowest, highest) = (*self.bit_rates.start(), *self.bit_rates.end());
        let share = |viewer: &ViewerNetwork| (viewer.estimate as f64 * ENCODER_SHARE) as u64;
        let fastest = viewers.clone().map(|viewer| share(&viewer)).max();
        let least_followed = fastest.map_or(lowest, |fastest| fastest.min(lowest));
        let followed = viewers.clone().filter(|viewer| share(viewer) >= least_followed);
        // Without viewers, the next one begins at the highest.
        let wanted = followed.clone().map(|viewer| share(&viewer)).min().unwrap_or(highest);
        let wanted = wanted.clamp(lowest.min(highest), highest);
        let is_limit = wanted == lowest || wanted == highest;
        let change = wanted.abs_diff(self.asked) as f64 / self.asked as f64;
        let bandwidth = (wanted != self.asked && (is_limit || change >= LEAST_CHANGE)).then_some(wanted);
        self.asked = bandwidth.unwrap_or(self.asked);
        // One frame is leaving, and more than an interval's worth waits behind it. Not the same limit in both directions, so that
        // single packets do not switch.
        let most = if self.is_congested { self.interval } else { 2 * self.interval };
        let is_congested = followed.into_iter().any(|viewer| viewer.backlog > most);
        let congested = (is_congested != self.is_congested).then_some(is_congested);
        self.is_congested = is_congested;
        if let Some(bits) = bandwidth {
            log::debug!("send: asks for {bits} bits per second; viewers: {:?}", viewers.collect::<Vec<_>>());
        }
        bandwidth.map(SenderRequest::Bandwidth).into_iter().chain(congested.map(SenderRequest::Congested))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Duration = Duration::from_millis(16);
    const FLUENT: Duration = Duration::ZERO;

    fn control() -> CongestionControl {
        let mut control = CongestionControl::new(2_000_000..=10_000_000);
        // 16 ms apart, over the wrap; a repeated frame, and one of an earlier time, as B frames have.
        for time in [u32::MAX - 99, 1340, 1340, 0] {
            control.measure_interval(time);
        }
        control
    }

    fn requests(control: &mut CongestionControl, viewers: &[(u64, Duration)]) -> Vec<SenderRequest> {
        let viewers = viewers
            .iter()
            .map(|(estimate, backlog)| ViewerNetwork { estimate: *estimate, backlog: *backlog });
        control.update(viewers).collect()
    }

    #[test]
    fn the_slowest_viewer_above_the_lowest_bit_rate_decides() {
        let mut control = control();
        let bandwidth = |bits| vec![SenderRequest::Bandwidth(bits)];
        assert_eq!(requests(&mut control, &[(50_000_000, FLUENT)]), []);
        assert_eq!(
            requests(&mut control, &[(50_000_000, FLUENT), (5_000_000, FLUENT)]),
            bandwidth(4_250_000)
        );
        // One that is slower than the lowest bit rate slows nobody.
        assert_eq!(
            requests(&mut control, &[(50_000_000, FLUENT), (1_000_000, FLUENT)]),
            bandwidth(10_000_000)
        );
        // Unless it is alone.
        assert_eq!(requests(&mut control, &[(1_000_000, FLUENT)]), bandwidth(2_000_000));
        assert_eq!(requests(&mut control, &[]), bandwidth(10_000_000));
    }

    #[test]
    fn a_stream_begins_below_the_highest_rate() {
        let mut control = control();
        let unknown = control.unknown_network();
        let asked: Vec<_> = control.update([unknown].into_iter()).collect();
        assert_eq!(asked, [SenderRequest::Bandwidth(7_999_999)]);
        assert_eq!(requests(&mut control, &[(50_000_000, FLUENT)]), [SenderRequest::Bandwidth(10_000_000)]);
    }

    #[test]
    fn small_changes_cause_no_request() {
        let mut control = control();
        let bits = [9_000_000, 8_900_000, 8_600_000, 8_700_000, 12_000_000];
        let asked: Vec<_> = bits.iter().flat_map(|bits| requests(&mut control, &[(*bits, FLUENT)])).collect();
        let expected = [7_650_000, 7_310_000, 10_000_000].map(SenderRequest::Bandwidth);
        assert_eq!(asked, expected);
    }

    #[test]
    fn frames_are_dropped_while_more_than_a_frame_waits_for_a_viewer_that_is_followed() {
        let mut control = control();
        let fast = |backlog| (50_000_000, backlog);
        let backlogs = [2, 3, 2, 1].map(|frames| [fast(FLUENT), fast(frames * FRAME)]);
        let asked: Vec<_> = backlogs.iter().flat_map(|viewers| requests(&mut control, viewers)).collect();
        assert_eq!(asked, [true, false].map(SenderRequest::Congested));
        // The slow one is not followed.
        assert_eq!(requests(&mut control, &[fast(FLUENT), (1_000_000, 9 * FRAME)]), []);
        let alone = [SenderRequest::Bandwidth(2_000_000), SenderRequest::Congested(true)];
        assert_eq!(requests(&mut control, &[(1_000_000, 9 * FRAME)]), alone);
        assert_eq!(requests(&mut control, &[])[1], SenderRequest::Congested(false));
    }
}
