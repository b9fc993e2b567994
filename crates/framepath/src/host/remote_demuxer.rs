// SPDX-License-Identifier: MIT OR Apache-2.0
//! A demuxer in a worker, as its caller sees it.
//!
//! The worker gets the open file and nothing else. It reads ahead, as far as the
//! ring and the shared memory reach, so that a paced path wakes it once for half
//! a ring of packets. What it sends is checked; its bytes are never a slice here,
//! and are copied once more, into the decoder's memory.
//!
//! A seek goes into the ring to the worker, which looks there between two packets. What
//! it sends before its answer is dropped: that also makes the room it may wait for.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use framepath_codec::{MediaFile, Packet, TrackInfo};
use framepath_model::stream::FrameMeta;
use framepath_model::wire::{Cell, Completion, Demux, Message, Place, Submission};
use framepath_os::cancel::canceled;
use framepath_os::crossing::{
    Area, Bell, Breach, CellReader, CellWriter, Look, PooledPackets, Socket, Watcher, completions,
    submissions, watch,
};
use framepath_os::{meter, signal};

use super::policy::{LOOK, Patience};
use super::process::Worker;
use super::say::{hear_within, say};
use super::seat::Seat;
use super::spec::area_sizes;
use super::start;
use super::{HostError, WorkerOptions, WorkerStats, sandbox};

/// Most room for packets.
const MOST_PACKET_BYTES: u64 = 128 << 20;
/// Rings full of packets that may come before the answer to a seek: one, and the packet
/// in the worker's hands.
const RINGS_BEFORE_ANSWER: u64 = 2;
/// Longest description of a track.
pub(super) const MOST_TRACK_BYTES: usize = 4 << 20;
/// Work of a demuxer's worker.
pub(crate) struct DemuxerSpec {
    /// How often the file is read, at least once.
    pub(crate) loops: u64,
    /// Where each reading begins.
    pub(crate) start: Duration,
    /// Number of the video track; `None` is the best.
    pub(crate) track: Option<u32>,
    pub(crate) options: WorkerOptions,
    /// Where the worker comes from the service, the stream's place there.
    pub(crate) seat: Option<Arc<Seat>>,
    /// True if this process reads the packets' bytes itself: they are then copied
    /// out of the shared memory.
    pub(crate) private: bool,
}

/// Reads the packets of a file that a worker demuxes. Dropping it ends the worker.
pub(crate) struct RemoteDemuxer {
    // First: its thread uses the rest, and is waited for.
    _watcher: Watcher,
    worker: Worker,
    track: TrackInfo,
    reader: CellReader,
    /// Writes seeks.
    writer: CellWriter,
    /// Number of cells of each ring.
    cells: u32,
    seeks: u64,
    packets: Arc<PooledPackets>,
    gone: Arc<AtomicBool>,
    spec: DemuxerSpec,
    /// Open here too, to see whether there is something to read.
    file: MediaFile,
    /// Packets received so far.
    received: u64,
    ended: bool,
    stats: Arc<WorkerStats>,
}

