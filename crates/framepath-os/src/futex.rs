// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping on a word in this process's memory, and waking who sleeps there.

use std::sync::atomic::AtomicU32;

use rustix::thread::futex::{self, Flags};

/// Sleeps while `word` holds `expected`. May return early (a signal, a
/// spurious wake-up): callers check their condition again. One system call.
pub fn wait(word: &AtomicU32, expected: u32) {
    // EAGAIN (the word changed) and EINTR both mean: look again.
    let _ = futex::wait(word, Flags::PRIVATE, expected, None);
}

/// Wakes at most one sleeper on `word`. One system call.
pub fn wake_one(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::PRIVATE, 1);
}
