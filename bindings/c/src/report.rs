// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of runs for C.

use std::ffi::{CString, c_char};

use framepath::{Report, export};

use crate::handle::Alive;

/// Report of a run. Ended by `framepath_report_free`.
#[allow(non_camel_case_types)]
pub struct framepath_report {
    alive: Alive,
    frames: u64,
    lost: u64,
    json: CString,
}

impl framepath_report {
    /// Makes a handle of a report.
    ///
    /// # Errors
    /// The text of the run's error.
    pub(crate) fn new(mut report: Report) -> Result<*mut framepath_report, String> {
        if let Some(error) = &report.error {
            return Err(error.to_string());
        }
        let json = serde_json::to_string(&export::summary::summary(&mut report, "run")).unwrap_or_default();
        let lost = report.losses().iter().map(|loss| loss.count).sum();
        let json = CString::new(json).unwrap_or_default();
        Ok(Box::into_raw(Box::new(framepath_report {
            alive: Alive::new(),
            frames: report.frames,
            lost,
            json,
        })))
    }
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
