// SPDX-License-Identifier: MIT OR Apache-2.0
//! Offset of another machine's clock, from the four stamps of each ping.
//!
//! A ping that was fast says most about the offset: its error is at most half its round trip. So the estimate keeps the fastest
//! ping of each quarter of a second, and fits a line through those that are nearly as fast as the fastest of all. The line's slope is the drift
//! of the two clocks. This module has no clock and no I/O.

use std::collections::VecDeque;

/// Time of which one ping is kept, the fastest, nanoseconds.
const BUCKET_NS: u64 = 250_000_000;
/// Maximum number of pings that are kept. With one for each bucket, they cover a minute.
const MOST_KEPT: usize = 240;
/// Largest drift between the clocks of two machines, as a share. Crystals deviate by up to 100 parts per million each, and NTP
/// corrects by up to 500.
const MOST_DRIFT: f64 = 700e-6;
/// A ping is part of the fit if its round trip exceeds the fastest one by at most this share and this time, nanoseconds.
const NEARLY: (f64, u64) = (0.5, 20_000);

/// Four stamps of one ping, nanoseconds: two of this machine's CLOCK_MONOTONIC, two of the other one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingStamps {
    /// Departure of the ping, by this machine.
    pub sent_ns: u64,
    /// Arrival of the ping, by the other machine.
    pub received_ns: u64,
    /// Departure of the answer, by the other machine.
    pub replied_ns: u64,
    /// Arrival of the answer, by this machine.
    pub returned_ns: u64,
}

impl PingStamps {
    /// Returns the time that the ping and its answer were on the way, nanoseconds; `None` if the stamps contradict each other.
    fn round_trip_ns(&self) -> Option<u64> {
        let all = self.returned_ns.checked_sub(self.sent_ns)?;
        all.checked_sub(self.replied_ns.checked_sub(self.received_ns)?)
    }

    /// Returns the other machine's clock less this machine's, nanoseconds, if both ways took the same time.
    fn offset_ns(&self) -> i128 {
        let there = i128::from(self.received_ns) - i128::from(self.sent_ns);
        let back = i128::from(self.replied_ns) - i128::from(self.returned_ns);
        (there + back) / 2
    }
}

/// Ping that is kept.
#[derive(Clone, Copy, Debug)]
struct KeptPing {
    /// Middle of the ping, by this machine, nanoseconds.
    at_ns: u64,
    offset_ns: i128,
    round_trip_ns: u64,
}

/// Line that gives the other machine's clock.
#[derive(Clone, Copy, Debug)]
struct ClockLine {
    /// Time of a point of the line by this machine, nanoseconds.
    at_ns: u64,
    /// Other machine's clock less this machine's at this point, nanoseconds.
    offset_ns: i128,
    /// Change of the offset with time, as a share.
    drift: f64,
    /// Largest error of the drift, as a share.
    drift_error: f64,
}

/// Time of the other machine, by this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertedTime {
    /// CLOCK_MONOTONIC time of this machine, nanoseconds; 0 for a time before it started.
    pub ns: u64,
    /// Largest error of `ns`, nanoseconds: half a round trip, the deviation of this ping from a steady drift, and the error of
    /// the drift since this ping. The ping is the one that gives the smallest sum.
    pub error_ns: u64,
}

/// Estimator of the offset between two machines' clocks.
#[derive(Clone, Debug, Default)]
pub struct ClockEstimator {
    /// Pings, oldest first, at most one for each [`BUCKET_NS`].
    kept: VecDeque<KeptPing>,
    line: Option<ClockLine>,
    /// Number of times that the other clock, or this one, jumped.
    jumps: u64,
}

impl ClockEstimator {
    /// Takes a ping. Ignores one whose stamps contradict each other.
    pub fn push(&mut self, stamps: PingStamps) {
        let Some(round_trip_ns) = stamps.round_trip_ns() else { return };
        let at_ns = stamps.sent_ns + (stamps.returned_ns - stamps.sent_ns) / 2;
        let ping = KeptPing { at_ns, offset_ns: stamps.offset_ns(), round_trip_ns };
        if let Some(line) = self.line {
            // The offset lies within half a round trip. Where the line says otherwise, a clock has jumped: CLOCK_MONOTONIC stands
            // still while a machine sleeps.
            let apart_ns = (ping.offset_ns - line.offset_at(at_ns)).unsigned_abs() as f64;
            if apart_ns > self.error_of(&line, at_ns) + round_trip_ns as f64 / 2.0 {
                self.kept.clear();
                self.jumps += 1;
            }
        }
        match self.kept.back_mut() {
            // An older one can come late.
            Some(last) if at_ns < last.at_ns => return,
            Some(last) if at_ns / BUCKET_NS == last.at_ns / BUCKET_NS => {
                if round_trip_ns <= last.round_trip_ns {
                    *last = ping;
                }
            }
            _ => self.kept.push_back(ping),
        }
        if self.kept.len() > MOST_KEPT {
            self.kept.pop_front();
        }
        self.line = self.fit();
    }

