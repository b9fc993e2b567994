// SPDX-License-Identifier: MIT OR Apache-2.0
//! Return of a pool's slots: any thread pushes a slot, and the pool's owner takes all pushed slots at once.
//!
//! There is no ABA problem, because slots are never popped singly: a push only compares the head
//! that it read with the current head.

use std::ptr::NonNull;

use crate::sync::atomics::{AtomicU32, AtomicUsize, CacheAligned, Ordering};

const EMPTY: u32 = u32::MAX;
const CLOSED: u32 = u32::MAX - 1;

/// Stack of the numbers of returned slots, each from 0 to `CLOSED` exclusive. Any thread pushes; only
/// the pool's owner takes.
#[derive(Debug)]
pub(crate) struct ReturnStack {
    /// Number of the top slot; `EMPTY` if no slot is on the stack; `CLOSED` after the owner has closed the
    /// stack.
    head: CacheAligned<AtomicU32>,
    /// Slot below each slot. The one thread that returns slot `n` writes `next[n]` before `n`
    /// becomes the head.
    next: Box<[AtomicU32]>,
    /// Number of slots plus one for the owner, until the owner closes the stack. Closing subtracts one for the
    /// owner and one for each slot that is free or on the stack; each later return subtracts one. At 0 the
    /// pool is freed.
    unaccounted: AtomicUsize,
}

/// Result of [`ReturnStack::push`] and [`ReturnStack::close`]: whether the owner can take the slot, and
/// whether the pool has to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returned {
    /// The slot is on the stack; the owner can take it.
    ToOwner,
    /// The owner has closed the stack; slots are still in use, so the pool is not freed yet.
    Closed,
    /// The owner has closed the stack, and no slot is in use any more: the caller frees the pool.
    LastOfClosed,
}

impl ReturnStack {
    /// Creates an empty stack for `slots` slots, numbered from 0. The owner has all of them at first.
    pub(crate) fn new(slots: u32) -> ReturnStack {
        debug_assert!(slots < CLOSED);
        ReturnStack {
            head: CacheAligned(AtomicU32::new(EMPTY)),
            next: (0..slots).map(|_| AtomicU32::new(EMPTY)).collect(),
            unaccounted: AtomicUsize::new(slots as usize + 1),
        }
    }

    /// Returns slot `slot` to the pool: pushes it on the stack, or, if the owner has closed the stack, only
    /// counts it. Any thread. The caller owns the slot until this call.
    ///
    /// # Safety
    /// `this` is live until the slot is returned. It may be freed before the call returns, so the
    /// parameter is not `&self`.
    #[inline]
    pub(crate) unsafe fn push(this: NonNull<ReturnStack>, slot: u32) -> Returned {
        // SAFETY: live by the contract; not used after the slot is returned.
        let stack = unsafe { this.as_ref() };
        let mut head = stack.head.0.load(Ordering::Relaxed);
        loop {
            if head == CLOSED {
                return account(&stack.unaccounted, 1);
            }
            stack.next[slot as usize].store(head, Ordering::Relaxed);
            // Release: pairs with the Acquire of `take`, for the slot's contents and `next`.
            // Acquire: pairs with the Release of an earlier `take`, so that the caller sees the
            // waiting flag that the owner raised before.
            match stack.head.0.compare_exchange_weak(head, slot, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Returned::ToOwner,
                Err(seen) => head = seen,
            }
        }
    }

    /// Moves all returned slots to the end of `into`, the latest last. Called by the owner only.
    pub(crate) fn take(&self, into: &mut Vec<u32>) {
        // Acquire: pairs with the Release of every push taken. Release: passes the
        // owner's waiting flag to every later push.
        let head = self.head.0.swap(EMPTY, Ordering::AcqRel);
        self.unchain(head, into);
    }

    /// Closes the stack for the owner, which has `free` free slots itself. Returns `LastOfClosed` if no
    /// slot is in use, and `Closed` otherwise.
    ///
    /// # Safety
    /// `this` is live, and the owner does not use it again. It may be freed before the call
    /// returns, as in [`ReturnStack::push`].
    pub(crate) unsafe fn close(this: NonNull<ReturnStack>, free: usize) -> Returned {
        // SAFETY: live until the owner's share is accounted for below.
        let stack = unsafe { this.as_ref() };
        // Acquire: pairs with the Release of every push taken.
        let head = stack.head.0.swap(CLOSED, Ordering::Acquire);
        let mut returned = Vec::new();
        stack.unchain(head, &mut returned);
        account(&stack.unaccounted, free + returned.len() + 1)
    }

    /// Adds the slots from `head` down to the bottom of the stack to `into`, the top last.
    fn unchain(&self, mut head: u32, into: &mut Vec<u32>) {
        let start = into.len();
        while head != EMPTY {
            debug_assert!((head as usize) < self.next.len());
            into.push(head);
            head = self.next[head as usize].load(Ordering::Relaxed);
        }
        into[start..].reverse();
    }
}

/// Subtracts `shares` (one for each slot, and one for the owner) from the count of a closed stack.
/// Returns `LastOfClosed` if the count is 0 afterwards, and `Closed` otherwise.
fn account(unaccounted: &AtomicUsize, shares: usize) -> Returned {
    // AcqRel: the thread that counts the last share sees the last uses by all others.
    let before = unaccounted.fetch_sub(shares, Ordering::AcqRel);
    debug_assert!(before >= shares);
    if before == shares { Returned::LastOfClosed } else { Returned::Closed }
}

#[cfg(test)]
impl ReturnStack {
    fn push_live(&self, slot: u32) -> Returned {
        // SAFETY: the test keeps the stack.
        unsafe { ReturnStack::push(self.into(), slot) }
    }

    fn close_live(&self, free: usize) -> Returned {
        // SAFETY: as above.
        unsafe { ReturnStack::close(self.into(), free) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn takes_all_latest_last() {
        let stack = ReturnStack::new(4);
        for slot in [2, 0, 3] {
            assert_eq!(stack.push_live(slot), Returned::ToOwner);
        }
        let mut free = vec![1];
        stack.take(&mut free);
        assert_eq!(free, [1, 2, 0, 3]);
        stack.take(&mut free);
        assert_eq!(free.len(), 4);
    }

    #[test]
    fn the_last_slot_after_closing_is_told_so() {
        let stack = ReturnStack::new(4);
        assert_eq!(stack.push_live(1), Returned::ToOwner);
        assert_eq!(stack.close_live(1), Returned::Closed);
        assert_eq!(stack.push_live(0), Returned::Closed);
        assert_eq!(stack.push_live(2), Returned::LastOfClosed);
        let idle = ReturnStack::new(2);
        assert_eq!(idle.close_live(2), Returned::LastOfClosed);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;

    /// Two threads return slots while the owner takes and then closes: no slot is lost or
    /// duplicated, and exactly one side frees the pool.
    #[test]
    fn no_slot_is_lost_and_one_frees() {
        loom::model(|| {
            let stack = Arc::new(ReturnStack::new(2));
            let returners: Vec<_> = (0..2)
                .map(|slot| {
                    let stack = stack.clone();
                    loom::thread::spawn(move || stack.push_live(slot))
                })
                .collect();
            let mut free = Vec::new();
            stack.take(&mut free);
            let mut outcomes = vec![stack.close_live(free.len())];
            outcomes.extend(returners.into_iter().map(|r| r.join().unwrap()));
            let last = outcomes.iter().filter(|o| **o == Returned::LastOfClosed).count();
            assert_eq!(last, 1, "{outcomes:?}");
        });
    }
}
