// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between the submit end and the collect end of a stream.

use std::sync::Arc;

use super::input::LoggedInput;
use super::submit::Sending;
use super::worker_stream::WorkerStream;

/// Entry of the log from the submit end to the collect end, in the order of the stream.
// Not boxed: nearly all entries are inputs, and a box would cost an allocation for each frame.
#[allow(clippy::large_enum_variant)]
pub(super) enum Logged {
    /// The next input. `worker` is the number of the worker to which the submit end submits the input
    /// right after logging it; `None` if the collect end has to submit or drop it.
    Input { worker: Option<u64>, sent: LoggedInput },
    /// The submit end has another input, and no right to submit it to a living worker. It waits for
    /// [`SubmitCommand::Direct`] or [`SubmitCommand::Relay`].
    Ask,
    /// A seek or flush: all earlier inputs are to be discarded. `sending` hands over the right to submit, if
    /// the submit end has this right.
    Flush {
        /// Number of the seek or flush.
        generation: u64,
        sending: Option<Box<Sending>>,
    },
    /// The input has ended; if `is_held`, a flush may follow. `sending` hands over the right to submit,
    /// if the submit end has this right.
    End { is_held: bool, sending: Option<Box<Sending>> },
}

/// Command from the collect end to the submit end.
pub(super) enum SubmitCommand {
    /// The stream continues with this worker. Sent once for each replacement of a worker, without a
    /// preceding [`Logged::Ask`].
    Next(Arc<WorkerStream>),
    /// Answers [`Logged::Ask`]: the submit end submits from now on, by the right that this command carries.
    Direct(Box<Sending>),
    /// Answers [`Logged::Ask`]: the submit end logs its next input, and the collect end submits or drops
    /// this input.
    Relay,
}
