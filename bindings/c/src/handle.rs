// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pointers that C keeps.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// First member of what a handle points to: tells handles that are used after their end from others, where debug assertions are on.
#[derive(Debug)]
pub(crate) struct Alive(u64);

const ALIVE: u64 = 0x6672_616d_6570_6174;

impl Alive {
    pub(crate) fn new() -> Alive {
        Alive(ALIVE)
    }

    /// Ends the program if the handle has ended, where debug assertions are on. Not by a panic, which `guarded` would catch.
    pub(crate) fn check(&self) {
        if cfg!(debug_assertions) && self.0 != ALIVE {
            eprintln!("framepath: a handle is used after its end");
            std::process::abort();
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.check();
        // SAFETY: the member is writable; volatile, so that the compiler keeps the write.
        unsafe { (&raw mut self.0).write_volatile(0) };
    }
}

/// Calls a function, and returns `otherwise` if it panics: a panic is a bug, and must not end the program of the caller.
pub(crate) fn guarded<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(otherwise)
}

/// Returns the text at `text`; `None` for null and for bytes that are not UTF-8.
///
/// # Safety
/// `text` is null or ends in a zero.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}
