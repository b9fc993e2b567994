// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the numbers in a picture mean as colours.
//!
//! The code points of ITU-T H.273, which H.264, HEVC, VP9 and AV1 write into
//! their streams and FFmpeg and dav1d hand on as they are.

/// The matrix of RGB itself.
pub const MATRIX_RGB: u8 = 0;
/// BT.709: high definition.
pub const BT709: u8 = 1;
/// Nobody said.
pub const UNSPECIFIED: u8 = 2;
/// BT.470 B and G, as a matrix the same as BT.601.
pub const BT470BG: u8 = 5;
/// BT.601 with 525 lines.
pub const SMPTE170M: u8 = 6;
/// SMPTE 240M.
pub const SMPTE240M: u8 = 7;
/// BT.2020: primaries, and the matrix of non-constant luminance.
pub const BT2020: u8 = 9;

/// Which numbers are black and white.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Range {
    /// Nobody said: of YUV it is taken as limited.
    #[default]
    Unknown,
    /// Of 8 bits, 16 and 235.
    Limited,
    /// Of 8 bits, 0 and 255.
    Full,
}

/// What a stream says of its colours; mostly nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Colors {
    /// ColourPrimaries.
    pub primaries: u8,
    /// TransferCharacteristics.
    pub transfer: u8,
    /// MatrixCoefficients: how RGB was made YUV.
    pub matrix: u8,
    /// VideoFullRangeFlag, where there is one.
    pub range: Range,
}

impl Default for Colors {
    fn default() -> Colors {
        Colors::UNKNOWN
    }
}

impl Colors {
    /// Of a stream that says nothing.
    pub const UNKNOWN: Colors =
        Colors { primaries: UNSPECIFIED, transfer: UNSPECIFIED, matrix: UNSPECIFIED, range: Range::Unknown };

    /// Of numbers that a library or a file holds; what is no code point of
    /// H.273 is as if nobody had said it.
    pub fn of(primaries: u32, transfer: u32, matrix: u32, range: Range) -> Colors {
        // 0 and 3 are reserved, but for the matrix, where 0 is RGB.
        let known = |code: u32| u8::try_from(code).ok().filter(|code| *code != 3);
        let point = |code| known(code).filter(|code| *code != 0).unwrap_or(UNSPECIFIED);
        Colors {
            primaries: point(primaries),
            transfer: point(transfer),
            matrix: known(matrix).unwrap_or(UNSPECIFIED),
            range,
        }
    }

    /// The matrix that YUV of a picture of so many columns is shown by: where
    /// nobody said, BT.709 from 1025 on and BT.601 else, as players guess.
    pub fn shown_by(self, columns: u32) -> u8 {
        match self.matrix {
            UNSPECIFIED if columns > 1024 => BT709,
            UNSPECIFIED => SMPTE170M,
            told => told,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_numbers_say_nothing() {
        assert_eq!(Colors::of(0, 3, 256, Range::Unknown), Colors::UNKNOWN);
        let rgb = Colors::of(1, 13, 0, Range::Full);
        assert_eq!((rgb.primaries, rgb.transfer, rgb.matrix), (BT709, 13, MATRIX_RGB));
    }

    #[test]
    fn what_nobody_said_is_guessed_by_size() {
        let told = Colors { matrix: BT2020, ..Colors::UNKNOWN };
        let shown = |colors: Colors| [1024, 1025].map(|columns| colors.shown_by(columns));
        assert_eq!((shown(Colors::UNKNOWN), shown(told)), ([SMPTE170M, BT709], [BT2020; 2]));
    }
}
