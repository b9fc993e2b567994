// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between the submit end and the collect end of a stream.

use std::sync::Arc;

use super::input::LoggedInput;
use super::submit::Sending;
use super::worker_stream::WorkerStream;

/// From the submit end to the collect end, in the order of the stream.
// Not boxed: nearly all entries are inputs, and a box would cost an allocation for each frame.
#[allow(clippy::large_enum_variant)]
pub(super) enum Logged {
    /// The next input. The submit end submits it to the worker of this number right after logging it;
    /// `None` if the collect end has to submit it.
    Input { worker: Option<u64>, sent: LoggedInput },
    /// The submit end has another input and no worker. It waits for [`SubmitCommand::Direct`] or
    /// [`SubmitCommand::Relay`].
    Ask,
    /// All earlier inputs are discarded. Hands over the right to submit, if the submit end has this right.
    Flush {
        /// Number of the seek or flush.
        generation: u64,
        sending: Option<Box<Sending>>,
    },
    /// The stream has ended; if `is_held`, a flush may follow. Returns the right to submit, if the submit
    /// end has it.
    End { is_held: bool, sending: Option<Box<Sending>> },
}

/// From the collect end to the submit end.
pub(super) enum SubmitCommand {
    /// The stream continues with another worker. Sent once for each worker, without a question.
    Next(Arc<WorkerStream>),
    /// Answers [`Logged::Ask`]: the submit end submits from now on.
    Direct(Box<Sending>),
    /// Answers [`Logged::Ask`]: the submit end logs the input, and the collect end submits or drops it.
    Relay,
}
