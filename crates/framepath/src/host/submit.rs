// SPDX-License-Identifier: MIT OR Apache-2.0
//! Submit end of a stream: the caller's stage in front of a worker, which sends the inputs to the worker.
//! Also the right to write the ring to the worker.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

use framepath_model::format::Layout;
use framepath_model::stream::{FrameMeta, StreamInfo};
use framepath_model::wire::{EncoderRequests, Message, Submission};
use framepath_os::crossing::{Bell, Breach, CellWriter, PacketArea};
use framepath_os::measure::meter;
use framepath_os::memory::pool::Frame;

use super::HostError;
use super::between::{Logged, SubmitCommand};
use super::encoder_control::EncoderControl;
use super::input::{LoggedInput, WorkerInput};
use super::message_io::send;
use super::names::{Names, shared_memory};
use super::session::Session;
use super::worker_stream::WorkerStream;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::recorder::Stretch;
use crate::request::{Answered, Request};
use crate::stage::Stage;

/// Function that opens the stream in a first worker. Takes the stream's description in front of the stage;
/// returns the description behind the stage, and the submit end.
type Start = Box<dyn FnMut(StreamInfo) -> Result<(StreamInfo, SubmitEnd), HostError> + Send>;

/// Last stage of its thread: submits items to a worker, whose output goes to the next thread.
pub(crate) struct Submit {
    start: Start,
    /// Session that still has to receive this hop's upstream path for requests; `None` from the first input
    /// or flush on.
    session: Option<Arc<Session>>,
    /// Submit end of the stream; `None` before the start.
    end: Option<SubmitEnd>,
    /// Requests to the encoder that the worker runs; `None` for another stage.
    encoder: Option<EncoderControl>,
}

/// Submit end of a stream: submits packets or frames to the worker.
///
/// The submit end shares no lock with the collect end. It logs each input before submitting the input, so
/// that the collect end can submit the input again, to the next worker.
pub struct SubmitEnd {
    log: SyncSender<Logged>,
    commands: Receiver<SubmitCommand>,
    /// Newest worker that the submit end knows.
    link: Arc<WorkerStream>,
    /// Right to submit to that worker, which may be gone already. `None` after [`Logged::Flush`],
    /// [`Logged::End`] and [`Logged::Ask`], until the collect end answers an `Ask` by
    /// [`SubmitCommand::Direct`].
    sending: Option<Box<Sending>>,
    /// Number of the next input or flush.
    next_seq: u64,
    /// True from [`SubmitEnd::end`] until a flush: no input is accepted.
    ended: bool,
    /// True if the stream has ended, and a flush may follow.
    is_held: bool,
}

/// Reason why an input cannot be submitted.
#[derive(Debug)]
pub enum SubmitError {
    /// The collect end was dropped; if the stream failed, the collect end has returned the error. Or
    /// [`SubmitEnd::end`] was called before, and no flush since.
    Closed,
    /// Error of this process or of the input. The worker is not the cause.
    Host(HostError),
}

impl SubmitEnd {
    pub(super) fn new(
        log: SyncSender<Logged>,
        commands: Receiver<SubmitCommand>,
        sending: Box<Sending>,
    ) -> SubmitEnd {
        let (link, sending) = (sending.link.clone(), Some(sending));
        SubmitEnd { log, commands, link, sending, next_seq: 0, ended: false, is_held: false }
    }

