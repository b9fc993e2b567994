// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a stream of numbered pictures, as an observer of both screens sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use framepath_model::stats::percentile;
use framepath_model::summary::LatencyUs;

use super::desktop::RATE;
use super::screen_observer::{Seen, WatchedScreen};
use crate::measure::Measured;

/// Time without a new picture beyond which it is a freeze, nanoseconds: two pictures.
const FREEZE_NS: u64 = 2 * 1_000_000_000 / RATE as u64;

/// Figures of one run.
#[derive(Debug, PartialEq)]
pub(super) struct GlassFigures {
    /// Number of different pictures that were seen.
    pub(super) shown: u64,
    /// Number of pictures drawn, from the first to the last seen.
    drawn: u64,
    /// Number of times that an older picture followed a newer one.
    late: u64,
    /// Number of times that the barcode became unreadable.
    damaged: u64,
    /// Longest time without a new picture, nanoseconds.
    longest_freeze_ns: u64,
    /// Times from the last picture in front of each freeze to the first behind it, in rising order, nanoseconds.
    recoveries: Vec<u64>,
    /// Numbers of the first and the last picture that was seen.
    pub(super) numbers: [u32; 2],
    /// Latency of each picture, when it was first seen.
    pub(super) latency: LatencyUs,
}

impl GlassFigures {
    /// Computes the figures; `drawn` has the time of each picture by its number. `None` if fewer than two pictures were seen.
    pub(super) fn of(watched: &WatchedScreen, drawn: &[u64]) -> Option<GlassFigures> {
        let mut numbers = BTreeSet::new();
        let mut latencies: Vec<u64> = Vec::new();
        let mut news: Vec<u64> = Vec::new();
        for Seen { number, at_ns, .. } in &watched.seen {
            // A number of the future would be a reading error of the observer, and is impossible: its check bits are right.
            let drawn_ns = drawn.get(*number as usize)?;
            if numbers.insert(*number) {
                latencies.push(at_ns.saturating_sub(*drawn_ns));
                news.push(*at_ns);
            }
        }
        let (first, last) = (numbers.first()?, numbers.last()?);
        if first == last {
            return None;
        }
        latencies.sort_unstable();
        // A freeze may last until the observer stops.
        news.push(watched.end_ns);
        let gaps = news.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        let mut recoveries: Vec<u64> = gaps.clone().filter(|gap| *gap > FREEZE_NS).collect();
        recoveries.sort_unstable();
        Some(GlassFigures {
            shown: numbers.len() as u64,
            drawn: u64::from(last - first + 1),
            late: watched.seen.windows(2).filter(|pair| pair[1].number < pair[0].number).count() as u64,
            damaged: watched.damaged,
            longest_freeze_ns: gaps.max()?,
            recoveries,
            numbers: [*first, *last],
            latency: LatencyUs::of_sorted_ns(&latencies)?,
        })
    }

    /// Returns the figures that only this experiment has, by their names in the summary. `cpu_ns` is the CPU time of the sender
    /// and of the receiver.
    pub(super) fn named(&self, cpu_ns: [u64; 2]) -> BTreeMap<String, f64> {
        let [sender, receiver] = cpu_ns.map(|ns| ns as f64 / 1e6 / self.shown as f64);
        let figures = [
            ("glass_p50_ms", self.latency.p50 / 1e3),
            ("glass_p95_ms", self.latency.p95 / 1e3),
            ("glass_p99_ms", self.latency.p99 / 1e3),
            ("shown", self.shown as f64),
            ("drawn", self.drawn as f64),
            ("shown_percent", 100.0 * self.shown as f64 / self.drawn as f64),
            ("late", self.late as f64),
            ("damaged", self.damaged as f64),
            ("longest_freeze_ms", self.longest_freeze_ns as f64 / 1e6),
            ("sender_cpu_ms_per_frame", sender),
            ("receiver_cpu_ms_per_frame", receiver),
        ];
        let at = |percent| Some(percentile(&self.recoveries, percent)? as f64 / 1e6);
        let of_freezes = [
            ("freezes", Some(self.recoveries.len() as f64)),
            ("recovery_p50_ms", at(50.0)),
            ("recovery_p99_ms", at(99.0)),
        ];
        let of_freezes = of_freezes.into_iter().filter_map(|(name, figure)| Some((name, figure?)));
        let figures = figures.into_iter().chain(of_freezes);
        figures.map(|(name, figure)| (name.to_owned(), figure)).collect()
    }

