// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiver of a worker's completions: frames and the pools that contain them, or packets. Also returns the frames'
//! slots to the worker.
//!
//! Every value from the worker is checked before use.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use framepath_model::buffer_request::BufferRequest;
use framepath_model::format::Layout;
use framepath_model::stream::{FrameMeta, StreamInfo};
use framepath_model::wire::{
    Completion, ENCODED_PACKET, FrameTime, Message, SAME_FRAME, UpstreamRequest, WorkerTime,
};
use framepath_os::crossing::{Breach, CellReader, PooledPackets, SharedArea};
use framepath_os::memory::pool::{ForeignPool, Frame, GiveBackWords, Returns};

use super::HostError;
use super::buffer_provider::{BufferProvider, ProvidedSlots};
use super::encoded::{EncodedPacket, EncodedReceiver};
use super::health::WorkerHealth;
use super::memory::{Grant, GrantShare, Granter};
use super::message_io::{check_answers_received, recv_within, send};
use super::policy::RequestBudget;
use super::spec::Spec;
use super::worker_stream::WorkerStream;

/// Time limit for a message that a cell announces: zero, because the worker sends the message before
/// the cell.
const ALREADY_SENT: Duration = Duration::ZERO;
/// Maximum number of layouts, pools and requests for memory, all three together, that a worker may send
/// between two answers. An answer is a frame, or the report that an input frame has no output. A new pool
/// needs one of each. Also the maximum number of requests for memory while the worker opens the stream.
pub(super) const CONSTANTS: u32 = 8;

/// Receiver of the completions of one worker.
pub(super) struct Receiving {
    link: Arc<WorkerStream>,
    reader: CellReader,
    pools: WorkerPools,
    /// Number of layouts, pools and requests for memory since the last frame, or report of a frame without
    /// output.
    constants: u32,
    /// Budget of the requests of the worker's stage to the hops in front.
    requests: RequestBudget,
    /// Budget of the reports about packets that were not decoded.
    reports: RequestBudget,
    provider: Option<Arc<dyn BufferProvider>>,
    /// True if the stage takes frames.
    takes_frames: bool,
    /// Time of the next completion's frame; `None` if the frame has the time of its input.
    time: Option<FrameTime>,
    /// Receiver of the packets; `None` for a stage that emits frames.
    encoded: Option<EncodedReceiver>,
}

/// A message that a worker sent through the ring or the socket, checked.
pub(super) enum WorkerMessage {
    /// A frame that the stage emitted for the input with number `seq`, in a pool that the worker has
    /// announced.
    Frame { seq: u64, frame: Frame, work: WorkerTime },
    /// A packet that the encoder made of the frame with number `seq`.
    Encoded { seq: u64, packet: EncodedPacket, work: WorkerTime },
    /// A frame that answers no input, in a pool that the worker has announced. The worker claims that its
    /// newest input has the number `newest`.
    Extra { newest: u64, frame: Frame, work: WorkerTime },
    /// The stage emitted the input frame with number `seq` itself as the output.
    Same { seq: u64, work: WorkerTime },
    /// The worker has finished the input frame with number `seq` without output.
    Nothing { seq: u64 },
    /// The worker has discarded all inputs before the flush with number `seq`.
    Flushed { seq: u64 },
    /// Answer to a drain: the worker has sent all output for the inputs before the drain.
    End,
    /// The stage failed, with this error message.
    Failed(String),
    /// The stage sends a request to the hops in front.
    Request(UpstreamRequest),
    /// If `skipped` is 0, the decoder could not decode packet `seq`, and continues without it. Otherwise the
    /// decoder has skipped `skipped` packets, the last of which is packet `seq`.
    Undecoded { seq: u64, skipped: u64 },
    /// A layout, a pool or a request for memory, which the receiver has handled already.
    Constant,
}

impl Receiving {
    pub(super) fn new(
        link: &Arc<WorkerStream>,
        reader: CellReader,
        granter: Granter,
        spec: &Spec,
        stream: &StreamInfo,
    ) -> Receiving {
        let pools = WorkerPools::new(link, granter);
        let (requests, reports) = (RequestBudget::default(), RequestBudget::default());
        Receiving {
            link: link.clone(),
            reader,
            pools,
            constants: 0,
            requests,
            reports,
            provider: spec.provider.clone(),
            takes_frames: spec.track.is_none(),
            time: None,
            encoded: spec
                .encodes
                .map(|codec| EncodedReceiver::new(PooledPackets::new(link.area.clone()), codec, *stream)),
        }
    }