    /// Submits an input to the worker. After a loss of packets, until the stream resumes, passes the input to
    /// the collect end instead, which submits or drops it. Waits while the ring, the memory for packets or
    /// the log has no room, and after a worker's death or a flush until the collect end has submitted all
    /// earlier inputs.
    ///
    /// `cut` ends the caller's part of the frame's time. This function calls it just before the worker can
    /// see the input, so a wait for another worker is in the caller's part. After a wait for room in the ring
    /// or in the memory for packets, or if the collect end takes the input, it uses `begun` instead, so that
    /// the wait counts as queue time.
    ///
    /// # Errors
    /// The collect end has ended, [`SubmitEnd::end`] was called before and no flush since, this process lacks
    /// a resource, or the packet is too large.
    pub fn submit(
        &mut self,
        meta: FrameMeta,
        input: WorkerInput,
        begun: Stretch,
        mut cut: impl FnMut() -> Stretch,
    ) -> Result<(), SubmitError> {
        if self.ended {
            return Err(SubmitError::Closed);
        }
        let mut has_waited = false;
        loop {
            let Some(sending) = self.sending.as_mut().filter(|sending| !sending.link.health.is_gone()) else {
                if self.ask()? {
                    continue;
                }
                return self.relay(LoggedInput::new(input, meta, u64::MAX, begun));
            };
            match sending.prepare(self.next_seq, meta.pts, &input, false) {
                Ok(Ok(submission)) => {
                    let stretch = if has_waited { begun } else { cut() };
                    let (worker, cell) = (Some(sending.link.number), sending.next_cell());
                    self.log_input(worker, LoggedInput::new(input, meta, cell, stretch))?;
                    self.push_cell(&submission);
                    return Ok(());
                }
                Ok(Err(full)) => {
                    sending.wait_for_room(full);
                    has_waited = true;
                }
                Err(error) if error.is_of_caller() => return Err(SubmitError::Host(error)),
                // The collect end sees that the worker is gone, and starts another.
                Err(_) => sending.link.break_off(),
            }
        }
    }

    /// Writes the cell of an input that was prepared and logged, and wakes the worker.
    fn push_cell(&mut self, submission: &Submission) {
        let Some(sending) = &mut self.sending else { return };
        if sending.submit(submission).is_err() {
            sending.link.break_off();
        }
        sending.wake_worker();
        // Read after the fence of the worker's bell, and that fence comes after the entry in the log.
        if self.link.health.is_gone() {
            self.wake_worker();
        }
    }

    /// Passes an input to the collect end, which submits or drops the input.
    fn relay(&mut self, sent: LoggedInput) -> Result<(), SubmitError> {
        self.log_input(None, sent)?;
        self.wake_worker();
        Ok(())
    }

    fn log_input(&mut self, worker: Option<u64>, sent: LoggedInput) -> Result<(), SubmitError> {
        self.log(Logged::Input { worker, sent })?;
        self.next_seq += 1;
        Ok(())
    }

    /// Asks the collect end for the right to submit, and waits until the collect end has submitted all
    /// earlier inputs. Returns `true` if this end submits the next input, `false` if the collect end does.
    ///
    /// # Errors
    /// The collect end has ended.
    #[cold]
    fn ask(&mut self) -> Result<bool, SubmitError> {
        // The right to write to a worker that is gone is of no use.
        self.sending = None;
        self.log(Logged::Ask)?;
        self.link.health.request_attention();
        loop {
            match meter::blocked(|| self.commands.recv()).map_err(|_| SubmitError::Closed)? {
                SubmitCommand::Next(link) => {
                    link.health.request_attention();
                    self.link = link;
                }
                SubmitCommand::Direct(sending) => {
                    self.sending = Some(sending);
                    return Ok(true);
                }
                SubmitCommand::Relay => return Ok(false),
            }
        }
    }

    /// Wakes the collect end to read the log. If this end's worker is gone, the collect end may sleep until
    /// the next worker, which this end does not know yet, sends output: then this function waits until the
    /// collect end names that worker, and wakes the collect end again. Returns without that if the collect
    /// end has ended.
    #[cold]
    fn wake_worker(&mut self) {
        loop {
            self.link.health.request_attention();
            // Read after the fence of `request_attention`: if the worker is still there, the collect
            // end reads the log again when the worker goes.
            if !self.link.health.is_gone() {
                return;
            }
            match meter::blocked(|| self.commands.recv()) {
                Ok(SubmitCommand::Next(link)) => self.link = link,
                // An error means that the collect end is gone. The other two commands only answer
                // `Logged::Ask`, which this function does not send.
                Ok(SubmitCommand::Direct(_) | SubmitCommand::Relay) | Err(_) => return,
            }
        }
    }

