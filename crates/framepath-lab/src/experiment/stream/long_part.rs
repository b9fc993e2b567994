// SPDX-License-Identifier: MIT OR Apache-2.0
//! A long run: drift of the latency, growth of the memory of both ends, and the error of their clocks.

use std::thread;
use std::time::Duration;

use framepath_model::stats::median;

use super::SETTLING;
use super::condition::CLEAN;
use super::contender::OURS;
use super::end_ledger::LedgerFiles;
use super::glass_figures::GlassFigures;
use super::native_run::NativeRun;
use super::screen_observer::{Seen, WatchedScreen};
use crate::display::Display;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::measure::Measured;

/// Duration of the quick run, and of the full one.
pub(super) const DURATIONS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(30 * 60)];
/// Parts of the run: the first and the last are compared.
const PARTS: u32 = 6;
/// Most rows of a thread of either end: few, so that the ledgers do not grow behind the first part of the quick run.
const ROWS: u64 = 1024;

/// Streams for `duration`.
///
/// # Errors
/// As those of a [`NativeRun`]; no picture was seen.
pub(super) fn run(
    settings: &ExperimentSettings,
    screens: &[Display; 2],
    duration: Duration,
) -> Result<Measured, LabError> {
    let files = LedgerFiles::new(["times"; 2], ROWS)?;
    let mut native = NativeRun::start(OURS, settings, screens, &CLEAN, files)?;
    thread::sleep(SETTLING);
    let mut parts = Vec::new();
    let mut cpu_ns = [0; 2];
    let mut memory_kib = Vec::new();
    for _ in 0..PARTS {
        let (watched, used) = native.watch(duration / PARTS)?;
        parts.push(watched);
        cpu_ns = [cpu_ns[0] + used[0], cpu_ns[1] + used[1]];
        memory_kib.push(native.running.memory_kib()?);
    }
    let (drawn, receiver) = native.finish(1)?;
    let no_picture = || LabError::Unknown(format!("{OURS}: the picture stood still"));
    let figures = GlassFigures::of(&joined(&parts), &drawn).ok_or_else(no_picture)?;
    let mut measured = figures.measured(cpu_ns, duration);
    let growth = |end: usize| {
        let [first, .., last] = memory_kib.as_slice() else { return None };
        Some(last[end] as f64 - first[end] as f64)
    };
    let [first, last] = [parts.first(), parts.last()].map(|part| median_latency_ms(part?, &drawn));
    let extra = [
        ("drift_ms", first.zip(last).map(|(first, last)| last - first)),
        ("sender_growth_kib", growth(0)),
        ("receiver_growth_kib", growth(1)),
        ("sender_memory_kib", memory_kib.last().map(|kib| kib[0] as f64)),
        ("receiver_memory_kib", memory_kib.last().map(|kib| kib[1] as f64)),
        ("clock_error_ms", receiver.summary.figure("clock_error_ns").map(|ns| ns / 1e6)),
    ];
    measured.extra.extend(extra.into_iter().filter_map(|(name, figure)| Some((name.to_owned(), figure?))));
    Ok(measured)
}

/// Returns what was seen in all parts together.
fn joined(parts: &[WatchedScreen]) -> WatchedScreen {
    let mut joined = WatchedScreen::default();
    for part in parts {
        // The first picture of a part is the last one of the part before, and not new.
        let last = joined.seen.last().map(|seen| seen.number);
        joined.seen.extend(part.seen.iter().skip_while(|seen| Some(seen.number) == last));
        joined.damaged += part.damaged;
        joined.end_ns = part.end_ns;
    }
    joined
}

/// Returns the median latency of a part, milliseconds, without its first picture, which may have been there before.
fn median_latency_ms(part: &WatchedScreen, drawn: &[u64]) -> Option<f64> {
    let latency =
        |seen: &Seen| Some((seen.at_ns.saturating_sub(*drawn.get(seen.number as usize)?)) as f64 / 1e6);
    median(&part.seen.iter().skip(1).filter_map(latency).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(numbers: &[u32], at_ns: u64) -> WatchedScreen {
        let seen = numbers.iter().map(|number| Seen { number: *number, after_ns: 0, at_ns }).collect();
        WatchedScreen { seen, damaged: 1, end_ns: at_ns }
    }

    #[test]
    fn the_picture_between_two_parts_counts_once() {
        let joined = joined(&[part(&[1, 2], 10), part(&[2, 3], 20)]);
        let seen: Vec<_> = joined.seen.iter().map(|seen| (seen.number, seen.at_ns)).collect();
        assert_eq!(seen, [(1, 10), (2, 10), (3, 20)]);
        assert_eq!((joined.damaged, joined.end_ns), (2, 20));
    }

    #[test]
    fn the_median_is_that_of_new_pictures() {
        let drawn = [0, 1_000_000, 2_000_000];
        assert_eq!(median_latency_ms(&part(&[0, 1, 2], 5_000_000), &drawn), Some(3.5));
        assert_eq!(median_latency_ms(&part(&[0], 5_000_000), &drawn), None);
    }

    #[test]
    fn a_short_run_has_the_figures_of_a_long_one() {
        let Ok(first) = Display::xvfb() else { panic!("no X server; apt install xvfb") };
        let screens = [first, Display::xvfb().unwrap()];
        let settings = ExperimentSettings {
            size: crate::experiment::Size::Quick,
            pairs: None,
            cases: Vec::new(),
            files: Vec::new(),
            framepath: framepath_testkit::program(),
            clips: "clips".into(),
            peers: "peers".into(),
        };
        let measured = run(&settings, &screens, Duration::from_secs(12)).unwrap();
        for name in [
            "drift_ms",
            "sender_growth_kib",
            "receiver_growth_kib",
            "sender_memory_kib",
            "receiver_memory_kib",
            "clock_error_ms",
        ] {
            assert!(measured.metric(name).is_some(), "no {name} in {measured:?}");
        }
    }
}
