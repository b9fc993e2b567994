// SPDX-License-Identifier: MIT OR Apache-2.0
//! Content of a desktop: text, of which an area scrolls.

use framepath_model::format::{Layout, PixelFormat};
use framepath_os::memory::pool::FrameMut;

use super::barcode::PIXEL;
use crate::error::LabError;

/// Size of the picture, pixels: the size of the lab's own screens.
pub(super) const SIZE: (u16, u16) = (1920, 1080);
/// Pictures per second, of the clock and of all contenders.
pub(super) const RATE: u32 = 60;
/// Area that scrolls, by [`SCROLL`] rows for each picture: x, y, width, height.
pub(super) const AREA: (i16, i16, u16, u16) = (100, 200, 640, 480);
pub(super) const SCROLL: u32 = 2;
/// Size of a letter-like block of the content, pixels.
const LETTER: (usize, usize) = (8, 14);

/// The pictures of the desktop in memory, as the screen's clock draws them, without the barcode.
pub(super) struct DesktopPictures {
    /// The whole picture and the scrolling area, one byte a pixel: all colours are grey.
    base: Vec<u8>,
    scrolling: Vec<u8>,
}

impl DesktopPictures {
    /// Number of pixels of a picture.
    pub(super) const PIXELS: u64 = SIZE.0 as u64 * SIZE.1 as u64;

    pub(super) fn new() -> DesktopPictures {
        let grey = |width: u16, height: u16, seed| {
            let pixels = text(width.into(), height.into(), seed);
            pixels.chunks_exact(PIXEL).map(|pixel| pixel[0]).collect()
        };
        let (_, _, width, height) = AREA;
        DesktopPictures { base: grey(SIZE.0, SIZE.1, 1), scrolling: grey(width, height, 2) }
    }

    /// Returns the layout of the pictures in `format`.
    pub(super) fn layout(format: PixelFormat) -> Result<Layout, LabError> {
        Layout::packed(format, SIZE.0.into(), SIZE.1.into())
            .map_err(|error| LabError::Unknown(format!("pictures of a desktop: {error}")))
    }

    /// Returns picture `number`, one byte for the brightness of each pixel, 0 to 255.
    pub(super) fn grey(&self, number: u64) -> Vec<u8> {
        let mut picture = self.base.clone();
        let (x, y, width, height) = AREA;
        let (width, height, stride) = (usize::from(width), usize::from(height), usize::from(SIZE.0));
        let from = number as usize * SCROLL as usize % height;
        let rows = self.scrolling.chunks_exact(width).cycle().skip(from).take(height);
        for (row, pixels) in rows.enumerate() {
            picture[(y as usize + row) * stride + x as usize..][..width].copy_from_slice(pixels);
        }
        picture
    }

    /// Returns the luma of picture `number`, limited range.
    pub(super) fn luma(&self, number: u64) -> Vec<u8> {
        self.grey(number).into_iter().map(limited).collect()
    }

    /// Draws picture `number` into a frame of 4:2:0 whose layout is [`layout`](DesktopPictures::layout).
    pub(super) fn draw_yuv420p(&self, number: u64, into: &mut FrameMut) {
        into.plane_mut(0).copy_from_slice(&self.luma(number));
        into.plane_mut(1).fill(128);
        into.plane_mut(2).fill(128);
    }

    /// Draws picture `number` into a frame of BGR0 whose layout is [`layout`](DesktopPictures::layout).
    pub(super) fn draw_bgr0(&self, number: u64, into: &mut FrameMut) {
        for (pixel, grey) in into.plane_mut(0).chunks_exact_mut(PIXEL).zip(self.grey(number)) {
            pixel[..3].fill(grey);
        }
    }
}

/// Converts a brightness to limited range.
fn limited(grey: u8) -> u8 {
    (16 + (u32::from(grey) * 219 + 127) / 255) as u8
}

/// Returns a picture of dark blocks on white, as sharp and as dense as text. It depends only on its arguments.
pub(super) fn text(width: usize, height: usize, seed: u32) -> Vec<u8> {
    let mut pixels = vec![255; width * height * PIXEL];
    for (index, pixel) in pixels.chunks_exact_mut(PIXEL).enumerate() {
        let (x, y) = (index % width, index / width);
        let (column, line) = (x / LETTER.0, y / LETTER.1);
        let bits = hash((column + line * width) as u32 ^ seed << 24);
        // Every sixth letter is a space, and so are the edges of the letters.
        let (inside_x, inside_y) = (x % LETTER.0, y % LETTER.1);
        let is_space = bits % 6 == 0 || inside_x > 5 || !(2..11).contains(&inside_y);
        if !is_space && bits >> ((inside_x / 2 * 5 + inside_y / 2) % 27) & 1 == 1 {
            pixel[..3].fill(30);
        }
    }
    pixels
}

/// Mixes the bits of a number (the finaliser of MurmurHash3).
fn hash(mut value: u32) -> u32 {
    value = (value ^ value >> 16).wrapping_mul(0x85eb_ca6b);
    value = (value ^ value >> 13).wrapping_mul(0xc2b2_ae35);
    value ^ value >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_area_scrolls() {
        let pictures = DesktopPictures::new();
        let stride = usize::from(SIZE.0);
        let (x, y, width, _) = AREA;
        let inside = y as usize * stride + x as usize..y as usize * stride + x as usize + usize::from(width);
        let (first, second) = (pictures.grey(0), pictures.grey(1));
        assert_eq!(first[..inside.start], second[..inside.start]);
        let below = inside.start + SCROLL as usize * stride..inside.end + SCROLL as usize * stride;
        assert_eq!(first[below], second[inside]);
        assert_ne!(first, second);
        // The content repeats after as many pictures as the area has steps.
        assert_eq!(pictures.grey(u64::from(AREA.3) / u64::from(SCROLL)), first);
        assert_eq!([limited(0), limited(255)], [16, 235]);
    }
}
