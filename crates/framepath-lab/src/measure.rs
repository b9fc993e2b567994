// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contenders, and the figures of one run of a contender.

use std::collections::BTreeMap;

use framepath::{Report, export};
use framepath_model::summary::{CausesUs, HopSummary, LatencyUs};

use crate::error::LabError;

/// Figures of one run of a contender. An unknown figure is `None`, except where its field says otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Number of frames of the run, of pushes in lab `queue`, 1 in lab `loopback`; 0 if not
    /// known.
    pub frames: u64,
    /// Wall time of the measured part of the run, nanoseconds. For a program that is its whole life, for a
    /// path its run. Labs `queue`, `handoff` and `loopback` and the cases `crossing-*` of lab `rpc` leave out
    /// the start-up; lab `players` measures only a window of time.
    pub wall_ns: u64,
    /// CPU time in the measured part of the run, nanoseconds: of the contender and of the processes that it
    /// started and waited for; in lab `decode` also of the service that the contender used; in lab `players`
    /// of the player's processes that exist at the end of the window.
    pub cpu_ns: u64,
    /// Largest resident set of one process, in lab `players` the sum over the player's processes, KiB;
    /// `None` if not known.
    pub peak_memory_kib: Option<u64>,
    /// Percentiles of the frames' latency, microseconds.
    pub latency: Option<LatencyUs>,
    /// Pixel and packet bytes the CPU copied per frame.
    pub copied_bytes_per_frame: Option<f64>,
    /// Context switches per frame, voluntary and involuntary.
    pub switches_per_frame: Option<f64>,
    /// Latency of the median frame by cause, microseconds.
    pub causes: Option<CausesUs>,
    /// Figures of each hop of the path; empty if not known.
    pub hops: Vec<HopSummary>,
    /// CPU time for each frame that no hop accounts for, microseconds; `None` if not known.
    pub other_cpu_us: Option<f64>,
    /// Figures that only the contender's experiment has, by the metric's name.
    pub extra: BTreeMap<String, f64>,
}

impl Measured {
    /// Returns a figure of one run, for ratios: `wall_ms`, `cpu_ms`, `cpu_us_per_push`,
    /// `cpu_us_per_frame`, `wall_us_per_push`, `latency_p50_us`, `latency_p99_us`, or a key of
    /// `extra`. `None` if the figure is not known; the figures per push or frame are known only if the run
    /// had at least one push or frame.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let per_frame = |ns: u64| (self.frames > 0).then(|| ns as f64 / 1e3 / self.frames as f64);
        match name {
            "wall_ms" => Some(self.wall_ns as f64 / 1e6),
            "cpu_ms" => Some(self.cpu_ns as f64 / 1e6),
            "cpu_us_per_push" | "cpu_us_per_frame" => per_frame(self.cpu_ns),
            "wall_us_per_push" => per_frame(self.wall_ns),
            "latency_p50_us" => self.latency.map(|l| l.p50),
            "latency_p99_us" => self.latency.map(|l| l.p99),
            _ => self.extra.get(name).copied(),
        }
    }

    /// Converts the report of a path that ran in this process. Peak memory stays unknown; at ledger level `off`
    /// also latency, causes, hops, switches and `other_cpu_us`. At the other levels this function sorts the
    /// report's rows, and removes those of frames with overwritten rows.
    pub fn from_report(report: &mut Report) -> Measured {
        let row = export::summary::row(report, "");
        Measured {
            frames: row.frames,
            wall_ns: report.wall_ns,
            cpu_ns: report.cpu_ns,
            copied_bytes_per_frame: row.copied_bytes_per_frame,
            latency: row.latency_us,
            switches_per_frame: row.switches_per_frame,
            causes: row.causes_us,
            hops: row.hops,
            other_cpu_us: row.other_cpu_us,
            ..Measured::default()
        }
    }
}

/// Returns the report if the run is complete, because figures of an incomplete run are useless.
///
/// # Errors
/// The path failed, lost packets or frames ([`LabError::Lost`]), or was interrupted
/// ([`LabError::Interrupted`]).
pub fn complete(mut report: Report) -> Result<Report, LabError> {
    if let Some(error) = report.error.take() {
        return Err(error.into());
    }
    if report.interrupted {
        return Err(LabError::Interrupted);
    }
    let losses: Vec<String> = report.losses().iter().map(ToString::to_string).collect();
    if losses.is_empty() { Ok(report) } else { Err(LabError::Lost(losses.join("; "))) }
}

/// Participant of a comparison: a path, a program or a function, with its name.
pub struct Contender<'a> {
    /// Stable name, as in summaries and budgets: renaming a contender breaks both.
    pub name: String,
    /// Function that runs the contender once, from start to end, and returns the figures; its error
    /// [`LabError::Missing`] skips the contender.
    pub run: Box<dyn FnMut() -> Result<Measured, LabError> + 'a>,
}

impl<'a> Contender<'a> {
    /// Creates a contender with the name `name`; `run` runs it once.
    pub fn new(name: &str, run: impl FnMut() -> Result<Measured, LabError> + 'a) -> Contender<'a> {
        Contender { name: name.to_owned(), run: Box::new(run) }
    }
}
