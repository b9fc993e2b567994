// SPDX-License-Identifier: MIT OR Apache-2.0
//! The caller's stage in front of a worker, and the right to write the worker's ring:
//! submits what arrives.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

use framepath_model::format::Layout;
use framepath_model::stream::{FrameMeta, StreamInfo};
use framepath_model::wire::{Message, Submission};
use framepath_os::crossing::{Bell, Breach, CellWriter, PacketArea};
use framepath_os::meter;
use framepath_os::pool::Frame;

use super::HostError;
use super::between::{Logged, Way};
use super::input::{Sent, WorkerInput};
use super::link::Link;
use super::names::{Names, shared_memory};
use super::say::say;
use super::session::Session;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{Failure, Out};
use crate::recorder::Stretch;
use crate::stage::Stage;

/// Opens the stream behind the one that is given, in a first worker.
type Start = Box<dyn FnMut(StreamInfo) -> Result<(StreamInfo, SubmitEnd), HostError> + Send>;

/// The last stage of its thread; what the worker gives goes to the next.
pub(crate) struct Submit {
    start: Start,
    /// Until the first input: waits for the way of requests upstream, which begins here.
    session: Option<Arc<Session>>,
    /// `None` before the start.
    end: Option<SubmitEnd>,
}

/// The end of a stream that gives its worker packets or frames.
///
/// It shares no lock with the collect end. What it submits it logs before, so that the
/// collect end can submit it again, to the next worker.
pub struct SubmitEnd {
    log: SyncSender<Logged>,
    ways: Receiver<Way>,
    /// The last worker that is known here.
    link: Arc<Link>,
    /// The right to submit to it; `None` where the collect end has that.
    sending: Option<Box<Sending>>,
    /// Inputs so far: the number of the next.
    given: u64,
    /// The stream has ended: only a flush may follow.
    ended: bool,
    /// The collect end was told that a flush may follow.
    is_held: bool,
}

/// Why an input cannot be given.
#[derive(Debug)]
pub enum GiveError {
    /// The collect end has ended, and says why.
    Closed,
    /// This process or the input itself is at fault.
    Host(HostError),
}

impl SubmitEnd {
    pub(super) fn new(log: SyncSender<Logged>, ways: Receiver<Way>, sending: Box<Sending>) -> SubmitEnd {
        let (link, sending) = (sending.link.clone(), Some(sending));
        SubmitEnd { log, ways, link, sending, given: 0, ended: false, is_held: false }
    }

    /// Gives the worker something to work on. Waits while it has enough.
    /// `cut` ends the caller's part of the frame's time: called just before the
    /// worker can see it. Where it has to wait for room the time from `begun` on is the
    /// queue's.
    pub fn give(
        &mut self,
        meta: FrameMeta,
        input: WorkerInput,
        begun: Stretch,
        mut cut: impl FnMut() -> Stretch,
    ) -> Result<(), GiveError> {
        if self.ended {
            return Err(GiveError::Closed);
        }
        let mut has_waited = false;
        loop {
            let Some(sending) = self.sending.as_mut().filter(|sending| !sending.link.health.is_gone()) else {
                if self.ask()? {
                    continue;
                }
                return self.relay(Sent::new(input, meta, u64::MAX, begun));
            };
            match sending.prepare(self.given, meta.pts, &input) {
                Ok(Ok(submission)) => {
                    let stretch = if has_waited { begun } else { cut() };
                    let (worker, cell) = (Some(sending.link.number), sending.next_cell());
                    self.log_input(worker, Sent::new(input, meta, cell, stretch))?;
                    self.submit(&submission);
                    return Ok(());
                }
                Ok(Err(full)) => {
                    sending.wait_for_room(full);
                    has_waited = true;
                }
                Err(error) if error.is_of_caller() => return Err(GiveError::Host(error)),
                // The collect end sees it gone, and finds another.
                Err(_) => sending.link.break_off(),
            }
        }
    }

    /// Submits what was prepared and logged.
    fn submit(&mut self, submission: &Submission) {
        let Some(sending) = &mut self.sending else { return };
        if sending.submit(submission).is_err() {
            sending.link.break_off();
        }
        sending.wake_worker();
        // Behind the fence of the worker's bell, which comes behind the entry in the log.
        if self.link.health.is_gone() {
            self.nudge();
        }
    }

    /// Leaves an input to the collect end.
    fn relay(&mut self, sent: Sent) -> Result<(), GiveError> {
        self.log_input(None, sent)?;
        self.nudge();
        Ok(())
    }

    fn log_input(&mut self, worker: Option<u64>, sent: Sent) -> Result<(), GiveError> {
        self.log(Logged::Input { worker, sent })?;
        self.given += 1;
        Ok(())
    }

