// SPDX-License-Identifier: MIT OR Apache-2.0
//! Request to stop one run (of a path), among several runs in one process. The request ends some waits of
//! this crate ([`sleep_unless`], [`wait_for_socket`], [`cancel::read`](crate::process::cancel::read) and the wait
//! for a V4L2 device), not other blocking system calls.
//!
//! [`signal`](crate::process::signal) ends the whole program. A [`Stop`] ends the threads that
//! have [entered](Stop::enter) it. Code that waits handles both in the same way:
//! [`signal::interrupted`](crate::process::signal::interrupted) and
//! [`signal::overdue`](crate::process::signal::overdue) check both.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::process::signal::GRACE;
use crate::sync::futex;
use crate::time::{now_ns, sleep_until, timespec};

/// Handle that stops one run from any thread; clones stop the same run.
///
/// After the request, the run still delivers the pending frames that it can deliver within [`GRACE`], and
/// ends.
#[derive(Clone, Default)]
pub struct Stop(Arc<Request>);

#[derive(Default)]
struct Request {
    /// Futex word on which [`sleep_unless`] sleeps: the bit [`REQUESTED`] is set by the request; the higher
    /// bits count the calls of [`Stop::wake`].
    word: AtomicU32,
    /// Time of the stop request, CLOCK_MONOTONIC nanoseconds; 0 before the request.
    since_ns: AtomicU64,
    /// Event descriptor that the request makes readable. Made by the first thread of the run that waits
    /// for a descriptor, and not readable if it was made after the request; `None` if it could not be made.
    event: OnceLock<Option<OwnedFd>>,
    /// Event descriptor that [`Stop::wake`] makes readable, until the next [`poll_unless`] in the run.
    /// Made by the first [`poll_unless`]; `None` if it could not be made.
    nudged: OnceLock<Option<OwnedFd>>,
}

/// Bit of [`Request::word`]: the stop was requested.
const REQUESTED: u32 = 1;
/// Increment of [`Request::word`] for one wake-up.
const NUDGE: u32 = 2;

thread_local! {
    /// Runs that the calling thread has entered, in order.
    static ENTERED: RefCell<Vec<Stop>> = const { RefCell::new(Vec::new()) };
}

impl Stop {
    /// Creates the handle of a new run, without a stop request.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Requests the run to stop. Returns immediately; a second call does nothing.
    pub fn stop(&self) {
        // Only the first request sets the time.
        let _ = self.0.since_ns.compare_exchange(0, now_ns(), Ordering::Relaxed, Ordering::Relaxed);
        // Pairs with the load in `is_requested`: a thread that sees the word also sees the time.
        self.0.word.fetch_or(REQUESTED, Ordering::Release);
        futex::wake_all(&self.0.word);
        // Pairs with the fence in `wait_readable`: either this thread sees the event, or the
        // waiting thread sees the word.
        fence(Ordering::SeqCst);
        if let Some(Some(event)) = self.0.event.get() {
            // Cannot fail, because only this call ever writes to the event.
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
    }

    /// Returns true after [`stop`](Stop::stop) was called.
    pub fn is_requested(&self) -> bool {
        self.0.word.load(Ordering::Acquire) & REQUESTED != 0
    }

    /// Ends the [sleeps](sleep_unless) of the run's threads once, and the wait for a device
    /// (`poll_unless`), so that they check their condition. Set the condition before this call.
    pub fn wake(&self) {
        // Release: pairs with the Acquire in `sleep_unless`. Wrapping is harmless: a sleeper
        // would have to miss two thousand million wake-ups.
        self.0.word.fetch_add(NUDGE, Ordering::Release);
        futex::wake_all(&self.0.word);
        // Pairs with the fence in `poll_unless`: either this thread sees the event, or the
        // waiting thread sees the condition.
        fence(Ordering::SeqCst);
        if let Some(Some(event)) = self.0.nudged.get() {
            // If it fails, the event is full, and so readable.
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
    }

    /// Makes the calling thread a thread of this run, until the result is dropped: the run's stop request
    /// then ends the thread's waits that the module's documentation names, and [`Stop::wake`] ends its
    /// sleeps. If a thread enters several runs, the last one counts.
    pub fn enter(&self) -> Entered {
        ENTERED.with_borrow_mut(|entered| entered.push(self.clone()));
        Entered { stays: PhantomData }
    }

    fn is_overdue(&self) -> bool {
        self.is_requested()
            && now_ns().saturating_sub(self.0.since_ns.load(Ordering::Relaxed)) >= GRACE.as_nanos() as u64
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("is_requested", &self.is_requested()).finish()
    }
}

/// Guard for a thread's membership in a run ([`Stop::enter`]). Dropping it leaves the run that the thread
/// entered last.
#[derive(Debug)]
pub struct Entered {
    /// Makes the guard `!Send`, because the guard belongs to one thread.
    stays: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        ENTERED.with_borrow_mut(Vec::pop);
    }
}

/// Returns true if the calling thread's run, which is the one that the thread entered last, was requested to
/// stop; false if the thread is in no run.
pub(crate) fn requested() -> bool {
    ENTERED.with_borrow(|entered| entered.last().is_some_and(Stop::is_requested))
}

/// Returns true if the calling thread's run was requested to stop [`GRACE`] ago or earlier.
pub(crate) fn overdue() -> bool {
    ENTERED.with_borrow(|entered| entered.last().is_some_and(Stop::is_overdue))
}

/// Returns the run that the calling thread entered last; `None` if the thread is in no run.
pub fn current() -> Option<Stop> {
    ENTERED.with_borrow(|entered| entered.last().cloned())
}

fn event() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()
}

