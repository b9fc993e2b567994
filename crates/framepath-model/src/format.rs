// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pixel formats and the memory layout of their planes.

mod pixel_format;

use crate::colors::Colors;

pub use pixel_format::{ColorFamily, PixelFormat};

/// Reason why a pixel format or layout is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No format has this name, in upper or lower case or in FFmpeg's spelling.
    #[error("unknown pixel format `{0}`; known: {known}", known = known_formats())]
    UnknownFormat(String),
    /// A side is zero or larger than [`Layout::MAX_SIDE`].
    #[error("picture size {width}x{height} is outside 1x1 to {max}x{max}", max = Layout::MAX_SIDE)]
    Size {
        /// Requested width in pixels.
        width: u32,
        /// Requested height in pixels.
        height: u32,
    },
    /// A part of a picture is empty or not inside it.
    #[error(
        "part {width}x{height} at {left},{top} is not inside the picture of {}x{} pixels; choose a part of at least \
         1x1 pixels inside the picture",
        of.0,
        of.1
    )]
    Part {
        /// First column of the part, from 0, rounded down to a whole [block](PixelFormat::block).
        left: u32,
        /// First row of the part, from 0, rounded down to a whole [block](PixelFormat::block).
        top: u32,
        /// Width of the part in pixels.
        width: u32,
        /// Height of the part in pixels.
        height: u32,
        /// Width and height of the picture in pixels.
        of: (u32, u32),
    },
    /// The planes do not hold a picture of this format and size.
    #[error("planes do not fit a {width}x{height} {format} picture: {detail}")]
    Planes {
        /// Format of the picture.
        format: PixelFormat,
        /// Width of the picture in pixels.
        width: u32,
        /// Height of the picture in pixels.
        height: u32,
        /// Reason why the planes do not fit, such as `a stride is shorter than its row`.
        detail: &'static str,
    },
}

fn known_formats() -> String {
    PixelFormat::ALL.map(PixelFormat::name).join(", ")
}

/// Position and size of one plane in a frame's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneLayout {
    /// Bytes from the start of the frame's slot to the first pixel.
    pub offset: usize,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Bytes of pixels in a row, without padding.
    pub width: usize,
    /// Number of rows of the plane.
    pub rows: usize,
}

impl PlaneLayout {
    /// Returns the offset of the first byte after the plane's last pixel, from the start of the
    /// slot; the plane's own offset if the plane has no rows.
    pub fn end(&self) -> usize {
        if self.rows == 0 { self.offset } else { self.offset + (self.rows - 1) * self.stride + self.width }
    }
}

/// Format, size and planes of a picture in a slot.
///
/// ```
/// use framepath_model::format::{Layout, PixelFormat};
///
/// let layout = Layout::aligned(PixelFormat::Nv12, 100, 50, 64)?;
/// let [luma, chroma] = layout.planes() else { panic!("NV12 has two planes") };
/// assert_eq!((luma.width, luma.stride, luma.rows), (100, 128, 50));
/// assert_eq!((chroma.width, chroma.stride, chroma.rows), (100, 128, 25));
/// # Ok::<(), framepath_model::format::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Pixel format of the picture.
    pub format: PixelFormat,
    /// Width of the picture in pixels; for opaque bytes their number.
    pub width: u32,
    /// Height of the picture in pixels; 1 for opaque bytes.
    pub height: u32,
    /// Bytes from the start of the slot to the end of the plane that ends last, the padding of its
    /// rows included. After [`Layout::cropped`], the padding of the plane's last row is not
    /// included.
    pub size: usize,
    /// Colour description of the samples.
    pub colors: Colors,
    planes: [PlaneLayout; 4],
    count: usize,
}

impl Layout {
    /// Largest width or height of a picture in pixels.
    pub const MAX_SIDE: u32 = 16384;
    /// Largest number of bytes of a plane, padding included: libswscale calculates
    /// strides and offsets in `int`.
    pub const MAX_PLANE_BYTES: usize = i32::MAX as usize;

