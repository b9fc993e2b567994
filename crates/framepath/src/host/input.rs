// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a worker is given.

use framepath_codec::Packet;
use framepath_model::stream::FrameMeta;
use framepath_os::pool::Frame;

use crate::recorder::Stretch;

/// A packet or frame for a worker.
pub(crate) enum WorkerInput {
    Packet(Packet),
    Frame(Frame),
}

/// An input on its way, with its entry to the ledger.
pub(super) struct Sent {
    /// `None` once a frame's output has come: it goes back to its pool.
    pub(super) input: Option<WorkerInput>,
    pub(super) meta: FrameMeta,
    /// Frames that came of it.
    pub(super) outputs: u32,
    /// The time until it was submitted.
    pub(super) stretch: Stretch,
}
