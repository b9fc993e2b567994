// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input of a demuxer in a worker, as the caller keeps it.

use std::time::Duration;

use framepath_codec::MediaFile;
use framepath_model::wire::NetworkTransport;
use framepath_os::process::cancel::is_readable;

use super::HostError;
#[cfg(feature = "http")]
use super::byte_server::ByteServer;

/// Input of a demuxer in a worker.
pub(crate) enum DemuxedInput {
    /// File or pipe, which the worker reads itself. Open in this process, too, to check if there are bytes to
    /// read.
    File(MediaFile),
    /// Input that this process reads for the worker.
    #[cfg(feature = "http")]
    Served(ByteServer),
    /// Stream from the network, which the worker reaches itself.
    Network(NetworkSource),
}

/// Stream from the network, and how to receive it.
pub(crate) struct NetworkSource {
    pub(crate) transport: NetworkTransport,
    /// URL with the server's address as numbers, or the text of a session description.
    pub(crate) text: Vec<u8>,
    /// Maximum time to wait for a late datagram.
    pub(crate) latency: Duration,
    /// Maximum time of one wait for the server or for a packet (`timeout=`).
    pub(crate) timeout: Duration,
}

impl DemuxedInput {
    /// True if the worker may read the input in any order.
    pub(super) fn is_seekable(&self) -> bool {
        match self {
            DemuxedInput::File(file) => file.is_seekable(),
            #[cfg(feature = "http")]
            DemuxedInput::Served(server) => server.is_seekable(),
            DemuxedInput::Network(_) => false,
        }
    }

    /// Returns the reason why the input is not seekable, for the user.
    pub(super) fn why_not_seekable(&self) -> &'static str {
        match self {
            DemuxedInput::File(_) => "the input is a pipe or a device; only regular files are seekable",
            #[cfg(feature = "http")]
            DemuxedInput::Served(_) => {
                "the server sends whole files only, so the input is not seekable; a server that answers range \
                 requests is needed"
            }
            DemuxedInput::Network(_) => "a live stream from the network is not seekable",
        }
    }

    /// Returns the likely reason, for the user, if not even the first packet can be read: the input is not
    /// seekable, but the container needs bytes from its end first. `None` if this cannot be the reason.
    pub(super) fn why_unreadable(&self) -> Option<&'static str> {
        match self {
            DemuxedInput::File(_) | DemuxedInput::Network(_) => None,
            #[cfg(feature = "http")]
            DemuxedInput::Served(server) => (!server.is_seekable()).then_some(
                "no packet can be read in the order of the bytes: the file's index may be at its end; put it first \
                 (`ffmpeg -movflags +faststart`), or use a server that answers range requests",
            ),
        }
    }

    /// True if the worker does not wait for the input: a read would not block, or this process has answered
    /// all requests of the worker. Always true for a network, whose waits [`NetworkSource::timeout`] limits.
    pub(super) fn is_readable(&self) -> bool {
        match self {
            DemuxedInput::File(file) => is_readable(file),
            #[cfg(feature = "http")]
            DemuxedInput::Served(server) => !server.is_busy(),
            DemuxedInput::Network(_) => true,
        }
    }

    /// Returns the reason why this process could not read the input for the worker, or stopped reading
    /// because the worker broke the rules; `None` if neither occurred, and for an input that the worker reads
    /// itself.
    pub(super) fn failure(&self) -> Option<HostError> {
        match self {
            DemuxedInput::File(_) | DemuxedInput::Network(_) => None,
            #[cfg(feature = "http")]
            DemuxedInput::Served(server) => server.failure().map(|text| HostError::Failed { text }),
        }
    }
}
