// SPDX-License-Identifier: MIT OR Apache-2.0
//! Painting of frames into a screen's memory: 32-bit RGB, scaled to the target area.
//!
//! A [`Converter`](crate::Converter) is exact; a [`Painter`] is fast, for viewing. libswscale has
//! vector code from planar 8-bit YUV to RGB, but not from the other YUV formats and GREY, so these
//! are first converted to planar YUV ([`planar8`]). RGBA is painted without this conversion. If a
//! stream does not declare its colours, YUV is interpreted as players do: limited range, BT.709
//! from 1025 columns on, otherwise BT.601.

use std::ffi::c_int;
use std::ops::Range;
use std::ptr;

use framepath_model::format::{Layout, PixelFormat};
use framepath_os::measure::meter;
use framepath_os::memory::pool::Frame;

use crate::convert::{ConvertError, SLACK, TailRows};

mod context;
mod seen;

use context::ScaleContext;
use seen::PaintedCopy;

/// Maximum number of pixels that libswscale writes at a time; it may write up to a whole block
/// beyond the end of a row.
const BLOCK: usize = 16;

/// Order of the bytes of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelOrder {
    /// Blue, green, red, unused: the usual order of X11 and KMS.
    Bgrx,
    /// Red, green, blue, unused.
    Rgbx,
}

/// Area of a picture in a screen's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaintArea {
    /// Distance from the left edge of the screen, pixels.
    pub x: usize,
    /// Distance from the top edge of the screen, pixels.
    pub y: usize,
    /// Width of the area, pixels.
    pub width: usize,
    /// Height of the area, pixels.
    pub height: usize,
}

/// Painter for frames of any size, in the formats that [`paints`](Painter::paints) names.
///
/// The painter assumes that the screen still shows the previous picture, until
/// [`forget`](Painter::forget) is called. So it paints only the changed rows, in bands of 8 rows:
/// for YUV420P frames that are painted unscaled, fill whole rows of the screen, and have a width in
/// multiples of 16 and a height in multiples of 8. For a shared screen, a slide or a cartoon this
/// reduces the cost to a comparison. After a frame that changes more than half of the bands, the
/// next 16 frames are painted whole: 15 without a copy of the picture, and one more, of which the
/// painter makes the copy for the next comparison.
#[derive(Debug)]
pub struct Painter {
    whole: ScaleContext,
    /// Context for [`BAND`] rows at a time, without scaling.
    band: ScaleContext,
    /// Copy of the picture on the screen, if the next frame can be compared with it.
    seen: PaintedCopy,
    /// Rows of the screen that the last frame changed, from top to bottom.
    changed: Vec<Range<usize>>,
    /// Scratch memory for the frame being painted: the picture converted to planar 8-bit YUV, or a
    /// copy of the last rows of a picture that libswscale otherwise reads in place.
    planar: Vec<u8>,
    /// Scratch memory for the painted picture, which is then copied to the screen. Unused if the area is as wide as
    /// the screen's rows and a multiple of [`BLOCK`] pixels: libswscale then writes to the screen directly.
    painted: Vec<u8>,
}

impl Default for Painter {
    fn default() -> Painter {
        Painter::new()
    }
}

impl Painter {
    /// Creates a painter that has painted nothing yet.
    pub fn new() -> Painter {
        Painter {
            whole: ScaleContext::default(),
            band: ScaleContext::default(),
            seen: PaintedCopy::default(),
            changed: Vec::new(),
            planar: Vec::new(),
            painted: Vec::new(),
        }
    }

    /// Returns true if [`paint`](Painter::paint) takes frames in `format`.
    pub fn paints(format: PixelFormat) -> bool {
        use PixelFormat::{Grey, Nv12, P010, Rgba, Yuv420p, Yuv420p10};
        matches!(format, Grey | Yuv420p | Nv12 | Yuv420p10 | P010 | Rgba)
    }

    /// Makes the painter paint the next frame whole. For callers whose screen may no longer show
    /// the previous picture.
    pub fn forget(&mut self) {
        self.seen.forget();
    }

