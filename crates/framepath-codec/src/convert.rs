// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of frames into another pixel format or size, by libswscale; from BGR0 and BGRA to
//! NV12 and YUV420P of the same size by [`rgb_to_yuv`](crate::rgb_to_yuv).
//!
//! The pixels are the same on every machine, because libswscale is set to exact conversion without
//! its faster approximations. (One exception: from planar RGB of an odd width, libswscale
//! calculates the last column of chroma with bytes beyond the row.) If a stream does not declare
//! its colours, YUV is interpreted as `play` does: limited range, BT.709 from 1025 columns on,
//! otherwise BT.601. GREY is interpreted as full range unless it is declared as limited range. A
//! conversion from YUV to YUV keeps the meaning of the values.

use std::ffi::c_int;
use std::ptr;

use ffmpeg_sys_next as ff;
use framepath_model::changed_rows::ChangedRows;
use framepath_model::colors::{ColorRange, Colors, MATRIX_RGB, SMPTE170M};
use framepath_model::format::{ColorFamily, Layout, LayoutError, PixelFormat};
use framepath_os::measure::meter;
use framepath_os::memory::pool::{Frame, FrameMut};

use crate::libav_format::libav_format;
use crate::rgb_to_yuv::{self, RgbToYuv};

/// Flags of libswscale for exact results: `SWS_FULL_CHR_H_INT`, `SWS_ACCURATE_RND`, `SWS_BITEXACT`. Their names
/// are macros in some versions and an enum in others; their values are the same in all.
const EXACT: c_int = 0x2000 | 0x4_0000 | 0x8_0000;

/// Flags of libswscale at an unchanged size: `EXACT`, and `SWS_BICUBIC` for chroma.
pub(crate) const FLAGS: c_int = EXACT | 0x4;

/// Number of spare bytes after a plane or a copied row, for libswscale's vector code: it reads up
/// to 31 bytes beyond the end, even if they do not exist, and writes whole vectors.
pub(crate) const SLACK: usize = 256;

/// Number of bytes that must be readable after a row that is not copied: libswscale reads at most 31
/// bytes beyond a row.
const TOO_FAR: usize = 32;

/// Maximum number of luma rows of a [`TailRows`], except for narrow pictures. Dither patterns restart
/// with every slice and have 8 rows, also in chroma planes, so a cut at another row would change
/// the picture.
const TAIL: usize = 16;

/// Error of a conversion.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// libswscale has no conversion between the two formats for pictures of this size, had not
    /// enough memory, or failed to convert all rows. From a [`Painter`](crate::Painter), also: it
    /// cannot scale to the area.
    #[error("libswscale: cannot convert {width}x{height} {from} to {to}; use another format")]
    NoWay {
        /// Format of the source, or of its planar 8-bit copy in a [`Painter`](crate::Painter).
        from: PixelFormat,
        /// Requested format; RGBA for a [`Painter`](crate::Painter).
        to: PixelFormat,
        /// Width of the source, pixels.
        width: u32,
        /// Height of the source, pixels.
        height: u32,
    },
    /// The frame is not a picture, or the slot cannot hold the requested picture.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// Properties of the source for which a context was made: format, size and colours.
type Key = (PixelFormat, (u32, u32), Colors);

/// Filter by which libswscale calculates the pixels of another size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScaleFilter {
    /// The nearest pixel: fastest, with hard edges.
    Nearest,
    /// Linear interpolation.
    Bilinear,
    /// Cubic interpolation; FFmpeg's default.
    #[default]
    Bicubic,
    /// The mean of the covered pixels; for much smaller pictures.
    Area,
    /// A windowed sinc: sharpest, and slowest.
    Lanczos,
}

impl ScaleFilter {
    /// Returns libswscale's flag for the filter. Its value is the same in all versions of
    /// libswscale/swscale.h.
    fn flag(self) -> c_int {
        match self {
            ScaleFilter::Nearest => 0x10,
            ScaleFilter::Bilinear => 0x2,
            ScaleFilter::Bicubic => 0x4,
            ScaleFilter::Area => 0x20,
            ScaleFilter::Lanczos => 0x200,
        }
    }
}

/// Converter of frames of any format to one format, at the same size or another.
#[derive(Debug)]
pub struct Converter {
    to: PixelFormat,
    /// Size of the converted pictures, and the filter; `None` for the size of the source.
    scale: Option<((u32, u32), ScaleFilter)>,
    /// libswscale's context; null before the first conversion by libswscale, and if libswscale
    /// cannot convert pictures like `made_for`.
    context: *mut ff::SwsContext,
    /// Properties of the source for which `context` was made; `None` before the first.
    made_for: Option<Key>,
    /// Copy of the last rows of a picture, with [`SLACK`] bytes after each row.
    tail: Vec<u8>,
    /// Converter from BGR0 and BGRA to NV12 and YUV420P of the same size, without libswscale.
    rgb_to_yuv: RgbToYuv,
}

