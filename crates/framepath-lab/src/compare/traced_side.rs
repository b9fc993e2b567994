// SPDX-License-Identifier: MIT OR Apache-2.0
//! Run of a side of `framepath compare --trace` under the tracer.

use std::process::{Command, Stdio};

use framepath_model::ledger::{CAUSES, Cause, Causes};
use framepath_os::process::signal;
use framepath_trace::{Recording, TraceError, TraceReport};

use crate::error::LabError;
use crate::measure::Measured;
use crate::process::{Program, ProgramOutput};
use crate::traced;

/// Times of the stages in one run: name, and mean time per frame by cause, nanoseconds.
pub(super) type StageTimes = Vec<(String, Causes)>;

/// One run of a side under the tracer.
pub(super) struct TracedSideRun {
    /// Figures of the program, and of its longest stream.
    pub(super) measured: Measured,
    /// Stages of the longest stream; empty without frames.
    pub(super) stages: StageTimes,
    /// Notes on the figures, one sentence each.
    pub(super) notes: Vec<String>,
}

/// Runs `program` to its end at the highest level that this process has the rights for. Its output is discarded.
///
/// # Errors
/// As for [`Program::run`], and [`LabError::Unknown`] if the kernel denies the observation.
pub(super) fn trace(program: &Program) -> Result<TracedSideRun, LabError> {
    let mut stderr = ProgramOutput::new()?;
    let mut command = Command::new(&program.program);
    command.args(&program.args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr.to_stdio()?);
    let failed = |error: TraceError| match error {
        TraceError::Start { error, .. } => program.not_started(error),
        error => LabError::Unknown(error.to_string()),
    };
    let report = Recording::of_command(command, None).and_then(|recording| recording.run(None));
    let report = report.map_err(failed)?;
    let (exit_code, signal) = (report.usage.exit_code, report.usage.signal);
    if signal::interrupted() {
        return Err(LabError::Interrupted);
    }
    if exit_code != Some(0) {
        return Err(program.failed(exit_code, signal, &stderr.text()));
    }
    Ok(figures(&report))
}

fn figures(report: &TraceReport) -> TracedSideRun {
    let mut notes = report.notes();
    notes.insert(0, format!("level {}", report.level.name()));
    if report.streams.len() > 1 {
        notes.push(format!("{} streams; the stages are those of the longest one", report.streams.len()));
    }
    let Some(stream) = report.streams.first() else {
        let cpu_ns = report.usage.cpu_ns.unwrap_or_else(|| report.running_ns());
        let measured = Measured { wall_ns: report.wall_ns, cpu_ns, ..Measured::default() };
        return TracedSideRun { measured, stages: Vec::new(), notes };
    };
    let measured = traced::measured(report, stream);
    let hops = stream.digest().hops;
    let stages = stream.stages.iter().cloned().zip(hops.into_iter().map(|hop| hop.causes)).collect();
    TracedSideRun { measured, stages, notes }
}

/// Returns the causes that are known in one of `stages`, in the order of every table.
pub(super) fn known_causes<'a>(stages: impl Iterator<Item = &'a Causes> + Clone) -> Vec<Cause> {
    CAUSES.into_iter().filter(|cause| stages.clone().any(|causes| causes[*cause].is_some())).collect()
}
