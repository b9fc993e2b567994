// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barcode: a number in a row of black and white cells, which survives encoding, scaling of colours and chroma
//! subsampling.
//!
//! From left to right: four cells to recognise it by, 32 bits of the number, the most significant first, and sixteen check
//! bits. White is 1.

/// Width of a cell, pixels.
const CELL: usize = 16;
/// Height of the barcode, pixels.
pub(super) const HEIGHT: usize = 32;
/// Cells in front of every number.
const BEGIN: [bool; 4] = [true, false, true, true];
const CELLS: usize = BEGIN.len() + 32 + 16;
/// Width of the barcode, pixels.
pub(super) const WIDTH: usize = CELL * CELLS;
/// Bytes of a pixel: blue, green, red, unused.
pub(super) const PIXEL: usize = 4;
/// Distance of the middle of a cell's sample from its edges, pixels: outside, neighbours may have bled in.
const INNER: std::ops::Range<usize> = 5..11;

/// Returns the barcode of `number`: `HEIGHT` rows of `WIDTH` pixels.
pub(super) fn draw(number: u32) -> Vec<u8> {
    let row: Vec<u8> =
        cells(number).flat_map(|is_white| [if is_white { 255 } else { 0 }; CELL * PIXEL]).collect();
    row.repeat(HEIGHT)
}

/// Reads the number of the barcode whose left edge is the first pixel of `row`; `None` if there is none.
pub(super) fn read(row: &[u8]) -> Option<u32> {
    let mut bits = (0..CELLS).map(|cell| {
        let pixels = row.get(cell * CELL * PIXEL..(cell + 1) * CELL * PIXEL)?;
        // All on one side: text is no barcode.
        let mut white = INNER.map(|x| pixels[x * PIXEL + 1] > 128);
        let first = white.next()?;
        white.all(|other| other == first).then_some(first)
    });
    for expected in BEGIN {
        if bits.next()?? != expected {
            return None;
        }
    }
    let mut number = 0;
    for bit in bits.by_ref().take(32) {
        number = number << 1 | u32::from(bit?);
    }
    cells(number).skip(BEGIN.len() + 32).map(Some).eq(bits).then_some(number)
}

/// Finds a barcode in a picture with rows of `stride` bytes; returns the x and y of a pixel at its left edge, in the middle of
/// its height.
pub(super) fn find(picture: &[u8], stride: usize) -> Option<(usize, usize)> {
    let rows = picture.chunks_exact(stride).enumerate().step_by(HEIGHT / 4);
    // Only a cell of white behind something else can be the left edge; the check bits decide.
    let at_edge = |row: &[u8], x: usize| {
        let green = |x: usize| row[x * PIXEL + 1] > 128;
        green(x) && (x == 0 || !green(x - 1))
    };
    let mut rows = rows.flat_map(|(y, row)| {
        (0..(stride / PIXEL).saturating_sub(WIDTH - 1))
            .filter(move |x| at_edge(row, *x))
            .map(move |x| (x, y, row))
    });
    let (x, y, _) = rows.find(|(x, _, row)| read(&row[x * PIXEL..]).is_some())?;
    // A row further down is nearer to the middle, if it still is the barcode.
    let lower = y + HEIGHT / 4;
    let is_lower = picture
        .get(lower * stride..(lower + 1) * stride)
        .is_some_and(|row| read(&row[x * PIXEL..]).is_some());
    Some((x, if is_lower { lower } else { y }))
}

fn cells(number: u32) -> impl Iterator<Item = bool> {
    // Fibonacci hashing: neighbouring numbers differ in many of the upper bits.
    let check = number.wrapping_mul(0x9e37_79b1) >> 16;
    let bits = move |value: u32, count: u32| (0..count).rev().map(move |bit| value >> bit & 1 == 1);
    BEGIN.into_iter().chain(bits(number, 32)).chain(bits(check, 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRIDE: usize = (WIDTH + 200) * PIXEL;

    fn picture(number: u32, x: usize, y: usize) -> Vec<u8> {
        let mut picture = vec![40; STRIDE * 100];
        for (row, bars) in draw(number).chunks_exact(WIDTH * PIXEL).enumerate() {
            picture[(y + row) * STRIDE + x * PIXEL..][..WIDTH * PIXEL].copy_from_slice(bars);
        }
        picture
    }

    #[test]
    fn numbers_are_read_back() {
        for number in [0, 1, 0x5555_5555, 0xaaaa_aaaa, u32::MAX] {
            assert_eq!(read(&draw(number)), Some(number));
        }
    }

    #[test]
    fn a_wrong_cell_is_no_number() {
        for cell in 0..CELLS {
            let mut bars = draw(77);
            bars[cell * CELL * PIXEL..(cell + 1) * CELL * PIXEL]
                .iter_mut()
                .for_each(|byte| *byte = 255 - *byte);
            assert_eq!(read(&bars), None, "cell {cell}");
        }
    }

    #[test]
    fn a_barcode_is_found_anywhere() {
        for (x, y) in [(0, 0), (3, 5), (200, 68)] {
            let picture = picture(99, x, y);
            let found = find(&picture, STRIDE);
            assert!(
                found.is_some_and(|(left, row)| left == x && row > y && row < y + HEIGHT),
                "{x} {y}: {found:?}"
            );
        }
        assert_eq!(find(&vec![40; STRIDE * 100], STRIDE), None);
    }

    #[test]
    fn noise_and_low_contrast_do_not_matter() {
        let mut picture = picture(1_000_003, 10, 10);
        for (index, byte) in picture.iter_mut().enumerate() {
            *byte = 60 + *byte / 2 + (index as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] / 8;
        }
        assert!(find(&picture, STRIDE).is_some());
    }
}
