// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a run.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use framepath_os::measure::meter::Level;
use framepath_os::process::stop::Stop;

use crate::out::ThreadContext;
use crate::requests::{Mailbox, Requests};

/// Frames that reached the sink so far; any thread may read it during the run.
pub type FrameCount = Arc<AtomicU64>;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much the ledger records.
    pub level: Level,
    /// Ledger rows kept per thread; beyond, the oldest are overwritten.
    pub rows: usize,
    /// CPU for each thread, in path order; further threads are not pinned.
    pub cpus: Vec<usize>,
    /// Counts delivered frames while the run goes on.
    pub progress: FrameCount,
    /// The run ends after this many frames at the sink, without an error; `None` is
    /// no limit.
    pub frames: Option<u64>,
    /// Stops this run from another thread. Keep a clone.
    pub stop: Stop,
}

impl Options {
    /// Makes the delivery of a thread with `mailbox` in a run that gets `requests`.
    pub(crate) fn delivery(&self, requests: Requests, mailbox: Arc<Mailbox>) -> ThreadContext {
        ThreadContext::new(self.progress.clone(), self.frames.unwrap_or(u64::MAX), requests, Some(mailbox))
    }
}

impl Default for Options {
    /// Returns the default: ledger at `full`, 65,536 rows (9 MB) a thread.
    fn default() -> Options {
        Options {
            level: Level::Full,
            rows: 1 << 16,
            cpus: Vec::new(),
            progress: FrameCount::default(),
            frames: None,
            stop: Stop::new(),
        }
    }
}
