// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stages that run in a V4L2 device: `device=/dev/videoN`.
//!
//! ```text
//! packet ──1 copy, or 2 copies──▶ OUTPUT buffer ──▶ decoder ────────▶ CAPTURE buffer = frame
//! frame  ──0 copies, or 1 copy──▶ OUTPUT buffer ──▶ measuring node ──▶ CAPTURE buffer = frame
//! ```
//!
//! A packet is copied twice if another process can write its bytes: first into private memory. A CAPTURE buffer
//! becomes a frame without a copy, mapped for reading. When the last handle of the frame is
//! dropped, the buffer is queued in the device again. Decoded frames in a worker are copied once, because the
//! device's memory cannot be shared with the process that runs the path. With `in_place=1`, the measuring
//! node writes its result into the input frame.

pub(crate) mod decode;
pub(crate) mod frame_records;
pub(crate) mod threshold;

use std::path::PathBuf;
use std::time::Duration;

use framepath_codec::Codec;
use framepath_model::format::{Layout, PixelFormat, PlaneLayout};
use framepath_os::v4l2::{Direction, Fourcc, Io, Node, NodeRole, QueueFormat, Rect, find_node};

use crate::error::StageError;

/// Time without progress after which a device counts as failed. It is twice the default limit of framepath's
/// kernel module (5 s) for a decoder that does not answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Longest single wait for a device. Between two waits the caller checks whether a signal or a stop request
/// ends the run.
pub(crate) const SLICE: Duration = Duration::from_millis(200);

/// Pixel formats that V4L2 devices and framepath have in common, each with V4L2's code.
pub(crate) const FORMATS: [(Fourcc, PixelFormat); 15] = [
    (Fourcc::GREY, PixelFormat::Grey),
    (Fourcc::YU12, PixelFormat::Yuv420p),
    (Fourcc::NV12, PixelFormat::Nv12),
    (Fourcc::P010, PixelFormat::P010),
    (Fourcc::YUYV, PixelFormat::Yuyv),
    (Fourcc::UYVY, PixelFormat::Uyvy),
    (Fourcc::YUV422P, PixelFormat::Yuv422p),
    (Fourcc::RGB24, PixelFormat::Rgb24),
    (Fourcc::BGR24, PixelFormat::Bgr24),
    (Fourcc::XBGR32, PixelFormat::Bgr0),
    (Fourcc::ABGR32, PixelFormat::Bgra),
    (Fourcc::RGBA32, PixelFormat::Rgba),
    (Fourcc::Y10, PixelFormat::Grey10),
    (Fourcc::Y12, PixelFormat::Grey12),
    (Fourcc::Y16, PixelFormat::Grey16),
];

/// Codecs that framepath decodes in V4L2 devices, each with V4L2's code.
const CODECS: [(Fourcc, Codec); 5] = [
    (Fourcc::H264, Codec::H264),
    (Fourcc::HEVC, Codec::Hevc),
    (Fourcc::VP8, Codec::Vp8),
    (Fourcc::VP9, Codec::Vp9),
    (Fourcc::AV1, Codec::Av1),
];

/// Returns the codec with V4L2's code `fourcc`; `None` if framepath does not decode it in devices.
pub fn codec_of(fourcc: Fourcc) -> Option<Codec> {
    CODECS.iter().find(|(name, _)| *name == fourcc).map(|(_, codec)| *codec)
}

/// Returns the path of a stateful decoder of `codec`; `None` if there is none. If `hardware` is true, leaves
/// out framepath's own device, which decodes in software.
pub(crate) fn decoder_node(codec: Codec, hardware: bool) -> Option<PathBuf> {
    let fourcc = fourcc_of_codec(codec)?;
    let decodes = |node: &Node| {
        let offers = node.formats(Direction::Output);
        node.role() == NodeRole::Decoder
            && !(hardware && node.driver() == "framepath")
            && offers.iter().any(|offer| offer.fourcc == fourcc)
    };
    find_node(decodes)
}

/// Returns V4L2's code of a codec; `None` for a codec that no device is used for.
pub(crate) fn fourcc_of_codec(codec: Codec) -> Option<Fourcc> {
    CODECS.iter().find(|(_, ours)| *ours == codec).map(|(name, _)| *name)
}

/// Returns the pixel format with V4L2's code `fourcc`; `None` if framepath does not support it.
pub(crate) fn pixel_format(fourcc: Fourcc) -> Option<PixelFormat> {
    FORMATS.iter().find(|(name, _)| *name == fourcc).map(|(_, format)| *format)
}

/// Returns V4L2's code of a pixel format; `None` if no device is used with this format.
pub(crate) fn fourcc(format: PixelFormat) -> Option<Fourcc> {
    FORMATS.iter().find(|(_, ours)| *ours == format).map(|(name, _)| *name)
}

