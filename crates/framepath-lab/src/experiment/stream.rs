// SPDX-License-Identifier: MIT OR Apache-2.0
//! `stream`: latency from one X screen to another, from glass to glass. A clock shows numbered pictures on the first screen; an
//! observer reads the numbers from the second. Both are the lab's own, and the same for every contender: framepath, GStreamer
//! over RTP and SRT, and ffmpeg to ffplay. All contenders encode by x264 with the same settings. The cases are conditions of the
//! network, of the machine and of the screen, the parts of the stream alone, and framepath alone with its own figures.

mod barcode;
mod capture_part;
mod condition;
mod contender;
mod convert_part;
mod damage_watch;
mod desktop;
mod display_part;
mod encoder_part;
mod end_ledger;
mod glass_figures;
mod ledger_part;
mod long_part;
mod native_run;
mod recovery_part;
mod screen_clock;
mod screen_error;
mod screen_observer;
mod sender_totals;
mod settling_part;
mod stream_end;
mod viewers_part;
#[cfg(feature = "wayland")]
mod wayland_clock;
mod x_clock;

use std::thread;
use std::time::Duration;

use framepath_model::summary::{Skipped, Summary};

use crate::display::Display;
use crate::error::LabError;
use crate::experiment::load::Load;
use crate::experiment::{ExperimentResult, ExperimentSettings, Size};
use crate::measure::{Contender, Measured};
use crate::pairs::{self, Comparison};
use crate::progress::ProgressView;
use crate::test_link::TestLink;
use condition::{CONDITIONS, LOSS_3, RATE_10M, StreamCondition};
use contender::{BROWSER, OURS, STREAMERS, Streamer, Streaming};
use desktop::RATE;
use glass_figures::GlassFigures;
use ledger_part::{BROWSER_TAB, WINDOW};
use screen_clock::ScreenClock;
use screen_observer::ScreenObserver;

/// Longest wait for the first picture.
const START: Duration = Duration::from_secs(20);
/// Time between the first picture and the measurement, in which bit rates and buffers settle; also before the measurement of a
/// screen that stands still.
const SETTLING: Duration = Duration::from_secs(2);
/// Duration of the measurement in one run.
const MEASURED: Duration = Duration::from_secs(10);
/// Frames of a part that is measured alone; five times as many with `--full`.
const PART_FRAMES: u64 = 120;
/// Figures by which framepath is compared with each other contender.
const METRICS: [&str; 2] = ["latency_p50_us", "latency_p99_us"];
/// The same for a screen that stands still, which has no latency.
const IDLE_METRICS: [&str; 1] = ["cpu_ms"];

/// A part of the stream that is measured alone.
struct Part {
    /// Name of the case, which is stable.
    name: &'static str,
    contenders: &'static [&'static str],
    /// Figure by which the first contender is compared with the others.
    metric: &'static str,
    /// Number of rounds of the quick run, and of the full one.
    rounds: [usize; 2],
    run: RunPart,
}

/// Number of rounds of a case of usual length, of the quick run and of the full one.
const ROUNDS: [usize; 2] = [3, 10];

/// Runs a part once, with a number of frames.
type RunPart = fn(&str, &ExperimentSettings, &[Display; 2], u64) -> Result<Measured, LabError>;

/// Returns a case with framepath alone, which is compared with nothing.
const fn native(name: &'static str, rounds: [usize; 2], run: RunPart) -> Part {
    Part { name, contenders: &[OURS], metric: "", rounds, run }
}

