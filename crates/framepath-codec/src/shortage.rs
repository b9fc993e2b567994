// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection of failed allocations in a library that hides them.
//!
//! Some demuxers and decoders treat a failed allocation as damage: they drop the packet or the
//! picture and continue with the next one. The C library sets `errno` to ENOMEM if the kernel denies memory, and a successful
//! call does not change `errno`. So `errno` shows the failure after the library's call has
//! returned.
//!
//! `errno` alone is no proof: the C library also sets ENOMEM if it cannot reserve 64 MiB for a
//! thread's heap, and then takes the memory elsewhere. Decoders have many threads, so
//! [`is_short`] also tries to map memory.

use std::ptr;

/// Watch of the calling thread's `errno` during one call into a library.
pub(crate) struct Shortage;

impl Shortage {
    /// Starts the watch: sets `errno` to 0.
    pub(crate) fn watch() -> Shortage {
        set(0);
        Shortage
    }

    /// Returns true if `errno` is ENOMEM: an allocation of this thread has failed since
    /// [`watch`](Shortage::watch). Misses the failure if a later system call failed for another
    /// reason.
    pub(crate) fn occurred(&self) -> bool {
        get() == libc::ENOMEM
    }
}

/// Returns true if `errno` of the calling thread is ENOMEM, and sets it to 0.
pub(crate) fn take() -> bool {
    let occurred = get() == libc::ENOMEM;
    if occurred {
        set(0);
    }
    occurred
}

/// Sets `errno` of the calling thread to ENOMEM again after [`take`].
pub(crate) fn restore() {
    set(libc::ENOMEM);
}

/// Returns true if the process cannot map `bytes` more: its address space or the machine's memory is
/// used up. Preserves `errno`.
pub(crate) fn is_short(bytes: usize) -> bool {
    let before = get();
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new private mapping, which nothing uses, and which is removed with its own length.
    let mapped = unsafe {
        let start = libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0);
        start != libc::MAP_FAILED && libc::munmap(start, bytes) == 0
    };
    set(before);
    !mapped
}

/// Runs `callback`, which the library calls during the watched call, and preserves an earlier
/// ENOMEM in `errno`. Returns the result of `callback`.
pub(crate) fn keep_over<T>(callback: impl FnOnce() -> T) -> T {
    let before = get();
    let result = callback();
    if before == libc::ENOMEM {
        set(before);
    }
    result
}

fn get() -> i32 {
    // SAFETY: the address of this thread's errno, always valid.
    unsafe { *libc::__errno_location() }
}

fn set(value: i32) {
    // SAFETY: as in `get`.
    unsafe { *libc::__errno_location() = value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests memory that exceeds every address space.
    fn fail_to_allocate() {
        let mut memory = std::ptr::null_mut();
        // SAFETY: `memory` is a valid place for the pointer; it stays null on failure.
        let code = unsafe { libc::posix_memalign(&mut memory, 64, 1 << 62) };
        assert_eq!((code, memory.is_null()), (libc::ENOMEM, true));
    }

    #[test]
    fn a_failed_allocation_is_seen_behind_later_successes() {
        let watch = Shortage::watch();
        assert!(!watch.occurred());
        fail_to_allocate();
        drop(vec![1_u8; 1 << 20]);
        keep_over(|| std::fs::File::open("/nonexistent").unwrap_err());
        assert!(watch.occurred());
        assert!(!Shortage::watch().occurred());
    }

    #[test]
    fn memory_that_cannot_be_mapped_is_short() {
        let watch = Shortage::watch();
        assert!(is_short(1 << 62) && !is_short(1 << 20) && !watch.occurred());
        fail_to_allocate();
        assert!(!is_short(1 << 20) && watch.occurred());
        assert!(take() && !take());
    }

    #[test]
    fn other_failures_are_no_shortage() {
        let watch = Shortage::watch();
        keep_over(|| std::fs::File::open("/nonexistent").unwrap_err());
        assert!(!watch.occurred());
    }
}
