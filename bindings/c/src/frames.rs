// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of a running path for C.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use framepath::{Frames, Level, NextFrame, Options, Pipeline, SeekTo};

use crate::error::{attempt, framepath_error, give};
use crate::frame::{FrameOrigin, framepath_frame};
use crate::handle::{Alive, guarded, text};

/// Running path, whose frames a program takes. Ended by `framepath_close`. One thread at a time may use it.
#[allow(non_camel_case_types)]
pub struct framepath_frames {
    alive: Alive,
    frames: Frames,
    origin: Arc<FrameOrigin>,
}

/// Opens a video file for decoding. With `sandboxed`, demuxer and decoder run in processes of their own that reach neither files nor the
/// network, and whose crash costs no frame. Their program is the command `framepath` of the same version, next to the program, in PATH, or
/// named by the variable FRAMEPATH_WORKER. Returns null on failure.
///
/// # Safety
/// `file` ends in a zero; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_open(
    file: *const c_char,
    sandboxed: bool,
    error: *mut *mut framepath_error,
) -> *mut framepath_frames {
    // SAFETY: as the caller promises.
    let Some(file) = (unsafe { text(file) }) else {
        // SAFETY: as the caller promises.
        unsafe { give(error, "the name of the file is null, or no UTF-8") };
        return ptr::null_mut();
    };
    let host = if sandboxed { "process" } else { "inline" };
    let path = format!("file {} ! decode host={host}", framepath::path::quote(file));
    // SAFETY: as the caller promises.
    unsafe { start(&path, error) }
}

/// Starts a path without a sink, such as `file clip.mp4 ! decode ! scale size=640x360`. Returns null on failure.
///
/// # Safety
/// `path` ends in a zero; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_start(
    path: *const c_char,
    error: *mut *mut framepath_error,
) -> *mut framepath_frames {
    // SAFETY: as the caller promises.
    let Some(path) = (unsafe { text(path) }) else {
        // SAFETY: as the caller promises.
        unsafe { give(error, "the path is null, or no UTF-8") };
        return ptr::null_mut();
    };
    // SAFETY: as the caller promises.
    unsafe { start(path, error) }
}

/// # Safety
/// `error` is null or writable.
unsafe fn start(path: &str, error: *mut *mut framepath_error) -> *mut framepath_frames {
    framepath::silence_ffmpeg();
    let start = || framepath_frames::start(Pipeline::parse(path).map_err(|error| error.to_string())?);
    // SAFETY: as the caller promises.
    unsafe { attempt(error, ptr::null_mut(), start) }
}

impl framepath_frames {
    /// Starts a pipeline without a sink, and makes a handle of its frames.
    ///
    /// # Errors
    /// The text of the failure.
    pub(crate) fn start(pipeline: Pipeline) -> Result<*mut framepath_frames, String> {
        let options = Options { level: Level::Times, ..Options::default() };
        let frames = pipeline.frames_with(options).map_err(|error| error.to_string())?;
        let origin = FrameOrigin::new(frames.stream().map(|stream| stream.time_base));
        Ok(Box::into_raw(Box::new(framepath_frames { alive: Alive::new(), frames, origin })))
    }
}

/// Waits for the next frame, and gives it to the caller. Returns 1 with a frame, 0 at the end, and -1 on failure, after which the end
/// follows.
///
/// # Safety
/// `frames` is null or was not closed; `frame` is writable; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_next(
    frames: *mut framepath_frames,
    frame: *mut *mut framepath_frame,
    error: *mut *mut framepath_error,
) -> c_int {
    // SAFETY: as the caller promises.
    let (Some(frames), false) = (unsafe { frames.as_mut() }, frame.is_null()) else {
        // SAFETY: as the caller promises.
        unsafe { give(error, "a pointer is null") };
        return -1;
    };
    frames.alive.check();
    // SAFETY: as the caller promises.
    unsafe { *frame = ptr::null_mut() };
    let failed = match guarded(None, || Some(frames.frames.next_unless(|| false))) {
        Some(NextFrame::Frame(Ok(next))) => {
            // SAFETY: as the caller promises.
            unsafe { *frame = framepath_frame::new(next, &frames.origin) };
            return 1;
        }
        Some(NextFrame::End | NextFrame::News) => return 0,
        Some(NextFrame::Frame(Err(error))) => error.to_string(),
        None => "a panic, which is a bug".to_owned(),
    };
    // SAFETY: as the caller promises.
    unsafe { give(error, failed) };
    -1
}

/// Goes to a time, in seconds from the stream's start, also behind its end: the next frame is the first one that is not before it. Returns
/// false on failure; the frames then go on.
///
/// # Safety
/// `frames` is null or was not closed; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_seek(
    frames: *mut framepath_frames,
    seconds: f64,
    error: *mut *mut framepath_error,
) -> bool {
    // SAFETY: as the caller promises.
    let Some(frames) = (unsafe { frames.as_mut() }) else {
        // SAFETY: as the caller promises.
        unsafe { give(error, "a pointer is null") };
        return false;
    };
    frames.alive.check();
    let failed = match Duration::try_from_secs_f64(seconds) {
        Err(_) => format!("a time of {seconds} s is not possible"),
        // Rounded down, so that the time of a frame finds this frame.
        Ok(_) => match frames.frames.seek(Duration::from_nanos((seconds * 1e9) as u64), SeekTo::Exact) {
            Ok(()) => return true,
            Err(error) => error.to_string(),
        },
    };
    // SAFETY: as the caller promises.
    unsafe { give(error, failed) };
    false
}

/// Returns the seconds from the start of the source's stream to its end, as its container declares it; -1 if that is not known, as for
/// elementary and live streams, and for null.
///
/// # Safety
/// `frames` is null or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_duration(frames: *const framepath_frames) -> f64 {
    // SAFETY: as the caller promises.
    let Some(frames) = (unsafe { frames.as_ref() }) else { return -1.0 };
    frames.alive.check();
    frames.frames.duration().map_or(-1.0, |duration| duration.as_secs_f64())
}

/// Ends the decoder and its processes. Frames that the program has stay valid. Does nothing for null.
///
/// # Safety
/// `frames` is null or was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_close(frames: *mut framepath_frames) {
    if !frames.is_null() {
        // SAFETY: as the caller promises; it was made by Box.
        let frames = unsafe { Box::from_raw(frames) };
        guarded((), || drop(frames));
    }
}
