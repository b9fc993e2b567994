// SPDX-License-Identifier: MIT OR Apache-2.0
//! The moving pattern of the `test` source: diagonal stripes of every grey,
//! moving two pixels a frame, under a slowly turning colour.

use framepath_model::format::PixelFormat;
use framepath_os::memory::pool::FrameMut;

/// Draws picture number `number` into `frame`. The bytes depend only on the number and the frame's layout.
pub(crate) fn draw(frame: &mut FrameMut, number: u64) {
    let layout = *frame.layout();
    let planes = layout.planes();
    let shift = (number * 2) as usize;
    let (u, v) = ((number * 3) as u8, (number * 5 + 64) as u8);
    for (index, plane) in planes.iter().enumerate() {
        let bytes = frame.plane_mut(index);
        for (y, row) in bytes.chunks_mut(plane.stride).enumerate() {
            let row = &mut row[..plane.width];
            match (layout.format, index) {
                (PixelFormat::Rgba, _) => {
                    for (x, pixel) in row.chunks_exact_mut(4).enumerate() {
                        pixel.copy_from_slice(&[(x + y + shift) as u8, u, v, 255]);
                    }
                }
                (PixelFormat::Grey | PixelFormat::Yuv420p | PixelFormat::Nv12, 0) => {
                    for (x, pixel) in row.iter_mut().enumerate() {
                        *pixel = (x + y + shift) as u8;
                    }
                }
                (PixelFormat::Yuv420p10 | PixelFormat::P010, 0) => {
                    let up = if layout.format == PixelFormat::P010 { 6 } else { 0 };
                    for (x, pixel) in row.chunks_exact_mut(2).enumerate() {
                        let value = ((x + y + shift) as u16 & 0x3ff) << up;
                        pixel.copy_from_slice(&value.to_le_bytes());
                    }
                }
                (PixelFormat::Nv12, _) => {
                    for pair in row.chunks_exact_mut(2) {
                        pair.copy_from_slice(&[u, v]);
                    }
                }
                (PixelFormat::P010, _) => {
                    let [u, v] = [u, v].map(|c| (u16::from(c) << 8).to_le_bytes());
                    for pair in row.chunks_exact_mut(4) {
                        pair.copy_from_slice(&[u[0], u[1], v[0], v[1]]);
                    }
                }
                (PixelFormat::Yuv420p10, _) => {
                    let colour = (u16::from(if index == 1 { u } else { v }) << 2).to_le_bytes();
                    for sample in row.chunks_exact_mut(2) {
                        sample.copy_from_slice(&colour);
                    }
                }
                (PixelFormat::Grey | PixelFormat::Yuv420p, _) => {
                    row.fill(if index == 1 { u } else { v });
                }
            }
        }
    }
}
