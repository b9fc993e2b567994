// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pools of frame memory: equal slots of memory that is mapped once and reused. The memory is usually one
//! sealed memfd of this process. A process that may not create files has anonymous memory, or memory from
//! another process, instead. ([`ForeignPool`] is for reading the frames of another process's pool or of a
//! device.)
//!
//! Three kinds of handle own a slot in use: [`FrameMut`] (for writing; then it is the only handle of the
//! slot), [`Frame`] (a reader downstream; up to 65,535 for one slot), and [`Hold`] (a decoder that keeps the
//! picture as a reference; at most one for a slot, beside any frames). The slot returns to the pool when
//! its last handle is dropped, on any thread. The pool's memory is freed when the pool is dropped and its
//! last slot has returned.

// over 600 lines because the safety of a slot's three handles is explained where it is enforced.

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
#[cfg(not(any(loom, miri)))]
use crate::process::signal;
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
/// Largest slot size, bytes, at which the owner takes a slot that it has, or one that was never used, before it collects returned
/// slots. With larger slots, the owner first collects returned slots.
const SMALL_SLOT: usize = PAGE;
/// Amount by which one [`Frame`], or the only [`FrameMut`], raises [`Slot::refs`].
const FRAME: u32 = 1;
/// Amount by which one decoder's reference ([`Hold`]) raises [`Slot::refs`].
const HOLD: u32 = 1 << 16;
/// Bits of [`Slot::refs`] that count the readers.
const FRAMES: u32 = HOLD - 1;

/// Error of making a pool or taking a slot.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// Zero slots, 65,536 slots or more, zero bytes, or more than the address space can hold.
    #[error(
        "pool: cannot make {slots} slots of {slot_bytes} bytes; expected 1 to 65535 slots of at least 1 byte \
         that fit the address space"
    )]
    Size {
        /// Requested bytes per slot.
        slot_bytes: usize,
        /// Requested number of slots.
        slots: u32,
    },
    /// A system call failed, or memory from another process is too small or of the wrong kind (`errno` is
    /// then `OVERFLOW` or `INVAL`).
    #[error("pool: memory of {bytes} bytes refused by {call}: {errno}")]
    Os {
        /// Name of the system call.
        call: &'static str,
        /// Size of the whole pool, bytes.
        bytes: usize,
        /// The kernel's error; or `OVERFLOW` or `INVAL` for memory from another process, as the variant says.
        errno: rustix::io::Errno,
    },
    /// No slot is free, and only the decoder's own references ([`Hold`]) hold the slots: waiting would never
    /// end.
    #[error(
        "pool: the decoder holds all {slots} slots as references, later stages hold none; use a larger pool"
    )]
    Starved {
        /// Number of slots in the pool.
        slots: u32,
    },
    /// A [`Closer`] closed the pool, and no slot is free.
    #[error("pool: closed while waiting for a slot")]
    Closed,
    /// The function that provides memory or buffers from another process failed, for example because that
    /// process denied the request.
    #[error("pool: no memory for {bytes} bytes: {reason}")]
    NotGranted {
        /// Size of the whole pool, bytes.
        bytes: usize,
        /// Description of the error that the function returned.
        reason: String,
    },
    /// The pool is shared, and its [`GiveBack`] has no free range of so many consecutive slot numbers. Numbers
    /// become free when another pool of the same [`GiveBack`] is freed.
    #[error("pool: export table full: cannot register {slots} more slots")]
    NoNumbers {
        /// Number of slots of the new pool.
        slots: u32,
    },
    /// The pool's memory belongs to another process ([`Pool::from_buffers`]), which may write it at any time.
    /// So [`Pool::acquire`] gives no handle to write it as a slice.
    #[error("pool: the memory belongs to another process, which can write it; use acquire_hold")]
    PeerOwned,
}

#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    /// Number of readers (or 1 for the [`FrameMut`]) in the low half, number of holds in the high half.
    ///
    /// A free slot has [`FRAME`] here, because most slots are taken for one reader. In that case
    /// neither taking nor returning the slot writes this word, so its cache line does not move
    /// between producer and consumer.
    refs: AtomicU32,
}