    /// Creates a layout with the planes one after the other without padding, as in raw files. Fails
    /// if a side is 0 or above [`Layout::MAX_SIDE`].
    pub fn packed(format: PixelFormat, width: u32, height: u32) -> Result<Layout, LayoutError> {
        Layout::aligned(format, width, height, 1)
    }

    /// Creates a layout with the planes one after the other. Each stride is rounded up to a
    /// multiple of `stride_align` bytes; 0 counts as 1. Fails if a side is 0 or above
    /// [`Layout::MAX_SIDE`], or if [`Layout::from_planes`] refuses planes with these strides.
    pub fn aligned(
        format: PixelFormat,
        width: u32,
        height: u32,
        stride_align: usize,
    ) -> Result<Layout, LayoutError> {
        check_side(width, height)?;
        let mut planes = Vec::with_capacity(4);
        let mut offset = 0;
        for (row, rows) in format.plane_sizes(width, height) {
            let stride = row.next_multiple_of(stride_align.max(1));
            planes.push(PlaneLayout { offset, stride, width: row, rows });
            offset += stride * rows;
        }
        Layout::from_planes(format, width, height, &planes)
    }

    /// Describes a picture whose planes were placed by a decoder, possibly in another process. Its
    /// colours are [`Colors::UNKNOWN`].
    ///
    /// # Errors
    /// A side is out of range, the planes are not those of the format and size, a stride is shorter
    /// than its row, an offset or stride is not a multiple of [`PixelFormat::luma_bytes`], a plane
    /// has more than [`Layout::MAX_PLANE_BYTES`], or a plane ends beyond the address space.
    /// Libraries abort on such a picture or read out of bounds.
    pub fn from_planes(
        format: PixelFormat,
        width: u32,
        height: u32,
        planes: &[PlaneLayout],
    ) -> Result<Layout, LayoutError> {
        check_side(width, height)?;
        let wrong = |detail| LayoutError::Planes { format, width, height, detail };
        let expected = format.plane_sizes(width, height);
        if planes.len() != expected.len() {
            return Err(wrong("wrong number of planes"));
        }
        let mut held = [PlaneLayout::default(); 4];
        for ((slot, plane), (row, rows)) in held.iter_mut().zip(planes).zip(expected) {
            if plane.width != row || plane.rows != rows {
                return Err(wrong("a plane has another width or height"));
            }
            if plane.stride < plane.width {
                return Err(wrong("a stride is shorter than its row"));
            }
            let sample = format.luma_bytes();
            if plane.offset % sample != 0 || plane.stride % sample != 0 {
                return Err(wrong("an offset or a stride is not a multiple of the sample size"));
            }
            let bytes = plane.stride.checked_mul(plane.rows).filter(|n| *n <= Layout::MAX_PLANE_BYTES);
            let bytes = bytes.ok_or_else(|| wrong("a plane has 2 GiB or more"))?;
            let end = plane.offset.checked_add(bytes);
            if end.is_none_or(|end| end > isize::MAX as usize) {
                return Err(wrong("a plane ends beyond the address space"));
            }
            *slot = *plane;
        }
        let size = planes.iter().map(|p| p.offset + p.stride * p.rows).max().unwrap_or(0);
        Ok(Layout { format, width, height, size, colors: Colors::UNKNOWN, planes: held, count: planes.len() })
    }

    /// Describes `bytes` bytes that are no picture, at most `u32::MAX`, as one row of GREY.
    /// [`Layout::MAX_SIDE`] does not apply. The source `test bytes=N`, for example, emits such
    /// frames.
    pub fn opaque(bytes: usize) -> Layout {
        let plane = PlaneLayout { offset: 0, stride: bytes, width: bytes, rows: 1 };
        Layout {
            format: PixelFormat::Grey,
            width: bytes as u32,
            height: 1,
            size: bytes,
            colors: Colors::UNKNOWN,
            planes: [plane, PlaneLayout::default(), PlaneLayout::default(), PlaneLayout::default()],
            count: 1,
        }
    }