// SAFETY: a context belongs to the owner of the pointer, and may be used on any thread.
unsafe impl Send for Converter {}

impl Converter {
    /// Makes a converter to `to` that keeps the size of the pictures.
    pub fn new(to: PixelFormat) -> Converter {
        Converter {
            to,
            scale: None,
            context: ptr::null_mut(),
            made_for: None,
            tail: Vec::new(),
            rgb_to_yuv: RgbToYuv::default(),
        }
    }

    /// Makes a converter to `to` that scales pictures to `size`, width and height in pixels.
    pub fn scaling(to: PixelFormat, size: (u32, u32), filter: ScaleFilter) -> Converter {
        let mut converter = Converter::new(to);
        converter.scale = Some((size, filter));
        converter
    }

    /// Returns the size of the converted picture, for a source of the layout `from`.
    fn size_for(&self, from: &Layout) -> (u32, u32) {
        self.scale.map_or((from.width, from.height), |(size, _)| size)
    }

    /// Returns the colours of the converted picture, for a source with the layout `from`.
    pub fn colors(&self, from: &Layout) -> Colors {
        match (from.format, self.to) {
            (from_format, to) if from_format == to => from.colors,
            (from_format, to) => match (from_format.family(), to.family()) {
                (_, ColorFamily::Rgb | ColorFamily::Palette) => {
                    Colors { matrix: MATRIX_RGB, range: ColorRange::Full, ..from.colors }
                }
                (_, ColorFamily::Grey) => Colors { range: ColorRange::Full, ..from.colors },
                (ColorFamily::Yuv, ColorFamily::Yuv) => from.colors,
                (ColorFamily::Grey, ColorFamily::Yuv) => Colors { range: ColorRange::Limited, ..from.colors },
                (ColorFamily::Rgb | ColorFamily::Palette, ColorFamily::Yuv) => {
                    Colors { matrix: SMPTE170M, range: ColorRange::Limited, ..from.colors }
                }
            },
        }
    }

    /// True if [`Converter::convert_rows`] converts only the changed rows of pictures in `from`.
    pub fn takes_rows(&self, from: PixelFormat) -> bool {
        self.scale.is_none() && rgb_to_yuv::converts(from, self.to)
    }

    /// Returns the number of bytes that a slot needs for a converted picture with this layout.
    pub fn slot_bytes(layout: &Layout) -> usize {
        layout.size + SLACK
    }

    /// Converts `from` into `into`, according to the layout of `into`. The meter counts every byte
    /// of the converted picture. If libswscale converts, the meter also counts the last rows of
    /// `from`, which are first copied to memory where reading beyond the end is harmless.
    ///
    /// # Errors
    /// libswscale cannot convert, `from` is not a picture (see [`Layout::opaque`]), or the slot
    /// of `into` is smaller than [`Converter::slot_bytes`].
    ///
    /// # Panics
    /// `into` does not have the format of the converter, or its size: that of [`Converter::scaling`], else that of
    /// `from`.
    pub fn convert(&mut self, from: &Frame, into: &mut FrameMut) -> Result<(), ConvertError> {
        self.convert_rows(from, into, None)
    }