#[derive(Debug)]
struct Inner {
    /// Number of the pool, unique in this process.
    id: u64,
    memory: Mapping,
    /// Size of one slot, bytes: whole pages.
    slot_bytes: usize,
    slots: Box<[Slot]>,
    /// Targets to which the frames of [`Pool::acquire`] point, one for each slot. (Frames of [`Hold::frame`]
    /// have targets of their own.)
    places: Box<[FrameTarget]>,
    /// Slots that were returned and not yet collected by the owner.
    returned: ReturnStack,
    /// Word that is 1 while the pool's owner sleeps, or is about to sleep, until a slot is returned. Pools of
    /// one [`GiveBack`] share its word. The word is outside `Inner`, because a thread that has returned a slot
    /// uses the word afterwards, when `Inner` may be freed.
    owner_waits: OwnerWait,
    closer: Closer,
    /// True if the slots are buffers of another process ([`Pool::from_buffers`]), which may write the buffers
    /// at any time.
    peer_owned: bool,
    /// Numbers under which another process returns the pool's slots; `None` if the pool is not shared.
    range: Option<SlotNumbers>,
    /// All layouts of this pool's frames. Boxed, because frames point to them; kept until the pool is freed.
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

    /// Returns the number under which another process returns slot 0; 0 if the pool is not shared.
    #[cfg(not(any(loom, miri)))]
    fn first_slot(&self) -> u32 {
        self.range.as_ref().map_or(0, |range| range.first)
    }

    /// Returns the pool's own copy of `layout`, which lives as long as this `Inner`; makes the copy if the pool
    /// has none.
    fn intern(&self, layout: &Layout) -> NonNull<Layout> {
        let mut layouts = self.layouts.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(known) = layouts.iter().rev().find(|l| ***l == *layout) {
            return NonNull::from(&**known);
        }
        layouts.push(Box::new(*layout));
        NonNull::from(&**layouts.last().expect("just pushed"))
    }

