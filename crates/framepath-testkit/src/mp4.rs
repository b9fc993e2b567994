// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes to MP4 files for which the versions of the `ffmpeg` tool need different options.

use std::fs;

/// Offset of the matrix from the type of a track header of version 0, bytes.
const MATRIX: usize = 44;

/// Writes the display matrix with these numbers a, b, c and d, each -1, 0 or 1, into the first
/// track header of the file: a point is shown at `a * x + c * y` and `b * x + d * y`. Panics if
/// there is no such header, if its version is not 0, or if the file cannot be read or written.
pub fn set_display_matrix(file: &str, [a, b, c, d]: [i32; 4]) {
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.windows(4).position(|four| four == b"tkhd").expect("a track header");
    assert_eq!(bytes[at + 4], 0, "the header's version");
    let one = 1 << 16;
    let matrix = [a * one, b * one, 0, c * one, d * one, 0, 0, 0, 1 << 30];
    let matrix: Vec<u8> = matrix.iter().flat_map(|number: &i32| number.to_be_bytes()).collect();
    bytes[at + MATRIX..][..matrix.len()].copy_from_slice(&matrix);
    fs::write(file, bytes).unwrap();
}
