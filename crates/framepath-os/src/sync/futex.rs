// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping on a word of memory, and waking the sleepers. The `_shared` functions work across
//! processes that map the same memory.

#[cfg(not(loom))]
use std::sync::Mutex;

#[cfg(not(loom))]
use rustix::io::Errno;
#[cfg(not(loom))]
use rustix::thread::futex::{self, Flags};

use crate::sync::atomics::{AtomicU32, CacheAligned};
#[cfg(not(loom))]
use crate::time::timespec;

/// Sleeps until a thread of this process wakes this thread ([`wake_one`] or `wake_all` on `word`). Returns
/// immediately if `word` is not `expected`. May return early (a signal, a spurious wake-up), so callers have
/// to check their condition again. One system call.
#[cfg(not(loom))]
pub fn wait(word: &AtomicU32, expected: u32) {
    // EAGAIN (the word changed) and EINTR both make the caller check again.
    let _ = futex::wait(word, Flags::PRIVATE, expected, None);
}

/// Sleeps as [`wait`] does, for at most `limit`. Does not report whether `limit` has passed.
#[cfg(not(loom))]
pub(crate) fn wait_for(word: &AtomicU32, expected: u32, limit: std::time::Duration) {
    let _ = futex::wait(word, Flags::PRIVATE, expected, Some(&timespec(limit)));
}

/// Wakes all threads of this process that sleep on `word`. One system call.
#[cfg(not(loom))]
pub(crate) fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::PRIVATE, i32::MAX as u32);
}

/// Wakes at most one thread of this process that sleeps on `word`. One system call.
#[cfg(not(loom))]
pub fn wake_one(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::PRIVATE, 1);
}

/// Sleeps as [`wait`] does, but until a thread of any process that maps `word` wakes this thread by
/// [`wake_shared`] or [`wake_all_shared`], and for at most `limit` (`None`: no limit). Returns false if
/// `limit` has passed, and true after any other end of the sleep.
#[cfg(not(loom))]
pub(crate) fn wait_shared(word: &AtomicU32, expected: u32, limit: Option<std::time::Duration>) -> bool {
    let limit = limit.map(timespec);
    !matches!(futex::wait(word, Flags::empty(), expected, limit.as_ref()), Err(Errno::TIMEDOUT))
}

/// Wakes at most one thread that sleeps on `word` by [`wait_shared`], in any process that maps the word.
/// One system call.
#[cfg(not(loom))]
pub(crate) fn wake_shared(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::empty(), 1);
}

/// Wakes all threads that sleep on `word` by [`wait_shared`], in every process that maps the word. So a
/// hostile process that sleeps on the word itself cannot take the wake-up from another process. One
/// system call.
#[cfg(not(loom))]
pub(crate) fn wake_all_shared(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::empty(), i32::MAX as u32);
}

/// Version of `wait` for the model checker: yields until `word` differs from `expected`. A waker
/// changes the word first; a word that never changes ends the model as a livelock.
#[cfg(loom)]
pub(crate) fn wait(word: &AtomicU32, expected: u32) {
    while word.load(crate::sync::atomics::Ordering::Relaxed) == expected {
        loom::thread::yield_now();
    }
}

/// [`wait`] for the model checker, in which no time passes.
#[cfg(loom)]
pub(crate) fn wait_for(word: &AtomicU32, expected: u32, _: std::time::Duration) {
    wait(word, expected);
}

#[cfg(loom)]
pub(crate) fn wake_one(_: &AtomicU32) {}

#[cfg(loom)]
pub(crate) fn wait_shared(word: &AtomicU32, expected: u32, _: Option<std::time::Duration>) -> bool {
    wait(word, expected);
    true
}

#[cfg(loom)]
pub(crate) fn wake_shared(_: &AtomicU32) {}

#[cfg(loom)]
pub(crate) fn wake_all_shared(_: &AtomicU32) {}

/// Futex word whose memory is never freed, for wakers that may run after the object with the sleeping
/// thread was freed. Words are reused, so the process allocates only as many as were ever in use at once
/// (under loom, words are not reused). A late waker may find the word in use by another object. Then the
/// waker sets the word to 0, and the thread that sleeps on it wakes without need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastingWord(&'static CacheAligned<AtomicU32>);

#[cfg(not(loom))]
static UNUSED: Mutex<Vec<LastingWord>> = Mutex::new(Vec::new());

impl LastingWord {
    /// Returns a recycled word, or allocates a new word if there is no recycled word. The word is 0, and
    /// no thread sleeps on it.
    pub(crate) fn take() -> LastingWord {
        #[cfg(not(loom))]
        if let Some(word) = UNUSED.lock().unwrap_or_else(|e| e.into_inner()).pop() {
            return word;
        }
        LastingWord(Box::leak(Box::new(CacheAligned(AtomicU32::new(0)))))
    }

    /// Returns the atomic word, to sleep on and to wake.
    pub(crate) fn word(self) -> &'static AtomicU32 {
        &self.0.0
    }

    /// Makes the word available to a later [`take`](LastingWord::take). The caller ensures that the
    /// word is 0 and that no thread sleeps on it.
    pub(crate) fn recycle(self) {
        #[cfg(not(loom))]
        UNUSED.lock().unwrap_or_else(|e| e.into_inner()).push(self);
    }
}
