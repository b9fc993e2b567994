// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caller's side of a demuxer in a worker.
//!
//! Besides the memory that it shares with the caller, the worker receives only its input: the open file, or a
//! socket on which it requests the bytes (`ByteServer`). For a stream from the network, it receives a URL or
//! a session description, and makes its sockets itself. The worker reads ahead as far as the ring and the
//! shared memory allow, so a paced path wakes it once for half a ring of packets. The caller checks the
//! worker's cells. The bytes of the worker's packets are never a slice here; they are copied once more, into
//! private memory of this process or into the memory shared with the decoder's worker.
//!
//! The caller writes a seek into the ring to the worker, and the worker reads that ring between two packets.
//! The caller drops packets that arrive before the answer. These drops also make room in the ring of packets,
//! for which the worker may wait.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use framepath_codec::{Packet, TrackInfo};
use framepath_model::stream::{FrameMeta, StreamInfo};
use framepath_model::wire::{
    Cell, Completion, Demux, DemuxNetwork, DemuxPosition, InputBytes, Message, Submission,
};
use framepath_os::crossing::{
    Bell, Breach, CellReader, CellWriter, PacketArea, PooledPackets, SharedArea, Sizes, Socket, WatchResult,
    Watcher, completions, submissions, watch,
};
use framepath_os::measure::meter;
use framepath_os::process::cancel::canceled;
use framepath_os::process::signal;

use super::demuxed_input::{DemuxedInput, NetworkSource};
use super::message_io::{recv_within, send};
use super::policy::{CHECK_INTERVAL, DemuxerWait};
use super::process::Worker;
use super::service_stream::ServiceStream;
use super::spec::area_sizes;
use super::start;
use super::{HostError, WorkerOptions, WorkerStats, sandbox};

/// Maximum size of the shared memory for packets of a demuxer's worker, bytes.
const MOST_PACKET_BYTES: u64 = 128 << 20;
/// Number of cells that may arrive before the answer to a seek, in rings of cells: one full ring, and one
/// more that covers the packet that the worker is sending.
const RINGS_BEFORE_ANSWER: u64 = 2;
/// Maximum size of the description of a track that a demuxer's worker sends, bytes.
pub(super) const MOST_TRACK_BYTES: usize = 4 << 20;

/// Work of a demuxer's worker, and the way to start the worker.
pub(crate) struct DemuxerSpec {
    /// Number of times to read the file; 0 counts as 1. No effect on a stream from the network, which is read
    /// once.
    pub(crate) loops: u64,
    /// Time from the stream's start where each pass over the file begins. No effect on a stream from the
    /// network.
    pub(crate) start: Duration,
    /// Number of the video track; `None` chooses the best.
    pub(crate) track: Option<u32>,
    pub(crate) options: WorkerOptions,
    /// The stream's connection to the service that provides the worker; `None` if this program starts it.
    pub(crate) service: Option<Arc<ServiceStream>>,
    /// True if this process reads the packets' bytes itself, so that they have to be copied into private
    /// memory.
    pub(crate) private: bool,
}

/// Reader of the packets of a file or network stream that a worker demuxes. Dropping the reader ends the
/// worker.
pub(crate) struct RemoteDemuxer {
    // First, so that it is dropped first: its thread uses the other fields.
    _watcher: Watcher,
    worker: Worker,
    track: TrackInfo,
    reader: CellReader,
    /// Ring to the worker, which carries seeks.
    writer: CellWriter,
    /// Number of cells of each ring.
    cells: u32,
    /// Number of seeks so far, which is the number of the last seek.
    seeks: u64,
    packets: Arc<PooledPackets>,
    /// True once the connection to the worker has ended; set by the thread of `_watcher`.
    gone: Arc<AtomicBool>,
    spec: DemuxerSpec,
    /// The demuxed input. Kept in this process, too, to check if there are bytes to read.
    input: DemuxedInput,
    /// Number of packets received so far, with those that a seek dropped.
    received: u64,
    /// Number of packets of the network that were lost so far.
    lost: u64,
    /// True from the end of the stream, or from a failure that the worker has reported, until a seek.
    ended: bool,
    stats: Arc<WorkerStats>,
}