    /// Takes and checks the next completion; `None` if there is none now. `meta` returns the metadata of an
    /// input by its number, `None` for an unknown input. Handles a layout, a pool or a request for memory
    /// itself.
    ///
    /// # Errors
    /// The worker broke the rules, the connection to the worker failed, this process lacks a resource, or the
    /// provider has no buffers.
    pub(super) fn take(
        &mut self,
        meta: impl FnMut(u64) -> Option<FrameMeta>,
    ) -> Result<Option<WorkerMessage>, HostError> {
        let Some(cell) = self.reader.pop()? else { return Ok(None) };
        let completion = Completion::decode(&cell)?;
        let time = self.time.take();
        let is_frame = matches!(completion, Completion::Frame { .. });
        let is_extra = time.is_some_and(|time| time.is_extra);
        let is_answer = (is_frame && !is_extra) || matches!(completion, Completion::Passed { .. });
        self.link.health.completed(is_answer);
        if is_answer || is_frame {
            self.constants = 0;
        }
        let mut packet = None;
        if let Some(encoded) = &mut self.encoded {
            match completion {
                Completion::Encoded { part, offset, len, id } => {
                    encoded.part(part, (offset, len, id))?;
                    return Ok(Some(WorkerMessage::Constant));
                }
                Completion::Frame { pool: ENCODED_PACKET, .. } => packet = Some(encoded.take()?),
                Completion::Frame { .. } | Completion::FrameTime(_) => {
                    return Err(Breach("a frame of an encoder").into());
                }
                _ if encoded.is_expecting() => {
                    return Err(Breach("a packet of an encoder without its frame").into());
                }
                _ => {}
            }
        }
        match completion {
            _ if time.is_some() && !is_frame => Err(Breach("the time of a frame without the frame").into()),
            Completion::Frame { seq, pool: ENCODED_PACKET, work, .. } => {
                let packet = packet.ok_or(Breach("a packet of a stage that emits frames"))?;
                Ok(Some(WorkerMessage::Encoded { seq, packet, work }))
            }
            Completion::Frame { seq, pool: SAME_FRAME, work, .. } => {
                if time.is_some() {
                    return Err(Breach("a new time of an input frame that was passed on").into());
                }
                Ok(Some(WorkerMessage::Same { seq, work }))
            }
            Completion::Frame { seq, pool, slot, layout, picture, work } => {
                if time.is_some_and(|time| !time.is_extra && time.seq != seq) {
                    return Err(Breach("the time of a frame with another number").into());
                }
                let mut meta = meta;
                let meta = |seq| output_meta(seq, time, &mut meta).map(|meta| meta.with_picture(picture));
                let frame = self.pools.frame(pool, slot, layout, seq, meta)?;
                self.link.health.frame_out();
                Ok(Some(match is_extra {
                    true => WorkerMessage::Extra { newest: seq, frame, work },
                    false => WorkerMessage::Frame { seq, frame, work },
                }))
            }
            Completion::FrameTime(time) if self.takes_frames => {
                self.time = Some(time);
                Ok(Some(WorkerMessage::Constant))
            }
            Completion::Passed { seq } => Ok(Some(WorkerMessage::Nothing { seq })),
            Completion::End => Ok(Some(WorkerMessage::End)),
            Completion::Flushed { number: seq } => Ok(Some(WorkerMessage::Flushed { seq })),
            Completion::Request(request) => {
                // The watchdog must not count requests as progress: a stuck stage can send them too.
                self.link.health.exclude_from_progress();
                self.requests.count_request(self.link.health.submissions())?;
                Ok(Some(WorkerMessage::Request(request)))
            }
            Completion::Undecoded { seq, skipped } => {
                self.link.health.exclude_from_progress();
                self.reports.count_request(self.link.health.submissions())?;
                Ok(Some(WorkerMessage::Undecoded { seq, skipped }))
            }
            other => self.on_rare(&other).map(Some),
        }
    }