impl RemoteDemuxer {
    /// Has a worker open `file`.
    ///
    /// # Errors
    /// No worker, or the file is refused.
    pub(crate) fn open(file: MediaFile, spec: DemuxerSpec) -> Result<RemoteDemuxer, HostError> {
        let sizes = area_sizes(spec.options.kind.memory_bytes, MOST_PACKET_BYTES);
        let area = Arc::new(Area::new(sizes)?);
        let worker = start::worker(spec.seat.as_ref(), &spec.options)?;
        let socket = worker.socket.clone();
        let (name, seekable) = (file.name().to_owned(), file.is_seekable());
        say(&socket, &Message::File { name }, Some(file.as_fd()))?;
        let demux = Demux {
            seekable,
            loops: spec.loops.max(1),
            track: spec.track,
            start_ns: u64::try_from(spec.start.as_nanos()).unwrap_or(u64::MAX),
            cells: sizes.cells,
            packet_bytes: sizes.packet_bytes,
            faults: spec.options.faults.to_string(),
        };
        say(&socket, &Message::Demux(demux), Some(area.fd()))?;
        let (track_bytes, stream) = opened(&worker, &file, spec.options.watchdog)?;
        let packets = PooledPackets::new(area.clone());
        let track = TrackInfo::from_bytes(&packets.kept(track_bytes)?, stream)
            .map_err(|error| HostError::Refused { text: error.to_string() })?;
        let gone = Arc::new(AtomicBool::new(false));
        let (reader, writer) = (completions(&area).1, submissions(&area).0);
        let watcher = watch_end(socket, gone.clone(), reader.bell().clone())?;
        let stats = Arc::<WorkerStats>::default();
        stats.pid.store(worker.process().pid(), Ordering::Relaxed);
        *stats.sandbox_note.lock().unwrap_or_else(PoisonError::into_inner) =
            sandbox::note(worker.layers).unwrap_or_default();
        let (received, ended) = (0, false);
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
            file,
            received,
            ended,
            stats,
        })
    }

    /// The video it reads.
    pub(crate) fn track(&self) -> &TrackInfo {
        &self.track
    }

    /// Figures of the worker. Its CPU time is there once this is dropped.
    pub(crate) fn stats(&self) -> Arc<WorkerStats> {
        self.stats.clone()
    }

    /// True if [`seek`](RemoteDemuxer::seek) can work.
    pub(crate) fn is_seekable(&self) -> bool {
        self.file.is_seekable()
    }

    /// Goes on at another place, also behind the end. Waits until the worker is there.
    ///
    /// # Errors
    /// As [`read`](RemoteDemuxer::read).
    pub(crate) fn seek(&mut self, to: Place) -> Result<(), HostError> {
        self.ended = false;
        self.seeks += 1;
        let number = self.seeks;
        // Each is answered before the next: there is room.
        if !self.writer.push(&Submission::Seek { number, to }.encode())? {
            return Err(Breach("a demuxer took no seek").into());
        }
        let most = RINGS_BEFORE_ANSWER * u64::from(self.cells);
        let watchdog = self.spec.options.watchdog;
        // It may read the file from its start.
        let mut wait = Patience::to_open(&self.worker.process, watchdog);
        for _ in 0..most {
            let Some(cell) = self.next_cell(&mut wait)? else { return Ok(()) };
            match Completion::decode(&cell)? {
                Completion::Flushed { number: answered } if answered == number => return Ok(()),
                // From before the seek.
                Completion::End => {}
                Completion::Failed => return Err(self.failure()?),
                packet => drop(self.packet(packet)?),
            }
        }
        Err(Breach("packets without end before the answer to a seek").into())
    }

    /// The next packet; `None` behind the last of the last loop, and after
    /// Ctrl-C.
    ///
    /// # Errors
    /// The demuxer's error; or the worker ended, stood still or broke the rules
    /// of shared memory. The packets before that were handed out.
    pub(crate) fn read(&mut self) -> Result<Option<Packet>, HostError> {
        let mut wait = None;
        while !self.ended {
            let (process, watchdog) = (&self.worker.process, self.spec.options.watchdog);
            let wait = wait.get_or_insert_with(|| Patience::for_packet(process, watchdog));
            let Some(cell) = self.next_cell(wait)? else { break };
            match Completion::decode(&cell)? {
                Completion::End => self.ended = true,
                Completion::Failed => return Err(self.failure()?),
                packet => return self.packet(packet).map(Some),
            }
        }
        Ok(None)
    }

    /// Waits for the worker's next cell; `None` after Ctrl-C.
    fn next_cell(&mut self, wait: &mut Patience) -> Result<Option<Cell>, HostError> {
        loop {
            // Looked at before the ring: what the worker sent before its end is
            // taken first. Acquire: pairs with the Release at its end.
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
            meter::blocked(|| self.reader.sleep(|| gone.load(Ordering::Acquire), Some(LOOK)));
            wait.check(&self.worker.process, &self.file, self.received)?;
        }
    }

    fn packet(&mut self, completion: Completion) -> Result<Packet, HostError> {
        let Completion::Packet { pts, duration, offset, len, id, key, transit, preroll } = completion else {
            return Err(Breach("a demuxer sent what is no packet").into());
        };
        let bytes = self.packets.packet(offset, len, id)?;
        meter::count_copied(len as usize);
        let meta = FrameMeta { pts, duration, ..FrameMeta::default() };
        let packet = Packet::shared(bytes, meta, key);
        let packet = if transit || self.spec.private { packet.and_then(Packet::private) } else { packet };
        let no_memory = || HostError::Failed { text: "no memory for a packet".to_owned() };
        let mut packet = packet.ok_or_else(no_memory)?;
        *packet.preroll_mut() = preroll;
        self.received += 1;
        Ok(packet)
    }

    /// The words that belong to a failure.
    fn failure(&mut self) -> Result<HostError, HostError> {
        self.ended = true;
        match hear_within(&self.worker.socket, Duration::ZERO)? {
            Some((Message::Failed { text, .. }, _)) => Ok(HostError::Failed { text }),
            _ => Err(Breach("failure reported without an error message").into()),
        }
    }
}

/// Waits until the worker has the file open: bytes of the track's description, and its
/// stream.
fn opened(
    worker: &Worker,
    file: &MediaFile,
    watchdog: Duration,
) -> Result<(u32, framepath_model::stream::StreamInfo), HostError> {
    let failed = |source| HostError::Socket { operation: "waiting for", source };
    let mut wait = Patience::to_open(&worker.process, watchdog);
    while !worker.socket.readable_within(LOOK).map_err(failed)? {
        if signal::interrupted() {
            return Err(failed(canceled()));
        }
        wait.check(&worker.process, file, 0)?;
    }
    match hear_within(&worker.socket, Duration::ZERO)? {
        Some((Message::Demuxed { track_bytes, stream }, _)) if track_bytes as usize <= MOST_TRACK_BYTES => {
            Ok((track_bytes, stream))
        }
        Some((Message::Demuxed { .. }, _)) => Err(Breach("a track's description without end").into()),
        Some((Message::Refused { text }, _)) => Err(HostError::Refused { text }),
        Some(_) => Err(HostError::NotOpened { what: "said something else" }),
        None => Err(HostError::NotOpened { what: "died" }),
    }
}

/// Sets `gone` and rings `bell` at the worker's end.
fn watch_end(socket: Arc<Socket>, gone: Arc<AtomicBool>, bell: Bell) -> Result<Watcher, HostError> {
    let at_end = move || {
        // Release: pairs with the Acquire in `read`, which then finds the
        // worker's last cells.
        gone.store(true, Ordering::Release);
        bell.ring_out();
    };
    watch(socket, LOOK, || Look::Quiet, at_end)
        .map_err(|source| HostError::Socket { operation: "watching", source })
}

impl Drop for RemoteDemuxer {
    fn drop(&mut self) {
        // Before it is ended: a dead one that was reaped has no clock.
        self.stats.cpu_ns.fetch_add(self.worker.process().cpu_ns(), Ordering::Relaxed);
        // The worker leaves when its caller does; the fields' ends see to it where it
        // does not. A service is asked for nothing: a kill would ask for another worker.
        self.worker.socket.shut();
    }
}