    /// Returns the figures of a run that was watched for `wall`.
    pub(super) fn measured(&self, cpu_ns: [u64; 2], wall: Duration) -> Measured {
        Measured {
            frames: self.shown,
            wall_ns: wall.as_nanos() as u64,
            cpu_ns: cpu_ns.iter().sum(),
            latency: Some(self.latency),
            extra: self.named(cpu_ns),
            ..Measured::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: [u64; 5] = [1000, 2000, 3000, 4000, 5000];

    fn watched(seen: &[(u32, u64)], end_ns: u64) -> WatchedScreen {
        let seen =
            seen.iter().map(|(number, at_ns)| Seen { number: *number, after_ns: 0, at_ns: *at_ns }).collect();
        WatchedScreen { seen, damaged: 2, end_ns }
    }

    #[test]
    fn figures_count_each_picture_once() {
        let seen = [(0, 5000), (3, 9000), (1, 9500), (3, 9900), (4, 10_000)];
        let figures = GlassFigures::of(&watched(&seen, 11_000), &DRAWN).unwrap();
        assert_eq!((figures.shown, figures.drawn, figures.late, figures.damaged), (4, 5, 1, 2));
        // 4000, 5000, 7500 and 5000 ns.
        assert_eq!((figures.latency.p50, figures.latency.max), (5.0, 7.5));
        let named = figures.named([8_000_000, 2_000_000]);
        assert_eq!((named["shown_percent"], named["glass_p50_ms"]), (80.0, 0.005));
        assert_eq!((named["sender_cpu_ms_per_frame"], named["receiver_cpu_ms_per_frame"]), (2.0, 0.5));
    }

    #[test]
    fn a_freeze_ends_with_a_new_picture_or_with_the_observer() {
        let freeze = |seen: &[(u32, u64)], end_ns| {
            GlassFigures::of(&watched(seen, end_ns), &DRAWN).map(|figures| figures.longest_freeze_ns)
        };
        // Picture 1 is old when it is seen again, so it does not end the freeze.
        assert_eq!(freeze(&[(1, 2500), (2, 3500), (1, 5000), (3, 9000)], 9500), Some(5500));
        assert_eq!(freeze(&[(1, 2500), (2, 3500)], 9500), Some(6000));
        assert_eq!(freeze(&[(1, 2500)], 9500), None);
    }

    #[test]
    fn gaps_beyond_two_pictures_are_recoveries() {
        let ms = 1_000_000;
        let drawn = [0, 16 * ms, 33 * ms, 50 * ms, 66 * ms];
        let seen = [(0, 20 * ms), (1, 53 * ms), (2, 90 * ms), (4, 190 * ms)];
        let figures = GlassFigures::of(&watched(&seen, 200 * ms), &drawn).unwrap();
        // 33 ms, 37 ms, 100 ms and 10 ms: the first is not beyond two pictures.
        let named = figures.named([0, 0]);
        assert_eq!(
            (named["freezes"], named["recovery_p50_ms"], named["recovery_p99_ms"]),
            (2.0, 37.0, 100.0)
        );
        assert_eq!(figures.numbers, [0, 4]);
        let none = GlassFigures::of(&watched(&seen[..2], 60 * ms), &drawn).unwrap().named([0, 0]);
        assert_eq!((none["freezes"], none.get("recovery_p99_ms")), (0.0, None));
    }
}
