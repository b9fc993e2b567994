// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors for C.

use std::ffi::{CString, c_char};
use std::ptr;

use crate::handle::{Alive, guarded, text as read_text};

/// Reason of a failure. Ended by `framepath_error_free`.
#[allow(non_camel_case_types)]
pub struct framepath_error {
    alive: Alive,
    text: CString,
}

impl framepath_error {
    fn new(text: impl Into<Vec<u8>>) -> *mut framepath_error {
        let mut text: Vec<u8> = text.into();
        text.retain(|byte| *byte != 0);
        let text = CString::new(text).unwrap_or_default();
        Box::into_raw(Box::new(framepath_error { alive: Alive::new(), text }))
    }

    /// Ends an error, and returns its text; `None` for null.
    ///
    /// # Safety
    /// `error` is null or an error that was not freed.
    pub(crate) unsafe fn take(error: *mut framepath_error) -> Option<String> {
        if error.is_null() {
            return None;
        }
        // SAFETY: as the caller promises; it was made by Box.
        let error = unsafe { Box::from_raw(error) };
        Some(error.text.to_string_lossy().into_owned())
    }
}

/// Gives the caller an error, if it wants one.
///
/// # Safety
/// `error` is null or writable.
pub(crate) unsafe fn give(error: *mut *mut framepath_error, text: impl Into<Vec<u8>>) {
    if !error.is_null() {
        // SAFETY: as the caller promises.
        unsafe { *error = framepath_error::new(text) };
    }
}

/// Returns the result of `call`. If the call fails or panics, gives the caller an error, and returns `otherwise`.
///
/// # Safety
/// `error` is null or writable.
pub(crate) unsafe fn attempt<T>(
    error: *mut *mut framepath_error,
    otherwise: T,
    call: impl FnOnce() -> Result<T, String>,
) -> T {
    guarded(Err("a panic, which is a bug".to_owned()), call).unwrap_or_else(|text| {
        // SAFETY: as the caller promises.
        unsafe { give(error, text) };
        otherwise
    })
}

/// Makes an error with a copy of `text`, for a failing `framepath_stage`. Null, and text that is not UTF-8, give an error that says only that
/// there is no message. Any thread may call it.
///
/// # Safety
/// `text` is null or ends in a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_error_new(text: *const c_char) -> *mut framepath_error {
    // SAFETY: as the caller promises.
    framepath_error::new(unsafe { read_text(text) }.unwrap_or("failure reported without an error message"))
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
