// SPDX-License-Identifier: MIT OR Apache-2.0
//! One stream of `faults`, run in a thread of this process with its decoder in a worker.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use framepath::host::{Recovery, WorkerStats};
use framepath::{FrameCount, Level, Options, Pipeline, Report};

use super::check::{Expected, SinkFrame};
use crate::error::LabError;

/// Index of the sink's hop in the path: behind the source (0) and the decoder (1).
const SINK: u16 = 2;

/// A clip, its file name quoted for a path, and the frames that one undisturbed pass over it gives.
pub(super) struct FaultClip {
    pub(super) file: String,
    pub(super) expected: Expected,
}

/// Birth (CLOCK_MONOTONIC) and latency of one frame at the sink, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) birth_ns: u64,
    pub(super) latency_ns: u64,
}

/// Delivered frames of a finished stream, its recoveries, and the counts of its workers.
pub(super) struct FinishedStream {
    pub(super) seen: Vec<SinkFrame>,
    pub(super) timed: Vec<Timed>,
    pub(super) recoveries: Vec<Recovery>,
    pub(super) deaths: u64,
    pub(super) replayed: u64,
    pub(super) skipped: u64,
}

/// A running stream: its counter of delivered frames, the figures of its workers (`None` if its decoder is
/// not in a worker), and its thread.
pub(super) struct Running {
    pub(super) progress: FrameCount,
    pub(super) stats: Option<Arc<WorkerStats>>,
    thread: JoinHandle<Result<FinishedStream, LabError>>,
}

impl FaultClip {
    /// Decodes two passes of the clip undisturbed, without a worker, as the reference.
    ///
    /// # Errors
    /// The clip does not decode, or the passes differ.
    pub(super) fn new(file: &Path) -> Result<FaultClip, LabError> {
        let file = framepath_model::path::quote(&file.to_string_lossy());
        let ended = start(&format!("file {file} loop=2 ! decode"), 1024)?.wait()?;
        let expected = Expected::of_two_passes(&ended.seen).ok_or_else(|| {
            LabError::Unknown(format!(
                "two undisturbed passes over {file} differ; the clip cannot be a reference"
            ))
        })?;
        Ok(FaultClip { file, expected })
    }

    /// Starts `passes` passes over the clip, `rate` packets per second (0: full speed), decoded in a
    /// worker with the additional `options` of `decode`.
    ///
    /// # Errors
    /// The path is invalid or its thread cannot be started; later errors come from
    /// [`Running::wait`].
    pub(super) fn start(&self, passes: u64, rate: u32, options: &str) -> Result<Running, LabError> {
        let text = format!("file {} loop={passes} rate={rate} ! decode host=process {options}", self.file);
        start(&text, passes * self.expected.frames())
    }
}

/// Starts the path `text`, completed by an MD5 sink, in a new thread. The ledger has room for the
/// rows of `frames` frames.
fn start(text: &str, frames: u64) -> Result<Running, LabError> {
    let io = |error| LabError::Io {
        what: "creating or reading the file in memory for the hashes".to_owned(),
        error,
    };
    let mut hashes = framepath_os::memory::memory_file("faults-hashes").map_err(io)?;
    let path = framepath::path::parse(&format!("{text} ! framemd5 /proc/self/fd/{}", hashes.as_raw_fd()))?;
    let built = Pipeline::from_path(&path)?;
    let stats = built.workers().next();
    // A thread writes at most two rows for a frame: the decoder's and the sink's.
    let options = Options { level: Level::Times, rows: 2 * frames as usize + 64, ..Options::default() };
    let progress = options.progress.clone();
    let of_thread = stats.clone();
    let run = move || -> Result<FinishedStream, LabError> {
        let mut report = built.run(&options)?;
        match report.error.take() {
            Some(error) => Err(error.into()),
            None => FinishedStream::of(&report, of_thread.as_deref(), &mut hashes).map_err(io),
        }
    };
    let thread = std::thread::Builder::new().name("faults-stream".to_owned()).spawn(run);
    let thread = thread.map_err(LabError::io("starting a stream's thread"))?;
    Ok(Running { progress, stats, thread })
}

impl Running {
    /// Returns the number of frames that have reached the sink so far.
    pub(super) fn frames(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the stream.
    ///
    /// # Errors
    /// The path failed, its hashes cannot be read, or its thread panicked.
    pub(super) fn wait(self) -> Result<FinishedStream, LabError> {
        let panicked = |_| Err(LabError::Unknown("a stream's thread panicked, which is a bug".to_owned()));
        self.thread.join().unwrap_or_else(panicked)
    }
}

impl FinishedStream {
    fn of(
        report: &Report,
        stats: Option<&WorkerStats>,
        hashes: &mut File,
    ) -> std::io::Result<FinishedStream> {
        hashes.rewind()?;
        let mut text = String::new();
        hashes.read_to_string(&mut text)?;
        let rows: Vec<_> = report.rows.iter().filter(|row| row.hop == SINK).collect();
        let hash = |line: &str| line.rsplit(',').next().unwrap_or_default().trim().to_owned();
        let lines = text.lines().filter(|line| !line.starts_with('#')).map(hash);
        let load = |of: fn(&WorkerStats) -> u64| stats.map_or(0, of);
        Ok(FinishedStream {
            seen: rows.iter().map(|row| row.seq).zip(lines).collect(),
            timed: rows
                .iter()
                .map(|row| Timed { birth_ns: row.birth_ns, latency_ns: row.leave_ns - row.birth_ns })
                .collect(),
            recoveries: stats.map(|stats| stats.recoveries.done()).unwrap_or_default(),
            deaths: load(|stats| stats.deaths.load(Ordering::Relaxed)),
            replayed: load(|stats| stats.replayed.load(Ordering::Relaxed)),
            skipped: load(|stats| stats.skipped.load(Ordering::Relaxed)),
        })
    }
}
