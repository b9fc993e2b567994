// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input of a demuxer in a worker, as the caller keeps it.

use std::os::fd::{AsFd, BorrowedFd};

use framepath_codec::MediaFile;
use framepath_model::wire::InputBytes;
use framepath_os::process::cancel::is_readable;

use super::HostError;
#[cfg(feature = "http")]
use super::byte_server::ByteServer;

/// Input of a demuxer in a worker.
pub(crate) enum DemuxerInput {
    /// File or pipe, which the worker reads itself.
    File(MediaFile),
    /// Input that this process reads for the worker.
    #[cfg(feature = "http")]
    Served(ByteServer),
}

impl DemuxerInput {
    /// Returns the input's name, for errors and to guess the container.
    pub(crate) fn name(&self) -> &str {
        match self {
            DemuxerInput::File(file) => file.name(),
            #[cfg(feature = "http")]
            DemuxerInput::Served(server) => server.name(),
        }
    }

    /// True if the worker may read the input in any order.
    pub(super) fn is_seekable(&self) -> bool {
        match self {
            DemuxerInput::File(file) => file.is_seekable(),
            #[cfg(feature = "http")]
            DemuxerInput::Served(server) => server.is_seekable(),
        }
    }

    /// Returns the reason why the input is not seekable, for the user.
    pub(super) fn why_not_seekable(&self) -> &'static str {
        match self {
            DemuxerInput::File(_) => "the input is a pipe or a device; only regular files are seekable",
            #[cfg(feature = "http")]
            DemuxerInput::Served(_) => {
                "the server sends whole files only, so the input is not seekable; a server that answers range \
                 requests is needed"
            }
        }
    }

    /// Returns the likely reason if not even the first packet can be read; `None` for files and seekable inputs.
    pub(super) fn why_unreadable(&self) -> Option<&'static str> {
        match self {
            DemuxerInput::File(_) => None,
            #[cfg(feature = "http")]
            DemuxerInput::Served(server) => (!server.is_seekable()).then_some(
                "no packet can be read in the order of the bytes: the file's index may be at its end; put it first \
                 (`ffmpeg -movflags +faststart`), or use a server that answers range requests",
            ),
        }
    }

    /// Returns the descriptor for the worker.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            DemuxerInput::File(file) => file.as_fd(),
            #[cfg(feature = "http")]
            DemuxerInput::Served(server) => server.worker_end(),
        }
    }

    /// Returns the way in which the worker reads the input.
    pub(super) fn bytes(&self) -> InputBytes {
        match self {
            DemuxerInput::File(_) => InputBytes::File,
            #[cfg(feature = "http")]
            DemuxerInput::Served(server) => InputBytes::Requested { size: server.size() },
        }
    }

    /// True if the worker does not wait for the input: a read would not block, or this process has answered
    /// all requests of the worker.
    pub(super) fn is_readable(&self) -> bool {
        match self {
            DemuxerInput::File(file) => is_readable(file),
            #[cfg(feature = "http")]
            DemuxerInput::Served(server) => !server.is_busy(),
        }
    }

    /// Returns the reason why this process could not read the input for the worker; `None` if it could.
    pub(super) fn failure(&self) -> Option<HostError> {
        match self {
            DemuxerInput::File(_) => None,
            #[cfg(feature = "http")]
            DemuxerInput::Served(server) => server.failure().map(|text| HostError::Failed { text }),
        }
    }
}
