// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layout of a decoder's picture in a slot of the pool.
//!
//! A slot has the planes as the decoder requires them (padded, aligned). If the output needs other
//! planes, the slot has room for these planes, too. The decoder's planes stay unchanged, because
//! the decoder still reads them as a reference.

use std::cell::Cell;

use framepath_model::format::{Layout, LayoutError, PixelFormat, PlaneLayout};

use crate::chroma::Rows;
use crate::{CodecError, OutputFormat};

/// Alignment of each plane's first byte in [`Surface::new`], in bytes: the widest vector load of
/// current decoders, and a cache line.
const PLANE_ALIGN: usize = 64;

/// Number of bytes that decoders may read (and dav1d write) beyond the last pixel of a plane.
const PLANE_SLACK: usize = 128;

/// Returns the format of frames made from pictures in `decoded` for the requested `output`, or
/// [`CodecError::WrongOutput`] if there is no such conversion.
pub(crate) fn output_format(
    codec: &'static str,
    decoded: PixelFormat,
    output: OutputFormat,
) -> Result<PixelFormat, CodecError> {
    match (output, decoded) {
        (OutputFormat::Native, _) => Ok(decoded),
        (OutputFormat::Nv12, PixelFormat::Yuv420p) => Ok(PixelFormat::Nv12),
        (OutputFormat::P010, PixelFormat::Yuv420p10) => Ok(PixelFormat::P010),
        (asked, stream) => {
            let instead = match stream {
                PixelFormat::Yuv420p => OutputFormat::Nv12,
                PixelFormat::Yuv420p10 => OutputFormat::P010,
                _ => OutputFormat::Native,
            };
            Err(CodecError::WrongOutput { codec, asked, stream, instead })
        }
    }
}

/// Position of one plane in a slot; a plane without rows does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlaneArea {
    /// Bytes from the start of the slot.
    pub(crate) offset: usize,
    /// Bytes from one row to the next.
    pub(crate) stride: usize,
    /// Number of rows, padding included.
    pub(crate) rows: usize,
}

/// Division of a slot into planes, for one padded size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Surface {
    /// Format of the decoder's pictures.
    pub(crate) decoded: PixelFormat,
    /// Format of the output frames.
    pub(crate) output: PixelFormat,
    /// The decoder's planes, in the order of the format.
    pub(crate) areas: [PlaneArea; 4],
    /// Plane of the converted luma; exists only if the output is P010.
    luma: PlaneArea,
    /// Plane of the interleaved chroma; exists only for pictures that are converted to NV12 or
    /// P010.
    chroma: PlaneArea,
    /// Number of bytes that a slot needs.
    pub(crate) bytes: usize,
}

impl Surface {
    /// Divides a slot for pictures with `rows` luma rows. `strides` has the bytes from one row to the next
    /// of each plane; the rows of the other planes follow from the format. Returns `None` if that exceeds
    /// the address space.
    pub(crate) fn new(
        decoded: PixelFormat,
        output: PixelFormat,
        strides: [usize; 4],
        rows: usize,
    ) -> Option<Surface> {
        let mut end = 0usize;
        let mut place = |stride: usize, rows: usize| {
            let offset = end.checked_next_multiple_of(PLANE_ALIGN)?;
            // One additional row: with a crop that starts inside a row, the last row ends inside
            // the next one.
            let bytes = stride.checked_mul(rows.checked_add(1)?)?;
            end = offset.checked_add(bytes)?.checked_add(PLANE_SLACK)?;
            Some(PlaneArea { offset, stride, rows })
        };
        let mut surface = Surface {
            decoded,
            output,
            areas: [PlaneArea::default(); 4],
            luma: PlaneArea::default(),
            chroma: PlaneArea::default(),
            bytes: 0,
        };
        let areas = surface.areas.iter_mut().zip(strides).enumerate();
        for (plane, (area, stride)) in areas.take(decoded.plane_count()) {
            *area = place(stride, decoded.plane_size(plane, 0, rows).1)?;
        }
        if output == PixelFormat::P010 {
            surface.luma = place(strides[0], rows)?;
        }
        if output != decoded {
            surface.chroma = place(strides[1].checked_mul(2)?, rows.div_ceil(2))?;
        }
        surface.bytes = end;
        Some(surface)
    }

