// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a worker process does: one stage of one stream, for one caller.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use framepath_codec::{Lenders, MediaFile, Packet, TrackInfo, frei0r};
use framepath_model::format::Layout;
use framepath_model::path;
use framepath_model::stream::{FrameMeta, StreamInfo};
use framepath_model::wire::{Completion, Message, Open, Submission};
use framepath_os::clock::now_ns;
use framepath_os::crash;
use framepath_os::crossing::{
    Area, Bell, Breach, CellReader, Page, SharedPackets, Sizes, Socket, at_end, completions, submissions,
};
use framepath_os::meter::{self, Level};
use framepath_os::pool::{ForeignPool, Frame, GiveBack, GiveBackWords, Returns};
use framepath_os::sandbox::{self, Layers, Limits, SandboxError, enter};
use framepath_os::v4l2::Node;

use super::HostError;
use super::borrow::Borrower;
use super::demux_worker;
use super::export::{Export, Exporter, locked};
use super::fault::Faults;
use super::kind::Task;
use super::memory::{MemoryClient, Reply};
use super::say::{hear, say};
use super::tally::Tally;
use crate::elements::{Place, stage_of};
use crate::item::Item;
use crate::notes::Notes;
use crate::out::{Delivery, Failure, Hop, Out};
use crate::recorder::Recorder;
use crate::runner::drain;
use crate::stage::Role;

/// Rows of the worker's own ledger: only the last is ever read.
const ROWS: usize = 4;

/// The whole life of a worker: enters the sandbox, then serves the caller
/// behind `socket` until it goes away; `without_seccomp` goes on where the
/// kernel has no seccomp. In the main thread of a process that
/// does nothing else. Returns only where no stream was opened, or the caller
/// broke the rules.
///
/// # Errors
/// No sandbox, a caller that broke the rules, or a machine without memory.
/// What the stage says goes to the caller and is no error here.
pub fn lock_in_and_serve(
    socket: OwnedFd,
    memory_bytes: u64,
    task: Task,
    without_seccomp: bool,
) -> Result<(), HostError> {
    let socket = Arc::new(Socket::from(socket));
    // Counters of this thread cannot be opened later.
    meter::prepare();
    let limits = Limits { memory_bytes, ..Limits::default() };
    let locked = match lock_in(&limits, &task) {
        Err(HostError::Sandbox(SandboxError::NoSeccomp { layers, .. })) if without_seccomp => Ok(layers),
        locked => locked,
    };
    match locked {
        Ok(layers) => say(&socket, &Message::Ready { layers: layers.bits() }, None)?,
        Err(error) => {
            let advice = match error {
                HostError::Sandbox(SandboxError::NoSeccomp { .. }) => "; sandbox=allow goes on without",
                _ => "",
            };
            say(&socket, &Message::Refused { text: format!("{error}{advice}") }, None)?;
            return Err(error);
        }
    }
    serve(&socket, task)
}

/// A plug-in is loaded half-way: its constructors are foreign code, and they
/// and what it is linked with have to be read.
fn lock_in(limits: &Limits, task: &Task) -> Result<Layers, HostError> {
    // A device's buffers, and the libraries of a plug-in, are open files.
    let many = &Limits { open_files: 64, ..*limits };
    let file = match task {
        Task::Stage => return Ok(enter(sandbox::Role::Decode, limits)?),
        Task::Device => return Ok(enter(sandbox::Role::DecodeByDevice, many)?),
        Task::Plugin(file) => file,
    };
    enter(sandbox::Role::PluginLoading { file }, many)?;
    frei0r::Plugin::load(file)?;
    Ok(enter(sandbox::Role::Plugin, limits)?)
}

fn serve(socket: &Arc<Socket>, task: Task) -> Result<(), HostError> {
    let (mut first, mut page, mut node) = (hear(socket)?, None, None);
    // The service's, which says it before the caller has the other end.
    if let Some((Message::Page, Some(fd))) = first {
        page =
            Some(Page::open(fd).map_err(|errno| HostError::Socket {
                operation: "mapping the page of",
                source: errno.into(),
            })?);
        first = hear(socket)?;
    }
    let first = match (&task, first) {
        (Task::Device, Some((Message::Device { node: name }, Some(fd)))) => {
            node = Some((PathBuf::from(name), fd));
            hear(socket)?
        }
        (Task::Stage, Some((Message::File { name }, Some(file)))) => {
            return serve_file(socket, name, file, page);
        }
        (_, first) => first,
    };
    let (open, fd) = match first {
        Some((Message::Open(open), Some(fd))) => (open, fd),
        Some(_) => return Err(HostError::NotOpened { what: "was told something else" }),
        None => return Ok(()),
    };
    // The end of the caller ends the worker, whatever it is doing.
    at_end(socket.clone(), || crash::leave())
        .map_err(|source| HostError::Socket { operation: "watching", source })?;
    let mut stream = match Stream::open(&open, fd, socket, task, node, page) {
        Ok((stream, opened)) => {
            say(socket, &opened, None)?;
            stream.memory.opened();
            if let (true, Message::Opened { threads, stream: info, .. }) = (open.questions, opened) {
                answer_questions(socket.clone(), threads, info, stream.memory.forward())?;
            }
            stream
        }
        Err(error) => {
            say(socket, &Message::Refused { text: error.to_string() }, None)?;
            crash::hang()
        }
    };
    if let Err(Stopped::Stage(text)) = stream.run() {
        // Before the cell, so that who reads the cell finds the text.
        say(socket, &Message::Failed { text, seq: None }, None)?;
        locked(&stream.exporter).complete(&Completion::Failed)?;
        // What was given is still read: the caller ends its worker.
        crash::hang()
    }
    Ok(())
}

