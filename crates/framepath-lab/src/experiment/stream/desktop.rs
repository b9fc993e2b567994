// SPDX-License-Identifier: MIT OR Apache-2.0
//! Content of a desktop: a wallpaper, a bar, a page of text, a terminal whose text scrolls, and flat icons. All colours are
//! grey.

use framepath_model::format::{Layout, PixelFormat};
use framepath_os::memory::pool::FrameMut;

use crate::error::LabError;

/// Size of the picture, pixels: the size of the lab's own screens.
pub(super) const SIZE: (u16, u16) = (1920, 1080);
/// Pictures per second, of the clock and of all contenders.
pub(super) const RATE: u32 = 60;
/// Area that scrolls: x, y, width, height.
pub(super) const AREA: (i16, i16, u16, u16) = (100, 200, 640, 480);
/// Rows by which the area scrolls for each picture, so that an encoder finds most of it in the picture before.
pub(super) const SCROLL: u32 = 2;
/// Rows by which the area jumps for each picture, so that an encoder finds nothing of it nearby: as in a video of many
/// cuts, a stream then needs all its bits.
pub(super) const JUMP: u32 = 97;
/// Size of a letter-like block of the text, pixels.
const LETTER: (usize, usize) = (8, 14);
/// Distance of the lines of a text, pixels.
const LINE: usize = 20;
/// Height of the bar at the lower edge, and of a window's title, pixels.
const BAR: usize = 40;
const TITLE: usize = 28;
/// Window with a page of text: x, y, width, height of the page.
const PAGE: [usize; 4] = [900, 180, 600, 560];
/// Margins of the page and of the scrolling area at the sides, and at the top and the bottom, pixels. The scrolling area's
/// lines continue from its end to its beginning.
const PAGE_MARGINS: [usize; 2] = [36, 32];
const AREA_MARGINS: [usize; 2] = [12, 0];
/// Greys of the flat parts.
const PAPER: u8 = 245;
const INK: u8 = 50;
const DARK: u8 = 45;
const MIDDLE: u8 = 190;

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
        let (_, _, width, height) = AREA;
        let mut scrolling = Canvas::new(width.into(), height.into(), |_, _| PAPER);
        scrolling.text([0, 0, width.into(), height.into()], AREA_MARGINS, 0, 2);
        DesktopPictures { base: desktop().pixels, scrolling: scrolling.pixels }
    }

    /// Returns the pixels of the whole picture, of which the scrolling area is blank: BGR0.
    pub(super) fn base_bgr0(&self) -> Vec<u8> {
        bgr0(&self.base)
    }

    /// Returns the pixels of the scrolling area's content: BGR0.
    pub(super) fn scrolling_bgr0(&self) -> Vec<u8> {
        bgr0(&self.scrolling)
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
        into.plane_mut(0).copy_from_slice(&bgr0(&self.grey(number)));
    }
}

/// Converts a brightness to limited range.
fn limited(grey: u8) -> u8 {
    (16 + (u32::from(grey) * 219 + 127) / 255) as u8
}

/// Converts greys to pixels of BGR0.
fn bgr0(greys: &[u8]) -> Vec<u8> {
    greys.iter().flat_map(|grey| [*grey, *grey, *grey, 0]).collect()
}

/// Draws the desktop without the text that scrolls. It is always the same.
fn desktop() -> Canvas {
    let (width, height) = (usize::from(SIZE.0), usize::from(SIZE.1));
    // A smooth gradient, by two fifths of the whole range.
    let mut canvas = Canvas::new(width, height, |x, y| (70 + 70 * y / height + 30 * x / width) as u8);
    let (x, y, area_width, area_height) = AREA;
    let area = [x as usize, y as usize, area_width.into(), area_height.into()];
    for (index, [x, y, width, height]) in [area, PAGE].into_iter().enumerate() {
        canvas.fill([x - 2, y - TITLE, width + 4, height + TITLE + 2], DARK);
        canvas.fill([x, y - TITLE + 2, width, TITLE - 2], MIDDLE);
        canvas.line(x + 10, y - TITLE + 8, 24, 3 + index as u32);
        canvas.fill([x, y, width, height], PAPER);
    }
    canvas.text(PAGE, PAGE_MARGINS, LINE / 2, 1);
    // Icons.
    for row in 0..5 {
        canvas.fill([1780, 140 + row * 140, 72, 72], [DARK, 220, MIDDLE, 100, PAPER][row]);
    }
    // The bar with its buttons and the time of day.
    canvas.fill([0, height - BAR, width, BAR], DARK);
    for button in 0..4 {
        canvas.fill([8 + button * 188, height - BAR + 6, 180, BAR - 12], MIDDLE);
        canvas.line(20 + button * 188, height - BAR + 13, 14, 5 + button as u32);
    }
    canvas.fill([width - 120, height - BAR + 6, 112, BAR - 12], MIDDLE);
    canvas.line(width - 100, height - BAR + 13, 8, 9);
    canvas
}

