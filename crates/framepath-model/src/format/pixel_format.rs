// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pixel formats: their names, planes and samples.

use std::fmt;
use std::str::FromStr;

use super::LayoutError;

/// Pixel format supported by framepath.
///
/// Samples of more than one byte are little-endian. The formats with 10 or 12 bits keep them at the
/// low end of each 16-bit sample, except `P010`, which keeps them at the high end. So a conversion
/// between `P010` and another format of 10 bits has to change every sample. The planes and samples
/// are those of FFmpeg's format with the same name (libavutil/pixfmt.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PixelFormat {
    /// One plane of 8-bit luma.
    Grey,
    /// One plane of 10-bit luma.
    Grey10,
    /// One plane of 12-bit luma.
    Grey12,
    /// One plane of 16-bit luma.
    Grey16,
    /// One plane of pairs: 8 bits of luma, 8 bits of alpha.
    Ya8,
    /// Three planes, 8 bits, chroma halved both ways (I420).
    Yuv420p,
    /// Three planes, 8 bits, chroma halved in width.
    Yuv422p,
    /// Three planes, 8 bits, chroma of full size.
    Yuv444p,
    /// Three planes, 10 bits, chroma halved both ways.
    Yuv420p10,
    /// Three planes, 10 bits, chroma halved in width.
    Yuv422p10,
    /// Three planes, 10 bits, chroma of full size.
    Yuv444p10,
    /// Three planes, 12 bits, chroma halved both ways.
    Yuv420p12,
    /// Three planes, 12 bits, chroma halved in width.
    Yuv422p12,
    /// Three planes, 12 bits, chroma of full size.
    Yuv444p12,
    /// `Yuv420p` and a fourth plane of alpha.
    Yuva420p,
    /// `Yuv422p` and a fourth plane of alpha.
    Yuva422p,
    /// `Yuv444p` and a fourth plane of alpha.
    Yuva444p,
    /// `Yuv420p10` and a fourth plane of alpha, 10 bits.
    Yuva420p10,
    /// `Yuv422p10` and a fourth plane of alpha, 10 bits.
    Yuva422p10,
    /// `Yuv444p10` and a fourth plane of alpha, 10 bits.
    Yuva444p10,
    /// `Yuv422p12` and a fourth plane of alpha, 12 bits.
    Yuva422p12,
    /// `Yuv444p12` and a fourth plane of alpha, 12 bits.
    Yuva444p12,
    /// Two planes, 8 bits: luma, then interleaved U and V; chroma halved both ways.
    Nv12,
    /// Two planes, 10 bits at the high end of 16: luma, then interleaved U, V; chroma halved both ways.
    P010,
    /// One plane, 8 bits: Y, U, Y, V for each two pixels.
    Yuyv,
    /// One plane, 8 bits: U, Y, V, Y for each two pixels.
    Uyvy,
    /// One plane, 8 bits each of red, green, blue.
    Rgb24,
    /// One plane, 8 bits each of blue, green, red.
    Bgr24,
    /// One plane, 8 bits each of red, green, blue, alpha.
    Rgba,
    /// One plane, 8 bits each of blue, green, red, alpha.
    Bgra,
    /// One plane, 8 bits each of blue, green, red, and an unused byte.
    Bgr0,
    /// Two planes: an 8-bit index for each pixel, then 256 colours of four bytes (blue, green, red, alpha)
    /// as a single row.
    Pal8,
    /// Three planes, 8 bits: green, blue, red.
    Gbrp,
    /// Three planes, 10 bits: green, blue, red.
    Gbrp10,
    /// Three planes, 12 bits: green, blue, red.
    Gbrp12,
    /// Four planes, 8 bits: green, blue, red, alpha.
    Gbrap,
    /// Four planes, 10 bits: green, blue, red, alpha.
    Gbrap10,
    /// Four planes, 12 bits: green, blue, red, alpha.
    Gbrap12,
}

/// Meaning of a format's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColorFamily {
    /// Luma without chroma.
    Grey,
    /// Luma and chroma.
    Yuv,
    /// Red, green and blue.
    Rgb,
    /// Indices of a palette.
    Palette,
}

/// Shape of one plane: `1 << across` pixels of a row of the picture have `bytes` bytes in the
/// plane, and `1 << down` rows of the picture have one row in the plane.
#[derive(Clone, Copy, Debug)]
struct PlaneShape {
    bytes: usize,
    across: u32,
    down: u32,
}

