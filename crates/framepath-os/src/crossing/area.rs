// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layout of the shared area.
//!
//! ```text
//! lines of 128 bytes   one word each: ring positions, bells, counters (AreaWord)
//! give-back words      a bit per slot, then a counter per slot (pool::GiveBackWords)
//! submission cells     Sizes::cells x 64 bytes
//! completion cells     Sizes::cells x 64 bytes
//! packet bytes         from a page boundary, Sizes::packet_bytes
//! ```

use rustix::io::Errno;

#[cfg(loom)]
pub use modelled::SharedArea;
#[cfg(not(loom))]
pub use shared::SharedArea;

/// Sizes of the variable parts of an area. The side that makes the area chooses them, and the other side
/// receives them once. Both sides check them; they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Number of cells of each ring; a power of two from 2 to 65,536.
    pub cells: u32,
    /// Number of bytes for packets, their padding included; a multiple of 4096 from 0 to 1 GiB.
    pub packet_bytes: u64,
}

/// Words of the area, each on cache lines of its own. All words start at 0. A bell is 1 while a thread
/// sleeps on it or is about to sleep (see [`super::Bell`]). *Caller* and *worker* are the two processes (see
/// [`crossing`](super)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum AreaWord {
    /// Number of submissions, since the start, that the caller has written.
    SubmissionTail,
    /// Number of submissions, since the start, that the worker has taken.
    SubmissionHead,
    /// Number of completions, since the start, that the worker has written.
    CompletionTail,
    /// Number of completions, since the start, that the caller has taken.
    CompletionHead,
    /// Bell on which the worker sleeps until there is a submission.
    WorkerBell,
    /// Bell on which the caller sleeps until there is a completion.
    CallerBell,
    /// Bell on which the caller sleeps while the submission ring is full. The worker rings it when half the
    /// ring is free.
    RoomBell,
    /// Bell on which the worker sleeps while the completion ring is full. The caller rings it when half the
    /// ring is free.
    CompletionRoomBell,
    /// Bell on which the caller sleeps until the worker releases packets of a
    /// [`PacketArea`](super::PacketArea).
    PacketBell,
    /// Number of packets of a [`PacketArea`](super::PacketArea), since the start, that the worker has
    /// released, in order of submission.
    PacketsReleased,
    /// Bell on which the owner of a pool of frames or packets, in one process, sleeps until one of them is
    /// returned, by the other process or by another thread of its own process.
    SlotBell,
}

const LINE: usize = 128;
const LINES: usize = 16;
/// Offset of the words of `pool::GiveBackWords` in the area, bytes: a bit per slot, then a counter per slot.
const GIVE_BACK: usize = LINE * LINES;
/// Number of slots (or packet ids) that have a give-back word in an area.
pub(super) const SLOTS: usize = 4096;
const SUMMARY_BYTES: usize = SLOTS / 8;
const CELLS: usize = GIVE_BACK + SUMMARY_BYTES + SLOTS * 4;
const CELL: usize = 64;
const PAGE: usize = 4096;

impl Sizes {
    /// Returns true if both sizes are in the ranges given at the fields.
    pub fn valid(&self) -> bool {
        self.cells.is_power_of_two()
            && (2..=1 << 16).contains(&self.cells)
            && self.packet_bytes <= 1 << 30
            && self.packet_bytes % PAGE as u64 == 0
    }

    fn submissions(&self) -> usize {
        CELLS
    }

    fn completions(&self) -> usize {
        CELLS + CELL * self.cells as usize
    }

    pub(super) fn packets(&self) -> usize {
        (self.completions() + CELL * self.cells as usize).next_multiple_of(PAGE)
    }

    /// Returns the number of bytes of the whole area.
    pub(super) fn bytes(&self) -> usize {
        self.packets() + self.packet_bytes as usize
    }
}

/// One of the two rings of cells: submissions go from the caller to the worker, completions from the
/// worker to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingName {
    Submissions,
    Completions,
}

/// Reason why an area cannot be made or mapped.
#[derive(Debug, thiserror::Error)]
pub enum AreaError {
    /// The sizes are out of range, or the peer's memfd is too small for them, not sealed against a change of
    /// its size, or of huge pages.
    #[error("shared area: {cells} cells and {packet_bytes} packet bytes: {reason}")]
    Sizes {
        /// Requested number of cells of each ring.
        cells: u32,
        /// Requested number of bytes for packets.
        packet_bytes: u64,
        /// Description of the defect of the sizes or of the memfd.
        reason: &'static str,
    },
    /// A system call failed.
    #[error("shared area: {call}: {errno}")]
    Os {
        /// Name of the system call.
        call: &'static str,
        /// The kernel's error.
        errno: Errno,
    },
}

