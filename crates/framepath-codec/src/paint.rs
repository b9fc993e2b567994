// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames onto a screen's memory: RGB of 32 bits, scaled to where it goes.
//!
//! A [`Converter`](crate::Converter) is exact; this is fast, for eyes.
//! libswscale has vector code from planar YUV of 8 bits to RGB and none from
//! the other formats: they are made planar first ([`planar8`]). YUV is taken as
//! limited range, of BT.709 where a picture has more than 576 lines and of
//! BT.601 else, as players guess: frames do not carry their colour space.

use std::ffi::c_int;
use std::ops::Range;
use std::ptr;

use ff::AVPixelFormat;
use ffmpeg_sys_next as ff;
use framepath_model::format::{Layout, PixelFormat};
use framepath_os::meter;
use framepath_os::pool::Frame;

use crate::convert::{ConvertError, SLACK, Tail};

/// `SWS_BILINEAR`: a size that stays takes the vector code, others are smooth.
const FLAGS: c_int = 2;

/// Pixels that libswscale writes in one go, at most.
const BLOCK: usize = 16;

/// Lines from which on YUV is BT.709.
const HD_LINES: u32 = 577;

const ITU_709: c_int = 1;
const ITU_601: c_int = 5;

/// The order of bytes in a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelOrder {
    /// Blue, green, red, nothing: what X11 and KMS have mostly.
    Bgrx,
    /// Red, green, blue, nothing.
    Rgbx,
}

/// Where in a screen's memory a picture goes, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// From the left.
    pub x: usize,
    /// From the top.
    pub y: usize,
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// Paints frames, whatever their size and format.
#[derive(Debug)]
pub struct Painter {
    context: *mut ff::SwsContext,
    made_for: Option<Key>,
    /// The picture in planar YUV of 8 bits, or the last rows of one that is.
    planar: Vec<u8>,
    /// The painted picture, where libswscale must not write itself.
    painted: Vec<u8>,
}

/// What a context is made for: source, size to paint, order, colours.
type Key = (PixelFormat, (u32, u32), (usize, usize), PixelOrder);

// SAFETY: a context belongs to whoever has the pointer, on any thread.
unsafe impl Send for Painter {}

impl Default for Painter {
    fn default() -> Painter {
        Painter::new()
    }
}

impl Painter {
    /// One that has painted nothing yet.
    pub fn new() -> Painter {
        Painter { context: ptr::null_mut(), made_for: None, planar: Vec::new(), painted: Vec::new() }
    }