    /// Returns the layout with `colors` as its colour description.
    pub fn with_colors(self, colors: Colors) -> Layout {
        Layout { colors, ..self }
    }

    /// Returns the layout of the part of the picture that begins at column `left` and row `top`, without moving a
    /// byte. Both are rounded down to whole [blocks](PixelFormat::block), so that each pixel keeps its chroma.
    ///
    /// # Errors
    /// The part is empty or not inside the picture.
    pub fn cropped(&self, left: u32, top: u32, width: u32, height: u32) -> Result<Layout, LayoutError> {
        let (across, down) = self.format.block();
        let (left, top) = (left - left % across, top - top % down);
        let is_inside = |start: u32, length: u32, all: u32| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= all)
        };
        if !is_inside(left, width, self.width) || !is_inside(top, height, self.height) {
            return Err(LayoutError::Part { left, top, width, height, of: (self.width, self.height) });
        }
        let sizes = self.format.plane_sizes(width, height);
        let mut planes = self.planes;
        for (index, (plane, (bytes, rows))) in planes.iter_mut().zip(sizes).enumerate() {
            if self.format == PixelFormat::Pal8 && index == 1 {
                continue;
            }
            let (before, above) = self.format.plane_size(index, left as usize, top as usize);
            let offset = plane.offset + above * plane.stride + before;
            *plane = PlaneLayout { offset, stride: plane.stride, width: bytes, rows };
        }
        // Only the end of the last row is inside the slot for sure, not its padding.
        let size = planes[..self.count].iter().map(PlaneLayout::end).max().unwrap_or(0);
        Ok(Layout { width, height, size, planes, ..*self })
    }

    /// Returns the planes in the order in which [`PixelFormat`] describes those of the format, such
    /// as luma, then chroma, then alpha.
    pub fn planes(&self) -> &[PlaneLayout] {
        &self.planes[..self.count]
    }

    /// Returns the number of bytes of all planes without padding, a palette included.
    pub fn pixel_bytes(&self) -> usize {
        self.planes().iter().map(|p| p.width * p.rows).sum()
    }
}

