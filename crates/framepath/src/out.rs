// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of a stage: the rest of its thread's chain.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use framepath_model::ledger::flag;
use framepath_model::stream::FrameMeta;
use framepath_os::measure::meter::Level;

use crate::error::StageError;
use crate::item::Item;
use crate::recorder::{Gap, Recorder, RowSink, Stretch};
use crate::request::{Request, RequestError};
use crate::requests::{Mailbox, Pending, Requests, Upstream};
use crate::stage::{HopRole, Stage};

/// A stage at its index in the path.
pub(crate) struct HopStage {
    pub(crate) stage: Box<dyn Stage>,
    /// Index in the path.
    pub(crate) index: u16,
    pub(crate) role: HopRole,
    /// Number of the last request that the stage got; 0 before the first. A request from outside arrives
    /// through every branch, but the stage gets it once.
    pub(crate) asked: u64,
}

impl HopStage {
    pub(crate) fn new(stage: Box<dyn Stage>, index: u16, role: HopRole) -> HopStage {
        HopStage { stage, index, role, asked: 0 }
    }
}

/// A hop's failure, or its report that it takes no more items, with the place in the path. A call of a
/// stage or source returns it. [`Out::fail`] and [`Out::enough`] make it.
#[derive(Debug)]
pub struct HopFailure {
    /// Index in the path of the failed hop. Hops up to this index are not drained. So for [`StageError::Enough`]
    /// from [`Out::enough`] or [`Out::forward`], an index below that of the hop that takes no more items: this
    /// hop is drained, too. A sink whose reader has closed the pipe reports its own index.
    pub(crate) hop: u16,
    pub(crate) error: StageError,
}

impl HopFailure {
    /// True if the failure is no error, and only reports that a hop takes no more items.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self.error, StageError::Downstream | StageError::Enough)
    }
}

/// One thread's part of a run: the count of the items of the thread's sink, and the thread's requests.
pub(crate) struct ThreadContext {
    /// Number of items that the thread's sink took.
    delivered: Cell<u64>,
    /// Largest number of items that any sink of the run has taken; shared by the threads of the run.
    progress: Arc<AtomicU64>,
    /// Maximum number of items that the thread's sink takes; `u64::MAX`: no limit.
    most: u64,
    /// Handle that sends requests to the run.
    pub(crate) requests: Requests,
    /// Mailbox with the requests that wait for the thread; `None` for a thread that gets no requests.
    pub(crate) mailbox: Option<Arc<Mailbox>>,
    /// Number of the last seek or flush before this thread's present item; 0 without one.
    generation: Cell<u64>,
    /// True during the drain at the end of a stream that is held open for a seek.
    holds: Cell<bool>,
    /// Index of a hop: the hops of this thread behind it have ended, while it and the hops in front go on.
    /// `u16::MAX` if no hop has ended.
    ended_behind: Cell<u16>,
    /// Number of the last request that the source got; 0 before the first.
    pub(crate) source_asked: Cell<u64>,
    /// Collector of the run's rows for another machine; `None` without one.
    pub(crate) tap: Option<Arc<dyn RowSink>>,
}

impl ThreadContext {
    /// Records that the run has failed, if there is a failure and not only the end of a hop that takes no more items.
    pub(crate) fn note(&self, failure: Option<&HopFailure>) {
        if failure.is_some_and(|failure| !failure.is_end()) {
            self.requests.set_failed();
        }
    }

    pub(crate) fn new(
        progress: Arc<AtomicU64>,
        most: u64,
        requests: Requests,
        mailbox: Option<Arc<Mailbox>>,
    ) -> ThreadContext {
        ThreadContext {
            delivered: Cell::new(0),
            progress,
            most,
            requests,
            mailbox,
            generation: Cell::new(0),
            holds: Cell::new(false),
            ended_behind: Cell::new(u16::MAX),
            source_asked: Cell::new(0),
            tap: None,
        }
    }

    /// Makes the context of the stage in a worker. The stage's requests go to its mailbox, from which the
    /// worker sends them to the process that runs the path.
    pub(crate) fn in_worker() -> ThreadContext {
        let (requests, mailbox) = Requests::in_worker();
        ThreadContext::new(Arc::default(), u64::MAX, requests, Some(mailbox))
    }

    /// True if requests wait for the thread, or it was woken without one; false without a mailbox.
    #[inline]
    pub(crate) fn has_request(&self) -> bool {
        self.mailbox.as_ref().is_some_and(|mailbox| mailbox.has_request())
    }

