// SPDX-License-Identifier: MIT OR Apache-2.0
//! Request of a decoder for buffers of a device or another process: layout, number and size.
//!
//! The planes are placed as in V4L2's single-plane formats. The luma plane has `stride * rows`
//! bytes. Chroma follows directly, in two planes with half the stride (YUV420P, which V4L2 calls
//! YU12, and YUV420P10) or interleaved with the same stride (NV12, P010). Other data of the decoder
//! follows the pixels.

use crate::colors::Colors;
use crate::format::PixelFormat;

/// Maximum number of buffers in one request: V4L2's limit.
pub const MOST_BUFFERS: u32 = 32;

/// Plane format of the frames in buffers that a device or another process provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvidedFormat {
    /// The decoder's own format, YUV420P (YU12 in V4L2) for 8 bits or YUV420P10 for 10: the decoder
    /// writes into the buffers, and nothing is copied.
    Native,
    /// NV12 for 8 bits: chroma is copied; P010 for 10 bits: all planes are copied.
    Packed,
}

/// Buffers that a decoder requests for one size and format of its pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRequest {
    /// Format that the decoder produces: YUV420P or YUV420P10.
    pub decoded: PixelFormat,
    /// Visible width of a picture, pixels, 1 to 16,384.
    pub width: u32,
    /// Visible height of a picture, pixels, 1 to 16,384.
    pub height: u32,
    /// Bytes from one luma row to the next, a multiple of 4.
    pub stride: u32,
    /// Number of luma rows in a buffer, even, at least `height`.
    pub rows: u32,
    /// Size of a buffer for [`ProvidedFormat::Native`], bytes.
    pub native_bytes: u32,
    /// Size of a buffer for [`ProvidedFormat::Packed`], bytes.
    pub packed_bytes: u32,
    /// Minimum number of buffers that the decoder needs, 1 to [`MOST_BUFFERS`]. Buffers that the
    /// receiver of the frames holds come in addition.
    pub buffers: u32,
    /// Colour description of the stream.
    pub colors: Colors,
}

impl BufferRequest {
    /// Returns the size of a buffer for frames in plane format `lent`, bytes.
    pub fn bytes(&self, lent: ProvidedFormat) -> u32 {
        match lent {
            ProvidedFormat::Native => self.native_bytes,
            ProvidedFormat::Packed => self.packed_bytes,
        }
    }

    /// Returns true if the two requests differ in their colours at most, so that buffers made for
    /// one also serve the other.
    pub fn same_layout(&self, other: &BufferRequest) -> bool {
        BufferRequest { colors: other.colors, ..*self } == *other
    }

    /// Returns true if a decoder can have made this request: the format is YUV420P or YUV420P10,
    /// the sides and the number of buffers are in their ranges, and the rows, the stride and both
    /// buffer sizes hold the picture. Requests from another process are checked by this function.
    pub fn is_sound(&self) -> bool {
        let sample = self.decoded.luma_bytes() as u64;
        let luma = u64::from(self.stride) * u64::from(self.rows);
        let pixels = luma + luma / 2;
        matches!(self.decoded, PixelFormat::Yuv420p | PixelFormat::Yuv420p10)
            && (1..=16_384).contains(&self.width)
            && (1..=16_384).contains(&self.height)
            && u64::from(self.stride) >= u64::from(self.width) * sample
            && self.stride % 4 == 0
            && self.rows >= self.height
            && self.rows % 2 == 0
            && u64::from(self.native_bytes) >= pixels
            && u64::from(self.packed_bytes) >= pixels
            && (1..=MOST_BUFFERS).contains(&self.buffers)
    }
}
