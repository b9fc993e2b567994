// SPDX-License-Identifier: MIT OR Apache-2.0
//! Callback `get_buffer2` of libavcodec: memory for its pictures.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ffmpeg_sys_next as ff;
use framepath_model::colors::Colors;
use framepath_os::measure::frame_threads::FrameThreads;

use super::memory_watch::{SliceThreads, is_memory_short};
use crate::CodecError;
use crate::buffer_hook;
use crate::colors::colors_of;
use crate::libav_format::pixel_format;
use crate::shortage;
use crate::slots::{Padded, Slot, SlotRequest, Slots};

/// State that the callbacks use, on any thread of libavcodec.
pub(super) struct CallbackState {
    pub(super) slots: Slots,
    /// Observer of the frame threads. Idle until a thread that has the ledger's level `full` sends
    /// a packet to a decoder with frame threads.
    pub(super) frame_threads: FrameThreads,
    /// True if the decoder may write into memory of the caller (AV_CODEC_CAP_DR1).
    pub(super) direct: bool,
    /// True for codecs outside [`Codec::KNOWN`](crate::Codec::KNOWN): each slot is a read-only
    /// buffer for libavcodec. A decoder still writes the first picture into the slot, but copies
    /// the picture before it makes the next one from it. Without this flag, some decoders would
    /// change the slot of a picture that they have output, because a frame keeps the slot and no
    /// reference to libavcodec's buffer.
    pub(super) read_only: bool,
    pub(super) lent: LentSlots,
    /// Observer of the slice threads; idle if the decoder has none.
    pub(super) slice_threads: SliceThreads,
}

/// Addresses of the [`LentSlot`]s that libavcodec holds. Decoders also output pictures in other
/// memory; the buffers of that memory must not be taken for slots.
#[derive(Clone, Default)]
pub(super) struct LentSlots(Arc<Mutex<Vec<usize>>>);

impl LentSlots {
    fn addresses(&self) -> MutexGuard<'_, Vec<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the slot in which the picture with this buffer lies; `None` if it lies in other memory, or
    /// has no buffer.
    ///
    /// # Safety
    /// `buffer` is null, or a buffer that stays referenced as long as the result is used.
    pub(super) unsafe fn slot_of<'a>(&self, buffer: *const ff::AVBufferRef) -> Option<&'a Slot> {
        if buffer.is_null() {
            return None;
        }
        // SAFETY: a valid buffer; the function only reads a field.
        let lent = unsafe { ff::av_buffer_get_opaque(buffer) }.cast::<LentSlot>();
        // SAFETY: a listed address is a `LentSlot` that is not released, because the buffer that releases
        // it is still referenced: no other allocation can have this address.
        self.addresses().contains(&lent.addr()).then(|| unsafe { &(*lent).slot })
    }
}

/// A slot that libavcodec holds through an `AVBufferRef`.
struct LentSlot {
    slot: Slot,
    list: LentSlots,
}

/// Callback `get_buffer2`: provides a slot for libavcodec to decode into, or libavcodec's own
/// memory if the decoder or the pixel format requires that. Returns 0, or a negative error code;
/// [`Slots`] records the reason, except for an invalid size, for a failed allocation of the
/// reference, and for an error of libavcodec's own allocator. Called on libavcodec's threads, or in
/// a call of the decoder; no path in it panics, so nothing unwinds into C (a panic in a
/// [`BufferHook`](crate::BufferHook) aborts).
pub(super) unsafe extern "C" fn get_buffer(
    context: *mut ff::AVCodecContext,
    frame: *mut ff::AVFrame,
    flags: c_int,
) -> c_int {
    // SAFETY: libavcodec passes a valid context and a frame that only this call uses. `opaque` is
    // the decoder's `CallbackState`, which outlives it. No reference to the frame is made, because its
    // enums may have any value.
    let (shared, width, height, format, number) = unsafe {
        let shared = &*(*context).opaque.cast::<CallbackState>();
        (shared, (*frame).width, (*frame).height, (*frame).format, (*frame).pts)
    };
    // A frame thread decodes here: only `errno` shows that memory ran out at its picture before.
    // SAFETY: a valid context.
    if shortage::take() && unsafe { is_memory_short(context) } {
        // SAFETY: a valid context.
        let threads = i64::from(unsafe { (*context).thread_count });
        let codec = shared.slots.codec();
        shared.slots.fail(number.saturating_sub(threads), CodecError::DecoderMemory { codec });
    }
    // libavcodec removes the number from the hidden pictures of a packet (VP9's superframes).
    shared.frame_threads.begun((number != ff::AV_NOPTS_VALUE).then_some(number));
    buffer_hook::call(number);
    let slots = &shared.slots;
    let (Ok(width), Ok(height)) = (usize::try_from(width), usize::try_from(height)) else {
        return ff::AVERROR(libc::EINVAL);
    };
    let decoded = match pixel_format(format) {
        Some(decoded) if shared.direct => decoded,
        // SAFETY: the arguments of this call, as libavcodec requires for its default.
        _ => return unsafe { ff::avcodec_default_get_buffer2(context, frame, flags) },
    };
    let request = SlotRequest { decoded, width, height };
    // SAFETY: a valid context of a decoder with direct rendering, and its frame.
    let pad = || unsafe { padded(context, request, colors_of(frame)) };
    let Some(slot) = slots.take(number, request, pad) else { return ff::AVERROR(libc::ENOMEM) };

    let (base, len, areas) = (slot.base(), slot.len(), slot.surface.areas);
    let lent = Box::into_raw(Box::new(LentSlot { slot, list: shared.lent.clone() }));
    let flags = if shared.read_only { ff::AV_BUFFER_FLAG_READONLY as c_int } else { 0 };
    // SAFETY: the buffer is the slot, which `lent` keeps until `release`.
    let buffer = unsafe { ff::av_buffer_create(base, len, Some(release), lent.cast(), flags) };
    if buffer.is_null() {
        // SAFETY: libav did not take the box.
        drop(unsafe { Box::from_raw(lent) });
        return ff::AVERROR(libc::ENOMEM);
    }
    shared.lent.addresses().push(lent.addr());
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

/// Callback that drops the decoder's hold on a slot after libavcodec's last reference to the
/// buffer. The slot returns to the pool when no frame uses it any more. Called on any thread.
unsafe extern "C" fn release(lent: *mut c_void, _data: *mut u8) {
    // SAFETY: the box that `get_buffer` attached to this buffer, freed once.
    let lent = unsafe { Box::from_raw(lent.cast::<LentSlot>()) };
    let address = (&raw const *lent).addr();
    lent.list.addresses().retain(|listed| *listed != address);
}

/// Returns strides and rows like those of libavcodec's own allocator, and the properties of the
/// stream that a provider needs.
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
    let aligns = aligns.map(|align| usize::try_from(align).unwrap_or(1).max(1));
    let (mut width, rows) = (width.max(2) as usize, height.max(2) as usize);
    // Some decoders require chroma rows to be half as long as luma rows. So the width grows until
    // all strides are aligned, in steps of the width's lowest bit that is set.
    loop {
        let mut strides = [0; 4];
        for (plane, stride) in strides.iter_mut().enumerate().take(request.decoded.plane_count()) {
            *stride = request.decoded.plane_size(plane, width, 1).0;
        }
        if strides.iter().zip(aligns).all(|(stride, align)| stride % align == 0) {
            return Padded { strides, rows, visible, references, colors };
        }
        width += width & width.wrapping_neg();
    }
}

const _: () = {
    // libavcodec calls back, and releases slots, on any thread.
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<CallbackState>();
    crosses_threads::<LentSlot>();
};