/// Polls `fd` for `flags` for at most `limit`. Returns the events found. Returns no events if `limit` has
/// passed or the wait ended early: by a signal, by a stop request to the calling thread's run, or by a
/// [wake](Stop::wake). Resets an earlier wake-up first, and does not wait if `awake` then returns true.
/// Only one thread of a run may wait here and be woken. If the event descriptors cannot be made, a request
/// or a wake-up during the wait does not end it.
///
/// A stop request made before the call does not end the wait: the run still waits for its frames. After such
/// a request, a wake-up does not end the wait either.
///
/// Errors from poll(2), except EINTR.
pub(crate) fn poll_unless(
    fd: BorrowedFd<'_>,
    flags: PollFlags,
    limit: Duration,
    awake: impl Fn() -> bool,
) -> Result<PollFlags, Errno> {
    let limit = timespec(limit);
    let stop = current().filter(|stop| !stop.is_requested());
    let events = stop.as_ref().and_then(|stop| {
        let requested = stop.0.event.get_or_init(event).as_ref()?;
        let nudged = stop.0.nudged.get_or_init(event).as_ref()?;
        // Resets an earlier wake-up; its condition is checked next.
        let _ = rustix::io::read(nudged, &mut [0; 8]);
        Some((requested, nudged))
    });
    // Pairs with the fences in `stop` and `wake`.
    fence(Ordering::SeqCst);
    if awake() || stop.as_ref().is_some_and(Stop::is_requested) {
        return Ok(PollFlags::empty());
    }
    let first = PollFd::from_borrowed_fd(fd, flags);
    let found = match events {
        None => {
            let mut fds = [first];
            poll(&mut fds, Some(&limit)).map(|_| fds[0].revents())
        }
        Some((requested, nudged)) => {
            let mut fds = [first, PollFd::new(requested, PollFlags::IN), PollFd::new(nudged, PollFlags::IN)];
            poll(&mut fds, Some(&limit)).map(|_| fds[0].revents())
        }
    };
    match found {
        Err(Errno::INTR) => Ok(PollFlags::empty()),
        found => found,
    }
}

/// Waits until `socket` is readable, or with `write` writable, at its end or failed; returns true then. Returns
/// false if `limit` has passed or the wait ended early: by a signal, by a stop request to the calling thread's
/// run, or by a [wake](Stop::wake). Does not wait if `awake` returns true at first. A stop request made before
/// the call does not end the wait, so callers check [`signal::interrupted`](crate::process::signal::interrupted)
/// before it. Only one thread of a run may wait here or for a V4L2 device.
///
/// # Errors
/// From poll(2), except EINTR.
pub fn wait_for_socket(
    socket: BorrowedFd<'_>,
    write: bool,
    limit: Duration,
    awake: impl Fn() -> bool,
) -> std::io::Result<bool> {
    let flags = if write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    Ok(!poll_unless(socket, flags, limit, awake)?.is_empty())
}

/// Sleeps until `deadline_ns` (CLOCK_MONOTONIC, nanoseconds), a signal, or a stop request or
/// [wake](Stop::wake) of the calling thread's run. Does not sleep if the stop was already requested, or
/// if `awake` returns true at first. May return early, so callers have to check again.
pub fn sleep_unless(deadline_ns: u64, awake: impl Fn() -> bool) {
    let Some(stop) = current() else {
        if !awake() {
            sleep_until(deadline_ns);
        }
        return;
    };
    // Acquire: pairs with the Release in `wake`. `awake` sees an earlier wake-up; a later one
    // changes the word.
    let word = stop.0.word.load(Ordering::Acquire);
    if word & REQUESTED != 0 || awake() {
        return;
    }
    let left = Duration::from_nanos(deadline_ns.saturating_sub(now_ns()));
    futex::wait_for(&stop.0.word, word, left);
}