    /// Returns the rows of the screen that the last call of [`paint`](Painter::paint) painted, as
    /// ranges from top to bottom; none before the first frame, or if a comparison with the previous
    /// frame found no change.
    pub fn changed(&self) -> &[Range<usize>] {
        &self.changed
    }

    /// Paints `frame` into `area` of `screen`, whose rows are `stride` bytes apart. The meter
    /// counts every byte that is written to the screen or to memory of the painter. With an empty
    /// area, paints nothing and leaves the result of [`changed`](Painter::changed) as it is.
    ///
    /// # Errors
    /// The frame is not a picture, its format is not one that the painter [paints](Painter::paints), or
    /// libswscale cannot scale it to this size.
    ///
    /// # Panics
    /// The area is not inside the screen.
    pub fn paint(
        &mut self,
        frame: &Frame,
        screen: &mut [u8],
        stride: usize,
        area: PaintArea,
        order: PixelOrder,
    ) -> Result<(), ConvertError> {
        let layout = *frame.layout();
        // The format and size of a layout can be changed without its planes.
        Layout::from_planes(layout.format, layout.width, layout.height, layout.planes())?;
        let (width, height) = (area.width, area.height);
        // A sum that wraps would place an area beyond the screen inside it.
        let right = area.x.checked_add(width).and_then(|right| right.checked_mul(4));
        let bottom = area.y.checked_add(height).and_then(|bottom| bottom.checked_mul(stride));
        assert!(right.is_some_and(|right| right <= stride), "{area:?} is wider than {stride} bytes");
        assert!(bottom.is_some_and(|end| end <= screen.len()), "{area:?} is higher than the screen");
        if width == 0 || height == 0 {
            return Ok(());
        }
        if !Painter::paints(layout.format) {
            return Err(no_way(&layout));
        }
        let source = match layout.format {
            PixelFormat::Yuv420p | PixelFormat::Rgba => layout,
            _ => planar_layout(&layout)?,
        };
        // libswscale writes whole blocks. It may write to the screen directly only if the blocks
        // end with the row.
        let direct = area.x == 0 && width % BLOCK == 0 && width * 4 == stride;
        let (start, into_stride) = match direct {
            true => (area.y * stride, stride),
            false => {
                let own = (width + BLOCK).next_multiple_of(BLOCK) * 4;
                self.painted.resize(own * height + SLACK, 0);
                (0, own)
            }
        };
        self.changed.clear();
        let same_size = (width, height) == (layout.width as usize, layout.height as usize);
        if direct && same_size && layout.format == PixelFormat::Yuv420p {
            if let Some(bands) = self.seen.bands(frame) {
                self.band.prepare(&band_of(&source)?, (width, BAND), order)?;
                return self.paint_bands(&bands, &mut screen[start..], stride, area.y);
            }
        } else {
            self.seen.forget();
        }
        self.whole.prepare(&source, (width, height), order)?;
        self.changed.push(area.y..area.y + height);
        let into = if direct { screen[start..].as_mut_ptr() } else { self.painted.as_mut_ptr() };
        let rows = if layout.format == source.format {
            let tail = TailRows::of(&source);
            meter::convert(width * height * 4 + tail.bytes, || self.scale(frame, &tail, into, into_stride))
        } else {
            self.planar.resize(source.size + SLACK, 0);
            planar8(frame, &mut self.planar, &source);
            meter::convert(width * height * 4, || self.scale_planar(&source, into, into_stride))
        };
        if rows != height {
            return Err(no_way(&source));
        }
        if !direct {
            meter::copy(width * height * 4, || {
                for row in 0..height {
                    let at = (area.y + row) * stride + area.x * 4;
                    let from = row * into_stride;
                    screen[at..at + width * 4].copy_from_slice(&self.painted[from..from + width * 4]);
                }
            });
        }
        Ok(())
    }

