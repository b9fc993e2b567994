// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames for C.

use std::ffi::{CString, c_char};

use framepath::Frame;

use crate::handle::Alive;

/// Decoded frame. Keeps a buffer of the decoder until `framepath_frame_free`: a program that keeps more than 4 frames while it
/// asks for the next may wait for ever.
#[allow(non_camel_case_types)]
pub struct framepath_frame {
    alive: Alive,
    frame: Frame,
    format: CString,
    time: f64,
}

/// One plane of a frame: `rows` rows of `width` bytes, each `stride` bytes behind the one before. Samples of more than 8 bits have two
/// bytes, the lower one first.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct framepath_plane {
    /// First sample. Read-only, and valid as long as the frame. With `host=process` it is memory of a sandboxed process, which a decoder
    /// that has been taken over can change at any time: check what you read from it once, on a copy.
    pub data: *const u8,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Bytes of samples in a row.
    pub width: usize,
    /// Number of rows.
    pub rows: usize,
}

impl framepath_frame {
    /// Makes a handle of a frame; `seconds` are those of a tick of its time.
    pub(crate) fn new(frame: Frame, seconds: Option<f64>) -> *mut framepath_frame {
        let format = CString::new(frame.layout().format.name().to_lowercase()).unwrap_or_default();
        let time = frame.meta().pts.zip(seconds).map_or(-1.0, |(pts, seconds)| pts as f64 * seconds);
        Box::into_raw(Box::new(framepath_frame { alive: Alive::new(), frame, format, time }))
    }
}

/// # Safety
/// `frame` is null or a frame that was not freed.
unsafe fn of<'a>(frame: *const framepath_frame) -> Option<&'a framepath_frame> {
    // SAFETY: as the caller promises.
    let frame = unsafe { frame.as_ref() };
    frame.inspect(|frame| frame.alive.check())
}

/// Returns the width in pixels; 0 for null.
///
/// # Safety
/// `frame` is null or a frame that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_width(frame: *const framepath_frame) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { of(frame) }.map_or(0, |frame| frame.frame.layout().width)
}

/// Returns the height in pixels; 0 for null.
///
/// # Safety
/// `frame` is null or a frame that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_height(frame: *const framepath_frame) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { of(frame) }.map_or(0, |frame| frame.frame.layout().height)
}

/// Returns the pixel format, such as `yuv420p`, which lives as long as the frame; an empty text for null.
///
/// # Safety
/// `frame` is null or a frame that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_format(frame: *const framepath_frame) -> *const c_char {
    // SAFETY: as the caller promises.
    unsafe { of(frame) }.map_or(c"".as_ptr(), |frame| frame.format.as_ptr())
}

/// Returns the presentation time in seconds; -1 if it is not known.
///
/// # Safety
/// `frame` is null or a frame that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_time(frame: *const framepath_frame) -> f64 {
    // SAFETY: as the caller promises.
    unsafe { of(frame) }.map_or(-1.0, |frame| frame.time)
}

/// Returns true if the decoder has concealed parts of the picture, because the stream is damaged.
///
/// # Safety
/// `frame` is null or a frame that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_is_damaged(frame: *const framepath_frame) -> bool {
    // SAFETY: as the caller promises.
    unsafe { of(frame) }.is_some_and(|frame| frame.frame.meta().is_damaged)
}

/// Writes plane number `index`, from 0, to `plane`. Returns false, and writes nothing, if the frame has no such plane or a pointer is null.
///
/// # Safety
/// `frame` is null or a frame that was not freed; `plane` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_plane(
    frame: *const framepath_frame,
    index: usize,
    plane: *mut framepath_plane,
) -> bool {
    // SAFETY: as the caller promises.
    let Some(frame) = (unsafe { of(frame) }) else { return false };
    let Some(layout) = frame.frame.layout().planes().get(index) else { return false };
    if plane.is_null() {
        return false;
    }
    let data = frame.frame.plane(index).as_ptr();
    // SAFETY: as the caller promises.
    unsafe {
        *plane = framepath_plane { data, stride: layout.stride, width: layout.width, rows: layout.rows };
    }
    true
}

/// Gives back a frame. Any thread may do it. Does nothing for null.
///
/// # Safety
/// `frame` is null or a frame that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_free(frame: *mut framepath_frame) {
    if !frame.is_null() {
        // SAFETY: as the caller promises; it was made by Box.
        drop(unsafe { Box::from_raw(frame) });
    }
}
