// SPDX-License-Identifier: MIT OR Apache-2.0
//! The caller's connection to one worker.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use framepath_codec::Packet;
use framepath_model::format::Layout;
use framepath_model::lend::Want;
use framepath_model::stream::{FrameMeta, StreamInfo};
use framepath_model::wire::{Completion, Message, Open, SAME_FRAME, Submission, Work};
use framepath_os::crossing::{
    Area, Bell, Breach, CellReader, CellWriter, PacketArea, Sizes, Socket, Watcher, completions, submissions,
    watch,
};
use framepath_os::pool::{ForeignPool, Frame};
use framepath_os::sandbox::Layers;
use framepath_os::v4l2::Node;

use super::HostError;
use super::borrow::{Lends, LentSlots};
use super::input::WorkerInput;
use super::memory::{Grant, Granter};
use super::names::{Names, shared_memory};
use super::process::{Process, Worker};
use super::returns::{GrantedReturns, SlotReturns};
use super::say::{hear_within, say};
use super::spec::{Spec, Start, Turn};
use super::vital::Vital;

/// Cells of each ring: more packets than any decoder keeps back, so that one
/// that was given so many has given a frame.
const CELLS: u32 = 64;
/// Room for packets: at most this, and an eighth of what the worker may take.
/// Memory is taken only where they reach.
const MOST_PACKET_BYTES: u64 = 64 << 20;
const LEAST_PACKET_BYTES: u64 = 8 << 20;
/// How long a worker may take to load, and to open a stream.
const OPENING: Duration = Duration::from_secs(20);
/// What a cell says to be on the socket was put there before it.
const THERE: Duration = Duration::ZERO;
/// How long an answer may take to a question that needs no work.
const ANSWERING: Duration = Duration::from_secs(5);
/// Pools a worker may have at a time; the oldest is forgotten beyond.
const POOLS: u16 = 64;
/// Of these, the newest are kept however large they are.
const RECENT_POOLS: usize = 2;
/// Layouts and pools that a worker may name before it gives the next frame:
/// one of each is needed.
const CONSTANTS: u32 = 8;

/// One worker with an open stream.
pub(super) struct Link {
    area: Arc<Area>,
    socket: Arc<Socket>,
    pub(super) vital: Arc<Vital>,
    watcher: Watcher,
    /// Wakes the worker.
    worker_bell: Bell,
    worker: Worker,
    /// The worker's process id.
    pub(super) pid: u32,
    /// Threads the stage works with.
    pub(super) threads: u32,
    /// Whether what it was given can be given again.
    pub(super) replayable: bool,
    /// What the stage gives.
    pub(super) stream: StreamInfo,
}

/// The end that gives packets or frames to the worker.
pub(super) struct Sending {
    writer: CellWriter,
    packets: PacketArea,
    /// Numbers of what was submitted and is perhaps not yet taken, by cell.
    untaken: VecDeque<Option<u64>>,
    /// The last that was taken.
    taken: Option<u64>,
    pub(super) drained: bool,
    socket: Arc<Socket>,
    vital: Arc<Vital>,
    names: Names,
}

/// What there is no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Cells,
    Bytes,
}

/// The end that takes frames from the worker.
pub(super) struct Receiving {
    reader: CellReader,
    pools: HashMap<u16, ForeignPool>,
    /// Number of the next pool.
    next_pool: u16,
    layouts: Vec<Option<Layout>>,
    /// Layouts and pools named since the last frame.
    constants: u32,
    returns: Arc<SlotReturns>,
    socket: Arc<Socket>,
    /// Came while an answer was awaited.
    early: VecDeque<(Message, Option<OwnedFd>)>,
    asked: u32,
    lends: Option<Arc<dyn Lends>>,
    /// Slots, and the least bytes of one, of a loan that is not mapped yet.
    loan: Option<(u32, u32)>,
    granter: Granter,
}

/// What came from a worker.
pub(super) enum Came {
    /// A frame in its pool.
    Frame { seq: u64, frame: Frame, work: Work },
    /// The frame with this number passed unchanged.
    Same { seq: u64, work: Work },
    /// The input with this number gave nothing.
    Nothing { seq: u64 },
    /// All that was submitted has been given.
    End,
    /// The stage failed.
    Failed(String),
    /// What only the link itself has to know.
    Constant,
}

