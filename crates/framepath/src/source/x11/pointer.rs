// SPDX-License-Identifier: MIT OR Apache-2.0
//! Picture of the mouse pointer, which the X server does not have in its screen.

use std::ops::Range;

use framepath_os::display::screen_pool::ScreenSlot;
use x11rb::protocol::xfixes::GetCursorImageReply;

/// Picture of the pointer and its place in a captured picture.
pub(super) struct PointerImage {
    shape: PointerPlace,
    width: usize,
    height: usize,
    /// Pixels in rows: alpha in the highest byte, then red, green and blue, which are multiplied by alpha.
    pixels: Vec<u32>,
}

/// Shape of the pointer and its place. Two captured pictures with equal places show an equal pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PointerPlace {
    /// The server's number of the shape.
    serial: u32,
    /// Place of the upper left pixel in the captured picture.
    x: i32,
    y: i32,
}

impl PointerImage {
    /// Reads the server's reply. `origin` is the place of the captured picture on the screen. `None` if the reply
    /// has fewer pixels than the size says.
    pub(super) fn of(reply: GetCursorImageReply, origin: (i32, i32)) -> Option<PointerImage> {
        let (width, height) = (usize::from(reply.width), usize::from(reply.height));
        let shape = PointerPlace {
            serial: reply.cursor_serial,
            x: i32::from(reply.x) - i32::from(reply.xhot) - origin.0,
            y: i32::from(reply.y) - i32::from(reply.yhot) - origin.1,
        };
        let is_whole = reply.cursor_image.len() == width * height;
        is_whole.then_some(PointerImage { shape, width, height, pixels: reply.cursor_image })
    }

    /// Returns the place of the pointer in a picture of `size` pixels; `None` if it is outside.
    pub(super) fn place(&self, size: (u32, u32)) -> Option<PointerPlace> {
        let (columns, rows) = self.part(size);
        (!columns.is_empty() && !rows.is_empty()).then_some(self.shape)
    }

    /// Returns the rows of a picture of `size` pixels that the pointer covers; empty if it is outside.
    pub(super) fn rows(&self, size: (u32, u32)) -> Range<u32> {
        let (columns, rows) = self.part(size);
        if columns.is_empty() {
            return 0..0;
        }
        let row = |at: usize| (i64::from(self.shape.y) + at as i64).clamp(0, i64::from(size.1)) as u32;
        row(rows.start)..row(rows.end)
    }

    /// Returns the columns and rows of the pointer's picture that are inside a picture of `size` pixels.
    fn part(&self, size: (u32, u32)) -> (Range<usize>, Range<usize>) {
        let inside = |at: i32, length: usize, whole: u32| {
            let first = i64::from(-at).clamp(0, length as i64);
            let end = (i64::from(whole) - i64::from(at)).clamp(first, length as i64);
            first as usize..end as usize
        };
        (inside(self.shape.x, self.width, size.0), inside(self.shape.y, self.height, size.1))
    }

    /// Draws the pointer into a picture of `size` pixels of four bytes (blue, green, red, unused), without padding.
    pub(super) fn draw(&self, slot: &mut ScreenSlot<'_>, size: (u32, u32)) {
        let (columns, rows) = self.part(size);
        let mut row = vec![0; columns.len() * 4];
        for y in rows {
            // Not negative: `part` begins inside the picture.
            let left = (self.shape.x + columns.start as i32) as usize;
            let offset = ((self.shape.y + y as i32) as usize * size.0 as usize + left) * 4;
            slot.read(offset, &mut row);
            let over = &self.pixels[y * self.width..][columns.clone()];
            row.chunks_exact_mut(4).zip(over).for_each(|(pixel, over)| blend(pixel, *over));
            slot.write(offset, &row);
        }
    }
}

/// Draws a pixel of the pointer over blue, green and red in `under`.
fn blend(under: &mut [u8], over: u32) {
    let [blue, green, red, alpha] = over.to_le_bytes();
    for (under, over) in under.iter_mut().zip([blue, green, red]) {
        let behind = (u32::from(*under) * u32::from(255 - alpha) + 127) / 255;
        *under = (behind + u32::from(over)).min(255) as u8;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use framepath_os::display::screen_pool::ScreenPool;

    use super::*;

    /// Makes a pointer of 2x2 pixels whose hot spot is its lower right pixel.
    fn pointer(x: i16, y: i16) -> PointerImage {
        let reply = GetCursorImageReply {
            x,
            y,
            width: 2,
            height: 2,
            xhot: 1,
            yhot: 1,
            cursor_serial: 5,
            cursor_image: vec![0xff01_0203, 0, 0x8000_0040, 0xffff_ffff],
            ..GetCursorImageReply::default()
        };
        PointerImage::of(reply, (100, 0)).unwrap()
    }

    /// Draws the pointer into a grey picture of 3x2 pixels and returns the pixels' blue, green and red.
    fn drawn(pointer: &PointerImage) -> Vec<[u8; 3]> {
        let pool = ScreenPool::new(24, 1).unwrap();
        let mut slot = pool.acquire(Duration::ZERO).unwrap();
        slot.write(0, &[100; 24]);
        pointer.draw(&mut slot, (3, 2));
        let mut bytes = [0; 24];
        slot.read(0, &mut bytes);
        bytes.chunks(4).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
    }

    #[test]
    fn pixels_are_drawn_over_those_of_the_screen() {
        let grey = [100; 3];
        // Half of 100, and 64 in blue.
        let half = [114, 50, 50];
        assert_eq!(drawn(&pointer(101, 1)), [[3, 2, 1], grey, grey, half, [255; 3], grey]);
    }

    #[test]
    fn a_pointer_is_cut_at_the_edges() {
        let grey = [100; 3];
        assert_eq!(drawn(&pointer(100, 0)), [[255; 3], grey, grey, grey, grey, grey]);
        assert_eq!(drawn(&pointer(103, 2)), [grey, grey, grey, grey, grey, [3, 2, 1]]);
        assert_eq!((pointer(100, 0).rows((3, 2)), pointer(103, 2).rows((3, 2))), (0..1, 1..2));
        for outside in [pointer(99, 0), pointer(104, 0), pointer(100, -1), pointer(100, 3)] {
            assert_eq!(outside.place((3, 2)), None);
            assert!(outside.rows((3, 2)).is_empty());
            assert_eq!(drawn(&outside), [grey; 6]);
        }
        assert_ne!(pointer(100, 0).place((3, 2)), pointer(101, 0).place((3, 2)));
    }

    #[test]
    fn a_reply_with_too_few_pixels_is_refused() {
        let reply =
            GetCursorImageReply { width: 2, height: 2, cursor_image: vec![0; 3], ..Default::default() };
        assert!(PointerImage::of(reply, (0, 0)).is_none());
    }
}
