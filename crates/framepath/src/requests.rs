// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transport of requests through the threads of a run.
//!
//! Each thread has a mailbox, and reads it between two items. If no hop of a thread answers a request,
//! the request goes to the mailbox of the thread before it. Several threads behind a tee have the
//! same thread before them. A seek or flush goes to all mailboxes immediately; a stop goes to none, but stops
//! the run directly.
//! `docs/decisions/0017-requests.md` has the reasons.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use framepath_model::stream::SeekTo;
use framepath_model::wire::MAX_BIT_RATE;
use framepath_os::process::stop::Stop;

use crate::request::{Request, RequestError};

/// Sends requests to a run, from any thread; clones send to the same run.
///
/// [`Pipeline::requests`](crate::Pipeline::requests) returns it before the run,
/// [`Frames::requests`](crate::Frames::requests) during the run. Requests that are sent before the run begins
/// are its first ones.
///
/// ```
/// use std::time::Duration;
/// use framepath::{Options, Pipeline, Request, SeekTo};
///
/// let pipeline = Pipeline::parse("test frames=100 size=64x48 ! null")?;
/// let requests = pipeline.requests();
/// requests.send(Request::Seek { to: Duration::from_secs(2), mode: SeekTo::Exact })?;
/// // 30 frames a second.
/// assert_eq!(pipeline.run(&Options::default())?.frames, 40);
/// # Ok::<(), framepath::RunError>(())
/// ```
#[derive(Clone)]
pub struct Requests(Arc<Shared>);

struct Shared {
    /// Oldest valid generation, the number of the last seek or flush; 0 without one. Receivers discard items
    /// of older generations.
    stale_below: AtomicU64,
    /// Number of items that were discarded for a seek or flush.
    flushed: AtomicU64,
    /// True if all sinks have ended in threads behind that of the source, which may not push and so not notice.
    sinks_ended: AtomicBool,
    /// True if a hop has failed.
    failed: AtomicBool,
    state: Mutex<MailboxState>,
}

/// State of a run's requests, under the lock of [`Shared`].
struct MailboxState {
    /// Number of the last request; 0 before the first. A stop has no number.
    sent: u64,
    /// Requests, other than stops, that were sent before the run.
    early: VecDeque<Pending>,
    /// Threads of the run, in path order; empty before and after the run.
    threads: Vec<RequestThread>,
    /// Reason why the source cannot seek; `None` if it can.
    cannot_seek: Option<RequestError>,
    /// Handle that stops the run; `None` before the run.
    stop: Option<Stop>,
    /// True if a stop was requested, which a run that begins later obeys.
    stop_early: bool,
    /// True if the run stays open at the end of the stream, because a seek may follow.
    holds_open: bool,
    /// True if the source has ended: it emits no more items.
    source_ended: bool,
    /// True if the run has ended.
    ended: bool,
    /// True for the part of a run that is in a worker, where only some requests are allowed.
    in_worker: bool,
}

/// A request that waits in a mailbox, or that a thread handles now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) request: Request,
    /// Number of the request in the run, from 1; for a seek or flush, the generation of later items.
    pub(crate) number: u64,
    /// Index of a hop: only hops in front of it get the request. At first the hop that sent the request, or
    /// `u16::MAX` for a request from outside the run. When a thread passes the request to the thread before,
    /// it lowers the index to its own first hop.
    pub(crate) origin: u16,
}

/// A thread of the run, for the requests that pass through it.
#[derive(Clone)]
pub(crate) struct RequestThread {
    pub(crate) mailbox: Arc<Mailbox>,
    /// Index of the thread in front of this thread; `None` for the source's thread.
    pub(crate) before: Option<usize>,
    /// Index of the first hop that the thread runs.
    pub(crate) first: u16,
}

impl RequestThread {
    /// Makes the entry of the source's thread.
    fn first(mailbox: Arc<Mailbox>) -> RequestThread {
        RequestThread { mailbox, before: None, first: 0 }
    }
}

/// The requests that wait for one thread.
pub(crate) struct Mailbox {
    /// True if requests wait, or the thread was woken without one. The thread reads it for each item without
    /// the lock of `pending`.
    waiting: AtomicBool,
    pending: Mutex<VecDeque<Pending>>,
    /// Function that ends a wait of the thread.
    wake: Wake,
}

