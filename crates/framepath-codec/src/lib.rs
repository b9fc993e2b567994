// SPDX-License-Identifier: MIT OR Apache-2.0
//! Touches files and the codec libraries: the only crate that knows FFmpeg, dav1d and frei0r.
//!
//! A [`Demuxer`] turns a file into [`Packet`]s, a [`Decoder`] turns packets into frames
//! that stay where the decoder wrote them: in the slots of a `framepath-os` pool.
//! [`OutputFormat::Native`] copies nothing on the way; the other outputs name their conversion.
//! [`bare`] does the same work without any of this, as a baseline for comparison. A
//! [`Converter`] changes pixel formats, a [`Painter`] makes RGB for a screen; [`frei0r`]
//! runs third-party filters.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod annexb;
pub mod bare;
mod chroma;
mod colors;
mod container;
mod convert;
mod dav1d;
mod decoder;
mod demux;
mod error;
pub mod frei0r;
mod hardware;
mod input;
mod libav;
mod numbers;
mod packet;
mod paint;
mod pool_provider;
mod shortage;
mod slots;
mod surface;
mod track;
mod versions;

pub use annexb::AnnexB;
pub use container::containers;
pub use convert::{ConvertError, Converter};
pub use decoder::{Decoder, DecoderOptions, DecoderOutput, DecoderThreads, OutputFormat};
pub use demux::{Demuxer, silence_ffmpeg};
pub use error::CodecError;
pub use hardware::{Hardware, HardwareApi};
pub use input::MediaFile;
pub use packet::Packet;
pub use paint::{PaintArea, Painter, PixelOrder, planar8};
pub use pool_provider::{DecodeProvider, ProviderRef};
pub use track::{Codec, TrackInfo};
pub use versions::versions;