    /// Converts as [`convert`](Converter::convert), but only the rows `changed`, if [`Converter::takes_rows`] is true
    /// for the format of `from`: the slot of `into` then has the other rows from an earlier picture.
    ///
    /// # Errors
    /// As for [`convert`](Converter::convert).
    ///
    /// # Panics
    /// As for [`convert`](Converter::convert), or a changed row is below the picture.
    pub fn convert_rows(
        &mut self,
        from: &Frame,
        into: &mut FrameMut,
        changed: Option<&ChangedRows>,
    ) -> Result<(), ConvertError> {
        let (source, target) = (*from.layout(), *into.layout());
        assert_eq!(target.format, self.to, "the format of the converter");
        assert_eq!((target.width, target.height), self.size_for(&source), "the size of the converter");
        // Opaque buffers may be wider than any picture, and the fields of a layout can be changed
        // without its planes.
        for layout in [&source, &target] {
            Layout::from_planes(layout.format, layout.width, layout.height, layout.planes())?;
        }
        // libswscale writes whole vectors, possibly beyond the last row.
        let end = target.planes().iter().map(|plane| plane.offset + plane.stride * plane.rows).max();
        if end.is_none_or(|end| into.slot_bytes() - end.min(into.slot_bytes()) < SLACK) {
            let (format, width, height) = (target.format, target.width, target.height);
            let detail = "no room after the last plane; see Converter::slot_bytes";
            return Err(LayoutError::Planes { format, width, height, detail }.into());
        }
        if self.takes_rows(source.format) {
            let whole = ChangedRows::all(source.height);
            let changed = changed.unwrap_or(&whole);
            let bytes = target.pixel_bytes() * changed.count() as usize / source.height as usize;
            meter::convert(bytes, || self.rgb_to_yuv.convert(from, into, changed.bands()));
            return Ok(());
        }
        self.prepare(&source);
        let (from_format, to) = (source.format, self.to);
        let no_way =
            || ConvertError::NoWay { from: from_format, to, width: source.width, height: source.height };
        if self.context.is_null() {
            return Err(no_way());
        }
        let (mut planes, mut strides) = ([ptr::null(); 4], [0; 4]);
        for (index, plane) in source.planes().iter().enumerate() {
            planes[index] = from.plane(index).as_ptr();
            strides[index] = plane.stride as c_int;
        }
        let (mut into_planes, mut into_strides) = ([ptr::null_mut(); 4], [0; 4]);
        for (index, plane) in target.planes().iter().enumerate() {
            into_planes[index] = into.plane_mut(index).as_mut_ptr();
            into_strides[index] = plane.stride as c_int;
        }
        let tail = TailRows::of(&source);
        let context = self.context;
        let scale = |planes: [*const u8; 4], strides: [c_int; 4], first: usize, rows: usize| {
            if rows == 0 {
                return 0;
            }
            // SAFETY: the source planes are those of `rows` rows of a picture of this size and
            // format, followed by as many readable bytes as libswscale reads beyond a row. The
            // target planes are those of a whole picture, in a slot to which this is the only
            // handle.
            unsafe {
                ff::sws_scale(
                    context,
                    planes.as_ptr(),
                    strides.as_ptr(),
                    first as c_int,
                    rows as c_int,
                    into_planes.as_ptr(),
                    into_strides.as_ptr(),
                )
            }
        };
        let rows = meter::convert(target.pixel_bytes() + tail.bytes, || {
            let before = scale(planes, strides, 0, tail.first);
            let (planes, strides) = tail.copy(from, &mut self.tail);
            before + scale(planes, strides, tail.first, source.height as usize - tail.first)
        });
        if rows == target.height as c_int { Ok(()) } else { Err(no_way()) }
    }

    /// Makes the context for pictures like `source`, unless the present context matches. The
    /// context is null afterwards if libswscale has no such conversion, or without memory.
    fn prepare(&mut self, source: &Layout) {
        let key = (source.format, (source.width, source.height), source.colors);
        if self.made_for == Some(key) {
            return;
        }
        self.made_for = Some(key);
        let made = self.colors(source);
        let from_full = match source.format.family() {
            ColorFamily::Grey => source.colors.range != ColorRange::Limited,
            _ => source.colors.range == ColorRange::Full,
        };
        // Scaling alone does not change the range, even if it is unknown.
        let to_full = if source.format == self.to { from_full } else { made.range == ColorRange::Full };
        // Matrix of the YUV side. Between two RGB formats, libswscale scales in YUV of BT.601.
        let matrix = match (is_yuv(source.format), is_yuv(self.to)) {
            (_, true) => made.shown_by(source.width),
            (true, false) => source.colors.shown_by(source.width),
            (false, false) => SMPTE170M,
        };
        let (width, height) = (source.width as c_int, source.height as c_int);
        let (to_width, to_height) = self.size_for(source);
        let filter = self.scale.map_or(ScaleFilter::Bicubic, |(_, filter)| filter);
        let options = [
            (c"srcw", width),
            (c"srch", height),
            (c"src_format", libav_format(source.format) as c_int),
            (c"dstw", to_width as c_int),
            (c"dsth", to_height as c_int),
            (c"dst_format", libav_format(self.to) as c_int),
            (c"sws_flags", EXACT | filter.flag()),
            // For 10 bits, libswscale needs the ranges at initialisation.
            (c"src_range", from_full.into()),
            (c"dst_range", to_full.into()),
        ];
        // SAFETY: the old context is null or ours, and not used again. The new context is null,
        // or valid and set up in the order that libswscale requires. The tables are libswscale's
        // constants. It returns an error if there are no colours to change, which is ignored.
        unsafe {
            ff::sws_freeContext(self.context);
            self.context = ff::sws_alloc_context();
            if self.context.is_null() {
                return;
            }
            for (name, value) in options {
                ff::av_opt_set_int(self.context.cast(), name.as_ptr(), value.into(), 0);
            }
            if ff::sws_init_context(self.context, ptr::null_mut(), ptr::null_mut()) < 0 {
                ff::sws_freeContext(self.context);
                self.context = ptr::null_mut();
                return;
            }
            let table = ff::sws_getCoefficients(matrix.into());
            let (from_full, to_full) = (from_full.into(), to_full.into());
            ff::sws_setColorspaceDetails(self.context, table, from_full, table, to_full, 0, 1 << 16, 1 << 16);
        }
    }
}

