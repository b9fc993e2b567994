// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases of `inject` with known costs inside a worker, or between caller and worker. The costs must
//! appear as the same causes as in the caller's own process.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use framepath::host::WorkerStats;
use framepath::{Pipeline, path};
use framepath_model::ledger::Row;
use framepath_os::process::affinity;

use super::preempter::Preempter;
use super::probe::{DropSink, InjectStage, InjectedCost, PreemptStage};
use super::{BURN_NS, COPY_BYTES, Outcome, collect, source, two_cpus};
use crate::error::LabError;

/// Index of the worker's hop, directly behind the source. [`wakeup`] has one more stage before it.
const HOP: u16 = 1;

/// Appends `stage` to `built`, hosted in a worker.
fn hosted(built: Pipeline, stage: &str) -> Result<Pipeline, LabError> {
    let hop = path::parse_stage(&format!("{stage} host=process"))?;
    Ok(built.add_hop(&hop, 1)?)
}

fn burn() -> String {
    format!("burn time={}us", BURN_NS / 1000)
}

/// Injects CPU time into a stage in a worker. The stage burns the requested time by its thread's
/// CPU clock, so the request counts as the cost.
pub(super) fn compute(frames: u64) -> Result<Outcome, LabError> {
    let built = hosted(source(250.0, frames)?, &burn())?.sink(DropSink).named("null");
    Ok(collect(built, Vec::new(), HOP, |_, _| Some(BURN_NS as f64), |row| row.compute_ns)?.0)
}

/// Injects a sleep into a stage in a worker. The request counts as the cost, although the timer's
/// slack makes the sleep a little longer.
pub(super) fn blocked(frames: u64) -> Result<Outcome, LabError> {
    let stage = format!("block time={}us", BURN_NS / 1000);
    let built = hosted(source(250.0, frames)?, &stage)?.sink(DropSink).named("null");
    Ok(collect(built, Vec::new(), HOP, |_, _| Some(BURN_NS as f64), |row| row.blocked_ns)?.0)
}

/// Injects a copy of [`COPY_BYTES`] per frame in a worker. Compares only its bytes, because its
/// time is not known to this process.
pub(super) fn copy(frames: u64) -> Result<Outcome, LabError> {
    let built = hosted(source(250.0, frames)?, &format!("copy bytes={COPY_BYTES}"))?;
    let built = built.sink(DropSink).named("null");
    let (mut outcome, report) = collect(built, Vec::new(), HOP, |_, _| None, |row| row.copy_ns)?;
    let counted: u64 = report.rows.iter().filter(|row| row.hop == HOP).map(|row| row.copied_bytes).sum();
    outcome.bytes = Some((COPY_BYTES as f64, counted as f64 / frames as f64));
    Ok(outcome)
}

/// Injects queueing, with at most 60 frames: the source is faster than the worker, so each frame
/// waits from its hand-off until the worker has finished the previous frame. The sink's timestamp
/// for the previous frame records that moment.
pub(super) fn queue(frames: u64) -> Result<Outcome, LabError> {
    let frames = frames.min(60);
    let (probe, log) = InjectStage::new(InjectedCost::Burn(0));
    let built = hosted(source(800.0, frames)?, &burn())?.sink(probe).named("probe");
    let done_before = |seq: u64, rows: &[Row]| {
        let handed_over = rows.iter().find(|row| row.seq == seq && row.hop == 0)?.leave_ns;
        Some(log.end_ns(seq.checked_sub(1)?)?.checked_sub(handed_over)? as f64)
    };
    Ok(collect(built, Vec::new(), HOP, done_before, |row| row.queue_ns)?.0)
}

/// Injects a late wakeup: the worker sleeps, and just before the hand-off a real-time thread
/// takes its CPU. The worker can run only when that thread stops.
///
/// # Errors
/// [`LabError::Missing`] without two CPUs or the right to real-time priority.
pub(super) fn wakeup(frames: u64) -> Result<Outcome, LabError> {
    let cpus = two_cpus()?;
    let preempter = Arc::new(Preempter::start(cpus[1], BURN_NS)?);
    let (mut trigger, log) = PreemptStage::new(preempter);
    let built = source(100.0, frames)?;
    // The worker is pinned just before the first frame, because the worker exists only after the
    // start of the path.
    let worker = Arc::new(OnceLock::<Arc<WorkerStats>>::new());
    let (known, cpu) = (worker.clone(), cpus[1]);
    trigger.before_first(move || {
        let pid = known.get().map_or(0, |stats| stats.pid.load(Ordering::Relaxed));
        affinity::pin_process_to(pid, cpu)
    });
    let built = hosted(built.stage(trigger).named("take-cpu"), "burn time=0ns")?;
    let built = built.sink(DropSink).named("null");
    // The cell is set only once.
    let _ = built.workers().next().map(|stats| worker.set(stats));
    let cost = |seq, _: &[Row]| log.until_released_ns(seq);
    // The caller's threads stay off the worker's CPU.
    Ok(collect(built, vec![cpus[0], cpus[0]], HOP + 1, cost, |row| row.wakeup_ns)?.0)
}
