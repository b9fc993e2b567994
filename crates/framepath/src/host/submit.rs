// SPDX-License-Identifier: MIT OR Apache-2.0
//! Submit end of a stream: the caller's stage in front of a worker, which sends it the inputs. Also the right to
//! write the worker's ring.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

use framepath_model::format::Layout;
use framepath_model::stream::{FrameMeta, StreamInfo};
use framepath_model::wire::{Message, Submission};
use framepath_os::crossing::{Bell, Breach, CellWriter, PacketArea};
use framepath_os::measure::meter;
use framepath_os::memory::pool::Frame;

use super::HostError;
use super::between::{Logged, SubmitCommand};
use super::input::{LoggedInput, WorkerInput};
use super::message_io::send;
use super::names::{Names, shared_memory};
use super::session::Session;
use super::worker_stream::WorkerStream;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::recorder::Stretch;
use crate::stage::Stage;

/// Opens the stream in a first worker; takes the stream in front, returns the stream behind.
type Start = Box<dyn FnMut(StreamInfo) -> Result<(StreamInfo, SubmitEnd), HostError> + Send>;

/// The last stage of its thread; the worker's output goes to the next thread.
pub(crate) struct Submit {
    start: Start,
    /// `None` from the first input on, which gives the session this hop's upstream path for requests.
    session: Option<Arc<Session>>,
    /// `None` before the start.
    end: Option<SubmitEnd>,
}

/// The end of a stream that submits packets or frames to its worker.
///
/// It shares no lock with the collect end. It logs each input before submitting it, so that the
/// collect end can submit it again, to the next worker.
pub struct SubmitEnd {
    log: SyncSender<Logged>,
    ways: Receiver<SubmitCommand>,
    /// The last worker that this end knows.
    link: Arc<WorkerStream>,
    /// The right to submit to that worker; `None` while the collect end has it.
    sending: Option<Box<Sending>>,
    /// Number of inputs so far, and so the number of the next.
    given: u64,
    /// The stream has ended: only a flush may follow.
    ended: bool,
    /// The collect end was told that a flush may follow.
    is_held: bool,
}

/// Reason why an input cannot be submitted.
#[derive(Debug)]
pub enum SubmitError {
    /// The collect end has ended; it reports the reason.
    Closed,
    /// This process or the input itself is at fault.
    Host(HostError),
}

impl SubmitEnd {
    pub(super) fn new(
        log: SyncSender<Logged>,
        ways: Receiver<SubmitCommand>,
        sending: Box<Sending>,
    ) -> SubmitEnd {
        let (link, sending) = (sending.link.clone(), Some(sending));
        SubmitEnd { log, ways, link, sending, given: 0, ended: false, is_held: false }
    }

