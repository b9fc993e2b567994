// SPDX-License-Identifier: MIT OR Apache-2.0
//! Meaning of a picture's sample values as colours.
//!
//! The code points of ITU-T H.273. H.264, HEVC, VP9 and AV1 write them into
//! their streams; FFmpeg and dav1d pass them on unchanged.

/// The identity matrix: samples are RGB.
pub const MATRIX_RGB: u8 = 0;
/// BT.709: high definition.
pub const BT709: u8 = 1;
/// Code point for "unspecified".
pub const UNSPECIFIED: u8 = 2;
/// BT.470 B and G; as a matrix, the same as BT.601.
pub const BT470BG: u8 = 5;
/// BT.601 with 525 lines.
pub const SMPTE170M: u8 = 6;
/// SMPTE 240M.
pub const SMPTE240M: u8 = 7;
/// BT.2020: primaries, and the matrix of non-constant luminance.
pub const BT2020: u8 = 9;

/// Range of the sample values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ColorRange {
    /// Unspecified: YUV is taken as limited.
    #[default]
    Unknown,
    /// Black is 16 and white is 235, for 8 bits.
    Limited,
    /// Black is 0 and white is 255, for 8 bits.
    Full,
}

/// Colour description of a stream; usually unspecified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Colors {
    /// ColourPrimaries.
    pub primaries: u8,
    /// TransferCharacteristics.
    pub transfer: u8,
    /// MatrixCoefficients: the conversion from RGB to YUV.
    pub matrix: u8,
    /// VideoFullRangeFlag, if the stream has one.
    pub range: ColorRange,
}

impl Default for Colors {
    fn default() -> Colors {
        Colors::UNKNOWN
    }
}

impl Colors {
    /// Colours of a stream that specifies nothing.
    pub const UNKNOWN: Colors = Colors {
        primaries: UNSPECIFIED,
        transfer: UNSPECIFIED,
        matrix: UNSPECIFIED,
        range: ColorRange::Unknown,
    };

    /// Converts numbers from a library or a file. A number that is not a code point of H.273
    /// becomes unspecified.
    pub fn of(primaries: u32, transfer: u32, matrix: u32, range: ColorRange) -> Colors {
        // 0 and 3 are reserved, except for the matrix, where 0 is RGB.
        let known = |code: u32| u8::try_from(code).ok().filter(|code| *code != 3);
        let point = |code| known(code).filter(|code| *code != 0).unwrap_or(UNSPECIFIED);
        Colors {
            primaries: point(primaries),
            transfer: point(transfer),
            matrix: known(matrix).unwrap_or(UNSPECIFIED),
            range,
        }
    }

    /// Returns the matrix for converting a YUV picture of `columns` columns. If the stream
    /// specifies none, guesses as players do: BT.709 from 1025 columns on, else BT.601.
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