/// Last rows of a picture, after which its memory may end: they are copied before libswscale reads
/// them.
pub(crate) struct TailRows {
    layout: Layout,
    /// First luma row of the tail, a multiple of [`TAIL`].
    pub(crate) first: usize,
    /// Number of bytes of the tail's pixels.
    pub(crate) bytes: usize,
}

impl TailRows {
    pub(crate) fn of(layout: &Layout) -> TailRows {
        let mut tail =
            TailRows { layout: *layout, first: (layout.height as usize - 1) / TAIL * TAIL, bytes: 0 };
        // The tail of a narrow picture grows, because enough bytes have to follow the rows before
        // the tail.
        while tail.first > 0 && tail.shortest() < TOO_FAR {
            tail.first -= TAIL;
        }
        let planes = layout.planes().iter().enumerate();
        tail.bytes = planes.map(|(index, plane)| plane.width * (plane.rows - tail.first_in(index))).sum();
        tail
    }

    /// Returns the number of bytes from the tail's first row to the end of the last row, in the
    /// plane in which this number is smallest.
    fn shortest(&self) -> usize {
        let planes = self.layout.planes().iter().enumerate();
        let bytes = planes.map(|(index, plane)| {
            let rows = plane.rows - self.first_in(index).min(plane.rows);
            rows.checked_sub(1).map_or(0, |rows| rows * plane.stride + plane.width)
        });
        bytes.min().unwrap_or(0)
    }

    /// Returns the tail's first row in plane number `plane`.
    fn first_in(&self, plane: usize) -> usize {
        match self.layout.format {
            // The palette belongs to every row, and is read as a whole.
            PixelFormat::Pal8 if plane == 1 => 0,
            format => format.plane_size(plane, 0, self.first).1,
        }
    }

    /// Replaces the contents of `into` by a copy of the tail's rows of `from`. Returns the
    /// addresses and strides of the copied planes.
    pub(crate) fn copy(&self, from: &Frame, into: &mut Vec<u8>) -> ([*const u8; 4], [c_int; 4]) {
        let (mut starts, mut strides) = ([0; 4], [0; 4]);
        into.clear();
        for (index, plane) in self.layout.planes().iter().enumerate() {
            starts[index] = into.len();
            strides[index] = (plane.width + SLACK) as c_int;
            for row in self.first_in(index)..plane.rows {
                let start = into.len();
                into.resize(start + plane.width + SLACK, 0);
                from.row(index, row).copy_to(&mut into[start..start + plane.width]);
            }
        }
        let mut planes = [ptr::null(); 4];
        for (plane, start) in planes.iter_mut().zip(starts).take(self.layout.planes().len()) {
            *plane = into[start..].as_ptr();
        }
        (planes, strides)
    }
}

impl Drop for Converter {
    fn drop(&mut self) {
        // SAFETY: null, or ours and not used again.
        unsafe { ff::sws_freeContext(self.context) }
    }
}

/// Returns true if the format has luma and chroma.
fn is_yuv(format: PixelFormat) -> bool {
    format.family() == ColorFamily::Yuv
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks for pictures of many sizes that the bytes which libswscale reads after the uncopied
    /// rows are in the picture's own memory. GREY of one column is the narrowest picture.
    #[test]
    fn no_byte_behind_a_picture_is_read() {
        for format in PixelFormat::ALL {
            for width in (1..70).chain([99, 1920]) {
                for height in (1..90).chain([1361, 4081]) {
                    let layout = Layout::packed(format, width, height).unwrap();
                    let tail = TailRows::of(&layout);
                    assert_eq!(tail.first % TAIL, 0);
                    for (index, plane) in layout.planes().iter().enumerate() {
                        let behind = plane.end() - plane.stride * tail.first_in(index) - plane.offset;
                        assert!(tail.first == 0 || behind >= TOO_FAR, "{format} {width}x{height}: {behind}");
                    }
                }
            }
        }
    }
}