    pub(crate) fn take_request(&self) -> Option<Pending> {
        self.mailbox.as_ref()?.take()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    pub(crate) fn set_generation(&self, generation: u64) {
        self.generation.set(generation);
    }

    pub(crate) fn set_holds(&self, holds: bool) {
        self.holds.set(holds);
    }
}

impl ThreadContext {
    /// Counts one item that the thread's sink took, and raises the run's progress if this count is the
    /// largest. Returns `false` once the sink has taken the maximum number of items of the run.
    fn count(&self) -> bool {
        let delivered = self.delivered.get() + 1;
        self.delivered.set(delivered);
        // Threads race here, and a smaller number may overwrite a larger one. The next frame corrects
        // that, and the report uses each thread's own number.
        if delivered > self.progress.load(Ordering::Relaxed) {
            self.progress.store(delivered, Ordering::Relaxed);
        }
        delivered < self.most
    }

    /// Returns the number of items that the thread's sink took.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.get()
    }

    /// True if hop `hop` takes no more items, while the thread goes on.
    pub(crate) fn has_ended(&self, hop: u16) -> bool {
        hop > self.ended_behind.get()
    }
}

/// Downstream output of a stage; also records its timing.
pub struct Out<'a> {
    rest: &'a mut [HopStage],
    recorder: &'a mut Recorder,
    delivery: &'a ThreadContext,
    hop: u16,
}

