// SPDX-License-Identifier: MIT OR Apache-2.0
//! The moving pattern of the `test` source: diagonal stripes of every grey,
//! moving two pixels a frame, under a slowly turning colour.

use framepath_model::format::PixelFormat;
use framepath_os::memory::pool::FrameMut;

/// Draws picture number `number` into `frame`. The bytes depend only on the number and the frame's layout.
pub(crate) fn draw(frame: &mut FrameMut, number: u64) {
    let layout = *frame.layout();
    let shift = (number * 2) as usize;
    let color = [(number * 3) as u8, (number * 5 + 64) as u8];
    for (index, plane) in layout.planes().iter().enumerate() {
        let bytes = frame.plane_mut(index);
        for (y, row) in bytes.chunks_mut(plane.stride).enumerate() {
            draw_row(&mut row[..plane.width], layout.format, index, y + shift, color);
        }
    }
}

/// Draws a row of plane number `index`. The grey of pixel x is `first + x`; `color` is the colour's U and V, or
/// its green and blue.
fn draw_row(row: &mut [u8], format: PixelFormat, index: usize, first: usize, [u, v]: [u8; 2]) {
    use PixelFormat::{Bgr0, Bgr24, Bgra, Nv12, P010, Pal8, Rgb24, Rgba, Uyvy, Ya8, Yuyv};
    let grey = |x: usize| (first + x) as u8;
    match (format, index) {
        (Rgba | Rgb24, _) => {
            each(row, if format == Rgba { 4 } else { 3 }, |x| [grey(x), u, v, 255]);
        }
        (Bgra | Bgr0 | Bgr24, _) => {
            each(row, if format == Bgr24 { 3 } else { 4 }, |x| [v, u, grey(x), 255]);
        }
        (Yuyv, _) => each(row, 4, |x| [grey(2 * x), u, grey(2 * x + 1), v]),
        (Uyvy, _) => each(row, 4, |x| [u, grey(2 * x), v, grey(2 * x + 1)]),
        (Ya8, _) => each(row, 2, |x| [grey(x), 255]),
        (Pal8, 1) => each(row, 4, |x| [x as u8, x as u8, x as u8, 255]),
        (Nv12, 1) => each(row, 2, |_| [u, v]),
        (P010, 1) => each(row, 4, |_| [0, u, 0, v]),
        _ if format.luma_bytes() == 2 => {
            let (depth, up) = (format.depth(), if format == P010 { 6 } else { 0 });
            let most = ((1u32 << depth) - 1) as u16;
            each(row, 2, |x| {
                let sample = match index {
                    0 => (first + x) as u16 & most,
                    3 => most,
                    _ => u16::from(if index == 1 { u } else { v }) << (depth - 8),
                };
                (sample << up).to_le_bytes()
            });
        }
        (_, 0) => each(row, 1, |x| [grey(x)]),
        (_, 3) => row.fill(255),
        _ => row.fill(if index == 1 { u } else { v }),
    }
}

/// Writes the first `bytes` bytes of `pixel(x)` to every place x of the row.
fn each<const N: usize>(row: &mut [u8], bytes: usize, pixel: impl Fn(usize) -> [u8; N]) {
    for (x, place) in row.chunks_exact_mut(bytes).enumerate() {
        place.copy_from_slice(&pixel(x)[..bytes]);
    }
}