impl Link {
    /// Opens the stream of `spec` in `worker`.
    pub(super) fn open(
        worker: Worker,
        spec: &Spec,
        start: Start,
        turn: Turn,
    ) -> Result<(Arc<Link>, Sending, Receiving), HostError> {
        let memory = spec.options.memory_bytes / 8;
        let packet_bytes = match spec.track {
            Some(_) => memory.clamp(LEAST_PACKET_BYTES, MOST_PACKET_BYTES) & !0xfff,
            None => 0,
        };
        let sizes = Sizes { cells: CELLS, packet_bytes };
        let area = Arc::new(Area::new(sizes)?);
        let mut packets = PacketArea::new(area.clone());
        let track = spec.track.as_ref().map(|track| track.to_bytes()).unwrap_or_default();
        if !track.is_empty() && !packets.keep(&track) {
            return Err(HostError::PacketSize { bytes: track.len(), most: packets.largest() });
        }
        let faults = if turn == Turn::First {
            spec.options.faults.clone()
        } else {
            spec.options.faults.of_replacement()
        };
        let open = Open {
            stage: spec.stage_text(turn == Turn::Careful),
            level: start.level,
            questions: spec.options.uncached,
            lent: spec.lends.is_some(),
            track_bytes: track.len() as u32,
            frames_behind: spec.frames_behind,
            stream: start.stream,
            cells: sizes.cells,
            packet_bytes: sizes.packet_bytes,
            faults: faults.to_string(),
        };
        let socket = worker.socket.clone();
        if let Some(node) = &spec.options.node {
            // Each worker has it to itself: what one left behind in it went with
            // the last of its descriptors.
            let opened = Node::open(node)?;
            say(&socket, &Message::Device { node: node.display().to_string() }, Some(opened.fd()))?;
        }
        say(&socket, &Message::Open(open), Some(area.fd()))?;
        let mut granter = Granter::new(spec.options.memory_bytes);
        let mut requests = 0;
        let (threads, replayable, stream) = loop {
            match hear_within(&socket, OPENING)? {
                Some((Message::Opened { threads, replayable, stream, .. }, _)) => {
                    break (threads, replayable, stream);
                }
                // A stage may make its pool before it has a frame.
                Some((Message::WantMemory { bytes }, _)) if requests < CONSTANTS => {
                    requests += 1;
                    let (answer, memory) = granter.grant(bytes);
                    say(&socket, &answer, memory.as_ref().map(AsFd::as_fd))?;
                }
                Some((Message::Refused { text }, _)) => return Err(HostError::Refused { text }),
                Some(_) => return Err(HostError::NotOpened { what: "said something else" }),
                None => return Err(HostError::NotOpened { what: "died" }),
            }
        };
        let vital = Arc::new(Vital::new(area.clone(), spec.options.watchdog));
        let watcher = {
            let (looked, gone, process) = (vital.clone(), vital.clone(), worker.process());
            let look = move || looked.look(|| process.kill());
            watch(socket.clone(), spec.options.watchdog / 4, look, move || gone.end())
                .map_err(|source| HostError::Socket { operation: "watching", source })?
        };
        let sending = Sending {
            writer: submissions(&area).0,
            packets,
            untaken: VecDeque::new(),
            taken: None,
            drained: false,
            socket: socket.clone(),
            vital: vital.clone(),
            names: Names::default(),
        };
        let receiving = Receiving {
            reader: completions(&area).1,
            pools: HashMap::new(),
            next_pool: 0,
            layouts: vec![None; 256],
            constants: 0,
            returns: Arc::new(SlotReturns { area: area.clone(), vital: vital.clone() }),
            socket: socket.clone(),
            early: VecDeque::new(),
            asked: 0,
            lends: spec.lends.clone(),
            loan: None,
            granter,
        };
        // The stream's opening, there and back.
        vital.traffic.message_out();
        vital.traffic.message_in();
        let pid = worker.process().pid();
        let worker_bell = sending.writer.bell().clone();
        let link =
            Link { worker_bell, area, socket, vital, watcher, worker, pid, threads, replayable, stream };
        Ok((Arc::new(link), sending, receiving))
    }

    /// Sleeps until there is `room`, or the worker is gone; may return early.
    pub(super) fn wait_for_room(&self, full: Full, has_room: impl Fn() -> bool) {
        let bell = match full {
            Full::Cells => Bell::of_room(&self.area),
            Full::Bytes => Bell::of_packets(&self.area),
        };
        // The worker that makes no room is overdue, asleep or not.
        self.vital.giver_sleeps(true);
        self.watcher.stir();
        bell.sleep_unless(|| self.vital.is_gone() || has_room(), None);
        self.vital.giver_sleeps(false);
    }

