// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encoding of picture formats, colours and layouts as numbers and words.

use super::WireError;
use super::cell::Cell;
use super::error::check;
use crate::colors::{ColorRange, Colors};
use crate::format::{Layout, PixelFormat, PlaneLayout};

/// Returns the number of a format in the wire format: its place among all formats, from 1. No format has 0.
pub(super) fn format_number(format: PixelFormat) -> u8 {
    format as u8 + 1
}

pub(super) fn format_of(number: u8, record: &'static str) -> Result<PixelFormat, WireError> {
    PixelFormat::ALL.into_iter().find(|format| format_number(*format) == number).ok_or(WireError::Field {
        record,
        field: "format",
        value: number.into(),
    })
}

/// Encodes colours as a 32-bit number, one byte for each field.
pub(super) fn colors_number(colors: Colors) -> u32 {
    let range = match colors.range {
        ColorRange::Unknown => 0,
        ColorRange::Limited => 1,
        ColorRange::Full => 2,
    };
    u32::from_le_bytes([colors.primaries, colors.transfer, colors.matrix, range])
}

pub(super) fn colors_of(number: u32, record: &'static str) -> Result<Colors, WireError> {
    let [primaries, transfer, matrix, range] = number.to_le_bytes();
    let range = match range {
        0 => ColorRange::Unknown,
        1 => ColorRange::Limited,
        2 => ColorRange::Full,
        other => return Err(WireError::Field { record, field: "range", value: other.into() }),
    };
    Ok(Colors { primaries, transfer, matrix, range })
}

/// Encodes a layout cell of the given kind, which defines `id` as `layout`: the offsets of four planes in the
/// words 2 to 5, and their strides in the halves of the words 6 and 7. Only the low 32 bits of a
/// stride are encoded; only opaque bytes may need more.
pub(super) fn encode(kind: u8, id: u8, layout: &Layout) -> Cell {
    let mut cell = [0; 8];
    cell[0] = u64::from(kind)
        | u64::from(id) << 8
        | u64::from(format_number(layout.format)) << 16
        | u64::from(colors_number(layout.colors)) << 24;
    cell[1] = u64::from(layout.width) | u64::from(layout.height) << 32;
    for (index, plane) in layout.planes().iter().enumerate() {
        cell[2 + index] = plane.offset as u64;
        cell[6 + index / 2] |= u64::from(plane.stride as u32) << (32 * (index % 2));
    }
    cell
}

/// Decodes id and layout of a layout cell. The caller has checked the cell's kind. Fails if a number
/// is invalid, the planes do not hold the picture, or bits that must be zero are set.
pub(super) fn decode(cell: &Cell) -> Result<(u8, Layout), WireError> {
    const RECORD: &str = "layout";
    if cell[0] >> 56 != 0 {
        return Err(WireError::Reserved { record: RECORD });
    }
    let format = format_of((cell[0] >> 16) as u8, RECORD)?;
    let colors = colors_of((cell[0] >> 24) as u32, RECORD)?;
    let (width, height) = (cell[1] as u32, (cell[1] >> 32) as u32);
    // A row of opaque bytes may be wider than any picture. The check that a slot holds it comes
    // later, when a frame uses the layout.
    let row = u64::from(width);
    if format == PixelFormat::Grey && height == 1 && width > 0 && cell[2..] == [0, 0, 0, 0, row, 0] {
        return Ok(((cell[0] >> 8) as u8, Layout::opaque(width as usize).with_colors(colors)));
    }
    // Checks the sides first, because they bound the numbers derived from them.
    Layout::packed(format, width, height)?;
    let sizes = format.plane_sizes(width, height);
    let mut planes = [PlaneLayout::default(); 4];
    for (index, plane) in planes.iter_mut().enumerate() {
        let offset = bytes(cell[2 + index], "offset")?;
        let stride = (cell[6 + index / 2] >> (32 * (index % 2))) as u32 as usize;
        match sizes.get(index) {
            Some(&(width, rows)) => *plane = PlaneLayout { offset, stride, width, rows },
            None if (offset, stride) != (0, 0) => return Err(WireError::Reserved { record: RECORD }),
            None => {}
        }
    }
    let planes = &planes[..sizes.len()];
    let layout = Layout::from_planes(format, width, height, planes)?;
    Ok(((cell[0] >> 8) as u8, layout.with_colors(colors)))
}

fn bytes(value: u64, field: &'static str) -> Result<usize, WireError> {
    let fits = usize::try_from(value).ok().filter(|bytes| *bytes <= isize::MAX as usize);
    check(fits.is_some(), "layout", field, value)?;
    Ok(fits.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_picture_pass_however_many() {
        for bytes in [1, 16_384, 16_385, 3_110_400, u32::MAX as usize] {
            let layout = Layout::opaque(bytes);
            assert_eq!(decode(&encode(3, 7, &layout)).unwrap(), (7, layout));
        }
        let mut wide = encode(3, 7, &Layout::opaque(16_385));
        wide[3] += 1;
        assert!(decode(&wide).is_err(), "a stride makes it a picture");
        assert!(decode(&encode(3, 7, &Layout::opaque(0))).is_err());
    }
}
