// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoding by libavcodec, directly into the pool.
//!
//! libavcodec calls `get_buffer2` for the memory of each picture and gets a slot. The slot is
//! wrapped in an `AVBufferRef`, which releases it at the end. Packets carry a number in `pts`,
//! which every decoder copies to the picture.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ffmpeg_sys_next as ff;
use framepath_model::colors::Colors;
use framepath_model::format::PixelFormat;
use framepath_model::stream::FrameMeta;
use framepath_os::memory::pool::Frame;

use crate::colors::colors_of;
use crate::error::libav_message;
use crate::numbers::Numbers;
use crate::slots::{Padded, Slot, SlotRequest, Slots};
use crate::surface::pixel_format;
use crate::{Codec, CodecError, DecoderOutput, DecoderThreads, Packet, TrackInfo};

/// Maximum number of requested threads; for some codecs libavcodec itself uses no more.
const MAX_THREADS: u32 = 64;

/// Flags of libavcodec for a picture with concealed parts. A missing reference alone is not
/// included, because streams cut at a recovery point have it.
const DAMAGED: c_int = ff::FF_DECODE_ERROR_INVALID_BITSTREAM as c_int
    | ff::FF_DECODE_ERROR_CONCEALMENT_ACTIVE as c_int
    | ff::FF_DECODE_ERROR_DECODE_SLICES as c_int;

/// An `AVCodecContext`, freed on drop.
pub(crate) struct CodecContext(NonNull<ff::AVCodecContext>);

// SAFETY: owned by one decoder; libavcodec ties nothing to a thread.
unsafe impl Send for CodecContext {}

impl CodecContext {
    /// Makes a context for `track`, filled but not opened.
    pub(crate) fn new(
        track: &TrackInfo,
        codec: *const ff::AVCodec,
        threads: DecoderThreads,
    ) -> Result<CodecContext, CodecError> {
        let failed = |code| CodecError::Decoder {
            codec: track.codec.name(),
            operation: "set up the decoder",
            message: libav_message(code),
        };
        // SAFETY: `codec` is a static description of libavcodec; the context is owned by the
        // result from here on.
        let raw = unsafe { ff::avcodec_alloc_context3(codec) };
        let context = CodecContext(NonNull::new(raw).ok_or_else(|| failed(ff::AVERROR(libc::ENOMEM)))?);
        // SAFETY: both are valid.
        let code = unsafe { ff::avcodec_parameters_to_context(raw, track.parameters.as_ptr()) };
        if code < 0 {
            return Err(failed(code));
        }
        // SAFETY: valid and not open yet, so fields may be set.
        unsafe {
            // 0 lets libavcodec choose for the machine.
            (*raw).thread_count = match threads {
                DecoderThreads::Auto => 0,
                DecoderThreads::Count(count) => count.clamp(1, MAX_THREADS) as c_int,
            };
            (*raw).pkt_timebase =
                ff::AVRational { num: track.stream.time_base.num, den: track.stream.time_base.den };
            #[cfg(callbacks_need_flag)]
            {
                // `get_buffer` below may be called on any thread.
                (*raw).thread_safe_callbacks = 1;
            }
        }
        Ok(context)
    }

    /// Opens the decoder.
    pub(crate) fn open(&mut self, name: &'static str, codec: *const ff::AVCodec) -> Result<(), CodecError> {
        // SAFETY: a valid context that is not open.
        let code = unsafe { ff::avcodec_open2(self.as_ptr(), codec, ptr::null_mut()) };
        if code < 0 {
            let operation = "open the decoder";
            return Err(CodecError::Decoder { codec: name, operation, message: libav_message(code) });
        }
        Ok(())
    }

    pub(crate) fn as_ptr(&self) -> *mut ff::AVCodecContext {
        self.0.as_ptr()
    }
}

