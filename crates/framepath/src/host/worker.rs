// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worker's own side: the main function of a worker process. The worker runs one stage of one stream, or
//! demuxes one file or one stream from the network, for one caller.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use framepath_codec::{MediaFile, Packet, TrackInfo};
use framepath_model::format::Layout;
use framepath_model::orientation::Orientation;
use framepath_model::stream::FrameMeta;
use framepath_model::wire::{
    Completion, EncoderRequests, InputBytes, Message, Open, Submission, UpstreamRequest,
};
use framepath_os::crossing::{
    Breach, CellReader, PacketPool, Page, SharedArea, SharedPackets, Sizes, Socket, at_end, completions,
    submissions,
};
use framepath_os::measure::inherited_switches;
use framepath_os::measure::meter::{self, Level};
use framepath_os::memory::pool::{Frame, GiveBack, GiveBackWords};
use framepath_os::process::crash;
use framepath_os::process::sandbox::SandboxError;
use framepath_os::time::now_ns;
use framepath_os::v4l2::Node;

use super::HostError;
use super::buffer_provider::Borrower;
use super::demux_worker;
use super::export::{Export, Exporter, locked};
use super::fault::InjectedFaults;
use super::frame_inputs::FrameInputs;
use super::kind::{Task, WorkerKind};
use super::memory::MemoryClient;
use super::message_io::{recv, send};
use super::tally::Tally;
use crate::damage::DamageLog;
use crate::element::HopPlace;
use crate::item::Item;
use crate::out::{HopFailure, HopStage, Out, ThreadContext};
use crate::outcomes::Outcomes;
use crate::recorder::Recorder;
use crate::registry::Registry;
use crate::request::Request;
use crate::runner::{drain, flush};
use crate::stage::HopRole;

/// Number of rows of the worker's own ledger. A few are enough, because only the last row is read.
const ROWS: usize = 4;

/// Runs a worker from start to end: enters the sandbox of its kind, then serves the caller at the other
/// end of `socket`. From the caller's message that opens a stage or an input on, a thread ends the process
/// as soon as the caller closes the connection. This function returns `Ok` only if the caller closed the
/// connection before that message, or broke the rules while a stage was open.
///
/// Call this function in the main thread of a process that does nothing else.
///
/// # Errors
/// The sandbox cannot be entered or lacks a layer that the kind requires, or the plug-in or libavfilter
/// cannot be loaded; the caller gets this error, too. The caller sent an invalid or unexpected message. The
/// caller broke the rules of a demuxer, or of a stage that has failed. A system call failed: to send or
/// receive a message, to map the page of the service's counters, or to start the thread that watches the
/// caller. Errors of the stage or demuxer, also while it is opened, go to the caller and are not returned
/// here.
pub(crate) fn lock_in_and_serve(
    socket: OwnedFd,
    kind: WorkerKind,
    registry: &Registry,
) -> Result<(), HostError> {
    let socket = Arc::new(Socket::from(socket));
    // Counters of this thread, and the records of the threads that it will start, cannot be opened inside the
    // sandbox. Without the records, the time inside frame threads has no cause.
    meter::prepare();
    let _ = inherited_switches::prepare();
    match kind.lock_in() {
        Ok(layers) => send(&socket, &Message::Ready { layers: layers.bits() }, None)?,
        Err(error) => {
            let advice = match error {
                HostError::Sandbox(SandboxError::NoSeccomp { .. }) => "; set sandbox=allow to run without it",
                _ => "",
            };
            send(&socket, &Message::Refused { text: format!("{error}{advice}") }, None)?;
            return Err(error);
        }
    }
    serve(&socket, kind.task, registry)
}