    /// Ends the worker, whatever it is doing.
    pub(super) fn kill(&self) {
        self.worker.process().kill();
        self.socket.shut();
    }

    /// The worker's process.
    pub(super) fn process(&self) -> Arc<Process> {
        self.worker.process()
    }

    /// The layers of the worker's sandbox.
    pub(super) fn layers(&self) -> Layers {
        self.worker.layers
    }

    /// CPU time the worker has used, nanoseconds.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.worker.process().cpu_ns()
    }

    /// Wakes the worker where it was given something. Not under the session's
    /// lock: a worker that answers at once would make the reading end sleep a
    /// second time, for the lock.
    pub(super) fn ring(&self) {
        // Acquire: pairs with the Release in `Sending::push`; the cell is there
        // before its bell, whichever thread rings.
        if self.vital.unrung.swap(false, Ordering::Acquire) {
            self.worker_bell.ring();
        }
    }

    /// [`Link::ring`], and there is something new to watch over.
    pub(super) fn stir(&self) {
        self.ring();
        self.watcher.stir();
    }
}

impl Sending {
    /// Puts `input` where the worker will find it; says where there is no room
    /// for it. [`Sending::submit`] has to follow at once.
    pub(super) fn prepare(
        &mut self,
        seq: u64,
        pts: Option<i64>,
        input: &WorkerInput,
    ) -> Result<Result<Submission, Full>, HostError> {
        self.note_taken()?;
        // A frame may need a cell for its layout too.
        if self.writer.room()? < 2 {
            return Ok(Err(Full::Cells));
        }
        Ok(Ok(match input {
            WorkerInput::Packet(packet) => {
                self.check_size(packet)?;
                let Some(offset) = packet.put_into(&mut self.packets)? else { return Ok(Err(Full::Bytes)) };
                Submission::Packet { seq, pts, offset, len: packet.len() as u32, key: packet.is_key() }
            }
            WorkerInput::Frame(frame) => {
                let (pool, layout) = (self.pool(frame)?, self.layout(frame.layout())?);
                Submission::Frame { seq, pts, pool, slot: frame.slot(), layout }
            }
        }))
    }

    /// Whether the memory for packets could hold this one.
    pub(super) fn check_size(&self, packet: &Packet) -> Result<(), HostError> {
        let (bytes, most) = (packet.len(), self.packets.largest());
        if bytes > most { Err(HostError::PacketSize { bytes, most }) } else { Ok(()) }
    }

    /// Gives what was prepared to the worker; [`Link::ring`] wakes it.
    pub(super) fn submit(&mut self, seq: u64, submission: &Submission) -> Result<(), Breach> {
        if let Submission::Frame { .. } = submission {
            self.vital.asked();
        }
        self.push(submission, Some(seq))
    }

    /// Says that nothing follows.
    pub(super) fn drain(&mut self) -> Result<Result<(), Full>, HostError> {
        if self.writer.room()? == 0 {
            return Ok(Err(Full::Cells));
        }
        self.drained = true;
        self.push(&Submission::Drain, None)?;
        Ok(Ok(()))
    }

    /// Whether enough room is free again for a batch, so that a full ring
    /// costs a wake-up per half ring.
    pub(super) fn has_room(&self, full: Full) -> bool {
        match full {
            Full::Cells => self.writer.len().is_ok_and(|len| len <= u64::from(CELLS / 2)),
            Full::Bytes => self.packets.has_news() != Ok(false),
        }
    }

    /// Whether the worker has taken all that was submitted.
    pub(super) fn is_taken(&self) -> bool {
        self.writer.is_empty() == Ok(true)
    }

    /// The last input the worker had taken.
    pub(super) fn last_taken(&mut self) -> Option<u64> {
        // A worker that lies about it is ended in any case.
        let _ = self.note_taken();
        self.taken
    }

    fn note_taken(&mut self) -> Result<(), Breach> {
        let left = self.writer.len()? as usize;
        while self.untaken.len() > left {
            self.taken = self.untaken.pop_front().flatten().or(self.taken);
        }
        Ok(())
    }

    fn push(&mut self, submission: &Submission, seq: Option<u64>) -> Result<(), Breach> {
        self.untaken.push_back(seq);
        self.vital.submitted();
        // Room was looked for before.
        self.writer.push_quietly(&submission.encode())?;
        // Release: pairs with the Acquire in `Link::ring`.
        self.vital.unrung.store(true, Ordering::Release);
        Ok(())
    }