/// Picture of greys.
struct Canvas {
    width: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    fn new(width: usize, height: usize, grey: impl Fn(usize, usize) -> u8) -> Canvas {
        let pixels = (0..width * height).map(|index| grey(index % width, index / width)).collect();
        Canvas { width, pixels }
    }

    fn fill(&mut self, [x, y, width, height]: [usize; 4], grey: u8) {
        for row in self.pixels.chunks_exact_mut(self.width).skip(y).take(height) {
            row[x..x + width].fill(grey);
        }
    }

    /// Writes lines between the margins, which are those at the sides, and at the top and the bottom. Every sixth line or so
    /// ends a paragraph, behind which `gap` pixels stay free.
    fn text(&mut self, [x, y, width, height]: [usize; 4], margins: [usize; 2], gap: usize, seed: u32) {
        let letters = (width - 2 * margins[0]) / LETTER.0;
        let (mut top, bottom) = (y + margins[1], y + height - margins[1]);
        for line in 0.. {
            if top + LINE > bottom {
                break;
            }
            let bits = hash(line ^ seed << 16);
            let (ends, ragged) = (bits % 6 == 0, bits as usize / 6);
            // The last line of a paragraph is short, and the others end at different places.
            let count =
                if ends { letters * (20 + ragged % 60) / 100 } else { letters - ragged % (letters / 4) };
            self.line(x + margins[0], top, count, seed << 8 ^ line);
            top += LINE + if ends { gap } else { 0 };
        }
    }

    /// Writes `count` letters and spaces, as sharp as text.
    fn line(&mut self, x: usize, y: usize, count: usize, seed: u32) {
        for column in 0..count {
            let bits = hash(column as u32 ^ seed << 12);
            // Every sixth letter or so is a space, and so are the edges of the letters.
            if bits % 6 == 0 {
                continue;
            }
            for (inside_y, inside_x) in (0..12).flat_map(|y| (0..6).map(move |x| (y, x))) {
                if bits >> (8 + inside_x / 2 * 4 + inside_y / 3) & 1 == 1 {
                    self.pixels[(y + inside_y) * self.width + x + column * LETTER.0 + inside_x] = INK;
                }
            }
        }
    }
}

/// Mixes the bits of a number (the finaliser of MurmurHash3).
fn hash(mut value: u32) -> u32 {
    value = (value ^ value >> 16).wrapping_mul(0x85eb_ca6b);
    value = (value ^ value >> 13).wrapping_mul(0xc2b2_ae35);
    value ^ value >> 16
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::super::contender::{GOP, KILOBITS};
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

    #[test]
    fn a_tenth_of_the_text_is_ink() {
        let pictures = DesktopPictures::new();
        let percent = |pixels: &[u8]| pixels.iter().filter(|grey| **grey == INK).count() * 100 / pixels.len();
        let [x, y, width, height] = PAGE;
        let rows = pictures.base.chunks_exact(usize::from(SIZE.0)).skip(y).take(height);
        let page: Vec<u8> = rows.flat_map(|row| row[x..x + width].to_vec()).collect();
        assert_eq!([percent(&page), percent(&pictures.scrolling)], [10, 12]);
    }

    #[test]
    fn a_keyframe_has_a_usual_quality() {
        let command = format!(
            "ffmpeg -nostdin -v info -f rawvideo -pix_fmt gray -video_size {}x{} -framerate {RATE} -i - -pix_fmt yuv420p -c:v \
             libx264 -preset ultrafast -tune zerolatency -threads 1 -b:v {KILOBITS}k -maxrate {KILOBITS}k -bufsize 1000k \
             -g {GOP} -f null -",
            SIZE.0, SIZE.1
        );
        let mut words = command.split_whitespace();
        let mut ffmpeg = Command::new(words.next().unwrap());
        ffmpeg.args(words).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let Ok(mut ffmpeg) = ffmpeg.spawn() else { panic!("no ffmpeg; apt install ffmpeg") };
        let pictures = DesktopPictures::new();
        let mut input = ffmpeg.stdin.take().unwrap();
        for number in 0..3 {
            input.write_all(&pictures.grey(number)).unwrap();
        }
        drop(input);
        let said = String::from_utf8_lossy(&ffmpeg.wait_with_output().unwrap().stderr).into_owned();
        // As in `frame I:1     Avg QP:35.37  size: 75944`.
        let of_keyframes = said.split("frame I:1 ").nth(1).and_then(|text| text.split("Avg QP:").nth(1));
        let qp: Option<f64> = of_keyframes.and_then(|text| text.split_whitespace().next()?.parse().ok());
        assert!(qp.is_some_and(|qp| qp < 40.0), "{said}");
    }
}