    /// Submits an input to the worker. Waits while there is no room.
    /// `cut` ends the caller's part of the frame's time: called just before the
    /// worker can see the input. If it has to wait for room, the time from `begun` on counts as the
    /// queue's.
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
            match sending.prepare(self.given, meta.pts, &input, false) {
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

    /// Submits the input that was prepared and logged.
    fn push_cell(&mut self, submission: &Submission) {
        let Some(sending) = &mut self.sending else { return };
        if sending.submit(submission).is_err() {
            sending.link.break_off();
        }
        sending.wake_worker();
        // Read behind the fence of the worker's bell, which comes behind the entry in the log.
        if self.link.health.is_gone() {
            self.wake_worker();
        }
    }

    /// Leaves an input to the collect end.
    fn relay(&mut self, sent: LoggedInput) -> Result<(), SubmitError> {
        self.log_input(None, sent)?;
        self.wake_worker();
        Ok(())
    }

    fn log_input(&mut self, worker: Option<u64>, sent: LoggedInput) -> Result<(), SubmitError> {
        self.log(Logged::Input { worker, sent })?;
        self.given += 1;
        Ok(())
    }

    /// Waits until the collect end has a worker that has room. True if the next input
    /// is to be submitted here; false if the collect end is to submit it.
    #[cold]
    fn ask(&mut self) -> Result<bool, SubmitError> {
        // The right to write to a worker that is gone is of no use.
        self.sending = None;
        self.log(Logged::Ask)?;
        self.link.health.request_attention();
        loop {
            match meter::blocked(|| self.ways.recv()).map_err(|_| SubmitError::Closed)? {
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

    /// Makes the collect end read the log, also if it waits for a worker that this end does not know.
    #[cold]
    fn wake_worker(&mut self) {
        loop {
            self.link.health.request_attention();
            // Read behind the call's fence: if the worker is not gone yet, the collect end
            // reads the log again once it is.
            if !self.link.health.is_gone() {
                return;
            }
            match meter::blocked(|| self.ways.recv()) {
                Ok(SubmitCommand::Next(link)) => self.link = link,
                // If no other worker comes, the collect end is gone. Without a
                // question there is no answer.
                Ok(SubmitCommand::Direct(_) | SubmitCommand::Relay) | Err(_) => return,
            }
        }
    }

    /// Adds an entry to the log. Waits while it is full, which it is only if workers give nothing for
    /// many inputs.
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

    /// Ends the stream: the worker is to give what is inside. The stream is held where a flush and
    /// further inputs may follow.
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

    /// Discards the inputs before the seek or flush with the number `generation`. The collect end has
    /// the worker forget them; the next input asks for the right to submit.
    pub(crate) fn flush(&mut self, generation: u64) -> Result<(), SubmitError> {
        (self.ended, self.is_held) = (false, false);
        let sending = self.sending.take();
        self.log(Logged::Flush { generation, sending })?;
        // The flush has a number among the inputs.
        self.given += 1;
        self.wake_worker();
        Ok(())
    }
}

impl Drop for SubmitEnd {
    fn drop(&mut self) {
        // If its thread fails, the earlier inputs are still delivered.
        self.end(false);
    }
}

impl Submit {
    pub(super) fn new(session: Arc<Session>, start: Start) -> Submit {
        Submit { start, session: Some(session), end: None }
    }

    /// Makes requests of the worker's stage go upstream as this hop's requests would.
    #[inline]
    fn set_upstream(&mut self, out: &Out<'_>) {
        if let Some(session) = self.session.take() {
            session.set_upstream(out.upstream());
        }
    }
}

fn refused(error: SubmitError, out: &Out<'_>) -> HopFailure {
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
            Item::Frame(frame) => WorkerInput::Frame(frame),
        };
        let begun = out.recorder().current();
        let given = end.submit(meta, input, begun, || out.recorder().cut());
        given.map_err(|error| refused(error, out))
    }

    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        self.set_upstream(out);
        let Some(end) = &mut self.end else { return Err(out.fail(StageError::Downstream)) };
        end.flush(out.generation()).map_err(|error| refused(error, out))
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if let Some(end) = &mut self.end {
            end.end(out.holds());
        }
        Ok(())
    }
}

/// The right to submit to a worker. It belongs to one end of the stream at a time.
pub(super) struct Sending {
    pub(super) link: Arc<WorkerStream>,
    writer: CellWriter,
    packets: PacketArea,
    names: Names,
    /// The bells that wake this process when it waits for room.
    room: [Bell; 2],
    /// Number of cells submitted so far, and so the position of the next.
    cells: u64,
    /// Cells were submitted and the worker's bell was not rung yet.
    unrung: bool,
    /// The worker was told that no input follows.
    pub(super) drained: bool,
}

/// The resource that has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FullResource {
    Cells,
    Bytes,
}

impl Sending {
    pub(super) fn new(link: Arc<WorkerStream>, writer: CellWriter, packets: PacketArea) -> Sending {
        let room = [Bell::for_room(&link.area), Bell::for_packets(&link.area)];
        let names = Names::default();
        Sending { link, writer, packets, names, room, cells: 0, unrung: false, drained: false }
    }

