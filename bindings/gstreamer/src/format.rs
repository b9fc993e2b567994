// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pixel formats of framepath in the names of GStreamer.

use framepath::format::PixelFormat;
use gst_video::VideoFormat;

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
        PixelFormat::Nv12 => VideoFormat::Nv12,
        PixelFormat::P010 => VideoFormat::P01010le,
        PixelFormat::Gbrp => VideoFormat::Gbr,
        PixelFormat::Gbrp10 => VideoFormat::Gbr10le,
        PixelFormat::Gbrp12 => VideoFormat::Gbr12le,
        _ => return None,
    })
}
