// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors for C.

use std::ffi::{CString, c_char};
use std::ptr;

use crate::handle::Alive;

/// Reason of a failure. Ended by `framepath_error_free`.
#[allow(non_camel_case_types)]
pub struct framepath_error {
    alive: Alive,
    text: CString,
}

/// Gives the caller an error, if it wants one.
///
/// # Safety
/// `error` is null or writable.
pub(crate) unsafe fn give(error: *mut *mut framepath_error, text: impl Into<Vec<u8>>) {
    let mut text: Vec<u8> = text.into();
    text.retain(|byte| *byte != 0);
    let text = CString::new(text).unwrap_or_default();
    if !error.is_null() {
        // SAFETY: as the caller promises.
        unsafe { *error = Box::into_raw(Box::new(framepath_error { alive: Alive::new(), text })) };
    }
}

/// Returns the text of an error, which lives as long as the error; an empty text for null.
///
/// # Safety
/// `error` is null or an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_error_text(error: *const framepath_error) -> *const c_char {
    // SAFETY: as the caller promises.
    match unsafe { error.as_ref() } {
        Some(error) => {
            error.alive.check();
            error.text.as_ptr()
        }
        None => c"".as_ptr(),
    }
}

/// Ends an error. Does nothing for null.
///
/// # Safety
/// `error` is null or an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_error_free(error: *mut framepath_error) {
    if !ptr::eq(error, ptr::null()) {
        // SAFETY: as the caller promises; it was made by Box.
        drop(unsafe { Box::from_raw(error) });
    }
}
