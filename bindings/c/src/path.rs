// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths that C builds from text and functions.

use std::ffi::{c_char, c_void};
use std::ptr;

use framepath::Pipeline;

use crate::callback::{Callback, CallbackFunction, framepath_sink, framepath_stage};
use crate::error::{attempt, framepath_error};
use crate::frames::framepath_frames;
use crate::handle::{Alive, guarded, text as read_text};
use crate::report::framepath_report;
use crate::run::{parse, run};

/// Path that is being built from text and functions. Runs once. Ended by `framepath_path_free`. One thread at a time may use it.
#[allow(non_camel_case_types)]
pub struct framepath_path {
    alive: Alive,
    /// The reason, if the path cannot run any more.
    pipeline: Result<Pipeline, String>,
}

/// Takes the pipeline out of a path, which cannot run without it.
///
/// # Errors
/// The path is null, has run, or has failed before.
///
/// # Safety
/// `path` is null or a path that was not freed.
unsafe fn take(path: *mut framepath_path) -> Result<Pipeline, String> {
    // SAFETY: as the caller promises.
    let path = unsafe { path.as_mut() }.ok_or("the path is null")?;
    path.alive.check();
    let reason = match &path.pipeline {
        Ok(_) => "a path runs once; make another one".to_owned(),
        Err(reason) => reason.clone(),
    };
    std::mem::replace(&mut path.pipeline, Err(reason))
}

/// Changes the pipeline of a path. If `change` fails, so do all later calls for the path, with the same text.
///
/// # Safety
/// `path` is null or a path that was not freed; `error` is null or writable.
unsafe fn change(
    path: *mut framepath_path,
    error: *mut *mut framepath_error,
    change: impl FnOnce(Pipeline) -> Result<Pipeline, String>,
) -> bool {
    let changed = || {
        // SAFETY: as the caller promises.
        let pipeline = unsafe { take(path) }.and_then(change);
        let failed = pipeline.as_ref().err().cloned();
        // SAFETY: as the caller promises.
        if let Some(path) = unsafe { path.as_mut() } {
            path.pipeline = pipeline;
        }
        failed.map_or(Ok(true), Err)
    };
    // SAFETY: as the caller promises.
    unsafe { attempt(error, false, changed) }
}

/// Starts a path with text: a source, and stages and a sink or none, such as `file clip.mp4 ! decode`. Returns null on failure.
///
/// # Safety
/// `text` is null or ends in a zero; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_path_new(
    text: *const c_char,
    error: *mut *mut framepath_error,
) -> *mut framepath_path {
    let new = || {
        // SAFETY: as the caller promises.
        let pipeline = Ok(unsafe { parse(text) }?);
        Ok(Box::into_raw(Box::new(framepath_path { alive: Alive::new(), pipeline })))
    };
    // SAFETY: as the caller promises.
    unsafe { attempt(error, ptr::null_mut(), new) }
}

/// Adds text behind the last hop of a path: stages and queues, and a sink or none, such as `queue ! scale size=640x360`. Returns false on
/// failure. All later calls for the path then fail with the same error, so that a program may check only the last one.
///
/// # Safety
/// `path` is null or was not freed; `text` is null or ends in a zero; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_path_append(
    path: *mut framepath_path,
    text: *const c_char,
    error: *mut *mut framepath_error,
) -> bool {
    let append = |pipeline: Pipeline| {
        // SAFETY: as the caller promises.
        let text = unsafe { read_text(text) }.ok_or("the text is null, or no UTF-8")?;
        pipeline.append(text).map_err(|error| error.to_string())
    };
    // SAFETY: as the caller promises.
    unsafe { change(path, error, append) }
}

/// Adds a function behind the last hop of a path. `name` is the stage's name in errors and in the report; null for `stage`. The path calls
/// the function with `user` until `framepath_path_run` or `framepath_close` returns. Returns false on failure, as `framepath_path_append`.
///
/// # Safety
/// `path` is null or was not freed; `name` is null or ends in a zero; `error` is null or writable; `stage` may be called, and `user` used,
/// on any thread until the run has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_path_stage(
    path: *mut framepath_path,
    name: *const c_char,
    stage: framepath_stage,
    user: *mut c_void,
    error: *mut *mut framepath_error,
) -> bool {
    let add = |pipeline: Pipeline| {
        // SAFETY: as the caller promises.
        let name = unsafe { read_text(name) }.unwrap_or("stage");
        let function = CallbackFunction::Stage(stage.ok_or_else(|| format!("{name}: the function is null"))?);
        // SAFETY: as the caller promises.
        Ok(pipeline.stage(unsafe { Callback::new(function, user) }).named(name))
    };
    // SAFETY: as the caller promises.
    unsafe { change(path, error, add) }
}

/// Runs a path to its end, and returns the report; null on failure, also of a function. With `sink`, the path has no sink of its own, and
/// each frame is given to the function, with `user`. No function of the path is called after the return. The path cannot run again, and
/// must still be freed.
///
/// # Safety
/// `path` is null or was not freed; `error` is null or writable; `sink` may be called, and `user` used, on another thread while this function
/// runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_path_run(
    path: *mut framepath_path,
    sink: framepath_sink,
    user: *mut c_void,
    error: *mut *mut framepath_error,
) -> *mut framepath_report {
    // SAFETY: as the caller promises.
    unsafe { attempt(error, ptr::null_mut(), || run(take(path)?, sink, user)) }
}

/// Starts a path that has no sink, for `framepath_next`; null on failure. The functions of the path are called on another thread, until
/// `framepath_close` returns. The path cannot run again, and must still be freed, which does not end the frames.
///
/// # Safety
/// `path` is null or was not freed; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_path_start(
    path: *mut framepath_path,
    error: *mut *mut framepath_error,
) -> *mut framepath_frames {
    // SAFETY: as the caller promises.
    unsafe { attempt(error, ptr::null_mut(), || framepath_frames::start(take(path)?)) }
}

/// Ends a path, whether it has run or not. Does nothing for null.
///
/// # Safety
/// `path` is null or was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_path_free(path: *mut framepath_path) {
    if !path.is_null() {
        // SAFETY: as the caller promises; it was made by Box.
        let path = unsafe { Box::from_raw(path) };
        guarded((), || drop(path));
    }
}