impl Drop for CodecContext {
    fn drop(&mut self) {
        let mut raw = self.0.as_ptr();
        // SAFETY: from avcodec_alloc_context3, freed only here. Ends the
        // library's threads first.
        unsafe { ff::avcodec_free_context(&mut raw) };
    }
}

/// An `AVFrame`, freed on drop.
pub(crate) struct PictureRef(NonNull<ff::AVFrame>);

// SAFETY: owned by one decoder; buffers are counted atomically.
unsafe impl Send for PictureRef {}

impl PictureRef {
    pub(crate) fn new(codec: &'static str) -> Result<PictureRef, CodecError> {
        // SAFETY: no arguments; the result is owned by the new value.
        let raw = NonNull::new(unsafe { ff::av_frame_alloc() });
        raw.map(PictureRef).ok_or_else(|| CodecError::Decoder {
            codec,
            operation: "set up the decoder",
            message: libav_message(ff::AVERROR(libc::ENOMEM)),
        })
    }

    pub(crate) fn as_ptr(&self) -> *mut ff::AVFrame {
        self.0.as_ptr()
    }
}

impl Drop for PictureRef {
    fn drop(&mut self) {
        let mut raw = self.0.as_ptr();
        // SAFETY: from av_frame_alloc, freed only here.
        unsafe { ff::av_frame_free(&mut raw) };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LibavState {
    Running,
    Draining,
    Ended,
}

pub(crate) struct LibavDecoder {
    // Dropped before `slots`, which its threads call into.
    context: CodecContext,
    picture: PictureRef,
    /// The callbacks have the address. Not a `Box`, because moving a box asserts that no other
    /// pointer into it exists.
    slots: Arc<Slots>,
    numbers: Numbers,
    state: LibavState,
    /// H.264: a picture was output since the start or the last flush, or an I picture came at the
    /// drain. Later pictures, in presentation order, have all their references.
    recovered: bool,
    /// Error to return after the earlier pictures.
    failure: Option<LibavFailure>,
}

/// Failure that is returned after the earlier pictures.
struct LibavFailure {
    error: CodecError,
    /// First packet that the failure may concern.
    packet: i64,
    /// Presentation time from which a picture would follow a missing picture; `None` if packets
    /// have no times.
    shown_from: Option<i64>,
}

impl LibavDecoder {
    pub(crate) fn open(
        track: &TrackInfo,
        threads: DecoderThreads,
        slots: impl FnOnce(u32) -> Slots,
    ) -> Result<LibavDecoder, CodecError> {
        let name = track.codec.name();
        let codec = find_decoder(track.codec)?;
        // SAFETY: a valid description.
        if unsafe { (*codec).capabilities } as u32 & ff::AV_CODEC_CAP_DR1 == 0 {
            // SAFETY: its name is a static string.
            let decoder = unsafe { CStr::from_ptr((*codec).name) }.to_string_lossy().into_owned();
            return Err(CodecError::NoDirectRendering { codec: name, decoder });
        }
        let mut context = CodecContext::new(track, codec, threads)?;
        let picture = PictureRef::new(name)?;
        // The number of threads is known only after opening, but the callback has to be set
        // before, because frame threads copy it.
        let slots = Arc::new(slots(expected_threads(threads)));
        // SAFETY: valid, not open. The slots outlive the context (field order)
        // and are used by the callback through a shared reference only.
        unsafe {
            (*context.as_ptr()).opaque = Arc::as_ptr(&slots).cast_mut().cast();
            (*context.as_ptr()).get_buffer2 = Some(get_buffer);
            if track.codec == Codec::H264 {
                // At the drain, libavcodec leaves out pictures that it held back while it had not
                // reached the recovery point: right ones too, which follow the point. With this
                // flag it outputs them; `is_recovered` selects.
                (*context.as_ptr()).flags |= ff::AV_CODEC_FLAG_OUTPUT_CORRUPT as c_int;
            }
        }
        context.open(name, codec)?;
        let threads = active_threads(&context);
        Ok(LibavDecoder {
            context,
            picture,
            slots,
            numbers: Numbers::new(threads),
            state: LibavState::Running,
            recovered: false,
            failure: None,
        })
    }

    pub(crate) fn threads(&self) -> u32 {
        active_threads(&self.context)
    }

    pub(crate) fn send(&mut self, packet: Packet) -> Result<(), CodecError> {
        // After a failure and after the end, nothing more is decoded. libavcodec would treat an
        // empty packet as the end.
        if self.state != LibavState::Running || packet.is_empty() {
            return Ok(());
        }
        let number = self.numbers.insert(packet.meta(), packet.preroll());
        // SAFETY: only this call uses the packet; the context is open.
        let code = unsafe {
            (*packet.as_ptr()).pts = number;
            ff::avcodec_send_packet(self.context.as_ptr(), packet.as_ptr())
        };
        if code == ff::AVERROR(libc::EAGAIN) {
            return Err(CodecError::NotDrained { codec: self.slots.codec() });
        }
        if code < 0 {
            self.reject(code);
        }
        Ok(())
    }

    pub(crate) fn drain(&mut self) {
        if self.state == LibavState::Running {
            self.state = LibavState::Draining;
            // SAFETY: an open context; a null packet means the end. The call cannot fail while
            // the decoder is running.
            unsafe { ff::avcodec_send_packet(self.context.as_ptr(), ptr::null()) };
        }
    }

    /// Drops the pending pictures, and restarts. Returns the number of dropped pictures.
    pub(crate) fn flush(&mut self) -> u64 {
        // SAFETY: an open context. Its threads are idle afterwards, and no picture is left that
        // was not received.
        unsafe { ff::avcodec_flush_buffers(self.context.as_ptr()) };
        self.slots.forget_failure();
        self.failure = None;
        self.recovered = false;
        self.state = LibavState::Running;
        self.numbers.flush()
    }

    pub(crate) fn receive(&mut self) -> Result<DecoderOutput, CodecError> {
        loop {
            if self.state == LibavState::Ended {
                return self.failure.take().map_or(Ok(DecoderOutput::End), |failure| Err(failure.error));
            }
            // SAFETY: both are valid; libavcodec clears the picture first.
            let code = unsafe { ff::avcodec_receive_frame(self.context.as_ptr(), self.picture.as_ptr()) };
            if let Some((number, failure)) = self.slots.take_failure() {
                // H.264 continues without the picture for which there was no memory.
                self.fail(number, failure);
            }
            match code {
                0 => {
                    if let Some(frame) = self.take_picture()? {
                        return Ok(DecoderOutput::Frame(frame));
                    }
                }
                _ if code == ff::AVERROR(libc::EAGAIN) && self.state == LibavState::Running => {
                    return Ok(DecoderOutput::NeedsPacket);
                }
                _ if code == ff::AVERROR_EOF || code == ff::AVERROR(libc::EAGAIN) => {
                    self.state = LibavState::Ended;
                }
                _ => self.reject(code),
            }
        }
    }

    /// Returns true if the received picture has all its references. Only in H.264 a picture may not:
    /// libavcodec marks pictures in front of the recovery point, unless they come at the drain. There
    /// the first I picture is the recovery point (open GOP), and what is shown before it is a leading
    /// picture.
    fn is_recovered(&mut self) -> bool {
        if self.slots.codec() != Codec::H264.name() {
            return true;
        }
        let picture = self.picture.as_ptr();
        // SAFETY: a filled frame, ours until the next receive. The type is read as a number, because
        // Rust may not know its value.
        let (flags, picture_type) = unsafe {
            let picture_type = (&raw const (*picture).pict_type).cast::<u32>();
            ((*picture).flags, picture_type.read())
        };
        if flags & ff::AV_FRAME_FLAG_CORRUPT as c_int != 0 {
            return false;
        }
        self.recovered |=
            self.state != LibavState::Draining || picture_type == ff::AVPictureType::AV_PICTURE_TYPE_I as u32;
        self.recovered
    }

    /// Returns the received picture as a frame; `None` if it is withheld.
    fn take_picture(&mut self) -> Result<Option<Frame>, CodecError> {
        let codec = self.slots.codec();
        let picture = self.picture.as_ptr();
        // SAFETY: a filled frame, ours until the next receive. Its fields are read separately: a
        // reference to the whole frame would assert that each of its enums has a value known to
        // Rust.
        let (number, flags, buffer, data, linesizes, width, height) = unsafe {
            let (data, linesizes) = ((*picture).data, (*picture).linesize);
            let (width, height) = ((*picture).width, (*picture).height);
            let (number, flags) = ((*picture).pts, (*picture).decode_error_flags);
            (number, flags, (*picture).buf[0], data, linesizes, width, height)
        };
        // A picture that lacks references is not counted as output.
        let meta = if self.is_recovered() { self.numbers.find(number) } else { None };
        let Some(meta) = meta else {
            // SAFETY: our frame; this releases its slot now, not with the next picture.
            unsafe { ff::av_frame_unref(self.picture.as_ptr()) };
            return Ok(None);
        };
        if self.failure.as_ref().is_some_and(|failure| !self.comes_before(failure, number, meta)) {
            return Ok(None);
        }
        if flags & DAMAGED != 0 {
            // The earlier pictures were output, in presentation order.
            self.state = LibavState::Ended;
            let error = CodecError::DamagedPicture { codec, packet: number.max(0) as u64 };
            self.failure.get_or_insert(LibavFailure { error, packet: number, shown_from: None });
            return Ok(None);
        }
        let side = |length: c_int| u32::try_from(length).unwrap_or(0);
        let outside = CodecError::OutsideSlot { codec };
        let mut strides = [0; 3];
        for (stride, linesize) in strides.iter_mut().zip(linesizes) {
            let Ok(linesize) = usize::try_from(linesize) else { return Err(outside) };
            *stride = linesize;
        }
        let starts = [data[0], data[1], data[2]].map(<*mut u8>::cast_const);
        if buffer.is_null() {
            return Err(outside);
        }
        // SAFETY: a decoder with direct rendering takes all picture memory from get_buffer2
        // (AV_CODEC_CAP_DR1). So the buffer's opaque is a slot of ours, alive while the picture
        // refers to the buffer.
        let slot = unsafe { &*ff::av_buffer_get_opaque(buffer).cast::<Slot>() };
        let size = (side(width), side(height));
        // SAFETY: a valid frame; libavcodec outputs only finished pictures.
        let frame = unsafe { slot.frame(size, starts, strides, colors_of(picture), meta) }?;
        // SAFETY: the frame keeps the slot; the decoder's reference is no longer needed here.
        unsafe { ff::av_frame_unref(self.picture.as_ptr()) };
        Ok(Some(frame))
    }

    fn reject(&mut self, code: c_int) {
        if let Some((number, failure)) = self.slots.take_failure() {
            return self.fail(number, failure);
        }
        let packet = self.numbers.sent().saturating_sub(1);
        let in_flight = (self.frame_threads() - 1).min(packet as u32);
        let error = CodecError::Rejected {
            codec: self.slots.codec(),
            packet,
            in_flight,
            message: libav_message(code),
        };
        self.fail(packet as i64 - i64::from(in_flight), error);
    }

    /// Keeps the first failure until the earlier pictures were output.
    fn fail(&mut self, packet: i64, error: CodecError) {
        if self.failure.is_none() {
            let shown_from = self.numbers.earliest_from(packet);
            self.failure = Some(LibavFailure { error, packet, shown_from });
        }
        self.drain();
    }

    /// Returns true if a picture is decoded and shown before any picture that is missing because
    /// of the failure.
    fn comes_before(&self, failure: &LibavFailure, number: i64, meta: FrameMeta) -> bool {
        // SAFETY: an open context.
        let reorders = unsafe { (*self.context.as_ptr()).has_b_frames } > 0;
        let shown_before = match (meta.pts, failure.shown_from) {
            (Some(pts), Some(from)) => pts < from,
            _ => !reorders,
        };
        number < failure.packet && shown_before
    }

    /// Returns the number of threads that decode one picture each; 1 without frame threads.
    fn frame_threads(&self) -> u32 {
        // SAFETY: an open context.
        let kind = unsafe { (*self.context.as_ptr()).active_thread_type };
        if kind & ff::FF_THREAD_FRAME as c_int != 0 { self.threads() } else { 1 }
    }
}

impl Drop for LibavDecoder {
    fn drop(&mut self) {
        // The library joins its threads, and a thread may be waiting for a frame that the caller
        // holds.
        self.slots.close();
    }
}

fn find_decoder(codec: Codec) -> Result<*const ff::AVCodec, CodecError> {
    // SAFETY: searches a static table.
    let found = unsafe { ff::avcodec_find_decoder(codec.id()) };
    if found.is_null() { Err(CodecError::NoDecoder { codec: codec.name() }) } else { Ok(found) }
}

/// Returns the number of threads of the open decoder.
fn active_threads(context: &CodecContext) -> u32 {
    // SAFETY: a valid context.
    u32::try_from(unsafe { (*context.as_ptr()).thread_count }).unwrap_or(1).max(1)
}

/// Returns the maximum number of threads that libavcodec will use: for `Auto`, the number of
/// processors plus one, up to 16.
fn expected_threads(threads: DecoderThreads) -> u32 {
    match threads {
        DecoderThreads::Count(count) => count.clamp(1, MAX_THREADS),
        DecoderThreads::Auto => {
            let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
            processors.saturating_add(1).min(16)
        }
    }
}

/// Provides a slot for libavcodec to decode into. Called on its threads; no path in it panics, so
/// nothing unwinds into C.
unsafe extern "C" fn get_buffer(
    context: *mut ff::AVCodecContext,
    frame: *mut ff::AVFrame,
    _flags: c_int,
) -> c_int {
    // SAFETY: libavcodec passes a valid context and a frame that only this call uses. `opaque` is
    // the decoder's `Slots`, which outlives it. No reference to the frame is made, because its
    // enums may have any value.
    let (slots, width, height, format, number) = unsafe {
        let slots = &*(*context).opaque.cast::<Slots>();
        (slots, (*frame).width, (*frame).height, (*frame).format, (*frame).pts)
    };
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

/// Frees the slot of a picture that the decoder released. Called on any thread.
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

/// Returns libavcodec's name of the codec with the number `id`, even if the bindings have no name
/// for it.
pub(crate) fn codec_name(id: u32) -> String {
    // SAFETY: any number is valid; the result is a static string.
    unsafe { CStr::from_ptr(codec_name_of(id)) }.to_string_lossy().into_owned()
}

unsafe extern "C" {
    /// Declared here for the same reason as the function below.
    #[link_name = "avcodec_get_name"]
    fn codec_name_of(id: u32) -> *const std::ffi::c_char;

    /// Declared here with C's plain integer, because a number from a frame must not become a Rust
    /// enum unchecked.
    #[link_name = "av_get_pix_fmt_name"]
    fn pixel_format_name(format: c_int) -> *const std::ffi::c_char;
}

const _: () = {
    // libavcodec calls back, and releases slots, on any thread.
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<Slots>();
    crosses_threads::<Slot>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_a_name_in_the_bindings_are_named_by_the_library() {
        assert_eq!(codec_name(Codec::H264.id() as u32), "h264");
        assert_eq!(codec_name(u32::MAX), "unknown_codec");
    }
}