/// Waits until `file` is readable, at its end or failed, or until the calling thread's run is
/// requested to stop. Returns `Ok` immediately, without waiting, if the thread belongs to no run, or if the
/// run's event descriptor cannot be made and no stop was requested.
///
/// # Errors
/// EINTR after a signal; ECANCELED if the stop was requested, even before the call; others from
/// poll(2).
pub(crate) fn wait_readable(file: &impl AsFd) -> Result<(), Errno> {
    let Some(stop) = current() else { return Ok(()) };
    let event = stop.0.event.get_or_init(event);
    // Pairs with the fence in `stop`.
    fence(Ordering::SeqCst);
    if !stop.is_requested() {
        let Some(event) = event else { return Ok(()) };
        poll(&mut [PollFd::new(file, PollFlags::IN), PollFd::new(event, PollFlags::IN)], None)?;
    }
    if stop.is_requested() { Err(Errno::CANCELED) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::process::signal;

    #[test]
    fn a_request_is_seen_by_the_threads_that_entered_it() {
        let (mine, other) = (Stop::new(), Stop::new());
        assert!(!signal::interrupted());
        {
            let _outer = other.enter();
            let inner = mine.enter();
            other.stop();
            assert!(!signal::interrupted(), "the other run's request");
            mine.stop();
            assert!(signal::interrupted() && !signal::overdue());
            drop(inner);
            assert!(signal::interrupted(), "the outer run's request");
        }
        assert!(!signal::interrupted());
        assert!(std::thread::spawn(|| !signal::interrupted()).join().unwrap());
    }

    #[test]
    fn a_request_ends_a_read_of_a_silent_pipe() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let file = std::fs::File::from(reader);
        let stop = Stop::new();
        rustix::io::write(&writer, b"ab").unwrap();
        let (sender, results) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn({
            let stop = stop.clone();
            move || {
                let _entered = stop.enter();
                for _ in 0..2 {
                    sender.send(crate::process::cancel::read(&file, &mut [0; 8])).unwrap();
                }
            }
        });
        assert_eq!(results.recv().unwrap().unwrap(), 2);
        stop.stop();
        assert!(crate::process::cancel::is_canceled(&results.recv().unwrap().unwrap_err()));
        waiting.join().unwrap();
    }

    #[test]
    fn a_nudge_ends_a_sleep_without_a_request() {
        let stop = Stop::new();
        let news = Arc::new(AtomicBool::new(false));
        let far = now_ns() + Duration::from_secs(3600).as_nanos() as u64;
        let sleeper = std::thread::spawn({
            let (stop, news) = (stop.clone(), news.clone());
            move || {
                let _entered = stop.enter();
                while !news.load(Ordering::Relaxed) {
                    sleep_unless(far, || news.load(Ordering::Relaxed));
                }
            }
        });
        news.store(true, Ordering::Relaxed);
        stop.wake();
        sleeper.join().unwrap();
        assert!(!stop.is_requested());
    }

    /// Waits on a thread of a run for a pipe that stands in for a silent device. The wait ends when
    /// `news` is true or `stop` is requested. Calls `wake` when the thread is about to wait.
    fn wait_for_a_silent_device(stop: &Stop, news: &Arc<AtomicBool>, wake: impl Fn()) {
        let (device, _writer) = rustix::pipe::pipe().unwrap();
        let (sender, waits) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn({
            let (stop, news) = (stop.clone(), news.clone());
            move || {
                let _entered = stop.enter();
                let awake = || {
                    // Last check before the wait.
                    let _ = sender.send(());
                    news.load(Ordering::Relaxed)
                };
                while !news.load(Ordering::Relaxed) && !signal::interrupted() {
                    let hour = Duration::from_secs(3600);
                    let found = poll_unless(device.as_fd(), PollFlags::IN, hour, awake);
                    assert_eq!(found, Ok(PollFlags::empty()));
                }
            }
        });
        waits.recv().unwrap();
        wake();
        waiting.join().unwrap();
    }

    #[test]
    fn a_nudge_ends_a_wait_for_a_device() {
        let (stop, news) = (Stop::new(), Arc::new(AtomicBool::new(false)));
        // A wake-up for an earlier condition.
        stop.wake();
        // Repeated, because the wait resets the wake-up that ends it.
        for _ in 0..100 {
            news.store(false, Ordering::Relaxed);
            wait_for_a_silent_device(&stop, &news, || {
                news.store(true, Ordering::Relaxed);
                stop.wake();
            });
        }
        assert!(!stop.is_requested());
    }

    #[test]
    fn a_request_ends_a_wait_for_a_device_that_began_before() {
        let (stop, news) = (Stop::new(), Arc::default());
        wait_for_a_silent_device(&stop, &news, || stop.stop());
        // The run still waits for the frames that the device has.
        let (device, writer) = rustix::pipe::pipe().unwrap();
        let _entered = stop.enter();
        let wait = |limit| poll_unless(device.as_fd(), PollFlags::IN, limit, || false).unwrap();
        assert_eq!(wait(Duration::ZERO), PollFlags::empty());
        rustix::io::write(&writer, b"x").unwrap();
        assert_eq!(wait(Duration::from_secs(3600)), PollFlags::IN);
    }

    #[test]
    fn a_request_ends_a_sleep() {
        let stop = Stop::new();
        let far = now_ns() + Duration::from_secs(3600).as_nanos() as u64;
        let sleeper = std::thread::spawn({
            let stop = stop.clone();
            move || {
                let _entered = stop.enter();
                while !signal::interrupted() {
                    sleep_unless(far, || false);
                }
            }
        });
        stop.stop();
        sleeper.join().unwrap();
    }
}
