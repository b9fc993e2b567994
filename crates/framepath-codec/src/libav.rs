// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoding by libavcodec, directly into the pool.
//!
//! libavcodec calls `get_buffer2` for the memory of each picture and gets a slot, if the decoder
//! can write into it and framepath supports the pixel format. Otherwise libavcodec decodes into its
//! own memory, and [`own_memory`] copies or converts the picture into a slot. The slot is wrapped
//! in an `AVBufferRef`, whose last reference releases the slot. Each packet carries its number in
//! `pts`, and libavcodec copies the number to the packet's picture. [`Numbers`] assigns pictures
//! that come without a known number.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ffmpeg_sys_next as ff;
use framepath_model::format::PixelFormat;
use framepath_model::stream::FrameMeta;
use framepath_os::measure::frame_threads::{FrameThreads, PictureWork};
use framepath_os::memory::pool::Frame;

use crate::codec::software_decoder;
use crate::colors::colors_of;
use crate::error::libav_message;
use crate::numbers::Numbers;
use crate::palette;
use crate::picture::described;
use crate::shortage::Shortage;
use crate::slots::Slots;
use crate::{
    Codec, CodecError, DecoderOptions, DecoderOutput, DecoderThreading, DecoderThreads, Packet, TrackInfo,
};

mod get_buffer;
mod memory_watch;
mod own_memory;

use get_buffer::{CallbackState, LentSlots, get_buffer};
use memory_watch::{SliceThreads, is_memory_short};
use own_memory::Conversion;

/// Maximum number of threads that [`DecoderThreads::Count`] requests from libavcodec, which itself
/// uses fewer for some codecs.
const MAX_THREADS: u32 = 64;

/// Values of `AVFrame::decode_error_flags` that count as damage: an invalid bitstream, concealed
/// parts, slices that failed. A missing reference alone is not included, because streams cut at a
/// recovery point have it.
const DAMAGED: c_int = ff::FF_DECODE_ERROR_INVALID_BITSTREAM as c_int
    | ff::FF_DECODE_ERROR_CONCEALMENT_ACTIVE as c_int
    | ff::FF_DECODE_ERROR_DECODE_SLICES as c_int;

/// Number of bytes of a palette, the only row of its plane.
const PALETTE: usize = PixelFormat::PALETTE_BYTES;

/// An `AVCodecContext`, freed on drop.
pub(crate) struct CodecContext(NonNull<ff::AVCodecContext>);

// SAFETY: owned by one decoder; libavcodec ties nothing to a thread.
unsafe impl Send for CodecContext {}

impl CodecContext {
    /// Allocates a context for `track` and sets the stream's parameters and the number of threads.
    /// The context is not open yet. Fails if libavcodec does, for example for lack of memory.
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

    /// Sets the kind of threads; with `low_delay`, also makes libavcodec output each picture
    /// without delay. Has an effect only before the context is opened.
    fn set_threading(&mut self, threading: DecoderThreading, low_delay: bool) {
        let kind = match threading {
            DecoderThreading::Auto => ff::FF_THREAD_FRAME | ff::FF_THREAD_SLICE,
            DecoderThreading::Frame => ff::FF_THREAD_FRAME,
            DecoderThreading::Slice => ff::FF_THREAD_SLICE,
        };
        // SAFETY: valid and not open yet, so fields may be set.
        unsafe {
            (*self.as_ptr()).thread_type = kind as c_int;
            if low_delay {
                (*self.as_ptr()).flags |= ff::AV_CODEC_FLAG_LOW_DELAY as c_int;
            }
        }
    }