    /// Copies `input` to shared memory, if there is room; else returns the resource that is full.
    /// [`Sending::submit`] has to follow at once. After a loss the decoder outputs its frames and
    /// starts anew before the packet.
    pub(super) fn prepare(
        &mut self,
        seq: u64,
        pts: Option<i64>,
        input: &WorkerInput,
        after_loss: bool,
    ) -> Result<Result<Submission, FullResource>, HostError> {
        // A frame may need a second cell, for its layout.
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
                let (len, key) = (packet.len() as u32, packet.is_key());
                let mut preroll = packet.preroll();
                preroll.restarts |= after_loss;
                Submission::Packet { seq, pts, offset, len, key, preroll }
            }
            WorkerInput::Frame(frame) => {
                let (pool, layout) = (self.pool(frame)?, self.layout(frame.layout())?);
                Submission::Frame { seq, pts, pool, slot: frame.slot(), layout }
            }
        }))
    }

    /// Returns the position of the next cell.
    pub(super) fn next_cell(&self) -> u64 {
        self.cells
    }

    /// Writes the prepared submission to the ring; [`Sending::wake_worker`] wakes the worker. Returns
    /// the position of its cell.
    pub(super) fn submit(&mut self, submission: &Submission) -> Result<u64, Breach> {
        let cell = self.cells;
        self.cells += 1;
        self.link.health.submitted(matches!(submission, Submission::Frame { .. }));
        // The caller has checked for room.
        self.writer.push_quietly(&submission.encode())?;
        self.unrung = true;
        Ok(cell)
    }

    /// Tells the worker that no input follows.
    pub(super) fn drain(&mut self) -> Result<Result<(), FullResource>, HostError> {
        if self.writer.room()? == 0 {
            return Ok(Err(FullResource::Cells));
        }
        self.drained = true;
        self.submit(&Submission::Drain)?;
        self.link.health.set_answer_due(true);
        Ok(Ok(()))
    }

    /// Tells the worker to forget the inputs inside it; also behind a drain.
    pub(super) fn flush(&mut self, seq: u64) -> Result<Result<(), FullResource>, HostError> {
        if self.writer.room()? == 0 {
            return Ok(Err(FullResource::Cells));
        }
        self.drained = false;
        self.submit(&Submission::Flush { seq })?;
        self.link.health.set_answer_due(true);
        Ok(Ok(()))
    }

    /// Wakes the worker if cells were submitted, and has the watcher check it from now on.
    pub(super) fn wake_worker(&mut self) {
        if std::mem::take(&mut self.unrung) {
            self.writer.bell().ring();
            self.link.watcher.notify();
        }
    }

    /// Sleeps until there is room, or the worker is gone; may return early.
    pub(super) fn wait_for_room(&mut self, full: FullResource) {
        self.wake_worker();
        let link = &self.link;
        // A worker that makes no room is overdue, whether or not it sleeps.
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

    /// True if enough room is free again for a batch, so that a full ring
    /// costs a wake-up per half ring.
    fn has_room(&self, full: FullResource) -> bool {
        match full {
            FullResource::Cells => self.writer.len().is_ok_and(|len| len <= self.writer.cells() / 2),
            FullResource::Bytes => self.packets.has_news() != Ok(false),
        }
    }

    /// True if the worker has taken all that was submitted.
    pub(super) fn is_taken(&self) -> bool {
        self.writer.is_empty() == Ok(true)
    }

    /// Returns the number of the frame's pool; announces it to the worker when it is new.
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

    /// Returns the number of a layout; announces it to the worker when it is new.
    fn layout(&mut self, layout: &Layout) -> Result<u8, HostError> {
        let (id, is_new) = self.names.layout(layout);
        if is_new {
            self.submit(&Submission::Layout { id, layout: *layout })?;
        }
        Ok(id)
    }
}
