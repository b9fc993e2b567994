// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pixel formats in libav's numbers.

use std::ffi::{CStr, c_char, c_int};

use ff::AVPixelFormat as Av;
use ffmpeg_sys_next as ff;
use framepath_model::format::PixelFormat;

/// Returns libav's pixel format for `format`. Never returns libav's separate formats for full range
/// (YUVJ...): the frame's colours declare the range.
pub(crate) fn libav_format(format: PixelFormat) -> Av {
    match format {
        PixelFormat::Grey => Av::AV_PIX_FMT_GRAY8,
        PixelFormat::Grey10 => Av::AV_PIX_FMT_GRAY10LE,
        PixelFormat::Grey12 => Av::AV_PIX_FMT_GRAY12LE,
        PixelFormat::Grey16 => Av::AV_PIX_FMT_GRAY16LE,
        PixelFormat::Ya8 => Av::AV_PIX_FMT_YA8,
        PixelFormat::Yuv420p => Av::AV_PIX_FMT_YUV420P,
        PixelFormat::Yuv422p => Av::AV_PIX_FMT_YUV422P,
        PixelFormat::Yuv444p => Av::AV_PIX_FMT_YUV444P,
        PixelFormat::Yuv420p10 => Av::AV_PIX_FMT_YUV420P10LE,
        PixelFormat::Yuv422p10 => Av::AV_PIX_FMT_YUV422P10LE,
        PixelFormat::Yuv444p10 => Av::AV_PIX_FMT_YUV444P10LE,
        PixelFormat::Yuv420p12 => Av::AV_PIX_FMT_YUV420P12LE,
        PixelFormat::Yuv422p12 => Av::AV_PIX_FMT_YUV422P12LE,
        PixelFormat::Yuv444p12 => Av::AV_PIX_FMT_YUV444P12LE,
        PixelFormat::Yuva420p => Av::AV_PIX_FMT_YUVA420P,
        PixelFormat::Yuva422p => Av::AV_PIX_FMT_YUVA422P,
        PixelFormat::Yuva444p => Av::AV_PIX_FMT_YUVA444P,
        PixelFormat::Yuva420p10 => Av::AV_PIX_FMT_YUVA420P10LE,
        PixelFormat::Yuva422p10 => Av::AV_PIX_FMT_YUVA422P10LE,
        PixelFormat::Yuva444p10 => Av::AV_PIX_FMT_YUVA444P10LE,
        PixelFormat::Yuva422p12 => Av::AV_PIX_FMT_YUVA422P12LE,
        PixelFormat::Yuva444p12 => Av::AV_PIX_FMT_YUVA444P12LE,
        PixelFormat::Nv12 => Av::AV_PIX_FMT_NV12,
        PixelFormat::P010 => Av::AV_PIX_FMT_P010LE,
        PixelFormat::Yuyv => Av::AV_PIX_FMT_YUYV422,
        PixelFormat::Uyvy => Av::AV_PIX_FMT_UYVY422,
        PixelFormat::Rgb24 => Av::AV_PIX_FMT_RGB24,
        PixelFormat::Bgr24 => Av::AV_PIX_FMT_BGR24,
        PixelFormat::Rgba => Av::AV_PIX_FMT_RGBA,
        PixelFormat::Bgra => Av::AV_PIX_FMT_BGRA,
        PixelFormat::Bgr0 => Av::AV_PIX_FMT_BGR0,
        PixelFormat::Pal8 => Av::AV_PIX_FMT_PAL8,
        PixelFormat::Gbrp => Av::AV_PIX_FMT_GBRP,
        PixelFormat::Gbrp10 => Av::AV_PIX_FMT_GBRP10LE,
        PixelFormat::Gbrp12 => Av::AV_PIX_FMT_GBRP12LE,
        PixelFormat::Gbrap => Av::AV_PIX_FMT_GBRAP,
        PixelFormat::Gbrap10 => Av::AV_PIX_FMT_GBRAP10LE,
        PixelFormat::Gbrap12 => Av::AV_PIX_FMT_GBRAP12LE,
    }
}

/// libav's formats of JPEG, each with framepath's format, which has the same bytes. libav's formats
/// mean full range.
const FULL_RANGE: [(Av, PixelFormat); 3] = [
    (Av::AV_PIX_FMT_YUVJ420P, PixelFormat::Yuv420p),
    (Av::AV_PIX_FMT_YUVJ422P, PixelFormat::Yuv422p),
    (Av::AV_PIX_FMT_YUVJ444P, PixelFormat::Yuv444p),
];

