// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of a muxer: an `AVIOContext` that writes to Rust's traits and keeps the error.

use std::ffi::{c_int, c_void};
use std::io::{self, SeekFrom};
use std::ptr::{self, NonNull};
use std::slice;

use ffmpeg_sys_next as ff;
use framepath_os::measure::meter;

use super::SeekWrite;

/// Size of libavformat's buffer, bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// Output of a muxer, with the I/O context that writes to it.
pub(super) struct MuxOutput {
    context: NonNull<ff::AVIOContext>,
    writer: NonNull<Writer>,
}

// SAFETY: both are owned, the output may move between threads, and libavformat ties nothing to a thread.
unsafe impl Send for MuxOutput {}

struct Writer {
    bytes: Box<dyn SeekWrite>,
    /// First error of a call; `None` if none has failed since it was taken.
    error: Option<io::Error>,
}

type WriteCallback = unsafe extern "C" fn(*mut c_void, *const u8, c_int) -> c_int;
type OffsetCallback = unsafe extern "C" fn(*mut c_void, i64, c_int) -> i64;

impl MuxOutput {
    /// Makes the context for `bytes`; `seekable` is true if they can go back. Returns `None` if there is not enough
    /// memory.
    pub(super) fn new(bytes: Box<dyn SeekWrite>, seekable: bool) -> Option<MuxOutput> {
        let writer = Box::into_raw(Box::new(Writer { bytes, error: None }));
        // SAFETY: the buffer is from av_malloc, as avio_alloc_context requires, and belongs to the context afterwards. On
        // failure the buffer and the writer are still ours to free. The callbacks get `writer`, which lives longer.
        unsafe {
            let buffer = ff::av_malloc(BUFFER_BYTES).cast::<u8>();
            let context = if buffer.is_null() {
                ptr::null_mut()
            } else {
                let seek = seekable.then_some(seek as OffsetCallback);
                alloc_context(buffer, BUFFER_BYTES as c_int, 1, writer.cast(), None, Some(write), seek)
            };
            match NonNull::new(context) {
                Some(context) => Some(MuxOutput { context, writer: NonNull::new_unchecked(writer) }),
                None => {
                    ff::av_free(buffer.cast());
                    drop(Box::from_raw(writer));
                    None
                }
            }
        }
    }

    /// Returns the context for `AVFormatContext::pb`; valid while `self` lives.
    pub(super) fn as_ptr(&self) -> *mut ff::AVIOContext {
        self.context.as_ptr()
    }

    /// Writes the bytes of the context's buffer.
    pub(super) fn flush(&mut self) {
        // SAFETY: a valid context.
        unsafe { ff::avio_flush(self.context.as_ptr()) };
    }

    /// Takes the first error of the output since the last call; `None` if no call has failed.
    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        // SAFETY: the writer lives as long as `self`, and its callbacks run only inside calls of the muxer.
        unsafe { self.writer.as_mut() }.error.take()
    }
}

impl Drop for MuxOutput {
    fn drop(&mut self) {
        let mut context = self.context.as_ptr();
        // SAFETY: nothing uses the context any more, because the muxer is freed first. libav may have replaced the
        // buffer, so the current one is freed, then the context, then the writer.
        unsafe {
            ff::av_freep((&raw mut (*context).buffer).cast());
            ff::avio_context_free(&mut context);
            drop(Box::from_raw(self.writer.as_ptr()));
        }
    }
}

impl Writer {
    /// Returns the result of a call as libav's number, and keeps its error.
    fn answer(&mut self, result: io::Result<i64>) -> i64 {
        result.unwrap_or_else(|error| {
            let code = error.raw_os_error().unwrap_or(libc::EIO);
            self.error.get_or_insert(error);
            i64::from(ff::AVERROR(code))
        })
    }
}

/// Callback of the I/O context: writes `size` bytes. Returns their number, or a negative error code. The ledger counts
/// the bytes as copied, because the kernel copies them. No path in it panics, so nothing unwinds into C.
unsafe extern "C" fn write(opaque: *mut c_void, bytes: *const u8, size: c_int) -> c_int {
    // SAFETY: `opaque` is the writer passed to avio_alloc_context. libav calls back only within a call of ours,
    // which borrows the muxer exclusively.
    let writer = unsafe { &mut *opaque.cast::<Writer>() };
    let Ok(length) = usize::try_from(size) else { return ff::AVERROR(libc::EINVAL) };
    // SAFETY: libav owns `size` bytes at `bytes`, which it has written.
    let bytes = unsafe { slice::from_raw_parts(bytes, length) };
    let written = meter::copy(length, || writer.bytes.write_all(bytes));
    writer.answer(written.map(|()| i64::from(size))) as c_int
}

/// Callback of the I/O context: moves the position of the output and returns it. Returns a negative error code on
/// failure, and for the output's size, which no muxer needs. No path in it panics.
unsafe extern "C" fn seek(opaque: *mut c_void, offset: i64, whence: c_int) -> i64 {
    // SAFETY: as in `write`.
    let writer = unsafe { &mut *opaque.cast::<Writer>() };
    let to = match (whence & !(ff::AVSEEK_FORCE as c_int), u64::try_from(offset)) {
        (libc::SEEK_SET, Ok(offset)) => SeekFrom::Start(offset),
        (libc::SEEK_CUR, _) => SeekFrom::Current(offset),
        (libc::SEEK_END, _) => SeekFrom::End(offset),
        _ => return i64::from(ff::AVERROR(libc::EINVAL)),
    };
    let moved = writer.bytes.seek(to);
    writer.answer(moved.map(|position| i64::try_from(position).unwrap_or(i64::MAX)))
}

// Declared here, because the callback's bytes are constant in newer versions of FFmpeg only.
unsafe extern "C" {
    #[link_name = "avio_alloc_context"]
    fn alloc_context(
        buffer: *mut u8,
        size: c_int,
        is_output: c_int,
        opaque: *mut c_void,
        read: Option<unsafe extern "C" fn(*mut c_void, *mut u8, c_int) -> c_int>,
        write: Option<WriteCallback>,
        seek: Option<OffsetCallback>,
    ) -> *mut ff::AVIOContext;
}