    /// Paints the bands with the indices `bands` from the copy of the picture, and records their
    /// rows as changed. `screen` begins with the first row of the picture, which is row `top` of
    /// the whole screen.
    fn paint_bands(
        &mut self,
        bands: &[usize],
        screen: &mut [u8],
        stride: usize,
        top: usize,
    ) -> Result<(), ConvertError> {
        let layout = self.seen.layout.expect("the frame was compared");
        let width = layout.width as usize;
        for band in bands {
            let first = band * BAND;
            let (mut planes, mut strides) = ([ptr::null(); 4], [0; 4]);
            for (index, plane) in layout.planes().iter().enumerate() {
                let row = if index == 0 { first } else { first / 2 };
                planes[index] = self.seen.picture[plane.offset + row * plane.stride..].as_ptr();
                strides[index] = plane.stride as c_int;
            }
            let into = screen[first * stride..(first + BAND) * stride].as_mut_ptr();
            let rows = meter::convert(width * BAND * 4, || {
                self.band.slice((planes, strides), 0..BAND, into, stride)
            });
            if rows != BAND {
                return Err(no_way(&layout));
            }
            let rows = top + first..top + first + BAND;
            match self.changed.last_mut() {
                Some(last) if last.end == rows.start => last.end = rows.end,
                _ => self.changed.push(rows),
            }
        }
        Ok(())
    }

    /// Paints all rows of `frame` into `into`, whose rows are `stride` bytes apart; copies the last
    /// rows, `tail`, first. Returns the number of painted rows.
    fn scale(&mut self, frame: &Frame, tail: &TailRows, into: *mut u8, stride: usize) -> usize {
        let layout = frame.layout();
        let (mut planes, mut strides) = ([ptr::null(); 4], [0; 4]);
        for (index, plane) in layout.planes().iter().enumerate() {
            planes[index] = frame.plane(index).as_ptr();
            strides[index] = plane.stride as c_int;
        }
        let before = self.whole.slice((planes, strides), 0..tail.first, into, stride);
        let tail_planes = tail.copy(frame, &mut self.planar);
        before + self.whole.slice(tail_planes, tail.first..layout.height as usize, into, stride)
    }

    /// Paints the picture that [`planar8`] made in `planar` into `into`, whose rows are `stride`
    /// bytes apart. Returns the number of painted rows.
    fn scale_planar(&self, source: &Layout, into: *mut u8, stride: usize) -> usize {
        let (mut planes, mut strides) = ([ptr::null(); 4], [0; 4]);
        for (index, plane) in source.planes().iter().enumerate() {
            planes[index] = self.planar[plane.offset..].as_ptr();
            strides[index] = plane.stride as c_int;
        }
        self.whole.slice((planes, strides), 0..source.height as usize, into, stride)
    }
}

fn no_way(source: &Layout) -> ConvertError {
    let (width, height) = (source.width, source.height);
    ConvertError::NoWay { from: source.format, to: PixelFormat::Rgba, width, height }
}

/// Number of luma rows of a band, which is compared and painted as a whole.
const BAND: usize = 8;

/// Returns the layout of one band of a planar 8-bit YUV picture with the layout `layout`.
fn band_of(layout: &Layout) -> Result<Layout, ConvertError> {
    Ok(Layout::aligned(PixelFormat::Yuv420p, layout.width, BAND as u32, 64)?.with_colors(layout.colors))
}

/// Returns the layout of a picture made by [`planar8`].
fn planar_layout(of: &Layout) -> Result<Layout, ConvertError> {
    Ok(Layout::aligned(PixelFormat::Yuv420p, of.width, of.height, 64)?.with_colors(of.colors))
}

