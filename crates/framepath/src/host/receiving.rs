// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiver of a worker's completions: frames, and the pools that contain them. Also returns their slots.
//!
//! Every value is checked before use.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use framepath_model::buffer_request::BufferRequest;
use framepath_model::format::Layout;
use framepath_model::stream::FrameMeta;
use framepath_model::wire::{Completion, Message, SAME_FRAME, UpstreamRequest, WorkerTime};
use framepath_os::crossing::{Breach, CellReader, SharedArea};
use framepath_os::memory::pool::{ForeignPool, Frame, GiveBackWords, Returns};

use super::HostError;
use super::buffer_provider::{BufferProvider, LentSlots};
use super::health::WorkerHealth;
use super::memory::{Grant, GrantShare, Granter};
use super::message_io::{check_answers_received, recv_within, send};
use super::policy::RequestBudget;
use super::worker_stream::WorkerStream;

/// Time limit for a message that a cell announces: the worker sends the message before the cell.
const THERE: Duration = Duration::ZERO;
/// Layouts and pools that a worker may name before it gives the next frame:
/// one of each is needed.
pub(super) const CONSTANTS: u32 = 8;

/// Takes frames from one worker.
pub(super) struct Receiving {
    link: Arc<WorkerStream>,
    reader: CellReader,
    pools: WorkerPools,
    /// Layouts and pools named since the last frame.
    constants: u32,
    requests: RequestBudget,
    lends: Option<Arc<dyn BufferProvider>>,
}

/// An event that came from a worker.
pub(super) enum WorkerMessage {
    /// A frame in its pool.
    Frame { seq: u64, frame: Frame, work: WorkerTime },
    /// The frame with this number passed unchanged.
    Same { seq: u64, work: WorkerTime },
    /// The input with this number gave nothing.
    Nothing { seq: u64 },
    /// Inputs before the flush with this number are forgotten.
    Flushed { seq: u64 },
    /// The worker has given its output for all inputs.
    End,
    /// The stage failed.
    Failed(String),
    /// The stage has a request to the hops in front.
    Request(UpstreamRequest),
    /// A layout, a pool or memory for one: this end has handled it.
    Constant,
}

impl Receiving {
    pub(super) fn new(
        link: &Arc<WorkerStream>,
        reader: CellReader,
        granter: Granter,
        lends: Option<Arc<dyn BufferProvider>>,
    ) -> Receiving {
        let pools = WorkerPools::new(link, granter);
        let requests = RequestBudget::default();
        Receiving { link: link.clone(), reader, pools, constants: 0, requests, lends }
    }

    /// Returns the next event; `None` if there is none. `meta` finds the metadata
    /// of an input by its number.
    pub(super) fn take(
        &mut self,
        meta: impl FnMut(u64) -> Option<FrameMeta>,
    ) -> Result<Option<WorkerMessage>, HostError> {
        let Some(cell) = self.reader.pop()? else { return Ok(None) };
        let completion = Completion::decode(&cell)?;
        let is_answer = matches!(completion, Completion::Frame { .. } | Completion::Passed { .. });
        self.link.health.completed(is_answer);
        if is_answer {
            self.constants = 0;
        }
        match completion {
            Completion::Frame { seq, pool: SAME_FRAME, work, .. } => {
                Ok(Some(WorkerMessage::Same { seq, work }))
            }
            Completion::Frame { seq, pool, slot, layout, work } => {
                let frame = self.pools.frame(pool, slot, layout, seq, meta)?;
                self.link.health.frame_out();
                Ok(Some(WorkerMessage::Frame { seq, frame, work }))
            }
            Completion::Passed { seq } => Ok(Some(WorkerMessage::Nothing { seq })),
            Completion::End => Ok(Some(WorkerMessage::End)),
            Completion::Flushed { number: seq } => Ok(Some(WorkerMessage::Flushed { seq })),
            Completion::Request(request) => {
                // Not what it was given work for: no progress.
                self.link.health.record_late();
                self.requests.count_request(self.link.health.submissions())?;
                Ok(Some(WorkerMessage::Request(request)))
            }
            other => self.rare(&other).map(Some),
        }
    }

    /// Handles the completions that do not come with each frame.
    fn rare(&mut self, completion: &Completion) -> Result<WorkerMessage, HostError> {
        if *completion == Completion::Failed {
            return match self.recv()? {
                Some((Message::Failed { text, .. }, _)) => Ok(WorkerMessage::Failed(text)),
                _ => Err(Breach("failure reported without an error message").into()),
            };
        }
        self.constants += 1;
        if self.constants > CONSTANTS {
            return Err(Breach("names without end, and no frame").into());
        }
        match *completion {
            Completion::Layout { id, layout } => self.pools.name_layout(id, layout),
            Completion::Pool { pool, slots, slot_bytes, first_slot } => {
                let slot_bytes =
                    usize::try_from(slot_bytes).map_err(|_| Breach("slots beyond the address space"))?;
                match &self.lends {
                    Some(lends) => self.pools.add_lent(pool, slots, slot_bytes, first_slot, &**lends)?,
                    None => {
                        let said = self.recv()?;
                        self.pools.add_granted(pool, slots, slot_bytes, first_slot, said)?;
                    }
                }
            }
            Completion::Want => self.provide()?,
            _ => return Err(Breach("a packet from a stage that was given some").into()),
        }
        Ok(WorkerMessage::Constant)
    }