    /// Handles the rare completions: a failure, a layout, a pool, or a request for memory.
    ///
    /// # Errors
    /// The completion is of another kind, or more than [`CONSTANTS`] layouts, pools and requests arrived
    /// since the last answer; also as [`Receiving::take`].
    fn on_rare(&mut self, completion: &Completion) -> Result<WorkerMessage, HostError> {
        if *completion == Completion::Failed {
            return match self.recv()? {
                Some((Message::Failed { text, .. }, _)) => Ok(WorkerMessage::Failed(text)),
                _ => Err(Breach("failure reported without an error message").into()),
            };
        }
        self.constants += 1;
        if self.constants > CONSTANTS {
            return Err(Breach("too many layouts, pools and requests for memory without a frame").into());
        }
        match *completion {
            Completion::Layout { id, layout } => self.pools.name_layout(id, layout),
            Completion::Pool { pool, slots, slot_bytes, first_slot } => {
                let slot_bytes = usize::try_from(slot_bytes)
                    .map_err(|_| Breach("a slot larger than the address space"))?;
                match &self.provider {
                    Some(provider) => {
                        self.pools.add_provided(pool, slots, slot_bytes, first_slot, &**provider)?;
                    }
                    None => {
                        let message = self.recv()?;
                        self.pools.add_granted(pool, slots, slot_bytes, first_slot, message)?;
                    }
                }
            }
            Completion::MemoryRequest => self.provide()?,
            _ => return Err(Breach("an unexpected kind of completion").into()),
        }
        Ok(WorkerMessage::Constant)
    }

    /// Receives the worker's request for memory, and answers the request: with memory, with buffers of the
    /// provider, or with a denial.
    ///
    /// # Errors
    /// The request has not arrived, another message came instead, the worker has not received earlier
    /// answers, a message cannot be sent or received, or as [`Receiving::provide_buffers`].
    fn provide(&mut self) -> Result<(), HostError> {
        check_answers_received(&self.link.socket, || self.link.health.announced_pools())?;
        match self.recv()? {
            Some((Message::RequestBuffers(request), _)) => self.provide_buffers(request),
            Some((Message::RequestMemory { bytes }, _)) => {
                let (answer, memory) = self.pools.grant(bytes);
                self.send(&answer, memory.as_ref())
            }
            _ => {
                Err(Breach("the ring announced a request for memory, but the next message was not one")
                    .into())
            }
        }
    }

    /// Requests buffers from the provider, and sends these buffers to the worker.
    ///
    /// # Errors
    /// The stream has no provider, the provider has no such buffers (then the worker gets a denial), or a
    /// message cannot be sent.
    fn provide_buffers(&mut self, request: BufferRequest) -> Result<(), HostError> {
        let Some(provider) = self.provider.clone() else {
            return Err(Breach("a request for buffers of a provider, but the stream has none").into());
        };
        // The watchdog must not kill a worker that waits for the provider.
        self.link.health.set_provider_busy(true);
        let provided = provider.provide(&request);
        self.link.health.set_provider_busy(false);
        let provided = match provided {
            Ok(provided) => provided,
            Err(text) => {
                // The worker gets the reason too: its stage fails, and so does the stream.
                self.send(&Message::Denied { text: text.clone() }, None)?;
                return Err(HostError::Failed { text });
            }
        };
        let buffers = provided.buffers.len() as u32;
        self.send(&Message::ProvideBuffers { lent: provided.lent, buffers }, None)?;
        for (index, buffer) in provided.buffers.iter().enumerate() {
            self.send(&Message::Buffer { index: index as u32 }, Some(buffer))?;
        }
        self.pools.expect_buffers(buffers, request.bytes(provided.lent));
        Ok(())
    }

    /// Receives the message that belongs to the last cell, without waiting; `None` if the worker has closed
    /// the connection. Fails if the message has not arrived.
    fn recv(&self) -> Result<Option<(Message, Option<OwnedFd>)>, HostError> {
        let received = recv_within(&self.link.socket, ALREADY_SENT)?;
        self.link.health.traffic.message_in();
        Ok(received)
    }

    fn send(&self, message: &Message, fd: Option<&OwnedFd>) -> Result<(), HostError> {
        self.link.health.traffic.message_out();
        send(&self.link.socket, message, fd.map(AsFd::as_fd))
    }

