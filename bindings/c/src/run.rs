// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of whole paths for C.

use std::ffi::{CString, c_char, c_void};
use std::ops::ControlFlow;
use std::ptr;

use framepath::{Options, Pipeline, Report, export};

use crate::error::{framepath_error, give};
use crate::frame::framepath_frame;
use crate::handle::{Alive, guarded, text};

/// Report of a run. Ended by `framepath_report_free`.
#[allow(non_camel_case_types)]
pub struct framepath_report {
    alive: Alive,
    frames: u64,
    lost: u64,
    json: CString,
}

/// Function that gets each frame of a run, in the thread of the hop before it. The frame belongs to the function, which frees it. Returns
/// false to end the run without an error.
#[allow(non_camel_case_types)]
pub type framepath_sink =
    Option<unsafe extern "C" fn(frame: *mut framepath_frame, user: *mut c_void) -> bool>;

/// Pointer of the program, which is passed to its function.
struct User(*mut c_void);

// SAFETY: the program promises it (`framepath_run`).
unsafe impl Send for User {}

impl User {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Runs a path to its end, and returns the report; null on failure. With `sink`, the path has no sink of its own, and each frame is given to
/// the function, with `user`.
///
/// # Safety
/// `path` ends in a zero; `error` is null or writable; `sink` may be called, and `user` used, on another thread while this function runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_run(
    path: *const c_char,
    sink: framepath_sink,
    user: *mut c_void,
    error: *mut *mut framepath_error,
) -> *mut framepath_report {
    // SAFETY: as the caller promises.
    let path = unsafe { text(path) };
    let user = User(user);
    let ran = guarded(Err("a panic, which is a bug".to_owned()), move || {
        let path = path.ok_or_else(|| "the path is null, or no UTF-8".to_owned())?;
        let mut pipeline = Pipeline::parse(path).map_err(|error| error.to_string())?;
        if let Some(sink) = sink {
            pipeline = pipeline.sink_fn(move |frame| {
                // SAFETY: as the caller of `framepath_run` promises.
                match unsafe { sink(framepath_frame::new(frame, None), user.get()) } {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
        }
        let report = pipeline.run(&Options::default()).map_err(|error| error.to_string())?;
        report_of(report)
    });
    match ran {
        Ok(report) => Box::into_raw(Box::new(report)),
        Err(text) => {
            // SAFETY: as the caller promises.
            unsafe { give(error, text) };
            ptr::null_mut()
        }
    }
}

fn report_of(mut report: Report) -> Result<framepath_report, String> {
    if let Some(error) = &report.error {
        return Err(error.to_string());
    }
    let json = serde_json::to_string(&export::summary::summary(&mut report, "run")).unwrap_or_default();
    let lost = report.losses().iter().map(|loss| loss.count).sum();
    let json = CString::new(json).unwrap_or_default();
    Ok(framepath_report { alive: Alive::new(), frames: report.frames, lost, json })
}

/// Returns the number of frames that reached the sink; 0 for null.
///
/// # Safety
/// `report` is null or was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_report_frames(report: *const framepath_report) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { report.as_ref() }.inspect(|report| report.alive.check()).map_or(0, |report| report.frames)
}

/// Returns the number of lost frames; 0 for null.
///
/// # Safety
/// `report` is null or was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_report_lost(report: *const framepath_report) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { report.as_ref() }.inspect(|report| report.alive.check()).map_or(0, |report| report.lost)
}

/// Returns the summary that `framepath run --json` writes, which lives as long as the report; an empty text for null.
///
/// # Safety
/// `report` is null or was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_report_json(report: *const framepath_report) -> *const c_char {
    // SAFETY: as the caller promises.
    unsafe { report.as_ref() }
        .inspect(|report| report.alive.check())
        .map_or(c"".as_ptr(), |report| report.json.as_ptr())
}

/// Ends a report. Does nothing for null.
///
/// # Safety
/// `report` is null or was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_report_free(report: *mut framepath_report) {
    if !report.is_null() {
        // SAFETY: as the caller promises; it was made by Box.
        drop(unsafe { Box::from_raw(report) });
    }
}

/// Returns the version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn framepath_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
