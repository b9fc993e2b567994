// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between the submit end and the collect end of a stream.

use std::sync::Arc;

use super::input::LoggedInput;
use super::submit::Sending;
use super::worker_stream::WorkerStream;

/// From the submit end to the collect end, in the order of the stream.
// Nearly all are inputs, one for each frame: a box would be an allocation for each.
#[allow(clippy::large_enum_variant)]
pub(super) enum Logged {
    /// The next input. It is submitted to the worker of this number at once; `None`
    /// where the collect end has to submit it.
    Input { worker: Option<u64>, sent: LoggedInput },
    /// The submit end has another input, and no worker to submit it to. It waits for
    /// [`SubmitCommand::Direct`] or [`SubmitCommand::Relay`].
    Ask,
    /// Earlier inputs are not wanted any more; with the right to submit, where the
    /// submit end has it.
    Flush {
        /// Number of the seek or flush.
        generation: u64,
        sending: Option<Box<Sending>>,
    },
    /// The stream has ended; if it is held, a flush may follow. With the right
    /// to submit, where the submit end has it.
    End { is_held: bool, sending: Option<Box<Sending>> },
}

/// From the collect end to the submit end.
pub(super) enum SubmitCommand {
    /// The stream goes on with another worker. Sent once for each worker, unasked.
    Next(Arc<WorkerStream>),
    /// Answers [`Logged::Ask`]: the submit end submits from now on.
    Direct(Box<Sending>),
    /// Answers [`Logged::Ask`]: the collect end submits the input, unless the book drops it.
    Relay,
}