    /// The number of the frame's pool, said to the worker when it is new.
    fn pool(&mut self, frame: &Frame) -> Result<u16, HostError> {
        let (pool, is_new) = self.names.pool(frame.pool_id())?;
        if is_new {
            let memory = shared_memory(frame)?;
            let (slots, slot_bytes) = (memory.slots, memory.slot_bytes as u64);
            say(&self.socket, &Message::InputPool { pool, slots, slot_bytes }, Some(memory.fd.as_fd()))?;
            self.vital.traffic.message_out();
        }
        Ok(pool)
    }

    /// The name of a layout, said to the worker when it is new.
    fn layout(&mut self, layout: &Layout) -> Result<u8, HostError> {
        let (id, is_new) = self.names.layout(layout);
        if is_new {
            self.push(&Submission::Layout { id, layout: *layout }, None)?;
        }
        Ok(id)
    }
}

impl Receiving {
    /// The next thing that came; `None` where nothing has. `meta` finds what
    /// belongs to a number.
    pub(super) fn take(
        &mut self,
        meta: impl Fn(u64) -> Option<FrameMeta>,
    ) -> Result<Option<Came>, HostError> {
        let Some(cell) = self.reader.pop()? else { return Ok(None) };
        let vital = &self.returns.vital;
        vital.completed();
        let completion = Completion::decode(&cell)?;
        match completion {
            Completion::Layout { .. } | Completion::Pool { .. } | Completion::Want => {
                self.constants += 1;
                if self.constants > CONSTANTS {
                    return Err(Breach("names without end, and no frame").into());
                }
            }
            Completion::Frame { .. } | Completion::Passed { .. } => {
                self.constants = 0;
                vital.answered();
            }
            Completion::Packet { .. } => {
                return Err(Breach("a packet from a stage that was given some").into());
            }
            Completion::Failed | Completion::End => {}
        }
        Ok(Some(match completion {
            Completion::Frame { seq, pool: SAME_FRAME, work, .. } => Came::Same { seq, work },
            Completion::Frame { seq, pool, slot, layout, work } => {
                let meta = meta(seq).ok_or(Breach("a frame of what was never given"))?;
                let pool = self.pools.get(&pool).ok_or(Breach("a frame in a pool nobody knows"))?;
                let layout = self.layouts[usize::from(layout)].ok_or(Breach("a frame of no known layout"))?;
                let frame = pool.frame(slot, &layout, meta)?;
                self.returns.vital.frame_out();
                Came::Frame { seq, frame, work }
            }
            Completion::Layout { id, layout } => {
                self.layouts[usize::from(id)] = Some(layout);
                Came::Constant
            }
            Completion::Pool { pool, slots, slot_bytes, first_slot } => {
                self.pool(pool, slots, slot_bytes, first_slot)?;
                Came::Constant
            }
            Completion::Want => {
                self.provide()?;
                Came::Constant
            }
            Completion::Passed { seq } => Came::Nothing { seq },
            // A packet was refused above.
            Completion::End | Completion::Packet { .. } => Came::End,
            Completion::Failed => match self.hear()? {
                Some((Message::Failed { text, .. }, _)) => Came::Failed(text),
                _ => return Err(Breach("a failure without a word").into()),
            },
        }))
    }

    /// Gives the worker the memory that it asks for.
    fn provide(&mut self) -> Result<(), HostError> {
        match self.hear()? {
            Some((Message::Want(want), _)) => self.lend(want),
            Some((Message::WantMemory { bytes }, _)) => {
                self.make_room(bytes);
                let (answer, memory) = self.granter.grant(bytes);
                self.returns.vital.traffic.message_out();
                say(&self.socket, &answer, memory.as_ref().map(AsFd::as_fd))
            }
            _ => Err(Breach("a request for memory without a message").into()),
        }
    }

    /// Asks who lends, and passes the buffers on.
    fn lend(&mut self, want: Want) -> Result<(), HostError> {
        let Some(lends) = self.lends.clone() else {
            return Err(Breach("it wants memory, and has its own").into());
        };
        // It stands still for as long as we think, and is not to blame.
        self.returns.vital.lending(true);
        let loan = lends.lend(&want);
        self.returns.vital.lending(false);
        let (socket, traffic) = (&self.socket, &self.returns.vital.traffic);
        let tell = |message: Message, fd: Option<&OwnedFd>| {
            traffic.message_out();
            say(socket, &message, fd.map(AsFd::as_fd))
        };
        let loan = match loan {
            Ok(loan) => loan,
            Err(text) => {
                // The worker learns it too, and both fail.
                tell(Message::Denied { text: text.clone() }, None)?;
                return Err(HostError::Failed { text });
            }
        };
        let buffers = loan.buffers.len() as u32;
        tell(Message::Lend { lent: loan.lent, buffers }, None)?;
        for (index, buffer) in loan.buffers.iter().enumerate() {
            tell(Message::Buffer { index: index as u32 }, Some(buffer))?;
        }
        self.loan = Some((buffers, want.bytes(loan.lent)));
        Ok(())
    }

