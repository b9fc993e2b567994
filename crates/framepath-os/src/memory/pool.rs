// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames and the pools they live in: equal slots of one sealed memfd, mapped
//! once and handed out again and again.
//!
//! A slot is owned by three kinds of handle: one [`FrameMut`] (writable), any
//! number of [`Frame`]s (readers downstream), any number of [`Hold`]s (a
//! decoder that keeps the picture as a reference). It goes back to the pool
//! when the last of them is dropped, on whatever thread that happens, and the
//! pool's memory goes when the pool and its last slot are gone.

#[cfg(not(any(loom, miri)))]
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Mutex;

use framepath_model::format::Layout;
#[cfg(not(any(loom, all(miri, not(test)))))]
use framepath_model::stream::FrameMeta;

use crate::measure::meter;
use crate::memory::mapping::Mapping;
use crate::memory::return_stack::{ReturnStack, Returned};
use crate::sync::adaptive_poll::AdaptivePoll;
use crate::sync::atomics::{AtomicU32, Ordering};
#[cfg(not(any(loom, miri)))]
pub use foreign::ForeignError;
pub use foreign::{ForeignPool, Returns};
use frame::FrameTarget;
pub use frame::{Frame, FrameMut, Hold};
#[cfg(not(any(loom, miri)))]
pub use frame::{GrantedPool, PoolMemory};
use give_back::SlotNumbers;
pub use give_back::{Exported, GIVE_BACK_SLOTS, GiveBack, GiveBackWords};
#[cfg(not(any(loom, miri)))]
pub use give_back::{GrantedMemory, MemorySource};
pub use owner_wait::Closer;
use owner_wait::OwnerWait;
pub use plane::Plane;

mod foreign;
mod frame;
mod give_back;
mod owner_wait;
mod plane;

const PAGE: usize = 4096;
/// Largest slot size at which unused slots are handed out before the pool looks for
/// returned ones.
const SMALL_SLOT: usize = PAGE;
/// One reader downstream, in [`Slot::refs`].
const FRAME: u32 = 1;
/// One decoder's reference, in [`Slot::refs`].
const HOLD: u32 = 1 << 16;
/// The part of [`Slot::refs`] that counts readers.
const FRAMES: u32 = HOLD - 1;

/// Error of making a pool or of taking a slot.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// Zero slots, zero bytes, or more than the address space holds.
    #[error("a pool of {slots} slots of {slot_bytes} bytes is not possible")]
    Size {
        /// Bytes asked for per slot.
        slot_bytes: usize,
        /// Slots asked for.
        slots: u32,
    },
    /// A system call failed.
    #[error("{call} for a pool of {bytes} bytes: {errno}")]
    Os {
        /// The system call.
        call: &'static str,
        /// Bytes of the whole pool.
        bytes: usize,
        /// The kernel's error.
        errno: rustix::io::Errno,
    },
    /// All slots are kept by the decoder itself: waiting would never end.
    #[error("the pool's {slots} slots are all held as references by the decoder, none by a later stage")]
    Starved {
        /// Slots the pool has.
        slots: u32,
    },
    /// A [`Closer`] ended the wait.
    #[error("the pool was closed while its slots were out")]
    Closed,
    /// The process that grants memory refused it.
    #[error("no memory for a pool of {bytes} bytes: {reason}")]
    NotGranted {
        /// Bytes of the whole pool.
        bytes: usize,
        /// That process's reason.
        reason: String,
    },
    /// The frames of other pools use too many of the numbers for slots that another
    /// process gives back.
    #[error("no numbers left for {slots} more slots that another process gives back")]
    NoNumbers {
        /// Slots asked for.
        slots: u32,
    },
    /// The pool's memory is lent: others may write it at any time, so it cannot be written as a slice.
    #[error("the pool's memory is lent and can be written by its owner; use acquire_hold")]
    Lent,
}

#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    /// Readers in the low half, holds in the high half.
    ///
    /// A free slot has [`FRAME`] here: it goes out to one reader most often,
    /// and then neither taking nor returning it writes this word, so that its
    /// cache line does not travel between producer and consumer.
    refs: AtomicU32,
}

