// SPDX-License-Identifier: MIT OR Apache-2.0
//! `inject`: the proof that the ledger names the right cause. Each case injects a known cost of one
//! cause into a path. The cost must appear as that cause on the hop where it was injected. The case knows
//! the cost from the own record of the injecting stage (in `decoder-compute*` and `decoder-preempted`: of a hook
//! in the decoder). Exceptions: `process-compute`, `process-copy` and `process-blocked` take the requested cost,
//! and `decoder-order` and `decoder-depth` derive the cost from the rate of the packets. The cases `queue` and
//! `process-queue` also use one stamp of the ledger: the time at which the source handed the frame over.
//!
//! The cases `advice-*` inject no cost: they check the ledger's advice (module [`advised`]).

mod advised;
mod crossing;
mod decoder;
mod made_clip;
mod preempter;
mod probe;

use std::sync::Arc;

use framepath::{Leaky, Level, Options, Pipeline, Report, Test, TestOptions};
use framepath_model::ledger::Row;
use framepath_model::stats::median;
use framepath_model::summary::{Skipped, SummaryRow};
use framepath_os::process::affinity;

use crate::error::LabError;
use crate::experiment::{ExperimentResult, ExperimentSettings, Size};
use crate::measure::{Measured, complete};
use crate::progress::ProgressView;
use preempter::Preempter;
use probe::{InjectStage, InjectedCost, PreemptStage};

/// Injected time per frame, nanoseconds: CPU time that a stage or a hook in the decoder burns, time that a
/// stage sleeps, or time for which the real-time thread occupies the CPU. The cases `copy` and `process-copy`
/// copy bytes instead; in `decoder-order` and `decoder-depth` the rate of the packets gives the time. In
/// `queue` and `process-queue` the consumer burns this time, and the injected cost is the wait that follows.
const BURN_NS: u64 = 2_000_000;
/// Number of bytes copied per frame in the cases `copy` and `process-copy`.
const COPY_BYTES: usize = 4 << 20;

/// Injected cost and the ledger's figure for it in one case, frame by frame, in nanoseconds. The two
/// lists have the same frames in the same order, and are empty in case `process-copy`, which compares only
/// bytes.
struct Outcome {
    injected_ns: Vec<f64>,
    attributed_ns: Vec<f64>,
    measured: Measured,
    /// Injected bytes and bytes that the ledger counted, per frame; `None` if the cost is only time.
    bytes: Option<(f64, f64)>,
}

