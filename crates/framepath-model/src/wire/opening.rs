// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contents of the three messages that make a worker open a stream, demux a file, or demux a stream
//! from the network.

use super::WireError;
use super::error::check;
use super::message::{FAULTS_BYTES, MAX_CELLS, MAX_LEVEL, STAGE_BYTES};
use super::record::{RecordReader, RecordWriter};
use crate::stream::StreamInfo;

/// Parameters of a worker's stream, sent in one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Hop in path syntax; encoding cuts it to [`STAGE_BYTES`] bytes.
    pub stage: String,
    /// Level of the ledger: 0 `off`, 1 `times`, 2 `full`; at most [`MAX_LEVEL`].
    pub level: u8,
    /// True if the stage decodes into the caller's buffers, which the worker requests by
    /// [`super::Message::RequestBuffers`].
    pub lent: bool,
    /// Size of the track's description at the start of the packet area, bytes; 0 if the stage takes
    /// frames instead of packets.
    pub track_bytes: u32,
    /// Number of the stage's frames that the hops behind the stage may keep in their queues and
    /// threads at a time; frames inside workers behind the stage are not counted.
    pub frames_behind: u32,
    /// Description of the stream that enters the stage.
    pub stream: StreamInfo,
    /// Number of cells of each ring, 1 to [`MAX_CELLS`].
    pub cells: u32,
    /// Size of the packet area, bytes, at least `track_bytes`.
    pub packet_bytes: u64,
    /// List of the faults that the worker injects in tests, separated by commas, such as
    /// `crash@100`; at most [`FAULTS_BYTES`] bytes; empty otherwise.
    pub faults: String,
}

/// Way in which a demuxer reads its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputBytes {
    /// The descriptor of [`super::Message::File`] is the open file.
    File,
    /// The descriptor of [`super::Message::File`] is a socket, on which the demuxer requests the bytes
    /// ([`super::ByteRequest`]).
    Requested {
        /// Size of the input in bytes, less than `u64::MAX`; `None` if it is not known.
        size: Option<u64>,
    },
    /// The descriptor of [`super::Message::File`] is a socket with the files of an image sequence, in chunks.
    Pictures,
}

/// Flag of a [`Demux`] with [`InputBytes::Requested`].
const REQUESTED: u32 = 1 << 1;
/// Flag of a [`Demux`] with [`InputBytes::Pictures`].
const PICTURES: u32 = 1 << 2;

/// Parameters for demuxing a file, sent in one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demux {
    /// True if the demuxer may seek in the input: a regular file, or a file whose bytes the caller
    /// can provide from any offset on. False for a pipe or a device.
    pub seekable: bool,
    /// Way in which the demuxer reads the file.
    pub bytes: InputBytes,
    /// Number of times the file is read, at least 1; `u64::MAX` for no limit.
    pub loops: u64,
    /// Number of the track among the video tracks of the container, from 0; `None` selects the best
    /// one.
    pub track: Option<u32>,
    /// Position at which each of the loops starts, nanoseconds from the stream's start.
    pub start_ns: u64,
    /// Number of cells of each ring, 1 to [`MAX_CELLS`].
    pub cells: u32,
    /// Size of the packet area, bytes, at most `isize::MAX`.
    pub packet_bytes: u64,
    /// List of the faults that the worker injects in tests, separated by commas, such as
    /// `crash@100`; at most [`FAULTS_BYTES`] bytes; empty otherwise.
    pub faults: String,
}

/// Parameters for demuxing a stream from the network, sent in one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemuxNetwork {
    /// Way in which the stream is received.
    pub transport: NetworkTransport,
    /// Size of the text at the start of the packet area, bytes, 1 to [`NETWORK_TEXT_BYTES`]: a URL, or a
    /// session description for [`NetworkTransport::Sdp`].
    pub text_bytes: u32,
    /// Number of the track among the video tracks of the stream, from 0; `None` selects the best
    /// one.
    pub track: Option<u32>,
    /// Maximum time to wait for a late datagram, nanoseconds.
    pub latency_ns: u64,
    /// Maximum time without a packet or an answer of the server, nanoseconds.
    pub timeout_ns: u64,
    /// Number of cells of each ring, 1 to [`MAX_CELLS`].
    pub cells: u32,
    /// Size of the packet area, bytes, at least `text_bytes`.
    pub packet_bytes: u64,
    /// List of the faults that the worker injects in tests, as [`Demux::faults`].
    pub faults: String,
}

/// Way in which a stream from the network is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkTransport {
    /// RTSP, with the packets in its TCP connection.
    RtspTcp,
    /// RTSP over TCP, with the packets in datagrams.
    RtspUdp,
    /// RTP in datagrams, to the address of a session description (SDP).
    Sdp,
}

impl NetworkTransport {
    const ALL: [NetworkTransport; 3] =
        [NetworkTransport::RtspTcp, NetworkTransport::RtspUdp, NetworkTransport::Sdp];
}

/// Maximum size of the text of a [`DemuxNetwork`], bytes.
pub const NETWORK_TEXT_BYTES: u32 = 16_000;