#[derive(Debug)]
struct Inner {
    /// See [`Frame::pool_id`].
    id: u64,
    memory: Mapping,
    slot_bytes: usize,
    slots: Box<[Slot]>,
    /// Places that the frames of [`Pool::acquire`] point at, one for each slot.
    places: Box<[FrameTarget]>,
    returned: ReturnStack,
    /// 1 while the owner sleeps for a slot. Lies outside of `Inner`, because the word is
    /// read after a slot is given back, when `Inner` may be gone.
    owner_waits: OwnerWait,
    closer: Closer,
    /// The memory belongs to other processes, which may write it at any time.
    lent: bool,
    /// Numbers under which another process gives frames back, if one may read them.
    range: Option<SlotNumbers>,
    /// Every layout ever given to a frame of this pool. Boxed, so that frames
    /// can point at them; kept until the pool goes.
    #[expect(clippy::vec_box, reason = "frames point at the boxed layouts while the vector grows")]
    layouts: Mutex<Vec<Box<Layout>>>,
}

impl Inner {
    /// Returns the address of the first byte of slot `index`.
    fn slot_ptr(&self, index: u32) -> NonNull<u8> {
        debug_assert!((index as usize) < self.slots.len());
        // SAFETY: index < slots and the mapping has slots * slot_bytes bytes.
        unsafe { self.memory.base().add(index as usize * self.slot_bytes) }
    }

    /// Returns the number of slot 0 for another process.
    #[cfg(not(any(loom, miri)))]
    fn first_slot(&self) -> u32 {
        self.range.as_ref().map_or(0, |range| range.first)
    }

    fn intern(&self, layout: &Layout) -> NonNull<Layout> {
        let mut layouts = self.layouts.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(known) = layouts.iter().rev().find(|l| ***l == *layout) {
            return NonNull::from(&**known);
        }
        layouts.push(Box::new(*layout));
        NonNull::from(&**layouts.last().expect("just pushed"))
    }

