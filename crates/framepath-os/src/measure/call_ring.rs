// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ring in shared memory in which the threads of observed programs write records of their calls.
//!
//! The writer is a library that is preloaded into the programs: `crates/framepath-trace/preload/ring.c`. The memory has
//! a page with the counters, then the slots. Each slot is one cache line: a state and seven words of a record.
//!
//! A position counts the slots that were taken since the beginning; it is in slot `position % SLOTS`, and its
//! round is `position / SLOTS`. The state of a slot is
//!
//! - `2 * round`: the slot is empty, or a writer has taken it and writes the record;
//! - `2 * round + 1`: the record is complete;
//! - `RETIRED`: a writer has taken the slot and was not heard of again, because its process was killed or stopped.
//!   The slot is not used any more, because this writer could still change it.
//!
//! A writer takes the next position by an exchange of the counter `head`, writes, and then changes the state. If the slot
//! still has the state of an earlier round, the ring is full, and the record is counted as lost. No writer waits.
//!
//! The observed programs can write anything to the memory. The reader takes no address, size or number of repetitions
//! from it: it reads each slot at most once in a call, and its position is its own.

use std::io;
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::process::lent_file::LentFile;
use crate::time::now_ns;

/// Number of slots.
const SLOTS: u64 = 65_536;

/// Size of a slot, words.
const SLOT_WORDS: u64 = 8;

/// Size of the page before the slots, words.
const HEADER_WORDS: u64 = 512;

/// Size of the memory, bytes.
const BYTES: u64 = (HEADER_WORDS + SLOTS * SLOT_WORDS) * 8;

/// First word of the memory: "fpcalls" and the version of the format.
const MAGIC: u64 = u64::from_le_bytes(*b"fpcalls\x01");

/// Index of the word that has the number of slots that were taken.
const HEAD: u64 = 8;

/// Index of the word that has the number of records that found no slot.
const LOST: u64 = 16;

/// State of a slot that is not used any more.
const RETIRED: u64 = u64::MAX;

/// Time after which a record that is not complete is given up. A writer needs less than a microsecond, but may have lost
/// its CPU.
const PATIENCE: Duration = Duration::from_millis(500);

/// Words of a record. Their meaning is a matter of the writer and of the caller.
pub type CallRecord = [u64; 7];

/// Ring, and the position of its only reader.
#[derive(Debug)]
pub struct CallRing {
    file: LentFile,
    memory: NonNull<u8>,
    position: u64,
    /// Time at which the reader came to the slot at its position, which is taken and not complete.
    incomplete_since_ns: Option<u64>,
    /// Number of records that were given up.
    given_up: u64,
}

// SAFETY: the mapping belongs to the value alone and is not tied to a thread.
unsafe impl Send for CallRing {}

impl CallRing {
    /// Makes an empty ring, of 4 MiB.
    ///
    /// # Errors
    /// As [`LentFile::zeroed`], or mmap(2) failed.
    pub fn new() -> io::Result<CallRing> {
        let file = LentFile::zeroed("framepath-calls", BYTES)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let memory = unsafe { mmap(ptr::null_mut(), BYTES as usize, access, MapFlags::SHARED, &file, 0)? };
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let ring = CallRing { file, memory, position: 0, incomplete_since_ns: None, given_up: 0 };
        ring.word(0).store(MAGIC, Ordering::Relaxed);
        Ok(ring)
    }

    /// Returns the path by which the observed programs open the memory.
    pub fn path(&self) -> PathBuf {
        self.file.path()
    }

    /// Calls `take` with each complete record since the last call, in the order in which the writers began them. Stops at
    /// a record that is not complete, and gives it up after half a second.
    pub fn drain(&mut self, take: impl FnMut(CallRecord)) {
        self.read(PATIENCE.as_nanos() as u64, take);
    }

    /// Does the same as [`CallRing::drain`] when the observed programs have ended: no record becomes complete later.
    pub fn drain_last(&mut self, take: impl FnMut(CallRecord)) {
        self.read(0, take);
    }

    /// Returns the number of records that are missing, as far as the observed programs say the truth.
    pub fn lost(&self) -> u64 {
        self.word(LOST).load(Ordering::Relaxed).saturating_add(self.given_up)
    }

    fn read(&mut self, patience_ns: u64, mut take: impl FnMut(CallRecord)) {
        for _ in 0..SLOTS {
            let (round, slot) = (self.position / SLOTS, self.position % SLOTS);
            let first = HEADER_WORDS + slot * SLOT_WORDS;
            let empty = 2 * round;
            // Acquire: pairs with the writer's release of the state behind the record.
            let state = self.word(first).load(Ordering::Acquire);
            if state == empty + 1 {
                take(std::array::from_fn(|n| self.word(first + 1 + n as u64).load(Ordering::Relaxed)));
                // Release: the loads above come before the next writer's stores.
                self.word(first).store(empty + 2, Ordering::Release);
            } else if self.position >= self.word(HEAD).load(Ordering::Relaxed) {
                return;
            } else if state != RETIRED {
                let since_ns = *self.incomplete_since_ns.get_or_insert_with(now_ns);
                if state == empty && now_ns().saturating_sub(since_ns) < patience_ns {
                    return;
                }
                let state =
                    self.word(first).compare_exchange(state, RETIRED, Ordering::Relaxed, Ordering::Relaxed);
                if state.is_err() {
                    // The writer has completed the record right now.
                    continue;
                }
                self.given_up += 1;
            }
            self.incomplete_since_ns = None;
            self.position += 1;
        }
    }

