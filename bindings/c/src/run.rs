// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of whole paths for C.

use std::ffi::{c_char, c_void};
use std::ptr;

use framepath::{Options, Pipeline};

use crate::callback::{Callback, CallbackFunction, framepath_sink};
use crate::error::{attempt, framepath_error};
use crate::handle::text;
use crate::report::framepath_report;

/// Reads path text.
///
/// # Errors
/// The text of the failure.
///
/// # Safety
/// `path` is null or ends in a zero.
pub(crate) unsafe fn parse(path: *const c_char) -> Result<Pipeline, String> {
    // SAFETY: as the caller promises.
    let path = unsafe { text(path) }.ok_or("the path is null, or no UTF-8")?;
    framepath::silence_ffmpeg();
    Pipeline::parse(path).map_err(|error| error.to_string())
}

/// Runs a pipeline, which ends in the function `sink` if there is one, and makes a handle of its report.
///
/// # Errors
/// The text of the failure.
///
/// # Safety
/// `sink` and `user` are as `framepath_path_run` describes.
pub(crate) unsafe fn run(
    mut pipeline: Pipeline,
    sink: framepath_sink,
    user: *mut c_void,
) -> Result<*mut framepath_report, String> {
    if let Some(sink) = sink {
        // SAFETY: as the caller promises.
        pipeline = pipeline.sink(unsafe { Callback::new(CallbackFunction::Sink(sink), user) });
    }
    framepath_report::new(pipeline.run(&Options::default()).map_err(|error| error.to_string())?)
}

/// Runs a path to its end, and returns the report; null on failure. With `sink`, the path has no sink of its own, and each frame is given to
/// the function, with `user`. The same as `framepath_path_new`, `framepath_path_run` and `framepath_path_free`.
///
/// # Safety
/// `path` is null or ends in a zero; `error` is null or writable; `sink` may be called, and `user` used, on another thread while this
/// function runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_run(
    path: *const c_char,
    sink: framepath_sink,
    user: *mut c_void,
    error: *mut *mut framepath_error,
) -> *mut framepath_report {
    // SAFETY: as the caller promises.
    unsafe { attempt(error, ptr::null_mut(), || run(parse(path)?, sink, user)) }
}
