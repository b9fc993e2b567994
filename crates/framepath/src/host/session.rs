// SPDX-License-Identifier: MIT OR Apache-2.0
//! One stream in a worker, for as long as it lasts and whoever the worker is:
//! what was given, what came, and what to give again to the next worker.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use framepath_model::replay::{Arrived, Book, Plan};
use framepath_model::stream::{FrameMeta, StreamInfo};
use framepath_os::crossing::Breach;
use framepath_os::meter::{self, Level};
use framepath_os::pool::Frame;
use framepath_os::signal;

use super::input::{Sent, WorkerInput};
use super::link::{Came, Full, Link, Receiving, Sending};
use super::spec::{Spec, Start, Turn};
use super::{HostError, WorkerStats, history, sandbox, start};
use crate::recorder::Stretch;

/// Workers that could not even open the stream, in a row, before it fails.
const OPENING_TRIES: u32 = 3;

/// Workers that give nothing, in a row, before their stream fails. Where one
/// packet after the other is skipped, that is sixteen of them.
const FRUITLESS: u32 = 32;

/// Frames that one packet or frame may become.
const OUTPUTS: u32 = 256;

/// How long the reading end sleeps at most while it is the one who has to give
/// the worker the rest.
const GIVING: Duration = Duration::from_millis(5);

/// A stream's session, shared by the two threads at its ends.
pub(crate) struct Session {
    spec: Spec,
    level: AtomicU8,
    /// Nobody wants what it gives any more.
    abandoned: AtomicBool,
    state: Mutex<State>,
    /// A new worker is there, or none will come.
    changed: Condvar,
    stats: Arc<WorkerStats>,
}

struct State {
    book: Book<Sent>,
    /// `None` before the start, and once the reading end is gone.
    worker: Option<(Arc<Link>, Sending)>,
    /// Inputs given so far: the number of the next.
    given: u64,
    /// Bytes of packets since the last look at all that are kept.
    new_bytes: u64,
    /// Nothing will be appended.
    ended: bool,
    /// What this process could not do for a worker, so that it was ended.
    host_failure: Option<HostError>,
}

/// Why nothing can be given to a session any more.
pub(crate) enum GiveError {
    /// The reading end has ended, and says why.
    Closed,
    /// What was given cannot be.
    Host(HostError),
}

/// The reading end of a session.
pub(crate) struct Reader {
    session: Arc<Session>,
    start: Start,
    link: Arc<Link>,
    receiving: Receiving,
    /// Deaths since the last frame.
    fruitless: u32,
    /// No new frame since the last death.
    recovering: bool,
}

/// A frame that came, with what the ledger knows of its way.
pub(crate) struct Arrival {
    pub(crate) frame: Frame,
    pub(super) stretch: Stretch,
    pub(crate) work: framepath_model::wire::Work,
}

impl Session {
    pub(crate) fn new(spec: Spec) -> Arc<Session> {
        let state = State {
            book: Book::new(),
            worker: None,
            given: 0,
            new_bytes: 0,
            ended: false,
            host_failure: None,
        };
        let stats = Arc::default();
        Arc::new(Session {
            spec,
            level: AtomicU8::new(0),
            abandoned: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
            stats,
        })
    }

    /// The level of the run that begins.
    /// Whether its workers decode by a device.
    pub(crate) fn is_by_device(&self) -> bool {
        self.spec.options.node.is_some()
    }

    pub(crate) fn set_level(&self, level: Level) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// What becomes of the stream's workers.
    pub(crate) fn stats(&self) -> Arc<WorkerStats> {
        self.stats.clone()
    }

    /// Opens the stream in a first worker. The stream behind the stage, and the
    /// reading end.
    pub(crate) fn start(self: &Arc<Session>, stream: StreamInfo) -> Result<(StreamInfo, Reader), HostError> {
        let start = Start { stream, level: self.level.load(Ordering::Relaxed) };
        let opened = Link::open(
            start::worker(self.spec.seat.as_ref(), &self.spec.options)?,
            &self.spec,
            start,
            Turn::First,
        )?;
        let (link, sending, receiving) = opened;
        let stream = link.stream;
        self.stats.recoveries.opened(&link.process());
        self.stats.pid.store(link.pid, Ordering::Relaxed);
        *self.stats.sandbox_note.lock().unwrap_or_else(PoisonError::into_inner) =
            sandbox::note(link.layers()).unwrap_or_default();
        self.locked().worker = Some((link.clone(), sending));
        Ok((
            stream,
            Reader { session: self.clone(), start, link, receiving, fruitless: 0, recovering: false },
        ))
    }

