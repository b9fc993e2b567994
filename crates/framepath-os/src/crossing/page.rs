// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page of words that one process writes and another process reads at any time: the counters and other
//! figures of a worker, for observers.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::fstat;
use rustix::io::Errno;

use super::sealed::{Sealed, SealedError};

const BYTES: usize = 4096;

/// Number of words of a page: 512, each of 64 bits.
pub const PAGE_WORDS: usize = BYTES / 8;

/// Sealed memfd of one page, mapped. Each word is a number that the writing process sets or adds to. All
/// accesses are Relaxed: a word orders nothing, and a value that is read may be slightly old.
#[derive(Debug)]
pub struct Page(Sealed);

impl Page {
    /// Makes a page of zeros.
    ///
    /// # Errors
    /// From the system calls: there is not enough memory or no free descriptor, for example.
    pub fn new() -> Result<Page, Errno> {
        Sealed::new("framepath-page", BYTES).map(Page).map_err(errno)
    }

    /// Maps a page made by another process.
    ///
    /// # Errors
    /// `INVAL` if `fd` is not a memfd of 4096 bytes in an ordinary page, or if it is not sealed against a
    /// change of its size; without this seal an access could end in SIGBUS. Other errors of the system
    /// calls.
    pub fn open(fd: OwnedFd) -> Result<Page, Errno> {
        if fstat(&fd)?.st_size != BYTES as i64 {
            return Err(Errno::INVAL);
        }
        Sealed::open(fd, BYTES).map(Page).map_err(errno)
    }

    /// Returns the memfd, to send to the other process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// Returns word `at`, from 0.
    ///
    /// # Panics
    /// `at` is [`PAGE_WORDS`] or more.
    pub fn get(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    /// Writes `value` to word `at`, from 0. Panics as [`Page::get`] does.
    pub fn set(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Relaxed);
    }

    /// Adds `value` to word `at`, from 0, and wraps on overflow. The addition is not atomic: an addition by
    /// another thread at the same time may be lost. Panics as [`Page::get`] does.
    pub fn add(&self, at: usize, value: u64) {
        self.set(at, self.get(at).wrapping_add(value));
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < PAGE_WORDS, "word {at} of a page");
        // SAFETY: the word is inside the mapping. The mapping is page-aligned and lives as long as
        // `self`, and the memfd is sealed against a change of its size. An atomic is valid for every
        // bit pattern that another process writes.
        unsafe { self.0.base().cast::<AtomicU64>().add(at).as_ref() }
    }
}

fn errno(refused: SealedError) -> Errno {
    match refused {
        SealedError::Kind(_) => Errno::INVAL,
        SealedError::Os(_, errno) => errno,
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn both_sides_see_the_words() {
        let page = Page::new().unwrap();
        let other = Page::open(page.fd().try_clone_to_owned().unwrap()).unwrap();
        other.add(0, 3);
        other.add(0, 4);
        other.set(PAGE_WORDS - 1, u64::MAX);
        assert_eq!((page.get(0), page.get(1), page.get(PAGE_WORDS - 1)), (7, 0, u64::MAX));
        other.add(PAGE_WORDS - 1, 2);
        assert_eq!(page.get(PAGE_WORDS - 1), 1);
    }

    #[test]
    fn memory_that_can_shrink_or_has_another_size_is_refused() {
        let file = crate::memory::memory_file("page").unwrap();
        file.set_len(BYTES as u64).unwrap();
        assert!(Page::open(file.into()).is_err());
        let fd = memfd_create("large", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, 2 * BYTES as u64).unwrap();
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert_eq!(Page::open(fd).unwrap_err(), Errno::INVAL);
        assert!(Page::open(std::fs::File::open("/dev/null").unwrap().into()).is_err());
    }
}