/// The life of a worker that was given a file.
fn serve_file(
    socket: &Arc<Socket>,
    name: String,
    file: OwnedFd,
    page: Option<Page>,
) -> Result<(), HostError> {
    let (demux, memory) = match hear(socket)? {
        Some((Message::Demux(demux), Some(memory))) => (demux, memory),
        Some(_) => return Err(HostError::NotOpened { what: "was told something else" }),
        None => return Ok(()),
    };
    // The end of the caller ends the worker, whatever it is doing.
    at_end(socket.clone(), || crash::leave())
        .map_err(|source| HostError::Socket { operation: "watching", source })?;
    let file = MediaFile::from_fd(file, name, demux.seekable);
    demux_worker::demux(&demux, memory, file, socket, page.map(|page| Tally::new(page, "file")))
}

/// Answers in a thread of its own, while the stage works.
/// What is no question is an answer to somebody else's, and goes to `others`.
fn answer_questions(
    socket: Arc<Socket>,
    threads: u32,
    stream: StreamInfo,
    others: Sender<Reply>,
) -> Result<(), HostError> {
    let answering = move || {
        while let Ok(Some((message, fd))) = hear(&socket) {
            let done = match message {
                Message::Query { number } => {
                    say(&socket, &Message::Answer { number, threads, stream }, None).is_err()
                }
                other => others.send((other, fd)).is_err(),
            };
            if done {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("fp-answer".to_owned()).spawn(answering);
    thread.map(|_| ()).map_err(|source| HostError::Socket { operation: "answering", source })
}

/// Why a stream stopped.
enum Stopped {
    /// The stage failed: news for the caller.
    Stage(String),
    /// The caller did what it must not.
    Caller,
}

impl From<Breach> for Stopped {
    fn from(_: Breach) -> Stopped {
        Stopped::Caller
    }
}

/// One stream in its worker.
struct Stream {
    socket: Arc<Socket>,
    submissions: CellReader,
    packets: Arc<SharedPackets>,
    inputs: HashMap<u16, ForeignPool>,
    layouts: Vec<Option<Layout>>,
    exporter: Arc<Mutex<Exporter>>,
    chain: Vec<Hop>,
    recorder: Recorder,
    delivery: Delivery,
    faults: Faults,
    memory: Arc<MemoryClient>,
}

/// Input frames are the caller's, who takes one back when its output comes.
struct Nowhere;

impl Returns for Nowhere {
    fn give_back(&self, _: u32) {}
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
    ) -> Result<(Stream, Message), Refusal> {
        let sizes = Sizes { cells: open.cells, packet_bytes: open.packet_bytes };
        let area = Arc::new(Area::open(fd, sizes)?);
        let packets = SharedPackets::new(area.clone());
        let track = match open.track_bytes {
            0 => None,
            len => Some(TrackInfo::from_bytes(&packets.kept(len)?, open.stream)?),
        };
        let takes_packets = track.is_some();
        let hop = path::parse_stage(&open.stage)?;
        let tally = page.map(|page| Tally::new(page, &open.stage));
        let room = Bell::of_completion_room(&area);
        let exporter = Exporter::new(completions(&area).0, room, socket.clone(), tally);
        let exporter = Arc::new(Mutex::new(exporter));
        let memory = MemoryClient::new(socket.clone(), exporter.clone());
        let give_back = give_back(&area, memory.clone());
        let give_back = give_back.ok_or("the words to give frames back do not fit")?;
        let lender = open.lent.then(|| {
            let (socket, exporter) = (socket.clone(), exporter.clone());
            // For as long as the process lives, which has this stream only.
            Lenders(Box::leak(Box::new(Borrower { socket, exporter, give_back })))
        });
        let give_back = Some(give_back);
        let place = Place {
            track,
            frames_behind: open.frames_behind,
            give_back,
            lender,
            plugin: if let Task::Plugin(file) = task { Some(file) } else { None },
            node: node.map(|(name, fd)| Node::of_open(fd, name).map(Arc::new)).transpose()?,
            notes: Notes::default(),
        };
        let mut stage = stage_of(&hop, &place)?;
        let stream = stage.start(&open.stream)?;
        let (threads, replayable) = (stage.threads(), stage.replayable());
        let export = Box::new(Export(exporter.clone()));
        let level = match open.level {
            0 => Level::Off,
            1 => Level::Times,
            _ => Level::Full,
        };
        let stream_in_worker = Stream {
            socket: socket.clone(),
            submissions: submissions(&area).1,
            packets,
            inputs: HashMap::new(),
            layouts: vec![None; 256],
            exporter,
            chain: vec![
                Hop { stage, index: 0, role: Role::Through },
                Hop { stage: export, index: 1, role: Role::Sink },
            ],
            recorder: Recorder::new(level, 0, ROWS),
            delivery: Delivery::default(),
            faults: open.faults.parse()?,
            memory,
        };
        Ok((stream_in_worker, Message::Opened { threads, stream, replayable, takes_packets }))
    }

    /// Works until the caller breaks the rules or the stage fails. (The end of
    /// the caller ends the process.)
    fn run(&mut self) -> Result<(), Stopped> {
        // CLOCK_MONOTONIC since when there was nothing to do.
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
                Submission::Packet { seq, pts, offset, len, key } => {
                    self.recorder.mark();
                    locked(&self.exporter).took(seq);
                    self.faults.strike(seq);
                    let bytes = self.packets.packet(offset, len)?;
                    let meta = FrameMeta { seq, pts, ..FrameMeta::default() };
                    let packet = Packet::shared(bytes, meta, key);
                    let packet = packet.ok_or_else(|| Stopped::Stage("no memory for a packet".to_owned()))?;
                    self.push(Item::Packet(packet))?;
                }
                Submission::Frame { seq, pts, pool, slot, layout } => {
                    self.recorder.mark();
                    locked(&self.exporter).took(seq);
                    self.faults.strike(seq);
                    let meta = FrameMeta { seq, pts, ..FrameMeta::default() };
                    let frame = self.input(pool, slot, layout, meta)?;
                    self.push(Item::Frame(frame))?;
                    let mut exporter = locked(&self.exporter);
                    if exporter.take_given() == 0 {
                        complete(&mut exporter, &Completion::Passed { seq })?;
                    }
                }
                Submission::Layout { id, layout } => self.layouts[usize::from(id)] = Some(layout),
                Submission::Drain => self.drain()?,
            }
        }
    }

    fn push(&mut self, item: Item) -> Result<(), Stopped> {
        let (first, rest) = self.chain.split_first_mut().expect("two hops");
        let mut out = Out::new(0, rest, &mut self.recorder, &self.delivery);
        first.stage.push(item, &mut out).map_err(stopped)
    }

    fn drain(&mut self) -> Result<(), Stopped> {
        let failure = drain(&mut self.chain, &mut self.recorder, &self.delivery, None);
        failure.map_or(Ok(()), |failure| Err(stopped(failure)))?;
        complete(&mut locked(&self.exporter), &Completion::End)
    }

    fn input(&mut self, pool: u16, slot: u32, layout: u8, meta: FrameMeta) -> Result<Frame, Stopped> {
        while !self.inputs.contains_key(&pool) {
            self.hear_of_pool()?;
        }
        let layout = self.layouts[usize::from(layout)].ok_or(Stopped::Caller)?;
        self.inputs[&pool].frame(slot, &layout, meta).map_err(|_| Stopped::Caller)
    }

    fn hear_of_pool(&mut self) -> Result<(), Stopped> {
        let Ok(Some((Message::InputPool { pool, slots, slot_bytes }, Some(fd)))) = hear(&self.socket) else {
            return Err(Stopped::Caller);
        };
        let slot_bytes = usize::try_from(slot_bytes).map_err(|_| Stopped::Caller)?;
        let foreign = ForeignPool::new(fd, slot_bytes, slots, 0, Arc::new(Nowhere));
        let mut foreign = foreign.map_err(|_| Stopped::Caller)?;
        // A worker has few descriptors, and passes none on.
        foreign.close();
        self.inputs.insert(pool, foreign);
        Ok(())
    }
}

fn stopped(failure: Failure) -> Stopped {
    Stopped::Stage(failure.error.to_string())
}

fn complete(exporter: &mut Exporter, completion: &Completion) -> Result<(), Stopped> {
    exporter.complete(completion).map_err(|_| Stopped::Caller)
}

/// The words that frames come back by. They are used until the process ends.
fn give_back(area: &Arc<Area>, memory: Arc<MemoryClient>) -> Option<&'static GiveBack> {
    let area: &'static Area = Box::leak(Box::new(area.clone()));
    let words = GiveBackWords::new(area.slot_bell(), area.slot_summary(), area.slot_counts())?;
    let source = Box::new(move |bytes| memory.request(bytes));
    Some(Box::leak(Box::new(GiveBack::with_memory(words, source))))
}