    /// Drops one reference to slot `index`: a reader's if `unit` is [`FRAME`], a decoder's if it is
    /// [`HOLD`]. Returns the slot to the pool if this was the last reference, and frees the pool if it
    /// waited only for this slot.
    ///
    /// # Safety
    /// `this` is live. The caller owns the reference, and uses neither `this` nor the slot afterwards.
    #[inline]
    unsafe fn release(this: NonNull<Inner>, index: u32, unit: u32) {
        // SAFETY: the caller's reference keeps Inner alive until the count is lowered below.
        let inner = unsafe { this.as_ref() };
        let refs = &inner.slots[index as usize].refs;
        let owner_waits = inner.owner_waits;
        // Acquire: pairs with the Release half of other holders' fetch_sub, so that their last
        // reads come before the next write to the slot. If the count is exactly ours, no other
        // thread can raise it, and the atomic read-modify-write is not needed.
        if refs.load(Ordering::Acquire) != unit {
            let before = refs.fetch_sub(unit, Ordering::AcqRel);
            if before != unit {
                // The decoder still holds the slot, or held it until now, so `inner` may be freed. A waiting
                // owner has to learn that there is one reader less (see `Pool::wait`).
                if before & FRAMES == FRAME && unit == FRAME {
                    owner_waits.wake();
                }
                return;
            }
        }
        if unit != FRAME || refs.load(Ordering::Relaxed) != FRAME {
            refs.store(FRAME, Ordering::Relaxed);
        }
        // SAFETY: the caller's reference keeps Inner alive until the push; the result reports
        // whether it still lives.
        match unsafe { ReturnStack::push(NonNull::from(&inner.returned), index) } {
            // The owner may have used the slot and closed the pool since the push, so `inner` may be freed.
            Returned::ToOwner => owner_waits.wake(),
            Returned::Closed => {}
            Returned::LastOfClosed => {
                // SAFETY: the pool handle is gone and every slot is accounted for, so this is the
                // last pointer to Inner; it came from Box::leak in `Pool::make_of`.
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
    // Relaxed: the numbers only have to differ.
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Owner's handle of a pool of equal slots, and the only handle that takes slots out of the pool. Dropping
/// it leaves existing frames and holds valid.
#[derive(Debug)]
pub struct Pool {
    inner: NonNull<Inner>,
    opaque: NonNull<Layout>,
    /// Free slots known to the owner. The last one was used most recently, so it is the warmest
    /// in the caches.
    free: Vec<u32>,
    /// First slot that has never been used; later slots are unused too.
    fresh: u32,
    patience: AdaptivePoll,
}

// SAFETY: Inner is shared through atomics and a mutex; `free` belongs to the handle. Nothing
// depends on a thread.
unsafe impl Send for Pool {}

impl Pool {
    /// Makes a pool of `slots` slots of at least `slot_bytes` bytes each, rounded up to pages. The
    /// kernel allocates a page at its first access, or all pages now with `vm.overcommit_memory=2`. In a
    /// process that may not create files, the memory is anonymous, and its pages are never allocated in
    /// advance.
    ///
    /// # Errors
    /// [`PoolError::Size`], or [`PoolError::Os`] if the kernel denies the memory.
    pub fn new(slot_bytes: usize, slots: u32) -> Result<Pool, PoolError> {
        Pool::make(slot_bytes, slots, None)
    }

    /// Makes a pool for a stage that may run in a worker: as [`Pool::new_shared`] if there is a `give_back`,
    /// through which another process can return frames, and as [`Pool::new`] otherwise.
    ///
    /// # Errors
    /// As [`Pool::new_shared`] with a `give_back`, as [`Pool::new`] without.
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
    /// [`Frame::read_only_memory`]. The memory is sealed so that no process can map it writable
    /// afterwards (if another process granted the memory, that process may still have an older writable
    /// mapping). Apart from that, the process at the other end of `give_back` can do no more harm than make the
    /// owner of the pool wait, or return a slot early and so see a later frame overwrite the slot while it
    /// reads.
    ///
    /// # Errors
    /// As [`Pool::new`]. Also if the kernel does not support the seal (before 5.1), if `give_back` has
    /// a full table ([`PoolError::NoNumbers`]) or is denied the memory ([`PoolError::NotGranted`]), if the
    /// granted memory is of the wrong kind, or if this process may not create files and `give_back` has no
    /// source of memory.
    pub fn new_shared(
        slot_bytes: usize,
        slots: u32,
        give_back: &'static GiveBack,
    ) -> Result<Pool, PoolError> {
        Pool::make(slot_bytes, slots, Some(give_back))
    }

    /// Makes a pool whose `slots` slots are buffers of another process: dmabufs or memfds of at
    /// least `slot_bytes` bytes each, rounded up to pages. `buffer` returns the buffer with an index, from
    /// 0; the buffer's descriptor is closed after mapping. All slots are in use at first. A slot can
    /// be taken after the owner of the buffers, at the other end of `give_back`, has returned it.
    ///
    /// Every process that has a buffer may write it at any time. So the slots are only for
    /// decoders ([`Pool::acquire_hold`]), and [`Pool::acquire`] fails.
    ///
    /// # Errors
    /// [`PoolError::Size`] and [`PoolError::NoNumbers`]; [`PoolError::Os`] if a buffer is too small or cannot
    /// be mapped; [`PoolError::NotGranted`], with the text of the error, if `buffer` fails.
    #[cfg(not(any(loom, miri)))]
    pub fn from_buffers(
        slots: u32,
        slot_bytes: usize,
        give_back: &'static GiveBack,
        mut buffer: impl FnMut(u32) -> Result<OwnedFd, String>,
    ) -> Result<Pool, PoolError> {
        Pool::from_peer_memory(slot_bytes, slots, give_back, |each, bytes| {
            Mapping::map_buffers(slots, each, |index| {
                buffer(index).map_err(|reason| PoolError::NotGranted { bytes, reason })
            })
        })
    }

    /// Makes a pool of another process's memory with all slots in use (exported). `map` maps the memory;
    /// its arguments are the bytes of a slot and of all slots.
    #[cfg(not(any(loom, all(miri, not(test)))))]
    fn from_peer_memory(
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

    /// Makes a pool of this process's memory, or of memory that another process grants through `give_back`.
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

    /// Makes a pool from `map`, which maps the memory: its arguments are the bytes of a slot and
    /// of all slots. With `peer_owned`, other processes may write the memory. First collects `give_back`.
    fn make_of(
        slot_bytes: usize,
        slots: u32,
        give_back: Option<&'static GiveBack>,
        peer_owned: bool,
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
                // Older pools may have returned frames that were not yet collected.
                give_back.collect();
                Some(give_back.take_range(slots).ok_or(PoolError::NoNumbers { slots })?)
            }
        };
        let memory = map(padded, map_bytes)?;
        log::debug!(
            "pool of {slots} slots of {padded} bytes{}",
            if peer_owned { ", memory of another process" } else { "" }
        );
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
            peer_owned,
            range,
            layouts: Mutex::new(Vec::new()),
        };
        let opaque = inner.intern(&Layout::opaque(slot_bytes));
        let mut inner = NonNull::from(Box::leak(Box::new(inner)));
        // SAFETY: leaked above, and no other code has the pointer yet.
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

    /// Returns the number of the pool, which is unique in this process; [`Frame::pool_id`] returns the
    /// same number for each frame of the pool.
    pub fn id(&self) -> u64 {
        self.inner().id
    }

    /// Returns the number of the pool's slot 0 among all slots of its [`GiveBack`], as in [`Exported::slot`]; 0
    /// if the pool is not shared.
    #[cfg(not(any(loom, miri)))]
    pub fn first_slot(&self) -> u32 {
        self.inner().first_slot()
    }

    /// Returns the number of slots of this pool.
    pub fn slots(&self) -> u32 {
        self.inner().slots.len() as u32
    }

    /// Returns the size of a slot, bytes: the size requested, rounded up to pages.
    pub fn slot_bytes(&self) -> usize {
        self.inner().slot_bytes
    }

    /// Returns a handle by which any thread can end waits for a slot of this pool.
    pub fn closer(&self) -> Closer {
        self.inner().closer.clone()
    }

    /// Returns the sealed memfd of the pool; `None` if the memory came from another process, or is anonymous
    /// because this process may not create files.
    ///
    /// # Safety
    /// No code writes through the memfd, or through a mapping of it, to a slot of which a
    /// [`Frame`] exists: `Frame::plane` guarantees stable pixels.
    #[cfg(not(any(loom, miri)))]
    pub unsafe fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.inner().memory.fd()
    }

    /// Takes a slot to write a frame into. If all slots are in use, waits until one is returned; the
    /// time is recorded as blocked. This is the pool's back-pressure.
    ///
    /// # Errors
    /// If all slots are in use: [`PoolError::Starved`] if only decoders' references ([`Hold`]) hold them, so
    /// that waiting would never end, and [`PoolError::Closed`] if a [`Closer`] closed the pool, or the grace
    /// period of a signal ended ([`signal::overdue`]), before or during the wait. [`PoolError::PeerOwned`] for a pool of [`Pool::from_buffers`].
    #[inline]
    pub fn acquire(&mut self) -> Result<FrameMut, PoolError> {
        if self.inner().peer_owned {
            return Err(PoolError::PeerOwned);
        }
        let slot = self.take_slot()?;
        Ok(self.unwritten(slot))
    }

    /// Takes a slot as [`Pool::acquire`] does, without a wait; `None` if all slots are in use, and for a pool of
    /// [`Pool::from_buffers`].
    pub fn try_acquire(&mut self) -> Option<FrameMut> {
        if self.inner().peer_owned {
            return None;
        }
        let slot = self.take_unused()?;
        Some(self.unwritten(slot))
    }

    /// Makes the only handle to `slot`, which was just taken. For another process's memory, the handle must
    /// not leave this module, because code with the handle could request the bytes as a slice.
    fn unwritten(&self, slot: u32) -> FrameMut {
        debug_assert_eq!(self.inner().slots[slot as usize].refs.load(Ordering::Relaxed), FRAME);
        FrameMut::new(NonNull::from(&self.inner().places[slot as usize]), self.opaque)
    }

    /// Takes a slot for a decoder to write into and keep as a reference. Works for a pool of
    /// [`Pool::from_buffers`], too. If all slots are in use, waits as [`Pool::acquire`] does.
    ///
    /// # Errors
    /// [`PoolError::Starved`] and [`PoolError::Closed`] as [`Pool::acquire`].
    pub fn acquire_hold(&mut self) -> Result<Hold, PoolError> {
        let slot = self.take_slot()?;
        self.inner().slots[slot as usize].refs.store(HOLD, Ordering::Relaxed);
        Ok(Hold::new(self.inner, slot))
    }

    #[inline]
    fn take_slot(&mut self) -> Result<u32, PoolError> {
        match self.take_unused() {
            Some(slot) => Ok(slot),
            None => meter::blocked(|| self.wait()),
        }
    }

    #[inline]
    fn take_unused(&mut self) -> Option<u32> {
        // The slot that was returned last is the likeliest to be in a cache, and an unused slot costs page faults, too. For a picture,
        // both cost far more than the atomic swap that collects the returned slots; for a few bytes, the swap costs more.
        if self.inner().slot_bytes <= SMALL_SLOT {
            if let Some(slot) = self.take_collected() {
                return Some(slot);
            }
        }
        self.refill();
        self.take_collected()
    }

    /// Takes the slot that was collected last, or else one that was never used.
    #[inline]
    fn take_collected(&mut self) -> Option<u32> {
        match self.free.pop() {
            None if self.fresh < self.slots() => {
                self.fresh += 1;
                Some(self.fresh - 1)
            }
            slot => slot,
        }
    }

    fn refill(&mut self) {
        // SAFETY: as in `inner`; written out because `free` is borrowed too.
        let inner = unsafe { self.inner.as_ref() };
        if let Some(range) = &inner.range {
            range.give_back.collect();
        }
        inner.returned.take(&mut self.free);
    }

    #[cold]
    fn wait(&mut self) -> Result<u32, PoolError> {
        let waits = self.inner().owner_waits;
        // Any thread may wait here, also one of a decoder.
        #[cfg(not(any(loom, miri)))]
        let _interruptible = signal::interruptible();
        loop {
            // Comes before the flag is raised, so that frames returned by another process do not
            // make this thread wake itself.
            self.refill();
            if let Some(slot) = self.free.pop() {
                return Ok(slot);
            }
            if self.comes_soon() {
                continue;
            }
            // Raised before the counts, the stack and the words of another process are checked.
            // These checks are read-modify-writes, as is every return, so the later of the two
            // sees the earlier. A return that comes too late for the check finds the flag raised.
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

    /// Polls for a few microseconds for frames that another process returns, if the last sleep was short.
    /// Returns true if frames were returned; false if not, if the pool is not shared, or if the last sleep was
    /// long. A process that returns a frame meanwhile makes no system call.
    fn comes_soon(&self) -> bool {
        let range = self.inner().range.as_ref();
        range.is_some_and(|range| self.patience.spin(|| range.give_back.has_returns()))
    }

    /// Checks for a slot one last time before the owner sleeps. Returns a slot, `Some(Ok(None))` if frames that
    /// another process returned have to be collected first, or the error [`PoolError::Closed`] or
    /// [`PoolError::Starved`]. Returns `None` if the owner may sleep.
    fn look(&mut self) -> Option<Result<Option<u32>, PoolError>> {
        // Waiting does not return a slot that only decoders hold. A slot without a reference, or
        // with the reference of a free slot, is already on its way to the stack or in it.
        // AcqRel: pairs with the fetch_sub in `Inner::release`.
        let returning = self.inner().slots.iter().any(|s| {
            let refs = s.refs.fetch_add(0, Ordering::AcqRel);
            refs < HOLD || refs & FRAMES != 0
        });
        // SAFETY: as in `inner`; written out because `free` is borrowed too.
        let inner = unsafe { self.inner.as_ref() };
        inner.returned.take(&mut self.free);
        if let Some(slot) = self.free.pop() {
            return Some(Ok(Some(slot)));
        }
        if inner.closer.is_closed() {
            return Some(Err(PoolError::Closed));
        }
        #[cfg(not(any(loom, miri)))]
        if signal::overdue() {
            return Some(Err(PoolError::Closed));
        }
        if inner.range.as_ref().is_some_and(|range| range.give_back.has_returns()) {
            return Some(Ok(None));
        }
        (!returning).then_some(Err(PoolError::Starved { slots: self.slots() }))
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
            // no other pointer to Inner exists; it came from Box::leak in `Pool::make_of`.
            drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests;