/// Function that ends the present wait of one thread, so that the thread reads its mailbox.
pub(crate) type Wake = Box<dyn Fn() + Send + Sync>;

impl Mailbox {
    pub(crate) fn new(wake: Wake) -> Mailbox {
        Mailbox { waiting: AtomicBool::new(false), pending: Mutex::default(), wake }
    }

    /// True if requests wait for the thread, or the thread was woken to check the state of the run.
    #[inline]
    pub(crate) fn has_request(&self) -> bool {
        // Relaxed: the lock orders the requests, and the wake-up has its own order.
        self.waiting.load(Ordering::Relaxed)
    }

    /// Adds a request and wakes the thread. A keyframe or bit rate request replaces one of its kind from the
    /// same hop, so that the queue of a busy thread stays short.
    fn put(&self, pending: Pending) {
        let mut queue = locked(&self.pending);
        let is_obsolete = |waiting: &&mut Pending| {
            waiting.origin == pending.origin && waiting.request.is_replaced_by(&pending.request)
        };
        match queue.iter_mut().find(is_obsolete) {
            Some(waiting) => *waiting = pending,
            None => queue.push_back(pending),
        }
        drop(queue);
        self.wake_up();
    }

    fn wake_up(&self) {
        self.waiting.store(true, Ordering::Relaxed);
        (self.wake)();
    }

    /// Takes the oldest request; `None` if no request waits. Ends [`has_request`](Mailbox::has_request)
    /// unless more requests wait.
    pub(crate) fn take(&self) -> Option<Pending> {
        let mut pending = locked(&self.pending);
        let next = pending.pop_front();
        self.waiting.store(!pending.is_empty(), Ordering::Relaxed);
        next
    }
}

/// Puts a request into `mailbox`. Without one, puts it into the mailbox of the last thread of each
/// branch; threads pass it on towards the source.
///
/// Puts a seek or flush into all mailboxes, so that the source handles it before it emits items
/// that would be discarded. Each thread passes it only to its own hops.
fn deliver(threads: &[RequestThread], mailbox: Option<&Mailbox>, pending: Pending) {
    if pending.request.flushes() {
        threads.iter().for_each(|thread| thread.mailbox.put(pending));
    } else if let Some(mailbox) = mailbox {
        mailbox.put(pending);
    } else {
        let is_end = |at: &usize| !threads.iter().any(|thread| thread.before == Some(*at));
        (0..threads.len()).filter(is_end).for_each(|at| threads[at].mailbox.put(pending));
    }
}