    /// Returns this machine's time for the other machine's CLOCK_MONOTONIC time `remote_ns`; `None` before the first ping.
    pub fn to_local(&self, remote_ns: u64) -> Option<ConvertedTime> {
        let line = self.line?;
        // The offset changes so slowly that its value at a time near the right one is good enough.
        let near_ns = clamped(i128::from(remote_ns) - line.offset_ns);
        let ns = clamped(i128::from(remote_ns) - line.offset_at(near_ns));
        Some(ConvertedTime { ns, error_ns: self.error_of(&line, near_ns).ceil() as u64 })
    }

    /// Returns the largest error of a conversion at this machine's time `local_ns`, nanoseconds; `None` before the first ping.
    pub fn error_ns(&self, local_ns: u64) -> Option<u64> {
        self.line.map(|line| self.error_of(&line, local_ns).ceil() as u64)
    }

    /// Returns the number of times that one of the clocks jumped, after which the estimate began again.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// Fits the line.
    fn fit(&self) -> Option<ClockLine> {
        let best = self.kept.iter().min_by_key(|ping| ping.round_trip_ns)?;
        let nearly_ns = (best.round_trip_ns as f64 * NEARLY.0) as u64;
        let most_ns = best.round_trip_ns.saturating_add(nearly_ns).saturating_add(NEARLY.1);
        let fast = || self.kept.iter().filter(move |ping| ping.round_trip_ns <= most_ns);
        let through_best =
            ClockLine { at_ns: best.at_ns, offset_ns: best.offset_ns, drift: 0.0, drift_error: MOST_DRIFT };
        let (first, last) = (fast().next()?, fast().next_back()?);
        let span_ns = last.at_ns - first.at_ns;
        if span_ns == 0 {
            return Some(through_best);
        }
        // Relative to the best ping, so that f64 is exact enough although the offset may be days.
        let relative = |ping: &KeptPing| {
            let x = ping.at_ns as f64 - best.at_ns as f64;
            (x, (ping.offset_ns - best.offset_ns) as f64)
        };
        let count = fast().count() as f64;
        let (sum_x, sum_y) = fast().map(relative).fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x, sy + y));
        let (mean_x, mean_y) = (sum_x / count, sum_y / count);
        let (above, below) = fast().map(relative).fold((0.0, 0.0), |(above, below), (x, y)| {
            (above + (x - mean_x) * (y - mean_y), below + (x - mean_x) * (x - mean_x))
        });
        let drift = (above / below).clamp(-MOST_DRIFT, MOST_DRIFT);
        let offset_ns = best.offset_ns + (mean_y - drift * mean_x) as i128;
        let line = ClockLine { at_ns: best.at_ns, offset_ns, drift, drift_error: 0.0 };
        // The true offset is near the first and the last ping, and so is the line.
        let drift_error = (error_at(&line, first) + error_at(&line, last)) / span_ns as f64;
        // Over a short time, the pings say less about the drift than the limit of all clocks.
        Some(if drift_error < MOST_DRIFT { ClockLine { drift_error, ..line } } else { through_best })
    }

    /// Returns the largest error of the offset that `line` gives at this machine's time `local_ns`, nanoseconds: by the ping that
    /// limits it most.
    fn error_of(&self, line: &ClockLine, local_ns: u64) -> f64 {
        let by_ping =
            |ping: &KeptPing| error_at(line, ping) + line.drift_error * ping.at_ns.abs_diff(local_ns) as f64;
        // Two nanoseconds are for the rounding.
        self.kept.iter().map(by_ping).fold(f64::INFINITY, f64::min) + 2.0
    }
}

/// Returns the largest error of `line` at the time of `ping`, nanoseconds.
fn error_at(line: &ClockLine, ping: &KeptPing) -> f64 {
    let apart_ns = (ping.offset_ns - line.offset_at(ping.at_ns)).unsigned_abs() as f64;
    ping.round_trip_ns as f64 / 2.0 + apart_ns
}

impl ClockLine {
    /// Returns the offset at this machine's time `local_ns`, nanoseconds.
    fn offset_at(&self, local_ns: u64) -> i128 {
        let passed_ns = i128::from(local_ns) - i128::from(self.at_ns);
        self.offset_ns + (self.drift * passed_ns as f64) as i128
    }
}