static PARTS: [Part; 10] = [
    Part {
        name: "capture",
        contenders: &capture_part::CAPTURERS,
        metric: "cpu_ms_per_frame",
        rounds: ROUNDS,
        run: |name, settings, screens, frames| capture_part::run(name, settings, &screens[0], frames),
    },
    Part {
        name: "encoders",
        contenders: &encoder_part::CODECS,
        metric: "encode_p50_ms",
        rounds: ROUNDS,
        run: |codec, _, _, frames| encoder_part::run(codec, frames),
    },
    Part {
        name: "conversion",
        contenders: &convert_part::CONVERTERS,
        metric: "convert_p50_ms",
        rounds: ROUNDS,
        run: |name, _, _, frames| convert_part::run(name, frames),
    },
    Part {
        name: "display",
        contenders: &display_part::DISPLAYERS,
        metric: "display_cpu_ms",
        rounds: ROUNDS,
        run: |_, settings, screens, frames| display_part::run(settings, &screens[0], frames),
    },
    native("ledger", ROUNDS, |_, settings, screens, _| {
        ledger_part::run(&WINDOW, settings, screens, MEASURED)
    }),
    Part {
        name: "browser-ledger",
        contenders: &[BROWSER],
        metric: "",
        rounds: ROUNDS,
        run: |_, settings, screens, _| ledger_part::run(&BROWSER_TAB, settings, screens, MEASURED),
    },
    native("viewers", ROUNDS, |_, settings, screens, _| {
        let [quick, full] = viewers_part::VIEWERS;
        let count = if settings.size == Size::Quick { quick } else { full };
        viewers_part::run(settings, screens, MEASURED / 2, count)
    }),
    native("recovery", ROUNDS, |_, settings, screens, _| {
        recovery_part::run(settings, screens, &LOSS_3, MEASURED)
    }),
    native("settling", ROUNDS, |_, settings, screens, _| {
        settling_part::run(settings, screens, &RATE_10M, 2 * MEASURED)
    }),
    native("long", [1, 1], |_, settings, screens, _| {
        let [quick, full] = long_part::DURATIONS;
        long_part::run(settings, screens, if settings.size == Size::Quick { quick } else { full })
    }),
];

/// Returns the names of all cases.
pub(super) fn cases() -> Vec<String> {
    let conditions = CONDITIONS.iter().map(|condition| condition.name);
    conditions.chain(PARTS.iter().map(|part| part.name)).map(str::to_owned).collect()
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
    let is_quick = settings.size == Size::Quick && settings.cases.is_empty();
    let wants = |name: &str| settings.wants(name) && (!is_quick || name == CONDITIONS[0].name);
    let rounds_of = |[quick, full]: [usize; 2]| settings.rounds(quick, full);
    let rounds = rounds_of(ROUNDS);
    let conditions: Vec<&StreamCondition> =
        CONDITIONS.iter().filter(|condition| wants(condition.name)).collect();
    let parts: Vec<&Part> = PARTS.iter().filter(|part| wants(part.name)).collect();
    let part_runs: usize = parts.iter().map(|part| part.contenders.len() * rounds_of(part.rounds)).sum();
    watch.begin("stream", (conditions.len() * STREAMERS.len() * rounds + part_runs) as u64);
    for condition in conditions {
        under(condition, settings, &screens, rounds, watch, summary)?;
    }
    for part in parts {
        alone(part, settings, &screens, rounds_of(part.rounds), watch, summary)?;
    }
    summary.notes.push(
        "latency: from the moment before a picture is drawn on the first screen until an observer that polls the second screen \
         (every 0.3 ms) has read the picture's number; shown_percent: pictures seen, of those drawn in the same time; late: \
         pictures seen after a newer one; damaged: times that the number became unreadable; longest_freeze_ms: longest time \
         without a new picture; CPU: sender and receiver in the measured time, without the X servers; idle: the screen stands \
         still, and the CPU is in percent of one processor; parts alone: capture, the time of one capture (for framepath while the \
         screen changes, for the others without pauses) and CPU at 60 pictures a second, the X server's with its drawing; \
         encoders, at two threads and the stream's bit rate, whose wall time and CPU include drawing and decoding; y_psnr_db: of all \
         pictures together behind the first second, against the input; conversion, BGR0 to 4:2:0; display, CPU of the \
         window's hop for each picture; ledger, viewers, recovery, settling, long: framepath alone, with figures that \
         docs/experiments/stream.md explains"
            .to_owned(),
    );
    Ok(())
}