impl RemoteDemuxer {
    /// Opens `input` in a worker.
    ///
    /// # Errors
    /// No worker can be started; the input cannot be read or reached; the worker refuses the input, ends,
    /// exceeds a limit or breaks the rules; this process lacks a resource; or a signal (Ctrl-C) or stop
    /// request canceled the wait.
    pub(crate) fn open(input: DemuxedInput, spec: DemuxerSpec) -> Result<RemoteDemuxer, HostError> {
        let sizes = area_sizes(spec.options.kind.memory_bytes, MOST_PACKET_BYTES);
        let area = Arc::new(SharedArea::new(sizes)?);
        let worker = start::worker(spec.service.as_ref(), &spec.options)?;
        let socket = worker.socket.clone();
        send_input(&socket, &input, &spec, (&area, sizes))?;
        let (track_bytes, stream, duration) = opened(&worker, &input, spec.options.watchdog)?;
        let packets = PooledPackets::new(area.clone());
        let mut track = TrackInfo::from_bytes(&packets.kept(track_bytes)?, stream)
            .map_err(|error| HostError::Refused { text: error.to_string() })?;
        track.duration = duration;
        let gone = Arc::new(AtomicBool::new(false));
        let (reader, writer) = (completions(&area).1, submissions(&area).0);
        let watcher = watch_end(socket, gone.clone(), reader.bell().clone())?;
        let stats = Arc::<WorkerStats>::default();
        stats.pid.store(worker.process().pid(), Ordering::Relaxed);
        *stats.sandbox_note.lock().unwrap_or_else(PoisonError::into_inner) =
            sandbox::note(spec.options.kind.judged(worker.layers)).unwrap_or_default();
        let (received, lost, ended) = (0, 0, false);
        Ok(RemoteDemuxer {
            _watcher: watcher,
            worker,
            track,
            reader,
            writer,
            cells: sizes.cells,
            seeks: 0,
            packets,
            gone,
            spec,
            input,
            received,
            lost,
            ended,
            stats,
        })
    }

    /// Returns the track that the demuxer reads.
    pub(crate) fn track(&self) -> &TrackInfo {
        &self.track
    }

    /// Returns the statistics of the worker. The worker's CPU time is added when the demuxer is dropped.
    pub(crate) fn stats(&self) -> Arc<WorkerStats> {
        self.stats.clone()
    }