fn serve(socket: &Arc<Socket>, task: Task, registry: &Registry) -> Result<(), HostError> {
    let (mut first, mut page, mut node) = (recv(socket)?, None, None);
    // The service sends the page of counters before it passes the other end of the socket to the caller.
    if let Some((Message::Page, Some(fd))) = first {
        page = Some(Page::open(fd).map_err(|errno| HostError::Socket {
            operation: "map the page of the service's counters",
            source: errno.into(),
        })?);
        first = recv(socket)?;
    }
    let first = match (&task, first) {
        (Task::Device(_), Some((Message::Device { node: name }, Some(fd)))) => {
            node = Some((PathBuf::from(name), fd));
            recv(socket)?
        }
        (Task::Stage, Some((Message::File { name }, Some(file)))) => {
            return serve_file(socket, name, file, page);
        }
        (Task::Network(_), Some((Message::DemuxNetwork(demux), Some(memory)))) => {
            at_end(socket.clone(), || crash::leave()).map_err(|source| HostError::Socket {
                operation: "watch the caller of the worker",
                source,
            })?;
            return demux_worker::demux_network(&demux, memory, socket);
        }
        (Task::Network(_), Some(_)) => {
            return Err(HostError::NotOpened { what: "the worker received an unexpected message" });
        }
        (_, first) => first,
    };
    let (open, fd) = match first {
        Some((Message::Open(open), Some(fd))) => (open, fd),
        Some(_) => return Err(HostError::NotOpened { what: "the worker received an unexpected message" }),
        None => return Ok(()),
    };
    // Ends the process when the caller closes the connection, even while the stage works.
    at_end(socket.clone(), || crash::leave())
        .map_err(|source| HostError::Socket { operation: "watch the caller of the worker", source })?;
    let mut stream = match Stream::open(&open, fd, socket, task, node, page, registry) {
        Ok((stream, opened)) => {
            send(socket, &opened, None)?;
            stream.memory.opened();
            stream
        }
        Err(error) => {
            send(socket, &Message::Refused { text: error.to_string() }, None)?;
            crash::hang()
        }
    };
    if let Err(Stopped::Stage(text)) = stream.run() {
        // Sent before the cell, so that the reader of the cell finds the text.
        send(socket, &Message::Failed { text, seq: None }, None)?;
        locked(&stream.exporter).complete(&Completion::Failed)?;
        // The caller still reads the frames in shared memory, and then kills this worker.
        crash::hang()
    }
    Ok(())
}

/// Serves a caller that has sent `file`, which is the open file or a socket for requests of its bytes: waits
/// for the demux message, and sends the file's packets. Returns only if the caller closed the connection
/// before that message or broke the rules, or a system call failed.
fn serve_file(
    socket: &Arc<Socket>,
    name: String,
    file: OwnedFd,
    page: Option<Page>,
) -> Result<(), HostError> {
    let (demux, memory) = match recv(socket)? {
        Some((Message::Demux(demux), Some(memory))) => (demux, memory),
        Some(_) => return Err(HostError::NotOpened { what: "the worker received an unexpected message" }),
        None => return Ok(()),
    };
    // Ends the process when the caller closes the connection, even while the demuxer works.
    at_end(socket.clone(), || crash::leave())
        .map_err(|source| HostError::Socket { operation: "watch the caller of the worker", source })?;
    let file = match demux.bytes {
        InputBytes::File => MediaFile::from_fd(file, name, demux.seekable),
        InputBytes::Requested { size } => MediaFile::by_requests(file, name, demux.seekable, size),
        InputBytes::Pictures => MediaFile::pictures(file, name),
    };
    demux_worker::demux(&demux, memory, file, socket, page.map(|page| Tally::new(page, "file")))
}

/// Reason why a stream stopped.
enum Stopped {
    /// The stage failed, its output cannot be passed to the caller, or there is no memory for a packet or an input
    /// pool. The text is the error message for the caller.
    Stage(String),
    /// The caller broke the rules, or the pool of an input frame cannot be received or is not as announced.
    Caller,
}

impl From<Breach> for Stopped {
    fn from(_: Breach) -> Stopped {
        Stopped::Caller
    }
}

