// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of stages, and errors of a run.

use std::io;

use framepath_codec::frei0r::Frei0rError;
use framepath_codec::{CodecError, ConvertError};
use framepath_model::format::{LayoutError, PixelFormat};
use framepath_model::path::PathError;
use framepath_os::memory::pool::{ForeignError, PoolError};
use framepath_os::v4l2::V4l2Error;

use crate::host::HostError;
use crate::loss::Loss;
use crate::request::RequestError;

/// Reason why a stage stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// A file or stream could not be read or written.
    #[error("{what}: {error}")]
    Io {
        /// The file or stream.
        what: String,
        /// Error of the system.
        #[source]
        error: io::Error,
    },
    /// The codec libraries failed.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A frame cannot be converted to the requested format.
    #[error(transparent)]
    Convert(#[from] ConvertError),
    /// The plug-in cannot be found, loaded or set.
    #[error(transparent)]
    Plugin(#[from] Frei0rError),
    /// The pool has no free slot.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The layout of a picture is impossible.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The stage got packets instead of frames, or frames instead of packets.
    #[error("takes {takes}, but {gets} arrive: {advice}")]
    WrongInput {
        /// Input that the stage takes.
        takes: &'static str,
        /// Input that arrives.
        gets: &'static str,
        /// Advice for the user.
        advice: &'static str,
    },
    /// The stage does not support the pixel format of the frame.
    #[error("does not work on {format} frames; it takes {takes}")]
    Format {
        /// The format that arrived.
        format: PixelFormat,
        /// Formats that the stage takes.
        takes: &'static str,
    },
    /// The frames change size, and the output file cannot hold frames of two sizes.
    #[error("{what}: frames change from {from} to {to}, which a {kind} file cannot hold")]
    SizeChange {
        /// The output.
        what: String,
        /// Size and format so far.
        from: String,
        /// Size and format now.
        to: String,
        /// Kind of file.
        kind: &'static str,
    },
    /// The device failed.
    #[error(transparent)]
    Device(Box<V4l2Error>),
    /// The frame does not fit a device's buffer.
    #[error(transparent)]
    Foreign(#[from] ForeignError),
    /// The stage's worker failed.
    #[error(transparent)]
    Host(Box<HostError>),
    /// The window cannot be opened, or cannot show the frames.
    #[error("no window: {0}")]
    Window(String),
    /// An option's value is invalid.
    #[error("{0}")]
    Option(String),
    /// The caller's own stage, source or sink failed.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// The next stage has ended. This ends the stage and is not reported.
    #[error("the next stage has ended")]
    Downstream,
    /// The stage takes no more items ([`Out::enough`](crate::Out::enough)). This ends the run and is not
    /// reported.
    #[error("the stage takes no more items")]
    Enough,
}

impl From<HostError> for StageError {
    /// Boxed: it is large, and results are returned for every frame.
    fn from(error: HostError) -> StageError {
        StageError::Host(Box::new(error))
    }
}

impl From<V4l2Error> for StageError {
    /// Boxed: it is large, and results are returned for every frame.
    fn from(error: V4l2Error) -> StageError {
        StageError::Device(Box::new(error))
    }
}

impl StageError {
    /// Makes an I/O error about `what`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> StageError {
        let what = what.into();
        move |error| StageError::Io { what, error }
    }
}

/// Reason why a run failed. The frames before the failure were delivered; [`Report`](crate::Report) has
/// their ledger.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A hop could not be made or started, or failed during the run.
    #[error("{hop}: {error}")]
    Stage {
        /// Text of the hop in the path.
        hop: String,
        /// Reason of the failure.
        #[source]
        error: StageError,
    },
    /// The text is not a path.
    #[error("{0}; {help}", help = .0.help)]
    Path(#[from] PathError),
    /// A stage, queue or sink was added behind a sink.
    #[error("{hop}: it is behind the sink {sink}; a pipeline ends in one sink")]
    BehindSink {
        /// The hop behind the sink.
        hop: String,
        /// The sink.
        sink: String,
    },
    /// The pipeline has no sink.
    #[error("{last}: no sink behind it; add one, or take the frames by `frames()`")]
    NoSink {
        /// The last hop.
        last: String,
    },
    /// A request cannot be performed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The source ended, and no frame has reached the sink.
    #[error("{first}: no frame was delivered{}", why(losses))]
    NoFrame {
        /// Text of the source in the path.
        first: String,
        /// Losses of the run.
        losses: Vec<Loss>,
    },
    /// A thread could not be started, or ended in a panic.
    #[error("thread of `{hop}`: {detail}")]
    Thread {
        /// Name of the first hop of the thread; `frames` for the thread that runs the pipeline of
        /// [`Pipeline::frames`](crate::Pipeline::frames).
        hop: String,
        /// Description of the failure.
        detail: String,
    },
}

fn why(losses: &[Loss]) -> String {
    if losses.is_empty() {
        return "; the source emitted no frame that the path could deliver".to_owned();
    }
    losses.iter().map(|loss| format!("; {loss}")).collect()
}