    fn pool(&mut self, number: u16, slots: u32, slot_bytes: u64, first_slot: u32) -> Result<(), HostError> {
        // In order: else old pools would not be met again below.
        let another = Breach("the memory of another pool");
        if number != self.next_pool {
            return Err(another.into());
        }
        self.next_pool = number.wrapping_add(1);
        let slot_bytes = usize::try_from(slot_bytes).map_err(|_| Breach("slots beyond the address space"))?;
        let returns = self.returns.clone();
        let foreign = match (self.loan.take(), &self.lends) {
            (Some((lent, least)), Some(lends)) => {
                if slots != lent || slot_bytes < least as usize {
                    return Err(another.into());
                }
                let foreign = ForeignPool::unseen(slot_bytes, slots, first_slot, returns)?;
                // All are with the caller until it gives them.
                (0..slots).for_each(|_| self.returns.vital.frame_out());
                lends.mapped(LentSlots { returns: self.returns.clone(), first: first_slot });
                foreign
            }
            (None, Some(_)) => return Err(Breach("a pool of its own").into()),
            _ => match self.hear()? {
                Some((Message::PoolMemory { pool, memory }, _)) if pool == number => {
                    let Grant { fd, share } =
                        self.granter.take(memory).ok_or(Breach("a pool in memory it was not granted"))?;
                    let returns = Arc::new(GrantedReturns { returns, _share: share });
                    ForeignPool::new(fd, slot_bytes, slots, first_slot, returns)?
                }
                _ => return Err(Breach("a pool without its memory").into()),
            },
        };
        self.pools.insert(number, foreign);
        // Frames outlive the pool they came from; a worker that goes on making
        // pools must not make us keep them all.
        self.pools.remove(&number.wrapping_sub(POOLS));
        Ok(())
    }

    /// Forgets old pools where their memory stands in the way of another. Frames
    /// keep theirs; and the last pools may still be named, by frames that a decoder
    /// held back.
    fn make_room(&mut self, bytes: u64) {
        let mut oldest = self.next_pool.wrapping_sub(POOLS);
        while self.granter.is_full(bytes) && self.pools.len() > RECENT_POOLS {
            self.pools.remove(&oldest);
            oldest = oldest.wrapping_add(1);
        }
    }

    /// What was said about a cell that came.
    fn hear(&mut self) -> Result<Option<(Message, Option<OwnedFd>)>, HostError> {
        match self.early.pop_front() {
            Some(early) => Ok(Some(early)),
            None => self.hear_new(),
        }
    }

    fn hear_new(&mut self) -> Result<Option<(Message, Option<OwnedFd>)>, HostError> {
        let heard = hear_within(&self.socket, THERE)?;
        self.returns.vital.traffic.message_in();
        Ok(heard)
    }

    /// Asks for what is constant, and waits for the answer.
    pub(super) fn ask_again(&mut self) -> Result<(), HostError> {
        self.asked = self.asked.wrapping_add(1);
        say(&self.socket, &Message::Query { number: self.asked }, None)?;
        self.returns.vital.traffic.message_out();
        loop {
            match hear_within(&self.socket, ANSWERING)? {
                Some((Message::Answer { number, .. }, _)) if number == self.asked => {
                    self.returns.vital.traffic.message_in();
                    return Ok(());
                }
                // Pools come without being asked for; not many at a time.
                Some(early) if self.early.len() < usize::from(POOLS) => {
                    self.returns.vital.traffic.message_in();
                    self.early.push_back(early);
                }
                _ => return Err(Breach("an answer to another question").into()),
            }
        }
    }

    /// Sleeps until something comes, `limit` passes or the worker is gone; may
    /// return early.
    pub(super) fn sleep(&mut self, link: &Link, limit: Option<Duration>) {
        link.vital.reader_sleeps(true);
        let vital = &link.vital;
        self.reader.sleep(|| vital.is_gone() || (limit.is_none() && vital.is_left_over()), limit);
        link.vital.reader_sleeps(false);
    }
}
