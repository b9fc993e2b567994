// SPDX-License-Identifier: MIT OR Apache-2.0
//! `trace`: the proof that the ledger of a foreign program names the right cause. Each case runs a program on FFmpeg's
//! libraries that injects a known cost of one cause into one stage, and that measures the cost and its frames' latency
//! by its own clocks. The cost must appear as that cause in that stage. The cases `...-loaded` run beside a thread on
//! each CPU that never waits. The cases `ledger-...` and `gst-...` compare the tracer with another observer of the same run:
//! framepath's own ledger, and GStreamer's tracer.

mod element_latency;
mod injection;
mod overhead;
mod own_ledger;

use std::path::Path;

use framepath_model::ledger::{Cause, Row};
use framepath_model::stats::{median, percentile};
use framepath_model::summary::{Skipped, Summary};
use framepath_os::process::signal;

use crate::error::LabError;
use crate::experiment::load::Load;
use crate::experiment::{ExperimentResult, ExperimentSettings, Size};
use crate::measure::Measured;
use crate::progress::ProgressView;
use crate::traced::{NumberedClip, TracedProgram, TracedRun};
use injection::{ForeignInjection, INJECTIONS};

/// Suffix of the cases under load.
const LOADED: &str = "-loaded";

/// Encoder of the clip in which no picture refers to another one: frame threads do not wait for one another.
const INTRA: [&str; 6] = ["-c:v", "libx264", "-preset", "veryfast", "-g", "1"];

/// Returns the names of all cases.
pub(super) fn cases() -> Vec<String> {
    let idle = INJECTIONS.iter().map(|injection| injection.name.to_owned());
    let others = overhead::cases().chain(own_ledger::cases()).chain(element_latency::cases());
    idle.clone().chain(idle.map(|name| name + LOADED)).chain(others.map(str::to_owned)).collect()
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let summary = &mut findings.summary;
    let wanted: Vec<(String, &ForeignInjection, bool)> = [false, true]
        .into_iter()
        .flat_map(|loaded| INJECTIONS.iter().map(move |injection| (injection, loaded)))
        .map(|(injection, loaded)| {
            let name = injection.name.to_owned() + if loaded { LOADED } else { "" };
            (name, injection, loaded)
        })
        .filter(|(name, ..)| settings.wants(name))
        .collect();
    let rounds = settings.rounds(5, 20);
    let pairs = overhead::cases().filter(|name| settings.wants(name)).count() * 2 * rounds;
    let observers = own_ledger::cases().chain(element_latency::cases());
    let observed = observers.filter(|name| settings.wants(name)).count() * rounds;
    watch.begin("trace", (wanted.len() + pairs + observed) as u64);
    if !wanted.is_empty() {
        inject(settings, &wanted, watch, summary)?;
    }
    overhead::run(settings, watch, summary)?;
    own_ledger::run(settings, watch, summary)?;
    element_latency::run(settings, watch, summary)
}

