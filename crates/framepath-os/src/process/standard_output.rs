// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output of this process, which its parent may have closed.
//!
//! Rust's runtime opens /dev/null in place of a closed standard file, so that no other file takes its number. Writes then
//! succeed, and the bytes are lost.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// True if standard output was closed when the program began.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// The loader calls the functions of this section before Rust's runtime begins.
// SAFETY: the section holds addresses of functions that take what the loader passes to them, or less; this one needs
// neither the runtime nor memory.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: fcntl(2) on any number is harmless.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    // Relaxed: no other thread runs yet.
    CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// Checks that standard output leads somewhere. Can be called on any thread.
///
/// # Errors
/// EBADF if it was closed when the program began.
pub fn check() -> io::Result<()> {
    match CLOSED.load(Ordering::Relaxed) {
        true => Err(io::Error::from_raw_os_error(libc::EBADF)),
        false => Ok(()),
    }
}