    /// Divides a slot that other programs read as V4L2's single-plane formats: see
    /// [`framepath_model::buffer_request`]. The planes of the `output` frame come first, without
    /// gaps. The decoder's other planes follow. The stride of luma is twice `chroma_stride`, in
    /// bytes. `rows` is the number of luma rows that the decoder requires; the planes get more: an
    /// even number, and spare rows, which no picture uses, for the bytes that the decoder may touch
    /// behind a plane. Returns `None` if the slot exceeds the address space, or if `decoded` is
    /// neither YUV420P nor YUV420P10.
    ///
    /// The decoder's planes may be adjacent if the decoder reads and writes only whole blocks:
    /// `rows` and the strides are multiples of blocks. The spare rows count as rows of the format
    /// (`BufferRequest::rows`), and nothing follows the last plane. So `YU12` has exactly the size
    /// that its stride and rows give; otherwise GStreamer 1.26 hangs in a seek.
    pub(crate) fn adjacent(
        decoded: PixelFormat,
        output: PixelFormat,
        chroma_stride: usize,
        rows: usize,
    ) -> Option<Surface> {
        if !matches!(decoded, PixelFormat::Yuv420p | PixelFormat::Yuv420p10) {
            return None;
        }
        let stride = chroma_stride.checked_mul(2)?;
        // The spare rows have the bytes of a luma row and of PLANE_SLACK, as each plane in `new`
        // has them.
        let spare = stride.checked_add(PLANE_SLACK)?.div_ceil(chroma_stride.max(1));
        let rows = rows.checked_next_multiple_of(2)?.checked_add(spare * 2)?;
        let mut end = 0usize;
        let mut place = |stride: usize, rows: usize| {
            let offset = end;
            end = offset.checked_add(stride.checked_mul(rows)?)?;
            Some(PlaneArea { offset, stride, rows })
        };
        let mut surface = Surface {
            decoded,
            output,
            areas: [PlaneArea::default(); 4],
            luma: PlaneArea::default(),
            chroma: PlaneArea::default(),
            bytes: 0,
        };
        let luma = place(stride, rows)?;
        if output != decoded {
            surface.chroma = place(stride, rows / 2)?;
        }
        surface.areas[0] = luma;
        if output == PixelFormat::P010 {
            surface.luma = luma;
            surface.areas[0] = place(stride, rows)?;
        }
        surface.areas[1] = place(chroma_stride, rows / 2)?;
        surface.areas[2] = place(chroma_stride, rows / 2)?;
        surface.bytes = end;
        Some(surface)
    }

    /// Returns the layouts of a picture and of the frame made of it. The visible planes of the
    /// picture start at `starts`, with the strides `strides`, all in bytes from the start of the
    /// slot. `from` is the picture in the decoder's own format. Fails if a layout is invalid, for
    /// example with a stride shorter than its row.
    pub(crate) fn layouts(
        &self,
        width: u32,
        height: u32,
        starts: [usize; 4],
        strides: [usize; 4],
    ) -> Result<DecodedPicture, LayoutError> {
        let sizes = |format: PixelFormat| format.plane_sizes(width, height);
        let plane = |offset, stride, (width, rows)| PlaneLayout { offset, stride, width, rows };
        let mut planes = [PlaneLayout::default(); 4];
        for (index, size) in sizes(self.decoded).into_iter().enumerate() {
            planes[index] = plane(starts[index], strides[index], size);
        }
        let from = Layout::from_planes(self.decoded, width, height, &planes[..self.decoded.plane_count()])?;
        if self.output == self.decoded {
            return Ok(DecodedPicture { from, to: from });
        }
        let sizes = sizes(self.output);
        let luma = match self.output {
            PixelFormat::P010 => plane(self.luma.offset, self.luma.stride, sizes[0]),
            _ => planes[0],
        };
        let chroma = plane(self.chroma.offset, self.chroma.stride, sizes[1]);
        let to = Layout::from_planes(self.output, width, height, &[luma, chroma])?;
        Ok(DecodedPicture { from, to })
    }
}

/// Decoded picture in a slot, and the frame to be made of it in the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodedPicture {
    /// Layout of the decoder's picture.
    pub(crate) from: Layout,
    /// Layout of the output frame.
    pub(crate) to: Layout,
}

