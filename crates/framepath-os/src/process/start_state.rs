// SPDX-License-Identifier: MIT OR Apache-2.0
//! State with which this process was started and that Rust's runtime changes before `main`: it opens /dev/null in place of
//! closed standard files, and ignores SIGPIPE.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// True for each of the descriptors 0 to 2 that was closed.
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// True if SIGPIPE was ignored.
static IGNORES_PIPES: AtomicBool = AtomicBool::new(false);

/// The loader calls the functions of this section before Rust's runtime begins.
// SAFETY: the section holds addresses of functions that take what the loader passes to them, or less; this one needs
// neither the runtime nor memory.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // Relaxed, here and below: no other thread runs yet.
    for (descriptor, closed) in (0..).zip(&CLOSED) {
        // SAFETY: fcntl(2) on any number is harmless.
        closed.store(unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0, Ordering::Relaxed);
    }
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action, the call only writes the present one, which is read if it succeeded.
    let ignores = unsafe {
        libc::sigaction(libc::SIGPIPE, ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init_ref().sa_sigaction == libc::SIG_IGN
    };
    IGNORES_PIPES.store(ignores, Ordering::Relaxed);
}

/// Returns true if standard input (0), output (1) or error (2) was closed. Can be called on any thread.
pub(crate) fn was_closed(descriptor: usize) -> bool {
    CLOSED[descriptor].load(Ordering::Relaxed)
}

/// Makes the calling process like that in which this program was started. For a forked child that executes another program
/// next: the descriptors that were closed are closed again, whatever has their numbers now. Async-signal-safe.
///
/// # Safety
/// Nothing else in the process uses these descriptors any more.
pub(crate) unsafe fn restore() {
    for descriptor in 0..CLOSED.len() {
        if was_closed(descriptor) {
            // SAFETY: the caller's promise.
            unsafe { libc::close(descriptor as i32) };
        }
    }
    if IGNORES_PIPES.load(Ordering::Relaxed) {
        // SAFETY: an ignored signal has no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    }
}
