// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bandwidth of a viewer's network: the session's estimate, but at least what the network has carried. Without clock and sockets.
//!
//! The estimate falls to the rate that arrives whenever the delay seems to grow. A screen that hardly changes needs little, and then any
//! jitter makes it a hundredth of what the network carries, from which it grows by 8 % a second. The next large picture would
//! take seconds. So what the network has carried counts, too, until there is a sign of congestion: lost packets, or round trips that
//! are all longer than before.
//!
//! While a queue stands in front of a link, the link carries as much as it can. This is the ceiling for a while: the estimate alone
//! would grow beyond it every ten seconds, and the queue would overflow each time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Share of the packets of the last second that are lost on a congested network, at least.
const LOSS: f32 = 0.02;
/// Time by which all round trips of a congested network exceed the shortest one, at least. On a busy machine, single ones do.
const DELAY: Duration = Duration::from_millis(20);
/// Time over which round trips and the rate are measured.
const WINDOW: Duration = Duration::from_millis(500);
/// Part of a rate that was sent which counts as carried. The estimation takes the same part of the rate that arrives.
const CARRIED: f64 = 0.85;
/// Part of the bandwidth below which the estimate counts as wrong, and the time after which the estimation begins anew then. It
/// sends two bursts of padding at its beginning. With a longer time, a stream stands still at its start on a slow link.
const WRONG: (f64, Duration) = (0.7, Duration::from_millis(100));
/// Part of what a congested network has carried up to which the bandwidth grows again, for how long, and the growth afterwards, per
/// second. Without it, a network that has become faster would never be used.
const CEILING: (f64, Duration, f64) = (0.9, Duration::from_secs(30), 0.05);
/// Part of the largest bandwidth of the last seconds that a stream uses at least which has filled the network's queue, and these seconds.
/// Round trips of a stream that uses less are long for another reason, such as a busy machine.
const FILLING: (f64, Duration) = (0.6, Duration::from_secs(5));
/// Shortest time from one new beginning to the next.
const BETWEEN_RESTARTS: Duration = Duration::from_secs(5);

/// Measurement of a session, about ten times a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkSample {
    /// Estimated bandwidth, bits per second.
    pub(crate) estimate: u64,
    /// Share of the packets of the last second that were lost.
    pub(crate) loss: f32,
    /// Last round trip; `None` if none is known.
    pub(crate) round_trip: Option<Duration>,
    /// Bytes sent since the session's start.
    pub(crate) sent_bytes: u64,
}

/// Bandwidth of one viewer's network.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    /// Last estimate, bits per second.
    estimate: u64,
    /// Rate that the network has carried, bits per second.
    carried: u64,
    shortest_round_trip: Duration,
    /// Least round trip of the slowest [`WINDOW`] of which it is not known whether it was congested, and what the network carried in it,
    /// bits per second: the first round trips may all have been in a queue.
    slowest: Option<(Duration, u64)>,
    /// Rate that a congested network has carried, bits per second, and its time.
    ceiling: Option<(u64, Instant)>,
    /// Largest bandwidth now, by the ceiling, bits per second.
    largest: u64,
    /// Times and bandwidths of the last seconds, oldest first.
    before: VecDeque<(Instant, u64)>,
    /// Times, round trips and sent bytes of the last [`WINDOW`], oldest first.
    recent: VecDeque<(Instant, Option<Duration>, u64)>,
    /// Time since when the estimate is wrong.
    wrong: Option<Instant>,
    restarted: Option<Instant>,
}

impl Bandwidth {
    /// Begins with the first estimate, bits per second.
    pub(crate) fn new(estimate: u64) -> Bandwidth {
        Bandwidth {
            estimate,
            carried: 0,
            shortest_round_trip: Duration::MAX,
            slowest: None,
            ceiling: None,
            largest: u64::MAX,
            before: VecDeque::new(),
            recent: VecDeque::new(),
            wrong: None,
            restarted: None,
        }
    }

    /// Returns the bandwidth, bits per second.
    pub(crate) fn bits(&self) -> u64 {
        self.estimate.max(self.carried).min(self.largest)
    }