fn check_side(width: u32, height: u32) -> Result<(), LayoutError> {
    let fits = |side| (1..=Layout::MAX_SIDE).contains(&side);
    if fits(width) && fits(height) { Ok(()) } else { Err(LayoutError::Size { width, height }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_sizes_are_those_of_raw_video() {
        let size = |f, w, h| Layout::packed(f, w, h).unwrap().pixel_bytes();
        assert_eq!(size(PixelFormat::Grey, 640, 480), 307_200);
        assert_eq!(size(PixelFormat::Yuv420p, 1920, 1080), 3_110_400);
        assert_eq!(size(PixelFormat::Nv12, 1920, 1080), 3_110_400);
        assert_eq!(size(PixelFormat::P010, 1920, 1080), 6_220_800);
        assert_eq!(size(PixelFormat::Rgba, 3, 3), 36);
        // Odd sizes round chroma up: 99x57 has 50x29 chroma.
        assert_eq!(size(PixelFormat::Yuv420p, 99, 57), 99 * 57 + 2 * 50 * 29);
        assert_eq!(size(PixelFormat::Nv12, 99, 57), 99 * 57 + 100 * 29);
    }

    #[test]
    fn strides_are_aligned_and_explicit() {
        let layout = Layout::aligned(PixelFormat::Yuv420p, 99, 57, 64).unwrap();
        let strides: Vec<_> = layout.planes().iter().map(|p| p.stride).collect();
        assert_eq!(strides, [128, 64, 64]);
        assert_eq!(layout.size, 128 * 57 + 2 * 64 * 29);
    }

    #[test]
    fn a_part_lies_in_the_same_bytes() {
        let whole = Layout::aligned(PixelFormat::Yuv420p, 64, 48, 64).unwrap();
        let part = whole.cropped(11, 5, 20, 10).unwrap();
        let starts: Vec<_> = part.planes().iter().map(|p| (p.offset, p.stride, p.width, p.rows)).collect();
        // Column 11 and row 5 become 10 and 4.
        let (u, v) = (64 * 48, 64 * 48 + 64 * 24);
        assert_eq!(
            starts,
            [(4 * 64 + 10, 64, 20, 10), (u + 2 * 64 + 5, 64, 10, 5), (v + 2 * 64 + 5, 64, 10, 5)]
        );
        assert!(part.size <= whole.size);
        assert!(whole.cropped(0, 0, 64, 48).unwrap().planes() == whole.planes());
        for (left, top, width, height) in [(60, 0, 6, 1), (0, 40, 1, 9), (0, 0, 0, 1), (u32::MAX, 0, 2, 1)] {
            assert!(whole.cropped(left, top, width, height).is_err());
        }
        let palette = Layout::packed(PixelFormat::Pal8, 8, 8).unwrap().cropped(3, 3, 2, 2).unwrap();
        assert_eq!(palette.planes()[1], PlaneLayout { offset: 64, stride: 1024, width: 1024, rows: 1 });
    }

    #[test]
    fn planes_that_do_not_fit_are_refused() {
        let mut planes = Layout::packed(PixelFormat::Nv12, 16, 16).unwrap().planes().to_vec();
        planes[1].stride = 8;
        assert!(Layout::from_planes(PixelFormat::Nv12, 16, 16, &planes).is_err());
        assert!(Layout::packed(PixelFormat::Grey, 0, 5).is_err());
        planes[1].stride = usize::MAX / 2;
        assert!(Layout::from_planes(PixelFormat::Nv12, 16, 16, &planes).is_err());
    }

    /// Checks layouts on which libswscale aborts: odd strides of 16-bit samples, and strides beyond
    /// `int`.
    #[test]
    fn planes_that_would_abort_a_converter_are_refused() {
        for format in PixelFormat::ALL {
            let sample = format.luma_bytes();
            let packed = Layout::packed(format, 30, 20).unwrap();
            let with = |index: usize, change: fn(&mut PlaneLayout, usize), by: usize| {
                let mut planes = packed.planes().to_vec();
                change(&mut planes[index], by);
                Layout::from_planes(format, 30, 20, &planes)
            };
            let change: [fn(&mut PlaneLayout, usize); 2] = [|p, by| p.stride += by, |p, by| p.offset += by];
            for index in 0..packed.planes().len() {
                for change in change {
                    for by in 1..=8 {
                        let laid_out = with(index, change, by);
                        assert_eq!(laid_out.is_ok(), by % sample == 0, "{format} {index} {by}");
                    }
                }
                assert!(with(index, |p, by| p.stride -= by, sample).is_err(), "{format} {index}");
                for stride in [i32::MAX as usize + 1, u32::MAX as usize + 1, usize::MAX - 3] {
                    let laid_out = with(index, |p, stride| p.stride = stride, stride);
                    assert!(laid_out.is_err(), "{format} {index} {stride}");
                }
            }
        }
        // The stride of a single row is unused, but libraries receive it too.
        let row = |stride| PlaneLayout { offset: 0, stride, width: 16, rows: 1 };
        let of = |stride| Layout::from_planes(PixelFormat::Grey, 16, 1, &[row(stride)]);
        assert!(of(Layout::MAX_PLANE_BYTES).is_ok());
        assert!(of(Layout::MAX_PLANE_BYTES + 1).is_err());
        // The largest allowed picture fits.
        for format in PixelFormat::ALL {
            assert!(Layout::aligned(format, Layout::MAX_SIDE, Layout::MAX_SIDE, 64).is_ok(), "{format}");
        }
    }
}
