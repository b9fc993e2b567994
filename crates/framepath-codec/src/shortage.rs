// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection of failed allocations in a library that hides them.
//!
//! Some demuxers treat a failed allocation as damage: they drop the packet and continue with the
//! next one. The C library sets `errno` to ENOMEM if the kernel denies memory, and a successful
//! call does not change `errno`. So `errno` shows the failure after the library's call has
//! returned.

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
    fn other_failures_are_no_shortage() {
        let watch = Shortage::watch();
        keep_over(|| std::fs::File::open("/nonexistent").unwrap_err());
        assert!(!watch.occurred());
    }
}
