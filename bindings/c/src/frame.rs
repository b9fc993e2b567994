// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames for C.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use framepath::{CopyPool, Frame, Rational};

use crate::error::{attempt, framepath_error};
use crate::handle::{Alive, guarded};

/// Frame. Keeps a buffer of the decoder until `framepath_frame_free`: a program that keeps more than 4 frames while it
/// asks for the next may wait for ever.
#[allow(non_camel_case_types)]
pub struct framepath_frame {
    alive: Alive,
    /// `None` only during `framepath_frame_plane_mut`.
    frame: Option<Frame>,
    format: CString,
    time: f64,
    origin: Arc<FrameOrigin>,
}

/// Part that the frames of one path, stage or sink share.
pub(crate) struct FrameOrigin {
    /// Unit of the frames' times; `None` if it is not known.
    time_base: Option<Rational>,
    copies: Mutex<CopyPool>,
}

impl FrameOrigin {
    pub(crate) fn new(time_base: Option<Rational>) -> Arc<FrameOrigin> {
        Arc::new(FrameOrigin { time_base, copies: Mutex::default() })
    }
}

/// One plane of a frame: `rows` rows of `width` bytes, each `stride` bytes behind the one before. Samples of more than 8 bits have two
/// bytes, the lower one first.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct framepath_plane {
    /// First sample. Read-only, and valid as long as the frame, or until `framepath_frame_plane_mut` copies it. With `host=process` it is
    /// memory of a sandboxed process, which a decoder that has been taken over can change at any time: check what you read from it once, on a
    /// copy.
    pub data: *const u8,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Bytes of samples in a row.
    pub width: usize,
    /// Number of rows.
    pub rows: usize,
}

/// One plane of a frame, for writing: as `framepath_plane`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct framepath_plane_mut {
    /// First sample. No other process can change it. Writable until the frame is shared, passed on, given back or freed.
    pub data: *mut u8,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Bytes of samples in a row. The bytes behind them, up to the next row, are padding, except behind the last row.
    pub width: usize,
    /// Number of rows.
    pub rows: usize,
}

impl framepath_frame {
    /// Makes a handle of a frame.
    pub(crate) fn new(frame: Frame, origin: &Arc<FrameOrigin>) -> *mut framepath_frame {
        let format = CString::new(frame.layout().format.name().to_lowercase()).unwrap_or_default();
        let seconds = origin.time_base.and_then(Rational::value);
        let time = frame.meta().pts.zip(seconds).map_or(-1.0, |(pts, seconds)| pts as f64 * seconds);
        let origin = origin.clone();
        Box::into_raw(Box::new(framepath_frame {
            alive: Alive::new(),
            frame: Some(frame),
            format,
            time,
            origin,
        }))
    }

    /// Ends a handle, and returns its frame; `None` for null.
    ///
    /// # Safety
    /// `frame` is null or a frame that was not freed.
    pub(crate) unsafe fn take(frame: *mut framepath_frame) -> Option<Frame> {
        if frame.is_null() {
            return None;
        }
        // SAFETY: as the caller promises; it was made by Box.
        let mut frame = unsafe { Box::from_raw(frame) };
        frame.frame.take()
    }

    /// Returns plane `index` of this handle's frame, which becomes a copy if the pixels have another user.
    ///
    /// # Errors
    /// The text of the failure; the handle then has the frame that it had.
    fn plane_mut(&mut self, index: usize) -> Result<framepath_plane_mut, String> {
        let planes = self.frame.as_ref().map_or(0, |frame| frame.layout().planes().len());
        let frame = match self.frame.take_if(|_| index < planes) {
            Some(frame) => frame,
            None => return Err(format!("plane {index}: the frame has {planes}")),
        };
        let meta = frame.meta();
        let mut unique = match frame.try_unique() {
            Ok(unique) => unique,
            Err(shared) => {
                let mut copies = self.origin.copies.lock().unwrap_or_else(PoisonError::into_inner);
                // A second handle, because the first one goes back if there is no memory.
                match copies.writable(shared.share()) {
                    Ok(copy) => copy,
                    Err(error) => {
                        self.frame = Some(shared);
                        return Err(error.to_string());
                    }
                }
            }
        };
        let layout = unique.layout().planes()[index];
        let data = unique.plane_mut(index).as_mut_ptr();
        self.frame = Some(unique.freeze(meta));
        Ok(framepath_plane_mut { data, stride: layout.stride, width: layout.width, rows: layout.rows })
    }
}

