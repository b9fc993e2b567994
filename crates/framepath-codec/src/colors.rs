// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colours of a picture in FFmpeg's description.

use std::ffi::c_uint;

use ffmpeg_sys_next as ff;
use framepath_model::colors::{ColorRange, Colors};

use crate::libav_format::is_full_range;

/// Returns the colours that a frame declares, before or after the decoder has filled it. The pixel
/// formats of JPEG (YUVJ...) mean full range, whatever range the frame declares.
///
/// # Safety
/// `frame` is valid.
pub(crate) unsafe fn colors_of(frame: *const ff::AVFrame) -> Colors {
    const LIMITED: c_uint = ff::AVColorRange::AVCOL_RANGE_MPEG as c_uint;
    const FULL: c_uint = ff::AVColorRange::AVCOL_RANGE_JPEG as c_uint;
    // SAFETY: fields of a valid frame, read as plain integers as in C: a number from a stream
    // must not become a Rust enum unchecked.
    let (primaries, transfer, matrix, range, format) = unsafe {
        let number = |field: *const c_uint| field.read();
        (
            number((&raw const (*frame).color_primaries).cast()),
            number((&raw const (*frame).color_trc).cast()),
            number((&raw const (*frame).colorspace).cast()),
            number((&raw const (*frame).color_range).cast()),
            (*frame).format,
        )
    };
    let range = match range {
        _ if is_full_range(format) => ColorRange::Full,
        FULL => ColorRange::Full,
        LIMITED => ColorRange::Limited,
        _ => ColorRange::Unknown,
    };
    Colors::of(primaries, transfer, matrix, range)
}
