// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping on a word of memory, and waking the sleepers. The `_shared` functions reach
//! other processes that map the same memory.

#[cfg(not(loom))]
use std::sync::Mutex;

#[cfg(not(loom))]
use rustix::io::Errno;
#[cfg(not(loom))]
use rustix::thread::futex::{self, Flags};

use crate::sync::atomics::{AtomicU32, CacheAligned};
#[cfg(not(loom))]
use crate::time::timespec;

/// Sleeps while `word` holds `expected`. May return early (a signal, a
/// spurious wake-up): callers check their condition again. One system call.
#[cfg(not(loom))]
pub fn wait(word: &AtomicU32, expected: u32) {
    // EAGAIN (the word changed) and EINTR both mean: look again.
    let _ = futex::wait(word, Flags::PRIVATE, expected, None);
}

/// [`wait`] for `limit` at most.
#[cfg(not(loom))]
pub(crate) fn wait_for(word: &AtomicU32, expected: u32, limit: std::time::Duration) {
    let _ = futex::wait(word, Flags::PRIVATE, expected, Some(&timespec(limit)));
}

/// Wakes all sleepers on `word`. One system call.
#[cfg(not(loom))]
pub(crate) fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::PRIVATE, i32::MAX as u32);
}

/// Wakes at most one sleeper on `word`. One system call.
#[cfg(not(loom))]
pub fn wake_one(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::PRIVATE, 1);
}

/// [`wait`] on a word that another process may wake, for `limit` at most. `false` where
/// `limit` has passed.
#[cfg(not(loom))]
pub(crate) fn wait_shared(word: &AtomicU32, expected: u32, limit: Option<std::time::Duration>) -> bool {
    let limit = limit.map(timespec);
    !matches!(futex::wait(word, Flags::empty(), expected, limit.as_ref()), Err(Errno::TIMEDOUT))
}

/// [`wake_one`] for sleepers of any process.
#[cfg(not(loom))]
pub(crate) fn wake_shared(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::empty(), 1);
}

/// [`wake_shared`] for all sleepers, so that one that should not be there takes no
/// wake-up from the others.
#[cfg(not(loom))]
pub(crate) fn wake_all_shared(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::empty(), i32::MAX as u32);
}

/// Version for the model checker: a waker changes the word first, and a word that never
/// changes ends the model as a livelock.
#[cfg(loom)]
pub(crate) fn wait(word: &AtomicU32, expected: u32) {
    while word.load(crate::sync::atomics::Ordering::Relaxed) == expected {
        loom::thread::yield_now();
    }
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

/// A word whose memory is never freed, for wakers that may come after the object they
/// wake is gone. Words are reused, so there are as many as were ever in use at once; late
/// wakers set them to 0 and cause spurious wake-ups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastingWord(&'static CacheAligned<AtomicU32>);

#[cfg(not(loom))]
static UNUSED: Mutex<Vec<LastingWord>> = Mutex::new(Vec::new());

impl LastingWord {
    /// Takes a word that no other thread sleeps on; 0.
    pub(crate) fn take() -> LastingWord {
        #[cfg(not(loom))]
        if let Some(word) = UNUSED.lock().unwrap_or_else(|e| e.into_inner()).pop() {
            return word;
        }
        LastingWord(Box::leak(Box::new(CacheAligned(AtomicU32::new(0)))))
    }

    /// Returns the word itself.
    pub(crate) fn word(self) -> &'static AtomicU32 {
        &self.0.0
    }

    /// Lets others take the word. No thread sleeps on it any more, and it is 0.
    pub(crate) fn recycle(self) {
        #[cfg(not(loom))]
        UNUSED.lock().unwrap_or_else(|e| e.into_inner()).push(self);
    }
}
