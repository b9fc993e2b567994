// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C as a flag: the first one asks for a clean end, the second ends at once.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler for SIGINT and SIGTERM. Call once, at the start.
pub fn install() -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int) = note;
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero is a valid sigaction; the fields set next are plain
    // integers. The handler touches only an atomic and calls _exit, both
    // async-signal-safe. No SA_RESTART: sleeping calls return and are retried
    // by loops that look at the flag.
    unsafe {
        let action_ptr = action.as_mut_ptr();
        (*action_ptr).sa_sigaction = handler as usize;
        libc::sigemptyset(&raw mut (*action_ptr).sa_mask);
        for number in [libc::SIGINT, libc::SIGTERM] {
            if libc::sigaction(number, action_ptr, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// Whether a signal came.
#[inline]
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

extern "C" fn note(number: libc::c_int) {
    if INTERRUPTED.swap(true, Ordering::Relaxed) {
        // SAFETY: _exit is async-signal-safe.
        unsafe { libc::_exit(128 + number) }
    }
}