/// Converts `frame` to planar 8-bit YUV in `to`, with the layout `layout`. 10-bit samples lose
/// their lowest two bits, interleaved chroma is separated, and GREY gets neutral chroma. The
/// meter counts the bytes.
///
/// # Panics
/// The frame is RGBA or of a format that a [`Painter`] does not paint, `layout` is not YUV420P or has
/// another size than the frame, or `to` is too short.
pub fn planar8(frame: &Frame, to: &mut [u8], layout: &Layout) {
    let from = *frame.layout();
    assert_eq!(layout.format, PixelFormat::Yuv420p, "the format of the result");
    assert_eq!((layout.width, layout.height), (from.width, from.height), "equal sizes");
    assert!(
        Painter::paints(from.format) && from.format != PixelFormat::Rgba,
        "{} has no luma and chroma of 4:2:0",
        from.format
    );
    let [luma, blue, red] = [0, 1, 2].map(|index| layout.planes()[index]);
    meter::convert(layout.pixel_bytes(), || {
        for y in 0..luma.rows {
            let at = luma.offset + y * luma.stride;
            samples(frame, 0, y, from.format, &mut to[at..at + luma.width]);
        }
        for y in 0..blue.rows {
            let (u, v) = (blue.offset + y * blue.stride, red.offset + y * red.stride);
            match from.format {
                PixelFormat::Grey => {
                    to[u..u + blue.width].fill(128);
                    to[v..v + red.width].fill(128);
                }
                PixelFormat::Nv12 => pairs(frame, y, 1, to, (u, v)),
                PixelFormat::P010 => pairs(frame, y, 2, to, (u, v)),
                _ => {
                    samples(frame, 1, y, from.format, &mut to[u..u + blue.width]);
                    samples(frame, 2, y, from.format, &mut to[v..v + red.width]);
                }
            }
        }
    });
}

/// Writes row `y` of a plane to `to`, one byte per sample; 10-bit samples lose their lowest two
/// bits.
fn samples(frame: &Frame, plane: usize, y: usize, format: PixelFormat, to: &mut [u8]) {
    let mut at = 0;
    frame.row(plane, y).visit(|bytes| {
        let samples = bytes.len() / format.luma_bytes();
        let part = &mut to[at..at + samples];
        match format {
            PixelFormat::Yuv420p10 => {
                for (to, two) in part.iter_mut().zip(bytes.chunks_exact(2)) {
                    *to = (u16::from_le_bytes([two[0], two[1]]) >> 2) as u8;
                }
            }
            PixelFormat::P010 => {
                for (to, two) in part.iter_mut().zip(bytes.chunks_exact(2)) {
                    *to = two[1];
                }
            }
            _ => part.copy_from_slice(bytes),
        }
        at += samples;
    });
}

/// Separates row `y` of interleaved chroma, with `size` bytes per sample, into two rows that start
/// at `starts` in `to`: the highest byte of each sample.
fn pairs(frame: &Frame, y: usize, size: usize, to: &mut [u8], starts: (usize, usize)) {
    let mut at = 0;
    frame.row(1, y).visit(|bytes| {
        for pair in bytes.chunks_exact(2 * size) {
            to[starts.0 + at] = pair[size - 1];
            to[starts.1 + at] = pair[2 * size - 1];
            at += 1;
        }
    });
}

#[cfg(test)]
mod tests {
    use framepath_model::colors;
    use framepath_model::stream::FrameMeta;
    use framepath_os::memory::pool::Pool;

    use super::*;

    fn frame(
        format: PixelFormat,
        width: u32,
        height: u32,
        fill: impl Fn(usize, usize, usize) -> u8,
    ) -> Frame {
        frame_of(format, colors::Colors::UNKNOWN, width, height, fill)
    }

    fn frame_of(
        format: PixelFormat,
        colors: colors::Colors,
        width: u32,
        height: u32,
        fill: impl Fn(usize, usize, usize) -> u8,
    ) -> Frame {
        let layout = Layout::aligned(format, width, height, 64).unwrap().with_colors(colors);
        let mut pool = Pool::new(layout.size, 1).unwrap();
        let mut frame = pool.acquire().unwrap();
        frame.set_layout(&layout).unwrap();
        for (index, plane) in layout.planes().iter().enumerate() {
            let bytes = frame.plane_mut(index);
            for y in 0..plane.rows {
                for x in 0..plane.width {
                    bytes[y * plane.stride + x] = fill(index, x, y);
                }
            }
        }
        frame.freeze(FrameMeta::default())
    }

    /// Paints `frame` into `area` of a screen of `screen` pixels (width, height); returns the
    /// screen's bytes.
    fn painted(frame: &Frame, area: PaintArea, screen: (usize, usize)) -> Vec<u8> {
        let mut bytes = vec![7; screen.0 * screen.1 * 4];
        Painter::new().paint(frame, &mut bytes, screen.0 * 4, area, PixelOrder::Bgrx).unwrap();
        bytes
    }

