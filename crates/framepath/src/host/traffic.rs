// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of messages and cells between a caller and its workers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of messages and cells, for any thread to read. The counts order no other memory (Relaxed). Of the
/// messages by which a worker opens a stream, only `Open` and `Opened` count.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Number of messages that the caller sent to the worker's socket; 0 for a demuxer's worker.
    pub messages_out: AtomicU64,
    /// Number of messages that the caller received from the worker's socket; 0 for a demuxer's worker.
    pub messages_in: AtomicU64,
    /// Number of cells that the caller wrote to the ring to the worker; 0 for a demuxer's worker.
    pub cells_out: AtomicU64,
    /// Number of cells that the caller took from the ring from the worker.
    pub cells_in: AtomicU64,
}

impl Traffic {
    pub(super) fn message_out(&self) {
        self.messages_out.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn message_in(&self) {
        self.messages_in.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the counts of `other`.
    pub(super) fn add(&self, other: &Traffic) {
        for (to, from) in [
            (&self.messages_out, &other.messages_out),
            (&self.messages_in, &other.messages_in),
            (&self.cells_out, &other.cells_out),
            (&self.cells_in, &other.cells_in),
        ] {
            to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