    /// Opens the context with the decoder `codec`. `name` is the codec's name in errors.
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
    // Dropped before `shared`, because libavcodec's threads use it in their callbacks.
    context: CodecContext,
    picture: PictureRef,
    conversion: Conversion,
    /// State for libavcodec's callbacks, which find its address in the context's field `opaque`.
    /// In an `Arc`, because moving a `Box` asserts that no other pointer into it exists.
    shared: Arc<CallbackState>,
    /// Number that the last returned picture carried, normally that of its packet; -1 before the
    /// first.
    output: i64,
    numbers: Numbers,
    state: LibavState,
    /// True if an H.264 picture that libavcodec did not mark as corrupt was received since the
    /// start or the last flush; while the decoder drains, only an I picture makes this true. Later
    /// pictures, in presentation order, then have all their references, unless libavcodec marks
    /// them as corrupt. Not used for other codecs.
    recovered: bool,
    /// First failure since the start or the last flush, whose error `receive` returns after the
    /// earlier pictures; `None` if there is none, or if its error was returned.
    failure: Option<LibavFailure>,
    /// True if decoding continues after damage: the option [`DecoderOptions::conceals`].
    conceals: bool,
    /// Number of the last packet that was put into `rejections`; -1 before the first.
    undecoded: i64,
    /// Rejected packets that `receive` has not reported yet, oldest first; always empty if
    /// `conceals` is false.
    rejections: VecDeque<DecoderOutput>,
}

/// Failure whose error is returned after the earlier pictures.
struct LibavFailure {
    error: CodecError,
    /// Number of the first packet that the failure may concern.
    packet: i64,
    /// Presentation time, in ticks, of the first picture that may be missing because of the
    /// failure: pictures from this time on are withheld. The earliest time of the packets from
    /// `packet` on that [`Numbers`] still stores. `None` if one of them has no time, if there is
    /// none, or after a damaged picture.
    shown_from: Option<i64>,
}

impl LibavDecoder {
    pub(crate) fn open(
        track: &TrackInfo,
        options: &DecoderOptions,
        slots: impl FnOnce(u32) -> Slots,
    ) -> Result<LibavDecoder, CodecError> {
        let name = track.codec.name();
        let codec = find_decoder(track.codec)?;
        // SAFETY: a valid description.
        let direct = unsafe { (*codec).capabilities } as u32 & ff::AV_CODEC_CAP_DR1 != 0;
        let mut context = CodecContext::new(track, codec, options.threads)?;
        context.set_threading(options.threading, options.low_delay);
        let picture = PictureRef::new(name)?;
        // The number of threads is known only after opening, but the callback has to be set
        // before, because frame threads copy it.
        let shared = Arc::new(CallbackState {
            slots: slots(expected_threads(options.threads)),
            frame_threads: FrameThreads::default(),
            direct,
            read_only: matches!(track.codec, Codec::Other(_)),
            lent: LentSlots::default(),
            slice_threads: SliceThreads::default(),
        });
        // SAFETY: valid, not open. The shared state outlives the context (field order)
        // and is used by the callback through a shared reference only.
        unsafe {
            (*context.as_ptr()).opaque = Arc::as_ptr(&shared).cast_mut().cast();
            (*context.as_ptr()).get_buffer2 = Some(get_buffer);
            if track.codec == Codec::H264 {
                // At the drain, libavcodec leaves out the pictures that it held back while it had
                // not reached the recovery point, even those that follow the point and are right.
                // With this flag, libavcodec outputs all of them, and `is_recovered` selects the
                // right ones.
                (*context.as_ptr()).flags |= ff::AV_CODEC_FLAG_OUTPUT_CORRUPT as c_int;
            }
        }
        context.open(name, codec)?;
        // SAFETY: an open context that has not decoded, whose `opaque` is the shared state.
        unsafe { shared.slice_threads.observe(context.as_ptr()) };
        let threads = active_threads(&context);
        Ok(LibavDecoder {
            context,
            picture,
            conversion: Conversion::new(),
            shared,
            output: -1,
            numbers: Numbers::new(threads),
            state: LibavState::Running,
            recovered: false,
            failure: None,
            conceals: options.conceals,
            undecoded: -1,
            rejections: VecDeque::new(),
        })
    }

    pub(crate) fn threads(&self) -> u32 {
        active_threads(&self.context)
    }