    /// Sleeps until a cell arrives, a thread requests attention ([`WorkerHealth::request_attention`]),
    /// `has_request` is true, `limit` passes or the worker is gone. May return early.
    pub(super) fn sleep(&mut self, has_request: impl Fn() -> bool, limit: Option<Duration>) {
        let health = &self.link.health;
        health.collect_sleeps(true);
        self.reader.sleep(|| health.is_gone() || health.is_attention_requested() || has_request(), limit);
        health.collect_sleeps(false);
    }

    /// Sleeps until a thread requests attention ([`WorkerHealth::request_attention`]) or `has_request` is
    /// true, whatever the worker does. May return early.
    pub(super) fn sleep_until_called(&mut self, has_request: impl Fn() -> bool) {
        let health = &self.link.health;
        self.reader.bell().sleep_unless(|| health.is_attention_requested() || has_request(), None);
    }
}

/// Returns the metadata of a frame whose completion has the number `seq`: that of the input from which the frame
/// was made, with the frame's own `time` if it has one. For an extra frame whose input is no longer known, takes
/// the metadata of input `seq`, the worker's newest. `meta` returns the metadata of an input; `None` if input
/// `seq` is not known.
fn output_meta(
    seq: u64,
    time: Option<FrameTime>,
    mut meta: impl FnMut(u64) -> Option<FrameMeta>,
) -> Option<FrameMeta> {
    let newest = meta(seq)?;
    let Some(time) = time else { return Some(newest) };
    let source = if time.seq == seq { None } else { meta(time.seq) };
    Some(FrameMeta { pts: time.pts, ..source.unwrap_or(newest) })
}

/// Maximum number of pools that are kept for a worker. A further pool removes the oldest.
const POOLS: u16 = 64;
/// Number of a worker's newest pools that are kept regardless of their size.
const RECENT_POOLS: usize = 2;

/// Error about a pool whose number is not the next one, or whose slots do not match the provider's buffers.
const WRONG_POOL: Breach = Breach("a pool with the wrong number or size");

/// Pools and layouts that a worker has announced, and the memory that was granted to the worker.
pub(super) struct WorkerPools {
    pools: HashMap<u16, ForeignPool>,
    /// Number that the worker's next pool must have.
    next: u16,
    layouts: Vec<Option<Layout>>,
    returns: Arc<SlotReturns>,
    /// Number of the provider's buffers for which the worker has not announced a pool yet, and their
    /// minimum size in bytes; `None` if there are none.
    unmapped: Option<(u32, u32)>,
    granter: Granter,
}

impl WorkerPools {
    pub(super) fn new(link: &WorkerStream, granter: Granter) -> WorkerPools {
        let returns = Arc::new(SlotReturns { area: link.area.clone(), health: link.health.clone() });
        let layouts = vec![None; 256];
        WorkerPools { pools: HashMap::new(), next: 0, layouts, returns, unmapped: None, granter }
    }

    /// Returns the frame of input `seq` that lies in slot `slot` of pool `pool`. `meta` finds the input's
    /// metadata.
    ///
    /// # Errors
    /// The worker named an unknown input, pool, slot or layout, or the frame does not fit the slot.
    pub(super) fn frame(
        &self,
        pool: u16,
        slot: u32,
        layout: u8,
        seq: u64,
        mut meta: impl FnMut(u64) -> Option<FrameMeta>,
    ) -> Result<Frame, HostError> {
        let meta = meta(seq).ok_or(Breach("output of an input that was never submitted"))?;
        let pool = self.pools.get(&pool).ok_or(Breach("a frame in a pool that was not announced"))?;
        let layout = self.layouts[usize::from(layout)]
            .ok_or(Breach("a frame with a layout that was not announced"))?;
        Ok(pool.frame(slot, &layout, meta)?)
    }

    /// Records the layout that the worker announces under the number `id`; replaces an earlier one.
    pub(super) fn name_layout(&mut self, id: u8, layout: Layout) {
        self.layouts[usize::from(id)] = Some(layout);
    }

    /// Allocates memory for a pool, after removing old pools if the worker's limit requires it. Returns the
    /// answer for the worker, which may be a denial, and the descriptor to attach; `None` with a denial.
    pub(super) fn grant(&mut self, bytes: u64) -> (Message, Option<OwnedFd>) {
        self.make_room(bytes);
        self.granter.grant(bytes)
    }

