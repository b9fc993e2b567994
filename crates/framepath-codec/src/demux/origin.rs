// SPDX-License-Identifier: MIT OR Apache-2.0
//! Origin of a demuxer's bytes: a file, the files of an image sequence, or the network.

use std::time::Duration;

use super::pictures::PictureFiles;
use crate::input::ContainerInput;
use crate::network_input::NetworkInput;

/// Origin of a demuxer's bytes.
pub(super) enum DemuxerInput {
    File(ContainerInput),
    /// Files of an image sequence.
    Pictures(PictureFiles),
    /// libavformat's own sockets, and for a session description the memory that it was read from.
    Network {
        _memory: NetworkInput,
        /// Time without a packet that is no error yet. libavformat reports 10 s without a datagram as a timeout.
        patience: Duration,
    },
}

impl DemuxerInput {
    /// Takes the error of the last failed read of a file; `None` for a network, whose errors libavformat
    /// returns, and for an image sequence, whose reads return their errors.
    pub(super) fn take_error(&mut self) -> Option<std::io::Error> {
        match self {
            DemuxerInput::File(input) => input.take_error(),
            DemuxerInput::Pictures(_) | DemuxerInput::Network { .. } => None,
        }
    }

    /// Returns true if a read since the last seek or rewind has reached the end of the file, or has
    /// failed; always false for an image sequence and a network.
    pub(super) fn is_at_end(&self) -> bool {
        matches!(self, DemuxerInput::File(input) if input.is_at_end())
    }

    pub(super) fn is_seekable(&self) -> bool {
        matches!(self, DemuxerInput::File(input) if input.seekable)
    }
}
