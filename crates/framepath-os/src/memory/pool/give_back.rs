// SPDX-License-Identifier: MIT OR Apache-2.0
//! Return of frames from another process, through words of memory that both processes map. The
//! reader counts the frames that it returned; the owner collects them.
//!
//! The owner trusts none of these words. The owner drops no more handles of a slot than it exported. It
//! counts invalid returns and ignores them otherwise.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::frame::Frame;
use super::owner_wait::OwnerWait;
use crate::sync::atomics::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of slot numbers of one [`GiveBack`], which its pools share.
pub const GIVE_BACK_SLOTS: u32 = 4096;

/// Words in shared memory through which one process (the reader) returns slots to another (the owner).
/// Each side maps them by itself. All words start as 0.
#[derive(Clone, Copy, Debug)]
pub struct GiveBackWords<'a> {
    waits: &'a AtomicU32,
    summary: &'a [AtomicU64],
    counts: &'a [AtomicU32],
}

impl<'a> GiveBackWords<'a> {
    /// Returns the number of words that `summary` has for `slots` slots: one per 64 slots,
    /// rounded up.
    pub const fn summary_words(slots: u32) -> usize {
        slots.div_ceil(64) as usize
    }

    /// Wraps the words of `counts.len()` slots. `waits` is 1 while the owner sleeps or is about to sleep.
    /// `summary` has one bit per slot, set if the slot was returned since the owner's last collection.
    /// `counts` has the number of returns of each slot since then. Returns `None` if there are no slots or
    /// more than [`GIVE_BACK_SLOTS`], or if the number of words of `summary` is not
    /// [`summary_words`](GiveBackWords::summary_words).
    pub fn new(
        waits: &'a AtomicU32,
        summary: &'a [AtomicU64],
        counts: &'a [AtomicU32],
    ) -> Option<GiveBackWords<'a>> {
        let slots = u32::try_from(counts.len()).ok().filter(|slots| (1..=GIVE_BACK_SLOTS).contains(slots))?;
        let fits = summary.len() == GiveBackWords::summary_words(slots);
        fits.then_some(GiveBackWords { waits, summary, counts })
    }

    /// Returns slot `slot` once, as the reader, and wakes the owner if it sleeps: one system call
    /// in that case, none otherwise. Does nothing if the number is out of range. Any thread.
    pub fn give_back(&self, slot: u32) {
        let Some(count) = self.counts.get(slot as usize) else { return };
        // Release: pairs with the Acquire of the owner's swap, for the reads of the frame.
        count.fetch_add(1, Ordering::Release);
        // Release: as above, and for the count. Acquire: pairs with the Release of an earlier
        // check by the owner, so that its flag is seen here.
        self.summary[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::AcqRel);
        // Relaxed, see above.
        if self.waits.load(Ordering::Relaxed) != 0 {
            self.waits.store(0, Ordering::Relaxed);
            crate::sync::futex::wake_shared(self.waits);
        }
    }
}

/// Name of a frame that was exported to another process ([`Frame::export`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Number of the frame's pool in the exporting process, as [`Frame::pool_id`] returns it.
    pub pool: u64,
    /// Number of the slot among all slots of a [`GiveBack`]. The slot is returned under this
    /// number.
    pub slot: u32,
}

/// Function that requests memory for a pool from another process: takes the number of bytes, and returns
/// memory of at least this size, or the reason of a denial. Called on any thread.
#[cfg(not(any(loom, miri)))]
pub type MemorySource = Box<dyn Fn(u64) -> Result<GrantedMemory, String> + Send + Sync>;

/// Memory for a pool, made by another process ([`MemorySource`]).
#[cfg(not(any(loom, miri)))]
#[derive(Debug)]
pub struct GrantedMemory {
    /// Number that the process which made the memory gave to the memory;
    /// [`GrantedPool::memory`](super::GrantedPool::memory) is this number.
    pub number: u32,
    /// Memfd of ordinary pages, sealed only against a change of its size.
    pub fd: std::os::fd::OwnedFd,
}

/// Owner's side of the return of frames: keeps a handle to each exported frame until the reader returns the
/// frame. One value serves all shared pools of one stage. Pools are made and dropped as the stream changes,
/// and at most one of them waits for a slot at a time.
pub struct GiveBack {
    words: GiveBackWords<'static>,
    /// Source of the pools' memory; `None` if pools make their own memory by memfd_create(2).
    #[cfg(not(any(loom, miri)))]
    memory: Option<MemorySource>,
    table: Mutex<Table>,
    /// Highest slot number ever assigned to a pool, plus 1.
    used: AtomicU32,
    /// Number of invalid returns, as [`GiveBack::breaches`] counts them.
    breaches: AtomicU64,
}

/// Exported frames, and slot numbers in use.
#[derive(Default)]
struct Table {
    /// Handles of exported frames by slot number; for one slot, the oldest export first.
    exported: Vec<VecDeque<Frame>>,
    /// First number and length of each live pool's range of slot numbers, in rising order.
    ranges: Vec<(u32, u32)>,
}

impl GiveBack {
    /// Creates the owner's side of `words`. Pools make their own memory.
    pub fn new(words: GiveBackWords<'static>) -> GiveBack {
        let (table, used, breaches) = (Mutex::default(), AtomicU32::new(0), AtomicU64::new(0));
        GiveBack {
            words,
            #[cfg(not(any(loom, miri)))]
            memory: None,
            table,
            used,
            breaches,
        }
    }

