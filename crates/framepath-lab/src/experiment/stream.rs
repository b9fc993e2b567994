// SPDX-License-Identifier: MIT OR Apache-2.0
//! `stream`: latency from one X screen to another, from glass to glass. A clock shows numbered pictures on the first screen; an
//! observer reads the numbers from the second. Both are the lab's own, and the same for every contender: framepath, GStreamer
//! over RTP and SRT, and ffmpeg to ffplay. All contenders encode by x264 with the same settings.

mod barcode;
mod contender;
mod screen_clock;
mod screen_observer;

use std::collections::BTreeSet;
use std::fmt::Display as AsText;
use std::time::Duration;

use framepath_model::summary::{LatencyUs, Skipped};

use crate::display::Display;
use crate::error::LabError;
use crate::experiment::{ExperimentResult, ExperimentSettings};
use crate::measure::{Contender, Measured};
use crate::pairs::{self, Comparison};
use crate::progress::ProgressView;
use contender::{OURS, STREAMERS, Streamer};
use screen_clock::ScreenClock;
use screen_observer::{ScreenObserver, Seen};

/// Pictures per second of the clock and of all contenders.
const RATE: u32 = 60;
/// Name of the only case: a screen with text, of which an area scrolls.
const CASE: &str = "desktop-1080p60";
/// Longest wait for the first picture.
const START: Duration = Duration::from_secs(20);
/// Time between the first picture and the measurement, in which bit rates and buffers settle.
const SETTLING: Duration = Duration::from_secs(2);
/// Figures by which framepath is compared with each other contender.
const METRICS: [&str; 2] = ["latency_p50_us", "latency_p99_us"];

/// Returns the names of all cases.
pub(super) fn cases() -> Vec<String> {
    vec![CASE.to_owned()]
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let summary = &mut findings.summary;
    let screens = match Display::xvfb().and_then(|from| Ok([from, Display::xvfb()?])) {
        Ok(screens) => screens,
        Err(reason) => {
            summary.skipped.push(Skipped { contender: OURS.to_owned(), case: None, reason });
            return Ok(());
        }
    };
    let rounds = settings.rounds(3, 10);
    let duration = Duration::from_secs(10);
    watch.begin("stream", (STREAMERS.len() * rounds) as u64);
    let contenders = STREAMERS.iter().map(|streamer| {
        let screens = &screens;
        Contender::new(streamer.name, move || stream(streamer, settings, screens, duration))
    });
    let others = STREAMERS.iter().map(|streamer| streamer.name).filter(|name| *name != OURS);
    let comparisons: Vec<Comparison> =
        others.flat_map(|other| METRICS.map(|metric| (metric, OURS, other))).collect();
    pairs::run(CASE, contenders.collect(), &comparisons, rounds, watch, summary)?;
    summary.notes.push(
        "latency: from the moment before a picture is drawn on the first screen until an observer that polls the second screen \
         (every 0.3 ms) has read the picture's number; shown_percent: pictures seen, of those drawn in the same time; late: \
         pictures seen after a newer one; cpu_ms: sender and receiver, without the X servers, over their whole lives"
            .to_owned(),
    );
    Ok(())
}

/// Runs one contender once.
fn stream(
    streamer: &Streamer,
    settings: &ExperimentSettings,
    [from, to]: &[Display; 2],
    duration: Duration,
) -> Result<Measured, LabError> {
    let clock = ScreenClock::start(from.x_name()?, RATE)?;
    let running = streamer.start(settings, from, to)?;
    let mut observer = ScreenObserver::new(to.x_name()?)?;
    if !observer.find(START)? {
        return Err(running.failed("no picture within 20 s"));
    }
    std::thread::sleep(SETTLING);
    let seen = observer.watch(duration)?;
    let cpu_ns = running.end()?;
    let drawn = clock.stop()?;
    let figures = GlassFigures::of(&seen, &drawn)
        .ok_or_else(|| LabError::Unknown(format!("{}: the picture stood still", streamer.name)))?;
    let extra = [("shown_percent", figures.shown_percent), ("late", figures.late as f64)];
    Ok(Measured {
        frames: figures.shown,
        wall_ns: duration.as_nanos() as u64,
        cpu_ns,
        latency: Some(figures.latency),
        extra: extra.map(|(name, figure)| (name.to_owned(), figure)).into(),
        ..Measured::default()
    })
}

/// Figures of one run, as an observer of both screens sees it.
#[derive(Debug, PartialEq)]
struct GlassFigures {
    /// Number of different pictures that were seen.
    shown: u64,
    /// Share of the pictures that were seen, of those drawn from the first to the last seen.
    shown_percent: f64,
    /// Number of times that an older picture followed a newer one.
    late: u64,
    /// Latency of each picture, when it was first seen.
    latency: LatencyUs,
}

impl GlassFigures {
    /// Computes the figures; `drawn` has the time of each picture by its number. `None` if fewer than two pictures were seen.
    fn of(seen: &[Seen], drawn: &[u64]) -> Option<GlassFigures> {
        let mut numbers = BTreeSet::new();
        let mut latencies: Vec<u64> = Vec::new();
        for Seen { number, at_ns } in seen {
            // A number of the future would be a reading error of the observer, and is impossible: its check bits are right.
            let drawn_ns = drawn.get(*number as usize)?;
            if numbers.insert(*number) {
                latencies.push(at_ns.saturating_sub(*drawn_ns));
            }
        }
        let (first, last) = (numbers.first()?, numbers.last()?);
        if first == last {
            return None;
        }
        latencies.sort_unstable();
        Some(GlassFigures {
            shown: numbers.len() as u64,
            shown_percent: 100.0 * numbers.len() as f64 / f64::from(last - first + 1),
            late: seen.windows(2).filter(|pair| pair[1].number < pair[0].number).count() as u64,
            latency: LatencyUs::of_sorted_ns(&latencies)?,
        })
    }
}

/// Returns the error for a failure of an X server.
fn x_error(error: impl AsText) -> LabError {
    LabError::Unknown(format!("X server: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_count_each_picture_once() {
        let drawn = [1000, 2000, 3000, 4000, 5000];
        let seen = [(0, 5000), (3, 9000), (1, 9500), (3, 9900), (4, 10_000)];
        let figures = GlassFigures::of(&seen.map(|(number, at_ns)| Seen { number, at_ns }), &drawn).unwrap();
        assert_eq!((figures.shown, figures.shown_percent, figures.late), (4, 80.0, 1));
        // 4000, 5000, 7500 and 5000 ns.
        assert_eq!((figures.latency.p50, figures.latency.max), (5.0, 7.5));
        assert_eq!(GlassFigures::of(&[Seen { number: 1, at_ns: 1 }], &drawn), None);
    }

    #[test]
    fn the_observer_sees_the_clock_of_the_same_screen() {
        let Ok(screen) = Display::xvfb() else { panic!("no X server; apt install xvfb") };
        let clock = ScreenClock::start(screen.x_name().unwrap(), RATE).unwrap();
        let mut observer = ScreenObserver::new(screen.x_name().unwrap()).unwrap();
        assert!(observer.find(START).unwrap());
        let seen = observer.watch(Duration::from_millis(500)).unwrap();
        let drawn = clock.stop().unwrap();
        assert!(seen.len() > 1, "{seen:?}");
        for (pair, Seen { number, at_ns }) in seen.windows(2).zip(&seen) {
            assert!(pair[0].number < pair[1].number && *at_ns > drawn[*number as usize], "{seen:?}");
        }
    }
}