    /// Takes a measurement. Returns the bits per second from which the session's estimation should begin anew; `None` if it should
    /// go on.
    pub(crate) fn update(&mut self, now: Instant, sample: NetworkSample) -> Option<u64> {
        let passed = |since: Instant| now.saturating_duration_since(since);
        while self.recent.front().is_some_and(|(at, ..)| passed(*at) > WINDOW) {
            self.recent.pop_front();
        }
        self.recent.push_back((now, sample.round_trip, sample.sent_bytes));
        while self.before.front().is_some_and(|(at, _)| passed(*at) > FILLING.1) {
            self.before.pop_front();
        }
        self.before.push_back((now, self.bits()));
        self.estimate = sample.estimate;
        let carried = self.recently_carried(sample.loss);
        let least = self.recent.iter().filter_map(|(_, round_trip, _)| *round_trip).min();
        self.shortest_round_trip =
            least.map_or(self.shortest_round_trip, |least| self.shortest_round_trip.min(least));
        let is_congested = least.is_some_and(|least| self.is_slow(least)) || sample.loss >= LOSS;
        let may_restart = self.restarted.is_none_or(|at| passed(at) >= BETWEEN_RESTARTS);
        // The session sends at the pace of its estimate. While that is wrong, what is sent does not show what the network carries.
        let follows = is_congested && !(may_restart && self.wrong.is_some());
        self.carried = if follows { carried } else { self.carried.max(carried) };
        self.update_ceiling(now, least, carried);
        if self.estimate as f64 >= self.bits() as f64 * WRONG.0 {
            self.wrong = None;
            return None;
        }
        let wrong = passed(*self.wrong.get_or_insert(now));
        if wrong < WRONG.1 || !may_restart {
            return None;
        }
        (self.wrong, self.restarted) = (None, Some(now));
        Some(self.bits())
    }

    /// Returns true if all round trips of a [`WINDOW`] are long, of which `least` is the shortest.
    fn is_slow(&self, least: Duration) -> bool {
        least.saturating_sub(self.shortest_round_trip) > DELAY
    }

    /// Finds out how much a congested network carries. In the last [`WINDOW`], `least` is the shortest round trip, and `carried` is
    /// [`CARRIED`] of what the network has carried.
    fn update_ceiling(&mut self, now: Instant, least: Option<Duration>, carried: u64) {
        let before = self.before.iter().map(|(_, bits)| *bits).max().unwrap_or_default();
        let has_filled = carried as f64 / CARRIED >= before as f64 * FILLING.0;
        if let Some(least) = least.filter(|_| carried > 0 && has_filled) {
            // The session's estimate behind congestion is the same part of the rate that arrived.
            let most = (carried.max(self.estimate) as f64 / CARRIED) as u64;
            if self.slowest.is_none_or(|(slowest, _)| least >= slowest) {
                self.slowest = Some((least, most));
            }
        }
        if let Some((_, most)) = self.slowest.filter(|(least, _)| self.is_slow(*least)) {
            (self.slowest, self.ceiling) = (None, Some((most, now)));
        }
        let (part, hold, growth) = CEILING;
        self.largest = self.ceiling.map_or(u64::MAX, |(most, at)| {
            let later = now.saturating_duration_since(at).saturating_sub(hold).as_secs_f64();
            (most as f64 * part * (1.0 + growth * later)) as u64
        });
    }

