// SPDX-License-Identifier: MIT OR Apache-2.0
//! A demuxer in a worker, as its caller sees it.
//!
//! The worker gets the open file and nothing else. It reads ahead, as far as the
//! ring and the shared memory reach, so that a paced path wakes it once for half
//! a ring of packets. What it sends is checked; its bytes are never a slice here,
//! and are copied once more, into the decoder's memory.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use framepath_codec::{MediaFile, Packet, TrackInfo};
use framepath_model::stream::FrameMeta;
use framepath_model::wire::{Completion, Demux, Message};
use framepath_os::cancel::{canceled, is_readable};
use framepath_os::crossing::{
    Area, Breach, CellReader, Look, PooledPackets, Sizes, Watcher, completions, watch,
};
use framepath_os::{meter, signal};

use super::process::Worker;
use super::say::{hear_within, say};
use super::seat::Seat;
use super::start;
use super::{HostError, WorkerOptions, WorkerStats, sandbox};

/// Cells of each ring: packets that are read ahead.
const CELLS: u32 = 64;
/// Room for packets: at most this, and an eighth of what the worker may take.
/// Memory is taken only where they reach.
const MOST_PACKET_BYTES: u64 = 128 << 20;
const LEAST_PACKET_BYTES: u64 = 8 << 20;
/// Longest description of a track.
pub(super) const MOST_TRACK_BYTES: usize = 4 << 20;
/// How long the worker may give nothing, in watchdogs, while there is something to
/// read: a slow disk is no fault of the worker's. So long it may compute, too, before
/// the file is open.
const SILENCE: u32 = 10;
/// Time between two looks at a worker that is waited for.
const LOOK: Duration = Duration::from_millis(200);

/// What a demuxer's worker is to do.
pub(crate) struct DemuxerSpec {
    /// How often the file is read, at least once.
    pub(crate) loops: u64,
    pub(crate) options: WorkerOptions,
    /// Where the worker comes from the service, the stream's place there.
    pub(crate) seat: Option<Arc<Seat>>,
    /// Whether packets are for this process to look into: their bytes are copied
    /// out of the shared memory then.
    pub(crate) private: bool,
}

/// Reads the packets of a file that a worker demuxes. Dropping it ends the worker.
pub(crate) struct RemoteDemuxer {
    // First: its thread uses the rest, and is waited for.
    _watcher: Watcher,
    worker: Worker,
    track: TrackInfo,
    reader: CellReader,
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
        let memory = spec.options.memory_bytes / 8;
        let packet_bytes = memory.clamp(LEAST_PACKET_BYTES, MOST_PACKET_BYTES) & !0xfff;
        let sizes = Sizes { cells: CELLS, packet_bytes };
        let area = Arc::new(Area::new(sizes)?);
        let worker = start::worker(spec.seat.as_ref(), &spec.options)?;
        let socket = worker.socket.clone();
        let (name, seekable) = (file.name().to_owned(), file.is_seekable());
        say(&socket, &Message::File { name }, Some(file.as_fd()))?;
        let demux = Demux {
            seekable,
            loops: spec.loops.max(1),
            cells: sizes.cells,
            packet_bytes,
            faults: spec.options.faults.to_string(),
        };
        say(&socket, &Message::Demux(demux), Some(area.fd()))?;
        let mut wait = Wait::new(&worker);
        while !socket
            .readable_within(LOOK)
            .map_err(|source| HostError::Socket { operation: "waiting for", source })?
        {
            if signal::interrupted() {
                return Err(HostError::Socket { operation: "waiting for", source: canceled() });
            }
            let watchdog = spec.options.watchdog;
            wait.check(&worker, &file, watchdog * SILENCE, watchdog * SILENCE, 0)?;
        }
        let (track_bytes, stream) = match hear_within(&socket, Duration::ZERO)? {
            Some((Message::Demuxed { track_bytes, stream }, _)) => (track_bytes, stream),
            Some((Message::Refused { text }, _)) => return Err(HostError::Refused { text }),
            Some(_) => return Err(HostError::NotOpened { what: "said something else" }),
            None => return Err(HostError::NotOpened { what: "died" }),
        };
        if track_bytes as usize > MOST_TRACK_BYTES {
            return Err(Breach("a track's description without end").into());
        }
        let packets = PooledPackets::new(area.clone());
        let track = TrackInfo::from_bytes(&packets.kept(track_bytes)?, stream)
            .map_err(|error| HostError::Refused { text: error.to_string() })?;
        let gone = Arc::new(AtomicBool::new(false));
        let reader = completions(&area).1;
        let watcher = {
            let (gone, bell) = (gone.clone(), reader.bell().clone());
            let at_end = move || {
                // Release: pairs with the Acquire in `read`, which then finds the
                // worker's last cells.
                gone.store(true, Ordering::Release);
                bell.ring_out();
            };
            watch(socket, LOOK, || Look::Quiet, at_end)
                .map_err(|source| HostError::Socket { operation: "watching", source })?
        };
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

