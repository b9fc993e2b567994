// SPDX-License-Identifier: MIT OR Apache-2.0
//! Context of libswscale for one picture format, size and pixel order.

use std::ffi::c_int;
use std::ops::Range;
use std::ptr;

use ff::AVPixelFormat;
use ffmpeg_sys_next as ff;
use framepath_model::colors::{self, Colors};
use framepath_model::format::{Layout, PixelFormat};

use super::{PixelOrder, no_way};
use crate::convert::ConvertError;

/// Flags of libswscale: `SWS_BILINEAR`. With this flag, libswscale uses its vector code at an
/// unchanged size, and interpolates at other sizes.
const FLAGS: c_int = 2;

/// Arguments for which a context was made: format, size and colours of the source, painted size,
/// pixel order.
type Key = (PixelFormat, (u32, u32), Colors, (usize, usize), PixelOrder);

#[derive(Debug)]
pub(super) struct ScaleContext {
    context: *mut ff::SwsContext,
    made_for: Option<Key>,
}

// SAFETY: a context belongs to the owner of the pointer, and may be used on any thread.
unsafe impl Send for ScaleContext {}

impl Default for ScaleContext {
    fn default() -> ScaleContext {
        ScaleContext { context: ptr::null_mut(), made_for: None }
    }
}

impl ScaleContext {
    /// Makes the context for these arguments, unless the present context matches. Fails if
    /// libswscale has no such conversion.
    pub(super) fn prepare(
        &mut self,
        source: &Layout,
        size: (usize, usize),
        order: PixelOrder,
    ) -> Result<(), ConvertError> {
        let key = (source.format, (source.width, source.height), source.colors, size, order);
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
        // SAFETY: sizes are positive; null pointers mean defaults.
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
        // SAFETY: the context is valid, and the tables are libswscale's constants. It returns an
        // error if there are no colours to change, which is ignored.
        unsafe {
            let table = ff::sws_getCoefficients(source.colors.shown_by(source.width).into());
            let full = c_int::from(source.colors.range == colors::ColorRange::Full);
            ff::sws_setColorspaceDetails(self.context, table, full, table, 1, 0, 1 << 16, 1 << 16);
        }
        self.made_for = Some(key);
        Ok(())
    }

    /// Paints the rows `rows` of the picture into `into`, where the picture's first row begins and
    /// rows are `stride` bytes apart. `planes` has the address of the first of these rows in each
    /// plane. Returns the number of painted rows; 0 on failure.
    pub(super) fn slice(
        &self,
        (planes, strides): ([*const u8; 4], [c_int; 4]),
        rows: Range<usize>,
        into: *mut u8,
        stride: usize,
    ) -> usize {
        if rows.is_empty() {
            return 0;
        }
        // SAFETY: the planes are those of so many rows of a picture of the context's size and
        // format, followed by as many readable bytes as libswscale reads beyond a row. `into` has
        // a row of `stride` bytes for each row that it writes.
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

impl Drop for ScaleContext {
    fn drop(&mut self) {
        // SAFETY: null, or ours and not used again.
        unsafe { ff::sws_freeContext(self.context) }
    }
}