    fn word(&self, index: u64) -> &AtomicU64 {
        debug_assert!(index < BYTES / 8);
        // SAFETY: every caller's index is a constant or a slot number below SLOTS, so it lies in the memory, which is
        // aligned and mapped as long as `self` lives. All threads and processes use only atomic accesses.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().cast::<u64>().add(index as usize)) }
    }
}

impl Drop for CallRing {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; nothing refers to it any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), BYTES as usize) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// Does the writer's part. Returns false if the ring is full.
    fn write(ring: &CallRing, value: u64, is_complete: bool) -> bool {
        loop {
            let head = ring.word(HEAD).load(Ordering::Relaxed);
            let first = HEADER_WORDS + head % SLOTS * SLOT_WORDS;
            let (empty, state) = (head / SLOTS * 2, ring.word(first).load(Ordering::Acquire));
            if state < empty {
                ring.word(LOST).fetch_add(1, Ordering::Relaxed);
                return false;
            }
            ring.word(HEAD).store(head + 1, Ordering::Relaxed);
            if state == RETIRED {
                continue;
            }
            (1..SLOT_WORDS).for_each(|n| ring.word(first + n).store(value + n - 1, Ordering::Relaxed));
            ring.word(first).store(empty + u64::from(is_complete), Ordering::Release);
            return true;
        }
    }

    fn drained(ring: &mut CallRing, is_last: bool) -> Vec<u64> {
        let mut firsts = Vec::new();
        let take = |record: CallRecord| {
            assert!(record.iter().zip(record[0]..).all(|(word, wanted)| *word == wanted), "{record:?}");
            firsts.push(record[0]);
        };
        if is_last {
            ring.drain_last(take)
        } else {
            ring.drain(take)
        }
        firsts
    }

    #[test]
    fn records_come_in_their_order_round_after_round() {
        let mut ring = CallRing::new().unwrap();
        for round in 0..5 {
            let values: Vec<u64> = (0..SLOTS / 2 + 7).map(|n| round << 32 | n << 8).collect();
            assert!(values.iter().all(|value| write(&ring, *value, true)));
            assert_eq!(drained(&mut ring, false), values);
        }
        assert_eq!((drained(&mut ring, true), ring.lost()), (vec![], 0));
    }

    #[test]
    fn a_full_ring_loses_the_newest_records_and_counts_them() {
        let mut ring = CallRing::new().unwrap();
        let stored = (0..SLOTS + 10).filter(|n| write(&ring, *n, true)).count() as u64;
        assert_eq!((stored, ring.lost()), (SLOTS, 10));
        assert_eq!(drained(&mut ring, false).len() as u64, SLOTS);
        assert!(write(&ring, 1, true));
        assert_eq!(drained(&mut ring, false), [1]);
    }

    #[test]
    fn a_record_that_never_becomes_complete_is_given_up_and_its_slot_is_not_used_again() {
        let mut ring = CallRing::new().unwrap();
        write(&ring, 1, true);
        write(&ring, 2, false);
        write(&ring, 3, true);
        // The writer may still be at work.
        assert_eq!((drained(&mut ring, false), ring.lost()), (vec![1], 0));
        assert_eq!((drained(&mut ring, true), ring.lost()), (vec![3], 1));
        // Its late end changes nothing.
        let state = ring.word(HEADER_WORDS + SLOT_WORDS);
        assert_eq!(state.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed), Err(RETIRED));
        for round in 0..3 {
            let values: Vec<u64> = (0..SLOTS - 1).map(|n| round << 32 | n << 8).collect();
            assert!(values.iter().all(|value| write(&ring, *value, true)));
            assert_eq!(drained(&mut ring, false), values);
        }
        assert_eq!(ring.lost(), 1);
    }

    #[test]
    fn memory_that_a_program_has_overwritten_ends_every_call() {
        let mut ring = CallRing::new().unwrap();
        let mut random = 1u64;
        for _ in 0..20 {
            for index in 0..BYTES / 8 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Small states are those that have a meaning.
                let value = if random >> 62 == 0 { random >> 60 } else { random };
                ring.word(index).store(value, Ordering::Relaxed);
            }
            let mut records = 0;
            ring.drain(|_| records += 1);
            ring.drain_last(|_| records += 1);
            assert!(records <= 2 * SLOTS);
        }
        assert!(ring.given_up <= 40 * SLOTS && ring.lost() >= ring.given_up);
    }
}
