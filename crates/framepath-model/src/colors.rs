// SPDX-License-Identifier: MIT OR Apache-2.0
//! Meaning of a picture's sample values as colours.
//!
//! The numbers are the code points of ITU-T H.273. H.264, HEVC, VP9 and AV1 write them into
//! their streams; FFmpeg and dav1d pass them on unchanged.

/// Matrix code point "identity": samples are RGB and not YUV.
pub const MATRIX_RGB: u8 = 0;
/// Code point of BT.709, high definition, as primaries, transfer or matrix.
pub const BT709: u8 = 1;
/// Code point "unspecified", as primaries, transfer or matrix.
pub const UNSPECIFIED: u8 = 2;
/// Code point of BT.470 B and G; as a matrix, the same as BT.601.
pub const BT470BG: u8 = 5;
/// Code point of BT.601 with 525 lines.
pub const SMPTE170M: u8 = 6;
/// Code point of SMPTE 240M.
pub const SMPTE240M: u8 = 7;
/// Code point of BT.2020: primaries, and the matrix of non-constant luminance.
pub const BT2020: u8 = 9;

/// Range of the sample values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ColorRange {
    /// Range not specified: YUV is taken as limited.
    #[default]
    Unknown,
    /// Black is 16 and white is 235, for 8 bits.
    Limited,
    /// Black is 0 and white is 255, for 8 bits.
    Full,
}

/// Colour description of a stream or picture, in code points of H.273; often unspecified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Colors {
    /// ColourPrimaries of H.273: the chromaticities of red, green, blue and white.
    pub primaries: u8,
    /// TransferCharacteristics of H.273: the relation between light and sample value.
    pub transfer: u8,
    /// MatrixCoefficients of H.273: the conversion from RGB to YUV.
    pub matrix: u8,
    /// Range of the sample values, H.273's VideoFullRangeFlag; [`ColorRange::Unknown`] if the
    /// stream has none.
    pub range: ColorRange,
}

impl Default for Colors {
    fn default() -> Colors {
        Colors::UNKNOWN
    }
}

impl Colors {
    /// Colours of a stream that specifies none of them.
    pub const UNKNOWN: Colors = Colors {
        primaries: UNSPECIFIED,
        transfer: UNSPECIFIED,
        matrix: UNSPECIFIED,
        range: ColorRange::Unknown,
    };

    /// Creates a colour description from the numbers of a library or file. Reserved code points (3,
    /// and 0 except as a matrix) and numbers above 255 become unspecified; other numbers are kept.
    pub fn of(primaries: u32, transfer: u32, matrix: u32, range: ColorRange) -> Colors {
        // 0 and 3 are reserved; but as a matrix, 0 is RGB.
        let known = |code: u32| u8::try_from(code).ok().filter(|code| *code != 3);
        let point = |code| known(code).filter(|code| *code != 0).unwrap_or(UNSPECIFIED);
        Colors {
            primaries: point(primaries),
            transfer: point(transfer),
            matrix: known(matrix).unwrap_or(UNSPECIFIED),
            range,
        }
    }

    /// Returns the code point of the matrix for converting a YUV picture with `columns` pixels in a
    /// row. If the stream specifies none, guesses as players do: BT.709 from 1025 columns on, else
    /// BT.601.
    pub fn shown_by(self, columns: u32) -> u8 {
        match self.matrix {
            UNSPECIFIED if columns > 1024 => BT709,
            UNSPECIFIED => SMPTE170M,
            specified => specified,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_numbers_say_nothing() {
        assert_eq!(Colors::of(0, 3, 256, ColorRange::Unknown), Colors::UNKNOWN);
        let rgb = Colors::of(1, 13, 0, ColorRange::Full);
        assert_eq!((rgb.primaries, rgb.transfer, rgb.matrix), (BT709, 13, MATRIX_RGB));
    }

    #[test]
    fn missing_colours_are_guessed_by_size() {
        let specified = Colors { matrix: BT2020, ..Colors::UNKNOWN };
        let shown = |colors: Colors| [1024, 1025].map(|columns| colors.shown_by(columns));
        assert_eq!((shown(Colors::UNKNOWN), shown(specified)), ([SMPTE170M, BT709], [BT2020; 2]));
    }
}