    #[test]
    fn every_format_of_a_red_picture_is_red() {
        // BT.601, limited range: Y 81, U 90, V 240.
        let sample = |plane, x: usize| match (plane, x % 2) {
            (0, _) => 81,
            (1, 0) => 90,
            _ => 240,
        };
        let area = PaintArea { x: 0, y: 0, width: 32, height: 16 };
        let ten = |value: u8| u16::from(value) << 2;
        let planar = |plane: usize| [81, 90, 240][plane];
        let frames = [
            frame(PixelFormat::Yuv420p, 32, 16, |plane, _, _| planar(plane)),
            frame(PixelFormat::Nv12, 32, 16, |plane, x, _| sample(plane, x)),
            frame(PixelFormat::Yuv420p10, 32, 16, |plane, x, _| ten(planar(plane)).to_le_bytes()[x % 2]),
            frame(PixelFormat::P010, 32, 16, |plane, x, _| if x % 2 == 0 { 0 } else { sample(plane, x / 2) }),
            frame(PixelFormat::Rgba, 32, 16, |_, x, _| [255, 0, 0, 255][x % 4]),
        ];
        for frame in frames {
            let format = frame.layout().format;
            for pixel in painted(&frame, area, (32, 16)).chunks_exact(4) {
                let near = |byte: u8, expected: u8| byte.abs_diff(expected) <= 4;
                assert!(near(pixel[0], 0) && near(pixel[1], 0) && near(pixel[2], 255), "{format} {pixel:?}");
            }
        }
        let grey = frame(PixelFormat::Grey, 32, 16, |_, _, _| 235);
        assert!(painted(&grey, area, (32, 16)).chunks_exact(4).all(|p| p[..3].iter().all(|b| *b >= 252)));
    }

    #[test]
    fn colours_are_those_that_are_told() {
        use framepath_model::colors::{BT709, ColorRange, Colors, SMPTE170M};
        let of = |matrix, range| Colors { matrix, range, ..Colors::UNKNOWN };
        // Red in each: H.273's equations, 8 bits.
        for (colors, red) in [
            (of(SMPTE170M, ColorRange::Limited), [81, 90, 240]),
            (of(SMPTE170M, ColorRange::Full), [76, 85, 255]),
            (of(BT709, ColorRange::Limited), [63, 102, 240]),
            (of(BT709, ColorRange::Full), [54, 99, 255]),
        ] {
            let (width, height) = (32, 32);
            let area = PaintArea { x: 0, y: 0, width, height };
            let mut screen = vec![0; width * height * 4];
            let mut painter = Painter::new();
            for format in [PixelFormat::Yuv420p, PixelFormat::Nv12] {
                let fill = |plane: usize, x: usize, _| match (format, plane) {
                    (PixelFormat::Nv12, 1) => red[1 + x % 2],
                    _ => red[plane],
                };
                let picture = frame_of(format, colors, 32, 32, fill);
                painter.paint(&picture, &mut screen, width * 4, area, PixelOrder::Bgrx).unwrap();
                let near = |pixel: &[u8]| pixel[0] <= 4 && pixel[1] <= 4 && pixel[2] >= 251;
                assert!(screen.chunks_exact(4).all(near), "{format} {colors:?}: {:?}", &screen[..4]);
            }
        }
    }

    #[test]
    fn no_pixel_outside_the_area_changes() {
        let white = frame(PixelFormat::Yuv420p, 31, 17, |plane, _, _| [235, 128, 128][plane]);
        for (width, height) in [(31, 17), (45, 9), (32, 16)] {
            let area = PaintArea { x: 3, y: 2, width, height };
            let bytes = painted(&white, area, (64, 32));
            for (at, pixel) in bytes.chunks_exact(4).enumerate() {
                let (x, y) = (at % 64, at / 64);
                let inside = (3..3 + width).contains(&x) && (2..2 + height).contains(&y);
                assert_eq!(pixel[0] >= 252, inside, "{x},{y} of {area:?}: {pixel:?}");
                assert!(inside || pixel == [7; 4]);
            }
        }
    }