    pub(crate) fn send(&mut self, mut packet: Packet) -> Result<(), CodecError> {
        // Only streams of `Codec::Other` have palettes.
        if self.shared.read_only {
            palette::detach(&mut packet);
        }
        // After a failure and after the end, nothing more is decoded. libavcodec would treat an
        // empty packet as the end.
        if self.state != LibavState::Running || packet.is_empty() {
            return Ok(());
        }
        let number = self.numbers.insert(packet.meta(), packet.preroll());
        if self.frame_threads() > 1 {
            self.shared.frame_threads.sending(number);
        }
        self.shared.slice_threads.sending(number);
        let shortage = Shortage::watch();
        // SAFETY: only this call uses the packet; the context is open.
        let code = unsafe {
            (*packet.as_ptr()).pts = number;
            ff::avcodec_send_packet(self.context.as_ptr(), packet.as_ptr())
        };
        self.check_memory(&shortage);
        if code == ff::AVERROR(libc::EAGAIN) {
            return Err(CodecError::NotDrained { codec: self.shared.slots.codec() });
        }
        if code < 0 {
            self.reject(code);
        }
        Ok(())
    }

    pub(crate) fn drain(&mut self) {
        if self.state == LibavState::Running {
            self.state = LibavState::Draining;
            let shortage = Shortage::watch();
            // SAFETY: an open context; a null packet means the end. The call also receives the next picture of a
            // frame thread, and returns the error of that picture.
            let code = unsafe { ff::avcodec_send_packet(self.context.as_ptr(), ptr::null()) };
            self.check_memory(&shortage);
            if code < 0 {
                self.reject(code);
            }
        }
    }

    /// Drops the pending pictures, rejections and the failure; decoding restarts with the next
    /// packet. Returns the number of dropped pictures, as [`Numbers::flush`] counts them.
    pub(crate) fn flush(&mut self) -> u64 {
        // SAFETY: an open context. Its threads are idle afterwards, and no picture is left that
        // was not received.
        unsafe { ff::avcodec_flush_buffers(self.context.as_ptr()) };
        self.shared.frame_threads.flush();
        self.shared.slots.forget_failure();
        self.failure = None;
        self.rejections.clear();
        self.recovered = false;
        self.state = LibavState::Running;
        self.numbers.flush()
    }