impl DemuxNetwork {
    pub(super) fn encode(&self, w: &mut RecordWriter<'_>) {
        w.u32(self.transport as u32);
        w.u32(self.cells);
        w.u64(self.packet_bytes);
        w.u32(self.text_bytes);
        w.u32(self.track.map_or(0, |track| track.saturating_add(1)));
        w.u64(self.latency_ns);
        w.u64(self.timeout_ns);
        w.text(&self.faults, FAULTS_BYTES);
    }

    pub(super) fn decode(r: &mut RecordReader<'_>) -> Result<DemuxNetwork, WireError> {
        let number = r.u32()?;
        let transport = NetworkTransport::ALL.into_iter().find(|transport| *transport as u32 == number);
        let unknown = WireError::Field { record: r.record, field: "transport", value: number.into() };
        let transport = transport.ok_or(unknown)?;
        let cells = r.u32()?;
        check((1..=MAX_CELLS).contains(&cells), r.record, "cells", cells.into())?;
        let packet_bytes = r.u64()?;
        check(isize::try_from(packet_bytes).is_ok(), r.record, "packet bytes", packet_bytes)?;
        let text_bytes = r.u32()?;
        let fits = (1..=NETWORK_TEXT_BYTES).contains(&text_bytes) && u64::from(text_bytes) <= packet_bytes;
        check(fits, r.record, "text", text_bytes.into())?;
        let track = r.u32()?.checked_sub(1);
        let (latency_ns, timeout_ns) = (r.u64()?, r.u64()?);
        let faults = r.text(FAULTS_BYTES, "faults")?;
        Ok(DemuxNetwork { transport, text_bytes, track, latency_ns, timeout_ns, cells, packet_bytes, faults })
    }
}

impl Demux {
    pub(super) fn encode(&self, w: &mut RecordWriter<'_>) {
        let (bytes, size) = match self.bytes {
            InputBytes::File => (0, None),
            InputBytes::Requested { size } => (REQUESTED, size),
            InputBytes::Pictures => (PICTURES, None),
        };
        w.u32(u32::from(self.seekable) | bytes);
        w.u32(self.cells);
        w.u64(self.loops);
        w.u64(self.packet_bytes);
        w.u32(self.track.map_or(0, |track| track.saturating_add(1)));
        w.u32(0);
        w.u64(self.start_ns);
        w.u64(size.map_or(0, |size| size.saturating_add(1)));
        w.text(&self.faults, FAULTS_BYTES);
    }

    pub(super) fn decode(r: &mut RecordReader<'_>) -> Result<Demux, WireError> {
        let flags = r.u32()?;
        let flags = r.flags(flags.into(), u64::from(1 | REQUESTED | PICTURES))? as u32;
        let seekable = flags & 1 != 0;
        let cells = r.u32()?;
        check((1..=MAX_CELLS).contains(&cells), r.record, "cells", cells.into())?;
        let loops = r.u64()?;
        check(loops > 0, r.record, "loops", loops)?;
        let packet_bytes = r.u64()?;
        check(isize::try_from(packet_bytes).is_ok(), r.record, "packet bytes", packet_bytes)?;
        let track = r.u32()?.checked_sub(1);
        r.zeros(4)?;
        let start_ns = r.u64()?;
        let size = r.u64()?;
        let bytes = match flags & (REQUESTED | PICTURES) {
            0 => InputBytes::File,
            REQUESTED => InputBytes::Requested { size: size.checked_sub(1) },
            PICTURES => InputBytes::Pictures,
            both => return Err(WireError::Field { record: r.record, field: "bytes", value: both.into() }),
        };
        check(size == 0 || flags & REQUESTED != 0, r.record, "size", size)?;
        let faults = r.text(FAULTS_BYTES, "faults")?;
        Ok(Demux { seekable, bytes, loops, track, start_ns, cells, packet_bytes, faults })
    }
}

impl Open {
    pub(super) fn encode(&self, w: &mut RecordWriter<'_>) {
        w.u32(u32::from(self.level) | u32::from(self.lent) << 8);
        w.u32(self.track_bytes);
        w.u32(self.cells);
        w.u32(self.frames_behind);
        w.u64(self.packet_bytes);
        w.stream(&self.stream);
        w.text(&self.stage, STAGE_BYTES);
        w.text(&self.faults, FAULTS_BYTES);
    }

    pub(super) fn decode(r: &mut RecordReader<'_>) -> Result<Open, WireError> {
        let level = r.u8()?;
        check(level <= MAX_LEVEL, r.record, "level", level.into())?;
        let flags = r.u8()?;
        let lent = r.flags(flags.into(), 1)? != 0;
        r.zeros(2)?;
        let track_bytes = r.u32()?;
        let cells = r.u32()?;
        check((1..=MAX_CELLS).contains(&cells), r.record, "cells", cells.into())?;
        let frames_behind = r.u32()?;
        let packet_bytes = r.u64()?;
        check(isize::try_from(packet_bytes).is_ok(), r.record, "packet bytes", packet_bytes)?;
        check(u64::from(track_bytes) <= packet_bytes, r.record, "track", track_bytes.into())?;
        let stream = r.stream()?;
        let stage = r.text(STAGE_BYTES, "stage")?;
        let faults = r.text(FAULTS_BYTES, "faults")?;
        Ok(Open { stage, level, lent, track_bytes, frames_behind, stream, cells, packet_bytes, faults })
    }
}
