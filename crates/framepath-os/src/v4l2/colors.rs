// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of colours between V4L2's numbers
//! (Documentation/userspace-api/media/v4l/colorspaces-defs.rst) and those of H.273. If several
//! numbers of one side match one of the other, the first line of a table counts.

use framepath_model::colors::{
    BT470BG, BT709, BT2020, ColorRange, Colors, SMPTE170M, SMPTE240M, UNSPECIFIED,
};

use super::abi;
use super::error::V4l2Error;
use super::node::Node;
use super::queue::Direction;

/// Pairs of `enum v4l2_colorspace` and the ColourPrimaries of ITU-T H.273.
const PRIMARIES: [(u32, u8); 8] = [
    (abi::COLORSPACE_REC709, BT709),
    (abi::COLORSPACE_SMPTE170M, SMPTE170M),
    (abi::COLORSPACE_470_SYSTEM_BG, BT470BG),
    (abi::COLORSPACE_470_SYSTEM_M, 4),
    (abi::COLORSPACE_SMPTE240M, SMPTE240M),
    (abi::COLORSPACE_BT2020, BT2020),
    (abi::COLORSPACE_DCI_P3, 11),
    (abi::COLORSPACE_DCI_P3, 12),
];
/// Pairs of `enum v4l2_colorspace` and ColourPrimaries, only for the conversion from V4L2: colour spaces
/// with the primaries of another colour space.
const SAME_PRIMARIES: [(u32, u8); 2] = [(abi::COLORSPACE_SRGB, BT709), (abi::COLORSPACE_JPEG, BT709)];

/// Pairs of `enum v4l2_xfer_func` and the TransferCharacteristics of ITU-T H.273.
const TRANSFERS: [(u32, u8); 10] = [
    (abi::XFER_FUNC_709, 1),
    (abi::XFER_FUNC_709, 6),
    (abi::XFER_FUNC_709, 14),
    (abi::XFER_FUNC_709, 15),
    (abi::XFER_FUNC_SRGB, 13),
    (abi::XFER_FUNC_SMPTE240M, 7),
    (abi::XFER_FUNC_NONE, 8),
    (abi::XFER_FUNC_DCI_P3, 17),
    (abi::XFER_FUNC_SMPTE2084, 16),
    (abi::XFER_FUNC_709, 11),
];

/// Pairs of `enum v4l2_ycbcr_encoding` and the MatrixCoefficients of ITU-T H.273.
const MATRICES: [(u32, u8); 9] = [
    (abi::YCBCR_ENC_709, BT709),
    (abi::YCBCR_ENC_601, SMPTE170M),
    (abi::YCBCR_ENC_601, BT470BG),
    (abi::YCBCR_ENC_SMPTE240M, SMPTE240M),
    (abi::YCBCR_ENC_BT2020, BT2020),
    (abi::YCBCR_ENC_BT2020_CONST_LUM, 10),
    (abi::YCBCR_ENC_XV601, SMPTE170M),
    (abi::YCBCR_ENC_XV709, BT709),
    (abi::YCBCR_ENC_SYCC, SMPTE170M),
];

/// Colours of a V4L2 format; 0 is a default that depends on the other values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct V4l2Colors {
    /// Colour space, with the primaries: `enum v4l2_colorspace`; 0 is the default.
    pub colorspace: u32,
    /// Transfer function: `enum v4l2_xfer_func`; 0 is the default.
    pub xfer_func: u32,
    /// Matrix from RGB to YCbCr: `enum v4l2_ycbcr_encoding`; 0 is the default.
    pub ycbcr_enc: u32,
    /// Full or limited range: `enum v4l2_quantization`; 0 is the default.
    pub quantization: u32,
}

impl From<Colors> for V4l2Colors {
    fn from(colors: Colors) -> V4l2Colors {
        let number = |table: &[(u32, u8)], code: u8| {
            table.iter().find(|(_, known)| *known == code).map_or(0, |(number, _)| *number)
        };
        // A stream that specifies only its matrix has the corresponding primaries, mostly with
        // the same number.
        let primaries = match (colors.primaries, colors.matrix) {
            (UNSPECIFIED, 10) => BT2020,
            (UNSPECIFIED, matrix) if matrix <= BT2020 => matrix,
            (specified, _) => specified,
        };
        V4l2Colors {
            colorspace: number(&PRIMARIES, primaries),
            xfer_func: number(&TRANSFERS, colors.transfer),
            ycbcr_enc: number(&MATRICES, colors.matrix),
            quantization: match colors.range {
                ColorRange::Unknown => 0,
                ColorRange::Limited => abi::QUANTIZATION_LIM_RANGE,
                ColorRange::Full => abi::QUANTIZATION_FULL_RANGE,
            },
        }
    }
}