    #[test]
    fn only_what_changed_is_painted_again() {
        let flat = || frame(PixelFormat::Yuv420p, 32, 32, |plane, _, _| [81, 90, 240][plane]);
        let dot = frame(PixelFormat::Yuv420p, 32, 32, |plane, x, y| {
            if plane == 0 && (x, y) == (5, 17) { 200 } else { [81, 90, 240][plane] }
        });
        let colour = frame(PixelFormat::Yuv420p, 32, 32, |plane, x, y| {
            if plane == 2 && (x, y) == (15, 15) { 16 } else { [81, 90, 240][plane] }
        });
        let area = PaintArea { x: 0, y: 0, width: 32, height: 32 };
        let mut screen = vec![0; 32 * 32 * 4];
        let mut painter = Painter::new();
        let mut show = |painter: &mut Painter, frame: &Frame| {
            painter.paint(frame, &mut screen, 32 * 4, area, PixelOrder::Bgrx).unwrap();
            assert_eq!(screen, painted(frame, area, (32, 32)), "as if painted whole");
            painter.changed().iter().map(|rows| (rows.start, rows.end)).collect::<Vec<_>>()
        };
        assert_eq!(show(&mut painter, &flat()), [(0, 32)]);
        assert_eq!(show(&mut painter, &flat()), []);
        assert_eq!(show(&mut painter, &dot), [(16, 24)]);
        assert_eq!(show(&mut painter, &colour), [(16, 32)]);
        painter.forget();
        assert_eq!(show(&mut painter, &colour), [(0, 32)]);
        // A picture that changes everywhere is not compared for some frames, and compared again
        // later.
        for luma in 0..100 {
            let all = frame(PixelFormat::Yuv420p, 32, 32, |plane, _, _| [50 + luma, 90, 240][plane]);
            assert_eq!(show(&mut painter, &all), [(0, 32)]);
        }
        for _ in 0..20 {
            show(&mut painter, &flat());
        }
        assert_eq!(show(&mut painter, &flat()), []);
    }

    #[test]
    fn rows_that_changed_are_the_screens() {
        let picture = |luma: u8| frame(PixelFormat::Yuv420p, 32, 16, |_, _, _| luma);
        let mut screen = vec![0; 32 * 32 * 4];
        let mut painter = Painter::new();
        for luma in [20, 200] {
            let area = PaintArea { x: 0, y: 8, width: 32, height: 16 };
            painter.paint(&picture(luma), &mut screen, 32 * 4, area, PixelOrder::Bgrx).unwrap();
            assert_eq!(
                painter.changed().iter().map(|rows| (rows.start, rows.end)).collect::<Vec<_>>(),
                [(8, 24)]
            );
        }
    }

    /// In a release build, a sum that wraps would make 2^52 + 16 rows of 4096 bytes look like 16
    /// rows.
    #[test]
    fn an_area_beyond_all_numbers_is_refused() {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        let picture = frame(PixelFormat::Rgba, 16, 16, |_, _, _| 1);
        let mut screen = vec![0; 1024 * 4 * 16];
        for area in [
            PaintArea { x: 0, y: 0, width: 16, height: (1 << 52) + 16 },
            PaintArea { x: 0, y: (1 << 52), width: 16, height: 16 },
            PaintArea { x: (1 << 62) + 1, y: 0, width: 16, height: 16 },
        ] {
            let paint = || {
                let mut painter = Painter::new();
                painter.paint(&picture, &mut screen, 4096, area, PixelOrder::Bgrx).is_ok()
            };
            assert!(catch_unwind(AssertUnwindSafe(paint)).is_err(), "{area:?}");
        }
    }

    #[test]
    fn painted_rows_are_counted() {
        let picture = frame(PixelFormat::Nv12, 32, 16, |_, _, _| 128);
        meter::take();
        painted(&picture, PaintArea { x: 0, y: 0, width: 32, height: 16 }, (32, 16));
        assert_eq!(meter::take().copied_bytes as usize, 32 * 16 * 4 + 32 * 16 * 3 / 2);
    }
}