#[cfg(not(loom))]
mod shared {
    use std::os::fd::{BorrowedFd, OwnedFd};
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    use super::super::sealed::{Sealed, SealedError};
    use super::*;

    /// Memory that both processes map: a memfd, sealed against a change of its size, and this process's
    /// mapping of it. The memory is accessed through atomics, or through raw pointers whose users are
    /// responsible for them.
    #[derive(Debug)]
    pub struct SharedArea {
        memory: Sealed,
        sizes: Sizes,
    }

    impl SharedArea {
        /// Makes a zeroed area. The kernel allocates its pages on first access, or now with
        /// `vm.overcommit_memory=2`.
        ///
        /// # Errors
        /// The sizes are out of range, or a system call fails (not enough memory, for example).
        pub fn new(sizes: Sizes) -> Result<SharedArea, AreaError> {
            if !sizes.valid() {
                return Err(refused(sizes, "cells or bytes are out of range"));
            }
            let memory = Sealed::new("framepath-area", sizes.bytes()).map_err(|why| failed(sizes, why))?;
            Ok(SharedArea { memory, sizes })
        }

        /// Maps an area that a peer made.
        ///
        /// # Errors
        /// The sizes are out of range; the memfd is not sealed against a change of its size (the peer could
        /// otherwise remove the memory from this process), has huge pages, or is too small; or a system
        /// call fails.
        pub fn open(fd: OwnedFd, sizes: Sizes) -> Result<SharedArea, AreaError> {
            if !sizes.valid() {
                return Err(refused(sizes, "cells or bytes are out of range"));
            }
            let memory = Sealed::open(fd, sizes.bytes()).map_err(|why| failed(sizes, why))?;
            Ok(SharedArea { memory, sizes })
        }

        /// Returns the memfd, to send to the peer.
        pub fn fd(&self) -> BorrowedFd<'_> {
            self.memory.fd()
        }

        /// Returns the sizes of the area's parts.
        pub fn sizes(&self) -> Sizes {
            self.sizes
        }

        pub(in super::super) fn word(&self, line: AreaWord) -> &AtomicU64 {
            self.at(line as usize * LINE)
        }

        pub(in super::super) fn flag(&self, line: AreaWord) -> &AtomicU32 {
            self.at(line as usize * LINE)
        }

        /// Returns word `word` (0 to 7) of cell number `cell` of `ring`. Cells are counted from 0 since
        /// the start; the number wraps at the ring's size.
        pub(in super::super) fn cell(&self, ring: RingName, cell: u64, word: usize) -> &AtomicU64 {
            assert!(word < CELL / 8, "word {word} of a cell");
            let first = match ring {
                RingName::Submissions => self.sizes.submissions(),
                RingName::Completions => self.sizes.completions(),
            };
            let index = (cell & u64::from(self.sizes.cells - 1)) as usize;
            self.at(first + index * CELL + word * 8)
        }

        /// Returns the number of submissions that the worker has taken so far, by its own report.
        pub fn taken(&self) -> u64 {
            // Relaxed, as in the functions below: an observer needs no order.
            self.word(AreaWord::SubmissionHead).load(Ordering::Relaxed)
        }

        /// Returns the number of completions that the worker has written so far, by its own report.
        pub fn completed(&self) -> u64 {
            self.word(AreaWord::CompletionTail).load(Ordering::Relaxed)
        }

        /// Returns true if the worker reports that it sleeps until a submission arrives; the word is a claim
        /// that the caller may not rely on.
        pub fn worker_sleeps(&self) -> bool {
            self.flag(AreaWord::WorkerBell).load(Ordering::Relaxed) != 0
        }

        /// Returns true if the worker, as the owner of a pool of frames or packets, reports that it sleeps
        /// until one of them is returned.
        pub fn worker_awaits_slot(&self) -> bool {
            self.flag(AreaWord::SlotBell).load(Ordering::Relaxed) != 0
        }