/// Properties of one format.
#[derive(Clone, Copy, Debug)]
struct Properties {
    #[allow(dead_code, reason = "Rust 1.85 does not see that the check of the table reads it")]
    format: PixelFormat,
    name: &'static str,
    family: ColorFamily,
    depth: u32,
    has_alpha: bool,
    /// Number of bytes of which each offset and stride must be a multiple.
    align: usize,
    planes: [PlaneShape; 4],
    count: usize,
}

/// Shape of a plane that the format does not have.
const ABSENT: PlaneShape = PlaneShape { bytes: 0, across: 0, down: 0 };

/// Makes the properties of a format with `count` planes (1, 3 or 4) of samples of `depth` bits. The
/// planes 1 and 2 are smaller by the factors `1 << across` in width and `1 << down` in height.
const fn planar(
    format: PixelFormat,
    name: &'static str,
    (family, depth, count): (ColorFamily, u32, usize),
    (across, down): (u32, u32),
) -> Properties {
    let bytes = if depth > 8 { 2 } else { 1 };
    let (full, chroma) = (PlaneShape { bytes, across: 0, down: 0 }, PlaneShape { bytes, across, down });
    let planes = match count {
        1 => [full, ABSENT, ABSENT, ABSENT],
        3 => [full, chroma, chroma, ABSENT],
        _ => [full, chroma, chroma, full],
    };
    Properties { format, name, family, depth, has_alpha: count == 4, align: bytes, planes, count }
}

/// Makes the properties of a format with one plane of 8-bit samples: `bytes` bytes for every
/// `1 << across` pixels. Offsets and strides are multiples of `align` bytes.
const fn packed(
    format: PixelFormat,
    name: &'static str,
    (family, has_alpha): (ColorFamily, bool),
    (bytes, across, align): (usize, u32, usize),
) -> Properties {
    let planes = [PlaneShape { bytes, across, down: 0 }, ABSENT, ABSENT, ABSENT];
    Properties { format, name, family, depth: 8, has_alpha, align, planes, count: 1 }
}

/// Makes the properties of a format with a plane of luma and a plane of interleaved chroma, halved
/// both ways, in samples of `bytes` bytes with `depth` significant bits.
const fn semi_planar(format: PixelFormat, name: &'static str, depth: u32, bytes: usize) -> Properties {
    let (luma, chroma) =
        (PlaneShape { bytes, across: 0, down: 0 }, PlaneShape { bytes: 2 * bytes, across: 1, down: 1 });
    let planes = [luma, chroma, ABSENT, ABSENT];
    Properties {
        format,
        name,
        family: ColorFamily::Yuv,
        depth,
        has_alpha: false,
        align: bytes,
        planes,
        count: 2,
    }
}