    /// Creates the owner's side of `words` for a process that cannot make memfds. `memory`
    /// provides the pools' memory.
    #[cfg(not(any(loom, miri)))]
    pub fn with_memory(words: GiveBackWords<'static>, memory: MemorySource) -> GiveBack {
        GiveBack { memory: Some(memory), ..GiveBack::new(words) }
    }

    /// Returns the source of the pools' memory; `None` if pools make their own memory.
    #[cfg(not(any(loom, miri)))]
    pub(super) fn memory(&self) -> Option<&MemorySource> {
        self.memory.as_ref()
    }

    /// Returns the number of invalid returns found so far: collections in which a slot had more returns
    /// than exported frames (one each, however many), or a slot that does not exist was returned.
    pub fn breaches(&self) -> u64 {
        self.breaches.load(Ordering::Relaxed)
    }

    /// Returns the number of exports that the other side has not returned, or that were not yet collected.
    pub fn exported(&self) -> usize {
        self.table().exported.iter().map(VecDeque::len).sum()
    }

    /// Drops one handle for each frame that the other process returned since the last call, and counts invalid
    /// returns. Called when a shared pool is made, and when a shared pool looks for returned slots. Any
    /// thread.
    pub fn collect(&self) {
        for (index, word) in self.used_words().iter().enumerate() {
            // Relaxed: a first check that saves the swap; `has_returns` checks in order.
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // Acquire: pairs with the Release in `give_back`.
            let mut bits = word.swap(0, Ordering::Acquire);
            while bits != 0 {
                let slot = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                self.collect_slot(slot);
            }
        }
    }

    /// Drops the oldest handle of `slot` once for each return, and counts a breach if there are more
    /// returns than handles.
    fn collect_slot(&self, slot: usize) {
        let Some(count) = self.words.counts.get(slot) else { return self.breach() };
        // Acquire: pairs with the Release in `give_back`. The other side's reads come before the
        // next writes here. The count is 0 if the last call found it before its bit.
        for _ in 0..count.swap(0, Ordering::Acquire) {
            // The lock is released before the handle is dropped: the drop may free a pool, which
            // takes the lock to return its numbers.
            let oldest = self.table().exported.get_mut(slot).and_then(VecDeque::pop_front);
            if oldest.is_none() {
                return self.breach();
            }
        }
    }

    fn breach(&self) {
        // Relaxed: only a statistic.
        self.breaches.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if the other process has returned a frame that [`GiveBack::collect`] has not found yet.
    /// The owner calls this function while it polls, and between raising its flag and sleeping.
    pub(super) fn has_returns(&self) -> bool {
        // AcqRel, as a read-modify-write: the later of this and a `give_back` sees the earlier,
        // either the word or the flag.
        self.used_words().iter().any(|word| word.fetch_or(0, Ordering::AcqRel) != 0)
    }

    /// Returns the summary words of all slot numbers that were ever assigned.
    fn used_words(&self) -> &[AtomicU64] {
        // Relaxed: a thread that waits on a pool received the pool from the thread that made its
        // range.
        let words = GiveBackWords::summary_words(self.used.load(Ordering::Relaxed));
        &self.words.summary[..words]
    }

    /// Returns the wait on the shared word through which the owner of a pool sleeps until this process or the
    /// other returns a slot.
    pub(super) fn waits(&self) -> OwnerWait {
        OwnerWait::shared(self.words.waits)
    }

    /// Keeps the handle `frame` of slot number `slot` until the other side has returned this slot as often as
    /// it was exported up to now.
    pub(super) fn keep(&self, slot: u32, frame: Frame) {
        self.table().exported[slot as usize].push_back(frame);
    }

    /// Takes the lowest free range of `slots` consecutive numbers for the slots of a pool. No other live pool
    /// of this [`GiveBack`] has these numbers. Returns `None` if no range of this length is free.
    pub(super) fn take_range(&'static self, slots: u32) -> Option<SlotNumbers> {
        let mut table = self.table();
        let mut first = 0;
        let mut place = 0;
        for (start, length) in &table.ranges {
            if start - first >= slots {
                break;
            }
            first = start + length;
            place += 1;
        }
        let end = first.checked_add(slots).filter(|end| *end as usize <= self.words.counts.len())?;
        table.ranges.insert(place, (first, slots));
        if table.exported.len() < end as usize {
            table.exported.resize_with(end as usize, VecDeque::new);
        }
        self.used.fetch_max(end, Ordering::Relaxed);
        Some(SlotNumbers { give_back: self, first })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic leaves no value half changed, so a poisoned lock is valid.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two values are equal only if they are the same value, because each set of words has one value.
impl PartialEq for GiveBack {
    fn eq(&self, other: &GiveBack) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for GiveBack {}

impl fmt::Debug for GiveBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GiveBack").field("slots", &self.words.counts.len()).finish_non_exhaustive()
    }
}

/// Range of slot numbers of one pool; dropping the value makes the numbers free again.
#[derive(Debug)]
pub(super) struct SlotNumbers {
    pub(super) give_back: &'static GiveBack,
    /// Number of the pool's slot 0.
    pub(super) first: u32,
}

impl Drop for SlotNumbers {
    fn drop(&mut self) {
        self.give_back.table().ranges.retain(|(start, _)| *start != self.first);
    }
}
