// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounded ring between one producer and one consumer, without sleeping; `queue` adds the sleeping. Only a
//! ring whose producer may remove the oldest value has a lock, around each removal of a value.

use std::mem::MaybeUninit;

use crate::sync::atomics::{AtomicU32, AtomicUsize, CacheAligned, Ordering, UnsafeCell};

#[cfg(loom)]
use loom::sync::Arc;
#[cfg(not(loom))]
use std::sync::Arc;

/// Reason why a ring or queue rejected a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The ring already holds `depth` values.
    Full,
    /// The consumer was closed or dropped.
    Closed,
}

/// Failed push or send. Contains the value, so that the caller can keep it or try again.
#[derive(Debug, PartialEq, Eq)]
pub struct SendError<T> {
    /// The value that could not be sent.
    pub value: T,
    /// Reason of the failure.
    pub reason: Reason,
}

/// State of a ring, shared by both ends. Positions rise and do not wrap at the buffer's size
/// (`position & mask` is the cell): `head <= tail <= head + depth`.
pub(crate) struct RingState<T> {
    /// Cells; `head..tail` hold values, the others are uninitialised.
    cells: Box<[UnsafeCell<MaybeUninit<T>>]>,
    mask: usize,
    depth: usize,
    /// Next position to read; written by the consumer, or, if `leaks_oldest`, by both ends under `pop_lock`.
    head: CacheAligned<AtomicUsize>,
    /// Next position to write; written by the producer only.
    tail: CacheAligned<AtomicUsize>,
    /// Lock around each pop, 1 while locked. Used only if `leaks_oldest`, because then both ends pop.
    pop_lock: CacheAligned<AtomicU32>,
    leaks_oldest: bool,
    /// Ends of the ring that were closed or dropped, as bits: [`PRODUCER_GONE`] and [`CONSUMER_GONE`].
    pub(crate) closed: AtomicU32,
    /// Futex word: 1 while the consumer sleeps on it or is about to.
    pub(crate) consumer_sleeps: CacheAligned<AtomicU32>,
    /// Futex word: 1 while the producer sleeps on it or is about to.
    pub(crate) producer_sleeps: CacheAligned<AtomicU32>,
}

const PRODUCER_GONE: u32 = 1;
const CONSUMER_GONE: u32 = 2;

// SAFETY: values move through the ring from one thread to another, each read
// by exactly one side (see `Producer` and `Consumer`), so T: Send suffices.
unsafe impl<T: Send> Sync for RingState<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for RingState<T> {}

impl<T> Drop for RingState<T> {
    fn drop(&mut self) {
        let tail = self.tail.0.load(Ordering::Relaxed);
        let mut head = self.head.0.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: cells head..tail hold values and neither end is left.
            self.cells[head & self.mask].with_mut(|cell| unsafe { (*cell).assume_init_drop() });
            head = head.wrapping_add(1);
        }
    }
}

/// Makes an empty ring with room for `depth` values (0 counts as 1). With `leaks_oldest`, the producer
/// may call [`Producer::drop_oldest`].
pub fn ring<T: Send>(depth: usize, leaks_oldest: bool) -> (Producer<T>, Consumer<T>) {
    let depth = depth.max(1);
    let size = depth.next_power_of_two();
    let ring = Arc::new(RingState {
        cells: (0..size).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        mask: size - 1,
        depth,
        head: CacheAligned(AtomicUsize::new(0)),
        tail: CacheAligned(AtomicUsize::new(0)),
        pop_lock: CacheAligned(AtomicU32::new(0)),
        leaks_oldest,
        closed: AtomicU32::new(0),
        consumer_sleeps: CacheAligned(AtomicU32::new(0)),
        producer_sleeps: CacheAligned(AtomicU32::new(0)),
    });
    (Producer { ring: ring.clone(), tail: 0, seen_head: 0 }, Consumer { ring, head: 0, seen_tail: 0 })
}