/// Locks `mutex`, even if it is poisoned: a panic leaves the data under these locks consistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Requests {
    /// Makes the request handle of a run. `cannot_seek` is the reason if the source cannot seek.
    pub(crate) fn new(cannot_seek: Option<RequestError>) -> Requests {
        Requests(Arc::new(Shared {
            stale_below: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            sinks_ended: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            state: Mutex::new(MailboxState {
                sent: 0,
                early: VecDeque::new(),
                threads: Vec::new(),
                cannot_seek,
                stop: None,
                stop_early: false,
                holds_open: false,
                source_ended: false,
                ended: false,
                in_worker: false,
            }),
        }))
    }

    /// Makes the request handle of the part of a run that is in a worker, and its mailbox. Requests of the
    /// stage in the worker arrive in the mailbox, and the worker sends them to the process that runs the
    /// path.
    pub(crate) fn in_worker() -> (Requests, Arc<Mailbox>) {
        let requests = Requests::new(None);
        let mailbox = Arc::new(Mailbox::new(Box::new(|| ())));
        requests.begin(vec![RequestThread::first(mailbox.clone())], Stop::new());
        requests.locked().in_worker = true;
        (requests, mailbox)
    }

    /// Sets the name of the source in [`RequestError::CannotSeek`].
    pub(crate) fn name_source(&self, name: &str) {
        if let Some(RequestError::CannotSeek { source_hop, .. }) = &mut self.locked().cannot_seek {
            name.clone_into(source_hop);
        }
    }

    /// Sends a request upstream from the end of the path, or from the end of each branch. Returns
    /// without waiting for an answer.
    ///
    /// A keyframe or bit rate request replaces an earlier one of its kind from the same sender that waits for
    /// the same thread. A stop does not travel: it stops the run, or the run that begins later. After a
    /// seek or flush, older frames may reach the sink until the first newer frame does, but not later.
    ///
    /// # Errors
    /// [`RequestError::CannotSeek`], and no item is discarded then; [`RequestError::Ended`] after the end of
    /// the run, and for a seek or flush after the end of the source.
    pub fn send(&self, request: Request) -> Result<(), RequestError> {
        self.send_from(u16::MAX, request, None).map(|_| ())
    }

    /// Succeeds if the source of the path can seek.
    ///
    /// # Errors
    /// [`RequestError::CannotSeek`], with the reason.
    pub fn can_seek(&self) -> Result<(), RequestError> {
        self.locked().cannot_seek.clone().map_or(Ok(()), Err)
    }

    /// Sends [`Request::Seek`].
    ///
    /// # Errors
    /// As [`send`](Requests::send).
    pub fn seek(&self, to: Duration, mode: SeekTo) -> Result<(), RequestError> {
        self.send(Request::Seek { to, mode })
    }

    /// Sends a request from hop `origin`, whose thread has `mailbox`, or, without a mailbox, from the last
    /// thread of each branch. A seek or flush goes to all threads instead, and makes all earlier items
    /// stale at once. Before the run, keeps the request for the run's begin. Returns the request's
    /// number; for a stop, that of the last request before it (0 without one). Fails as
    /// [`send`](Requests::send), and with [`RequestError::InWorker`].
    pub(crate) fn send_from(
        &self,
        origin: u16,
        request: Request,
        mailbox: Option<&Mailbox>,
    ) -> Result<u64, RequestError> {
        let mut state = self.locked();
        if state.ended || state.source_ended && request.flushes() {
            return Err(RequestError::Ended);
        }
        let is_allowed = match request {
            Request::Keyframe => true,
            Request::BitRate(bits) => (1..=MAX_BIT_RATE).contains(&bits),
            _ => false,
        };
        if state.in_worker && !is_allowed {
            return Err(RequestError::InWorker);
        }
        match (request, &state.cannot_seek) {
            (Request::Seek { .. }, Some(reason)) => return Err(reason.clone()),
            (Request::Stop, _) => {
                state.stop_early = true;
                state.stop.iter().for_each(Stop::stop);
                return Ok(state.sent);
            }
            _ => {}
        }
        state.sent += 1;
        let number = state.sent;
        if request.flushes() {
            // Stored under the lock, so that the number only rises.
            self.0.stale_below.store(number, Ordering::Relaxed);
        }
        let pending = Pending { request, number, origin };
        if state.threads.is_empty() {
            state.early.push_back(pending);
        } else {
            deliver(&state.threads, mailbox, pending);
        }
        Ok(number)
    }

    /// Records the run's `threads`, in path order, and its `stop` handle. Delivers the requests that were
    /// sent before, and stops the run if a stop was among them.
    pub(crate) fn begin(&self, threads: Vec<RequestThread>, stop: Stop) {
        let mut state = self.locked();
        if state.stop_early {
            stop.stop();
        }
        state.stop = Some(stop);
        state.early.drain(..).for_each(|pending| deliver(&threads, None, pending));
        state.threads = threads;
    }

    /// Records that the source has ended. Returns `false`, and records nothing, if `mailbox` (the mailbox of
    /// the source's thread) has a request or wake-up; `None` skips this check.
    pub(crate) fn end_source(&self, mailbox: Option<&Mailbox>) -> bool {
        let mut state = self.locked();
        // Checked under the lock that `send_from` takes, so that no request arrives in between.
        if mailbox.is_some_and(Mailbox::has_request) {
            return false;
        }
        state.source_ended = true;
        true
    }

    /// Records that the run has ended: later requests fail with [`RequestError::Ended`].
    pub(crate) fn end(&self) {
        let mut state = self.locked();
        state.ended = true;
        state.threads.clear();
    }

    /// Passes a request that no hop of thread number `thread` has answered to the thread that sends this
    /// thread its items; drops it at the source's thread. Drops a seek or flush, because all threads have it
    /// already.
    pub(crate) fn pass_on(&self, thread: usize, pending: Pending) {
        if pending.request.flushes() {
            return;
        }
        let state = self.locked();
        let Some(this) = state.threads.get(thread) else { return };
        if let Some(before) = this.before.and_then(|before| state.threads.get(before)) {
            // Excludes the hops of other branches, which the thread before may run as well.
            let origin = pending.origin.min(this.first);
            before.mailbox.put(Pending { origin, ..pending });
        }
    }

    /// Returns the number of the last seek or flush that was sent; 0 without one.
    pub(crate) fn generation(&self) -> u64 {
        self.0.stale_below.load(Ordering::Relaxed)
    }

    /// True if items of `generation` are from before a seek or flush.
    #[inline]
    pub(crate) fn is_stale(&self, generation: u64) -> bool {
        // Relaxed: an item that is not recognized as stale counts as passed before the request.
        generation < self.0.stale_below.load(Ordering::Relaxed)
    }

    /// Adds `items` to the number of items that seeks and flushes have discarded.
    pub(crate) fn count_flushed(&self, items: u64) {
        self.0.flushed.fetch_add(items, Ordering::Relaxed);
    }

    pub(crate) fn flushed(&self) -> u64 {
        self.0.flushed.load(Ordering::Relaxed)
    }

    /// Records that all sinks have ended, and wakes the source, whose next item nobody takes.
    pub(crate) fn end_sinks(&self, stop: &Stop) {
        // Pairs with the load in `sinks_ended`.
        self.0.sinks_ended.store(true, Ordering::Release);
        stop.wake();
    }

    /// True if all sinks have ended in other threads than that of the source.
    #[inline]
    pub(crate) fn sinks_ended(&self) -> bool {
        self.0.sinks_ended.load(Ordering::Acquire)
    }

    /// Records that a hop has failed, before the hops behind it are drained.
    pub(crate) fn set_failed(&self) {
        // Pairs with the load in `has_failed`: a thread that finds its queue closed sees it.
        self.0.failed.store(true, Ordering::Release);
    }

    /// True if a hop in front of the one that asks has failed, or one elsewhere.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.failed.load(Ordering::Acquire)
    }

    /// Sets whether the run stays open for a seek at the end of the stream, and wakes all threads of the run.
    pub(crate) fn hold_open(&self, holds: bool) {
        let mut state = self.locked();
        state.holds_open = holds;
        // The source may be waiting for another seek.
        state.threads.iter().for_each(|thread| thread.mailbox.wake_up());
    }

    pub(crate) fn holds_open(&self) -> bool {
        self.locked().holds_open
    }

    fn locked(&self) -> MutexGuard<'_, MailboxState> {
        locked(&self.0.state)
    }
}

