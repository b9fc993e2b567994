// SPDX-License-Identifier: MIT OR Apache-2.0
//! Callbacks of libavcodec for the memory of pictures.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use ffmpeg_sys_next as ff;
use framepath_model::colors::Colors;
use framepath_model::format::PixelFormat;
use framepath_os::measure::frame_threads::FrameThreads;

use crate::CodecError;
use crate::colors::colors_of;
use crate::slots::{Padded, Slot, SlotRequest, Slots};
use crate::surface::pixel_format;

/// State that the callbacks use, on any thread of libavcodec.
pub(super) struct CallbackState {
    pub(super) slots: Slots,
    /// Observer of the frame threads; idle if the decoder has none.
    pub(super) frame_threads: FrameThreads,
}

/// Callback `get_buffer2`: provides a slot for libavcodec to decode into. Returns 0, or a negative
/// error code; [`Slots`] records the reason, except for an invalid size and for a failed allocation
/// of the reference. Called on libavcodec's threads, or in a call of the decoder; no path in it
/// panics, so nothing unwinds into C.
pub(super) unsafe extern "C" fn get_buffer(
    context: *mut ff::AVCodecContext,
    frame: *mut ff::AVFrame,
    _flags: c_int,
) -> c_int {
    // SAFETY: libavcodec passes a valid context and a frame that only this call uses. `opaque` is
    // the decoder's `CallbackState`, which outlives it. No reference to the frame is made, because its
    // enums may have any value.
    let (shared, width, height, format, number) = unsafe {
        let shared = &*(*context).opaque.cast::<CallbackState>();
        (shared, (*frame).width, (*frame).height, (*frame).format, (*frame).pts)
    };
    // libavcodec removes the number from the hidden pictures of a packet (VP9's superframes).
    shared.frame_threads.begun((number != ff::AV_NOPTS_VALUE).then_some(number));
    let slots = &shared.slots;
    let (Ok(width), Ok(height)) = (usize::try_from(width), usize::try_from(height)) else {
        return ff::AVERROR(libc::EINVAL);
    };
    let Some(decoded) = pixel_format(format) else {
        slots.fail(number, unsupported(slots.codec(), format));
        return ff::AVERROR(libc::ENOSYS);
    };
    let request = SlotRequest { decoded, width, height };
    // SAFETY: a valid context of a decoder with direct rendering, and its frame.
    let pad = || unsafe { padded(context, request, colors_of(frame)) };
    let Some(slot) = slots.take(number, request, pad) else { return ff::AVERROR(libc::ENOMEM) };

    let (base, len, areas) = (slot.base(), slot.len(), slot.surface.areas);
    let slot = Box::into_raw(slot);
    // SAFETY: the buffer is the slot, which `slot` keeps until `release`.
    let buffer = unsafe { ff::av_buffer_create(base, len, Some(release), slot.cast(), 0) };
    if buffer.is_null() {
        // SAFETY: libav did not take the box.
        drop(unsafe { Box::from_raw(slot) });
        return ff::AVERROR(libc::ENOMEM);
    }
    // SAFETY: only this call uses the frame; the areas are inside the slot.
    unsafe {
        (*frame).buf[0] = buffer;
        for (index, area) in areas.iter().enumerate().filter(|(_, area)| area.rows > 0) {
            (*frame).data[index] = base.add(area.offset);
            (*frame).linesize[index] = area.stride as c_int;
        }
        (*frame).extended_data = (&raw mut (*frame).data).cast();
    }
    0
}

/// Frees the slot of a picture to which no reference is left. Called on any thread.
unsafe extern "C" fn release(slot: *mut c_void, _data: *mut u8) {
    // SAFETY: the box that `get_buffer` attached to this buffer, freed once.
    drop(unsafe { Box::from_raw(slot.cast::<Slot>()) });
}

/// Returns strides and rows like those of libavcodec's own allocator.
///
/// # Safety
/// `context` is a valid context of an opened decoder with direct rendering.
unsafe fn padded(context: *mut ff::AVCodecContext, request: SlotRequest, colors: Colors) -> Padded {
    let mut width = c_int::try_from(request.width).unwrap_or(c_int::MAX);
    let mut height = c_int::try_from(request.height).unwrap_or(c_int::MAX);
    // SAFETY: guaranteed by the caller.
    let (visible, references) = unsafe {
        let side = |pixels: c_int| usize::try_from(pixels).unwrap_or(0);
        let count = |pictures: c_int| u32::try_from(pictures).unwrap_or(0);
        let references = count((*context).refs).saturating_add(count((*context).has_b_frames));
        ((side((*context).width), side((*context).height)), references)
    };
    let mut aligns = [1; 8];
    // SAFETY: guaranteed by the caller; the array has AV_NUM_DATA_POINTERS elements.
    unsafe { ff::avcodec_align_dimensions2(context, &mut width, &mut height, aligns.as_mut_ptr()) };
    let [luma_align, chroma_align, ..] = aligns.map(|align| usize::try_from(align).unwrap_or(1).max(1));
    let sample = request.decoded.luma_bytes();
    let grey = request.decoded == PixelFormat::Grey;
    let (mut width, rows) = (width.max(2) as usize, height.max(2) as usize);
    // Some decoders require chroma rows to be half as long as luma rows. So the width grows until
    // both are aligned, in steps of its lowest bit.
    loop {
        let (stride, chroma_stride) = (width * sample, width.div_ceil(2) * sample);
        if stride % luma_align == 0 && (grey || chroma_stride % chroma_align == 0) {
            return Padded { stride, chroma_stride, rows, visible, references, colors };
        }
        width += width & width.wrapping_neg();
    }
}

fn unsupported(codec: &'static str, format: c_int) -> CodecError {
    // SAFETY: any number is valid; the result is a static string or null.
    let name = unsafe { pixel_format_name(format) };
    let format = match NonNull::new(name.cast_mut()) {
        // SAFETY: a static string.
        Some(name) => unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned(),
        None => format!("number {format}"),
    };
    CodecError::UnsupportedPixelFormat { codec, format }
}

unsafe extern "C" {
    /// libavutil's `av_get_pix_fmt_name`, declared with C's plain integer, because a number from a
    /// frame must not become a Rust enum unchecked. Returns null for an unknown number.
    #[link_name = "av_get_pix_fmt_name"]
    fn pixel_format_name(format: c_int) -> *const std::ffi::c_char;
}

const _: () = {
    // libavcodec calls back, and releases slots, on any thread.
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<CallbackState>();
    crosses_threads::<Slot>();
};