fn clamped(ns: i128) -> u64 {
    u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;
    const DAY: u64 = 86_400_000 * MS;

    /// Two machines whose clocks drift apart, and a network.
    struct Simulated {
        /// Other clock less this one at time 0, nanoseconds.
        offset_ns: i64,
        drift: f64,
        /// Shortest times there and back, nanoseconds.
        ways_ns: (u64, u64),
        /// Longest additional time of a way, nanoseconds.
        jitter_ns: u64,
        random: u64,
    }

    impl Simulated {
        fn remote(&self, local_ns: u64) -> u64 {
            (local_ns as i64 + self.offset_ns + (self.drift * local_ns as f64) as i64) as u64
        }

        fn random(&mut self) -> u64 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.random >> 33) % (self.jitter_ns + 1)
        }

        fn ping(&mut self, sent_ns: u64) -> PingStamps {
            let there = sent_ns + self.ways_ns.0 + self.random();
            let reply = there + 50_000;
            let returned_ns = reply + self.ways_ns.1 + self.random();
            let (received_ns, replied_ns) = (self.remote(there), self.remote(reply));
            PingStamps { sent_ns, received_ns, replied_ns, returned_ns }
        }

        /// Returns the error of a conversion at `local_ns`, and its bound.
        fn error(&self, clock: &ClockEstimator, local_ns: u64) -> (u64, u64) {
            let converted = clock.to_local(self.remote(local_ns)).unwrap();
            (converted.ns.abs_diff(local_ns), converted.error_ns)
        }
    }

    #[test]
    fn a_steady_network_gives_the_offset_and_the_drift() {
        for drift in [0.0, 40e-6, -90e-6] {
            let mut machines = Simulated {
                offset_ns: DAY as i64,
                drift,
                ways_ns: (MS / 10, MS / 10),
                jitter_ns: 0,
                random: 1,
            };
            let mut clock = ClockEstimator::default();
            for at in 0..60 {
                clock.push(machines.ping(1000 * MS * (at + 1)));
            }
            let (error, bound) = machines.error(&clock, 61_000 * MS);
            assert!(error < 1000 && bound < MS / 10 + 10_000, "drift {drift}: {error} {bound}");
            // Without new pings for a minute, the drift still counts.
            let (error, bound) = machines.error(&clock, 120_000 * MS);
            assert!(error < 1000 && error <= bound, "drift {drift}: {error} {bound}");
        }
    }

    #[test]
    fn the_bound_covers_ways_of_different_length() {
        let mut machines =
            Simulated { offset_ns: 5, drift: 10e-6, ways_ns: (9 * MS, MS), jitter_ns: MS, random: 7 };
        let mut clock = ClockEstimator::default();
        for at in 1..200 {
            clock.push(machines.ping(200 * MS * at));
            let (error, bound) = machines.error(&clock, 200 * MS * at);
            // Nobody can know that one way is longer.
            assert!(error > 3 * MS && error <= bound, "{error} {bound}");
        }
    }

    #[test]
    fn a_clock_that_jumps_starts_the_estimate_again() {
        let mut machines =
            Simulated { offset_ns: 0, drift: 0.0, ways_ns: (MS, MS), jitter_ns: MS, random: 3 };
        let mut clock = ClockEstimator::default();
        for at in 1..30 {
            clock.push(machines.ping(1000 * MS * at));
        }
        assert_eq!(clock.jumps(), 0);
        machines.offset_ns = -3_600_000 * MS as i64 + 7_200_000 * MS as i64;
        clock.push(machines.ping(30_000 * MS));
        assert_eq!(clock.jumps(), 1);
        let (error, bound) = machines.error(&clock, 30_000 * MS);
        assert!(error <= bound && bound < 3 * MS, "{error} {bound}");
    }

    #[test]
    fn impossible_stamps_are_ignored() {
        let mut clock = ClockEstimator::default();
        let good = PingStamps { sent_ns: 10, received_ns: 20, replied_ns: 21, returned_ns: 31 };
        clock.push(PingStamps { returned_ns: 9, ..good });
        clock.push(PingStamps { replied_ns: 19, ..good });
        // The answer took longer than the whole ping.
        clock.push(PingStamps { replied_ns: 99, ..good });
        assert_eq!(clock.to_local(20), None);
        clock.push(good);
        assert_eq!(clock.to_local(20).map(|time| time.ns), Some(20));
    }

    proptest! {
        #[test]
        fn the_true_offset_is_within_the_bound(
            offset_ms in -400i64 * 86_400_000..400i64 * 86_400_000,
            drift in -400e-6..400e-6f64,
            there in 1_000..20_000_000u64,
            back in 1_000..20_000_000u64,
            jitter_ns in 0..30_000_000u64,
            interval_ms in 50..1500u64,
            random: u64,
        ) {
            let start = 401 * DAY;
            let offset_ns = offset_ms * MS as i64;
            let mut machines = Simulated { offset_ns, drift, ways_ns: (there, back), jitter_ns, random };
            let mut clock = ClockEstimator::default();
            for at in 0..150 {
                let now = start + at * interval_ms * MS;
                clock.push(machines.ping(now));
                let (error, bound) = machines.error(&clock, now);
                prop_assert!(error <= bound + 2000, "ping {}: {} {}", at, error, bound);
            }
            prop_assert_eq!(clock.jumps(), 0);
        }

        #[test]
        fn any_stamps_do_no_harm(pings in proptest::collection::vec(any::<[u64; 4]>(), 0..40), at: u64) {
            let mut clock = ClockEstimator::default();
            for [sent_ns, received_ns, replied_ns, returned_ns] in pings {
                clock.push(PingStamps { sent_ns, received_ns, replied_ns, returned_ns });
                let _ = (clock.to_local(at), clock.error_ns(at));
            }
        }
    }
}