impl<'a> Out<'a> {
    pub(crate) fn new(
        hop: u16,
        rest: &'a mut [HopStage],
        recorder: &'a mut Recorder,
        delivery: &'a ThreadContext,
    ) -> Out<'a> {
        Out { rest, recorder, delivery, hop }
    }

    /// Passes `item` to the next stage, and ends the item's ledger row for this stage. Returns when the
    /// `push` of the next stage has returned, and with it those of the later stages of this thread that it
    /// calls.
    ///
    /// # Errors
    /// A failure of a later stage, or the report that a later stage takes no more items; the caller returns
    /// it unchanged.
    #[inline(always)]
    pub fn push(&mut self, item: Item) -> Result<(), HopFailure> {
        if self.recorder.level() != Level::Off {
            self.recorder.close(self.hop, &item.meta(), 0);
        }
        self.forward(item)
    }

    /// [`Out::push`] for an item whose ledger row for this hop is already written.
    // Always inlined, so that a frame which is built in place is passed by reference and never moved.
    #[inline(always)]
    pub(crate) fn forward(&mut self, item: Item) -> Result<(), HopFailure> {
        let Some((next, rest)) = self.rest.split_first_mut() else {
            // Does not happen: the builder ends every chain in a sink or a link.
            return Err(HopFailure { hop: self.hop, error: StageError::Downstream });
        };
        let ends = next.role == HopRole::Sink;
        let meta = if ends && self.recorder.level() != Level::Off { Some(item.meta()) } else { None };
        let mut out = Out { rest, recorder: self.recorder, delivery: self.delivery, hop: next.index };
        let taken = next.stage.as_mut().push(item, &mut out);
        // With `Enough`, a sink has taken the item and takes no further item.
        if !(taken.is_ok() || ends && matches!(&taken, Err(HopFailure { error: StageError::Enough, .. }))) {
            return taken;
        }
        if ends {
            if let Some(meta) = meta {
                self.recorder.close(next.index, &meta, flag::LAST);
            }
            if !self.delivery.count() {
                // Reported as this hop's failure, so that the sink is still drained.
                return Err(HopFailure { hop: self.hop, error: StageError::Enough });
            }
        }
        taken
    }

    /// Returns the failure of this stage with `error`, for the stage to return from its call.
    pub fn fail(&self, error: impl Into<StageError>) -> HopFailure {
        HopFailure { hop: self.hop, error: error.into() }
    }

    /// Returns the failure by which a stage reports that it takes no more items. When the stage returns it,
    /// the run ends without an error, or in a `tee` this branch ends. The stage and the hops behind it are
    /// drained.
    ///
    /// ```no_run
    /// # use framepath::{HopFailure, Item, Out};
    /// # fn push(item: Item, out: &mut Out<'_>, frames_wanted: &mut u32) -> Result<(), HopFailure> {
    /// *frames_wanted -= 1;
    /// if *frames_wanted == 0 {
    ///     return Err(out.enough());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn enough(&self) -> HopFailure {
        // Reported as the failure of the hop in front, so that this hop is drained.
        HopFailure { hop: self.hop.saturating_sub(1), error: StageError::Enough }
    }

    /// Sends `request` to the hops in front. This thread handles it after the present item; a seek or flush
    /// goes to all threads of the run, and [`Request::Stop`] stops the run at once. A worker sends the
    /// request to the process that runs the path, for the hops in front of the worker; a worker can only send
    /// [`Request::Keyframe`] and [`Request::BitRate`].
    ///
    /// ```no_run
    /// # use framepath::{Out, Request};
    /// # fn lost_a_packet(out: &Out<'_>) {
    /// out.request(Request::Keyframe).ok();
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Requests::send`]; [`RequestError::InWorker`].
    pub fn request(&self, request: Request) -> Result<(), RequestError> {
        let ThreadContext { requests, mailbox, .. } = self.delivery;
        requests.send_from(self.hop, request, mailbox.as_deref()).map(|_| ())
    }

    /// True if a request waits for the thread, or the thread was woken without one. A source must then stop
    /// waiting for its next item and return `Ok(true)` without an item.
    #[inline]
    pub fn has_request(&self) -> bool {
        self.delivery.has_request() || self.delivery.requests.sinks_ended()
    }

    /// Counts the frames or packets that [`Stage::flush`] discarded.
    pub fn flushed(&self, items: u64) {
        self.delivery.requests.count_flushed(items);
    }

    /// Returns a handle that sends requests upstream on behalf of this hop, also after this call has ended.
    pub(crate) fn upstream(&self) -> Upstream {
        let ThreadContext { requests, mailbox, .. } = self.delivery;
        Upstream { requests: requests.clone(), mailbox: mailbox.clone(), hop: self.hop }
    }

    /// Returns the number of the last seek or flush before this thread's present item; 0 without one.
    pub(crate) fn generation(&self) -> u64 {
        self.delivery.generation()
    }

    /// In a drain: true if the stream stays open afterwards, because a seek may follow.
    pub(crate) fn holds(&self) -> bool {
        self.delivery.holds.get()
    }

    /// In [`Stage::drain`](crate::Stage::drain): true if a hop of the run has failed, so that the stream is not whole.
    pub fn has_failed(&self) -> bool {
        self.delivery.requests.has_failed()
    }

    /// Records that the hops behind this hop take no more items, while this hop goes on.
    pub(crate) fn end_behind(&self) {
        let ended_behind = &self.delivery.ended_behind;
        ended_behind.set(ended_behind.get().min(self.hop));
    }

    /// Returns the present time as the birth of a frame, CLOCK_MONOTONIC nanoseconds; 0 at level `off`. The
    /// ledger counts this thread's work from now on for this frame. For sources.
    #[inline]
    pub fn birth(&mut self) -> u64 {
        self.recorder.birth()
    }

    /// Returns the time when the previous frame was done as the birth of a frame, CLOCK_MONOTONIC
    /// nanoseconds; 0 at level `off`. For sources that start a frame right after the previous one.
    #[inline]
    pub fn birth_at_last(&self) -> u64 {
        self.recorder.birth_at_last()
    }

    /// Writes the last row of a frame that this stage drops because of congestion.
    pub(crate) fn dropped_by_congestion(&mut self, meta: &FrameMeta) {
        self.recorder.close(self.hop, meta, flag::DROPPED | flag::CONGESTED);
    }

    /// Records that frame `seq` stays inside this stage for now. The thread's work since the last
    /// [`mark`](Out::mark), push or hold counts for this frame.
    pub fn hold(&mut self, seq: u64) {
        self.recorder.hold(self.hop, seq);
    }

    /// Records that the stage's next work belongs to a different frame from the last pushed frame.
    pub fn mark(&mut self) {
        self.recorder.mark();
    }

    /// Assigns the stage's work since the last [`mark`](Out::mark) or push to frame `seq`, which the stage
    /// has [held](Out::hold) and pushes next. In the ledger, the time since `hold` is `held`: no thread worked on
    /// the frame.
    pub fn resume(&mut self, seq: u64) {
        self.resume_after(seq, Gap::Held);
    }

    /// [`Out::resume`] for a frame whose time inside the stage has the cause `gap`.
    pub(crate) fn resume_after(&mut self, seq: u64, gap: Gap) {
        self.recorder.resume(self.hop, seq, gap);
    }

    /// Records `cpu_ns` nanoseconds of CPU time that this stage's threads spent on no frame in particular. Does
    /// nothing below level `full`.
    pub(crate) fn cpu_without_frame(&mut self, cpu_ns: u64) {
        self.recorder.cpu_without_frame(self.hop, cpu_ns);
    }

    /// Ends the thread's current stretch, which belongs to frame `seq` in this hop, and returns it for the row,
    /// which another thread will write.
    pub(crate) fn cut(&mut self, seq: u64) -> Stretch {
        self.recorder.cut(self.hop, seq)
    }

    /// Returns the index of this stage's hop in the path.
    #[cfg(feature = "net")]
    pub(crate) fn hop(&self) -> u16 {
        self.hop
    }

    /// Returns the thread's recorder, for links and sources that write their rows themselves.
    pub(crate) fn recorder(&mut self) -> &mut Recorder {
        self.recorder
    }
}