/// Properties of all formats, in the order of the enum.
const PROPERTIES: [Properties; PixelFormat::ALL.len()] = {
    use ColorFamily::{Grey, Palette, Rgb, Yuv};
    use PixelFormat as P;
    let mut pal8 = packed(P::Pal8, "PAL8", (Palette, true), (1, 0, 1));
    pal8.count = 2;
    [
        planar(P::Grey, "GREY", (Grey, 8, 1), (0, 0)),
        planar(P::Grey10, "GREY10", (Grey, 10, 1), (0, 0)),
        planar(P::Grey12, "GREY12", (Grey, 12, 1), (0, 0)),
        planar(P::Grey16, "GREY16", (Grey, 16, 1), (0, 0)),
        packed(P::Ya8, "YA8", (Grey, true), (2, 0, 1)),
        planar(P::Yuv420p, "YUV420P", (Yuv, 8, 3), (1, 1)),
        planar(P::Yuv422p, "YUV422P", (Yuv, 8, 3), (1, 0)),
        planar(P::Yuv444p, "YUV444P", (Yuv, 8, 3), (0, 0)),
        planar(P::Yuv420p10, "YUV420P10", (Yuv, 10, 3), (1, 1)),
        planar(P::Yuv422p10, "YUV422P10", (Yuv, 10, 3), (1, 0)),
        planar(P::Yuv444p10, "YUV444P10", (Yuv, 10, 3), (0, 0)),
        planar(P::Yuv420p12, "YUV420P12", (Yuv, 12, 3), (1, 1)),
        planar(P::Yuv422p12, "YUV422P12", (Yuv, 12, 3), (1, 0)),
        planar(P::Yuv444p12, "YUV444P12", (Yuv, 12, 3), (0, 0)),
        planar(P::Yuva420p, "YUVA420P", (Yuv, 8, 4), (1, 1)),
        planar(P::Yuva422p, "YUVA422P", (Yuv, 8, 4), (1, 0)),
        planar(P::Yuva444p, "YUVA444P", (Yuv, 8, 4), (0, 0)),
        planar(P::Yuva420p10, "YUVA420P10", (Yuv, 10, 4), (1, 1)),
        planar(P::Yuva422p10, "YUVA422P10", (Yuv, 10, 4), (1, 0)),
        planar(P::Yuva444p10, "YUVA444P10", (Yuv, 10, 4), (0, 0)),
        planar(P::Yuva422p12, "YUVA422P12", (Yuv, 12, 4), (1, 0)),
        planar(P::Yuva444p12, "YUVA444P12", (Yuv, 12, 4), (0, 0)),
        semi_planar(P::Nv12, "NV12", 8, 1),
        semi_planar(P::P010, "P010", 10, 2),
        packed(P::Yuyv, "YUYV", (Yuv, false), (4, 1, 1)),
        packed(P::Uyvy, "UYVY", (Yuv, false), (4, 1, 1)),
        packed(P::Rgb24, "RGB24", (Rgb, false), (3, 0, 1)),
        packed(P::Bgr24, "BGR24", (Rgb, false), (3, 0, 1)),
        packed(P::Rgba, "RGBA", (Rgb, true), (4, 0, 4)),
        packed(P::Bgra, "BGRA", (Rgb, true), (4, 0, 4)),
        packed(P::Bgr0, "BGR0", (Rgb, false), (4, 0, 4)),
        pal8,
        planar(P::Gbrp, "GBRP", (Rgb, 8, 3), (0, 0)),
        planar(P::Gbrp10, "GBRP10", (Rgb, 10, 3), (0, 0)),
        planar(P::Gbrp12, "GBRP12", (Rgb, 12, 3), (0, 0)),
        planar(P::Gbrap, "GBRAP", (Rgb, 8, 4), (0, 0)),
        planar(P::Gbrap10, "GBRAP10", (Rgb, 10, 4), (0, 0)),
        planar(P::Gbrap12, "GBRAP12", (Rgb, 12, 4), (0, 0)),
    ]
};

const _: () = {
    let mut index = 0;
    while index < PROPERTIES.len() {
        let (format, listed) = (PROPERTIES[index].format, PixelFormat::ALL[index]);
        assert!(format as usize == index && listed as usize == index, "not in the order of the enum");
        index += 1;
    }
};

impl PixelFormat {
    /// All formats, in the order of the enum.
    pub const ALL: [PixelFormat; 38] = {
        use PixelFormat::*;
        [
            Grey, Grey10, Grey12, Grey16, Ya8, Yuv420p, Yuv422p, Yuv444p, Yuv420p10, Yuv422p10, Yuv444p10,
            Yuv420p12, Yuv422p12, Yuv444p12, Yuva420p, Yuva422p, Yuva444p, Yuva420p10, Yuva422p10,
            Yuva444p10, Yuva422p12, Yuva444p12, Nv12, P010, Yuyv, Uyvy, Rgb24, Bgr24, Rgba, Bgra, Bgr0, Pal8,
            Gbrp, Gbrp10, Gbrp12, Gbrap, Gbrap10, Gbrap12,
        ]
    };

    /// Number of bytes of a palette: 256 colours of four bytes.
    pub const PALETTE_BYTES: usize = 1024;