        /// Returns the word of the bell on which the owner of a pool of frames or packets sleeps until
        /// one is returned.
        pub fn slot_bell(&self) -> &AtomicU32 {
            self.flag(AreaWord::SlotBell)
        }

        /// Returns the words with a bit per slot or packet id, 64 bits per word, lowest first. The process
        /// that returns a frame or packet sets the bit of its slot or id; the pool's owner clears the bit
        /// when it collects the return.
        pub fn slot_summary(&self) -> &[AtomicU64] {
            // SAFETY: the range lies inside the mapping, is aligned, and
            // atomics are valid for all bit patterns.
            unsafe {
                std::slice::from_raw_parts(self.memory.base().add(GIVE_BACK).cast().as_ptr(), SLOTS / 64)
            }
        }

        /// Returns one counter per slot or packet id: the number of times that a frame of the slot, or the
        /// packet of the id, was returned and not yet collected by the pool's owner.
        pub fn slot_counts(&self) -> &[AtomicU32] {
            // SAFETY: as above.
            unsafe {
                std::slice::from_raw_parts(
                    self.memory.base().add(GIVE_BACK + SUMMARY_BYTES).cast().as_ptr(),
                    SLOTS,
                )
            }
        }

        /// Returns the address of the first packet byte of the area, at a page boundary.
        pub(in super::super) fn packets(&self) -> NonNull<u8> {
            // SAFETY: inside the mapping, or its end if there are no packet bytes.
            unsafe { self.memory.base().add(self.sizes.packets()) }
        }

        /// Returns the atomic word `offset` bytes after the start of the area. Panics if the offset is
        /// not aligned for the word, or if the word does not end before the packet bytes.
        fn at<T: Atomic>(&self, offset: usize) -> &T {
            assert!(offset + size_of::<T>() <= self.sizes.packets() && offset % align_of::<T>() == 0);
            // SAFETY: the mapping is that large (checked when it was made, and
            // sealed), page-aligned, and lives as long as `self`; atomics are
            // valid for all bit patterns, whichever process writes them.
            unsafe { self.memory.base().add(offset).cast::<T>().as_ref() }
        }
    }

    /// Types that may be placed in memory which another process writes.
    trait Atomic {}
    impl Atomic for AtomicU32 {}
    impl Atomic for AtomicU64 {}

    fn failed(sizes: Sizes, why: SealedError) -> AreaError {
        match why {
            SealedError::Kind(reason) => refused(sizes, reason),
            SealedError::Os(call, errno) => AreaError::Os { call, errno },
        }
    }

    fn refused(sizes: Sizes, reason: &'static str) -> AreaError {
        AreaError::Sizes { cells: sizes.cells, packet_bytes: sizes.packet_bytes, reason }
    }
}

/// Shared area under the model checker: the words and rings, made of the checker's atomics. It has no
/// packet bytes and no give-back words.
#[cfg(loom)]
mod modelled {
    use loom::sync::atomic::{AtomicU32, AtomicU64};

    use super::*;

    #[derive(Debug)]
    pub struct SharedArea {
        sizes: Sizes,
        words: Vec<AtomicU64>,
        flags: Vec<AtomicU32>,
        cells: Vec<AtomicU64>,
    }

    impl SharedArea {
        pub fn new(sizes: Sizes) -> Result<SharedArea, AreaError> {
            let words = || (0..LINES).map(|_| AtomicU64::new(0)).collect();
            let cells = 2 * sizes.cells as usize * CELL / 8;
            Ok(SharedArea {
                sizes,
                words: words(),
                flags: (0..LINES).map(|_| AtomicU32::new(0)).collect(),
                cells: (0..cells).map(|_| AtomicU64::new(0)).collect(),
            })
        }

        pub fn sizes(&self) -> Sizes {
            self.sizes
        }

        pub(in super::super) fn word(&self, line: AreaWord) -> &AtomicU64 {
            &self.words[line as usize]
        }

        pub(in super::super) fn flag(&self, line: AreaWord) -> &AtomicU32 {
            &self.flags[line as usize]
        }

        pub(in super::super) fn cell(&self, ring: RingName, cell: u64, word: usize) -> &AtomicU64 {
            let index = (cell & u64::from(self.sizes.cells - 1)) as usize;
            let first = if ring == RingName::Submissions { 0 } else { self.sizes.cells as usize };
            &self.cells[(first + index) * CELL / 8 + word]
        }
    }
}