    /// Ends it at once, from any thread: the reading end fails, and then the
    /// giving end.
    pub(crate) fn abandon(&self) {
        // Release: pairs with the Acquire in `Reader::replace`.
        self.abandoned.store(true, Ordering::Release);
        if let Some(link) = self.locked().link() {
            link.vital.end();
            link.kill();
        }
    }

    /// Gives the worker something to work on. Waits while it has enough.
    /// `cut` ends the caller's part of the frame's time: called just before the
    /// worker can see it. Where there is no room the reading end submits it
    /// later, and the time until then is the queue's; `begun` stands for it.
    pub(crate) fn give(
        &self,
        meta: FrameMeta,
        input: WorkerInput,
        begun: Stretch,
        mut cut: impl FnMut() -> Stretch,
    ) -> Result<(), GiveError> {
        let key = match &input {
            WorkerInput::Packet(packet) => packet.is_key(),
            // Stages that take frames look at one at a time.
            WorkerInput::Frame(_) => true,
        };
        let mut state = self.locked();
        if let (WorkerInput::Packet(packet), Some((_, sending))) = (&input, &state.worker) {
            // Before it is in the book: no worker could ever be given it.
            sending.check_size(packet).map_err(GiveError::Host)?;
        }
        let bytes = history::bytes_of(Some(&input));
        let stretch = begun;
        // Numbers of its own: behind a decoder those of frames go up and down.
        let number = state.given;
        state.given += 1;
        state.book.append(number, meta.pts, key, Sent { input: Some(input), meta, outputs: 0, stretch });
        state.new_bytes += bytes;
        if state.new_bytes > history::LOOK_BYTES {
            state.new_bytes = 0;
            history::limit(&mut state.book, self.spec.options.memory_bytes);
        }
        loop {
            let Some(link) = state.link() else { return Err(GiveError::Closed) };
            if link.vital.is_gone() {
                state = meter::blocked(|| self.wait_for_another(state, &link));
                continue;
            }
            match state.feed(|seq| (seq == number).then(&mut cut)) {
                Ok(None) => {
                    drop(state);
                    link.stir();
                    return Ok(());
                }
                Ok(Some(full)) => {
                    drop(state);
                    link.ring();
                    let has_room = || self.locked().worker.as_ref().is_none_or(|(_, s)| s.has_room(full));
                    meter::blocked(|| link.wait_for_room(full, has_room));
                    state = self.locked();
                }
                // The reading end sees it gone, and finds another.
                Err(error) => {
                    state.not_fed(error);
                    link.kill();
                }
            }
        }
    }

    fn wait_for_another<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        old: &Arc<Link>,
    ) -> MutexGuard<'a, State> {
        let same = |state: &mut State| state.link().is_some_and(|link| Arc::ptr_eq(&link, old));
        self.changed.wait_while(state, same).unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing follows: what is inside is to be given.
    pub(crate) fn end(&self) {
        let mut state = self.locked();
        state.ended = true;
        // Where there is no room now, the reading end drains when there is.
        let fed = state.feed(|_| None);
        let fed = fed.map_err(|error| state.not_fed(error));
        let link = state.link();
        drop(state);
        if let Some(link) = link {
            link.stir();
            match fed {
                Ok(None) => {}
                Ok(Some(_)) => link.vital.leave_over(),
                Err(()) => link.kill(),
            }
        }
    }

    /// Gives what is left where the giving end is done; whether the worker had
    /// no room for all of it.
    fn rest_is_ours(&self, link: &Link) -> bool {
        link.vital.take_over();
        let mut state = self.locked();
        if !state.ended || state.worker.as_ref().is_none_or(|(_, sending)| sending.drained) {
            return false;
        }
        let fed = state.feed(|_| None).map_err(|error| state.not_fed(error));
        drop(state);
        link.stir();
        if fed.is_err() {
            link.kill();
        }
        matches!(fed, Ok(Some(_)))
    }

    fn meta(&self, seq: u64) -> Option<FrameMeta> {
        let state = self.locked();
        let known = state.book.get(seq).map(|sent| sent.meta);
        // The frame is looked at, so that its slot is given back, and then dropped.
        known.or_else(|| state.book.is_unknown(seq).then(FrameMeta::default))
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // Nothing is left half done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The worker was not given what it should be given. Where that is this
    /// process's lack, no other worker would fare better: the stream fails.
    fn not_fed(&mut self, error: HostError) {
        if error.is_of_caller() {
            self.host_failure.get_or_insert(error);
        }
    }

    fn link(&self) -> Option<Arc<Link>> {
        self.worker.as_ref().map(|(link, _)| link.clone())
    }

    /// Submits what was not yet, and the end where that is all; says where
    /// there is no room for more. `cut` gives the time spent on the input with
    /// that number, where it is the caller's.
    fn feed(&mut self, mut cut: impl FnMut(u64) -> Option<Stretch>) -> Result<Option<Full>, HostError> {
        let Some((link, sending)) = &mut self.worker else { return Ok(None) };
        if link.vital.is_gone() {
            // What is not yet submitted waits for the next worker.
            return Ok(None);
        }
        while let Some(entry) = self.book.next_unsent() {
            let (seq, sent) = (entry.seq(), entry.packet());
            if let Some(input) = &sent.input {
                let submission = match sending.prepare(seq, sent.meta.pts, input)? {
                    Ok(submission) => submission,
                    Err(full) => return Ok(Some(full)),
                };
                if let (Some(stretch), Some(sent)) = (cut(seq), self.book.get_mut(seq)) {
                    sent.stretch = stretch;
                }
                sending.submit(seq, &submission)?;
            }
            self.book.sent();
        }
        if self.ended && !sending.drained {
            if let Err(full) = sending.drain()? {
                return Ok(Some(full));
            }
            link.vital.awaits_end(true);
        }
        Ok(None)
    }
}