    /// The next packet; `None` behind the last of the last loop, and after
    /// Ctrl-C.
    ///
    /// # Errors
    /// What the demuxer said; or the worker ended, stood still or broke the rules
    /// of shared memory. The packets before that were handed out.
    pub(crate) fn read(&mut self) -> Result<Option<Packet>, HostError> {
        let mut waiting = None;
        while !self.ended {
            // Looked at before the ring: what the worker sent before its end is
            // taken first. Acquire: pairs with the Release at its end.
            let gone = self.gone.load(Ordering::Acquire);
            if let Some(cell) = self.reader.pop()? {
                self.stats.traffic.cell_in();
                match Completion::decode(&cell)? {
                    Completion::End => self.ended = true,
                    Completion::Failed => return Err(self.failure()?),
                    packet => return self.packet(packet).map(Some),
                }
                continue;
            }
            if gone {
                return Err(HostError::DemuxerEnded { packets: self.received });
            }
            if signal::interrupted() {
                break;
            }
            let wait = waiting.get_or_insert_with(|| Wait::new(&self.worker));
            let gone = &self.gone;
            meter::blocked(|| self.reader.sleep(|| gone.load(Ordering::Acquire), Some(LOOK)));
            let watchdog = self.spec.options.watchdog;
            wait.check(&self.worker, &self.file, watchdog, watchdog * SILENCE, self.received)?;
        }
        Ok(None)
    }

    fn packet(&mut self, completion: Completion) -> Result<Packet, HostError> {
        let Completion::Packet { pts, duration, offset, len, id, key, transit } = completion else {
            return Err(Breach("a demuxer sent what is no packet").into());
        };
        let bytes = self.packets.packet(offset, len, id)?;
        meter::count_copied(len as usize);
        let meta = FrameMeta { pts, duration, ..FrameMeta::default() };
        let packet = Packet::shared(bytes, meta, key);
        let packet = if transit || self.spec.private { packet.and_then(Packet::private) } else { packet };
        let no_memory = || HostError::Failed { text: "no memory for a packet".to_owned() };
        let packet = packet.ok_or_else(no_memory)?;
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

/// A wait for the worker.
struct Wait {
    since: Instant,
    /// CPU time of the worker then, nanoseconds.
    cpu_ns: u64,
    /// Since when every look found something to read, or the end of a pipe.
    readable_since: Instant,
}

impl Wait {
    fn new(worker: &Worker) -> Wait {
        let since = Instant::now();
        Wait { since, cpu_ns: worker.process().cpu_ns(), readable_since: since }
    }

    /// Fails where the worker has computed for longer than `busy`, or given nothing
    /// for longer than `silent` while there was something to read. A pipe that has
    /// nothing may be silent. `packets` came before.
    fn check(
        &mut self,
        worker: &Worker,
        file: &MediaFile,
        busy: Duration,
        silent: Duration,
        packets: u64,
    ) -> Result<(), HostError> {
        if self.since.elapsed() < LOOK {
            return Ok(());
        }
        if !is_readable(file) {
            self.readable_since = Instant::now();
        }
        let computed = Duration::from_nanos(worker.process().cpu_ns().saturating_sub(self.cpu_ns));
        let silence = self.readable_since.elapsed();
        if computed > busy {
            return Err(HostError::DemuxerStuck { packets, what: "computed", after: computed });
        }
        if silence > silent {
            return Err(HostError::DemuxerStuck { packets, what: "gave nothing", after: silence });
        }
        Ok(())
    }
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
