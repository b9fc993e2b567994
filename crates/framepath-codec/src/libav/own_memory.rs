// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pictures in memory of libavcodec: they are copied into a slot, or converted if their format is not
//! supported.

use std::ffi::{c_int, c_void};
use std::ptr;

use ffmpeg_sys_next as ff;
use framepath_model::colors::Colors;
use framepath_model::format::PixelFormat;
use framepath_os::measure::meter;

use crate::CodecError;
use crate::colors::colors_of;
use crate::convert::FLAGS;
use crate::libav_format::{format_name, libav_format, nearest, pixel_format};
use crate::slots::{Padded, Slot, SlotRequest, Slots};

/// Alignment of the rows in the slot, in bytes.
const ROW_ALIGN: usize = 64;

/// libswscale's context for conversions of one decoder's pictures; null before the first
/// conversion, and after libswscale could not make a context.
pub(super) struct Conversion(*mut ff::SwsContext);

// SAFETY: a context belongs to the owner of the pointer, and may be used on any thread.
unsafe impl Send for Conversion {}

impl Drop for Conversion {
    fn drop(&mut self) {
        // SAFETY: null, or ours and not used again.
        unsafe { ff::sws_freeContext(self.0) }
    }
}

impl Conversion {
    pub(super) fn new() -> Conversion {
        Conversion(ptr::null_mut())
    }

    /// Copies the picture of packet `number` into a slot, or converts it to the nearest format. The meter
    /// counts the bytes. Returns the slot, the addresses of its planes and their strides. Sleeps while
    /// later stages hold all slots.
    ///
    /// # Errors
    /// No slot can be taken; framepath and libswscale have no conversion for the format; the
    /// conversion fails, for example for lack of memory; or the picture lacks a plane.
    ///
    /// # Safety
    /// `frame` is a picture that a decoder has output.
    pub(super) unsafe fn copy_picture(
        &mut self,
        slots: &Slots,
        number: i64,
        frame: *const ff::AVFrame,
    ) -> Result<(Slot, [*const u8; 4], [usize; 4]), CodecError> {
        // SAFETY: fields of a valid frame.
        let (format, width, height) = unsafe { ((*frame).format, (*frame).width, (*frame).height) };
        let unsupported =
            || CodecError::UnsupportedPixelFormat { codec: slots.codec(), format: format_name(format) };
        let same = pixel_format(format);
        let to = same.or_else(|| nearest(format)).ok_or_else(unsupported)?;
        let side = |pixels: c_int| usize::try_from(pixels).unwrap_or(0);
        let request = SlotRequest { decoded: to, width: side(width), height: side(height) };
        // SAFETY: guaranteed by the caller.
        let pad = || padded(request, unsafe { colors_of(frame) });
        let slot = match slots.take(number, request, pad) {
            Some(slot) => slot,
            None => {
                let failure = slots.take_failure().map(|(_, failure)| failure);
                return Err(failure.unwrap_or(CodecError::OutsideSlot { codec: slots.codec() }));
            }
        };
        let areas = slot.surface.areas;
        let bytes = (0..to.plane_count()).map(|plane| {
            let (row, rows) = to.plane_size(plane, request.width, request.height);
            row * rows
        });
        let bytes: usize = bytes.sum();
        // SAFETY: guaranteed by the caller; the slot was divided for a picture of this format and size, and
        // nothing else uses it.
        let converted = unsafe {
            match same {
                Some(_) => meter::copy(bytes, || copy_planes(frame, &slot, request)),
                None => meter::convert(bytes, || self.convert(frame, &slot, to)),
            }
        };
        if !converted {
            return Err(unsupported());
        }
        let mut starts = [ptr::null(); 4];
        for (start, area) in starts.iter_mut().zip(areas).take(to.plane_count()) {
            // SAFETY: the areas are inside the slot.
            *start = unsafe { slot.base().add(area.offset) }.cast_const();
        }
        Ok((slot, starts, areas.map(|area| area.stride)))
    }