    /// Waits until the collect end has a worker that has room. True where the next input
    /// is to be submitted here; false where it is to be left to the collect end.
    #[cold]
    fn ask(&mut self) -> Result<bool, GiveError> {
        // That of a worker that is gone is of no use.
        self.sending = None;
        self.log(Logged::Ask)?;
        self.link.health.call_attention();
        loop {
            match meter::blocked(|| self.ways.recv()).map_err(|_| GiveError::Closed)? {
                Way::Next(link) => {
                    link.health.call_attention();
                    self.link = link;
                }
                Way::Direct(sending) => {
                    self.sending = Some(sending);
                    return Ok(true);
                }
                Way::Relay => return Ok(false),
            }
        }
    }

    /// Makes the collect end read the log, whichever worker it waits for.
    #[cold]
    fn nudge(&mut self) {
        loop {
            self.link.health.call_attention();
            // Behind the call's fence: where the worker is not gone yet, the collect end
            // reads the log again once it is.
            if !self.link.health.is_gone() {
                return;
            }
            match meter::blocked(|| self.ways.recv()) {
                Ok(Way::Next(link)) => self.link = link,
                // Where no other worker comes, nobody reads the log. There is no answer
                // to what was not asked.
                Ok(Way::Direct(_) | Way::Relay) | Err(_) => return,
            }
        }
    }

    /// Waits while the log is full, which it is only where workers give nothing for many
    /// inputs.
    fn log(&self, logged: Logged) -> Result<(), GiveError> {
        match self.log.try_send(logged) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(logged)) => {
                self.link.health.call_attention();
                match meter::blocked(|| self.log.send(logged).is_ok()) {
                    true => Ok(()),
                    false => Err(GiveError::Closed),
                }
            }
            Err(TrySendError::Disconnected(_)) => Err(GiveError::Closed),
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
        // Where the collect end has ended, so has the stream.
        if self.log(Logged::End { is_held, sending }).is_ok() {
            self.nudge();
        }
    }

    /// Discards the inputs before the seek or flush with the number `generation`. The collect end has
    /// the worker forget them; the next input asks for the right to submit.
    pub(crate) fn flush(&mut self, generation: u64) -> Result<(), GiveError> {
        (self.ended, self.is_held) = (false, false);
        let sending = self.sending.take();
        self.log(Logged::Flush { generation, sending })?;
        // It has a number among the inputs.
        self.given += 1;
        self.nudge();
        Ok(())
    }
}

impl Drop for SubmitEnd {
    fn drop(&mut self) {
        // Where its thread fails, what was given before is still delivered.
        self.end(false);
    }
}

impl Submit {
    pub(super) fn new(session: Arc<Session>, start: Start) -> Submit {
        Submit { start, session: Some(session), end: None }
    }

    /// Has requests of the worker's stage go the way that this hop's would go.
    #[inline]
    fn set_upstream(&mut self, out: &Out<'_>) {
        if let Some(session) = self.session.take() {
            session.set_upstream(out.upstream());
        }
    }
}

fn refused(error: GiveError, out: &Out<'_>) -> Failure {
    match error {
        GiveError::Closed => out.fail(StageError::Downstream),
        GiveError::Host(error) => out.fail(error),
    }
}

impl Stage for Submit {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        let (stream, end) = (self.start)(*info)?;
        self.end = Some(end);
        Ok(stream)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), Failure> {
        self.set_upstream(out);
        let Some(end) = &mut self.end else { return Err(out.fail(StageError::Downstream)) };
        let meta = item.meta();
        let input = match item {
            Item::Packet(packet) => WorkerInput::Packet(packet),
            Item::Frame(frame) => WorkerInput::Frame(frame),
        };
        let begun = out.recorder().here();
        let given = end.give(meta, input, begun, || out.recorder().cut());
        given.map_err(|error| refused(error, out))
    }

    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), Failure> {
        self.set_upstream(out);
        let Some(end) = &mut self.end else { return Err(out.fail(StageError::Downstream)) };
        end.flush(out.generation()).map_err(|error| refused(error, out))
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), Failure> {
        if let Some(end) = &mut self.end {
            end.end(out.holds());
        }
        Ok(())
    }
}

/// Writes packets and frames to a worker. It belongs to one end of the stream at a time.
pub(super) struct Sending {
    pub(super) link: Arc<Link>,
    writer: CellWriter,
    packets: PacketArea,
    names: Names,
    /// The bells that wake a caller that waits for room.
    room: [Bell; 2],
    /// Cells submitted so far: the position of the next.
    cells: u64,
    /// Cells were submitted and the worker's bell was not rung yet.
    unrung: bool,
    /// The worker was told that nothing follows.
    pub(super) drained: bool,
}

/// The resource that has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Cells,
    Bytes,
}

impl Sending {
    pub(super) fn new(link: Arc<Link>, writer: CellWriter, packets: PacketArea) -> Sending {
        let room = [Bell::of_room(&link.area), Bell::of_packets(&link.area)];
        let names = Names::default();
        Sending { link, writer, packets, names, room, cells: 0, unrung: false, drained: false }
    }