impl Reader {
    /// The next frame of the stream, `None` behind the last. Sleeps until there
    /// is one; calls `idle` when it goes to sleep and when it wakes.
    pub(crate) fn next(&mut self, mut idle: impl FnMut()) -> Result<Option<Arrival>, HostError> {
        loop {
            // Looked at before the ring: what a worker completed before its
            // end is taken first.
            let gone = self.link.vital.is_gone();
            let session = &self.session;
            match self.receiving.take(|seq| session.meta(seq)) {
                Ok(Some(Came::End)) if self.is_over() => return Ok(None),
                Ok(Some(came)) => match self.came(came) {
                    Ok(None) => {}
                    Err(error @ HostError::Failed { .. }) => return Err(error),
                    Err(error) => self.replace(error)?,
                    arrival => {
                        if self.session.spec.options.uncached && self.receiving.ask_again().is_err() {
                            // The next look finds it gone. What came is delivered.
                            self.link.kill();
                        }
                        return arrival;
                    }
                },
                Ok(None) if gone => self.replace(HostError::Gone)?,
                Ok(None) if signal::overdue() => return Err(HostError::Abandoned),
                Ok(None) => {
                    let limit = self.session.rest_is_ours(&self.link).then_some(GIVING);
                    idle();
                    self.receiving.sleep(&self.link, limit);
                    idle();
                }
                Err(error) => self.replace(error)?,
            }
        }
    }

    fn is_over(&self) -> bool {
        let state = self.session.locked();
        state.ended && state.worker.as_ref().is_some_and(|(_, sending)| sending.drained && sending.is_taken())
    }

    fn came(&mut self, came: Came) -> Result<Option<Arrival>, HostError> {
        let (seq, frame, work) = match came {
            Came::Frame { seq, frame, work } => (seq, Some(frame), work),
            Came::Same { seq, work } => (seq, None, work),
            Came::Nothing { seq } => {
                let mut state = self.session.locked();
                let sent = state.book.get_mut(seq);
                let frame = sent.filter(|sent| matches!(sent.input, Some(WorkerInput::Frame(_))));
                let input = frame.and_then(|sent| sent.input.take());
                drop(state);
                // Once for each: else it could say so for ever.
                let unasked = Breach("it is done with what it was not given");
                return input.map(|_| None).ok_or(unasked.into());
            }
            Came::Constant => return Ok(None),
            Came::Failed(text) => return Err(HostError::Failed { text }),
            Came::End => return Err(Breach("an end before the end").into()),
        };
        let mut state = self.session.locked();
        let Some(sent) = state.book.get_mut(seq) else {
            if !state.book.lose_unknown(seq) {
                return Err(Breach("a frame of what was never given").into());
            }
            self.session.stats.skipped.store(state.book.skipped(), Ordering::Relaxed);
            return Ok(None);
        };
        sent.outputs += 1;
        if sent.outputs > OUTPUTS {
            return Err(Breach("frames without end of one input").into());
        }
        let stretch = sent.stretch;
        // A stage lets go of its input before it gives its output.
        let input = match &sent.input {
            Some(WorkerInput::Frame(_)) => sent.input.take(),
            _ => None,
        };
        let frame = match (frame, input) {
            (Some(frame), _) => frame,
            (None, Some(WorkerInput::Frame(frame))) => frame,
            _ => return Err(Breach("the frame that was given, twice").into()),
        };
        let arrived = state.book.arrived(seq);
        let fed = state.feed(|_| None).map_err(|error| state.not_fed(error));
        drop(state);
        self.link.ring();
        if fed.is_err() {
            // The next look finds it gone. What came is delivered.
            self.link.kill();
        }
        if self.recovering {
            let is_new = arrived == Arrived::Deliver;
            self.session.stats.recoveries.arrived(&work, is_new);
            self.recovering = !is_new;
        }
        match arrived {
            Arrived::Deliver => {
                self.fruitless = 0;
                Ok(Some(Arrival { frame, stretch, work }))
            }
            Arrived::AlreadyDelivered => Ok(None),
            Arrived::Unknown => Err(Breach("a frame of what this worker never had").into()),
        }
    }