    /// Succeeds if the input is seekable, so that [`seek`](RemoteDemuxer::seek) can succeed.
    ///
    /// # Errors
    /// The reason, for the user.
    pub(crate) fn can_seek(&self) -> Result<(), &'static str> {
        self.input.is_seekable().then_some(()).ok_or(self.input.why_not_seekable())
    }

    /// Makes this worker's figures part of `stats`, those of an earlier worker for the same stream.
    pub(crate) fn add_to(&mut self, stats: &Arc<WorkerStats>) {
        stats.pid.store(self.worker.process().pid(), Ordering::Relaxed);
        self.stats = stats.clone();
    }

    /// Returns the number of packets received from this worker so far, with those that a seek or flush
    /// dropped, and the number of packets that were lost in the network meanwhile.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.received, self.lost)
    }

    /// Seeks to another position, also after the end. Waits for the worker's answer, and drops the packets
    /// that arrive before it. Returns `Ok` after a signal (Ctrl-C) or a stop request, without the answer.
    ///
    /// # Errors
    /// As [`read`](RemoteDemuxer::read).
    pub(crate) fn seek(&mut self, to: DemuxPosition) -> Result<(), HostError> {
        self.ended = false;
        self.seeks += 1;
        let number = self.seeks;
        // The ring has room, because each seek is answered before the next.
        if !self.writer.push(&Submission::Seek { number, to }.encode())? {
            return Err(Breach("a demuxer that does not take seeks").into());
        }
        let most = RINGS_BEFORE_ANSWER * u64::from(self.cells);
        let watchdog = self.spec.options.watchdog;
        // A seek may read the file from its start, as opening does.
        let mut wait = DemuxerWait::to_open(&self.worker.process, &self.input, watchdog);
        for _ in 0..most {
            let Some(cell) = self.next_cell(&mut wait)? else { return Ok(()) };
            match Completion::decode(&cell)? {
                Completion::Flushed { number: answered } if answered == number => return Ok(()),
                // The end was sent before the seek.
                Completion::End => {}
                Completion::Failed => return Err(self.failure()?),
                packet => drop(self.packet(packet)?),
            }
        }
        Err(Breach("too many packets before the answer to a seek").into())
    }

    /// Reads the next packet; `None` after the last packet of the last loop, after a signal (Ctrl-C) or a
    /// stop request, and, until a seek, after an error that the worker reported or by which this process
    /// could not read the input.
    ///
    /// # Errors
    /// The error of the demuxer, as the worker reported it; this process could not read the input for the
    /// worker; no packet came from the network in time; the worker ended, hung or broke the rules; or there
    /// is no memory for the packet. All packets before the error were returned.
    pub(crate) fn read(&mut self) -> Result<Option<Packet>, HostError> {
        let mut wait = None;
        while !self.ended {
            let (process, watchdog) = (&self.worker.process, self.spec.options.watchdog);
            let input = &self.input;
            let wait = wait.get_or_insert_with(|| DemuxerWait::for_packet(process, input, watchdog));
            let Some(cell) = self.next_cell(wait)? else { break };
            match Completion::decode(&cell)? {
                Completion::End => {
                    self.ended = true;
                    // The demuxer may take a failed read for the end.
                    if let Some(failure) = self.input.failure() {
                        return Err(failure);
                    }
                }
                Completion::Failed => return Err(self.failure()?),
                packet => return self.packet(packet).map(Some),
            }
        }
        Ok(None)
    }

    /// Waits for the worker's next cell; `None` after a signal (Ctrl-C) or a stop request.
    ///
    /// # Errors
    /// The worker ended, exceeded a limit of `wait`, or broke the rules of shared memory.
    fn next_cell(&mut self, wait: &mut DemuxerWait) -> Result<Option<Cell>, HostError> {
        loop {
            // Read before the ring, so that the last cells of a dead worker are taken before its end is
            // reported. Acquire: pairs with the Release in `watch_end`.
            let gone = self.gone.load(Ordering::Acquire);
            if let Some(cell) = self.reader.pop()? {
                self.stats.traffic.cells_in.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(cell));
            }
            if gone {
                return Err(HostError::DemuxerEnded { packets: self.received });
            }
            if signal::interrupted() {
                return Ok(None);
            }
            let gone = &self.gone;
            meter::blocked(|| self.reader.sleep(|| gone.load(Ordering::Acquire), Some(CHECK_INTERVAL)));
            wait.check(&self.worker.process, &self.input, self.received)?;
        }
    }

    fn packet(&mut self, completion: Completion) -> Result<Packet, HostError> {
        let Completion::Packet { pts, duration, offset, len, id, key, is_damaged, transit, preroll, lost } =
            completion
        else {
            return Err(Breach("an unexpected completion of a demuxer").into());
        };
        // An empty, damaged packet reports that the rest of the input cannot be read.
        if self.received == 0 && len == 0 && is_damaged {
            if let Some(reason) = self.input.why_unreadable() {
                return Err(HostError::Failed { text: reason.to_owned() });
            }
        }
        let bytes = self.packets.packet(offset, len, id)?;
        meter::count_copied(len as usize);
        let orientation = self.track.stream.orientation;
        let meta = FrameMeta { pts, duration, orientation, ..FrameMeta::default() };
        let packet = Packet::shared(bytes, meta, key);
        let packet = if transit || self.spec.private { packet.and_then(Packet::private) } else { packet };
        let no_memory = || HostError::Failed { text: "no memory for a packet".to_owned() };
        let mut packet = packet.ok_or_else(no_memory)?;
        *packet.preroll_mut() = preroll;
        if is_damaged {
            packet.set_damaged();
        }
        self.received += 1;
        self.lost += u64::from(lost);
        Ok(packet)
    }

    /// Receives the message that belongs to a failure, and returns it as an error of the demuxer; or the
    /// reason why the input could not be read.
    ///
    /// # Errors
    /// There is no such message, or the socket failed.
    fn failure(&mut self) -> Result<HostError, HostError> {
        self.ended = true;
        match recv_within(&self.worker.socket, Duration::ZERO)? {
            Some((Message::Failed { text, .. }, _)) => {
                Ok(self.input.failure().unwrap_or_else(|| HostError::failed_in_worker(&text)))
            }
            _ => Err(Breach("failure reported without an error message").into()),
        }
    }
}