/// Returns the layout of the visible part of a device's pictures in its buffers, where the planes follow
/// each other. `visible` is that part in pixels; `None` stands for the whole picture.
///
/// # Errors
/// The format or the number of memory planes is not supported, or the rectangle or strides are impossible.
pub(crate) fn layout_of(picture: &QueueFormat, visible: Option<Rect>) -> Result<Layout, StageError> {
    let unusable = |what: String| StageError::Option(format!("the device's frames cannot be used: {what}"));
    let format = pixel_format(picture.fourcc)
        .ok_or_else(|| unusable(format!("format {} is not supported", picture.fourcc)))?;
    if picture.memory_planes != 1 {
        return Err(unusable(format!("{} planes of memory, expected 1", picture.memory_planes)));
    }
    let whole = Rect { left: 0, top: 0, width: picture.width, height: picture.height };
    let seen = visible.unwrap_or(whole);
    let inside =
        |start: u32, length: u32, most: u32| start.checked_add(length).is_some_and(|end| end <= most);
    if !inside(seen.left, seen.width, picture.width) || !inside(seen.top, seen.height, picture.height) {
        return Err(unusable(format!(
            "the visible part {}x{} at {},{} is not inside {}x{}",
            seen.width, seen.height, seen.left, seen.top, picture.width, picture.height
        )));
    }
    let (across, down) = format.block();
    let (across, down) = (across as usize, down as usize);
    let first_stride = match picture.stride as usize {
        0 => format.plane_size(0, picture.width as usize, 1).0,
        stride => stride,
    };
    let rows = picture.height as usize;
    let (left, top) = (seen.left as usize, seen.top as usize);
    let mut base = 0;
    let mut planes = Vec::with_capacity(3);
    let sizes = format.plane_sizes(seen.width, seen.height);
    for (number, (width, height)) in sizes.iter().copied().enumerate() {
        // Rows and strides of chroma, as V4L2 defines them for one plane of memory: planes of U and V have a part
        // of the luma's stride, a plane of both has the luma's.
        let (stride, rows, above) = match (number, sizes.len()) {
            (0, _) => (first_stride, rows, top),
            (_, 2) => (first_stride, rows.div_ceil(down), top / down),
            _ => (first_stride.div_ceil(across), rows.div_ceil(down), top / down),
        };
        // Whole blocks of pixels; one sample in a plane of luma.
        let inset = format.plane_size(number, if number == 0 { left } else { left / across * across }, 1).0;
        planes.push(PlaneLayout { offset: base + above * stride + inset, stride, width, rows: height });
        base += stride * rows;
    }
    Ok(Layout::from_planes(format, seen.width, seen.height, &planes)?)
}

/// Returns the buffer memory type for `word`, a value of the option `io`; `None` for `read` and for any other
/// word.
pub(crate) fn io_of(word: &str) -> Option<Io> {
    match word {
        "mmap" => Some(Io::Mmap),
        "dmabuf" => Some(Io::DmaBuf),
        "userptr" => Some(Io::UserPtr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(fourcc: Fourcc, width: u32, height: u32, stride: u32) -> QueueFormat {
        QueueFormat { width, height, fourcc, stride, bytes: 0, memory_planes: 1 }
    }

    #[test]
    fn no_device_decodes_other_codecs() {
        assert_eq!(fourcc_of_codec(Codec::Vp9), Some(Fourcc::VP9));
        let mjpeg = Codec::named("mjpeg").unwrap();
        assert_eq!((fourcc_of_codec(mjpeg), decoder_node(mjpeg, false)), (None, None));
    }

    #[test]
    fn planes_lie_as_v4l2_defines_them() {
        let all = Rect { left: 0, top: 0, width: 1920, height: 1080 };
        let layout = layout_of(&picture(Fourcc::YU12, 1920, 1088, 2048), Some(all)).unwrap();
        let offsets: Vec<_> = layout.planes().iter().map(|p| (p.offset, p.stride, p.rows)).collect();
        let luma = 2048 * 1088;
        assert_eq!(offsets, [(0, 2048, 1080), (luma, 1024, 540), (luma + 1024 * 544, 1024, 540)]);
        let layout = layout_of(&picture(Fourcc::P010, 64, 32, 128), None).unwrap();
        let offsets: Vec<_> = layout.planes().iter().map(|p| (p.offset, p.stride, p.width)).collect();
        assert_eq!(offsets, [(0, 128, 128), (128 * 32, 128, 128)]);
        assert_eq!(layout_of(&picture(Fourcc::GREY, 7, 3, 0), None).unwrap().planes()[0].stride, 7);
        for (name, stride, width) in
            [(Fourcc::YUYV, 0, 16), (Fourcc::UYVY, 32, 16), (Fourcc::RGB24, 0, 21), (Fourcc::ABGR32, 64, 28)]
        {
            let layout = layout_of(&picture(name, 7, 3, stride), None).unwrap();
            let planes: Vec<_> =
                layout.planes().iter().map(|p| (p.offset, p.stride, p.width, p.rows)).collect();
            let stride = if stride == 0 { width } else { stride as usize };
            assert_eq!(planes, [(0, stride, width, 3)], "{name}");
        }
        let layout = layout_of(&picture(Fourcc::YUV422P, 64, 32, 80), None).unwrap();
        let offsets: Vec<_> = layout.planes().iter().map(|p| (p.offset, p.stride, p.rows)).collect();
        assert_eq!(offsets, [(0, 80, 32), (80 * 32, 40, 32), (80 * 32 + 40 * 32, 40, 32)]);
    }

    #[test]
    fn the_visible_rectangle_starts_at_its_offset() {
        let seen = Rect { left: 4, top: 2, width: 8, height: 6 };
        let layout = layout_of(&picture(Fourcc::NV12, 16, 16, 16), Some(seen)).unwrap();
        let offsets: Vec<_> = layout.planes().iter().map(|p| p.offset).collect();
        assert_eq!(offsets, [2 * 16 + 4, 256 + 16 + 4]);
    }

    #[test]
    fn impossible_layouts_are_refused() {
        let outside = Rect { left: 9, top: 0, width: 8, height: 8 };
        assert!(layout_of(&picture(Fourcc::GREY, 16, 16, 16), Some(outside)).is_err());
        let error = layout_of(&picture(Fourcc::new(b"HM12"), 16, 16, 32), None).unwrap_err();
        assert!(error.to_string().contains("HM12"), "{error}");
        let two = QueueFormat { memory_planes: 2, ..picture(Fourcc::NV12, 16, 16, 16) };
        assert!(layout_of(&two, None).is_err());
        assert!(layout_of(&picture(Fourcc::GREY, 16, 16, 8), None).is_err());
    }
}
