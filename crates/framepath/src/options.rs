// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a run.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use framepath_os::measure::meter::Level;
use framepath_os::process::stop::Stop;

use crate::out::ThreadContext;
use crate::requests::{Mailbox, Requests};

/// Number of frames that reached the sink so far. Any thread may read this number during the run.
pub type FrameCount = Arc<AtomicU64>;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much the ledger records.
    pub level: Level,
    /// Number of ledger rows kept per thread. Further rows overwrite the oldest.
    pub rows: usize,
    /// CPU numbers to pin the threads to, in path order; further threads are not pinned.
    pub cpus: Vec<usize>,
    /// Number of delivered frames during the run.
    pub progress: FrameCount,
    /// Number of frames at the sink after which the run ends without an error; `None`: no limit.
    pub frames: Option<u64>,
    /// Handle that stops this run from another thread. Keep a clone.
    pub stop: Stop,
}

impl Options {
    /// Makes the context of the thread with `mailbox`, in the run of `requests`.
    pub(crate) fn delivery(&self, requests: Requests, mailbox: Arc<Mailbox>) -> ThreadContext {
        ThreadContext::new(self.progress.clone(), self.frames.unwrap_or(u64::MAX), requests, Some(mailbox))
    }
}

impl Default for Options {
    /// Returns the default: ledger at level `full`, 65,536 rows (9 MB) per thread.
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