/// Handle that sends requests upstream from one hop.
pub(crate) struct Upstream {
    pub(crate) requests: Requests,
    /// Mailbox of the hop's thread; `None` if the thread gets no requests.
    pub(crate) mailbox: Option<Arc<Mailbox>>,
    pub(crate) hop: u16,
}

impl Upstream {
    /// Sends a request on behalf of the stage at `hop`. Returns the request's number.
    pub(crate) fn send(&self, request: Request) -> Result<u64, RequestError> {
        self.requests.send_from(self.hop, request, self.mailbox.as_deref())
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.locked();
        f.debug_struct("Requests").field("sent", &state.sent).field("has_ended", &state.ended).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEK: Request = Request::Seek { to: Duration::ZERO, mode: SeekTo::Exact };

    /// Begins a run of three threads and returns their mailboxes. `before` has, for each thread, the number
    /// of the thread in front of it, or `None` for the source's thread.
    fn begin(requests: &Requests, before: [Option<usize>; 3]) -> Vec<Arc<Mailbox>> {
        let boxes: Vec<_> = before.iter().map(|_| Arc::new(Mailbox::new(Box::new(|| ())))).collect();
        let threads = boxes.iter().zip(before).zip(1..).map(|((mailbox, before), thread)| RequestThread {
            mailbox: mailbox.clone(),
            before,
            first: thread * 10,
        });
        requests.begin(threads.collect(), Stop::new());
        boxes
    }

    #[test]
    fn a_request_from_outside_arrives_through_every_branch() {
        let requests = Requests::new(None);
        let boxes = begin(&requests, [None, Some(0), Some(0)]);
        requests.send(Request::Keyframe).unwrap();
        assert!(boxes[0].take().is_none());
        for thread in [1, 2] {
            requests.pass_on(thread, boxes[thread].take().unwrap());
        }
        let passed = [boxes[0].take().unwrap(), boxes[0].take().unwrap()];
        // The same request, in front of either branch.
        assert_eq!(passed.map(|pending| (pending.number, pending.origin)), [(1, 20), (1, 30)]);
    }

    #[test]
    fn requests_travel_from_the_last_thread_to_the_first() {
        let requests = Requests::new(None);
        requests.send(Request::Keyframe).unwrap();
        let boxes = begin(&requests, [None, Some(0), Some(1)]);
        for (thread, mailbox) in boxes.iter().enumerate().rev() {
            let pending = mailbox.take().unwrap();
            assert_eq!((pending.number, mailbox.has_request()), (1, false));
            assert!(boxes[..thread].iter().all(|before| before.take().is_none()));
            requests.pass_on(thread, pending);
        }
    }

    #[test]
    fn a_seek_is_in_all_mailboxes_at_once() {
        let requests = Requests::new(None);
        let boxes = begin(&requests, [None, Some(0), Some(1)]);
        requests.send(SEEK).unwrap();
        assert_eq!((requests.is_stale(0), requests.is_stale(1)), (true, false));
        assert!(!requests.end_source(Some(&boxes[0])), "there is a request for it");
        for (thread, mailbox) in boxes.iter().enumerate().rev() {
            requests.pass_on(thread, mailbox.take().unwrap());
        }
        assert!(boxes.iter().all(|mailbox| mailbox.take().is_none()));
        assert!(requests.end_source(Some(&boxes[0])));
        assert_eq!(requests.send(SEEK), Err(RequestError::Ended));
        assert!(!requests.is_stale(1), "items inside are not discarded");
        assert_eq!(requests.send(Request::Keyframe), Ok(()));
    }

    #[test]
    fn a_source_that_cannot_seek_fails_before_anything_is_discarded() {
        let refused = RequestError::CannotSeek { source_hop: "x".to_owned(), reason: "y".to_owned() };
        let requests = Requests::new(Some(refused.clone()));
        assert_eq!(requests.send(SEEK), Err(refused));
        assert!(!requests.is_stale(0));
        assert_eq!(requests.send(Request::Flush), Ok(()));
        assert!(requests.is_stale(0));
    }

    #[test]
    fn a_thread_that_does_not_read_gets_a_bounded_queue() {
        let requests = Requests::new(None);
        let mailbox = Arc::new(Mailbox::new(Box::new(|| ())));
        requests.begin(vec![RequestThread::first(mailbox.clone())], Stop::new());
        let send = |origin, request| requests.send_from(origin, request, None).unwrap();
        for bits in 1..1000 {
            send(3, Request::Keyframe);
            send(3, Request::BitRate(bits));
            send(4, Request::Keyframe);
        }
        let waiting: Vec<_> = std::iter::from_fn(|| mailbox.take()).map(|p| (p.origin, p.request)).collect();
        let last = Request::BitRate(999);
        assert_eq!(waiting, [(3, Request::Keyframe), (3, last), (4, Request::Keyframe)]);
        // Each seek has its number, and is delivered.
        requests.send(SEEK).unwrap();
        requests.send(SEEK).unwrap();
        assert_eq!(std::iter::from_fn(|| mailbox.take()).count(), 2);
    }

    #[test]
    fn a_stage_in_a_worker_cannot_seek_or_stop_the_run() {
        let (requests, mailbox) = Requests::in_worker();
        let refused = [SEEK, Request::Flush, Request::Stop, Request::BitRate(0), Request::BitRate(u64::MAX)];
        for request in refused {
            assert_eq!(requests.send_from(0, request, Some(&mailbox)), Err(RequestError::InWorker));
        }
        assert!(!mailbox.has_request() && !requests.is_stale(0));
        requests.send_from(0, Request::BitRate(MAX_BIT_RATE), Some(&mailbox)).unwrap();
        assert_eq!(mailbox.take().map(|pending| pending.request), Some(Request::BitRate(MAX_BIT_RATE)));
    }

    #[test]
    fn a_stop_reaches_a_run_that_begins_later() {
        let (requests, stop) = (Requests::new(None), Stop::new());
        requests.send(Request::Stop).unwrap();
        requests.begin(Vec::new(), stop.clone());
        assert!(stop.is_requested());
        requests.end();
        assert_eq!(requests.send(Request::Stop), Err(RequestError::Ended));
    }
}
