// SPDX-License-Identifier: MIT OR Apache-2.0
//! Four-character codes of formats.

use std::fmt;

use crate::c_layout::{Facts, numbers};

/// Code of a pixel or packet format in V4L2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fourcc(pub u32);

impl Fourcc {
    /// Pixels with luma only, 8 bits.
    pub const GREY: Fourcc = Fourcc::new(b"GREY");
    /// Pixels with luma only, 10 bits in 16.
    pub const Y10: Fourcc = Fourcc::new(b"Y10 ");
    /// Pixels with luma only, 12 bits in 16.
    pub const Y12: Fourcc = Fourcc::new(b"Y12 ");
    /// Pixels with luma only, 16 bits.
    pub const Y16: Fourcc = Fourcc::new(b"Y16 ");
    /// Pixels in 4:2:2, 8 bits: Y, U, Y and V of two pixels in this order.
    pub const YUYV: Fourcc = Fourcc::new(b"YUYV");
    /// Pixels in 4:2:2, 8 bits: U, Y, V and Y of two pixels in this order.
    pub const UYVY: Fourcc = Fourcc::new(b"UYVY");
    /// Pixels in 4:2:2, 8 bits: the planes Y, U and V in this order.
    pub const YUV422P: Fourcc = Fourcc::new(b"422P");
    /// Pixels of the bytes R, G and B.
    pub const RGB24: Fourcc = Fourcc::new(b"RGB3");
    /// Pixels of the bytes B, G and R.
    pub const BGR24: Fourcc = Fourcc::new(b"BGR3");
    /// Pixels of the bytes B, G, R and one without a meaning.
    pub const XBGR32: Fourcc = Fourcc::new(b"XR24");
    /// Pixels of the bytes B, G, R and alpha.
    pub const ABGR32: Fourcc = Fourcc::new(b"AR24");
    /// Pixels of the bytes R, G, B and alpha.
    pub const RGBA32: Fourcc = Fourcc::new(b"AB24");
    /// Pixels in 4:2:0, 8 bits: the planes Y, U and V in this order.
    pub const YU12: Fourcc = Fourcc::new(b"YU12");
    /// Pixels in 4:2:0, 8 bits: a luma plane, then a plane of interleaved U and V.
    pub const NV12: Fourcc = Fourcc::new(b"NV12");
    /// Pixels as in NV12, but with samples of 16 bits, of which the high 10 are used.
    pub const P010: Fourcc = Fourcc::new(b"P010");
    /// Packets of JPEG: one picture each.
    pub const MJPG: Fourcc = Fourcc::new(b"MJPG");
    /// Packets of H.264 with start codes.
    pub const H264: Fourcc = Fourcc::new(b"H264");
    /// Packets of HEVC with start codes.
    pub const HEVC: Fourcc = Fourcc::new(b"HEVC");
    /// Packets of VP8: one compressed frame each.
    pub const VP8: Fourcc = Fourcc::new(b"VP80");
    /// Packets of VP9: one compressed frame each.
    pub const VP9: Fourcc = Fourcc::new(b"VP90");
    /// Packets of AV1: one temporal unit each.
    pub const AV1: Fourcc = Fourcc::new(b"AV01");

    /// Creates the code from its four characters.
    pub const fn new(name: &[u8; 4]) -> Fourcc {
        Fourcc(u32::from_le_bytes(*name))
    }
}

impl fmt::Display for Fourcc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The highest bit means big-endian.
        let name = (self.0 & 0x7fff_ffff).to_le_bytes();
        for byte in name {
            let shown = if byte.is_ascii_graphic() { byte as char } else { ' ' };
            if shown != ' ' {
                write!(f, "{shown}")?;
            }
        }
        if self.0 >> 31 == 1 { f.write_str("-BE") } else { Ok(()) }
    }
}

pub(super) fn list_layout(facts: &mut Facts) {
    numbers!(facts {
        Fourcc::GREY.0 => "V4L2_PIX_FMT_GREY",
        Fourcc::Y10.0 => "V4L2_PIX_FMT_Y10",
        Fourcc::Y12.0 => "V4L2_PIX_FMT_Y12",
        Fourcc::Y16.0 => "V4L2_PIX_FMT_Y16",
        Fourcc::YUYV.0 => "V4L2_PIX_FMT_YUYV",
        Fourcc::UYVY.0 => "V4L2_PIX_FMT_UYVY",
        Fourcc::YUV422P.0 => "V4L2_PIX_FMT_YUV422P",
        Fourcc::RGB24.0 => "V4L2_PIX_FMT_RGB24",
        Fourcc::BGR24.0 => "V4L2_PIX_FMT_BGR24",
        Fourcc::XBGR32.0 => "V4L2_PIX_FMT_XBGR32",
        Fourcc::ABGR32.0 => "V4L2_PIX_FMT_ABGR32",
        Fourcc::RGBA32.0 => "V4L2_PIX_FMT_RGBA32",
        Fourcc::MJPG.0 => "V4L2_PIX_FMT_MJPEG",
        Fourcc::YU12.0 => "V4L2_PIX_FMT_YUV420",
        Fourcc::NV12.0 => "V4L2_PIX_FMT_NV12",
        Fourcc::P010.0 => "V4L2_PIX_FMT_P010",
        Fourcc::H264.0 => "V4L2_PIX_FMT_H264",
        Fourcc::HEVC.0 => "V4L2_PIX_FMT_HEVC",
        Fourcc::VP8.0 => "V4L2_PIX_FMT_VP8",
        Fourcc::VP9.0 => "V4L2_PIX_FMT_VP9",
    });
    facts.number_if_known("Fourcc::AV1.0", "V4L2_PIX_FMT_AV1", Fourcc::AV1.0.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_they_are_written() {
        assert_eq!(Fourcc::H264.to_string(), "H264");
        assert_eq!(Fourcc::new(b"Y16 ").to_string(), "Y16");
        assert_eq!(Fourcc(Fourcc::new(b"Y16 ").0 | 1 << 31).to_string(), "Y16-BE");
        assert_eq!(Fourcc(0).to_string(), "");
    }
}
