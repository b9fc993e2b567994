// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deliberate faults for workers under test. Other code uses two of the functions, too: [`leave`] ends a
//! worker whose caller is gone, and [`hang`] keeps a zygote's first process alive.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::sync::futex;

/// Causes SIGSEGV, which ends the process unless the process handles this signal.
pub fn segmentation_fault() -> ! {
    // SAFETY: nothing is mapped at the lowest addresses (mmap_min_addr), so the store never
    // happens: the process ends here, as intended.
    unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(0) };
    // Reached only if a signal handler made the process continue after the store.
    hang()
}

/// Makes the calling thread sleep forever.
pub fn hang() -> ! {
    let word = AtomicU32::new(0);
    loop {
        futex::wait(&word, 0);
        debug_assert_eq!(word.load(Ordering::Relaxed), 0);
    }
}

/// Allocates and writes memory until there is no more, which ends the process by SIGABRT, SIGSEGV or
/// SIGKILL.
pub fn take_all_memory() -> ! {
    const STEP: usize = 16 << 20;
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        // A failed allocation ends the process by SIGABRT or SIGSEGV.
        taken.push(vec![1; STEP]);
        std::hint::black_box(&taken);
    }
}

/// Ends the process immediately with exit code 0 and without a message, as a worker or zygote does when the
/// process at the other end of its socket is gone.
pub fn leave() -> ! {
    // SAFETY: does not return, and runs nothing of this process.
    unsafe { libc::_exit(0) }
}