/// Sends the worker at `socket` the input, and the order to demux it as `spec` says, in the shared memory
/// `area`.
///
/// # Errors
/// A message cannot be sent, for example because the worker is gone; or the text of a network source does not
/// fit into the shared memory.
fn send_input(
    socket: &Socket,
    input: &DemuxedInput,
    spec: &DemuxerSpec,
    (area, sizes): (&Arc<SharedArea>, Sizes),
) -> Result<(), HostError> {
    let (name, descriptor, bytes) = match input {
        DemuxedInput::File(file) if file.is_sequence() => (file.name(), file.as_fd(), InputBytes::Pictures),
        DemuxedInput::File(file) => (file.name(), file.as_fd(), InputBytes::File),
        #[cfg(feature = "http")]
        DemuxedInput::Served(server) => {
            (server.name(), server.worker_end(), InputBytes::Requested { size: server.size() })
        }
        DemuxedInput::Network(source) => return send_network(socket, source, spec, (area, sizes)),
    };
    send(socket, &Message::File { name: name.to_owned() }, Some(descriptor))?;
    let demux = Demux {
        seekable: input.is_seekable(),
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

fn send_network(
    socket: &Socket,
    source: &NetworkSource,
    spec: &DemuxerSpec,
    (area, sizes): (&Arc<SharedArea>, Sizes),
) -> Result<(), HostError> {
    let mut text = PacketArea::new(area.clone());
    if !text.keep(&source.text) {
        return Err(HostError::PacketSize { bytes: source.text.len(), most: text.largest() });
    }
    let demux = DemuxNetwork {
        transport: source.transport,
        text_bytes: source.text.len() as u32,
        track: spec.track,
        latency_ns: nanoseconds(source.latency),
        timeout_ns: nanoseconds(source.timeout),
        cells: sizes.cells,
        packet_bytes: sizes.packet_bytes,
        faults: spec.options.faults.to_string(),
    };
    send(socket, &Message::DemuxNetwork(demux), Some(area.fd()))
}

/// Returns a time in nanoseconds, as messages have it; `u64::MAX` if it is longer.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Waits until the worker has the input open. Returns the size of the track's description in bytes,
/// the stream, and the duration that its container declares.
///
/// # Errors
/// The worker refused the input, ended, exceeded a limit or broke the rules; this process could not read the
/// input for the worker; or a signal (Ctrl-C) or stop request canceled the wait.
fn opened(
    worker: &Worker,
    input: &DemuxedInput,
    watchdog: Duration,
) -> Result<(u32, StreamInfo, Option<Duration>), HostError> {
    let failed = |source| HostError::Socket { operation: "wait for the worker", source };
    let mut wait = DemuxerWait::to_open(&worker.process, input, watchdog);
    while !worker.socket.readable_within(CHECK_INTERVAL).map_err(failed)? {
        if signal::interrupted() {
            return Err(failed(canceled()));
        }
        wait.check(&worker.process, input, 0)?;
    }
    match recv_within(&worker.socket, Duration::ZERO)? {
        Some((Message::Demuxed { track_bytes, stream, duration_ns }, _))
            if track_bytes as usize <= MOST_TRACK_BYTES =>
        {
            Ok((track_bytes, stream, (duration_ns > 0).then(|| Duration::from_nanos(duration_ns))))
        }
        Some((Message::Demuxed { .. }, _)) => Err(Breach("a description of a track that is too long").into()),
        Some((Message::Refused { text }, _)) => Err(input.failure().unwrap_or(HostError::Refused { text })),
        Some(_) => Err(HostError::NotOpened { what: "start worker: the worker sent an unexpected message" }),
        None => Err(HostError::NotOpened { what: "start worker: the worker ended while it opened the file" }),
    }
}

/// Starts a thread that sets `gone` and rings `bell` when the connection to the worker at `socket` ends.
fn watch_end(socket: Arc<Socket>, gone: Arc<AtomicBool>, bell: Bell) -> Result<Watcher, HostError> {
    let at_end = move || {
        // Release: pairs with the Acquire in `next_cell`, which then finds the
        // worker's last cells.
        gone.store(true, Ordering::Release);
        bell.ring_out();
    };
    watch(socket, CHECK_INTERVAL, || WatchResult::Quiet, at_end)
        .map_err(|source| HostError::Socket { operation: "watch the worker", source })
}

impl Drop for RemoteDemuxer {
    fn drop(&mut self) {
        // Read before the worker is ended: a process that was reaped has no CPU clock.
        self.stats.cpu_ns.fetch_add(self.worker.process().cpu_ns(), Ordering::Relaxed);
        // The worker exits when its connection closes; if it does not, dropping the fields kills a worker of
        // this program. `kill` is not called, because the service would start another worker.
        self.worker.socket.shut();
    }
}
