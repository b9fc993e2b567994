// SPDX-License-Identifier: MIT OR Apache-2.0
//! AV1 decoding by dav1d, directly into the pool.
//!
//! FFmpeg's wrapper of dav1d has no direct rendering. So this module calls dav1d itself, with a
//! picture allocator that returns slots. The settings are those of the wrapper, so that the
//! pictures are equal.

use std::collections::VecDeque;
use std::ffi::{CStr, c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use framepath_model::colors::{ColorRange, Colors};
use framepath_model::format::PixelFormat;
use framepath_os::memory::pool::Frame;

use crate::numbers::Numbers;
use crate::slots::{Padded, Slot, SlotRequest, Slots};
use crate::{CodecError, DecoderOptions, DecoderOutput, DecoderThreading, DecoderThreads, Packet};

#[allow(non_camel_case_types, non_snake_case, non_upper_case_globals, dead_code, missing_docs)]
#[allow(unsafe_op_in_unsafe_fn, clippy::all, clippy::undocumented_unsafe_blocks)]
mod ffi {
    //! Bindings of the installed header, made by the build script.
    include!(concat!(env!("OUT_DIR"), "/dav1d.rs"));
}

/// dav1d's return code if it has no room for data, or no picture yet.
const AGAIN: c_int = -libc::EAGAIN;

/// Maximum number of threads that dav1d supports.
const MAX_THREADS: u32 = 256;

/// Multiple to which dav1d pads its pictures, pixels.
const PAD: usize = 128;

/// Returns dav1d's version as a static string.
pub(crate) fn version() -> *const std::ffi::c_char {
    // SAFETY: takes nothing and may be called at any time.
    unsafe { ffi::dav1d_version() }
}

/// dav1d's decoder instance, closed on drop.
struct Context(NonNull<ffi::Dav1dContext>);

// SAFETY: owned by one decoder; dav1d ties nothing to the calling thread.
unsafe impl Send for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        let mut raw = self.0.as_ptr();
        // SAFETY: from dav1d_open, closed only here. Ends dav1d's threads.
        unsafe { ffi::dav1d_close(&mut raw) };
    }
}

/// Bytes of a packet for dav1d, released on drop if dav1d did not take them.
struct Data(ffi::Dav1dData);

// SAFETY: refers to a packet, which may move between threads.
unsafe impl Send for Data {}

impl Data {
    /// Wraps the packet's bytes, with `number` as their timestamp; the packet lives until dav1d
    /// releases them. Returns `None` if there is not enough memory.
    fn of(packet: Packet, number: i64) -> Option<Data> {
        // SAFETY: all-zero is the empty value documented by dav1d.
        let mut data = Data(unsafe { mem::zeroed() });
        let packet = Box::new(packet);
        let (bytes, length) = packet.data();
        let cookie = Box::into_raw(packet);
        // SAFETY: the bytes belong to the packet, which `free_packet` frees.
        let code =
            unsafe { ffi::dav1d_data_wrap(&mut data.0, bytes, length, Some(free_packet), cookie.cast()) };
        if code < 0 {
            // SAFETY: dav1d did not take it.
            drop(unsafe { Box::from_raw(cookie) });
            return None;
        }
        data.0.m.timestamp = number;
        Some(data)
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if !self.0.data.is_null() {
            // SAFETY: a reference that dav1d did not take.
            unsafe { ffi::dav1d_data_unref(&mut self.0) };
        }
    }
}

/// Frees the packet that dav1d has read. Called on any thread.
unsafe extern "C" fn free_packet(_bytes: *const u8, cookie: *mut c_void) {
    // SAFETY: the box passed to dav1d_data_wrap, freed once.
    drop(unsafe { Box::from_raw(cookie.cast::<Packet>()) });
}

/// Picture that dav1d returned, released on drop.
struct PictureRef(ffi::Dav1dPicture);

// SAFETY: dav1d counts the references atomically and ties nothing to a thread.
unsafe impl Send for PictureRef {}