    fn properties(self) -> &'static Properties {
        &PROPERTIES[self as usize]
    }

    /// Returns the name of the format in paths and output, such as `YUV420P`.
    pub fn name(self) -> &'static str {
        self.properties().name
    }

    /// Returns the meaning of the samples.
    pub fn family(self) -> ColorFamily {
        self.properties().family
    }

    /// Returns true if pixels may be transparent: there are samples of alpha, or a palette.
    pub fn has_alpha(self) -> bool {
        self.properties().has_alpha
    }

    /// Returns the size of the first plane's sample in bytes: 1 or 2, and 4 for a pixel of RGBA, BGRA or
    /// BGR0. Offsets and strides of all planes are multiples of it.
    pub fn luma_bytes(self) -> usize {
        self.properties().align
    }

    /// Returns the number of significant bits of a sample: 8, 10, 12 or 16.
    pub fn depth(self) -> u32 {
        self.properties().depth
    }

    /// Returns true if the first plane has one sample of luma for each pixel, and nothing else.
    pub fn has_luma_plane(self) -> bool {
        let first = self.properties().planes[0];
        matches!(self.family(), ColorFamily::Grey | ColorFamily::Yuv)
            && first.bytes == self.luma_bytes()
            && first.across == 0
    }

    /// Returns the width and height in pixels of the smallest block that shares samples: 2x2 for 4:2:0, 2x1 for
    /// 4:2:2, otherwise 1x1.
    pub fn block(self) -> (u32, u32) {
        let planes = &self.properties().planes;
        let most = |of: fn(&PlaneShape) -> u32| planes.iter().map(of).max().unwrap_or(0);
        (1 << most(|plane| plane.across), 1 << most(|plane| plane.down))
    }

    /// Returns the number of planes: 1 to 4.
    pub fn plane_count(self) -> usize {
        self.properties().count
    }

    /// Returns the width in bytes and the number of rows of plane number `plane`, from 0, of a picture of
    /// `width` x `height` pixels, without padding. Chroma of odd sizes is rounded up.
    ///
    /// # Panics
    /// The format has no such plane.
    pub fn plane_size(self, plane: usize, width: usize, height: usize) -> (usize, usize) {
        assert!(plane < self.plane_count(), "{self} has no plane {plane}");
        if self == PixelFormat::Pal8 && plane == 1 {
            return (PixelFormat::PALETTE_BYTES, 1);
        }
        let PlaneShape { bytes, across, down } = self.properties().planes[plane];
        (width.div_ceil(1 << across) * bytes, height.div_ceil(1 << down))
    }

    /// Returns the width in bytes and the number of rows of each plane of a picture of `width` x
    /// `height` pixels, as [`plane_size`](PixelFormat::plane_size) does.
    pub fn plane_sizes(self, width: u32, height: u32) -> Vec<(usize, usize)> {
        let (width, height) = (width as usize, height as usize);
        (0..self.plane_count()).map(|plane| self.plane_size(plane, width, height)).collect()
    }
}

impl fmt::Display for PixelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads a name in upper or lower case; also FFmpeg's spelling, such as `gray10le` or `yuyv422`.
impl FromStr for PixelFormat {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<PixelFormat, LayoutError> {
        let name = text.to_ascii_uppercase();
        let name = name.strip_suffix("LE").unwrap_or(&name).replace("GRAY", "GREY");
        let name = match name.as_str() {
            "GREY8" => "GREY",
            "YUYV422" => "YUYV",
            "UYVY422" => "UYVY",
            name => name,
        };
        PixelFormat::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| LayoutError::UnknownFormat(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for format in PixelFormat::ALL {
            assert_eq!(format.name().to_lowercase().parse::<PixelFormat>().unwrap(), format);
        }
        let names = ["gray", "gray8", "gray12le", "yuyv422", "yuva444p12le", "p010le"];
        let formats = names.map(|name| name.parse::<PixelFormat>().unwrap());
        use PixelFormat::*;
        assert_eq!(formats, [Grey, Grey, Grey12, Yuyv, Yuva444p12, P010]);
        let error = "yuv411p".parse::<PixelFormat>().unwrap_err().to_string();
        assert!(error.contains("`yuv411p`") && error.ends_with("GBRAP12"), "{error}");
    }

    #[test]
    fn planes_have_the_sizes_of_their_format() {
        use PixelFormat::*;
        let sizes = |format: PixelFormat| format.plane_sizes(5, 3);
        assert_eq!(sizes(Yuv422p10), [(10, 3), (6, 3), (6, 3)]);
        assert_eq!(sizes(Yuva420p), [(5, 3), (3, 2), (3, 2), (5, 3)]);
        assert_eq!(sizes(Uyvy), [(12, 3)]);
        assert_eq!(sizes(Bgr24), [(15, 3)]);
        assert_eq!(sizes(Pal8), [(5, 3), (1024, 1)]);
        assert_eq!(sizes(P010), [(10, 3), (12, 2)]);
        assert!([Grey16, P010, Yuva444p12].into_iter().all(PixelFormat::has_luma_plane));
        assert!(![Ya8, Yuyv, Uyvy, Gbrp, Pal8, Rgba].into_iter().any(PixelFormat::has_luma_plane));
    }
}
