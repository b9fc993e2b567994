// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a pool's owner sleeps for a slot, and how it is told that none comes.

use std::sync::Arc;

use crate::futex::{self, LastingWord};
use crate::sync::{AtomicU32, Ordering};

/// The word a pool's owner sleeps on: 1 while it sleeps. Never freed, because
/// wakers come late: after a slot is given back its pool can be gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    word: &'static AtomicU32,
    /// `None` where the word lies in memory that another process maps.
    own: Option<LastingWord>,
}

impl Waits {
    /// A word of this process.
    pub(super) fn own() -> Waits {
        let own = LastingWord::take();
        Waits { word: own.word(), own: Some(own) }
    }

    /// A word that another process wakes this one by.
    pub(super) fn shared(word: &'static AtomicU32) -> Waits {
        Waits { word, own: None }
    }

    /// Says that the owner is about to sleep; the looks for a slot come after.
    pub(super) fn raise(self) {
        self.word.store(1, Ordering::Relaxed);
    }

    /// The owner does not sleep after all.
    pub(super) fn lower(self) {
        self.word.store(0, Ordering::Relaxed);
    }

    /// Sleeps until somebody wakes the owner, or for no reason.
    pub(super) fn sleep(self) {
        match self.own {
            Some(_) => futex::wait(self.word, 1),
            None => {
                futex::wait_shared(self.word, 1, None);
            }
        }
    }

    /// Wakes the owner, where it sleeps. The word may serve another pool by
    /// now: its owner then looks again for nothing.
    #[inline]
    pub(super) fn wake(self) {
        // Relaxed: the read-modify-write before this call has seen the one the
        // owner did after raising the flag, or the owner's has seen ours; see
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

    /// Nobody sleeps on it any more.
    pub(super) fn give_back(self) {
        if let Some(own) = self.own {
            own.give_back();
        }
    }
}

/// Ends the waits of one pool, from any thread. It may outlive the pool.
#[derive(Clone, Debug)]
pub struct Closer {
    closed: Arc<AtomicU32>,
    waits: Waits,
}

impl Closer {
    pub(super) fn new(waits: Waits) -> Closer {
        Closer { closed: Arc::new(AtomicU32::new(0)), waits }
    }

    /// Makes the wait that is going on, and every one after it, end with
    /// [`PoolError::Closed`](super::PoolError::Closed). Slots that are free are
    /// still given.
    pub fn close(&self) {
        // AcqRel: pairs with the look in `is_closed`. Of the two the later sees
        // the earlier: the owner that we are closed, or we that it waits.
        self.closed.fetch_or(1, Ordering::AcqRel);
        // Without a look at the word, which another process may have written.
        self.waits.wake_now();
    }

    /// Asked by the owner between raising its flag and sleeping.
    pub(super) fn is_closed(&self) -> bool {
        // AcqRel: see `close`.
        self.closed.fetch_or(0, Ordering::AcqRel) != 0
    }
}