    /// Adds an entry to the log. If the log is full, wakes the collect end and waits. The log fills if the
    /// collect end takes no output for many inputs.
    ///
    /// # Errors
    /// The collect end has ended.
    fn log(&self, logged: Logged) -> Result<(), SubmitError> {
        match self.log.try_send(logged) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(logged)) => {
                self.link.health.request_attention();
                match meter::blocked(|| self.log.send(logged).is_ok()) {
                    true => Ok(()),
                    false => Err(SubmitError::Closed),
                }
            }
            Err(TrySendError::Disconnected(_)) => Err(SubmitError::Closed),
        }
    }

    /// Ends the input: the worker drains its stage. `is_held` is true if a flush and further inputs may
    /// follow. A repeated call without a flush in between has an effect only if it ends a held stream for
    /// good.
    pub fn end(&mut self, is_held: bool) {
        if self.ended && (is_held || !self.is_held) {
            return;
        }
        (self.ended, self.is_held) = (true, is_held);
        let sending = self.sending.take();
        // If the collect end has ended, so has the stream.
        if self.log(Logged::End { is_held, sending }).is_ok() {
            self.wake_worker();
        }
    }

    /// Discards the inputs before the seek or flush with the number `generation`, and accepts inputs again
    /// after an end. The collect end tells the worker to discard them. The next call of
    /// [`SubmitEnd::submit`] has to ask for the right to submit.
    ///
    /// # Errors
    /// The collect end has ended.
    pub(crate) fn flush(&mut self, generation: u64) -> Result<(), SubmitError> {
        (self.ended, self.is_held) = (false, false);
        let sending = self.sending.take();
        self.log(Logged::Flush { generation, sending })?;
        // The flush has a number among the inputs.
        self.next_seq += 1;
        self.wake_worker();
        Ok(())
    }
}

impl Drop for SubmitEnd {
    fn drop(&mut self) {
        // Also if this end's thread fails, so that the output of the earlier inputs is still delivered.
        self.end(false);
    }
}

impl Submit {
    pub(super) fn new(session: Arc<Session>, start: Start, encoder: Option<EncoderControl>) -> Submit {
        Submit { start, session: Some(session), end: None, encoder }
    }

    /// Tells the session, at the first call, where to send requests of the worker's stage: upstream of this
    /// hop.
    #[inline]
    fn set_upstream(&mut self, out: &Out<'_>) {
        if let Some(session) = self.session.take() {
            session.set_upstream(out.upstream());
        }
    }
}

fn hop_failure(error: SubmitError, out: &Out<'_>) -> HopFailure {
    match error {
        SubmitError::Closed => out.fail(StageError::Downstream),
        SubmitError::Host(error) => out.fail(error),
    }
}

impl Stage for Submit {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        let (stream, end) = (self.start)(*info)?;
        self.end = Some(end);
        Ok(stream)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        self.set_upstream(out);
        let Some(end) = &mut self.end else { return Err(out.fail(StageError::Downstream)) };
        let meta = item.meta();
        let input = match item {
            Item::Packet(packet) => WorkerInput::Packet(packet),
            Item::Frame(frame) => match &mut self.encoder {
                Some(encoder) => {
                    let Some(requests) = encoder.next(&meta, out) else { return Ok(()) };
                    WorkerInput::Frame(frame, requests)
                }
                None => WorkerInput::Frame(frame, EncoderRequests::default()),
            },
        };
        let begun = out.recorder().current();
        let submitted = end.submit(meta, input, begun, || out.cut(meta.seq));
        submitted.map_err(|error| hop_failure(error, out))
    }

    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        self.set_upstream(out);
        self.encoder.iter_mut().for_each(EncoderControl::flush);
        let Some(end) = &mut self.end else { return Err(out.fail(StageError::Downstream)) };
        end.flush(out.generation()).map_err(|error| hop_failure(error, out))
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if let Some(end) = &mut self.end {
            end.end(out.holds());
        }
        self.encoder.iter_mut().for_each(EncoderControl::report);
        Ok(())
    }

    /// Remembers a request to the encoder for the next frame. Another stage in a worker gets no requests.
    fn request(&mut self, request: &Request) -> Answered {
        self.encoder.as_mut().map_or(Answered::PassOn, |encoder| encoder.request(request))
    }
}

