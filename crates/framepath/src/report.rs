// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run leaves behind.

use framepath_model::ledger::{Digest, Row, digest};
use framepath_os::meter::Level;

use crate::error::RunError;

/// One hop of the path that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopInfo {
    /// As it stands in the path: `decode format=nv12`.
    pub text: String,
    /// Whether it is a link.
    pub link: bool,
}

/// A finished run.
#[derive(Debug)]
pub struct Report {
    /// Frames (or packets) that reached the sink.
    pub frames: u64,
    /// Frames that full queues dropped.
    pub dropped: u64,
    /// Bytes the CPU copied, all frames together.
    pub copied_bytes: u64,
    /// From start to end, nanoseconds.
    pub wall_ns: u64,
    /// CPU time of the whole process meanwhile, nanoseconds.
    pub cpu_ns: u64,
    /// The level the ledger was kept at.
    pub level: Level,
    /// The hops, in path order.
    pub hops: Vec<HopInfo>,
    /// Names of the threads, as [`Row::thread`] counts them.
    pub threads: Vec<String>,
    /// The ledger: all rows that were kept, oldest first within a thread.
    pub rows: Vec<Row>,
    /// Rows that were overwritten because the ledger's memory was full.
    pub overwritten: u64,
    pub(crate) torn_frames_dropped: bool,
    /// Whether Ctrl-C ended the run early.
    pub interrupted: bool,
    /// Why the run stopped early, if it did.
    pub error: Option<RunError>,
}

impl Report {
    /// The path that ran, as one would type it.
    pub fn path(&self) -> String {
        let hops: Vec<&str> = self.hops.iter().map(|h| h.text.as_str()).collect();
        hops.join(" ! ")
    }

    /// The ledger in a few figures. Rows of frames whose other rows were
    /// overwritten are left out.
    pub fn digest(&mut self) -> Digest {
        self.drop_torn_frames();
        digest(&mut self.rows, self.hops.len())
    }

    /// Removes frames that lost a row, once: those no younger than the oldest
    /// frame that a full thread has kept.
    fn drop_torn_frames(&mut self) {
        if self.overwritten == 0 || self.torn_frames_dropped {
            return;
        }
        self.torn_frames_dropped = true;
        let first_kept = |thread| {
            let mine = self.rows.iter().filter(move |r| usize::from(r.thread) == thread);
            mine.map(|r| r.seq).min()
        };
        let whole_from = (0..self.threads.len()).filter_map(first_kept).max().unwrap_or(0);
        self.rows.retain(|r| r.seq > whole_from);
    }
}
