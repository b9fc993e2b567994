// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of a pool as FFmpeg's libraries read them in place, without a copy.

use std::ffi::{c_int, c_void};

use ffmpeg_sys_next as ff;
use framepath_model::colors::{ColorRange, Colors};
use framepath_model::format::PixelFormat;
use framepath_os::memory::pool::Frame;

use crate::libav::PictureRef;
use crate::libav_format::libav_format;
use crate::picture::set_field_order;

/// Owner of a frame that a library of FFmpeg reads. Dropped on any thread.
pub(crate) trait FrameHolder: Send {
    fn frame(&self) -> &Frame;
}

impl FrameHolder for Frame {
    fn frame(&self) -> &Frame {
        self
    }
}

/// Returns an `AVFrame` whose planes are those of the frame of `holder`, read-only, with the frame's colours,
/// field order and presentation time. `holder` is dropped with the last reference to the planes. Returns `None`
/// if there is not enough memory.
pub(crate) fn lend<H: FrameHolder>(holder: Box<H>) -> Option<PictureRef> {
    let picture = PictureRef::new("frame").ok()?;
    let frame = holder.frame();
    let (layout, meta) = (*frame.layout(), frame.meta());
    let planes: Vec<*const u8> =
        (0..layout.planes().len()).map(|index| frame.plane(index).as_ptr()).collect();
    let holder = Box::into_raw(holder);
    // SAFETY: a new frame of ours. The buffer keeps the planes until `release`; it is read-only, so the libraries
    // write to none of them. Enums are written as the integers that they are in C.
    unsafe {
        let raw = picture.as_ptr();
        let flags = ff::AV_BUFFER_FLAG_READONLY as c_int;
        let buffer =
            ff::av_buffer_create(planes[0].cast_mut(), layout.size, Some(release::<H>), holder.cast(), flags);
        if buffer.is_null() {
            drop(Box::from_raw(holder));
            return None;
        }
        (*raw).buf[0] = buffer;
        for (index, plane) in layout.planes().iter().enumerate() {
            (*raw).data[index] = planes[index].cast_mut();
            (*raw).linesize[index] = plane.stride as c_int;
        }
        if layout.format == PixelFormat::Pal8 {
            (*raw).linesize[1] = 0;
        }
        (*raw).extended_data = (&raw mut (*raw).data).cast();
        (*raw).width = layout.width as c_int;
        (*raw).height = layout.height as c_int;
        (*raw).format = libav_format(layout.format) as c_int;
        (*raw).pts = meta.pts.unwrap_or(ff::AV_NOPTS_VALUE);
        set_colors(raw, layout.colors);
        set_field_order(raw, meta.field_order);
    }
    Some(picture)
}

/// Sets the colour description of the frame `raw`.
///
/// # Safety
/// `raw` is valid, and only used here.
unsafe fn set_colors(raw: *mut ff::AVFrame, colors: Colors) {
    // SAFETY: guaranteed by the caller; libav handles any code point, which Rust's enums do not.
    unsafe {
        (&raw mut (*raw).color_range).cast::<u32>().write(range_number(colors.range));
        (&raw mut (*raw).color_primaries).cast::<u32>().write(colors.primaries.into());
        (&raw mut (*raw).color_trc).cast::<u32>().write(colors.transfer.into());
        (&raw mut (*raw).colorspace).cast::<u32>().write(colors.matrix.into());
    }
}

/// Returns libav's number (`AVColorRange`) for `range`.
pub(crate) fn range_number(range: ColorRange) -> u32 {
    match range {
        ColorRange::Unknown => ff::AVColorRange::AVCOL_RANGE_UNSPECIFIED as u32,
        ColorRange::Limited => ff::AVColorRange::AVCOL_RANGE_MPEG as u32,
        ColorRange::Full => ff::AVColorRange::AVCOL_RANGE_JPEG as u32,
    }
}

/// Callback that drops the owner of a frame after the last reference to its planes. Called on any thread.
unsafe extern "C" fn release<H: FrameHolder>(holder: *mut c_void, _data: *mut u8) {
    // SAFETY: the box that `lend` attached to this buffer, freed once.
    drop(unsafe { Box::from_raw(holder.cast::<H>()) });
}