    /// Returns what the network has carried of the last [`WINDOW`]'s bytes at this loss, bits per second; 0 if less than half of the
    /// time is measured.
    fn recently_carried(&self, loss: f32) -> u64 {
        let (Some((begin, _, before)), Some((end, _, after))) = (self.recent.front(), self.recent.back())
        else {
            return 0;
        };
        let time = end.saturating_duration_since(*begin);
        if time < WINDOW / 2 {
            return 0;
        }
        (after.saturating_sub(*before) as f64 * 8.0 / time.as_secs_f64() * (1.0 - f64::from(loss)) * CARRIED)
            as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABIT: u64 = 1_000_000;

    /// Network of 10 Mbit/s with a session, in steps of 100 ms.
    struct Network {
        bandwidth: Bandwidth,
        now: Instant,
        sent_bytes: u64,
        round_trip: u64,
        loss: f32,
    }

    impl Network {
        fn new() -> Network {
            let bandwidth = Bandwidth::new(10 * MEGABIT);
            let mut network =
                Network { bandwidth, now: Instant::now(), sent_bytes: 0, round_trip: 2, loss: 0.0 };
            network.pass(10, 10 * MEGABIT, MEGABIT);
            network
        }

        /// Passes `steps` with an estimate, while `rate` bits per second are sent. Returns the new beginnings.
        fn pass(&mut self, steps: usize, estimate: u64, rate: u64) -> Vec<u64> {
            let step = |_| {
                self.now += Duration::from_millis(100);
                self.sent_bytes += rate / 80;
                let (loss, sent_bytes) = (self.loss, self.sent_bytes);
                let round_trip = Some(Duration::from_millis(self.round_trip));
                self.bandwidth.update(self.now, NetworkSample { estimate, loss, round_trip, sent_bytes })
            };
            (0..steps).filter_map(step).collect()
        }
    }

    #[test]
    fn the_estimate_is_followed_down_to_what_was_carried() {
        let mut network = Network::new();
        network.pass(5, 10 * MEGABIT, 8 * MEGABIT);
        assert_eq!(network.pass(10, 9 * MEGABIT, MEGABIT), []);
        assert_eq!(network.bandwidth.bits(), 9 * MEGABIT);
        assert_eq!(network.pass(10, 5 * MEGABIT, MEGABIT), []);
        assert_eq!(network.bandwidth.bits(), 6_800_000);
        assert_eq!(network.pass(1, 12 * MEGABIT, MEGABIT), []);
        assert_eq!(network.bandwidth.bits(), 12 * MEGABIT);
    }

    #[test]
    fn an_estimate_far_below_begins_anew() {
        let mut network = Network::new();
        network.pass(5, 10 * MEGABIT, 8 * MEGABIT);
        assert_eq!(network.pass(1, MEGABIT / 4, MEGABIT), []);
        assert_eq!(network.pass(3, MEGABIT / 4, MEGABIT), [6_800_000]);
        // Once in five seconds.
        assert_eq!(network.pass(45, MEGABIT / 4, MEGABIT), []);
        assert_eq!(network.pass(6, MEGABIT / 4, MEGABIT), [6_800_000]);
    }

    #[test]
    fn what_is_sent_at_the_pace_of_a_wrong_estimate_does_not_count() {
        let mut network = Network::new();
        network.pass(10, 10 * MEGABIT, 8 * MEGABIT);
        network.loss = 0.1;
        assert_eq!(network.pass(1, MEGABIT / 2, 8 * MEGABIT), []);
        let carried = network.bandwidth.bits();
        assert!((6_100_000..6_130_000).contains(&carried), "{carried}");
        assert_eq!(network.pass(1, MEGABIT / 2, MEGABIT / 4), [carried]);
        // The second time, the network has become slow.
        network.pass(10, MEGABIT / 4, MEGABIT / 4);
        assert!(network.bandwidth.bits() <= MEGABIT / 4, "{}", network.bandwidth.bits());
    }

    #[test]
    fn a_congested_network_carries_what_arrives_now() {
        let mut network = Network::new();
        network.pass(10, 10 * MEGABIT, 8 * MEGABIT);
        network.loss = 0.25;
        // Three quarters of 8 Mbit/s, and 85 % of them.
        network.pass(2, MEGABIT / 4, 8 * MEGABIT);
        assert_eq!(network.bandwidth.bits(), 5_100_000);
        network.pass(10, MEGABIT / 4, MEGABIT / 4);
        assert_eq!(network.bandwidth.bits(), MEGABIT / 4);
        network.loss = 0.0;
        network.pass(10, MEGABIT / 4, 8 * MEGABIT);
        network.round_trip = 60;
        network.pass(10, MEGABIT / 4, MEGABIT / 4);
        assert_eq!(network.bandwidth.bits(), MEGABIT / 4);
    }

    #[test]
    fn a_queue_shows_how_much_the_network_carries() {
        let mut network = Network::new();
        network.pass(10, 12 * MEGABIT, 10 * MEGABIT);
        network.round_trip = 50;
        network.pass(8, 8 * MEGABIT, 10 * MEGABIT);
        network.round_trip = 2;
        let ceiling = 9 * MEGABIT..=9 * MEGABIT + 1;
        for steps in [1, 290] {
            network.pass(steps, 20 * MEGABIT, 8 * MEGABIT);
            assert!(ceiling.contains(&network.bandwidth.bits()), "{}", network.bandwidth.bits());
        }
        // A faster network is used in time.
        network.pass(200, 20 * MEGABIT, 8 * MEGABIT);
        assert!(network.bandwidth.bits() > 16 * MEGABIT, "{}", network.bandwidth.bits());
    }

    #[test]
    fn a_queue_that_stands_from_the_beginning_is_found_later() {
        let mut network = Network {
            bandwidth: Bandwidth::new(8 * MEGABIT),
            now: Instant::now(),
            sent_bytes: 0,
            round_trip: 50,
            loss: 0.0,
        };
        network.pass(8, 8 * MEGABIT, 10 * MEGABIT);
        assert_eq!(network.bandwidth.bits(), 8_500_000);
        network.round_trip = 2;
        network.pass(10, 20 * MEGABIT, 8 * MEGABIT);
        assert_eq!(network.bandwidth.bits(), 9 * MEGABIT);
    }

    #[test]
    fn long_round_trips_of_a_busy_machine_are_no_ceiling() {
        let mut network = Network::new();
        network.pass(10, 20 * MEGABIT, 8 * MEGABIT);
        network.round_trip = 60;
        network.pass(10, MEGABIT / 4, MEGABIT);
        network.round_trip = 2;
        network.pass(10, 20 * MEGABIT, 8 * MEGABIT);
        assert_eq!(network.bandwidth.bits(), 20 * MEGABIT);
    }

    #[test]
    fn a_single_long_round_trip_is_no_congestion() {
        let mut network = Network::new();
        network.pass(10, 10 * MEGABIT, 8 * MEGABIT);
        for _ in 0..5 {
            network.round_trip = 90;
            network.pass(2, 5 * MEGABIT, MEGABIT);
            network.round_trip = 3;
            network.pass(1, 5 * MEGABIT, MEGABIT);
        }
        assert_eq!(network.bandwidth.bits(), 6_800_000);
    }
}
