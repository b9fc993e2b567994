// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of stages, and errors of a run.

use std::io;

use framepath_codec::filter::GraphError;
use framepath_codec::frei0r::Frei0rError;
use framepath_codec::{CodecError, ConvertError, EncodeError, MuxError};
use framepath_model::format::{LayoutError, PixelFormat};
use framepath_model::path::PathError;
use framepath_os::memory::pool::{ForeignError, PoolError};
use framepath_os::v4l2::V4l2Error;

use crate::damage::Damage;
use crate::host::HostError;
use crate::loss::Loss;
use crate::request::RequestError;

/// Reason why a source, stage or sink could not be made or started, or why it stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// An operation of the system failed: mostly reading or writing a file or stream; also starting a thread,
    /// looking up a server, or getting memory for a packet.
    #[error("{what}: {error}")]
    Io {
        /// The file, the stream or the operation.
        what: String,
        /// Error that the system returned.
        #[source]
        error: io::Error,
    },
    /// A media file cannot be opened, read, demuxed or sought in; its packets are damaged or cannot be decoded; or
    /// a codec library failed or got no memory.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// Frames cannot be encoded: libavcodec has no such encoder, the encoder does not take the frames or an option,
    /// or it failed.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Packets cannot be written into a container.
    #[error(transparent)]
    Mux(#[from] MuxError),
    /// A frame cannot be converted to the requested format or size, or painted into a window.
    #[error(transparent)]
    Convert(#[from] ConvertError),
    /// The plug-in cannot be found or loaded, is of a kind that the stage does not run, rejects a parameter, or does
    /// not support the size of the frames.
    #[error(transparent)]
    Plugin(#[from] Frei0rError),
    /// A pipe has no known container with video of a known codec, so only a worker may read it. The worker
    /// needs the pipe from its first byte, but this process has read more than the 16 MiB that it keeps.
    #[error(
        "{file}: the first 16 MiB of this pipe show no H.264, HEVC, VP8, VP9 or AV1 video; use `host=process`, or \
         save the bytes in a file"
    )]
    TooLateForWorker {
        /// Name of the pipe.
        file: String,
    },
    /// libavfilter cannot be loaded, rejects the graph or a frame, fails, or gets no memory.
    #[error(transparent)]
    Filter(#[from] GraphError),
    /// A pool cannot be made, or its wait for a free slot has ended without one.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The size or the layout of a picture is impossible, a part of a picture is not inside it, or no pixel format
    /// has the given name.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The stage got packets instead of frames, or frames instead of packets. Also for a `decode` whose
    /// input is not compressed.
    #[error("takes {takes}, but {gets} arrive: {advice}")]
    WrongInput {
        /// Input that the stage takes: `frames` or `packets`.
        takes: &'static str,
        /// Input that arrives: `packets` or `frames`.
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
    /// The frames change size or format, and the output file can hold only one.
    #[error("{what}: frames change from {from} to {to}, which a {kind} file cannot hold")]
    SizeChange {
        /// Name of the output file.
        what: String,
        /// Size and format of the frames before the change.
        from: String,
        /// Size and format of the first frame after the change.
        to: String,
        /// Kind of the output file, such as `y4m`.
        kind: &'static str,
    },
    /// A V4L2 device or dma-heap cannot be used: it cannot be opened, is busy, failed, or lacks the
    /// requested format or role.
    #[error(transparent)]
    Device(Box<V4l2Error>),
    /// Memory of a device or of another process cannot be used as frames.
    #[error(transparent)]
    Foreign(#[from] ForeignError),
    /// The worker of the stage or of the demuxer, or the service, could not be started or reached, or failed.
    #[error(transparent)]
    Host(Box<HostError>),
    /// The window of `play` cannot be opened, or cannot show the frames; the text has the reason.
    #[error("cannot open or use the window: {0}")]
    Window(String),
    /// A screen or window of an X server cannot be captured; the text has the reason.
    #[error("{0}")]
    Screen(String),
    /// An option or argument is invalid, or does not fit the stream or the device; or a failure that no other
    /// variant covers, such as a web server's refusal. The text has the reason.
    #[error("{0}")]
    Option(String),
    /// A source, stage or sink that the program implements, or the function of
    /// [`Pipeline::sink_fn`](crate::Pipeline::sink_fn), failed; or the sink `png` cannot encode a picture.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// The next stage, the thread behind a queue or the stage's worker has ended and takes no more items, or the
    /// viewer has ended the playback of `play`. This ends the stage and is not reported as an error of the run.
    #[error("the next stage has ended")]
    Downstream,
    /// The stage takes no more items: it has called [`Out::enough`](crate::Out::enough), it is a sink that has
    /// reached the limit of [`Options::frames`](crate::Options::frames), or it is a sink that writes to a pipe
    /// whose reader has closed it. This ends the run, or one branch of a `tee`, and is not reported as an error of
    /// the run.
    #[error("the stage takes no more items")]
    Enough,
}

impl From<HostError> for StageError {
    /// Boxes the error, because it is large and a result is returned for every frame.
    fn from(error: HostError) -> StageError {
        StageError::Host(Box::new(error))
    }
}

impl From<V4l2Error> for StageError {
    /// Boxes the error, because it is large and a result is returned for every frame.
    fn from(error: V4l2Error) -> StageError {
        StageError::Device(Box::new(error))
    }
}

impl StageError {
    /// Returns a function for `map_err` that makes [`StageError::Io`] with `what` and the system's error.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> StageError {
        let what = what.into();
        move |error| StageError::Io { what, error }
    }
}

/// Formats the failure of a hop as `hop: error`. Leaves out a file's name in `error` that the text of the hop
/// has already (`file a.mp4: a.mp4: cannot open`).
fn hop_failure(hop: &str, error: &str) -> String {
    let words = framepath_model::path::shell_words(hop).unwrap_or_default();
    for name in words.iter().skip(1).filter(|name| !name.is_empty()) {
        let repeated = format!("{name}: ");
        for before in ["", "in the worker: "] {
            if let Some(rest) = error.strip_prefix(before).and_then(|rest| rest.strip_prefix(&repeated)) {
                return format!("{hop}: {before}{rest}");
            }
        }
    }
    format!("{hop}: {error}")
}

/// Reason why a pipeline could not be built or started, or why its run failed. After a failure during the
/// run, [`Report`](crate::Report) has the ledger of the frames that were delivered before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A hop could not be made or started, or failed during the run.
    #[error("{}", hop_failure(hop, &error.to_string()))]
    Stage {
        /// Text of the hop in the path.
        hop: String,
        /// Reason of the failure.
        #[source]
        error: StageError,
    },
    /// The text is not a valid path, or not a valid part of a path where a part is expected.
    #[error("{0}; {help}", help = .0.help)]
    Path(#[from] PathError),
    /// A stage, link or sink was added behind a sink.
    #[error("{hop}: it is behind the sink {sink}; a pipeline, or a branch of a `tee`, ends in its one sink")]
    BehindSink {
        /// Text of the hop behind the sink.
        hop: String,
        /// Text of the sink.
        sink: String,
    },
    /// The pipeline, or a branch of a `tee`, has no sink.
    #[error("{last}: no sink behind it; add one, or (not in a `branch`) take the frames by `frames()`")]
    NoSink {
        /// Text of the last hop.
        last: String,
    },
    /// An output is a file that the run reads, or that another output is; nothing was opened.
    #[error("{by}: it would write `{file}`, which {other}; choose another file")]
    SharedFile {
        /// Name of the file.
        file: String,
        /// Text of the hop, or name of the option, that would write it.
        by: String,
        /// The other hop or option, and what it does with the file.
        other: String,
    },
    /// A request cannot be performed. A run does not fail for this reason; the variant is for callers
    /// that use `?` on [`Frames::seek`](crate::Frames::seek) and other requests.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The run ended without another error and by itself (no signal, stop request or viewer ended it), and no
    /// frame or packet has reached a sink. Only for pipelines whose source comes from path text, and with a stage
    /// of the program only if frames were lost or damaged: the stage may have dropped them all.
    #[error("{first}: no frame was delivered{}", why(losses, damage))]
    NoFrame {
        /// Text of the source in the path.
        first: String,
        /// Losses of the run, which may explain the missing frames; may be empty.
        losses: Vec<Loss>,
        /// Damage of the stream, which may explain the missing frames, too.
        damage: Box<Damage>,
    },
    /// A thread could not be started, or ended in a panic.
    #[error("thread of `{hop}`: {detail}")]
    Thread {
        /// First word of the first hop that the thread runs; `frames` for the thread that runs the
        /// pipeline of [`Pipeline::frames`](crate::Pipeline::frames).
        hop: String,
        /// Description of the failure, such as `ended in a panic, which is a bug`.
        detail: String,
    },
}

fn why(losses: &[Loss], damage: &Damage) -> String {
    if losses.is_empty() && damage.is_none() {
        return "; the source emitted no frame that the path could deliver".to_owned();
    }
    let damage = (!damage.is_none()).then(|| format!("; {damage}"));
    losses.iter().map(|loss| format!("; {loss}")).chain(damage).collect()
}

#[cfg(test)]
mod tests {
    use super::hop_failure;

    #[test]
    fn a_name_that_the_hop_has_is_not_repeated() {
        for (hop, error, text) in [
            ("file a.mp4", "a.mp4: cannot open: No such file", "file a.mp4: cannot open: No such file"),
            ("file 'a b'", "a b: empty file", "file 'a b': empty file"),
            ("file a track=1", "a: no video track 1", "file a track=1: no video track 1"),
            ("file a", "in the worker: a: cannot open: x", "file a: in the worker: cannot open: x"),
            ("decode", "vp9: packet 3 rejected", "decode: vp9: packet 3 rejected"),
            ("file a", "b: empty file", "file a: b: empty file"),
        ] {
            assert_eq!(hop_failure(hop, error), text);
        }
    }
}