impl DecodedPicture {
    /// Returns true if both layouts, padding of rows included, end inside a slot of `bytes` bytes.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        self.from.size <= bytes && self.to.size <= bytes
    }

    /// Returns the number of bytes that [`convert`](DecodedPicture::convert) writes; call this only
    /// if a conversion is needed.
    pub(crate) fn converted_bytes(&self) -> usize {
        let planes = self.to.planes().iter();
        let skip = if self.to.format == PixelFormat::Nv12 { 1 } else { 0 };
        planes.skip(skip).map(|plane| plane.width * plane.rows).sum()
    }

    /// Returns true if the frame has other planes than the decoder's picture, so that
    /// [`convert`](DecodedPicture::convert) has to write them.
    pub(crate) fn needs_conversion(&self) -> bool {
        self.from.format != self.to.format
    }

    /// Writes the planes of the frame that are not the decoder's own: chroma for NV12, luma and
    /// chroma for P010; nothing if the formats are equal.
    ///
    /// # Safety
    /// `base` is the first byte of a slot that both layouts [fit](DecodedPicture::fits), divided
    /// by the surface that made them. The decoder has finished the picture, and no other code of
    /// this process accesses the written areas. (Another process may write to its own slots.
    /// Bytes are only moved and not interpreted, so it can spoil only pixels.)
    pub(crate) unsafe fn convert(&self, base: *mut u8) {
        let (from, to) = (self.from.planes(), self.to.planes());
        // SAFETY: rows are inside the slot, as the caller guarantees. They are cells, because
        // their bytes may change: here, or in another process that owns the slot.
        let row = |plane: &PlaneLayout, y: usize| unsafe {
            let first = base.add(plane.offset + y * plane.stride).cast::<Cell<u8>>();
            std::slice::from_raw_parts(first.cast_const(), plane.width)
        };
        let mut rows = Rows::new();
        match self.to.format {
            PixelFormat::Nv12 => {
                for y in 0..to[1].rows {
                    rows.interleave8(row(&from[1], y), row(&from[2], y), row(&to[1], y));
                }
            }
            PixelFormat::P010 => {
                for y in 0..to[0].rows {
                    rows.raise10(row(&from[0], y), row(&to[0], y));
                }
                for y in 0..to[1].rows {
                    rows.interleave10(row(&from[1], y), row(&from[2], y), row(&to[1], y));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(surface: &Surface) -> Vec<(usize, usize)> {
        let all = surface.areas.iter().chain([&surface.luma, &surface.chroma]);
        all.filter(|area| area.rows > 0).map(|a| (a.offset, a.offset + a.stride * a.rows)).collect()
    }

    #[test]
    fn planes_are_aligned_apart_and_inside() {
        use PixelFormat::{Gbrap, Grey, Nv12, P010, Yuv420p, Yuv420p10};
        for (decoded, output, planes) in [
            (Grey, Grey, 1),
            (Yuv420p, Yuv420p, 3),
            (Yuv420p, Nv12, 4),
            (Yuv420p10, P010, 5),
            (Gbrap, Gbrap, 4),
        ] {
            let surface = Surface::new(decoded, output, [256, 128, 128, 256], 57).unwrap();
            let areas = ends(&surface);
            assert_eq!(areas.len(), planes);
            for pair in areas.windows(2) {
                assert!(pair[0].1 + PLANE_SLACK <= pair[1].0);
            }
            assert!(areas.iter().all(|(start, end)| start % PLANE_ALIGN == 0 && *end < surface.bytes));
        }
    }

    #[test]
    fn adjacent_planes_lie_as_v4l2_has_them() {
        use PixelFormat::{Grey, Nv12, P010, Yuv420p, Yuv420p10};
        let native = Surface::adjacent(Yuv420p, Yuv420p, 128, 57).unwrap();
        assert_eq!(
            native.areas.map(|area| (area.offset, area.stride, area.rows)),
            [(0, 256, 64), (256 * 64, 128, 32), (256 * 64 * 5 / 4, 128, 32), (0, 0, 0)]
        );
        assert_eq!(native.bytes, 256 * 64 * 3 / 2, "nothing but pixels");
        for (decoded, output) in [(Yuv420p, Nv12), (Yuv420p10, P010)] {
            let surface = Surface::adjacent(decoded, output, 128, 64).unwrap();
            let picture = surface
                .layouts(120, 64, surface.areas.map(|a| a.offset), surface.areas.map(|a| a.stride))
                .unwrap();
            let [luma, chroma] = picture.to.planes() else { panic!("two planes") };
            assert_eq!((luma.offset, luma.stride, chroma.offset, chroma.stride), (0, 256, 256 * 70, 256));
            let mut areas = ends(&surface);
            areas.sort_unstable();
            areas.dedup();
            assert!(
                areas.windows(2).all(|pair| pair[0].1 <= pair[1].0)
                    && areas.len() == if output == Nv12 { 4 } else { 5 }
            );
            assert!(picture.fits(surface.bytes));
        }
        assert!(Surface::adjacent(Grey, Grey, 128, 64).is_none());
    }

    #[test]
    fn a_crop_moves_the_starts_and_stays_inside() {
        let surface = Surface::new(PixelFormat::Yuv420p, PixelFormat::Nv12, [256, 128, 128, 0], 64).unwrap();
        let [y, u, v, _] = surface.areas;
        let starts = [y.offset + 7 * 256 + 255, u.offset + 3 * 128 + 127, v.offset + 3 * 128 + 127, 0];
        let picture = surface.layouts(99, 57, starts, [256, 128, 128, 0]).unwrap();
        assert!(picture.fits(surface.bytes));
        assert!(picture.needs_conversion());
        assert_eq!(picture.converted_bytes(), 100 * 29);
        assert_eq!(picture.to.planes()[0], picture.from.planes()[0]);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let huge = usize::MAX / 4;
        assert!(Surface::new(PixelFormat::Yuv420p, PixelFormat::Nv12, [huge; 4], 8).is_none());
    }

    #[test]
    fn a_wrong_output_names_the_right_one() {
        let error = output_format("vp9", PixelFormat::Yuv420p10, OutputFormat::Nv12).unwrap_err();
        assert_eq!(error.to_string(), "vp9: cannot convert YUV420P10 to nv12; use format=p010");
        assert!(output_format("h264", PixelFormat::Grey, OutputFormat::P010).is_err());
        assert!(output_format("h264", PixelFormat::Grey, OutputFormat::Native).is_ok());
    }
}