    /// Records that the next pool lies in `buffers` buffers of the provider, each of at least `bytes`
    /// bytes.
    pub(super) fn expect_buffers(&mut self, buffers: u32, bytes: u32) {
        self.unmapped = Some((buffers, bytes));
    }

    /// Adds the pool that the worker announces in the buffers that the provider returned last, and passes the
    /// pool's slots to the provider.
    ///
    /// # Errors
    /// The number or size of the pool is wrong, or the provider has provided no buffers for it.
    pub(super) fn add_provided(
        &mut self,
        number: u16,
        slots: u32,
        slot_bytes: usize,
        first_slot: u32,
        provider: &dyn BufferProvider,
    ) -> Result<(), HostError> {
        self.check_number(number)?;
        let not_provided =
            Breach("a pool in provided buffers, but the provider has not provided buffers for it");
        let (buffers, least) = self.unmapped.take().ok_or(not_provided)?;
        if slots != buffers || slot_bytes < least as usize {
            return Err(WRONG_POOL.into());
        }
        let foreign = ForeignPool::unmapped(slot_bytes, slots, first_slot, self.returns.clone())?;
        // All slots count as out until the provider releases them to the worker.
        (0..slots).for_each(|_| self.returns.health.frame_out());
        provider.mapped(ProvidedSlots { returns: self.returns.clone(), first: first_slot });
        self.add(number, foreign);
        Ok(())
    }

    /// Adds a pool that the worker announces in granted memory. `message` is the message that belongs to the
    /// announcement and names the grant; `None` if the worker has closed the connection.
    ///
    /// # Errors
    /// The number or size of the pool is wrong, `message` is missing or another one, the memory was not
    /// granted, or it cannot be mapped.
    pub(super) fn add_granted(
        &mut self,
        number: u16,
        slots: u32,
        slot_bytes: usize,
        first_slot: u32,
        message: Option<(Message, Option<OwnedFd>)>,
    ) -> Result<(), HostError> {
        self.check_number(number)?;
        let memory = match message {
            Some((Message::PoolMemory { pool, memory }, _)) if pool == number => memory,
            _ => return Err(Breach("a pool without a message about its memory").into()),
        };
        let Grant { fd, share } =
            self.granter.take(memory).ok_or(Breach("a pool in memory that was not granted"))?;
        let returns = Arc::new(GrantedReturns { returns: self.returns.clone(), _share: share });
        let foreign = ForeignPool::new(fd, slot_bytes, slots, first_slot, returns)?;
        self.add(number, foreign);
        Ok(())
    }

    /// Checks that `number` is the number that the next pool must have, and sets the number for the pool
    /// after it. [`WorkerPools::make_room`] relies on the order.
    fn check_number(&mut self, number: u16) -> Result<(), HostError> {
        if number != self.next {
            return Err(WRONG_POOL.into());
        }
        self.next = number.wrapping_add(1);
        Ok(())
    }

    fn add(&mut self, number: u16, pool: ForeignPool) {
        self.pools.insert(number, pool);
        // Without this limit, a worker that announces pool after pool would use up this process's
        // memory. Frames outlive their pool, so removal is safe.
        self.pools.remove(&number.wrapping_sub(POOLS));
    }

    /// Removes pools, the earliest announced first, until there is room to grant `bytes` more, or only the
    /// newest [`RECENT_POOLS`] are left: a decoder may still emit frames in these. Frames of a removed pool
    /// keep its memory granted, so there may still be no room.
    fn make_room(&mut self, bytes: u64) {
        let mut oldest = self.next.wrapping_sub(POOLS);
        while self.granter.is_full(bytes) && self.pools.len() > RECENT_POOLS {
            self.pools.remove(&oldest);
            oldest = oldest.wrapping_add(1);
        }
    }
}

/// Path by which slots return to the worker: words of the shared area. Each return also reduces the count of
/// frames that this process holds.
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

/// [`SlotReturns`] of a pool in granted memory. The memory counts as granted as long as the pool or a
/// frame of it exists.
pub(super) struct GrantedReturns {
    pub(super) returns: Arc<SlotReturns>,
    /// Share that keeps the memory counted as granted. Dropped with the pool and its last frame.
    pub(super) _share: Arc<GrantShare>,
}

impl Returns for GrantedReturns {
    fn give_back(&self, slot: u32) {
        self.returns.give_back(slot);
    }
}
