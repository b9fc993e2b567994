// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input of a demuxer in a worker, as the caller keeps it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use framepath_codec::MediaFile;
use framepath_model::wire::{Demux, DemuxNetwork, InputBytes, Message, NetworkTransport};
use framepath_os::crossing::{PacketArea, SharedArea, Sizes, Socket};
use framepath_os::process::cancel::is_readable;

#[cfg(feature = "http")]
use super::byte_server::ByteServer;
use super::message_io::send;
use super::{DemuxerSpec, HostError};

/// Input of a demuxer in a worker.
pub(crate) enum DemuxedInput {
    /// File or pipe, which the worker reads itself. Open in this process, too, to check if there are bytes to read.
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
    /// Maximum time without a packet.
    pub(crate) timeout: Duration,
}

impl DemuxedInput {
    /// Sends the worker at `socket` the input, and the order to demux it as `spec` says, in the shared memory `area`.
    ///
    /// # Errors
    /// The worker is gone, or the text of a network source is too long.
    pub(super) fn send(
        &self,
        socket: &Socket,
        spec: &DemuxerSpec,
        (area, sizes): (&Arc<SharedArea>, Sizes),
    ) -> Result<(), HostError> {
        match self {
            DemuxedInput::File(file) => {
                send_file(socket, file.name(), file.as_fd())?;
                self.send_demux(socket, spec, (area, sizes), InputBytes::File)
            }
            #[cfg(feature = "http")]
            DemuxedInput::Served(server) => {
                send_file(socket, server.name(), server.worker_end())?;
                let bytes = InputBytes::Requested { size: server.size() };
                self.send_demux(socket, spec, (area, sizes), bytes)
            }
            DemuxedInput::Network(source) => source.send(socket, spec, (area, sizes)),
        }
    }

    fn send_demux(
        &self,
        socket: &Socket,
        spec: &DemuxerSpec,
        (area, sizes): (&Arc<SharedArea>, Sizes),
        bytes: InputBytes,
    ) -> Result<(), HostError> {
        let demux = Demux {
            seekable: self.is_seekable(),
            bytes,
            loops: spec.loops.max(1),
            track: spec.track,
            start_ns: nanoseconds(spec.start),
            cells: sizes.cells,
            packet_bytes: sizes.packet_bytes,
            faults: spec.options.faults.to_string(),
        };
        send(socket, &Message::Demux(demux), Some(area.fd()))
    }

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

    /// Returns the likely reason if not even the first packet can be read; `None` if the order of the bytes cannot
    /// be the reason.
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

    /// Returns the reason why this process could not read the input for the worker; `None` if it could.
    pub(super) fn failure(&self) -> Option<HostError> {
        match self {
            DemuxedInput::File(_) | DemuxedInput::Network(_) => None,
            #[cfg(feature = "http")]
            DemuxedInput::Served(server) => server.failure().map(|text| HostError::Failed { text }),
        }
    }
}

impl NetworkSource {
    fn send(
        &self,
        socket: &Socket,
        spec: &DemuxerSpec,
        (area, sizes): (&Arc<SharedArea>, Sizes),
    ) -> Result<(), HostError> {
        let mut text = PacketArea::new(area.clone());
        if !text.keep(&self.text) {
            return Err(HostError::PacketSize { bytes: self.text.len(), most: text.largest() });
        }
        let demux = DemuxNetwork {
            transport: self.transport,
            text_bytes: self.text.len() as u32,
            track: spec.track,
            latency_ns: nanoseconds(self.latency),
            timeout_ns: nanoseconds(self.timeout),
            cells: sizes.cells,
            packet_bytes: sizes.packet_bytes,
            faults: spec.options.faults.to_string(),
        };
        send(socket, &Message::DemuxNetwork(demux), Some(area.fd()))
    }
}

/// Sends `descriptor` as the file `name`; the name is for errors and to guess the container.
fn send_file(socket: &Socket, name: &str, descriptor: BorrowedFd<'_>) -> Result<(), HostError> {
    send(socket, &Message::File { name: name.to_owned() }, Some(descriptor))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
