// SPDX-License-Identifier: MIT OR Apache-2.0
//! Return of frames that another process reads, by words of memory that both processes
//! map. The reader counts the frames it gave back; the owner collects them.
//!
//! The owner trusts nothing it reads there. It drops no more handles of a slot than it
//! exported; it counts and ignores words without a meaning.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::frame::Frame;
use super::owner_wait::OwnerWait;
use crate::sync::atomics::{AtomicU32, AtomicU64, Ordering};

/// Most slots that one [`GiveBack`] serves.
pub const GIVE_BACK_SLOTS: u32 = 4096;

/// The shared words, as either side maps them. All may start as 0.
#[derive(Clone, Copy, Debug)]
pub struct GiveBackWords<'a> {
    waits: &'a AtomicU32,
    summary: &'a [AtomicU64],
    counts: &'a [AtomicU32],
}

impl<'a> GiveBackWords<'a> {
    /// Returns the number of words of `summary` for `slots` slots.
    pub const fn summary_words(slots: u32) -> usize {
        slots.div_ceil(64) as usize
    }

    /// Uses the words of `counts.len()` slots: `waits` is 1 while the owner sleeps,
    /// `summary` has a bit for each slot given back since the owner last looked, `counts`
    /// says how many times. `None` where the lengths do not fit together, or are more
    /// than [`GIVE_BACK_SLOTS`].
    pub fn new(
        waits: &'a AtomicU32,
        summary: &'a [AtomicU64],
        counts: &'a [AtomicU32],
    ) -> Option<GiveBackWords<'a>> {
        let slots = u32::try_from(counts.len()).ok().filter(|slots| (1..=GIVE_BACK_SLOTS).contains(slots))?;
        let fits = summary.len() == GiveBackWords::summary_words(slots);
        fits.then_some(GiveBackWords { waits, summary, counts })
    }

    /// Gives slot `slot` back once, as the reader, and wakes the owner if it sleeps: one
    /// system call then, none otherwise. Does nothing for a number out of range. Any
    /// thread.
    pub fn give_back(&self, slot: u32) {
        let Some(count) = self.counts.get(slot as usize) else { return };
        // Release: pairs with the Acquire of the owner's swap, for the reads of the
        // frame.
        count.fetch_add(1, Ordering::Release);
        // Release: as above, and the count. Acquire: pairs with the Release of
        // an owner's look that came first, so that its flag is seen here.
        self.summary[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::AcqRel);
        // Relaxed, see above.
        if self.waits.load(Ordering::Relaxed) != 0 {
            self.waits.store(0, Ordering::Relaxed);
            crate::sync::futex::wake_shared(self.waits);
        }
    }
}

/// A frame on its way to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// See [`Frame::pool_id`].
    pub pool: u64,
    /// Number of the slot among all that share a [`GiveBack`]; the slot comes back under
    /// this number.
    pub slot: u32,
}

/// Source of memory: returns memory of at least that many bytes, or the reason of a
/// refusal. Any thread.
#[cfg(not(any(loom, miri)))]
pub type MemorySource = Box<dyn Fn(u64) -> Result<GrantedMemory, String> + Send + Sync>;

/// Memory for a pool that another process made.
#[cfg(not(any(loom, miri)))]
#[derive(Debug)]
pub struct GrantedMemory {
    /// Number by which that process knows the memory.
    pub number: u32,
    /// A memfd of ordinary pages, sealed against another size and nothing else.
    pub fd: std::os::fd::OwnedFd,
}

/// The owner's side: exported frames, and those that came back. It serves the pools of
/// one stage; they come and go as the stream changes, and one of them waits at a time.
pub struct GiveBack {
    words: GiveBackWords<'static>,
    /// Source of the pools' memory, if not memfd_create(2).
    #[cfg(not(any(loom, miri)))]
    memory: Option<MemorySource>,
    table: Mutex<Table>,
    /// Numbers below this have been given to pools.
    used: AtomicU32,
    breaches: AtomicU64,
}

#[derive(Default)]
struct Table {
    /// Handles that another process reads through, by number, oldest first.
    exported: Vec<VecDeque<Frame>>,
    /// First number and length of each living pool's range, in order.
    ranges: Vec<(u32, u32)>,
}

impl GiveBack {
    /// Collects from `words`.
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

    /// Collects from `words`. The pools' memory comes from `memory`: for a process that
    /// can make no memfd.
    #[cfg(not(any(loom, miri)))]
    pub fn with_memory(words: GiveBackWords<'static>, memory: MemorySource) -> GiveBack {
        GiveBack { memory: Some(memory), ..GiveBack::new(words) }
    }

    #[cfg(not(any(loom, miri)))]
    pub(super) fn memory(&self) -> Option<&MemorySource> {
        self.memory.as_ref()
    }

    /// Returns the number of times the other side gave back a frame that it did not have.
    pub fn breaches(&self) -> u64 {
        self.breaches.load(Ordering::Relaxed)
    }

    /// Returns the number of frames that the other side has.
    pub fn exported(&self) -> usize {
        self.table().exported.iter().map(VecDeque::len).sum()
    }

    /// Drops the handles of all frames given back since the last call. Pools
    /// do so when they run out of slots. Any thread.
    pub fn collect(&self) {
        for (index, word) in self.used_words().iter().enumerate() {
            // Relaxed: a first look that saves the swap; `has_returns` looks in order.
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

    fn collect_slot(&self, slot: usize) {
        let Some(count) = self.words.counts.get(slot) else { return self.breach() };
        // Acquire: pairs with the Release in `give_back`: the reads of the
        // other side come before the next writes here. 0 where the last look
        // found the count already and the bit came after.
        for _ in 0..count.swap(0, Ordering::Acquire) {
            // The lock is free while the handle is dropped: that may end a
            // pool, which gives its numbers back here.
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

    /// True if [`GiveBack::collect`] would find anything: the owner's look between
    /// raising its flag and sleeping.
    pub(super) fn has_returns(&self) -> bool {
        // AcqRel, as a read-modify-write: of this and a `give_back` the later
        // sees the earlier, the word or the flag.
        self.used_words().iter().any(|word| word.fetch_or(0, Ordering::AcqRel) != 0)
    }

    fn used_words(&self) -> &[AtomicU64] {
        // Relaxed: a thread that waits on a pool got the pool from the thread that made
        // its range.
        let words = GiveBackWords::summary_words(self.used.load(Ordering::Relaxed));
        &self.words.summary[..words]
    }

    /// Returns the word on which the owner sleeps.
    pub(super) fn waits(&self) -> OwnerWait {
        OwnerWait::shared(self.words.waits)
    }

    /// Keeps the handle until the other side gives the frame back.
    pub(super) fn keep(&self, slot: u32, frame: Frame) {
        self.table().exported[slot as usize].push_back(frame);
    }

    /// Takes numbers for the slots of a pool, which no other living pool has.
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
        // A panic leaves no value half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One value exists for each set of words, so values are equal only if they are the same.
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

/// The numbers of one pool's slots; free again when it is dropped.
#[derive(Debug)]
pub(super) struct SlotNumbers {
    pub(super) give_back: &'static GiveBack,
    /// Number of slot 0.
    pub(super) first: u32,
}

impl Drop for SlotNumbers {
    fn drop(&mut self) {
        self.give_back.table().ranges.retain(|(start, _)| *start != self.first);
    }
}