/// The right to submit to a worker. It belongs to one end of the stream at a time.
pub(super) struct Sending {
    pub(super) link: Arc<WorkerStream>,
    writer: CellWriter,
    packets: PacketArea,
    names: Names,
    /// Bells by which the worker wakes this process when this process waits for room: in the ring, and in
    /// the packet area.
    room: [Bell; 2],
    /// Position of the next cell: the number of cells submitted so far.
    cells: u64,
    /// True if cells were submitted and the worker was not woken since.
    wake_due: bool,
    /// True if a drain was submitted and no flush since.
    pub(super) drained: bool,
}

/// Memory shared with a worker in which there is no room for an input, a drain or a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FullResource {
    /// Cells of the ring to the worker.
    Cells,
    /// Memory for packets.
    Bytes,
}

impl Sending {
    pub(super) fn new(link: Arc<WorkerStream>, writer: CellWriter, packets: PacketArea) -> Sending {
        let room = [Bell::for_room(&link.area), Bell::for_packets(&link.area)];
        let names = Names::default();
        Sending { link, writer, packets, names, room, cells: 0, wake_due: false, drained: false }
    }

    /// Prepares the submission of `input`: copies a packet into shared memory; announces the pool and the
    /// layout of a frame if they are new. Returns the submission, or the full resource if there is no room.
    /// Call [`Sending::submit`] with the submission before the next call of this function. With
    /// `after_loss`, the decoder outputs all frames inside and starts anew before it takes the packet;
    /// `after_loss` has no effect on a frame.
    ///
    /// # Errors
    /// The worker broke the rules, the connection to the worker failed, this process lacks a resource, the
    /// packet is too large, the memory of the frame's pool cannot be shared, or the frame is of a new pool
    /// and no number for a pool is left ([`Names::pool`]).
    pub(super) fn prepare(
        &mut self,
        seq: u64,
        pts: Option<i64>,
        input: &WorkerInput,
        after_loss: bool,
    ) -> Result<Result<Submission, FullResource>, HostError> {
        // Two, because a frame may need a second cell for its layout.
        if self.writer.room()? < 2 {
            return Ok(Err(FullResource::Cells));
        }
        Ok(Ok(match input {
            WorkerInput::Packet(packet) => {
                let Some(offset) = packet.copy_into(&mut self.packets)? else {
                    let (bytes, most) = (packet.len(), self.packets.largest());
                    // A packet that never fits is an error.
                    let fits = bytes <= most;
                    return if fits {
                        Ok(Err(FullResource::Bytes))
                    } else {
                        Err(HostError::PacketSize { bytes, most })
                    };
                };
                let (len, key, is_damaged) = (packet.len() as u32, packet.is_key(), packet.is_damaged());
                let mut preroll = packet.preroll();
                preroll.restarts |= after_loss;
                // The replay log withholds these frames: only it knows, after a death, how many are left.
                preroll.skipped = 0;
                Submission::Packet { seq, pts, offset, len, key, is_damaged, preroll }
            }
            WorkerInput::Frame(frame, requests) => {
                let (pool, layout) = (self.pool(frame)?, self.layout(frame.layout())?);
                let picture = frame.meta().picture();
                let (slot, requests) = (frame.slot(), *requests);
                Submission::Frame { seq, pts, pool, slot, layout, picture, requests }
            }
        }))
    }

    /// Returns the position of the next cell, counted from 0 for the worker's first cell.
    pub(super) fn next_cell(&self) -> u64 {
        self.cells
    }

    /// Writes a submission to the ring, and returns the position of its cell. Does not wake the worker:
    /// [`Sending::wake_worker`] does. The caller has checked that the ring has room.
    ///
    /// # Errors
    /// The worker broke the rules of the ring.
    pub(super) fn submit(&mut self, submission: &Submission) -> Result<u64, Breach> {
        let cell = self.cells;
        self.cells += 1;
        self.link.health.submitted(matches!(submission, Submission::Frame { .. }));
        // The caller has checked for room.
        self.writer.push_quietly(&submission.encode())?;
        self.wake_due = true;
        Ok(cell)
    }