/// Runs all contenders under one condition.
fn under(
    condition: &StreamCondition,
    settings: &ExperimentSettings,
    screens: &[Display; 2],
    rounds: usize,
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<(), LabError> {
    let contenders = STREAMERS.iter().map(|streamer| {
        Contender::new(streamer.name, move || stream(streamer, condition, settings, screens))
    });
    let metrics: &[&str] = if condition.is_idle { &IDLE_METRICS } else { &METRICS };
    let others = STREAMERS.iter().map(|streamer| streamer.name).filter(|name| *name != OURS);
    let comparisons: Vec<Comparison> =
        others.flat_map(|other| metrics.iter().map(move |metric| (*metric, OURS, other))).collect();
    pairs::run(condition.name, contenders.collect(), &comparisons, rounds, watch, summary)?;
    Ok(())
}

/// Runs all contenders of a part.
fn alone(
    part: &Part,
    settings: &ExperimentSettings,
    screens: &[Display; 2],
    rounds: usize,
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<(), LabError> {
    let frames = if settings.size == Size::Quick { PART_FRAMES } else { 5 * PART_FRAMES };
    let contenders = part
        .contenders
        .iter()
        .map(|name| Contender::new(name, move || (part.run)(name, settings, screens, frames)));
    let (first, others) = (part.contenders[0], &part.contenders[1..]);
    let comparisons: Vec<Comparison> = others.iter().map(|other| (part.metric, first, *other)).collect();
    pairs::run(part.name, contenders.collect(), &comparisons, rounds, watch, summary)?;
    Ok(())
}

/// Runs one contender once.
fn stream(
    streamer: &Streamer,
    condition: &StreamCondition,
    settings: &ExperimentSettings,
    screens: &[Display; 2],
) -> Result<Measured, LabError> {
    let link = condition.link.map(|limits| TestLink::start(&settings.framepath, &limits)).transpose()?;
    let _load = condition.is_loaded.then(Load::start);
    let clock = ScreenClock::start(screens[0].x_name()?, RATE, condition.scroll)?;
    let mut running = streamer.start(settings, screens, link.as_ref(), None)?;
    let mut observer = ScreenObserver::new(screens[1].x_name()?)?;
    if !observer.find(START)? {
        return Err(running.failed("no picture within 20 s"));
    }
    thread::sleep(SETTLING);
    if condition.is_idle {
        clock.hold();
        thread::sleep(SETTLING);
        return still(running);
    }
    let before = running.cpu_ns()?;
    let watched = observer.watch(MEASURED)?;
    let cpu_ns = since(before, running.cpu_ns()?);
    let drawn = clock.stop()?;
    let Some(figures) = GlassFigures::of(&watched, &drawn) else {
        return Err(running.failed("the picture stood still"));
    };
    running.end()?;
    Ok(figures.measured(cpu_ns, MEASURED))
}

/// Measures the CPU time of a contender whose screen stands still.
fn still(mut running: Streaming) -> Result<Measured, LabError> {
    let before = running.cpu_ns()?;
    thread::sleep(MEASURED);
    let cpu_ns = since(before, running.cpu_ns()?);
    running.end()?;
    let wall_ns = MEASURED.as_nanos() as u64;
    let percent = |ns: u64| 100.0 * ns as f64 / wall_ns as f64;
    let extra = [("sender_cpu_percent", percent(cpu_ns[0])), ("receiver_cpu_percent", percent(cpu_ns[1]))];
    Ok(Measured {
        wall_ns,
        cpu_ns: cpu_ns.iter().sum(),
        extra: extra.map(|(name, figure)| (name.to_owned(), figure)).into(),
        ..Measured::default()
    })
}

/// Returns the difference of the CPU times of both ends.
fn since(before: [u64; 2], after: [u64; 2]) -> [u64; 2] {
    [0, 1].map(|end| after[end].saturating_sub(before[end]))
}

#[cfg(test)]
mod tests {
    use super::screen_observer::Seen;
    use super::*;

    #[test]
    fn the_observer_sees_the_clock_of_the_same_screen() {
        let Ok(screen) = Display::xvfb() else { panic!("no X server; apt install xvfb") };
        let clock = ScreenClock::start(screen.x_name().unwrap(), RATE, desktop::SCROLL).unwrap();
        let mut observer = ScreenObserver::new(screen.x_name().unwrap()).unwrap();
        assert!(observer.find(START).unwrap());
        let seen = observer.watch(Duration::from_millis(500)).unwrap().seen;
        let drawn = clock.stop().unwrap();
        assert!(seen.len() > 1, "{seen:?}");
        for (pair, Seen { number, at_ns, .. }) in seen.windows(2).zip(&seen) {
            assert!(pair[0].number < pair[1].number && *at_ns > drawn[*number as usize], "{seen:?}");
        }
    }

    #[test]
    fn a_held_clock_draws_no_more() {
        let Ok(screen) = Display::xvfb() else { panic!("no X server; apt install xvfb") };
        let clock = ScreenClock::start(screen.x_name().unwrap(), RATE, desktop::SCROLL).unwrap();
        let mut observer = ScreenObserver::new(screen.x_name().unwrap()).unwrap();
        assert!(observer.find(START).unwrap());
        clock.hold();
        // The picture that is just being drawn.
        thread::sleep(Duration::from_millis(100));
        let watched = observer.watch(Duration::from_millis(300)).unwrap();
        assert_eq!((watched.seen.len(), watched.damaged), (1, 0));
        assert_eq!(clock.stop().unwrap().len() as u32, watched.seen[0].number + 1);
    }
}