    /// Paints `frame` into `area` of `screen`, whose rows are `stride` bytes
    /// apart. Every byte that is written is counted as copied.
    ///
    /// # Errors
    /// The frame is no picture, or libswscale cannot scale it so.
    ///
    /// # Panics
    /// Where the area does not lie on the screen.
    pub fn paint(
        &mut self,
        frame: &Frame,
        screen: &mut [u8],
        stride: usize,
        area: Area,
        order: PixelOrder,
    ) -> Result<(), ConvertError> {
        let layout = *frame.layout();
        Layout::packed(layout.format, layout.width, layout.height)?;
        let (width, height) = (area.width, area.height);
        assert!((area.x + width) * 4 <= stride, "{area:?} is wider than {stride} bytes");
        assert!((area.y + height) * stride <= screen.len(), "{area:?} is higher than the screen");
        if width == 0 || height == 0 {
            return Ok(());
        }
        let source = match layout.format {
            PixelFormat::Yuv420p | PixelFormat::Rgba => layout,
            _ => planar_layout(layout.width, layout.height)?,
        };
        self.prepare(&source, (width, height), order)?;
        // libswscale writes whole blocks: only where they end with the row may
        // it write onto the screen itself.
        let direct = area.x == 0 && width % BLOCK == 0 && width * 4 == stride;
        let (start, into_stride) = match direct {
            true => (area.y * stride, stride),
            false => {
                let own = (width + BLOCK).next_multiple_of(BLOCK) * 4;
                self.painted.resize(own * height + SLACK, 0);
                (0, own)
            }
        };
        let into = if direct { screen[start..].as_mut_ptr() } else { self.painted.as_mut_ptr() };
        let rows = if layout.format == source.format {
            let tail = Tail::of(&source);
            meter::copy(width * height * 4 + tail.bytes, || self.scale(frame, &tail, into, into_stride))
        } else {
            self.planar.resize(source.size + SLACK, 0);
            planar8(frame, &mut self.planar, &source);
            meter::copy(width * height * 4, || self.scale_planar(&source, into, into_stride))
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

    /// Makes the context, where the last is for something else.
    fn prepare(
        &mut self,
        source: &Layout,
        size: (usize, usize),
        order: PixelOrder,
    ) -> Result<(), ConvertError> {
        let key = (source.format, (source.width, source.height), size, order);
        if self.made_for == Some(key) {
            return Ok(());
        }
        self.made_for = None;
        let from = match source.format {
            PixelFormat::Rgba => AVPixelFormat::AV_PIX_FMT_RGBA,
            _ => AVPixelFormat::AV_PIX_FMT_YUV420P,
        };
        let to = match order {
            PixelOrder::Bgrx => AVPixelFormat::AV_PIX_FMT_BGRA,
            PixelOrder::Rgbx => AVPixelFormat::AV_PIX_FMT_RGBA,
        };
        // SAFETY: the context is null or ours, and not used again.
        unsafe { ff::sws_freeContext(self.context) };
        // SAFETY: sizes are positive; null pointers stand for defaults.
        self.context = unsafe {
            ff::sws_getContext(
                source.width as c_int,
                source.height as c_int,
                from,
                size.0 as c_int,
                size.1 as c_int,
                to,
                FLAGS,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null(),
            )
        };
        if self.context.is_null() {
            return Err(no_way(source));
        }
        let matrix = if source.height >= HD_LINES { ITU_709 } else { ITU_601 };
        // SAFETY: the context is valid, the tables are libswscale's own and
        // constant. It says no where there are no colours to change.
        unsafe {
            let table = ff::sws_getCoefficients(matrix);
            ff::sws_setColorspaceDetails(self.context, table, 0, table, 1, 0, 1 << 16, 1 << 16);
        }
        self.made_for = Some(key);
        Ok(())
    }

    /// Paints all rows of `frame`; gives how many came out.
    fn scale(&mut self, frame: &Frame, tail: &Tail, into: *mut u8, stride: usize) -> usize {
        let layout = frame.layout();
        let (mut planes, mut strides) = ([ptr::null(); 4], [0; 4]);
        for (index, plane) in layout.planes().iter().enumerate() {
            planes[index] = frame.plane(index).as_ptr();
            strides[index] = plane.stride as c_int;
        }
        let before = self.slice((planes, strides), 0..tail.first, into, stride);
        let tail_planes = tail.copy(frame, &mut self.planar);
        before + self.slice(tail_planes, tail.first..layout.height as usize, into, stride)
    }

    /// Paints the picture that [`planar8`] has made.
    fn scale_planar(&self, source: &Layout, into: *mut u8, stride: usize) -> usize {
        let (mut planes, mut strides) = ([ptr::null(); 4], [0; 4]);
        for (index, plane) in source.planes().iter().enumerate() {
            planes[index] = self.planar[plane.offset..].as_ptr();
            strides[index] = plane.stride as c_int;
        }
        self.slice((planes, strides), 0..source.height as usize, into, stride)
    }

    /// Paints some rows, which are those of the planes.
    fn slice(
        &self,
        (planes, strides): ([*const u8; 4], [c_int; 4]),
        rows: Range<usize>,
        into: *mut u8,
        stride: usize,
    ) -> usize {
        if rows.is_empty() {
            return 0;
        }
        // SAFETY: the planes are those of so many rows of a picture of the
        // context's size and format, behind which as many bytes are readable
        // as libswscale reads too far; `into` has a row of `stride` bytes for
        // each it writes.
        let done = unsafe {
            ff::sws_scale(
                self.context,
                planes.as_ptr(),
                strides.as_ptr(),
                rows.start as c_int,
                rows.len() as c_int,
                [into, ptr::null_mut(), ptr::null_mut(), ptr::null_mut()].as_ptr(),
                [stride as c_int, 0, 0, 0].as_ptr(),
            )
        };
        usize::try_from(done).unwrap_or(0)
    }
}

impl Drop for Painter {
    fn drop(&mut self) {
        // SAFETY: null, or ours and not used again.
        unsafe { ff::sws_freeContext(self.context) }
    }
}

fn no_way(source: &Layout) -> ConvertError {
    let (width, height) = (source.width, source.height);
    ConvertError::NoWay { from: source.format, to: PixelFormat::Rgba, width, height }
}

/// How [`planar8`] lays a picture out by itself.
fn planar_layout(width: u32, height: u32) -> Result<Layout, ConvertError> {
    Ok(Layout::aligned(PixelFormat::Yuv420p, width, height, 64)?)
}

/// `frame` as planar YUV of 8 bits, laid out in `to` as `layout` says: samples
/// of ten bits lose the last two, chroma that is interleaved is taken apart,
/// GREY gets chroma without colour. Counted as copied.
///
/// # Panics
/// The frame is RGBA, `layout` is of another size or format, or `to` is too
/// short for it.
pub fn planar8(frame: &Frame, to: &mut [u8], layout: &Layout) {
    let from = *frame.layout();
    assert_eq!(layout.format, PixelFormat::Yuv420p, "the format made");
    assert_eq!((layout.width, layout.height), (from.width, from.height), "the size stays");
    assert!(from.format != PixelFormat::Rgba, "RGBA has no luma");
    let [luma, blue, red] = [0, 1, 2].map(|index| layout.planes()[index]);
    meter::copy(layout.pixel_bytes(), || {
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

/// One row of a plane with a sample each for `to`.
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

/// One row of interleaved chroma, `size` bytes a sample, into two rows that
/// start at `starts`.
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
    use framepath_model::stream::FrameMeta;
    use framepath_os::pool::Pool;

    use super::*;

    fn frame(
        format: PixelFormat,
        width: u32,
        height: u32,
        fill: impl Fn(usize, usize, usize) -> u8,
    ) -> Frame {
        let layout = Layout::aligned(format, width, height, 64).unwrap();
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

    /// Painted into the middle of a screen; gives its bytes.
    fn painted(frame: &Frame, area: Area, screen: (usize, usize)) -> Vec<u8> {
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
        let area = Area { x: 0, y: 0, width: 32, height: 16 };
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
                let near = |byte: u8, wanted: u8| byte.abs_diff(wanted) <= 4;
                assert!(near(pixel[0], 0) && near(pixel[1], 0) && near(pixel[2], 255), "{format} {pixel:?}");
            }
        }
        let grey = frame(PixelFormat::Grey, 32, 16, |_, _, _| 235);
        assert!(painted(&grey, area, (32, 16)).chunks_exact(4).all(|p| p[..3].iter().all(|b| *b >= 252)));
    }

    #[test]
    fn nothing_beside_the_area_is_touched() {
        let white = frame(PixelFormat::Yuv420p, 31, 17, |plane, _, _| [235, 128, 128][plane]);
        for (width, height) in [(31, 17), (45, 9), (32, 16)] {
            let area = Area { x: 3, y: 2, width, height };
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
    fn what_is_painted_is_counted() {
        let picture = frame(PixelFormat::Nv12, 32, 16, |_, _, _| 128);
        meter::take();
        painted(&picture, Area { x: 0, y: 0, width: 32, height: 16 }, (32, 16));
        assert_eq!(meter::take().copied_bytes as usize, 32 * 16 * 4 + 32 * 16 * 3 / 2);
    }
}