/// A case: its name, and the function that runs the case with about the given number of frames.
type Case = (&'static str, fn(u64) -> Result<Outcome, LabError>);

/// Cases by the name of the injected cause: in this process, with prefix `process-` in a worker, and with
/// prefix `decoder-` inside a decoder. `wakeup`, `preempted`, `process-wakeup` and `decoder-preempted` need
/// real-time priority and two CPUs; those of the decoder need the ffmpeg tool with libx264.
const CASES: &[Case] = &[
    ("compute", compute),
    ("copy", copy),
    ("queue", queue),
    ("wakeup", wakeup),
    ("preempted", preempted),
    ("blocked", blocked),
    ("process-compute", crossing::compute),
    ("process-copy", crossing::copy),
    ("process-queue", crossing::queue),
    ("process-wakeup", crossing::wakeup),
    ("process-blocked", crossing::blocked),
    ("decoder-compute", decoder::compute),
    ("decoder-compute-t1", decoder::compute_on_caller),
    ("decoder-preempted", decoder::preempted),
    ("decoder-order", decoder::order),
    ("decoder-depth", decoder::depth),
];

/// Returns the names of all cases, those that run only with `--full` included.
pub(super) fn cases() -> Vec<String> {
    let advised = advised::CASES.iter().map(|case| case.name);
    CASES.iter().map(|(name, _)| *name).chain(advised).map(str::to_owned).collect()
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let summary = &mut findings.summary;
    let frames = if settings.size == Size::Quick { 40 } else { 200 };
    let cases: Vec<_> = CASES.iter().filter(|(name, _)| settings.wants(name)).collect();
    let advised: Vec<_> = advised::CASES.iter().filter(|case| settings.wants(case.name)).collect();
    watch.begin("inject", (cases.len() + advised.len()) as u64);
    for (name, inject) in cases {
        watch.step(name);
        // A separate thread per run, because a run may pin its threads to CPUs.
        let outcome = std::thread::scope(|scope| scope.spawn(|| inject(frames)).join());
        match outcome {
            Ok(Ok(outcome)) => summary.rows.push(outcome.row(name)),
            Ok(Err(LabError::Missing(reason))) => summary.skipped.push(skipped(name, reason)),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(LabError::Unknown(format!("inject {name} panicked, which is a bug"))),
        }
    }
    for case in advised {
        watch.step(case.name);
        match case.run(frames) {
            Ok(row) => summary.rows.push(row),
            Err(LabError::Missing(reason)) => summary.skipped.push(skipped(case.name, reason)),
            Err(error) => return Err(error),
        }
    }
    summary.notes.push(
        "injected: the cost by the injecting stage's own timestamps, in a worker the requested cost; attributed: the \
         ledger's row for that cause on the injected hop; error: attributed minus injected; all are medians over \
         the frames"
            .to_owned(),
    );
    summary.notes.push(
        "advice-*: before and after: the median frame's time for the named cause in the named hop, in the path and in \
         the path that the advice proposes"
            .to_owned(),
    );
    Ok(())
}

fn skipped(case: &str, reason: String) -> Skipped {
    Skipped { contender: "ledger".to_owned(), case: Some(case.to_owned()), reason }
}

impl Outcome {
    fn row(self, case: &str) -> SummaryRow {
        let errors: Vec<f64> =
            self.attributed_ns.iter().zip(&self.injected_ns).map(|(a, i)| (a - i) / 1e3).collect();
        let us = |ns: &[f64]| median(ns).map(|ns| ns / 1e3);
        let mut measured = self.measured;
        let figures = [
            ("injected_us", us(&self.injected_ns)),
            ("attributed_us", us(&self.attributed_ns)),
            ("error_us", median(&errors)),
            ("injected_bytes", self.bytes.map(|b| b.0)),
            ("attributed_bytes", self.bytes.map(|b| b.1)),
        ];
        measured.extra.extend(figures.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?))));
        crate::pairs::row(case, "ledger", &[measured])
    }
}

/// Runs `built` at ledger level `full`; `cpus` are the CPUs to which its threads are pinned in path
/// order, empty for none. Returns the report, and an outcome that pairs two costs for each row of
/// hop `hop`, in nanoseconds: `injected`, computed from the frame's sequence number and all rows,
/// and `attributed`, the row's figure. Leaves out frames for which `injected` returns `None`.
fn collect(
    built: Pipeline,
    cpus: Vec<usize>,
    hop: u16,
    injected: impl Fn(u64, &[Row]) -> Option<f64>,
    attributed: impl Fn(&Row) -> u64,
) -> Result<(Outcome, Report), LabError> {
    let mut report = complete(built.run(&Options { level: Level::Full, cpus, ..Options::default() })?)?;
    let mut outcome = Outcome {
        injected_ns: Vec::new(),
        attributed_ns: Vec::new(),
        measured: Measured::from_report(&mut report),
        bytes: None,
    };
    for row in report.rows.iter().filter(|r| r.hop == hop) {
        if let Some(cost) = injected(row.seq, &report.rows) {
            outcome.injected_ns.push(cost);
            outcome.attributed_ns.push(attributed(row) as f64);
        }
    }
    Ok((outcome, report))
}

/// Creates a path with only a source, which emits `frames` frames of 64 bytes, `rate` per second.
fn source(rate: f64, frames: u64) -> Result<Pipeline, LabError> {
    let options = TestOptions { bytes: Some(64), rate, frames, pool: 64, ..TestOptions::default() };
    let source =
        Test::new(&options).map_err(|error| framepath::RunError::Stage { hop: "test".to_owned(), error })?;
    Ok(Pipeline::from_source(source).named("test"))
}

/// Injects CPU time into the sink, which measures it by the thread's CPU clock. The ledger must show
/// it as compute.
fn compute(frames: u64) -> Result<Outcome, LabError> {
    let (probe, log) = InjectStage::new(InjectedCost::Burn(BURN_NS));
    let built = source(250.0, frames)?.sink(probe).named("burn");
    let (outcome, _) = collect(built, Vec::new(), 1, |seq, _| log.cpu_ns(seq), |r| r.compute_ns)?;
    Ok(outcome)
}

