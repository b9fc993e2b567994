// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleep of a pool's owner that waits for a slot, and the handle that ends the wait.

use std::sync::Arc;

use crate::sync::atomics::{AtomicU32, Ordering};
use crate::sync::futex::{self, LastingWord};

/// Word on which a pool's owner sleeps: 1 while the owner sleeps or is about to sleep. The memory of the word
/// is never freed, because a waker may be late: the pool may be freed as soon as a slot is returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerWait {
    word: &'static AtomicU32,
    /// Word of this process, recycled when the pool is freed; `None` if `word` is in memory that another
    /// process maps.
    own: Option<LastingWord>,
}

impl OwnerWait {
    /// Uses a word that only this process has.
    pub(super) fn allocate() -> OwnerWait {
        let own = LastingWord::take();
        OwnerWait { word: own.word(), own: Some(own) }
    }

    /// Uses a word through which another process wakes this process.
    pub(super) fn shared(word: &'static AtomicU32) -> OwnerWait {
        OwnerWait { word, own: None }
    }

    /// Sets the word to 1: the pool's owner is about to sleep. The owner checks for a slot between this
    /// call and [`sleep`](OwnerWait::sleep).
    pub(super) fn announce_sleep(self) {
        self.word.store(1, Ordering::Relaxed);
    }

    /// Sets the word to 0: the pool's owner does not sleep after all.
    pub(super) fn cancel_sleep(self) {
        self.word.store(0, Ordering::Relaxed);
    }

    /// Sleeps, on the owner's thread and without a limit, until another thread sets the word to 0 and wakes
    /// this thread. May return early.
    pub(super) fn sleep(self) {
        match self.own {
            Some(_) => futex::wait(self.word, 1),
            None => {
                futex::wait_shared(self.word, 1, None);
            }
        }
    }

    /// Wakes the owner if the word is not 0. The word may belong to another pool by now; the owner of that
    /// pool then checks for a slot once more without need.
    #[inline]
    pub(super) fn wake(self) {
        // Relaxed: either the read-modify-write before this call has seen the owner's, which
        // follows the raising of the flag, or the owner's has seen ours; see `Pool::wait`.
        if self.word.load(Ordering::Relaxed) != 0 {
            self.wake_now();
        }
    }

    /// Sets the word to 0 and wakes one sleeper, without a check of the word.
    #[cold]
    fn wake_now(self) {
        self.word.store(0, Ordering::Relaxed);
        match self.own {
            Some(_) => futex::wake_one(self.word),
            None => futex::wake_shared(self.word),
        }
    }

    /// Makes the word available to other pools, if only this process has it. The pool is being freed, and
    /// no thread sleeps on the word any more.
    pub(super) fn recycle(self) {
        if let Some(own) = self.own {
            own.recycle();
        }
    }
}

/// Handle by which any thread ends the waits for a slot of one pool. The handle may outlive the pool.
#[derive(Clone, Debug)]
pub struct Closer {
    closed: Arc<AtomicU32>,
    waits: OwnerWait,
}

impl Closer {
    pub(super) fn new(waits: OwnerWait) -> Closer {
        Closer { closed: Arc::new(AtomicU32::new(0)), waits }
    }

    /// Closes the pool permanently: the current wait for a slot and every later one end with
    /// [`PoolError::Closed`](super::PoolError::Closed). Free slots can still be taken.
    pub fn close(&self) {
        // AcqRel: pairs with the check in `is_closed`. The later of the two sees the earlier:
        // either the owner sees that the pool is closed, or this thread sees that the owner
        // waits.
        self.closed.fetch_or(1, Ordering::AcqRel);
        // Wakes without a check of the word, because another process may have written it.
        self.waits.wake_now();
    }

    /// Returns true if the pool is closed. The pool's owner calls this function between
    /// [`OwnerWait::announce_sleep`] and [`OwnerWait::sleep`].
    pub(super) fn is_closed(&self) -> bool {
        // AcqRel: see `close`.
        self.closed.fetch_or(0, Ordering::AcqRel) != 0
    }
}
