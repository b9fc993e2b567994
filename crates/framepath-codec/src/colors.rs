// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colours of a picture in FFmpeg's description.

use std::ffi::c_uint;

use ff::AVPixelFormat;
use ffmpeg_sys_next as ff;
use framepath_model::colors::{ColorRange, Colors};

/// Returns the colours that a frame declares, before or after the decoder has filled it. The pixel
/// format YUVJ420P means full range, whatever range the frame declares.
///
/// # Safety
/// `frame` is valid.
pub(crate) unsafe fn colors_of(frame: *const ff::AVFrame) -> Colors {
    const LIMITED: c_uint = ff::AVColorRange::AVCOL_RANGE_MPEG as c_uint;
    const FULL: c_uint = ff::AVColorRange::AVCOL_RANGE_JPEG as c_uint;
    const OF_JPEG: i32 = AVPixelFormat::AV_PIX_FMT_YUVJ420P as i32;
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
        _ if format == OF_JPEG => ColorRange::Full,
        FULL => ColorRange::Full,
        LIMITED => ColorRange::Limited,
        _ => ColorRange::Unknown,
    };
    Colors::of(primaries, transfer, matrix, range)
}
