// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection of a lack of memory that libavcodec hides, above all on its slice threads.
//!
//! After a failed allocation on a slice thread, the picture is output with wrong parts. `errno` shows
//! the failure, but on the slice thread only. So the context's functions `execute` and
//! `execute2`, by which decoders start work on the slice threads, are replaced by functions of this
//! module, which call the original functions and look at `errno` after each piece of work.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

use ffmpeg_sys_next as ff;

use super::get_buffer::CallbackState;
use crate::CodecError;
use crate::shortage;

type Work = unsafe extern "C" fn(*mut ff::AVCodecContext, *mut c_void) -> c_int;
type Work2 = unsafe extern "C" fn(*mut ff::AVCodecContext, *mut c_void, c_int, c_int) -> c_int;
type Execute = unsafe extern "C" fn(
    *mut ff::AVCodecContext,
    Option<Work>,
    *mut c_void,
    *mut c_int,
    c_int,
    c_int,
) -> c_int;
type Execute2 =
    unsafe extern "C" fn(*mut ff::AVCodecContext, Option<Work2>, *mut c_void, *mut c_int, c_int) -> c_int;

/// Returns true if there is no memory for another picture of the decoder: for 8 MiB and 4 bytes for
/// each pixel.
///
/// # Safety
/// `context` is a valid context.
pub(super) unsafe fn is_memory_short(context: *const ff::AVCodecContext) -> bool {
    const RESERVE: usize = 8 << 20;
    // SAFETY: guaranteed by the caller.
    let (width, height) = unsafe { ((*context).width, (*context).height) };
    let side = |length: c_int| usize::try_from(length).unwrap_or(0);
    shortage::is_short(RESERVE.saturating_add(side(width).saturating_mul(side(height)).saturating_mul(4)))
}

/// State of the observer of one decoder's slice threads.
#[derive(Default)]
pub(super) struct SliceThreads {
    execute: OnceLock<Execute>,
    execute2: OnceLock<Execute2>,
    /// Function that the slice threads run now, of type [`Work`] or [`Work2`]. A decoder starts the
    /// next function after all slice threads have ended the one before.
    work: AtomicPtr<c_void>,
    /// Number of the packet that was sent last.
    packet: AtomicI64,
}

impl SliceThreads {
    /// Starts to observe the slice threads of `context`. Does nothing if it has none.
    ///
    /// # Safety
    /// `context` is a valid context that was opened and has not decoded yet; its field `opaque` is the
    /// [`CallbackState`] that contains `self`.
    pub(super) unsafe fn observe(&self, context: *mut ff::AVCodecContext) {
        // SAFETY: guaranteed by the caller; libavcodec allows to replace both functions.
        unsafe {
            if (*context).active_thread_type & ff::FF_THREAD_SLICE as c_int == 0 {
                return;
            }
            if let (Some(original), Some(original2)) = ((*context).execute, (*context).execute2) {
                let _ = self.execute.set(original);
                let _ = self.execute2.set(original2);
                (*context).execute = Some(execute);
                (*context).execute2 = Some(execute2);
            }
        }
    }

    /// Records the number of the packet that is sent next.
    pub(super) fn sending(&self, packet: i64) {
        self.packet.store(packet, Ordering::Relaxed);
    }
}

unsafe extern "C" fn execute(
    context: *mut ff::AVCodecContext,
    work: Option<Work>,
    arguments: *mut c_void,
    results: *mut c_int,
    count: c_int,
    size: c_int,
) -> c_int {
    // SAFETY: `opaque` is the decoder's state, which outlives the context.
    let threads = unsafe { &(*(*context).opaque.cast::<CallbackState>()).slice_threads };
    let Some(original) = threads.execute.get() else { return ff::AVERROR(libc::EINVAL) };
    let address = work.map_or(ptr::null_mut(), |work| work as *mut c_void);
    threads.work.store(address, Ordering::Release);
    // SAFETY: the arguments of this call.
    unsafe { original(context, work.map(|_| watched as Work), arguments, results, count, size) }
}

unsafe extern "C" fn execute2(
    context: *mut ff::AVCodecContext,
    work: Option<Work2>,
    argument: *mut c_void,
    results: *mut c_int,
    count: c_int,
) -> c_int {
    // SAFETY: as in `execute`.
    let threads = unsafe { &(*(*context).opaque.cast::<CallbackState>()).slice_threads };
    let Some(original) = threads.execute2.get() else { return ff::AVERROR(libc::EINVAL) };
    let address = work.map_or(ptr::null_mut(), |work| work as *mut c_void);
    threads.work.store(address, Ordering::Release);
    // SAFETY: the arguments of this call.
    unsafe { original(context, work.map(|_| watched2 as Work2), argument, results, count) }
}

/// Runs the decoder's function on a slice thread, or on the caller's thread.
unsafe extern "C" fn watched(context: *mut ff::AVCodecContext, argument: *mut c_void) -> c_int {
    // SAFETY: `execute` has stored a function of this type, and waits for its end.
    unsafe {
        let state = &*(*context).opaque.cast::<CallbackState>();
        let work = mem::transmute::<*mut c_void, Work>(state.slice_threads.work.load(Ordering::Acquire));
        watch(context, state, || work(context, argument))
    }
}

unsafe extern "C" fn watched2(
    context: *mut ff::AVCodecContext,
    argument: *mut c_void,
    job: c_int,
    thread: c_int,
) -> c_int {
    // SAFETY: `execute2` has stored a function of this type, and waits for its end.
    unsafe {
        let state = &*(*context).opaque.cast::<CallbackState>();
        let work = mem::transmute::<*mut c_void, Work2>(state.slice_threads.work.load(Ordering::Acquire));
        watch(context, state, || work(context, argument, job, thread))
    }
}

/// Calls `work`. Records a failure if memory runs out meanwhile.
///
/// # Safety
/// `context` is a valid context.
unsafe fn watch(
    context: *const ff::AVCodecContext,
    state: &CallbackState,
    work: impl FnOnce() -> c_int,
) -> c_int {
    // On the caller's thread, the caller has not looked at this `errno` yet.
    let occurred_before = shortage::take();
    let result = work();
    // SAFETY: guaranteed by the caller.
    if shortage::take() && unsafe { is_memory_short(context) } {
        let packet = state.slice_threads.packet.load(Ordering::Relaxed);
        state.slots.fail(packet, CodecError::DecoderMemory { codec: state.slots.codec() });
    }
    if occurred_before {
        shortage::restore();
    }
    result
}