    /// Drops `unit` references of slot `index`.
    ///
    /// # Safety
    /// `this` is live, the caller owns `unit` of the slot's count, and uses
    /// neither again.
    #[inline]
    unsafe fn release(this: NonNull<Inner>, index: u32, unit: u32) {
        // SAFETY: the caller's reference keeps Inner alive until it is counted
        // out below.
        let inner = unsafe { this.as_ref() };
        let refs = &inner.slots[index as usize].refs;
        let owner_waits = inner.owner_waits;
        // Acquire: pairs with the Release half of other holders' fetch_sub, so that
        // their last reads happen before the slot is written again. If the count is
        // exactly ours, no other thread can raise it, and the atomic read-modify-write
        // can be saved.
        if refs.load(Ordering::Acquire) != unit {
            let before = refs.fetch_sub(unit, Ordering::AcqRel);
            if before != unit {
                // The decoder still holds the slot, or held it until now: `inner` may be
                // gone. An owner that waits must learn that one reader less is out (see
                // `Pool::wait`).
                if before & FRAMES == FRAME && unit == FRAME {
                    owner_waits.wake();
                }
                return;
            }
        }
        if unit != FRAME || refs.load(Ordering::Relaxed) != FRAME {
            refs.store(FRAME, Ordering::Relaxed);
        }
        // SAFETY: the caller's reference keeps Inner alive until the push; the result
        // tells what is left of it afterwards.
        match unsafe { ReturnStack::push(NonNull::from(&inner.returned), index) } {
            // The owner may have used the slot and closed the pool since the
            // push, so that `inner` is gone.
            Returned::ToOwner => owner_waits.wake(),
            Returned::Closed => {}
            Returned::LastOfClosed => {
                // SAFETY: the pool handle is gone and every slot is accounted
                // for, so this is the last pointer to Inner; it came from
                // Box::leak in `Pool::new`.
                drop(unsafe { Box::from_raw(this.as_ptr()) });
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.owner_waits.recycle();
    }
}

/// Returns a number that no other pool of this process has.
fn next_id() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    // Relaxed: only that numbers differ matters.
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// A pool of equal slots, and the only handle that takes slots out of it.
#[derive(Debug)]
pub struct Pool {
    inner: NonNull<Inner>,
    opaque: NonNull<Layout>,
    /// Free slots known to the owner; the last one was used latest and is the
    /// warmest in the caches.
    free: Vec<u32>,
    /// Slots from here on have never been used.
    fresh: u32,
    patience: AdaptivePoll,
}

// SAFETY: Inner is shared through atomics and a mutex; `free` belongs to the
// handle. Nothing is tied to a thread.
unsafe impl Send for Pool {}

impl Pool {
    /// Makes a pool of `slots` slots of at least `slot_bytes` bytes each,
    /// rounded up to pages. Memory is taken when a slot is first written.
    pub fn new(slot_bytes: usize, slots: u32) -> Result<Pool, PoolError> {
        Pool::make(slot_bytes, slots, None)
    }

    /// [`Pool::new_shared`] where there is a way back from another process,
    /// [`Pool::new`] where there is none: for stages that may run in a worker.
    ///
    /// # Errors
    /// As those.
    pub fn for_stage(
        slot_bytes: usize,
        slots: u32,
        give_back: Option<&'static GiveBack>,
    ) -> Result<Pool, PoolError> {
        match give_back {
            Some(give_back) => Pool::new_shared(slot_bytes, slots, give_back),
            None => Pool::new(slot_bytes, slots),
        }
    }

    /// Makes a pool whose frames another process may read: see [`Frame::export`] and
    /// [`Frame::read_only_memory`]. The memory is sealed so that no process can map it
    /// writable any more. The process on the other side of `give_back` can keep the owner
    /// waiting, or cause a write to a slot that it still reads, but nothing worse.
    ///
    /// # Errors
    /// As [`Pool::new`], where the kernel knows no such seal (before 5.1), and
    /// where `give_back` has no numbers left for so many slots.
    pub fn new_shared(
        slot_bytes: usize,
        slots: u32,
        give_back: &'static GiveBack,
    ) -> Result<Pool, PoolError> {
        Pool::make(slot_bytes, slots, Some(give_back))
    }

    /// Makes a pool whose `slots` slots are buffers of another process: dmabufs, or
    /// memfds, of at least `slot_bytes` bytes each, rounded up to pages. `buffer` returns
    /// each buffer by its index; the descriptor is closed when the buffer is mapped. All
    /// slots are out at first: a slot can be taken once the process on the other side of
    /// `give_back`, from which the buffers come, has given it.
    ///
    /// Every process that has a buffer may write it at any time: the slots are for
    /// decoders ([`Pool::acquire_hold`]), and [`Pool::acquire`] is refused.
    ///
    /// # Errors
    /// As [`Pool::new_shared`], and where a buffer is too small or cannot be
    /// mapped.
    #[cfg(not(any(loom, miri)))]
    pub fn from_buffers(
        slots: u32,
        slot_bytes: usize,
        give_back: &'static GiveBack,
        mut buffer: impl FnMut(u32) -> Result<OwnedFd, String>,
    ) -> Result<Pool, PoolError> {
        Pool::lent_of(slot_bytes, slots, give_back, |each, bytes| {
            Mapping::map_buffers(slots, each, |index| {
                buffer(index).map_err(|reason| PoolError::NotGranted { bytes, reason })
            })
        })
    }

    /// Makes a pool of lent memory, all of whose slots are out.
    #[cfg(not(any(loom, all(miri, not(test)))))]
    fn lent_of(
        slot_bytes: usize,
        slots: u32,
        give_back: &'static GiveBack,
        map: impl FnOnce(usize, usize) -> Result<Mapping, PoolError>,
    ) -> Result<Pool, PoolError> {
        let mut pool = Pool::make_of(slot_bytes, slots, Some(give_back), true, map)?;
        for _ in 0..slots {
            let slot = pool.take_slot()?;
            // `export` cannot fail: the pool has a range of numbers.
            let _ = pool.unwritten(slot).freeze(FrameMeta::default()).export();
        }
        Ok(pool)
    }

    fn make(slot_bytes: usize, slots: u32, give_back: Option<&'static GiveBack>) -> Result<Pool, PoolError> {
        #[cfg(not(any(loom, miri)))]
        if let Some(memory) = give_back.and_then(GiveBack::memory) {
            return Pool::make_of(slot_bytes, slots, give_back, false, |_, bytes| {
                let granted =
                    memory(bytes as u64).map_err(|reason| PoolError::NotGranted { bytes, reason })?;
                Mapping::map_granted(granted.fd, granted.number, bytes)
                    .map_err(|(call, errno)| PoolError::Os { call, bytes, errno })
            });
        }
        Pool::make_of(slot_bytes, slots, give_back, false, |_, bytes| {
            Mapping::new(bytes, give_back.is_some()).map_err(|(call, errno)| PoolError::Os {
                call,
                bytes,
                errno,
            })
        })
    }

    /// `map` makes the memory from the bytes of a slot and of all slots; with
    /// `lent` other processes may write it.
    fn make_of(
        slot_bytes: usize,
        slots: u32,
        give_back: Option<&'static GiveBack>,
        lent: bool,
        map: impl FnOnce(usize, usize) -> Result<Mapping, PoolError>,
    ) -> Result<Pool, PoolError> {
        let size_error = PoolError::Size { slot_bytes, slots };
        let padded = slot_bytes.checked_next_multiple_of(PAGE).filter(|n| *n > 0);
        let map_bytes = padded.and_then(|n| n.checked_mul(slots as usize));
        let (Some(padded), Some(map_bytes)) = (padded, map_bytes) else { return Err(size_error) };
        if slots == 0 || slots >= HOLD || map_bytes > isize::MAX as usize {
            return Err(size_error);
        }
        let range = match give_back {
            None => None,
            Some(give_back) => {
                // Frames of older pools may be waiting to be taken back.
                give_back.collect();
                Some(give_back.take_range(slots).ok_or(PoolError::NoNumbers { slots })?)
            }
        };
        let memory = map(padded, map_bytes)?;
        log::debug!("pool of {slots} slots of {padded} bytes{}", if lent { ", lent" } else { "" });
        let owner_waits = give_back.map_or_else(OwnerWait::allocate, GiveBack::waits);
        let inner = Inner {
            id: next_id(),
            memory,
            slot_bytes: padded,
            slots: (0..slots).map(|_| Slot { refs: AtomicU32::new(FRAME) }).collect(),
            places: Box::default(),
            returned: ReturnStack::new(slots),
            owner_waits,
            closer: Closer::new(owner_waits),
            lent,
            range,
            layouts: Mutex::new(Vec::new()),
        };
        let opaque = inner.intern(&Layout::opaque(slot_bytes));
        let mut inner = NonNull::from(Box::leak(Box::new(inner)));
        // SAFETY: just leaked, and no other code has the pointer yet.
        let known = unsafe { inner.as_ref() };
        let places =
            (0..slots).map(|slot| FrameTarget::new(inner, slot, known.slot_ptr(slot), opaque)).collect();
        // SAFETY: as above.
        unsafe { inner.as_mut() }.places = places;
        Ok(Pool {
            inner,
            opaque,
            free: Vec::with_capacity(slots as usize),
            fresh: 0,
            patience: AdaptivePoll::default(),
        })
    }

    fn inner(&self) -> &Inner {
        // SAFETY: Inner lives at least until this handle closes it in `drop`.
        unsafe { self.inner.as_ref() }
    }

    /// See [`Frame::pool_id`].
    pub fn id(&self) -> u64 {
        self.inner().id
    }

    /// Returns the number of the pool's first slot in an [`Exported`]; 0 where the pool
    /// is not shared.
    #[cfg(not(any(loom, miri)))]
    pub fn first_slot(&self) -> u32 {
        self.inner().first_slot()
    }

    /// Returns the number of slots of this pool.
    pub fn slots(&self) -> u32 {
        self.inner().slots.len() as u32
    }

    /// Returns the number of bytes of a slot.
    pub fn slot_bytes(&self) -> usize {
        self.inner().slot_bytes
    }

    /// Returns a handle that ends this pool's waits, from any thread.
    pub fn closer(&self) -> Closer {
        self.inner().closer.clone()
    }

    /// Returns the sealed memfd behind the pool; `None` for one of lent memory.
    ///
    /// # Safety
    /// No code writes through it, or through a mapping made of it, to a slot of
    /// which a [`Frame`] exists: `Frame::plane` promises pixels that stay.
    #[cfg(not(any(loom, miri)))]
    pub unsafe fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.inner().memory.fd()
    }

    /// Takes a slot to write a frame into. An empty pool is back-pressure: the
    /// call sleeps, stamped as blocked, until a frame comes back.
    ///
    /// # Errors
    /// [`PoolError::Starved`] where no reader holds a frame, so that waiting
    /// could not end, [`PoolError::Closed`] where it was ended, and
    /// [`PoolError::Lent`] in a pool of lent memory.
    #[inline]
    pub fn acquire(&mut self) -> Result<FrameMut, PoolError> {
        if self.inner().lent {
            return Err(PoolError::Lent);
        }
        let slot = self.take_slot()?;
        Ok(self.unwritten(slot))
    }

    /// Makes the only handle to a slot just taken. In a pool of lent memory the handle
    /// must not leave this module: its owner could ask for the bytes as a slice.
    fn unwritten(&self, slot: u32) -> FrameMut {
        debug_assert_eq!(self.inner().slots[slot as usize].refs.load(Ordering::Relaxed), FRAME);
        FrameMut::new(NonNull::from(&self.inner().places[slot as usize]), self.opaque)
    }

    /// Takes a slot for a decoder to write into and keep as a reference.
    /// Waits and fails as [`Pool::acquire`] does.
    pub fn acquire_hold(&mut self) -> Result<Hold, PoolError> {
        let slot = self.take_slot()?;
        self.inner().slots[slot as usize].refs.store(HOLD, Ordering::Relaxed);
        Ok(Hold::new(self.inner, slot))
    }

    #[inline]
    fn take_slot(&mut self) -> Result<u32, PoolError> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        // A slot that was never touched costs page faults and cold caches; a returned
        // one costs an atomic swap. For a picture the first costs far more, for a few
        // bytes the second.
        let fresh_first = self.inner().slot_bytes <= SMALL_SLOT;
        if fresh_first && self.fresh < self.slots() {
            return Ok(self.take_fresh());
        }
        self.refill();
        match self.free.pop() {
            Some(slot) => Ok(slot),
            None if self.fresh < self.slots() => Ok(self.take_fresh()),
            None => meter::blocked(|| self.wait()),
        }
    }

