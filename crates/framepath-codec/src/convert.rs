// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames into another pixel format of the same size, by libswscale.
//!
//! The same pixels on every machine: libswscale is told to be exact, and
//! leaves its faster, rougher ways out. YUV is taken as BT.601 of limited
//! range, as the `ffmpeg` tool takes it where a stream does not say: frames do
//! not carry their colour space.

use std::ffi::c_int;
use std::ptr;

use ff::AVPixelFormat;
use ffmpeg_sys_next as ff;
use framepath_model::format::{Layout, LayoutError, PixelFormat};
use framepath_os::meter;
use framepath_os::pool::{Frame, FrameMut};

/// `SWS_BICUBIC` (of chroma: sizes stay), `SWS_FULL_CHR_H_INT`,
/// `SWS_ACCURATE_RND`, `SWS_BITEXACT`. Their names are macros in some versions
/// and an enum in others; their numbers are the same in all.
const FLAGS: c_int = 0x4 | 0x2000 | 0x4_0000 | 0x8_0000;

/// Bytes behind a picture that libswscale's vector code may touch.
const SLACK: usize = 256;

/// Why a frame cannot be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// libswscale has no way between the two.
    #[error("libswscale does not convert {width}x{height} {from} to {to}")]
    NoWay {
        /// What came.
        from: PixelFormat,
        /// What was asked for.
        to: PixelFormat,
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// The frame is no picture, or the slot cannot hold what is asked for.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// Converts frames, whatever comes, to one format.
#[derive(Debug)]
pub struct Converter {
    to: PixelFormat,
    context: *mut ff::SwsContext,
}

// SAFETY: a context belongs to whoever has the pointer, on any thread.
unsafe impl Send for Converter {}

impl Converter {
    /// Converts to `to`.
    pub fn new(to: PixelFormat) -> Converter {
        Converter { to, context: ptr::null_mut() }
    }

    /// Bytes that the slot of a picture laid out so must have.
    pub fn slot_bytes(layout: &Layout) -> usize {
        layout.size + SLACK
    }

    /// Converts `from` into `into`, whose layout says where the picture goes;
    /// every byte of it is counted as copied.
    ///
    /// # Errors
    /// Where libswscale cannot, or `from` is no picture (see
    /// [`Layout::opaque`]).
    ///
    /// # Panics
    /// Unless `into` is laid out in the format of [`Converter::new`] and in
    /// the size of `from`.
    pub fn convert(&mut self, from: &Frame, into: &mut FrameMut) -> Result<(), ConvertError> {
        let (source, target) = (*from.layout(), *into.layout());
        assert_eq!(target.format, self.to, "the format to convert to");
        assert_eq!((target.width, target.height), (source.width, source.height), "the size stays");
        // Opaque buffers may be wider than any picture.
        Layout::packed(source.format, source.width, source.height)?;
        let (width, height) = (source.width as c_int, source.height as c_int);
        // SAFETY: the context is null or ours; it is freed or given back.
        self.context = unsafe {
            ff::sws_getCachedContext(
                self.context,
                width,
                height,
                libav_format(source.format),
                width,
                height,
                libav_format(self.to),
                FLAGS,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null(),
            )
        };
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
        // SAFETY: the planes are those of a picture of this size and format,
        // and of another to write, which nobody else has a handle to. Both
        // lie in slots of a pool.
        let rows = meter::copy(target.pixel_bytes(), || unsafe {
            ff::sws_scale(
                self.context,
                planes.as_ptr(),
                strides.as_ptr(),
                0,
                height,
                into_planes.as_ptr(),
                into_strides.as_ptr(),
            )
        });
        if rows == height { Ok(()) } else { Err(no_way()) }
    }
}

impl Drop for Converter {
    fn drop(&mut self) {
        // SAFETY: null, or ours and not used again.
        unsafe { ff::sws_freeContext(self.context) }
    }
}

fn libav_format(format: PixelFormat) -> AVPixelFormat {
    match format {
        PixelFormat::Grey => AVPixelFormat::AV_PIX_FMT_GRAY8,
        PixelFormat::Yuv420p => AVPixelFormat::AV_PIX_FMT_YUV420P,
        PixelFormat::Nv12 => AVPixelFormat::AV_PIX_FMT_NV12,
        PixelFormat::Yuv420p10 => AVPixelFormat::AV_PIX_FMT_YUV420P10LE,
        PixelFormat::P010 => AVPixelFormat::AV_PIX_FMT_P010LE,
        PixelFormat::Rgba => AVPixelFormat::AV_PIX_FMT_RGBA,
    }
}