    pub(crate) fn receive(&mut self) -> Result<DecoderOutput, CodecError> {
        loop {
            if let Some(rejection) = self.rejections.pop_front() {
                return Ok(rejection);
            }
            if self.state == LibavState::Ended {
                return self.failure.take().map_or(Ok(DecoderOutput::End), |failure| Err(failure.error));
            }
            let shortage = Shortage::watch();
            // SAFETY: both are valid; libavcodec clears the picture first.
            let code = unsafe { ff::avcodec_receive_frame(self.context.as_ptr(), self.picture.as_ptr()) };
            self.check_memory(&shortage);
            if let Some((number, failure)) = self.shared.slots.take_failure() {
                // libavcodec's H.264 decoder continues without the picture for which there was no
                // slot, and reports no error.
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

    /// Returns true if the received picture has all its references, as far as libavcodec shows it;
    /// always true for codecs other than H.264. libavcodec marks H.264 pictures before the recovery
    /// point as corrupt, except at the drain. If the drain begins before the recovery point, the
    /// first I picture counts as this point (open GOP): the pictures shown before it are leading
    /// pictures, which lack references. Updates `recovered`.
    fn is_recovered(&mut self) -> bool {
        if self.shared.slots.codec() != Codec::H264.name() {
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

    /// Returns the received picture as a frame; `None` if the picture is withheld: references are
    /// missing, it is preroll, it does not come before a failure, it could not be copied or
    /// converted into a slot, or it is damaged and the decoder does not conceal damage. A failed
    /// copy is recorded as a failure; damage is too, and ends decoding at once. Marks the picture's
    /// packet as received, unless references are missing. Fails as
    /// [`Slot::frame`](crate::slots::Slot::frame).
    fn take_picture(&mut self) -> Result<Option<Frame>, CodecError> {
        let codec = self.shared.slots.codec();
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
        // A picture that lacks references, or does not come before a failure, is not marked as received in
        // `numbers`: a flush counts it.
        let known = self.numbers.meta_of(number);
        let comes = self.failure.as_ref().is_none_or(|failure| self.comes_before(failure, number, known));
        let meta = if self.is_recovered() && comes { self.numbers.find(number) } else { None };
        let Some(mut meta) = meta else {
            // SAFETY: our frame; this releases its slot now, not with the next picture.
            unsafe { ff::av_frame_unref(self.picture.as_ptr()) };
            return Ok(None);
        };
        // SAFETY: a filled frame.
        meta = unsafe { described(picture, meta) };
        if flags & DAMAGED != 0 && self.is_memory_short() {
            // The damage is not the stream's.
            self.fail(number, self.no_memory());
            return Ok(None);
        }
        meta.is_damaged |= flags & DAMAGED != 0;
        if flags & DAMAGED != 0 && !self.conceals {
            // Decoding can end at once, because the earlier pictures, in presentation order, were
            // output.
            self.state = LibavState::Ended;
            let error = CodecError::DamagedPicture { codec, packet: number.max(0) as u64 };
            self.failure.get_or_insert(LibavFailure { error, packet: number, shown_from: None });
            return Ok(None);
        }
        let side = |length: c_int| u32::try_from(length).unwrap_or(0);
        let size = (side(width), side(height));
        // SAFETY: the picture refers to the buffer until it is released below.
        let slot = unsafe { self.shared.lent.slot_of(buffer) };
        let strides = linesizes.map(|linesize| usize::try_from(linesize).ok());
        let copied;
        let (slot, starts, strides) = match (slot, strides) {
            (Some(slot), [Some(first), Some(second), Some(third), Some(fourth), ..]) => {
                // libavcodec gives the palette no stride.
                let second = if slot.surface.decoded == PixelFormat::Pal8 { PALETTE } else { second };
                let starts = [data[0], data[1], data[2], data[3]].map(<*mut u8>::cast_const);
                (slot, starts, [first, second, third, fourth])
            }
            // SAFETY: a filled frame.
            _ => match unsafe { self.conversion.copy_picture(&self.shared.slots, number, picture) } {
                Ok((slot, starts, strides)) => {
                    copied = slot;
                    (&copied, starts, strides)
                }
                Err(error) => {
                    self.fail(number, error);
                    return Ok(None);
                }
            },
        };
        // SAFETY: a valid frame; libavcodec outputs only finished pictures.
        let frame = unsafe { slot.frame(size, starts, strides, colors_of(picture), meta) }?;
        // SAFETY: the frame keeps the slot; the decoder's reference is no longer needed here.
        unsafe { ff::av_frame_unref(self.picture.as_ptr()) };
        self.output = number;
        Ok(Some(frame))
    }

    /// Returns the work of a frame thread on the picture that was returned last; `None` if it is not
    /// known, and in a second call for the same picture.
    pub(crate) fn work(&self) -> Option<PictureWork> {
        self.shared.frame_threads.output(self.output)
    }

    /// Records a failure if memory ran out in the library's call that `shortage` has watched.
    /// Decoders hide this: H.264 reports invalid data, FFV1 outputs a wrong picture.
    fn check_memory(&mut self, shortage: &Shortage) {
        if shortage.occurred() && self.is_memory_short() {
            self.fail(self.oldest_in_flight(), self.no_memory());
        }
    }

    /// Returns true if there is no memory for another picture.
    fn is_memory_short(&self) -> bool {
        // SAFETY: a valid context.
        unsafe { is_memory_short(self.context.as_ptr()) }
    }

    fn no_memory(&self) -> CodecError {
        CodecError::DecoderMemory { codec: self.shared.slots.codec() }
    }

    /// Returns the number of the first packet that the decoder may be working on.
    fn oldest_in_flight(&self) -> i64 {
        let last = self.numbers.sent().saturating_sub(1);
        last.saturating_sub(u64::from(self.frame_threads() - 1)) as i64
    }

    /// Handles the library's error `code` for a packet. Records a failure, which ends decoding, if
    /// [`Slots`] has recorded one, if memory ran out, or if the decoder does not conceal damage.
    /// Otherwise records a rejection, which `receive` reports, and decoding continues.
    fn reject(&mut self, code: c_int) {
        if let Some((number, failure)) = self.shared.slots.take_failure() {
            return self.fail(number, failure);
        }
        if code == ff::AVERROR(libc::ENOMEM) || self.is_memory_short() {
            return self.fail(self.oldest_in_flight(), self.no_memory());
        }
        let packet = self.numbers.sent().saturating_sub(1);
        let in_flight = (self.frame_threads() - 1).min(packet as u32);
        let error = CodecError::Rejected {
            codec: self.shared.slots.codec(),
            packet,
            in_flight,
            message: libav_message(code),
        };
        let first = packet as i64 - i64::from(in_flight);
        if !self.conceals {
            return self.fail(first, error);
        }
        // Of the packets in the decoder, the oldest one that was not reported yet is the most
        // likely cause.
        self.undecoded = first.max(self.undecoded + 1).min(packet as i64);
        let packet = self.numbers.meta_of(self.undecoded);
        self.rejections.push_back(DecoderOutput::Undecoded { packet, error });
    }

    /// Records `error` if it is the first failure, and drains the decoder. `packet` is the number
    /// of the first packet that the failure may concern.
    fn fail(&mut self, packet: i64, error: CodecError) {
        if self.failure.is_none() {
            let shown_from = self.numbers.earliest_from(packet);
            self.failure = Some(LibavFailure { error, packet, shown_from });
        }
        self.drain();
    }

    /// Returns true if the picture of packet `number` comes before every picture that may be
    /// missing because of `failure`: its packet was sent before the packet of the failure, and its
    /// time in `meta` is before `failure.shown_from`. If one of these two times is not known, the
    /// second condition is instead that the decoder does not reorder pictures.
    fn comes_before(&self, failure: &LibavFailure, number: i64, meta: FrameMeta) -> bool {
        // SAFETY: an open context.
        let reorders = unsafe { (*self.context.as_ptr()).has_b_frames } > 0;
        let shown_before = match (meta.pts, failure.shown_from) {
            (Some(pts), Some(from)) => pts < from,
            _ => !reorders,
        };
        number < failure.packet && shown_before
    }

    /// Returns the number of frame threads, each of which decodes a picture of its own; 1 if the
    /// decoder has no frame threads.
    pub(crate) fn frame_threads(&self) -> u32 {
        // SAFETY: an open context.
        let kind = unsafe { (*self.context.as_ptr()).active_thread_type };
        if kind & ff::FF_THREAD_FRAME as c_int != 0 { self.threads() } else { 1 }
    }
}

impl Drop for LibavDecoder {
    fn drop(&mut self) {
        // The library joins its threads, and a thread may be waiting for a frame that the caller
        // holds.
        self.shared.slots.close();
    }
}

/// Returns libavcodec's first software decoder for `codec`; [`CodecError::NoDecoder`] if there is
/// none.
fn find_decoder(codec: Codec) -> Result<*const ff::AVCodec, CodecError> {
    software_decoder(codec.id()).ok_or(CodecError::NoDecoder { codec: codec.name() })
}

/// Returns the number of threads of the open decoder, at least 1.
fn active_threads(context: &CodecContext) -> u32 {
    // SAFETY: a valid context.
    u32::try_from(unsafe { (*context.as_ptr()).thread_count }).unwrap_or(1).max(1)
}

/// Returns the maximum number of threads that libavcodec will use: `Count` limited to 1 to
/// [`MAX_THREADS`]; for `Auto`, the number of available processors plus one, up to 16.
fn expected_threads(threads: DecoderThreads) -> u32 {
    match threads {
        DecoderThreads::Count(count) => count.clamp(1, MAX_THREADS),
        DecoderThreads::Auto => {
            let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
            processors.saturating_add(1).min(16)
        }
    }
}