/// One stream in its worker.
struct Stream {
    submissions: CellReader,
    packets: Arc<SharedPackets>,
    layouts: Vec<Option<Layout>>,
    exporter: Arc<Mutex<Exporter>>,
    chain: Vec<HopStage>,
    recorder: Recorder,
    delivery: ThreadContext,
    /// Faults to inject; `None` if there are none.
    faults: Option<InjectedFaults>,
    memory: Arc<MemoryClient>,
    damage: DamageLog,
    /// Requests of the last frame to the encoder.
    requests: EncoderRequests,
    /// Orientation that the container declares, for the pictures of packets.
    orientation: Orientation,
}

type Refusal = Box<dyn std::error::Error>;

impl Stream {
    fn open(
        open: &Open,
        fd: OwnedFd,
        socket: &Arc<Socket>,
        task: Task,
        node: Option<(PathBuf, OwnedFd)>,
        page: Option<Page>,
        registry: &Registry,
    ) -> Result<(Stream, Message), Refusal> {
        let sizes = Sizes { cells: open.cells, packet_bytes: open.packet_bytes };
        let area = Arc::new(SharedArea::open(fd, sizes)?);
        let packets = SharedPackets::new(area.clone());
        let track = match open.track_bytes {
            0 => None,
            len => Some(TrackInfo::from_bytes(&packets.kept(len)?, open.stream)?),
        };
        let takes_packets = track.is_some();
        let hop = registry.definitions().parse_stage(&open.stage).map_err(|error| {
            format!(
                "the worker's program cannot parse {:?}: {error}; a program with stages of its own calls \
                 framepath::worker::init_with first in main",
                open.stage
            )
        })?;
        let tally = page.map(|page| Tally::new(page, &open.stage));
        let exporter = Exporter::new(completions(&area).0, socket.clone(), tally);
        let exporter = Arc::new(Mutex::new(exporter));
        let memory = MemoryClient::new(socket.clone(), exporter.clone());
        let give_back = give_back(&area, memory.clone());
        let give_back = give_back.ok_or("the shared area has no room for the words that return frames")?;
        let provider =
            open.lent.then(|| Borrower::into_provider(socket.clone(), exporter.clone(), give_back));
        // An encoder has no pool: the words that return frames return its packets.
        let encodes = !takes_packets && open.packet_bytes > 0;
        let give_back = (!encodes).then_some(give_back);
        let damage = DamageLog::in_worker();
        let place = HopPlace {
            behind: &[],
            track,
            frames_behind: open.frames_behind,
            give_back,
            provider,
            plugin: if let Task::Plugin(file) = task { Some(file) } else { None },
            node: node.map(|(name, fd)| Node::from_open(fd, name).map(Arc::new)).transpose()?,
            outcomes: Outcomes { damage: damage.clone(), ..Outcomes::default() },
        };
        let mut stage = registry.make_stage(&hop, &place)?;
        let stream = stage.start(&open.stream)?;
        let (threads, replayable) = (stage.threads(), stage.replayable());
        locked(&exporter).inputs = (!takes_packets).then(|| FrameInputs::new(replayable));
        locked(&exporter).packets = if encodes { PacketPool::new(area.clone(), &[]) } else { None };
        let export = Box::new(Export(exporter.clone()));
        let level = level_of(open.level);
        let stream_in_worker = Stream {
            submissions: submissions(&area).1,
            packets,
            layouts: vec![None; 256],
            exporter,
            chain: vec![HopStage::new(stage, 0, HopRole::Through), HopStage::new(export, 1, HopRole::Sink)],
            recorder: Recorder::new(level, 0, ROWS),
            delivery: ThreadContext::in_worker(),
            faults: if open.faults.is_empty() { None } else { Some(open.faults.parse()?) },
            memory,
            damage,
            requests: EncoderRequests::default(),
            orientation: open.stream.orientation,
        };
        Ok((stream_in_worker, Message::Opened { threads, stream, replayable, takes_packets }))
    }

