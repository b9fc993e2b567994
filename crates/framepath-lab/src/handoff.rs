// SPDX-License-Identifier: MIT OR Apache-2.0
//! Framepath's contender in lab `handoff`: a worker sends frames to this process, by the
//! convention of `peers/handoff/handoff.h`.
//!
//! ```text
//! this process              worker                       this process
//! Trigger ──64 bytes──▶ fill bytes=N host=process ──▶ Reader
//! ```
//!
//! A stage emits frames only in response to input frames. Therefore a small frame goes to the
//! worker first and wakes it. The CPU time of this step counts, although no other contender needs
//! the step. The worker takes the timestamp when the large frame is ready, so the latency covers
//! only the transfer from the worker to the reader.

mod reader;
pub(crate) mod run_figures;
mod trigger;

use std::sync::Arc;
use std::sync::mpsc::channel;

use framepath::{Level, Options, Pipeline, path};
use framepath_model::stats::percentile;
use framepath_os::process::running::Used;

use crate::error::LabError;
use crate::measure::complete;
use reader::{HeaderReader, ReceivedFrames};
use run_figures::{LatencyNs, RunFigures};
use trigger::{Clocks, Meeting, TriggerSource};

/// Number of frames of the separate run that counts copies.
const COUNTED_FRAMES: u64 = 32;

/// Size, number and rate of the frames that framepath's contender transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handoff {
    /// Bytes of a frame, at least 16.
    pub bytes: u64,
    /// Number of measured frames, at least 1.
    pub frames: u64,
    /// Frames per second; 0 is full speed.
    pub rate: u64,
}

impl Handoff {
    /// Transfers the frames from a worker to this process, and returns the figures as one line of
    /// JSON, with the keys of `peers/README.md`. A second, short run counts the copies.
    ///
    /// # Errors
    /// The path failed or lost frames, the worker died, or SIGINT or SIGTERM interrupted the run.
    pub fn line(&self) -> Result<String, LabError> {
        let (seen, clocks) = self.measure()?;
        let copied_bytes = self.copied_per_frame()? * self.frames;
        let figures = self.run_figures(seen, &clocks, copied_bytes);
        serde_json::to_string(&figures)
            .map_err(|error| LabError::io("writing the line of JSON")(error.into()))
    }

    fn measure(&self) -> Result<(ReceivedFrames, Clocks), LabError> {
        let meeting = Arc::new(Meeting::default());
        let (done, is_done) = channel();
        let (clocks, read_clocks) = channel();
        let trigger = TriggerSource::new(self, meeting.clone(), is_done, clocks)?;
        let worker = trigger.worker();
        let built =
            Pipeline::from_source(trigger).named("trigger").add_hop(&path::parse_stage(&self.stage())?, 1)?;
        let stats = built.workers().next().expect("a hosted stage has a worker");
        // This is the only write of the cell.
        let _ = worker.set(stats);
        let built = built.sink(HeaderReader::new(self.frames, meeting, done)).named("reader");
        // No ledger, as in the other contenders.
        complete(built.run(&Options { level: Level::Off, ..Options::default() })?)?;
        read_clocks.recv().map_err(|_| LabError::Interrupted)
    }

    fn stage(&self) -> String {
        format!("fill bytes={} host=process", self.bytes)
    }

    /// Returns the bytes copied per frame in both processes, rounded up, as counted by the ledger of a
    /// separate run of [`COUNTED_FRAMES`] frames. The run is separate, because the ledger would slow down
    /// the measured run.
    fn copied_per_frame(&self) -> Result<u64, LabError> {
        let path = path::parse(&format!("test bytes=64 frames={COUNTED_FRAMES} ! {} ! null", self.stage()))?;
        let report =
            complete(framepath::run(&path, &Options { level: Level::Times, ..Options::default() })?)?;
        let copied: u64 = report.rows.iter().map(|row| row.copied_bytes).sum();
        Ok(copied.div_ceil(COUNTED_FRAMES))
    }

    fn run_figures(&self, seen: ReceivedFrames, clocks: &Clocks, copied_bytes: u64) -> RunFigures {
        let ReceivedFrames { received, duplicated, out_of_order, end_ns, used, mut latency_ns } = seen;
        // 0 is a frame that did not arrive.
        latency_ns.retain(|latency| *latency > 0);
        latency_ns.sort_unstable();
        let at = |percent| percentile(&latency_ns, percent).unwrap_or(0);
        let consumer: Used = used.since(clocks.own);
        RunFigures {
            contender: "process".to_owned(),
            software: format!("framepath {}", env!("CARGO_PKG_VERSION")),
            bytes: self.bytes,
            frames: self.frames,
            rate: self.rate,
            received,
            lost: self.frames - received,
            duplicated,
            out_of_order,
            wall_ns: end_ns - clocks.start_ns,
            producer_cpu_ns: clocks.worker.cpu_ns,
            consumer_cpu_ns: consumer.cpu_ns,
            producer_switches: clocks.worker.switches,
            consumer_switches: consumer.switches,
            copied_bytes,
            latency_ns: LatencyNs { p50: at(50.0), p95: at(95.0), p99: at(99.0), max: at(100.0) },
        }
    }
}