/// Injects a copy of [`COPY_BYTES`] per frame into the sink, which measures it by the thread's CPU
/// clock, outside the ledger. The ledger must show its time and its bytes.
fn copy(frames: u64) -> Result<Outcome, LabError> {
    let (probe, log) = InjectStage::new(InjectedCost::copy(COPY_BYTES));
    let built = source(250.0, frames)?.sink(probe).named("copy");
    let (mut outcome, report) = collect(built, Vec::new(), 1, |seq, _| log.cpu_ns(seq), |r| r.copy_ns)?;
    let counted: u64 = report.rows.iter().filter(|r| r.hop == 1).map(|r| r.copied_bytes).sum();
    outcome.bytes = Some((COPY_BYTES as f64, counted as f64 / frames as f64));
    Ok(outcome)
}

/// Injects queueing, with at most 60 frames: the source is faster than the consumer, so each frame
/// waits from its hand-off until the consumer has finished the previous frame. Frames that did not wait,
/// such as the first, are left out.
fn queue(frames: u64) -> Result<Outcome, LabError> {
    let frames = frames.min(60);
    let (probe, log) = InjectStage::new(InjectedCost::Burn(BURN_NS));
    let built = source(800.0, frames)?.queue(64, Leaky::No).named("queue").sink(probe).named("burn");
    let done_before = |seq: u64, rows: &[Row]| {
        let handed_over = rows.iter().find(|r| r.seq == seq && r.hop == 0)?.leave_ns;
        let wait = log.end_ns(seq.checked_sub(1)?)?.checked_sub(handed_over)?;
        Some(wait as f64)
    };
    let (outcome, _) = collect(built, Vec::new(), 1, done_before, |r| r.queue_ns)?;
    Ok(outcome)
}

/// Injects a late wakeup: the consumer sleeps, and just before the hand-off a real-time thread
/// takes its CPU. The consumer can run only when that thread stops.
///
/// # Errors
/// [`LabError::Missing`] without two CPUs or the right to real-time priority.
fn wakeup(frames: u64) -> Result<Outcome, LabError> {
    let cpus = two_cpus()?;
    let preempter = Arc::new(Preempter::start(cpus[1], BURN_NS)?);
    let (trigger, log) = PreemptStage::new(preempter.clone());
    let built = source(100.0, frames)?
        .stage(trigger)
        .named("take-cpu")
        .queue(4, Leaky::No)
        .named("queue")
        .sink(probe::DropSink)
        .named("null");
    let cost = |seq, _: &[Row]| log.until_released_ns(seq);
    let (outcome, _) = collect(built, cpus, 2, cost, |r| r.wakeup_ns)?;
    Ok(outcome)
}

/// Injects preemption: a real-time thread takes the CPU while the sink burns CPU time on it.
///
/// # Errors
/// [`LabError::Missing`] without two CPUs or the right to real-time priority.
fn preempted(frames: u64) -> Result<Outcome, LabError> {
    let cpus = two_cpus()?;
    let preempter = Arc::new(Preempter::start(cpus[1], BURN_NS)?);
    let (probe, log) = InjectStage::new(InjectedCost::BurnUnder(BURN_NS, preempter));
    let built = source(100.0, frames)?.queue(4, Leaky::No).named("queue").sink(probe).named("burn");
    let (outcome, _) = collect(built, cpus, 2, |seq, _| log.taken_ns(seq), |r| r.preempted_ns)?;
    Ok(outcome)
}

/// Injects a sleep into the sink, which measures its wall time. The ledger must show it as blocked.
fn blocked(frames: u64) -> Result<Outcome, LabError> {
    let (probe, log) = InjectStage::new(InjectedCost::Sleep(BURN_NS));
    let built = source(250.0, frames)?.sink(probe).named("block");
    let (outcome, _) = collect(built, Vec::new(), 1, |seq, _| log.wall_ns(seq), |r| r.blocked_ns)?;
    Ok(outcome)
}

fn two_cpus() -> Result<Vec<usize>, LabError> {
    let cpus = affinity::allowed_cpus().map_err(LabError::io("sched_getaffinity"))?;
    match cpus.as_slice() {
        [first, second, ..] => Ok(vec![*first, *second]),
        _ => Err(LabError::Missing("needs two CPUs, but this process may run on only one".to_owned())),
    }
}