/// Returns the pixel format for libav's number `format`; `None` if framepath does not support it. Full-range
/// YUV differs from limited range only in meaning, not in bytes.
pub(crate) fn pixel_format(format: c_int) -> Option<PixelFormat> {
    let full = FULL_RANGE.iter().find(|(libav, _)| *libav as c_int == format).map(|(_, ours)| *ours);
    full.or_else(|| PixelFormat::ALL.into_iter().find(|ours| libav_format(*ours) as c_int == format))
}

/// Returns true if libav's number `format` is a YUVJ format, which means full range whatever the
/// frame declares.
pub(crate) fn is_full_range(format: c_int) -> bool {
    format == Av::AV_PIX_FMT_YUVJ440P as c_int
        || FULL_RANGE.iter().any(|(libav, _)| *libav as c_int == format)
}

/// Returns the supported format to which libav's number `format` converts with the least loss, by
/// libavutil's rating (`av_find_best_pix_fmt_of_2`); never PAL8. `None` for hardware formats and
/// unknown numbers.
pub(crate) fn nearest(format: c_int) -> Option<PixelFormat> {
    // SAFETY: any number is valid; hardware formats have no planes, and unknown ones are an error.
    if unsafe { count_planes(format) } <= 0 {
        return None;
    }
    let mut best = None;
    for ours in PixelFormat::ALL.into_iter().filter(|ours| *ours != PixelFormat::Pal8) {
        let number = libav_format(ours) as c_int;
        let held = best.map_or(Av::AV_PIX_FMT_NONE as c_int, |best| libav_format(best) as c_int);
        let mut loss = 0;
        // SAFETY: any numbers are valid; the loss is a valid output. Alpha is to be kept.
        if unsafe { better_format(held, number, format, 1, &mut loss) } == number {
            best = Some(ours);
        }
    }
    best
}

/// Returns libav's name of the format with the number `format`, or `number N` if the format has no
/// name.
pub(crate) fn format_name(format: c_int) -> String {
    // SAFETY: any number is valid; the result is a static string or null.
    let name = unsafe { pixel_format_name(format) };
    if name.is_null() {
        return format!("number {format}");
    }
    // SAFETY: a static string.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

// Declared with C's plain integers, because a number from a stream must not become a Rust enum unchecked.
unsafe extern "C" {
    /// Returns the name of a format; null for an unknown number.
    #[link_name = "av_get_pix_fmt_name"]
    fn pixel_format_name(format: c_int) -> *const c_char;
    #[link_name = "av_pix_fmt_count_planes"]
    fn count_planes(format: c_int) -> c_int;
    #[link_name = "av_find_best_pix_fmt_of_2"]
    fn better_format(first: c_int, second: c_int, source: c_int, has_alpha: c_int, loss: *mut c_int)
    -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_the_planes_of_libavs() {
        unsafe extern "C" {
            fn av_image_get_buffer_size(format: c_int, width: c_int, height: c_int, align: c_int) -> c_int;
        }
        for format in PixelFormat::ALL {
            let number = libav_format(format) as c_int;
            assert_eq!(pixel_format(number), Some(format));
            assert_eq!(nearest(number), (format != PixelFormat::Pal8).then_some(format).or(nearest(number)));
            let layout = framepath_model::format::Layout::packed(format, 35, 13).unwrap();
            // SAFETY: both only look the format up in a table.
            let (planes, bytes) =
                unsafe { (count_planes(number), av_image_get_buffer_size(number, 35, 13, 1)) };
            // libav does not count the palette as a plane in every version.
            if format != PixelFormat::Pal8 {
                assert_eq!(planes as usize, format.plane_count(), "{format}");
            }
            assert_eq!(bytes as usize, layout.pixel_bytes(), "{format}");
            assert!(format_name(number).to_lowercase().parse::<PixelFormat>() == Ok(format), "{format}");
        }
    }

    #[test]
    fn formats_of_jpeg_are_full_range() {
        assert_eq!(pixel_format(Av::AV_PIX_FMT_YUVJ422P as c_int), Some(PixelFormat::Yuv422p));
        assert!(is_full_range(Av::AV_PIX_FMT_YUVJ444P as c_int));
        assert!(!is_full_range(Av::AV_PIX_FMT_YUV444P as c_int));
    }

    #[test]
    fn other_formats_have_a_nearest_one() {
        let of = |format: Av| nearest(format as c_int);
        assert_eq!(of(Av::AV_PIX_FMT_YUV411P), Some(PixelFormat::Yuv422p));
        assert_eq!(of(Av::AV_PIX_FMT_ARGB), Some(PixelFormat::Rgba));
        assert_eq!(of(Av::AV_PIX_FMT_MONOWHITE), Some(PixelFormat::Grey));
        assert_eq!(of(Av::AV_PIX_FMT_VAAPI), None);
        assert_eq!(nearest(-1), None);
    }
}
