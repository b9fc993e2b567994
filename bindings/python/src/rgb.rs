// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of frames to RGB for programs: chroma is repeated, as in other Python packages, so that it is fast. All other formats pass
//! through libswscale, as the stage `convert` does.

use std::sync::{Mutex, PoisonError};

use framepath::colors::{BT709, BT2020, ColorRange, SMPTE240M};
use framepath::format::{Layout, PixelFormat};
use framepath::{Frame, FrameMut};
use framepath_codec::Converter;
use framepath_os::measure::meter;
use yuv::{YuvBiPlanarImage, YuvConversionMode, YuvError, YuvPlanarImage, YuvRange, YuvStandardMatrix};

use crate::held::own_frame;

/// Rows that are converted at once: they fit into a processor's cache.
const BAND: usize = 64;

/// Converter of frames to RGB with 8 bits a sample. Threads take turns.
pub(crate) struct RgbConverter {
    parts: Mutex<RgbParts>,
}

struct RgbParts {
    slow: Converter,
    /// Rows of a frame that another process may change, copied before they are read.
    copied: [Vec<u8>; 3],
}

impl RgbConverter {
    pub(crate) fn new() -> RgbConverter {
        let slow = Converter::new(PixelFormat::Rgb24);
        RgbConverter { parts: Mutex::new(RgbParts { slow, copied: [const { Vec::new() }; 3] }) }
    }

    /// Returns the frame as RGB, and the number of bytes that were written.
    ///
    /// # Errors
    /// There is no memory, or the format cannot be converted; a text for the user.
    pub(crate) fn convert(&self, from: &Frame) -> Result<(Frame, u64), String> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let of = *from.layout();
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let layout = Layout::packed(PixelFormat::Rgb24, of.width, of.height).map_err(|error| text(&error))?;
        let layout = layout.with_colors(parts.slow.colors(&of));
        let mut into = own_frame(Converter::slot_bytes(&layout)).map_err(|error| text(&error))?;
        into.set_layout(&layout).map_err(|error| text(&error))?;
        if !parts.convert_fast(from, &mut into).map_err(|error| text(&error))? {
            parts.slow.convert(from, &mut into).map_err(|error| text(&error))?;
        }
        Ok((into.freeze(from.meta()), layout.pixel_bytes() as u64))
    }
}

impl RgbParts {
    /// Converts the frame if its format is a usual one. Returns false if it is not.
    fn convert_fast(&mut self, from: &Frame, into: &mut FrameMut) -> Result<bool, YuvError> {
        let down = match from.layout().format {
            PixelFormat::Yuv420p | PixelFormat::Nv12 => 2,
            PixelFormat::Yuv422p | PixelFormat::Yuv444p => 1,
            _ => return Ok(false),
        };
        // In a thread of the path, the ledger counts the bytes, as those of libswscale.
        meter::convert(into.layout().pixel_bytes(), || self.convert_bands(from, into, down))?;
        Ok(true)
    }

    /// Converts all bands of a frame whose chroma has one row for `down` rows of luma.
    fn convert_bands(&mut self, from: &Frame, into: &mut FrameMut, down: usize) -> Result<(), YuvError> {
        let Layout { format, width, height, colors, .. } = *from.layout();
        let range = if colors.range == ColorRange::Full { YuvRange::Full } else { YuvRange::Limited };
        let matrix = match colors.shown_by(width) {
            BT709 => YuvStandardMatrix::Bt709,
            BT2020 => YuvStandardMatrix::Bt2020,
            SMPTE240M => YuvStandardMatrix::Smpte240,
            _ => YuvStandardMatrix::Bt601,
        };
        let stride = into.layout().planes()[0].stride;
        let rgb = into.plane_mut(0);
        for top in (0..height as usize).step_by(BAND) {
            let rows = BAND.min(height as usize - top);
            let mut planes = [(&[][..], 0); 3];
            let count = from.layout().planes().len();
            for ((index, plane), copied) in planes[..count].iter_mut().enumerate().zip(&mut self.copied) {
                let (first, rows) = match index {
                    0 => (top, rows),
                    _ => (top / down, rows.div_ceil(down)),
                };
                *plane = band(from, index, first..first + rows, copied);
            }
            let [(y_plane, y_stride), (u_plane, u_stride), (v_plane, v_stride)] = planes;
            let rgb = &mut rgb[top * stride..];
            let (rgb_stride, height) = (stride as u32, rows as u32);
            if format == PixelFormat::Nv12 {
                let image = YuvBiPlanarImage {
                    y_plane,
                    y_stride,
                    uv_plane: u_plane,
                    uv_stride: u_stride,
                    width,
                    height,
                };
                yuv::yuv_nv12_to_rgb(&image, rgb, rgb_stride, range, matrix, YuvConversionMode::Balanced)?;
                continue;
            }
            let image =
                YuvPlanarImage { y_plane, y_stride, u_plane, u_stride, v_plane, v_stride, width, height };
            let convert = match format {
                PixelFormat::Yuv420p => yuv::yuv420_to_rgb,
                PixelFormat::Yuv422p => yuv::yuv422_to_rgb,
                _ => yuv::yuv444_to_rgb,
            };
            convert(&image, rgb, rgb_stride, range, matrix)?;
        }
        Ok(())
    }
}

/// Returns rows of a plane, and their stride: those of the frame, or copies in `copied` if another process may change the frame.
fn band<'a>(
    from: &'a Frame,
    index: usize,
    rows: std::ops::Range<usize>,
    copied: &'a mut Vec<u8>,
) -> (&'a [u8], u32) {
    let plane = from.layout().planes()[index];
    let end = (rows.end - 1) * plane.stride + plane.width;
    let part = from.plane(index).sub(rows.start * plane.stride..end);
    let stable = part.as_stable().unwrap_or_else(|| {
        copied.resize(part.len(), 0);
        part.copy_to(copied);
        copied
    });
    (stable, plane.stride as u32)
}
