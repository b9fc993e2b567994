// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worker's side of a demuxer: sends the packets of one file or network stream to one caller.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use framepath_codec::{CodecError, Demuxer, Formats, MediaFile, NetworkProtocol, NetworkStream, Packet};
use framepath_model::stream::SeekTo;
use framepath_model::wire::{
    Completion, Demux, DemuxNetwork, DemuxPosition, InputBytes, Message, NetworkTransport, Submission,
};
use framepath_os::crossing::{
    Breach, CellReader, CellWriter, PacketPool, SharedArea, SharedPackets, Sizes, Socket, completions,
    submissions,
};
use framepath_os::process::crash;

use super::HostError;
use super::fault::InjectedFaults;
use super::message_io::send;
use super::remote_demuxer::{MOST_TRACK_BYTES, nanoseconds};
use super::tally::Tally;

type Refusal = Box<dyn std::error::Error>;

/// Reads `file` and sends its packets to the caller, in the shared memory `memory`. Returns only with an
/// error: after the last packet, waits for a seek; after a failure, waits until the caller ends this process.
///
/// # Errors
/// The caller broke the rules, or the socket failed.
pub(super) fn demux(
    demux: &Demux,
    memory: OwnedFd,
    file: MediaFile,
    socket: &Arc<Socket>,
    tally: Option<Tally>,
) -> Result<(), HostError> {
    let open = |_: &Arc<SharedArea>| -> Result<Demuxer, Refusal> {
        Ok(Demuxer::open_track(file, demux.track.map(|track| track as usize), Formats::All)?)
    };
    run(DemuxedFile::open(demux, memory, open, tally), socket)
}

/// Receives a stream from the network and sends its packets to the caller, as [`demux`] does.
///
/// # Errors
/// As [`demux`].
pub(super) fn demux_network(
    demux: &DemuxNetwork,
    memory: OwnedFd,
    socket: &Arc<Socket>,
) -> Result<(), HostError> {
    let open = |area: &Arc<SharedArea>| -> Result<Demuxer, Refusal> {
        // Copied before the packet area is used.
        let text = SharedPackets::new(area.clone()).kept(demux.text_bytes)?;
        let protocol = match demux.transport {
            NetworkTransport::RtspTcp => NetworkProtocol::RtspTcp,
            NetworkTransport::RtspUdp => NetworkProtocol::RtspUdp,
            NetworkTransport::Sdp => NetworkProtocol::Sdp,
        };
        let (latency, timeout) = (demux.latency_ns, demux.timeout_ns);
        let [latency, timeout] = [latency, timeout].map(Duration::from_nanos);
        let track = demux.track.map(|track| track as usize);
        Ok(Demuxer::open_network(&NetworkStream { protocol, text, latency, timeout, track })?)
    };
    let once = Demux {
        seekable: false,
        bytes: InputBytes::File,
        loops: 1,
        track: demux.track,
        start_ns: 0,
        cells: demux.cells,
        packet_bytes: demux.packet_bytes,
        faults: demux.faults.clone(),
    };
    run(DemuxedFile::open(&once, memory, open, None), socket)
}

/// Sends the packets of `opened`, or the reason why the input cannot be opened. Returns as [`demux`] does.
fn run(opened: Result<(DemuxedFile, Message), Refusal>, socket: &Arc<Socket>) -> Result<(), HostError> {
    let mut stream = match opened {
        Ok((stream, opened)) => {
            send(socket, &opened, None)?;
            stream
        }
        Err(error) => {
            send(socket, &Message::Refused { text: error.to_string() }, None)?;
            crash::hang()
        }
    };
    match stream.run() {
        Stopped::Caller(error) => return Err(error),
        Stopped::File(text) => {
            // Sent before the cell, so that the reader of the cell finds the text.
            send(socket, &Message::Failed { text, seq: None }, None)?;
            stream.completions.push_waiting(&Completion::Failed.encode())?;
        }
    }
    // The caller still reads the packets in shared memory.
    crash::hang()
}

/// Reason why the demuxer stopped.
enum Stopped {
    /// The file or network stream cannot be read further, repeated or moved to the position of a seek, or has
    /// a packet that is too large; the text is the message for the caller.
    File(String),
    /// The caller broke the rules. The error is returned to the main function of the worker.
    Caller(HostError),
}

impl From<CodecError> for Stopped {
    fn from(error: CodecError) -> Stopped {
        Stopped::File(error.to_string())
    }
}

impl From<Breach> for Stopped {
    fn from(breach: Breach) -> Stopped {
        Stopped::Caller(breach.into())
    }
}

struct DemuxedFile {
    demuxer: Demuxer,
    pool: PacketPool,
    completions: CellWriter,
    /// Ring from the caller, which carries seeks.
    submissions: CellReader,
    /// Time from the stream's start where each pass over the file begins.
    start: Duration,
    /// Number of passes after the present one.
    loops_left: u64,
    /// Faults to inject, by the numbers of packets; `None` if there are none.
    faults: Option<InjectedFaults>,
    /// Counters of packets for the service; `None` in a worker that no service has started.
    tally: Option<Tally>,
}

