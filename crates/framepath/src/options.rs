// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a run.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use framepath_os::measure::meter::Level;
use framepath_os::process::stop::Stop;

use crate::live_ledger::LiveLedger;
use crate::out::ThreadContext;
use crate::requests::{Mailbox, Requests};

/// Number of frames (or packets) that reached the sink so far; with several sinks, the largest of their
/// numbers. Any thread may read it during the run.
pub type FrameCount = Arc<AtomicU64>;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Level of detail that the ledger records.
    pub level: Level,
    /// Number of ledger rows kept per thread. Further rows overwrite the oldest. 0 acts as 1. Unused at level
    /// `off`.
    pub rows: usize,
    /// CPU numbers to pin the threads to, in path order. The first is for the source's thread: the thread that
    /// calls [`run`](crate::run), which stays pinned after the run, or the thread that
    /// [`frames_with`](crate::Pipeline::frames_with) starts. Further threads are not pinned, and a thread
    /// whose CPU does not exist or is not allowed runs unpinned.
    pub cpus: Vec<usize>,
    /// Counter of the frames (or packets) that reached a sink: [`FrameCount`]. The run sets it to 0 at its
    /// start. Keep a clone to read it.
    pub progress: FrameCount,
    /// Number of frames (or packets) after which a sink takes no more; the run ends without an error when all
    /// sinks have ended. `None`: no limit; 0 acts as 1.
    pub frames: Option<u64>,
    /// Handle that stops this run from another thread. Keep a clone to call it.
    pub stop: Stop,
    /// Handle by which another thread reads the ledger during the run. `None`: nobody reads it.
    pub live: Option<LiveLedger>,
}

impl Options {
    /// Makes the context of one thread of a run: `mailbox` is the thread's, `requests` the run's handle.
    pub(crate) fn delivery(&self, requests: Requests, mailbox: Arc<Mailbox>) -> ThreadContext {
        ThreadContext::new(self.progress.clone(), self.frames.unwrap_or(u64::MAX), requests, Some(mailbox))
    }
}

impl Default for Options {
    /// Returns the default: ledger at level `full`, 65,536 rows (12 MB) per thread, no pinning, no limit.
    fn default() -> Options {
        Options {
            level: Level::Full,
            rows: 1 << 16,
            cpus: Vec::new(),
            progress: FrameCount::default(),
            frames: None,
            stop: Stop::new(),
            live: None,
        }
    }
}