    /// Converts the picture `frame` to the format `to` in `slot`. Returns false if libswscale cannot.
    ///
    /// # Safety
    /// As for [`copy_picture`](Conversion::copy_picture); the slot is divided for the picture.
    unsafe fn convert(&mut self, frame: *const ff::AVFrame, slot: &Slot, to: PixelFormat) -> bool {
        let (mut planes, mut strides) = ([ptr::null_mut(); 4], [0; 4]);
        for (index, area) in slot.surface.areas.iter().enumerate().filter(|(_, area)| area.rows > 0) {
            // SAFETY: the areas are inside the slot.
            planes[index] = unsafe { slot.base().add(area.offset) };
            strides[index] = area.stride as c_int;
        }
        // SAFETY: a valid picture, whose memory libavcodec pads as libswscale requires; the planes of the slot
        // are those of a picture of this size, each with space for whole vectors behind it. The format is
        // passed as a number, because Rust may not know its value.
        unsafe {
            let (width, height) = ((*frame).width, (*frame).height);
            let (from, to) = (without_range((*frame).format), libav_format(to) as c_int);
            let none = ptr::null_mut();
            self.0 = cached_context(
                self.0,
                width,
                height,
                from,
                width,
                height,
                to,
                FLAGS,
                none,
                none,
                ptr::null(),
            );
            !self.0.is_null()
                && ff::sws_scale(
                    self.0,
                    (&raw const (*frame).data).cast(),
                    (&raw const (*frame).linesize).cast(),
                    0,
                    height,
                    planes.as_ptr(),
                    strides.as_ptr(),
                ) == height
        }
    }
}

/// Returns YUV440P for YUVJ440P, which differs only in that it means full range; returns every
/// other format unchanged. So the conversion keeps the range, which the frame's colours declare.
fn without_range(format: c_int) -> c_int {
    const FULL: c_int = ff::AVPixelFormat::AV_PIX_FMT_YUVJ440P as c_int;
    if format == FULL { ff::AVPixelFormat::AV_PIX_FMT_YUV440P as c_int } else { format }
}

/// Copies the rows of `frame` to the planes of `slot`. Returns false if the frame has no memory for
/// one of the planes. libav's strides may be negative: rows from bottom to top.
///
/// # Safety
/// `frame` is a valid picture of the format and size of `request`, and `slot` is divided for it.
unsafe fn copy_planes(frame: *const ff::AVFrame, slot: &Slot, request: SlotRequest) -> bool {
    let format = request.decoded;
    for plane in 0..format.plane_count() {
        let (bytes, rows) = format.plane_size(plane, request.width, request.height);
        let area = slot.surface.areas[plane];
        // SAFETY: a plane of a valid picture has these rows; those of the slot are inside it.
        unsafe {
            let (from, stride) = ((*frame).data[plane], (*frame).linesize[plane] as isize);
            if from.is_null() {
                return false;
            }
            for row in 0..rows {
                let to = slot.base().add(area.offset + row * area.stride);
                ptr::copy_nonoverlapping(from.offset(row as isize * stride), to, bytes);
            }
        }
    }
    true
}

/// Returns the layout of a slot whose picture no decoder writes: each row has a multiple of
/// [`ROW_ALIGN`] bytes, and there are no rows below the picture.
fn padded(request: SlotRequest, colors: Colors) -> Padded {
    let mut strides = [0; 4];
    for (plane, stride) in strides.iter_mut().enumerate().take(request.decoded.plane_count()) {
        *stride = request.decoded.plane_size(plane, request.width, 1).0.next_multiple_of(ROW_ALIGN);
    }
    let visible = (request.width, request.height);
    Padded { strides, rows: request.height, visible, references: 0, colors }
}

unsafe extern "C" {
    /// libswscale's `sws_getCachedContext`, declared with C's plain integers, because a format from a stream
    /// must not become a Rust enum unchecked.
    #[link_name = "sws_getCachedContext"]
    fn cached_context(
        context: *mut ff::SwsContext,
        width: c_int,
        height: c_int,
        format: c_int,
        to_width: c_int,
        to_height: c_int,
        to_format: c_int,
        flags: c_int,
        filter: *mut c_void,
        to_filter: *mut c_void,
        parameters: *const f64,
    ) -> *mut ff::SwsContext;
}