impl From<V4l2Colors> for Colors {
    fn from(colors: V4l2Colors) -> Colors {
        let code = |table: &[(u32, u8)], number: u32| {
            table.iter().find(|(known, _)| *known == number).map_or(UNSPECIFIED, |(_, code)| *code)
        };
        let primaries = match code(&PRIMARIES, colors.colorspace) {
            UNSPECIFIED => code(&SAME_PRIMARIES, colors.colorspace),
            known => known,
        };
        // The default of the matrix is that of V4L2_MAP_YCBCR_ENC_DEFAULT. The default of the range is full
        // for JPEG, as in V4L2_MAP_QUANTIZATION_DEFAULT; for other colour spaces it stays unknown.
        let matrix = match (code(&MATRICES, colors.ycbcr_enc), colors.colorspace) {
            (UNSPECIFIED, 0) => UNSPECIFIED,
            (UNSPECIFIED, abi::COLORSPACE_REC709 | abi::COLORSPACE_DCI_P3) => BT709,
            (UNSPECIFIED, abi::COLORSPACE_SMPTE240M) => SMPTE240M,
            (UNSPECIFIED, abi::COLORSPACE_BT2020) => BT2020,
            (UNSPECIFIED, _) => SMPTE170M,
            (specified, _) => specified,
        };
        let range = match (colors.quantization, colors.colorspace) {
            (abi::QUANTIZATION_FULL_RANGE, _) | (0, abi::COLORSPACE_JPEG) => ColorRange::Full,
            (abi::QUANTIZATION_LIM_RANGE, _) => ColorRange::Limited,
            _ => ColorRange::Unknown,
        };
        Colors { primaries, transfer: code(&TRANSFERS, colors.xfer_func), matrix, range }
    }
}

impl Node {
    /// Returns the colours that the driver declares for a queue's pictures.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn colors(&self, direction: Direction) -> Result<Colors, V4l2Error> {
        let format = self.raw_format(direction)?;
        Ok(Colors::from(match self.is_multiplanar() {
            false => {
                // SAFETY: every bit pattern is valid for every member, and all of `raw` was
                // written.
                let abi::PixFormat { colorspace, xfer_func, ycbcr_enc, quantization, .. } =
                    unsafe { format.body.pix };
                V4l2Colors { colorspace, xfer_func, ycbcr_enc, quantization }
            }
            true => {
                // SAFETY: as above.
                let pix = unsafe { format.body.pix_mp };
                V4l2Colors {
                    colorspace: pix.colorspace,
                    xfer_func: pix.xfer_func.into(),
                    ycbcr_enc: pix.ycbcr_enc.into(),
                    quantization: pix.quantization.into(),
                }
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_colours_round_trip() {
        for (code, transfer, matrix) in [
            (BT709, 1, BT709),
            (SMPTE170M, 1, SMPTE170M),
            (SMPTE240M, 7, SMPTE240M),
            (BT2020, 16, BT2020),
            (11, 17, BT709),
        ] {
            for range in [ColorRange::Limited, ColorRange::Full] {
                let colors = Colors { primaries: code, transfer, matrix, range };
                assert_eq!(Colors::from(V4l2Colors::from(colors)), colors);
            }
        }
        assert_eq!(V4l2Colors::from(Colors::UNKNOWN), V4l2Colors::default());
        assert_eq!(Colors::from(V4l2Colors::default()), Colors::UNKNOWN);
        for (matrix, colorspace) in [(SMPTE170M, 1), (10, 10), (12, 0)] {
            assert_eq!(V4l2Colors::from(Colors { matrix, ..Colors::UNKNOWN }).colorspace, colorspace);
        }
    }

    #[test]
    fn defaults_follow_the_colour_space() {
        let of = |colorspace| Colors::from(V4l2Colors { colorspace, ..V4l2Colors::default() });
        assert_eq!((of(3).matrix, of(3).range), (BT709, ColorRange::Unknown));
        assert_eq!((of(8).primaries, of(8).matrix), (BT709, SMPTE170M), "sRGB of a camera");
        assert_eq!(of(7).range, ColorRange::Full);
    }
}