/// Writing end of a ring. When this end is dropped, the consumer can still take the values in the ring.
pub struct Producer<T> {
    pub(crate) ring: Arc<RingState<T>>,
    /// Next position to write: private copy of `ring.tail`.
    tail: usize,
    /// Consumer's position `ring.head` as last read; never above the present one.
    seen_head: usize,
}

impl<T: Send> Producer<T> {
    /// Adds `value`. Never waits.
    ///
    /// # Errors
    /// The consumer is gone ([`Reason::Closed`]), or else the ring is full ([`Reason::Full`]). The error
    /// contains `value`.
    #[inline(always)]
    pub fn push(&mut self, value: T) -> Result<(), SendError<T>> {
        if self.tail.wrapping_sub(self.seen_head) >= self.ring.depth {
            // Acquire: pairs with the consumer's Release of head, so that it
            // has moved the value out before the cell is written again.
            self.seen_head = self.ring.head.0.load(Ordering::Acquire);
        }
        if self.consumer_gone() {
            return Err(SendError { value, reason: Reason::Closed });
        }
        if self.tail.wrapping_sub(self.seen_head) >= self.ring.depth {
            return Err(SendError { value, reason: Reason::Full });
        }
        debug_assert!(self.tail.wrapping_sub(self.seen_head) < self.ring.depth);
        self.ring.fetch_ahead::<WRITE>(self.tail);
        self.ring.cells[self.tail & self.ring.mask].with_mut(|cell| {
            // SAFETY: the cell lies outside head..tail, so the consumer does
            // not touch it until tail moves past it below.
            unsafe { (*cell).write(value) };
        });
        self.tail = self.tail.wrapping_add(1);
        // Release: pairs with the consumer's Acquire of tail.
        self.ring.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Removes and returns the value that is oldest now. Returns `None` if no value is in the ring (any
    /// more), because the consumer may take values at any time.
    ///
    /// # Panics
    /// The ring was not made with `leaks_oldest`.
    pub fn drop_oldest(&mut self) -> Option<T> {
        assert!(self.ring.leaks_oldest, "only rings that leak drop their oldest");
        self.ring.locked_pop()
    }

    /// Returns the number of values in the ring. The consumer may take some meanwhile, so the real
    /// number may be smaller.
    pub fn len(&self) -> usize {
        // Acquire: as in `push`.
        self.tail.wrapping_sub(self.ring.head.0.load(Ordering::Acquire))
    }

    /// Returns true if no value is in the ring.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the consumer was closed or dropped.
    pub fn consumer_gone(&self) -> bool {
        self.ring.closed.load(Ordering::Relaxed) & CONSUMER_GONE != 0
    }
}

impl<T> Producer<T> {
    /// Announces that no more values follow: [`Consumer::producer_gone`] returns true from then on. Later
    /// pushes are not rejected, so the caller must not push.
    pub fn close(&self) {
        // Release: a consumer that sees the bit also sees all values pushed before.
        self.ring.closed.fetch_or(PRODUCER_GONE, Ordering::Release);
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Reading end of a ring. When this end is dropped, later pushes fail. Values that are left in the ring are
/// dropped when both ends are dropped.
pub struct Consumer<T> {
    pub(crate) ring: Arc<RingState<T>>,
    /// Next position to read: private copy of `ring.head`. Stays 0 in rings that drop the oldest value.
    head: usize,
    /// Producer's position `ring.tail` as last read; never above the present one. Stays 0 in rings that
    /// drop the oldest value.
    seen_tail: usize,
}

impl<T: Send> Consumer<T> {
    /// Takes the oldest value; `None` if the ring is empty.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<T> {
        if self.ring.leaks_oldest {
            return self.ring.locked_pop();
        }
        if self.head == self.seen_tail {
            // Acquire: pairs with the producer's Release of tail, so that the
            // value is there.
            self.seen_tail = self.ring.tail.0.load(Ordering::Acquire);
            if self.head == self.seen_tail {
                return None;
            }
        }
        debug_assert!(self.seen_tail.wrapping_sub(self.head) <= self.ring.depth);
        if self.known() > AHEAD {
            self.ring.fetch_ahead::<READ>(self.head);
        }
        let value = self.ring.cells[self.head & self.ring.mask].with_mut(|cell| {
            // SAFETY: head..tail holds values, and the producer writes this
            // cell again only after head has moved past it.
            unsafe { (*cell).assume_init_read() }
        });
        self.head = self.head.wrapping_add(1);
        // Release: pairs with the producer's Acquire of head.
        self.ring.head.0.store(self.head, Ordering::Release);
        Some(value)
    }

    /// Returns the number of values that this end knows of without reading the producer's position
    /// again; always 0 in rings that drop the oldest value.
    #[inline]
    pub(crate) fn known(&self) -> usize {
        self.seen_tail.wrapping_sub(self.head)
    }

    /// Returns true if the ring is empty now. The producer may add a value at any time.
    pub fn is_empty(&self) -> bool {
        // Acquire: as in `pop`.
        self.ring.tail.0.load(Ordering::Acquire) == self.ring.head.0.load(Ordering::Acquire)
    }

    /// Returns true if the producer was closed or dropped. The caller then has to check for values once more,
    /// because the producer may have pushed some before.
    pub fn producer_gone(&self) -> bool {
        // Acquire: pairs with the Release in `Producer::close`.
        self.ring.closed.load(Ordering::Acquire) & PRODUCER_GONE != 0
    }
}

impl<T> Consumer<T> {
    /// Announces that this end takes no more values: later pushes fail.
    pub fn close(&self) {
        self.ring.closed.fetch_or(CONSUMER_GONE, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Distance from the position being read or written to the cell that is prefetched, in cells.
const AHEAD: usize = 8;
/// Parameter of [`RingState::fetch_ahead`]: prefetches a cell that will be read.
const READ: bool = false;
/// Parameter of [`RingState::fetch_ahead`]: prefetches a cell that will be written.
const WRITE: bool = true;

impl<T> RingState<T> {
    /// Prefetches the cell [`AHEAD`] cells after `position`. The other side used that cell last, so its
    /// cache lines have to move; the prefetch overlaps this with other work. Does nothing on processors
    /// other than x86-64, under loom and under Miri.
    #[inline(always)]
    fn fetch_ahead<const FOR_WRITING: bool>(&self, position: usize) {
        #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
            let cell = (&raw const self.cells[position.wrapping_add(AHEAD) & self.mask]).cast::<i8>();
            let last = cell.wrapping_add(size_of::<T>().saturating_sub(1));
            // SAFETY: a hint; it cannot fault, whatever the address.
            unsafe {
                if FOR_WRITING {
                    _mm_prefetch::<_MM_HINT_ET0>(cell);
                    _mm_prefetch::<_MM_HINT_ET0>(last);
                } else {
                    _mm_prefetch::<_MM_HINT_T0>(cell);
                    _mm_prefetch::<_MM_HINT_T0>(last);
                }
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
        let _ = position;
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Pops the oldest value under `pop_lock`, in rings where both sides may pop. Returns `None` if the
    /// ring is empty.
    fn locked_pop(&self) -> Option<T> {
        // Acquire/Release: the lock orders one side's pop before the other's.
        while self.pop_lock.0.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            #[cfg(loom)]
            loom::thread::yield_now();
            std::hint::spin_loop();
        }
        let head = self.head.0.load(Ordering::Relaxed);
        // Acquire: pairs with the producer's Release of tail. Read under the lock, because a tail
        // read earlier may be before the head by now.
        let tail = self.tail.0.load(Ordering::Acquire);
        debug_assert!(tail.wrapping_sub(head) <= self.depth);
        let value = (head != tail).then(|| {
            // SAFETY: under the lock head..tail holds values that no other thread reads, and the
            // producer's own pushes stay outside it.
            let value = self.cells[head & self.mask].with_mut(|cell| unsafe { (*cell).assume_init_read() });
            // Release: pairs with the Acquire of head in `push`.
            self.head.0.store(head.wrapping_add(1), Ordering::Release);
            value
        });
        self.pop_lock.0.store(0, Ordering::Release);
        value
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_ring_gives_the_value_back() {
        let (mut tx, mut rx) = ring(3, false);
        for n in 0..3 {
            tx.push(n).unwrap();
        }
        assert_eq!(tx.push(9), Err(SendError { value: 9, reason: Reason::Full }));
        assert_eq!(rx.pop(), Some(0));
        tx.push(3).unwrap();
        assert_eq!(std::iter::from_fn(|| rx.pop()).collect::<Vec<_>>(), [1, 2, 3]);
        drop(rx);
        assert_eq!(tx.push(4).unwrap_err().reason, Reason::Closed);
    }

    #[test]
    fn values_left_inside_are_dropped_once() {
        let value = std::sync::Arc::new(());
        let (mut tx, rx) = ring(4, false);
        for _ in 0..3 {
            tx.push(value.clone()).unwrap();
        }
        drop((tx, rx));
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    }

    #[test]
    #[should_panic = "only rings that leak"]
    fn a_ring_that_does_not_leak_refuses_to_drop() {
        let (mut tx, _rx) = ring(1, false);
        tx.push(0).unwrap();
        tx.drop_oldest();
    }

    proptest! {
        /// Any order of pushes and pops behaves as a bounded queue does.
        #[test]
        #[cfg_attr(miri, ignore = "too slow, and it wants a directory")]
        fn behaves_like_a_bounded_queue(depth in 1usize..9, leaks: bool, steps: Vec<bool>) {
            let (mut tx, mut rx) = ring(depth, leaks);
            let mut model = std::collections::VecDeque::new();
            for (n, push) in steps.into_iter().enumerate() {
                if push {
                    let mut sent = tx.push(n);
                    if sent.is_err() && leaks {
                        prop_assert_eq!(tx.drop_oldest(), model.pop_front());
                        sent = tx.push(n);
                    }
                    prop_assert_eq!(sent.is_ok(), model.len() < depth);
                    if sent.is_ok() {
                        model.push_back(n);
                    }
                } else {
                    prop_assert_eq!(rx.pop(), model.pop_front());
                }
                prop_assert_eq!(tx.len(), model.len());
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;

    #[test]
    fn values_arrive_once_and_in_order() {
        loom::model(|| {
            let (mut tx, mut rx) = ring(1, false);
            let sender = loom::thread::spawn(move || {
                let mut sent = 0;
                for n in 0..2u32 {
                    sent += u32::from(tx.push(n).is_ok());
                }
                sent
            });
            let mut got = Vec::new();
            for _ in 0..2 {
                got.extend(rx.pop());
                loom::thread::yield_now();
            }
            let sent = sender.join().unwrap();
            got.extend(std::iter::from_fn(|| rx.pop()));
            assert_eq!(got.len() as u32, sent);
            assert!(got.windows(2).all(|w| w[0] < w[1]));
        });
    }

    #[test]
    fn the_oldest_is_taken_by_one_side_only() {
        loom::model(|| {
            let (mut tx, mut rx) = ring(2, true);
            tx.push(0u32).unwrap();
            tx.push(1).unwrap();
            let dropper = loom::thread::spawn(move || tx.drop_oldest());
            let popped = rx.pop();
            let dropped = dropper.join().unwrap();
            assert_ne!(popped, dropped);
        });
    }

    /// In a ring with one cell, `drop_oldest` empties the ring. A consumer that read the positions
    /// before must not consider the cell full.
    #[test]
    fn a_ring_of_one_drops_and_refills_under_the_consumer() {
        loom::model(|| {
            let (mut tx, mut rx) = ring(1, true);
            let sender = loom::thread::spawn(move || {
                tx.push(0u32).unwrap();
                let dropped = tx.drop_oldest();
                tx.push(1).unwrap();
                dropped
            });
            let mut got = Vec::from_iter(rx.pop());
            got.extend(sender.join().unwrap());
            got.extend(rx.pop());
            got.sort_unstable();
            assert_eq!(got, [0, 1]);
        });
    }
}