    /// Gives the worker the memory that it asks for.
    fn provide(&mut self) -> Result<(), HostError> {
        check_answers_received(&self.link.socket, || self.link.health.announced_pools())?;
        match self.recv()? {
            Some((Message::Want(want), _)) => self.provide_buffers(want),
            Some((Message::WantMemory { bytes }, _)) => {
                let (answer, memory) = self.pools.grant(bytes);
                self.send(&answer, memory.as_ref())
            }
            _ => Err(Breach("a request for memory without a message").into()),
        }
    }

    /// Asks the provider for buffers, and passes them to the worker.
    fn provide_buffers(&mut self, want: BufferRequest) -> Result<(), HostError> {
        let Some(lends) = self.lends.clone() else {
            return Err(Breach("it wants memory, and has its own").into());
        };
        // The worker stands still while the provider works, and is not to blame.
        self.link.health.lending(true);
        let loan = lends.provide(&want);
        self.link.health.lending(false);
        let loan = match loan {
            Ok(loan) => loan,
            Err(text) => {
                // The worker learns the reason too; both it and the stream fail.
                self.send(&Message::Denied { text: text.clone() }, None)?;
                return Err(HostError::Failed { text });
            }
        };
        let buffers = loan.buffers.len() as u32;
        self.send(&Message::Lend { lent: loan.lent, buffers }, None)?;
        for (index, buffer) in loan.buffers.iter().enumerate() {
            self.send(&Message::Buffer { index: index as u32 }, Some(buffer))?;
        }
        self.pools.expect_loan(buffers, want.bytes(loan.lent));
        Ok(())
    }

    /// Receives the message that belongs to a cell that came.
    fn recv(&self) -> Result<Option<(Message, Option<OwnedFd>)>, HostError> {
        let heard = recv_within(&self.link.socket, THERE)?;
        self.link.health.traffic.message_in();
        Ok(heard)
    }

    fn send(&self, message: &Message, fd: Option<&OwnedFd>) -> Result<(), HostError> {
        self.link.health.traffic.message_out();
        send(&self.link.socket, message, fd.map(AsFd::as_fd))
    }

    /// Sleeps until a cell comes, the submit end calls, there is `news`, `limit` passes
    /// or the worker is gone; may return early.
    pub(super) fn sleep(&mut self, news: impl Fn() -> bool, limit: Option<Duration>) {
        let health = &self.link.health;
        health.collect_sleeps(true);
        self.reader.sleep(|| health.is_gone() || health.is_attention_requested() || news(), limit);
        health.collect_sleeps(false);
    }

    /// Sleeps until the submit end calls or there is `news`, but not for the worker; may
    /// return early.
    pub(super) fn sleep_until_called(&mut self, news: impl Fn() -> bool) {
        let health = &self.link.health;
        self.reader.bell().sleep_unless(|| health.is_attention_requested() || news(), None);
    }
}

/// Pools that a worker may have at a time; beyond, the oldest is forgotten.
const POOLS: u16 = 64;
/// Number of the newest pools that are kept however large they are.
const RECENT_POOLS: usize = 2;

/// Error about memory that does not belong to the pool.
const ANOTHER: Breach = Breach("the memory of another pool");

/// Pools and layouts that a worker has announced.
pub(super) struct WorkerPools {
    pools: HashMap<u16, ForeignPool>,
    /// Number of the next pool.
    next: u16,
    layouts: Vec<Option<Layout>>,
    returns: Arc<SlotReturns>,
    /// Number of slots of a loan that is not mapped yet, and the least bytes of a slot.
    loan: Option<(u32, u32)>,
    granter: Granter,
}

impl WorkerPools {
    pub(super) fn new(link: &WorkerStream, granter: Granter) -> WorkerPools {
        let returns = Arc::new(SlotReturns { area: link.area.clone(), health: link.health.clone() });
        let layouts = vec![None; 256];
        WorkerPools { pools: HashMap::new(), next: 0, layouts, returns, loan: None, granter }
    }

