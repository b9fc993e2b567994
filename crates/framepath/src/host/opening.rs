// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening of a stream in a worker: in the first worker, and in each replacement.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, PoisonError};

use framepath_model::stream::StreamInfo;
use framepath_model::wire::{Message, Open};
use framepath_os::crossing::{PacketArea, SharedArea, Socket, Watcher, completions, submissions, watch};
use framepath_os::v4l2::Node;

use super::collect::CollectEnd;
use super::health::WorkerHealth;
use super::memory::Granter;
use super::message_io::{check_answers_received, recv_within, send};
use super::policy::OPENING;
use super::process::Worker;
use super::receiving::{CONSTANTS, Receiving};
use super::session::Session;
use super::spec::{Attempt, Spec, Start, area_sizes};
use super::submit::{Sending, SubmitEnd};
use super::worker_stream::WorkerStream;
use super::{HostError, sandbox, start};

/// Maximum size of the shared memory for packets of a stage's worker, bytes.
const MOST_PACKET_BYTES: u64 = 64 << 20;

/// Maximum number of unread entries in the log: two rings of inputs, so that a sleeping collect end is
/// not woken for each input.
const LOGGED: usize = 128;

impl Session {
    /// Opens the stream in a first worker. Returns the stream's description behind the stage, and the
    /// two ends.
    ///
    /// # Errors
    /// No worker can be started, or the worker's sandbox lacks a required layer. The worker refuses the
    /// stage, ends, sends no message in time or breaks the rules. The device that decodes cannot be opened,
    /// or the track's description is too large for the shared memory. This process lacks a resource, or a
    /// system call for the worker failed.
    pub fn start(
        self: &Arc<Session>,
        stream: StreamInfo,
    ) -> Result<(StreamInfo, SubmitEnd, CollectEnd), HostError> {
        let start = Start { stream, level: self.level.load(Ordering::Relaxed) };
        let worker = start::worker(self.spec.service.as_ref(), &self.spec.options)?;
        let (link, sending, receiving) = open(worker, &self.spec, start, (0, Attempt::First))?;
        let stream = link.stream;
        *self.stats.sandbox_note.lock().unwrap_or_else(PoisonError::into_inner) =
            sandbox::note(link.layers()).unwrap_or_default();
        self.set_worker(&link);
        let ((log, logged), (commands, received)) = (sync_channel(LOGGED), channel());
        let submit = SubmitEnd::new(log, received, sending);
        let collect = CollectEnd::new(self.clone(), start, (link, receiving), logged, commands);
        Ok((stream, submit, collect))
    }
}

/// A worker's answer to [`Message::Open`].
struct Opened {
    threads: u32,
    replayable: bool,
    stream: StreamInfo,
}

/// Opens the stream of `spec` in `worker`, which is the stream's worker `number`. Returns the connection to
/// the worker, the right to submit, and the receiver of completions.
///
/// # Errors
/// The worker refuses the stage, ends, sends no message in time or breaks the rules; the device that decodes
/// cannot be opened; the track's description is too large for the shared memory; this process lacks a
/// resource; or a system call for the worker failed.
pub(super) fn open(
    worker: Worker,
    spec: &Spec,
    start: Start,
    (number, attempt): (u64, Attempt),
) -> Result<(Arc<WorkerStream>, Box<Sending>, Receiving), HostError> {
    let mut sizes = area_sizes(spec.options.kind.memory_bytes, MOST_PACKET_BYTES);
    if spec.track.is_none() && spec.encodes.is_none() {
        sizes.packet_bytes = 0;
    }
    let area = Arc::new(SharedArea::new(sizes)?);
    let mut packets = PacketArea::new(area.clone());
    let track = spec.track.as_ref().map(|track| track.to_bytes()).unwrap_or_default();
    if !track.is_empty() && !packets.keep(&track) {
        return Err(HostError::PacketSize { bytes: track.len(), most: packets.largest() });
    }
    let open = Open {
        stage: spec.stage_text(attempt),
        level: start.level,
        lent: spec.provider.is_some(),
        track_bytes: track.len() as u32,
        frames_behind: spec.frames_behind,
        stream: start.stream,
        cells: sizes.cells,
        packet_bytes: sizes.packet_bytes,
        faults: spec.faults(attempt).to_string(),
    };
    let mut granter = Granter::new(spec.options.kind.memory_bytes);
    let Opened { threads, replayable, stream } = ask(&worker.socket, spec, open, &area, &mut granter)?;
    let health = Arc::new(WorkerHealth::new(area.clone(), spec.options.watchdog, spec.least_out));
    // Counts only the messages `Open` and `Opened`, not those about the device and memory.
    health.traffic.message_out();
    health.traffic.message_in();
    let (socket, watcher) = (worker.socket.clone(), watch_over(&worker, spec, &health)?);
    let (writer, reader) = (submissions(&area).0, completions(&area).1);
    let link =
        Arc::new(WorkerStream { number, area, socket, health, watcher, worker, threads, replayable, stream });
    let receiving = Receiving::new(&link, reader, granter, spec, &start.stream);
    Ok((link.clone(), Box::new(Sending::new(link, writer, packets)), receiving))
}

/// Sends the worker the device, if the stage decodes with one, and the message that opens the stream. Grants
/// or denies the memory that the worker requests meanwhile. Returns the worker's answer.
///
/// # Errors
/// The device cannot be opened; the worker refuses the stage, ends, sends no message in time, requests memory
/// more than [`CONSTANTS`] times or breaks the rules; or the socket failed.
fn ask(
    socket: &Socket,
    spec: &Spec,
    open: Open,
    area: &SharedArea,
    granter: &mut Granter,
) -> Result<Opened, HostError> {
    if let Some(node) = spec.options.kind.device() {
        // Opened for each worker, so that the device has no state of the previous worker.
        let opened = Node::open(node)?;
        send(socket, &Message::Device { node: node.display().to_string() }, Some(opened.fd()))?;
    }
    send(socket, &Message::Open(open), Some(area.fd()))?;
    let mut requests = 0;
    loop {
        match recv_within(socket, OPENING)? {
            Some((Message::Opened { threads, replayable, stream, .. }, _)) => {
                return Ok(Opened { threads, replayable, stream });
            }
            // A stage may make its pool when it is constructed.
            Some((Message::RequestMemory { bytes }, _)) if requests < CONSTANTS => {
                requests += 1;
                check_answers_received(socket, || 0)?;
                let (answer, memory) = granter.grant(bytes);
                send(socket, &answer, memory.as_ref().map(AsFd::as_fd))?;
            }
            Some((Message::Refused { text }, _)) => return Err(HostError::Refused { text }),
            Some(_) => {
                return Err(HostError::NotOpened {
                    what: "start worker: the worker sent an unexpected message",
                });
            }
            None => {
                return Err(HostError::NotOpened {
                    what: "start worker: the worker ended while it opened the stream",
                });
            }
        }
    }
}

fn watch_over(worker: &Worker, spec: &Spec, health: &Arc<WorkerHealth>) -> Result<Watcher, HostError> {
    let (checked, ended, process) = (health.clone(), health.clone(), worker.process());
    let check = move || checked.check(|| process.kill());
    watch(worker.socket.clone(), spec.options.watchdog / 4, check, move || ended.end())
        .map_err(|source| HostError::Socket { operation: "watch the worker", source })
}