    /// Ends the worker and goes on with another: replays what had not come.
    fn replace(&mut self, why: HostError) -> Result<(), HostError> {
        if self.session.abandoned.load(Ordering::Acquire) || signal::overdue() {
            return Err(HostError::Abandoned);
        }
        if why.is_of_caller() {
            // The worker did nothing wrong: no packet of it is to blame.
            return Err(why);
        }
        if let Some(failure) = self.session.locked().host_failure.take() {
            return Err(failure);
        }
        *self.session.stats.last_death.lock().unwrap_or_else(PoisonError::into_inner) = why.to_string();
        self.count_cpu();
        // At once: until the next worker is there nothing is given to this one.
        self.link.vital.end();
        self.link.kill();
        self.session.stats.recoveries.ended();
        self.recovering = true;
        self.session.stats.deaths.fetch_add(1, Ordering::Relaxed);
        self.fruitless += 1;
        let turn = {
            let mut state = self.session.locked();
            let taken = state.worker.as_mut().and_then(|(_, sending)| sending.last_taken());
            self.plan(&mut state, taken)?
        };
        let spec = &self.session.spec;
        if spec.options.node.is_some() {
            // It has the device until it is gone.
            self.link.process().end();
        }
        let mut tries = 0;
        let (link, sending, receiving) = loop {
            let opened = start::worker(spec.seat.as_ref(), &spec.options)
                .and_then(|worker| Link::open(worker, spec, self.start, turn));
            match opened {
                Ok(opened) => break opened,
                Err(error) if tries == OPENING_TRIES || error.is_final() => {
                    return Err(error);
                }
                Err(_) => tries += 1,
            }
        };
        self.session.stats.pid.store(link.pid, Ordering::Relaxed);
        let mut state = self.session.locked();
        state.worker = Some((link.clone(), sending));
        let fed = state.feed(|_| None).map_err(|error| state.not_fed(error));
        drop(state);
        if self.session.abandoned.load(Ordering::Acquire) {
            // It was, before this worker could be found.
            link.kill();
        }
        link.ring();
        self.session.stats.recoveries.opened(&link.process());
        self.session.changed.notify_all();
        (self.link, self.receiving) = (link, receiving);
        if fed.is_err() {
            // It dies at once, and the next look finds it so.
            self.link.kill();
        }
        Ok(())
    }

    /// Before the worker is ended: a dead one that was reaped has no clock.
    fn count_cpu(&self) {
        self.session.stats.cpu_ns.fetch_add(self.link.cpu_ns(), Ordering::Relaxed);
        self.session.stats.traffic.add(&self.link.vital.traffic);
    }

    /// What is to be done after a death.
    fn plan(&self, state: &mut State, taken: Option<u64>) -> Result<Turn, HostError> {
        let stats = &self.session.stats;
        if self.fruitless >= FRUITLESS {
            return Err(HostError::NotOpened { what: "died again and again" });
        }
        if !self.link.replayable {
            let lost = state.book.abandon(taken);
            stats.lost.fetch_add(lost.count, Ordering::Relaxed);
            if let Some(first) = lost.first {
                let place = &stats.first_lost;
                let _ = place.compare_exchange(0, first + 1, Ordering::Relaxed, Ordering::Relaxed);
            }
            return Ok(Turn::Again);
        }
        let plan = state.book.died(taken, self.link.threads == 1);
        match plan {
            Plan::Replay { single_threaded: false } => Ok(Turn::Again),
            Plan::Replay { single_threaded: true } => Ok(Turn::Careful),
            Plan::Skip { poisoned, .. } => {
                let first = &stats.first_poisoned;
                let _ = first.compare_exchange(0, poisoned + 1, Ordering::Relaxed, Ordering::Relaxed);
                Ok(Turn::Careful)
            }
            Plan::GiveUp => Err(HostError::NotOpened { what: "died again and again" }),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.count_cpu();
        let mut state = self.session.locked();
        let stats = &self.session.stats;
        stats.replayed.store(state.book.replayed(), Ordering::Relaxed);
        stats.skipped.store(state.book.skipped(), Ordering::Relaxed);
        let worker = state.worker.take();
        // Frames that will never be given again go back to their pool, whose
        // owner may wait for one in front of us.
        let book = std::mem::take(&mut state.book);
        drop(state);
        self.session.changed.notify_all();
        // For who waits for room.
        self.link.vital.end();
        drop((worker, book));
    }
}