    /// Returns the frame of input `seq` in a slot; `meta` finds the input's metadata.
    pub(super) fn frame(
        &self,
        pool: u16,
        slot: u32,
        layout: u8,
        seq: u64,
        mut meta: impl FnMut(u64) -> Option<FrameMeta>,
    ) -> Result<Frame, HostError> {
        let meta = meta(seq).ok_or(Breach("a frame of what was never given"))?;
        let pool = self.pools.get(&pool).ok_or(Breach("a frame in a pool nobody knows"))?;
        let layout = self.layouts[usize::from(layout)].ok_or(Breach("a frame of no known layout"))?;
        Ok(pool.frame(slot, &layout, meta)?)
    }

    /// Records a layout that the worker announces.
    pub(super) fn name_layout(&mut self, id: u8, layout: Layout) {
        self.layouts[usize::from(id)] = Some(layout);
    }

    /// Makes memory for a pool. Returns the answer, and the descriptor to attach.
    pub(super) fn grant(&mut self, bytes: u64) -> (Message, Option<OwnedFd>) {
        self.make_room(bytes);
        self.granter.grant(bytes)
    }

    /// Records that the next pool lies in `buffers` lent buffers of at least `bytes` bytes.
    pub(super) fn expect_loan(&mut self, buffers: u32, bytes: u32) {
        self.loan = Some((buffers, bytes));
    }

    /// Adds the pool of the last loan, which the worker announces.
    pub(super) fn add_lent(
        &mut self,
        number: u16,
        slots: u32,
        slot_bytes: usize,
        first_slot: u32,
        lends: &dyn BufferProvider,
    ) -> Result<(), HostError> {
        self.check_number(number)?;
        let (lent, least) = self.loan.take().ok_or(Breach("a pool of its own"))?;
        if slots != lent || slot_bytes < least as usize {
            return Err(ANOTHER.into());
        }
        let foreign = ForeignPool::unmapped(slot_bytes, slots, first_slot, self.returns.clone())?;
        // All slots count as out until the caller gives them.
        (0..slots).for_each(|_| self.returns.health.frame_out());
        lends.mapped(LentSlots { returns: self.returns.clone(), first: first_slot });
        self.add(number, foreign);
        Ok(())
    }

    /// Adds a pool that the worker announces in granted memory; `said` is the message that came with
    /// the announcement.
    pub(super) fn add_granted(
        &mut self,
        number: u16,
        slots: u32,
        slot_bytes: usize,
        first_slot: u32,
        said: Option<(Message, Option<OwnedFd>)>,
    ) -> Result<(), HostError> {
        self.check_number(number)?;
        let memory = match said {
            Some((Message::PoolMemory { pool, memory }, _)) if pool == number => memory,
            _ => return Err(Breach("a pool without its memory").into()),
        };
        let Grant { fd, share } =
            self.granter.take(memory).ok_or(Breach("a pool in memory it was not granted"))?;
        let returns = Arc::new(GrantedReturns { returns: self.returns.clone(), _share: share });
        let foreign = ForeignPool::new(fd, slot_bytes, slots, first_slot, returns)?;
        self.add(number, foreign);
        Ok(())
    }

    /// Checks that numbers come in order: else old pools would not be found to be forgotten.
    fn check_number(&mut self, number: u16) -> Result<(), HostError> {
        if number != self.next {
            return Err(ANOTHER.into());
        }
        self.next = number.wrapping_add(1);
        Ok(())
    }

    fn add(&mut self, number: u16, pool: ForeignPool) {
        self.pools.insert(number, pool);
        // Frames outlive their pool. Without this limit a worker that goes on making
        // pools would make this process keep them all.
        self.pools.remove(&number.wrapping_sub(POOLS));
    }

    /// Forgets old pools if their memory leaves no room for another. Frames
    /// keep theirs. The last pools stay, because frames that a decoder held back may
    /// still name them.
    fn make_room(&mut self, bytes: u64) {
        let mut oldest = self.next.wrapping_sub(POOLS);
        while self.granter.is_full(bytes) && self.pools.len() > RECENT_POOLS {
            self.pools.remove(&oldest);
            oldest = oldest.wrapping_add(1);
        }
    }
}

/// Gives the worker's slots back by words of the shared area.
pub(super) struct SlotReturns {
    pub(super) area: Arc<SharedArea>,
    pub(super) health: Arc<WorkerHealth>,
}

impl Returns for SlotReturns {
    fn give_back(&self, slot: u32) {
        let area = &self.area;
        if let Some(words) = GiveBackWords::new(area.slot_bell(), area.slot_summary(), area.slot_counts()) {
            words.give_back(slot);
        }
        self.health.frame_back();
    }
}

/// [`SlotReturns`] of a pool in granted memory, which counts for as long as the
/// pool or a frame of it exists.
pub(super) struct GrantedReturns {
    pub(super) returns: Arc<SlotReturns>,
    /// Kept until the last frame is gone.
    pub(super) _share: Arc<GrantShare>,
}

impl Returns for GrantedReturns {
    fn give_back(&self, slot: u32) {
        self.returns.give_back(slot);
    }
}