/// Observes the case `name` in each round. Returns the figures of the rounds, as far as the observer `contender` is possible.
fn observe<T>(
    (name, contender): (&str, &str),
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    summary: &mut Summary,
    observed: impl Fn() -> Result<T, LabError>,
) -> Result<Vec<T>, LabError> {
    let mut runs = Vec::new();
    for _ in 0..settings.rounds(5, 20) {
        if signal::interrupted() {
            return Err(LabError::Interrupted);
        }
        watch.step(name);
        match observed() {
            Ok(of_run) => runs.push(of_run),
            Err(LabError::Missing(reason)) => {
                let (contender, case) = (contender.to_owned(), Some(name.to_owned()));
                summary.skipped.push(Skipped { contender, case, reason });
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(runs)
}

/// Runs the cases with injections: name, injection, and true with load.
fn inject(
    settings: &ExperimentSettings,
    wanted: &[(String, &ForeignInjection, bool)],
    watch: &dyn ProgressView,
    summary: &mut Summary,
) -> Result<(), LabError> {
    let frames = if settings.size == Size::Quick { 120 } else { 500 };
    let prepared = TracedProgram::build().and_then(|program| {
        let encoder = ["-c:v", "libx264", "-preset", "veryfast", "-bf", "2", "-g", "50", "-slices", "2"];
        let clip = NumberedClip::encode(&program.file(""), "clip.mp4", frames, &encoder)?;
        let intra = NumberedClip::encode(&program.file(""), "intra.mp4", frames, &INTRA)?;
        Ok((program, clip, intra))
    });
    let (program, clip, intra) = match prepared {
        Ok(prepared) => prepared,
        Err(LabError::Missing(reason)) => {
            summary.skipped.push(Skipped { contender: "ledger".to_owned(), case: None, reason });
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for (name, injection, loaded) in wanted {
        watch.step(name);
        let load = loaded.then(Load::start);
        let clip = if injection.intra { &intra } else { &clip };
        let measured = measure(&program, injection, &clip.path);
        drop(load);
        match measured {
            Ok(measured) => summary.rows.push(crate::pairs::row(name, "ledger", &[measured])),
            Err(LabError::Missing(reason)) => {
                summary.skipped.push(Skipped {
                    contender: "ledger".to_owned(),
                    case: Some(name.clone()),
                    reason,
                });
            }
            Err(error) => return Err(error),
        }
    }
    summary.notes.push(
        "injected: the cost by the program's own clocks; attributed: the ledger's row for that cause in that stage, \
         less the median of the frames without injection; error: attributed minus injected, the median and the \
         largest over the frames; apart: latency by the program's own clocks minus the ledger's"
            .to_owned(),
    );
    Ok(())
}

/// Runs a case once.
fn measure(program: &TracedProgram, injection: &ForeignInjection, clip: &Path) -> Result<Measured, LabError> {
    let traced = program.trace(&injection.options(), clip)?;
    let mut measured = Measured {
        frames: traced.own.frames.len() as u64,
        wall_ns: traced.trace.wall_ns,
        cpu_ns: traced.own.cpu_ns,
        ..Measured::default()
    };
    let us = |ns: f64| ns / 1e3;
    let mut add = |key: &str, figure: Option<f64>| {
        measured.extra.extend(figure.map(|figure| (key.to_owned(), figure)));
    };
    let costs = injection.costs(&traced)?;
    let errors: Vec<f64> = costs.iter().map(|(injected, attributed)| attributed - injected).collect();
    let of = |figures: &mut dyn Iterator<Item = f64>| median(&figures.collect::<Vec<_>>()).map(us);
    add("injected_us", of(&mut costs.iter().map(|cost| cost.0)));
    add("attributed_us", of(&mut costs.iter().map(|cost| cost.1)));
    add("error_us", of(&mut errors.iter().copied()));
    add("error_max_us", largest(&errors).map(us));
    let apart = apart(&traced);
    add("apart_us", of(&mut apart.iter().copied()));
    add("apart_max_us", largest(&apart).map(us));
    let unexplained = unexplained_percent(&traced);
    add("unexplained_percent", median(&unexplained));
    add("unexplained_p95_percent", percentile(&unexplained, 95.0));
    add("identified_percent", Some(identified_percent(&traced)));
    // The program's own count contains what the child did before it executed the program, and not its end.
    add("cpu_ratio", Some(traced.trace.running_ns() as f64 / traced.own.cpu_ns.max(1) as f64));
    Ok(measured)
}

/// Returns the figure that is the farthest from 0.
fn largest(figures: &[f64]) -> Option<f64> {
    figures.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs()))
}

/// Returns the difference of each frame's latencies by the program's own clocks and by the ledger, nanoseconds.
fn apart(traced: &TracedRun) -> Vec<f64> {
    let difference = |frame: &crate::traced::OwnFrame| {
        let rows = traced.rows(frame.pts);
        let ledger_ns = rows.last()?.leave_ns - rows.first()?.enter_ns;
        Some(frame.end_ns.checked_sub(frame.begin_ns)? as f64 - ledger_ns as f64)
    };
    traced.own.frames.iter().filter(|frame| frame.end_ns > 0).filter_map(difference).collect()
}

/// Returns the share of each frame's latency that is in no row, percent.
fn unexplained_percent(traced: &TracedRun) -> Vec<f64> {
    let share = |frame: &crate::traced::OwnFrame| {
        let rows = traced.rows(frame.pts);
        let unexplained: f64 = rows.iter().filter_map(|row| row.causes()[Cause::Unexplained]).sum();
        let wall: u64 = rows.iter().map(|row: &&Row| row.wall_ns()).sum();
        (wall > 0).then(|| 100.0 * unexplained / wall as f64)
    };
    traced.own.frames.iter().filter_map(share).collect()
}

/// Returns the share of the frames whose last row ended while the program was behind its own call and before its own
/// stamp of the same frame, percent.
fn identified_percent(traced: &TracedRun) -> f64 {
    let is_right = |frame: &&crate::traced::OwnFrame| {
        let rows = traced.rows(frame.pts);
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return false };
        let before =
            traced.own.frames.iter().map(|other| other.end_ns).filter(|end| *end < frame.end_ns).max();
        first.enter_ns >= frame.begin_ns && last.leave_ns <= frame.end_ns && Some(last.leave_ns) > before
    };
    let frames = &traced.own.frames;
    100.0 * frames.iter().filter(is_right).count() as f64 / frames.len().max(1) as f64
}