impl DemuxedFile {
    fn open(
        demux: &Demux,
        memory: OwnedFd,
        open: impl FnOnce(&Arc<SharedArea>) -> Result<Demuxer, Refusal>,
        tally: Option<Tally>,
    ) -> Result<(DemuxedFile, Message), Refusal> {
        let sizes = Sizes { cells: demux.cells, packet_bytes: demux.packet_bytes };
        let area = Arc::new(SharedArea::open(memory, sizes)?);
        let faults = if demux.faults.is_empty() { None } else { Some(demux.faults.parse()?) };
        let mut demuxer = open(&area)?;
        let start = Duration::from_nanos(demux.start_ns);
        if !start.is_zero() {
            demuxer.seek(start, SeekTo::Exact)?;
        }
        let track = demuxer.info().to_bytes();
        let too_long = format!(
            "the description of the track has {} bytes, at most {MOST_TRACK_BYTES} are supported",
            track.len()
        );
        let pool = (track.len() <= MOST_TRACK_BYTES).then(|| PacketPool::new(area.clone(), &track));
        let pool = pool.flatten().ok_or(too_long)?;
        let info = demuxer.info();
        let duration_ns = info.duration.map_or(0, nanoseconds);
        let opened = Message::Demuxed { track_bytes: track.len() as u32, stream: info.stream, duration_ns };
        let (completions, submissions) = (completions(&area).0, submissions(&area).1);
        let loops_left = demux.loops - 1;
        let stream =
            DemuxedFile { demuxer, pool, completions, submissions, start, loops_left, faults, tally };
        Ok((stream, opened))
    }

    /// Sends packets and performs seeks until an error; returns this error.
    fn run(&mut self) -> Stopped {
        let mut packets = 0;
        loop {
            match self.read_to_end(&mut packets) {
                Ok(()) => {}
                Err(stopped) => return stopped,
            }
        }
    }

    /// Sends the packets up to the end of the last loop and the end itself; then waits for a seek and
    /// performs it. Also performs seeks that come earlier. Adds the number of read packets to `packets`.
    fn read_to_end(&mut self, packets: &mut u64) -> Result<(), Stopped> {
        // Packets of this loop that become frames.
        let mut of_this_loop = 0;
        loop {
            if self.seek()? {
                of_this_loop = 0;
            }
            if let Some(packet) = self.demuxer.read()? {
                if let Some(faults) = &self.faults {
                    faults.inject(*packets);
                }
                if let Some(tally) = &mut self.tally {
                    tally.count_input(*packets);
                }
                *packets += 1;
                of_this_loop += u64::from(!packet.preroll().discarded);
                self.send(&packet)?;
                continue;
            }
            if self.loops_left == 0 {
                break;
            }
            // Without this check, a file without packets would be read without end.
            if of_this_loop == 0 {
                return Err(self.demuxer.nothing_to_repeat().into());
            }
            self.loops_left -= 1;
            of_this_loop = 0;
            if self.start.is_zero() {
                self.demuxer.rewind()?;
            } else {
                self.demuxer.seek(self.start, SeekTo::Exact)?;
            }
        }
        self.completions.push_waiting(&Completion::End.encode())?;
        // The caller ends its worker, or seeks.
        while !self.seek()? {
            self.submissions.sleep(|| false, None);
        }
        Ok(())
    }

    /// Performs the caller's seek and answers it; returns true. Returns false if the caller has sent no seek.
    fn seek(&mut self) -> Result<bool, Stopped> {
        let Some(cell) = self.submissions.pop()? else { return Ok(false) };
        let Ok(Submission::Seek { number, to }) = Submission::decode(&cell) else {
            return Err(Breach("an unexpected submission to a demuxer").into());
        };
        match to {
            DemuxPosition::Time(ns, mode) => self.demuxer.seek(Duration::from_nanos(ns), mode)?,
            DemuxPosition::NextKey => self.demuxer.skip_to_key()?,
        }
        self.completions.push_waiting(&Completion::Flushed { number }.encode())?;
        Ok(true)
    }

    fn send(&mut self, packet: &Packet) -> Result<(), Stopped> {
        // Always `Some`, because the demuxer makes its packets in this process.
        let bytes = packet.bytes().unwrap_or_default();
        if bytes.len() > self.pool.largest() {
            let (bytes, most) = (bytes.len(), self.pool.largest());
            return Err(Stopped::File(HostError::PacketSize { bytes, most }.to_string()));
        }
        let placed = self.pool.push_waiting(bytes)?;
        let meta = packet.meta();
        let completion = Completion::Packet {
            pts: meta.pts,
            duration: meta.duration,
            offset: placed.offset,
            len: bytes.len() as u32,
            id: placed.id,
            key: packet.is_key(),
            is_damaged: packet.is_damaged(),
            transit: placed.transit,
            preroll: packet.preroll(),
            lost: u32::try_from(self.demuxer.take_lost()).unwrap_or(u32::MAX),
        };
        Ok(self.completions.push_waiting(&completion.encode())?)
    }
}
