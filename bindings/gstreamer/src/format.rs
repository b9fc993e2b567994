// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pixel formats, colours and times of framepath in the terms of GStreamer.

use framepath::colors::{ColorRange, Colors};
use framepath::format::{Layout, PixelFormat};
use framepath::{Rational, StreamInfo};
use gst_video::{
    VideoColorMatrix, VideoColorPrimaries, VideoColorRange, VideoColorimetry, VideoFormat, VideoInfo,
    VideoTransferFunction,
};

use crate::fields::StreamFields;

/// Returns the format; `None` for one that GStreamer does not have.
pub(crate) fn video_format(format: PixelFormat) -> Option<VideoFormat> {
    Some(match format {
        PixelFormat::Grey => VideoFormat::Gray8,
        PixelFormat::Grey16 => VideoFormat::Gray16Le,
        PixelFormat::Yuv420p => VideoFormat::I420,
        PixelFormat::Yuv422p => VideoFormat::Y42b,
        PixelFormat::Yuv444p => VideoFormat::Y444,
        PixelFormat::Yuv420p10 => VideoFormat::I42010le,
        PixelFormat::Yuv422p10 => VideoFormat::I42210le,
        PixelFormat::Yuv444p10 => VideoFormat::Y44410le,
        PixelFormat::Yuv420p12 => VideoFormat::I42012le,
        PixelFormat::Yuv422p12 => VideoFormat::I42212le,
        PixelFormat::Yuv444p12 => VideoFormat::Y44412le,
        PixelFormat::Yuva420p => VideoFormat::A420,
        PixelFormat::Nv12 => VideoFormat::Nv12,
        PixelFormat::P010 => VideoFormat::P01010le,
        PixelFormat::Yuyv => VideoFormat::Yuy2,
        PixelFormat::Uyvy => VideoFormat::Uyvy,
        PixelFormat::Rgb24 => VideoFormat::Rgb,
        PixelFormat::Bgr24 => VideoFormat::Bgr,
        PixelFormat::Rgba => VideoFormat::Rgba,
        PixelFormat::Bgra => VideoFormat::Bgra,
        PixelFormat::Bgr0 => VideoFormat::Bgrx,
        PixelFormat::Gbrp => VideoFormat::Gbr,
        PixelFormat::Gbrp10 => VideoFormat::Gbr10le,
        PixelFormat::Gbrp12 => VideoFormat::Gbr12le,
        _ => return None,
    })
}

/// Returns the format; `None` for one that framepath does not have.
pub(crate) fn pixel_format(format: VideoFormat) -> Option<PixelFormat> {
    PixelFormat::ALL.into_iter().find(|ours| video_format(*ours) == Some(format))
}

/// Returns the template of a pad for frames, in all formats that both have.
///
/// # Errors
/// GStreamer does not accept the template.
pub(crate) fn raw_template(
    name: &str,
    direction: gst::PadDirection,
) -> Result<gst::PadTemplate, gst::glib::BoolError> {
    let formats = PixelFormat::ALL.into_iter().filter_map(video_format);
    let caps = gst_video::VideoCapsBuilder::new().format_list(formats).build();
    gst::PadTemplate::new(name, direction, gst::PadPresence::Always, &caps)
}

/// Returns the colours; those of `default` if only their range is known, or nothing.
fn colorimetry(colors: Colors, default: VideoColorimetry) -> VideoColorimetry {
    let range = match colors.range {
        ColorRange::Unknown => default.range(),
        ColorRange::Limited => VideoColorRange::Range16_235,
        ColorRange::Full => VideoColorRange::Range0_255,
    };
    let (matrix, transfer, primaries) = match (Colors { range: ColorRange::Unknown, ..colors }) {
        Colors::UNKNOWN => (default.matrix(), default.transfer(), default.primaries()),
        Colors { matrix, transfer, primaries, .. } => (
            VideoColorMatrix::from_iso(matrix.into()),
            VideoTransferFunction::from_iso(transfer.into()),
            VideoColorPrimaries::from_iso(primaries.into()),
        ),
    };
    VideoColorimetry::new(range, matrix, transfer, primaries)
}

/// Returns the colours in the numbers of H.273.
pub(crate) fn colors(colorimetry: VideoColorimetry) -> Colors {
    let range = match colorimetry.range() {
        VideoColorRange::Range16_235 => ColorRange::Limited,
        VideoColorRange::Range0_255 => ColorRange::Full,
        _ => ColorRange::Unknown,
    };
    let (primaries, transfer) = (colorimetry.primaries().to_iso(), colorimetry.transfer().to_iso());
    Colors::of(primaries, transfer, colorimetry.matrix().to_iso(), range)
}

/// Describes the frames of a stream that have this layout and these fields.
///
/// # Errors
/// GStreamer has no such format or size.
pub(crate) fn video_info(
    layout: &Layout,
    fields: StreamFields,
    stream: Option<StreamInfo>,
) -> Result<VideoInfo, String> {
    let format = video_format(layout.format)
        .ok_or_else(|| format!("GStreamer has no pixel format {}", layout.format))?;
    let fraction = |of: fn(StreamInfo) -> Rational| {
        let value = stream.map(of).filter(|value| value.value().is_some());
        value.map(|value| gst::Fraction::new(value.num, value.den))
    };
    let guessed = VideoInfo::builder(format, layout.width, layout.height).build();
    let guessed = guessed.map_err(|error| error.to_string())?;
    VideoInfo::builder_from_info(&guessed)
        .colorimetry(&colorimetry(layout.colors, guessed.colorimetry()))
        .interlace_mode(fields.mode())
        .field_order(fields.order())
        .fps_if_some(fraction(|stream| stream.frame_rate))
        .par_if_some(fraction(|stream| stream.sample_aspect))
        .build()
        .map_err(|error| error.to_string())
}

/// Nanoseconds of a time of GStreamer, as ticks of this time base.
pub(crate) const NANOSECONDS: Rational = Rational::new(1, 1_000_000_000);

/// Converts a time in ticks; `None` if it is not known, or before 0.
pub(crate) fn clock_time(ticks: Option<i64>, time_base: Option<Rational>) -> Option<gst::ClockTime> {
    let ns = time_base?.rescale(ticks?, NANOSECONDS)?;
    u64::try_from(ns).ok().map(gst::ClockTime::from_nseconds)
}