    /// Processes submissions; returns only with an error ([`Stopped`]). If the caller closes the connection,
    /// another thread ends the whole process.
    fn run(&mut self) -> Result<(), Stopped> {
        // CLOCK_MONOTONIC time when the ring became empty, nanoseconds.
        let mut idle_since = None;
        loop {
            let Some(cell) = self.submissions.pop()? else {
                idle_since.get_or_insert_with(now_ns);
                self.submissions.sleep(|| false, None);
                continue;
            };
            let idle_ns = idle_since.take().map_or(0, |since| now_ns() - since);
            locked(&self.exporter).idle_ns = u32::try_from(idle_ns).unwrap_or(u32::MAX);
            match Submission::decode(&cell).map_err(|_| Stopped::Caller)? {
                Submission::Packet { seq, pts, offset, len, key, is_damaged, preroll } => {
                    self.recorder.mark();
                    locked(&self.exporter).count_input(seq, pts);
                    self.inject(seq);
                    let bytes = self.packets.packet(offset, len)?;
                    let orientation = self.orientation;
                    let meta = FrameMeta { seq, pts, orientation, ..FrameMeta::default() };
                    let packet = Packet::shared(bytes, meta, key);
                    let mut packet =
                        packet.ok_or_else(|| Stopped::Stage("no memory for a packet".to_owned()))?;
                    *packet.preroll_mut() = preroll;
                    if is_damaged {
                        packet.set_damaged();
                    }
                    self.push(Item::Packet(packet))?;
                }
                Submission::Frame { seq, pts, pool, slot, layout, picture, requests } => {
                    self.recorder.mark();
                    locked(&self.exporter).count_input(seq, pts);
                    self.inject(seq);
                    let meta = FrameMeta { seq, pts, ..FrameMeta::default() }.with_picture(picture);
                    let frame = self.input(pool, slot, layout, meta)?;
                    self.request(requests);
                    self.push(Item::Frame(frame))?;
                    let mut exporter = locked(&self.exporter);
                    if exporter.inputs.as_ref().is_some_and(|inputs| inputs.is_unanswered(seq)) {
                        complete(&mut exporter, &Completion::Passed { seq })?;
                    }
                }
                Submission::Layout { id, layout } => self.layouts[usize::from(id)] = Some(layout),
                Submission::Drain => self.drain()?,
                Submission::Flush { seq } => self.flush(seq)?,
                Submission::Seek { .. } => return Err(Stopped::Caller),
            }
            self.send_requests()?;
            self.send_damage()?;
        }
    }

    /// Reports to the caller the packets that the decoder could not decode or skipped since the last call:
    /// each packet that could not be decoded by its number, and skipped packets by the number of the last of
    /// them and their count.
    fn send_damage(&self) -> Result<(), Stopped> {
        for (seq, skipped) in self.damage.take_unsent() {
            complete(&mut locked(&self.exporter), &Completion::Undecoded { seq, skipped })?;
        }
        Ok(())
    }

    /// Sends the caller the waiting requests of the stage to the hops in front. At most one keyframe request
    /// and one bit rate request wait, because a newer request replaces a waiting one of its kind. The caller
    /// accepts two requests for each submission on average ([`RequestBudget`](super::policy::RequestBudget)).
    fn send_requests(&self) -> Result<(), Stopped> {
        if !self.delivery.has_request() {
            return Ok(());
        }
        while let Some(pending) = self.delivery.take_request() {
            let request = match pending.request {
                Request::Keyframe => UpstreamRequest::Keyframe,
                Request::BitRate(bits) => UpstreamRequest::BitRate(bits),
                // Cannot occur: `Requests::send` refuses these in a worker.
                Request::Seek { .. }
                | Request::Flush
                | Request::Bandwidth(_)
                | Request::Congested(_)
                | Request::Stop => continue,
            };
            complete(&mut locked(&self.exporter), &Completion::Request(request))?;
        }
        Ok(())
    }