/// # Safety
/// `frame` is null or a frame that was not freed.
unsafe fn handle<'a>(frame: *const framepath_frame) -> Option<&'a framepath_frame> {
    // SAFETY: as the caller promises.
    let frame = unsafe { frame.as_ref() };
    frame.inspect(|frame| frame.alive.check())
}

/// # Safety
/// `frame` is null or a frame that was not freed.
unsafe fn of<'a>(frame: *const framepath_frame) -> Option<&'a Frame> {
    // SAFETY: as the caller promises.
    unsafe { handle(frame) }.and_then(|frame| frame.frame.as_ref())
}

/// Returns the width in pixels; 0 for null.
///
/// # Safety
/// `frame` is null or a frame that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_width(frame: *const framepath_frame) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { of(frame) }.map_or(0, |frame| frame.layout().width)
}

/// Returns the height in pixels; 0 for null.
///
/// # Safety
/// `frame` is null or a frame that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_height(frame: *const framepath_frame) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { of(frame) }.map_or(0, |frame| frame.layout().height)
}

/// Returns the pixel format, such as `yuv420p`, which lives as long as the frame; an empty text for null.
///
/// # Safety
/// `frame` is null or a frame that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_format(frame: *const framepath_frame) -> *const c_char {
    // SAFETY: as the caller promises.
    unsafe { handle(frame) }.map_or(c"".as_ptr(), |frame| frame.format.as_ptr())
}

/// Returns the presentation time in seconds; -1 if it is not known.
///
/// # Safety
/// `frame` is null or a frame that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_time(frame: *const framepath_frame) -> f64 {
    // SAFETY: as the caller promises.
    unsafe { handle(frame) }.map_or(-1.0, |frame| frame.time)
}

/// Returns true if the decoder has concealed parts of the picture, because the stream is damaged.
///
/// # Safety
/// `frame` is null or a frame that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_is_damaged(frame: *const framepath_frame) -> bool {
    // SAFETY: as the caller promises.
    unsafe { of(frame) }.is_some_and(|frame| frame.meta().is_damaged)
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
    let Some(layout) = frame.layout().planes().get(index) else { return false };
    if plane.is_null() {
        return false;
    }
    let data = frame.plane(index).as_ptr();
    // SAFETY: as the caller promises.
    unsafe {
        *plane = framepath_plane { data, stride: layout.stride, width: layout.width, rows: layout.rows };
    }
    true
}

/// Writes plane number `index`, from 0, to `plane`, so that the program can change the pixels. Copies the frame once, and counts the copy in
/// the ledger, if another handle, a decoder or another process uses the pixels, or their memory is a device's. The handle then has the copy,
/// with the same times and without padding, and pointers of earlier calls of `framepath_frame_plane` end. Later calls for the handle copy
/// nothing. The copies of a path, stage or sink have 8 buffers: the call waits while all are in use. No other thread may use the handle
/// during the call. Returns false, and leaves the frame as it was, if the frame has no such plane, memory is short or a pointer is null.
///
/// # Safety
/// `frame` is null or a frame that was not freed; `plane` is null or writable; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_plane_mut(
    frame: *mut framepath_frame,
    index: usize,
    plane: *mut framepath_plane_mut,
    error: *mut *mut framepath_error,
) -> bool {
    let write = || {
        // SAFETY: as the caller promises.
        let (Some(frame), false) = (unsafe { frame.as_mut() }, plane.is_null()) else {
            return Err("a pointer is null".to_owned());
        };
        frame.alive.check();
        let written = frame.plane_mut(index)?;
        // SAFETY: as the caller promises.
        unsafe { plane.write(written) };
        Ok(true)
    };
    // SAFETY: as the caller promises.
    unsafe { attempt(error, false, write) }
}

/// Returns another handle to the same frame, without a copy; the caller frees it. With it, a stage can keep a frame and pass it on. Any
/// thread may do it. Returns null for null, and for the 65,536th handle.
///
/// # Safety
/// `frame` is null or a frame that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn framepath_frame_share(frame: *const framepath_frame) -> *mut framepath_frame {
    guarded(ptr::null_mut(), || {
        // SAFETY: as the caller promises.
        let Some(frame) = (unsafe { handle(frame) }) else { return ptr::null_mut() };
        frame
            .frame
            .as_ref()
            .map_or(ptr::null_mut(), |shared| framepath_frame::new(shared.share(), &frame.origin))
    })
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
