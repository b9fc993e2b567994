// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pictures in memory of a device: how they have to lie there, and how much
//! there has to be.
//!
//! The planes lie as V4L2's single-plane formats have them: chroma directly
//! behind `stride * rows` bytes of luma, with half the stride (YU12) or
//! interleaved with the same (NV12, P010). What the decoder needs besides lies
//! behind the pixels.

use crate::colors::Colors;
use crate::format::PixelFormat;

/// Most buffers one side may ask of the other: what V4L2 allows.
pub const MOST_BUFFERS: u32 = 32;

/// Which planes frames are to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lent {
    /// The decoder's own: YU12. Nothing is copied.
    Native,
    /// NV12 of 8 bits: chroma is copied; P010 of 10 bits: all is.
    Packed,
}

/// What a decoder wants, for one size and format of its pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// What it decodes: YUV420P or YUV420P10.
    pub decoded: PixelFormat,
    /// Pixels of a row to show.
    pub width: u32,
    /// Rows to show.
    pub height: u32,
    /// Bytes from row to row of luma.
    pub stride: u32,
    /// Rows of luma in a buffer, even.
    pub rows: u32,
    /// Bytes of a buffer for [`Lent::Native`].
    pub native_bytes: u32,
    /// Bytes of a buffer for [`Lent::Packed`].
    pub packed_bytes: u32,
    /// Buffers it needs at least, besides those that others hold; at most
    /// [`MOST_BUFFERS`].
    pub buffers: u32,
    /// What the stream says of its colours.
    pub colors: Colors,
}

impl Want {
    /// Bytes of a buffer.
    pub fn bytes(&self, lent: Lent) -> u32 {
        match lent {
            Lent::Native => self.native_bytes,
            Lent::Packed => self.packed_bytes,
        }
    }

    /// Whether pictures of the one lie in memory made for the other.
    pub fn lies_as(&self, other: &Want) -> bool {
        Want { colors: other.colors, ..*self } == *other
    }

    /// Whether the numbers fit each other.
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