    fn take_fresh(&mut self) -> u32 {
        self.fresh += 1;
        self.fresh - 1
    }

    fn refill(&mut self) {
        // SAFETY: as in `inner`; spelled out because `free` is borrowed too.
        let inner = unsafe { self.inner.as_ref() };
        if let Some(range) = &inner.range {
            range.give_back.collect();
        }
        inner.returned.take(&mut self.free);
    }

    #[cold]
    fn wait(&mut self) -> Result<u32, PoolError> {
        let waits = self.inner().owner_waits;
        loop {
            // Before the flag is raised, so that frames given back by another process do
            // not make this thread wake itself.
            self.refill();
            if let Some(slot) = self.free.pop() {
                return Ok(slot);
            }
            if self.comes_soon() {
                continue;
            }
            // Raised before the looks at the counts, the stack and the words
            // of another process. These looks are read-modify-writes, as is
            // every return: of a look and a return, the later sees the
            // earlier, so that a return which comes too late for the look
            // finds the flag raised.
            waits.announce_sleep();
            let end = self.look();
            if end.is_some() {
                waits.cancel_sleep();
            }
            match end {
                Some(Ok(Some(slot))) => return Ok(slot),
                Some(Ok(None)) => {}
                Some(Err(error)) => return Err(error),
                None => self.patience.sleep(|| waits.sleep()),
            }
        }
    }

