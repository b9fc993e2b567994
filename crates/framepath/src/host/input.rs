// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inputs of a worker, and their record in the log between the two ends of a stream.

use std::sync::Arc;

use framepath_codec::Packet;
use framepath_model::parameter_sets::SetLog;
use framepath_model::stream::FrameMeta;
use framepath_model::wire::EncoderRequests;
use framepath_os::memory::pool::Frame;

use crate::recorder::Stretch;

/// A packet or frame for a worker.
pub enum WorkerInput {
    /// A packet.
    Packet(Packet),
    /// A frame, and the requests to the encoder that are in force from this frame on; none for another stage.
    Frame(Frame, EncoderRequests),
}

/// An entry of the log: an input and the state of its processing.
pub(super) struct LoggedInput {
    /// The input itself. `None` for a frame that the worker has completed, with or without output, and after
    /// [`LoggedInput::strip`].
    pub(super) input: Option<WorkerInput>,
    pub(super) meta: FrameMeta,
    /// Position of the input's cell, counted from 0, among the cells submitted to the last worker that got
    /// the input. `u64::MAX` before a worker got it, and after a replay that left it out because `input` is
    /// `None`.
    pub(super) cell: u64,
    /// Number of frames for the input that the collect end has taken from the stream's workers, repetitions
    /// included.
    pub(super) outputs: u32,
    /// True if a worker has reported that it could not decode the packet.
    pub(super) is_undecoded: bool,
    /// True if a worker has reported packets that it skipped, of which this packet is the last.
    pub(super) ends_skip: bool,
    /// Ledger times of the input in the caller's thread, up to just before its submission. If the submit end
    /// had to wait for room, or left the submission to the collect end: up to the call of
    /// [`SubmitEnd::submit`](super::submit::SubmitEnd::submit).
    pub(super) stretch: Stretch,
    /// Parameter sets in force before the packet, in addition to those of the track's header; `None` if
    /// there are none, for a frame, and after [`LoggedInput::strip`].
    pub(super) sets_before: Option<Arc<SetLog>>,
    /// Parameter sets in force after the packet, with the same exceptions as `sets_before`.
    pub(super) sets_behind: Option<Arc<SetLog>>,
}

impl LoggedInput {
    pub(super) fn new(input: WorkerInput, meta: FrameMeta, cell: u64, stretch: Stretch) -> LoggedInput {
        LoggedInput {
            input: Some(input),
            meta,
            cell,
            outputs: 0,
            is_undecoded: false,
            ends_skip: false,
            stretch,
            sets_before: None,
            sets_behind: None,
        }
    }

    /// Drops the input itself and the parameter sets, which only a replay would need.
    pub(super) fn strip(&mut self) {
        (self.input, self.sets_before, self.sets_behind) = (None, None, None);
    }
}