    /// Puts `input` where the worker will find it; says where there is no room
    /// for it. [`Sending::submit`] has to follow at once.
    pub(super) fn prepare(
        &mut self,
        seq: u64,
        pts: Option<i64>,
        input: &WorkerInput,
    ) -> Result<Result<Submission, Full>, HostError> {
        // A frame may need a cell for its layout too.
        if self.writer.room()? < 2 {
            return Ok(Err(Full::Cells));
        }
        Ok(Ok(match input {
            WorkerInput::Packet(packet) => {
                let Some(offset) = packet.put_into(&mut self.packets)? else {
                    let (bytes, most) = (packet.len(), self.packets.largest());
                    // No worker could ever be given it.
                    let fits = bytes <= most;
                    return if fits {
                        Ok(Err(Full::Bytes))
                    } else {
                        Err(HostError::PacketSize { bytes, most })
                    };
                };
                let (len, key, preroll) = (packet.len() as u32, packet.is_key(), packet.preroll());
                Submission::Packet { seq, pts, offset, len, key, preroll }
            }
            WorkerInput::Frame(frame) => {
                let (pool, layout) = (self.pool(frame)?, self.layout(frame.layout())?);
                Submission::Frame { seq, pts, pool, slot: frame.slot(), layout }
            }
        }))
    }

    /// Position of the cell that is submitted next.
    pub(super) fn next_cell(&self) -> u64 {
        self.cells
    }

    /// Gives what was prepared to the worker; [`Sending::wake_worker`] wakes it. The
    /// position of its cell.
    pub(super) fn submit(&mut self, submission: &Submission) -> Result<u64, Breach> {
        let cell = self.cells;
        self.cells += 1;
        self.link.health.submitted(matches!(submission, Submission::Frame { .. }));
        // Room was looked for before.
        self.writer.push_quietly(&submission.encode())?;
        self.unrung = true;
        Ok(cell)
    }

    /// Says that nothing follows.
    pub(super) fn drain(&mut self) -> Result<Result<(), Full>, HostError> {
        if self.writer.room()? == 0 {
            return Ok(Err(Full::Cells));
        }
        self.drained = true;
        self.submit(&Submission::Drain)?;
        self.link.health.owes_answer(true);
        Ok(Ok(()))
    }

    /// Has the worker forget what is inside; also behind a drain.
    pub(super) fn flush(&mut self, seq: u64) -> Result<Result<(), Full>, HostError> {
        if self.writer.room()? == 0 {
            return Ok(Err(Full::Cells));
        }
        self.drained = false;
        self.submit(&Submission::Flush { seq })?;
        self.link.health.owes_answer(true);
        Ok(Ok(()))
    }

    /// Wakes the worker where it was given something, which is watched over from now on.
    pub(super) fn wake_worker(&mut self) {
        if std::mem::take(&mut self.unrung) {
            self.writer.bell().ring();
            self.link.watcher.stir();
        }
    }

    /// Sleeps until there is room, or the worker is gone; may return early.
    pub(super) fn wait_for_room(&mut self, full: Full) {
        self.wake_worker();
        let link = &self.link;
        // The worker that makes no room is overdue, asleep or not.
        link.health.submit_sleeps(true);
        link.watcher.stir();
        let ready = || link.health.is_gone() || self.has_room(full);
        let bell = match full {
            Full::Cells => &self.room[0],
            Full::Bytes => &self.room[1],
        };
        meter::blocked(|| bell.sleep_unless(ready, None));
        link.health.submit_sleeps(false);
    }

    /// True if enough room is free again for a batch, so that a full ring
    /// costs a wake-up per half ring.
    fn has_room(&self, full: Full) -> bool {
        match full {
            Full::Cells => self.writer.len().is_ok_and(|len| len <= self.writer.cells() / 2),
            Full::Bytes => self.packets.has_news() != Ok(false),
        }
    }

    /// True if the worker has taken all that was submitted.
    pub(super) fn is_taken(&self) -> bool {
        self.writer.is_empty() == Ok(true)
    }

    /// The number of the frame's pool, said to the worker when it is new.
    fn pool(&mut self, frame: &Frame) -> Result<u16, HostError> {
        let (pool, is_new) = self.names.pool(frame.pool_id())?;
        if is_new {
            let memory = shared_memory(frame)?;
            let (slots, slot_bytes) = (memory.slots, memory.slot_bytes as u64);
            let named = Message::InputPool { pool, slots, slot_bytes };
            say(&self.link.socket, &named, Some(memory.fd.as_fd()))?;
            self.link.health.traffic.message_out();
        }
        Ok(pool)
    }

    /// The name of a layout, said to the worker when it is new.
    fn layout(&mut self, layout: &Layout) -> Result<u8, HostError> {
        let (id, is_new) = self.names.layout(layout);
        if is_new {
            self.submit(&Submission::Layout { id, layout: *layout })?;
        }
        Ok(id)
    }
}