    /// Polls for frames of another process, where that pays: they come back by words, and
    /// a reader that finds no sleeper makes no system call.
    fn comes_soon(&self) -> bool {
        let range = self.inner().range.as_ref();
        range.is_some_and(|range| self.patience.spin(|| range.give_back.has_returns()))
    }

    /// Takes the owner's last look before it sleeps. Returns a slot, a reason to collect
    /// first, or an error; `None` where the owner may sleep.
    fn look(&mut self) -> Option<Result<Option<u32>, PoolError>> {
        // A slot that only decoders hold does not come back by waiting. A slot without a
        // reference, or with that of a free slot, is on its way to the stack or in it
        // already.
        // AcqRel: pairs with the fetch_sub in `Inner::release`.
        let coming = self.inner().slots.iter().any(|s| {
            let refs = s.refs.fetch_add(0, Ordering::AcqRel);
            refs < HOLD || refs & FRAMES != 0
        });
        // SAFETY: as in `inner`; spelled out because `free` is borrowed too.
        let inner = unsafe { self.inner.as_ref() };
        inner.returned.take(&mut self.free);
        if let Some(slot) = self.free.pop() {
            return Some(Ok(Some(slot)));
        }
        if inner.closer.is_closed() {
            return Some(Err(PoolError::Closed));
        }
        if inner.range.as_ref().is_some_and(|range| range.give_back.has_returns()) {
            return Some(Ok(None));
        }
        (!coming).then_some(Err(PoolError::Starved { slots: self.slots() }))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let never_used = self.slots() - self.fresh;
        let free = self.free.len() + never_used as usize;
        // SAFETY: Inner lives until the owner is accounted for here.
        if unsafe { ReturnStack::close(NonNull::from(&self.inner().returned), free) }
            == Returned::LastOfClosed
        {
            // SAFETY: every slot is accounted for and this handle is going, so
            // no other pointer to Inner exists; it came from Box::leak.
            drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests;