    /// Submits a drain, which tells the worker to emit all output that is still inside the stage; returns the
    /// full resource, and submits nothing, if there is no room.
    ///
    /// # Errors
    /// The worker broke the rules of the ring.
    pub(super) fn drain(&mut self) -> Result<Result<(), FullResource>, HostError> {
        if self.writer.room()? == 0 {
            return Ok(Err(FullResource::Cells));
        }
        self.drained = true;
        self.submit(&Submission::Drain)?;
        self.link.health.set_answer_due(true);
        Ok(Ok(()))
    }

    /// Submits the flush with number `seq`, which tells the worker to discard the inputs inside it; returns
    /// the full resource, and submits nothing, if there is no room. A flush may follow a drain.
    ///
    /// # Errors
    /// The worker broke the rules of the ring.
    pub(super) fn flush(&mut self, seq: u64) -> Result<Result<(), FullResource>, HostError> {
        if self.writer.room()? == 0 {
            return Ok(Err(FullResource::Cells));
        }
        self.drained = false;
        self.submit(&Submission::Flush { seq })?;
        self.link.health.set_answer_due(true);
        Ok(Ok(()))
    }

    /// Wakes the worker, and makes the worker's watcher check its progress from now on. Does nothing if no
    /// cell was submitted since the last call.
    pub(super) fn wake_worker(&mut self) {
        if std::mem::take(&mut self.wake_due) {
            self.writer.bell().ring();
            self.link.watcher.notify();
        }
    }

    /// Wakes the worker if a cell was submitted since the last wake-up. Sleeps until `full` has room
    /// ([`Sending::has_room`]), or the worker is gone; may return early.
    pub(super) fn wait_for_room(&mut self, full: FullResource) {
        self.wake_worker();
        let link = &self.link;
        // The watchdog then counts a sleeping worker that makes no room as stuck.
        link.health.submit_sleeps(true);
        link.watcher.notify();
        let ready = || link.health.is_gone() || self.has_room(full);
        let bell = match full {
            FullResource::Cells => &self.room[0],
            FullResource::Bytes => &self.room[1],
        };
        meter::blocked(|| bell.sleep_unless(ready, None));
        link.health.submit_sleeps(false);
    }

    /// For cells: true if at least half of the ring is free, so that a full ring costs one wake-up per half
    /// ring. For memory: true if the worker has released a packet since the last attempt to copy one, or
    /// broke the rules.
    fn has_room(&self, full: FullResource) -> bool {
        match full {
            FullResource::Cells => self.writer.len().is_ok_and(|len| len <= self.writer.cells() / 2),
            FullResource::Bytes => self.packets.has_news() != Ok(false),
        }
    }

    /// True if the worker has taken all submitted cells; false if the worker broke the rules of the ring.
    pub(super) fn is_taken(&self) -> bool {
        self.writer.is_empty() == Ok(true)
    }

    /// Returns the number of the frame's pool. Announces the pool to the worker, by a message, if no frame of
    /// the pool was submitted to this worker before.
    fn pool(&mut self, frame: &Frame) -> Result<u16, HostError> {
        let (pool, is_new) = self.names.pool(frame.pool_id())?;
        if is_new {
            let memory = shared_memory(frame)?;
            let (slots, slot_bytes) = (memory.slots, memory.slot_bytes as u64);
            let named = Message::InputPool { pool, slots, slot_bytes };
            self.link.health.announce_pool();
            send(&self.link.socket, &named, Some(memory.fd.as_fd()))?;
            self.link.health.traffic.message_out();
        }
        Ok(pool)
    }

    /// Returns the number of a layout. Announces a layout that has no number yet to the worker, by a cell.
    fn layout(&mut self, layout: &Layout) -> Result<u8, HostError> {
        let (id, is_new) = self.names.layout(layout);
        if is_new {
            self.submit(&Submission::Layout { id, layout: *layout })?;
        }
        Ok(id)
    }
}
