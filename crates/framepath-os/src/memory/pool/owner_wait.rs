// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sleep of a pool's owner for a slot, and the message that none comes.

use std::sync::Arc;

use crate::sync::atomics::{AtomicU32, Ordering};
use crate::sync::futex::{self, LastingWord};

/// The word a pool's owner sleeps on: 1 while it sleeps. Never freed, because wakers come
/// late: the pool can be gone after a slot is given back.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerWait {
    word: &'static AtomicU32,
    /// `None` where the word lies in memory that another process maps.
    own: Option<LastingWord>,
}

impl OwnerWait {
    /// Takes a word of this process.
    pub(super) fn allocate() -> OwnerWait {
        let own = LastingWord::take();
        OwnerWait { word: own.word(), own: Some(own) }
    }

    /// Uses a word by which another process wakes this one.
    pub(super) fn shared(word: &'static AtomicU32) -> OwnerWait {
        OwnerWait { word, own: None }
    }

    /// Reports that the owner is about to sleep; its looks for a slot come after.
    pub(super) fn announce_sleep(self) {
        self.word.store(1, Ordering::Relaxed);
    }

    /// Reports that the owner does not sleep after all.
    pub(super) fn cancel_sleep(self) {
        self.word.store(0, Ordering::Relaxed);
    }

    /// Sleeps until another thread wakes the owner; may return without a reason.
    pub(super) fn sleep(self) {
        match self.own {
            Some(_) => futex::wait(self.word, 1),
            None => {
                futex::wait_shared(self.word, 1, None);
            }
        }
    }

    /// Wakes the owner, if it sleeps. The word may serve another pool by now: that pool's
    /// owner then looks again in vain.
    #[inline]
    pub(super) fn wake(self) {
        // Relaxed: either the read-modify-write before this call has seen the one of the
        // owner after it raised the flag, or the owner's has seen ours; see
        // `Pool::wait`.
        if self.word.load(Ordering::Relaxed) != 0 {
            self.wake_now();
        }
    }

    #[cold]
    fn wake_now(self) {
        self.word.store(0, Ordering::Relaxed);
        match self.own {
            Some(_) => futex::wake_one(self.word),
            None => futex::wake_shared(self.word),
        }
    }

    /// Gives the word back; no thread sleeps on it any more.
    pub(super) fn recycle(self) {
        if let Some(own) = self.own {
            own.recycle();
        }
    }
}

/// Ends the waits of one pool, from any thread. It may outlive the pool.
#[derive(Clone, Debug)]
pub struct Closer {
    closed: Arc<AtomicU32>,
    waits: OwnerWait,
}

impl Closer {
    pub(super) fn new(waits: OwnerWait) -> Closer {
        Closer { closed: Arc::new(AtomicU32::new(0)), waits }
    }

    /// Ends the current wait and every later one with
    /// [`PoolError::Closed`](super::PoolError::Closed). Free slots are still given.
    pub fn close(&self) {
        // AcqRel: pairs with the look in `is_closed`. The later of the two sees the
        // earlier: either the owner sees the closing, or this thread sees that the owner
        // waits.
        self.closed.fetch_or(1, Ordering::AcqRel);
        // Does not look at the word, because another process may have written it.
        self.waits.wake_now();
    }

    /// True if the pool is closed; asked by the owner between raising its flag and
    /// sleeping.
    pub(super) fn is_closed(&self) -> bool {
        // AcqRel: see `close`.
        self.closed.fetch_or(0, Ordering::AcqRel) != 0
    }
}