    /// Executes the injected fault for input or flush `seq`, if there is one.
    fn inject(&self, seq: u64) {
        if let Some(faults) = &self.faults {
            faults.inject(seq);
        }
    }

    /// Passes the requests of a frame to the encoder, as far as they are new.
    fn request(&mut self, requests: EncoderRequests) {
        let before = std::mem::replace(&mut self.requests, requests);
        let EncoderRequests { key, bit_rate, bandwidth } = requests;
        let bit_rate = bit_rate.filter(|_| bit_rate != before.bit_rate).map(Request::BitRate);
        let bandwidth = bandwidth.filter(|_| bandwidth != before.bandwidth).map(Request::Bandwidth);
        for request in [key.then_some(Request::Keyframe), bit_rate, bandwidth].into_iter().flatten() {
            // The caller has passed the request on to the hops in front itself.
            let _ = self.chain[0].stage.request(&request);
        }
    }

    fn push(&mut self, item: Item) -> Result<(), Stopped> {
        let (first, rest) = self.chain.split_first_mut().expect("two hops");
        let mut out = Out::new(0, rest, &mut self.recorder, &self.delivery);
        first.stage.as_mut().push(item, &mut out).map_err(stopped)
    }

    /// Executes the injected fault for flush `seq`, if there is one. Discards the inputs inside the stage,
    /// sends the caller the stage's waiting requests, and answers the flush.
    fn flush(&mut self, seq: u64) -> Result<(), Stopped> {
        self.inject(seq);
        let flushed = flush(0, &mut self.chain, &mut self.recorder, &self.delivery);
        flushed.map_err(stopped)?;
        self.send_requests()?;
        let mut exporter = locked(&self.exporter);
        if let Some(inputs) = &mut exporter.inputs {
            inputs.flush();
        }
        complete(&mut exporter, &Completion::Flushed { number: seq })
    }

    fn drain(&mut self) -> Result<(), Stopped> {
        let failure = drain(&mut self.chain, &mut self.recorder, &self.delivery, None);
        failure.map_or(Ok(()), |failure| Err(stopped(failure)))?;
        // Sent before the end, because the caller may not read cells after it.
        self.send_requests()?;
        self.send_damage()?;
        complete(&mut locked(&self.exporter), &Completion::End)
    }

    fn input(&mut self, pool: u16, slot: u32, layout: u8, meta: FrameMeta) -> Result<Frame, Stopped> {
        let layout = self.layouts[usize::from(layout)].ok_or(Stopped::Caller)?;
        self.memory.input(pool, slot, &layout, meta).map_err(|error| match error {
            HostError::Failed { text } => Stopped::Stage(text),
            _ => Stopped::Caller,
        })
    }
}

fn stopped(failure: HopFailure) -> Stopped {
    Stopped::Stage(failure.error.to_string())
}

fn complete(exporter: &mut Exporter, completion: &Completion) -> Result<(), Stopped> {
    exporter.complete(completion).map_err(|_| Stopped::Caller)
}

/// Returns the ledger's level for a number of the wire format: `off` for 0, `times` for 1, `full` for every
/// other number.
fn level_of(number: u8) -> Level {
    match number {
        0 => Level::Off,
        1 => Level::Times,
        _ => Level::Full,
    }
}

/// Returns the words of `area` by which the caller returns frames, with `memory` as the source of memory for
/// pools; `None` if the area has no room for the words. The words are leaked, because they are used until the
/// process ends.
fn give_back(area: &Arc<SharedArea>, memory: Arc<MemoryClient>) -> Option<&'static GiveBack> {
    let area: &'static SharedArea = Box::leak(Box::new(area.clone()));
    let words = GiveBackWords::new(area.slot_bell(), area.slot_summary(), area.slot_counts())?;
    let source = Box::new(move |bytes| memory.request(bytes));
    Some(Box::leak(Box::new(GiveBack::with_memory(words, source))))
}