impl PictureRef {
    /// Returns the number of the picture's spatial layer, and that of the highest layer in the
    /// stream's first operating point; (0, 0) for a stream without layers.
    fn layers(&self) -> (c_int, c_int) {
        // SAFETY: dav1d sets the headers of a picture that it outputs, and keeps them with it.
        let headers = unsafe { (self.0.frame_hdr.as_ref(), self.0.seq_hdr.as_ref()) };
        let (Some(frame), Some(sequence)) = headers else { return (0, 0) };
        // Bits 8 to 11 of the operating point are its spatial layers.
        let mask = sequence.operating_points[0].idc >> 8 & 0xf;
        // A C int in dav1d 1.0, a byte in later versions.
        #[allow(clippy::useless_conversion)]
        let layer = c_int::from(frame.spatial_id);
        (layer, mask.checked_ilog2().unwrap_or(0) as c_int)
    }
}

impl Drop for PictureRef {
    fn drop(&mut self) {
        // SAFETY: a reference from dav1d_get_picture, released once.
        unsafe { ffi::dav1d_picture_unref(&mut self.0) };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dav1dState {
    /// A packet was sent since the last request for output, so another request is due.
    Sent,
    /// No packet was sent since the start or the last flush, or output was requested since the last
    /// packet. Another request before the next packet would make dav1d wait for its threads.
    Idle,
    Draining,
    Ended,
}

pub(crate) struct Dav1dDecoder {
    /// Picture of a spatial layer below the highest; `None` without one, and always `None` if dav1d
    /// works on several pictures at a time. If the next picture is of a higher layer, it replaces the
    /// held picture, which is not output. Otherwise the held picture is output, and the next picture
    /// is held. dav1d makes this choice itself if it works on several pictures. If it works on one,
    /// it outputs the highest layer of each packet, but a container may store each layer as a packet.
    held: Option<PictureRef>,
    // Dropped before `slots`, because dav1d's threads use the slots.
    context: Context,
    /// Packet for which dav1d had no room yet; `None` if dav1d has taken all packets.
    pending: Option<Data>,
    /// Slots that [`allocate`] hands out; dav1d's settings have the address. Not a `Box`, because
    /// moving a box asserts that no other pointer into it exists.
    slots: Arc<Slots>,
    numbers: Numbers,
    threads: u32,
    /// Maximum number of pictures that dav1d works on at a time.
    pictures: u32,
    state: Dav1dState,
    failure: Option<CodecError>,
    /// True if decoding continues after packets that dav1d rejects, except for lack of memory: the
    /// option [`DecoderOptions::conceals`].
    conceals: bool,
    /// Number of the last packet that was put into `rejections`; -1 before the first.
    undecoded: i64,
    /// Rejected packets that `receive` has not reported yet, oldest first; always empty if
    /// `conceals` is false.
    rejections: VecDeque<DecoderOutput>,
    /// Number of the first packet that a rejection which ends decoding may concern: its picture and
    /// later pictures are withheld. `i64::MAX` without such a rejection. AV1 shows pictures in the
    /// order of packets.
    stop_at: i64,
}

impl Dav1dDecoder {
    pub(crate) fn open(
        options: &DecoderOptions,
        slots: impl FnOnce(u32) -> Slots,
    ) -> Result<Dav1dDecoder, CodecError> {
        let count = match options.threads {
            DecoderThreads::Count(count) => count.clamp(1, MAX_THREADS),
            DecoderThreads::Auto => {
                let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
                processors.min(MAX_THREADS)
            }
        };
        let slots = Arc::new(slots(count));
        let mut settings = MaybeUninit::uninit();
        // SAFETY: dav1d fills all fields.
        let mut settings = unsafe {
            ffi::dav1d_default_settings(settings.as_mut_ptr());
            settings.assume_init()
        };
        settings.n_threads = count as c_int;
        // 1 makes dav1d work on one picture at a time, as a single thread does; 0 lets dav1d
        // choose.
        let one_picture = count == 1 || options.low_delay || options.threading == DecoderThreading::Slice;
        settings.max_frame_delay = c_int::from(one_picture);
        let pictures = if one_picture { 1 } else { count };
        // FFmpeg's wrapper outputs only the highest layer.
        settings.all_layers = 0;
        settings.logger.callback = None;
        settings.allocator = ffi::Dav1dPicAllocator {
            cookie: Arc::as_ptr(&slots).cast_mut().cast(),
            alloc_picture_callback: Some(allocate),
            release_picture_callback: Some(release),
        };
        let mut raw = ptr::null_mut();
        // SAFETY: valid settings. The slots outlive the context (field order)
        // and are used by the callbacks through a shared reference only.
        let code = unsafe { ffi::dav1d_open(&mut raw, &settings) };
        match NonNull::new(raw) {
            Some(raw) if code >= 0 => Ok(Dav1dDecoder {
                context: Context(raw),
                pending: None,
                numbers: Numbers::new(pictures),
                threads: count,
                pictures,
                held: None,
                state: Dav1dState::Idle,
                failure: None,
                conceals: options.conceals,
                undecoded: -1,
                rejections: VecDeque::new(),
                stop_at: i64::MAX,
                slots,
            }),
            _ => Err(CodecError::Decoder {
                codec: slots.codec(),
                operation: "open the decoder",
                message: message(code),
            }),
        }
    }

    pub(crate) fn threads(&self) -> u32 {
        self.threads
    }

    pub(crate) fn send(&mut self, packet: Packet) -> Result<(), CodecError> {
        let codec = self.slots.codec();
        if self.pending.is_some() {
            return Err(CodecError::NotDrained { codec });
        }
        if matches!(self.state, Dav1dState::Draining | Dav1dState::Ended) || packet.is_empty() {
            return Ok(());
        }
        let number = self.numbers.insert(packet.meta(), packet.preroll());
        match Data::of(packet, number) {
            Some(data) => {
                self.pending = Some(data);
                self.push();
            }
            None => self.reject(-libc::ENOMEM),
        }
        Ok(())
    }

    /// Submits the pending packet, if any, to dav1d. The packet stays pending if dav1d has no room.
    /// Any other error of dav1d goes to [`reject`](Dav1dDecoder::reject).
    fn push(&mut self) {
        let Some(mut data) = self.pending.take() else { return };
        // SAFETY: an open context and bytes that live until dav1d releases them.
        let code = unsafe { ffi::dav1d_send_data(self.context.0.as_ptr(), &mut data.0) };
        if self.state == Dav1dState::Idle {
            self.state = Dav1dState::Sent;
        }
        if code == AGAIN {
            self.pending = Some(data);
        } else if code < 0 {
            self.reject(code);
        }
    }

    pub(crate) fn drain(&mut self) {
        if self.state != Dav1dState::Ended {
            self.state = Dav1dState::Draining;
        }
    }

    /// Drops the pending packet, pictures, rejections and failure; decoding restarts with the next
    /// packet. Returns the number of dropped pictures, as [`Numbers::flush`] counts them.
    pub(crate) fn flush(&mut self) -> u64 {
        (self.pending, self.held) = (None, None);
        self.rejections.clear();
        // SAFETY: an open context. dav1d's threads are idle afterwards.
        unsafe { ffi::dav1d_flush(self.context.0.as_ptr()) };
        self.slots.forget_failure();
        (self.failure, self.stop_at, self.state) = (None, i64::MAX, Dav1dState::Idle);
        self.numbers.flush()
    }

    pub(crate) fn receive(&mut self) -> Result<DecoderOutput, CodecError> {
        // While the decoder drains, the first empty result only means that dav1d's threads are
        // working. In the next call, dav1d waits for them.
        let mut empty_results = 0;
        loop {
            if let Some(rejection) = self.rejections.pop_front() {
                return Ok(rejection);
            }
            match self.state {
                Dav1dState::Ended => {
                    let last = self.held.take().filter(|picture| picture.0.m.timestamp < self.stop_at);
                    if let Some(frame) = last.map_or(Ok(None), |picture| self.output_frame(&picture))? {
                        return Ok(DecoderOutput::Frame(frame));
                    }
                    return self.failure.take().map_or(Ok(DecoderOutput::End), Err);
                }
                Dav1dState::Idle if self.pending.is_none() => return Ok(DecoderOutput::NeedsPacket),
                Dav1dState::Idle | Dav1dState::Draining => self.push(),
                Dav1dState::Sent => {}
            }
            match self.get() {
                Ok(Some(picture)) if picture.0.m.timestamp >= self.stop_at => {}
                Ok(Some(picture)) => {
                    if self.state == Dav1dState::Sent {
                        self.state = Dav1dState::Idle;
                    }
                    let Some(picture) = self.select_layer(picture) else { continue };
                    if let Some(frame) = self.output_frame(&picture)? {
                        return Ok(DecoderOutput::Frame(frame));
                    }
                }
                Ok(None) if self.state == Dav1dState::Draining => {
                    empty_results += 1;
                    if empty_results > 1 && self.pending.is_none() {
                        self.state = Dav1dState::Ended;
                    }
                }
                Ok(None) => self.state = Dav1dState::Idle,
                Err(code) => self.reject(code),
            }
        }
    }

    fn get(&mut self) -> Result<Option<PictureRef>, c_int> {
        // SAFETY: all-zero is the empty value that dav1d requires; the context is open.
        let (picture, code) = unsafe {
            let mut picture = mem::zeroed();
            let code = ffi::dav1d_get_picture(self.context.0.as_ptr(), &mut picture);
            (picture, code)
        };
        match code {
            AGAIN => Ok(None),
            code if code < 0 => Err(code),
            _ => Ok(Some(PictureRef(picture))),
        }
    }

    /// Returns the picture to output after dav1d has output `picture`: always `picture` itself if
    /// dav1d works on several pictures; otherwise `picture` itself, or the held picture if
    /// `picture` begins another temporal unit and is held in its place. Returns `None`, and holds
    /// `picture`, if a higher layer may follow.
    fn select_layer(&mut self, picture: PictureRef) -> Option<PictureRef> {
        if self.pictures > 1 {
            return Some(picture);
        }
        let (layer, highest) = picture.layers();
        match self.held.take() {
            Some(held) if layer <= held.layers().0 => {
                self.held = Some(picture);
                Some(held)
            }
            _ if layer < highest => {
                self.held = Some(picture);
                None
            }
            _ => Some(picture),
        }
    }

    /// Marks the picture's packet as received, and returns the picture as a frame; `None` if the
    /// picture is preroll. Fails if the picture is outside its slot or has an invalid layout.
    fn output_frame(&mut self, picture: &PictureRef) -> Result<Option<Frame>, CodecError> {
        let picture = &picture.0;
        let Some(meta) = self.numbers.find(picture.m.timestamp) else { return Ok(None) };
        let outside = CodecError::OutsideSlot { codec: self.slots.codec() };
        let side = |length: c_int| u32::try_from(length).unwrap_or(0);
        let [Ok(luma), Ok(chroma)] = picture.stride.map(usize::try_from) else { return Err(outside) };
        if picture.allocator_data.is_null() {
            return Err(outside);
        }
        // SAFETY: set by `allocate`, and alive as long as the picture.
        let slot = unsafe { &*picture.allocator_data.cast::<Slot>() };
        let [y, u, v] = picture.data.map(|start| start.cast::<u8>().cast_const());
        let size = (side(picture.p.w), side(picture.p.h));
        // SAFETY: dav1d's own picture; dav1d outputs only finished pictures.
        unsafe {
            slot.frame(size, [y, u, v, ptr::null()], [luma, chroma, chroma, 0], colors_of(picture), meta)
        }
        .map(Some)
    }

    /// Handles dav1d's error `code`, and drops the pending packet. If [`Slots`] has recorded no failure,
    /// memory did not run out, and the decoder conceals damage, records a rejection to report, and
    /// decoding continues. Otherwise keeps the failure that [`Slots`] recorded, or else dav1d's error,
    /// unless an earlier failure is kept. Then drains the decoder; ends it without a drain if the pool
    /// is too small or an earlier failure is kept.
    fn reject(&mut self, code: c_int) {
        let failure = match self.slots.take_failure() {
            Some((_, failure)) => failure,
            None => {
                let (packet, in_flight) = match self.rejected_packet() {
                    Some(packet) => (packet, 0),
                    None => (self.numbers.sent().saturating_sub(1), self.pictures - 1),
                };
                let first = packet as i64 - i64::from(in_flight);
                let message = message(code);
                let codec = self.slots.codec();
                let error = match code == -libc::ENOMEM {
                    true => CodecError::DecoderMemory { codec },
                    false => CodecError::Rejected { codec, packet, in_flight, message },
                };
                if self.conceals && code != -libc::ENOMEM {
                    self.pending = None;
                    if self.state == Dav1dState::Sent {
                        // As in FFmpeg's wrapper: another request for output would make dav1d drain its
                        // threads, in which dav1d 1.0 can wait for ever after an error.
                        self.state = Dav1dState::Idle;
                    }
                    self.undecoded = first.max(self.undecoded + 1).min(packet as i64);
                    let packet = self.numbers.meta_of(self.undecoded);
                    self.rejections.push_back(DecoderOutput::Undecoded { packet, error });
                    return;
                }
                self.stop_at = self.stop_at.min(first);
                error
            }
        };
        self.pending = None;
        // If the pool is too small, unfinished pictures cannot be completed.
        let finished = self.failure.is_none() && !matches!(failure, CodecError::PoolTooSmall { .. });
        self.failure.get_or_insert(failure);
        self.state = if finished { Dav1dState::Draining } else { Dav1dState::Ended };
    }

    /// Returns the number of the packet that dav1d's last error concerns; `None` if dav1d does not
    /// report a packet that was sent.
    fn rejected_packet(&mut self) -> Option<u64> {
        // SAFETY: all-zero is an empty value; the context is open. The returned properties are
        // ours to release.
        let timestamp = unsafe {
            let mut props = mem::zeroed();
            if ffi::dav1d_get_decode_error_data_props(self.context.0.as_ptr(), &mut props) < 0 {
                return None;
            }
            let timestamp = props.timestamp;
            ffi::dav1d_data_props_unref(&mut props);
            timestamp
        };
        u64::try_from(timestamp).ok().filter(|number| *number < self.numbers.sent())
    }
}

impl Drop for Dav1dDecoder {
    fn drop(&mut self) {
        // The library joins its threads, and a thread may be waiting for a frame that the caller
        // holds.
        self.slots.close();
    }
}

/// Callback of dav1d: provides a slot to decode into. Returns 0, or a negative error code;
/// [`Slots`] records the reason, except for an invalid size. Called within calls of this decoder,
/// or on dav1d's threads. No path in it panics, so nothing unwinds into C.
unsafe extern "C" fn allocate(picture: *mut ffi::Dav1dPicture, cookie: *mut c_void) -> c_int {
    // SAFETY: dav1d passes a picture that only this call uses, and the decoder's `Slots`, which
    // outlive it.
    let (picture, slots) = unsafe { (&mut *picture, &*cookie.cast::<Slots>()) };
    let parameters = &picture.p;
    let number = picture.m.timestamp;
    let (width, height) = (usize::try_from(parameters.w), usize::try_from(parameters.h));
    let (Ok(width), Ok(height)) = (width, height) else { return -libc::EINVAL };
    let decoded = match (parameters.layout, parameters.bpc) {
        (ffi::DAV1D_PIXEL_LAYOUT_I400, 8) => PixelFormat::Grey,
        (ffi::DAV1D_PIXEL_LAYOUT_I400, 10) => PixelFormat::Grey10,
        (ffi::DAV1D_PIXEL_LAYOUT_I400, 12) => PixelFormat::Grey12,
        (ffi::DAV1D_PIXEL_LAYOUT_I420, 8) => PixelFormat::Yuv420p,
        (ffi::DAV1D_PIXEL_LAYOUT_I420, 10) => PixelFormat::Yuv420p10,
        (ffi::DAV1D_PIXEL_LAYOUT_I420, 12) => PixelFormat::Yuv420p12,
        (ffi::DAV1D_PIXEL_LAYOUT_I422, 8) => PixelFormat::Yuv422p,
        (ffi::DAV1D_PIXEL_LAYOUT_I422, 10) => PixelFormat::Yuv422p10,
        (ffi::DAV1D_PIXEL_LAYOUT_I422, 12) => PixelFormat::Yuv422p12,
        (ffi::DAV1D_PIXEL_LAYOUT_I444, 8) => PixelFormat::Yuv444p,
        (ffi::DAV1D_PIXEL_LAYOUT_I444, 10) => PixelFormat::Yuv444p10,
        (ffi::DAV1D_PIXEL_LAYOUT_I444, 12) => PixelFormat::Yuv444p12,
        (layout, depth) => {
            let format = format_name(layout, depth);
            slots.fail(number, CodecError::UnsupportedPixelFormat { codec: slots.codec(), format });
            return -libc::ENOMEM;
        }
    };
    let request = SlotRequest { decoded, width, height };
    // SAFETY: a valid picture of dav1d.
    let colors = unsafe { colors_of(picture) };
    let Some(slot) = slots.take(number, request, || padded(request, colors)) else { return -libc::ENOMEM };
    let [luma, u, v, _] = slot.surface.areas;
    picture.stride = [luma.stride as isize, u.stride as isize];
    picture.data = [ptr::null_mut(); 3];
    for (data, area) in picture.data.iter_mut().zip([luma, u, v]).filter(|(_, area)| area.rows > 0) {
        // SAFETY: the areas are inside the slot.
        *data = unsafe { slot.base().add(area.offset) }.cast();
    }
    picture.allocator_data = Box::into_raw(Box::new(slot)).cast();
    0
}

/// Callback of dav1d: drops the hold on the slot of a picture that dav1d and this decoder have
/// released. The slot returns to the pool when no frame uses it any more. Called on any thread.
unsafe extern "C" fn release(picture: *mut ffi::Dav1dPicture, _cookie: *mut c_void) {
    // SAFETY: the box that `allocate` attached to this picture, freed once.
    drop(unsafe { Box::from_raw((*picture).allocator_data.cast::<Slot>()) });
}

/// Returns strides and rows like those of dav1d's own allocator: whole blocks of 128x128 pixels. No
/// stride is a multiple of 1024 bytes, because the rows of a block would then compete for the same
/// cache lines.
fn padded(request: SlotRequest, colors: Colors) -> Padded {
    let align = ffi::DAV1D_PICTURE_ALIGNMENT as usize;
    let spread = |stride: usize| if stride % 1024 == 0 { stride + align } else { stride };
    let (width, mut strides) = (request.width.next_multiple_of(PAD), [0; 4]);
    for (plane, stride) in strides.iter_mut().enumerate().take(request.decoded.plane_count()) {
        *stride = spread(request.decoded.plane_size(plane, width, 1).0);
    }
    Padded {
        strides,
        rows: request.height.next_multiple_of(PAD),
        visible: (request.width, request.height),
        references: 0,
        colors,
    }
}

/// Returns the colours that the picture's sequence header declares; [`Colors::UNKNOWN`] without a
/// header.
///
/// # Safety
/// `picture` was filled by dav1d, or dav1d requests memory for it.
unsafe fn colors_of(picture: &ffi::Dav1dPicture) -> Colors {
    // SAFETY: dav1d sets the header before it requests memory, and keeps it with the picture.
    let Some(sequence) = (unsafe { picture.seq_hdr.as_ref() }) else { return Colors::UNKNOWN };
    let range = if sequence.color_range != 0 { ColorRange::Full } else { ColorRange::Limited };
    Colors::of(sequence.pri, sequence.trc, sequence.mtrx, range)
}

/// Returns libav's name for a format of dav1d with `depth` bits per sample.
fn format_name(layout: ffi::Dav1dPixelLayout, depth: c_int) -> String {
    let name = match layout {
        ffi::DAV1D_PIXEL_LAYOUT_I400 => "gray",
        ffi::DAV1D_PIXEL_LAYOUT_I420 => "yuv420p",
        ffi::DAV1D_PIXEL_LAYOUT_I422 => "yuv422p",
        _ => "yuv444p",
    };
    if depth == 8 { name.to_owned() } else { format!("{name}{depth}le") }
}

/// Returns the system's text for an error of dav1d, which is a negative errno. EINVAL means damaged
/// data and has a text of its own.
fn message(code: c_int) -> String {
    if code == -libc::EINVAL {
        return "invalid data found in the stream".to_owned();
    }
    let mut text = [0; 128];
    // SAFETY: the buffer has the stated length, and the text ends with a zero.
    unsafe {
        libc::strerror_r(-code, text.as_mut_ptr(), text.len());
        CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_what_dav1d_demands() {
        for (width, height) in [(1, 1), (99, 57), (1920, 1080), (4096, 2160)] {
            for decoded in [PixelFormat::Yuv420p, PixelFormat::Yuv420p10] {
                let padded = padded(SlotRequest { decoded, width, height }, Colors::UNKNOWN);
                let (sample, [luma, chroma, ..]) = (decoded.luma_bytes(), padded.strides);
                assert!(luma >= width.next_multiple_of(PAD) * sample);
                assert!(chroma * 2 >= width.next_multiple_of(PAD) * sample);
                assert_eq!((luma % 64, chroma % 64, padded.rows % PAD), (0, 0, 0));
                assert!(luma % 1024 != 0 && chroma % 1024 != 0);
            }
        }
    }

    #[test]
    fn unsupported_formats_have_names() {
        assert_eq!(format_name(ffi::DAV1D_PIXEL_LAYOUT_I444, 12), "yuv444p12le");
        assert_eq!(format_name(ffi::DAV1D_PIXEL_LAYOUT_I422, 8), "yuv422p");
    }
}
