// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pixel formats that a decoder can be asked for.

use std::fmt;

/// Pixel format of the decoder's frames. The copies named here are those of a software decoder; a
/// hardware decoder copies each picture once, in any format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// The decoder's own format. Nothing is copied, unless the decoder cannot write into
    /// framepath's memory; a format that framepath does not support is converted to the nearest
    /// supported one. For a hardware decoder, the first format offered by the driver that framepath
    /// can copy.
    #[default]
    Native,
    /// NV12; a software decoder makes it only from 8-bit 4:2:0 pictures (YUV420P). Luma stays where
    /// the decoder wrote it; chroma is copied into interleaved order.
    Nv12,
    /// P010; a software decoder makes it only from 10-bit 4:2:0 pictures (YUV420P10). Luma and
    /// chroma are copied, because P010 has its ten bits at the high end of 16 and the decoder still
    /// reads its own planes.
    P010,
}

impl fmt::Display for OutputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OutputFormat::Native => "native",
            OutputFormat::Nv12 => "nv12",
            OutputFormat::P010 => "p010",
        })
    }
}
