// SPDX-License-Identifier: MIT OR Apache-2.0
//! A path whose caller queries another process for constant information for every frame:
//! contender `process-uncached` of lab `rpc`.
//!
//! ```text
//! worker ──frame──▶ Ask ──frame──▶ null
//!                   │ ▲
//!          question ▼ │ answer: one message each, over a socket
//!                   cat
//! ```
//!
//! The other process is `cat`, which echoes the query. Like a real process that knows the
//! constant, `cat` sleeps between two queries. The CPU time of `cat` counts.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use framepath::{HopFailure, Item, Level, Options, Out, Pipeline, Report, Stage, StageError, StreamInfo};
use framepath_model::wire::MESSAGE_BYTES;

use crate::error::LabError;
use crate::measure::complete;

/// Result of a run that lost no frame and sent one query per frame to another process.
#[derive(Debug)]
pub struct AskedRun {
    /// Report of the path's run, at ledger level `off`.
    pub report: Report,
    /// Number of queries that the other process, `cat`, answered: one per frame.
    pub questions: u64,
}

/// Runs `path`, a path text without a sink, with a sink that discards the frames. Sends one query to `cat`
/// for each frame and waits for the answer before the frame continues.
///
/// # Errors
/// The path is invalid, failed, lost packets or frames, or was interrupted, or `cat` could not start or
/// did not answer.
pub fn run(path: &str) -> Result<AskedRun, LabError> {
    let questions = Arc::<AtomicU64>::default();
    let ask = AskStage::start(questions.clone()).map_err(LabError::io("starting `cat`"))?;
    let pipeline = Pipeline::parse(path)?.stage(ask).append("null")?;
    let report = complete(pipeline.run(&Options { level: Level::Off, ..Options::default() })?)?;
    Ok(AskedRun { report, questions: questions.load(Ordering::Relaxed) })
}

/// Stage that sends a query for each frame, and passes the frame on after the answer.
struct AskStage {
    /// Socket to the other process, `cat`; `None` only while this stage is dropped.
    socket: Option<UnixStream>,
    answering: Child,
    questions: Arc<AtomicU64>,
}

impl AskStage {
    fn start(questions: Arc<AtomicU64>) -> std::io::Result<AskStage> {
        let (ours, theirs) = UnixStream::pair()?;
        let output = Stdio::from(OwnedFd::from(theirs.try_clone()?));
        let answering = Command::new("cat").stdin(OwnedFd::from(theirs)).stdout(output).spawn()?;
        Ok(AskStage { socket: Some(ours), answering, questions })
    }

    fn ask(&mut self) -> std::io::Result<()> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        let mut message = [0x5a; MESSAGE_BYTES];
        socket.write_all(&message)?;
        socket.read_exact(&mut message)?;
        self.questions.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Stage for AskStage {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        self.ask().map_err(|error| out.fail(StageError::Other(Box::new(error))))?;
        out.push(item)
    }
}

impl Drop for AskStage {
    fn drop(&mut self) {
        // `cat` exits when its socket closes. The wait charges the CPU time of `cat` to this process.
        self.socket = None;
        let _ = self.answering.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_costs_one_query() {
        let asked = run("test frames=17 size=64x48").unwrap();
        assert_eq!((asked.report.frames, asked.questions), (17, 17));
    }
}
