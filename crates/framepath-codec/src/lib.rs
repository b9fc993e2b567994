// SPDX-License-Identifier: MIT OR Apache-2.0
//! Codecs of framepath: this crate uses files, FFmpeg's libraries, dav1d, frei0r plug-ins and, in
//! [`Demuxer::open_network`], the network.
//!
//! No other crate of the workspace uses these libraries. Programs that move frames use the crate
//! `framepath`: the stage `decode` uses this crate, and can run the decoder in a sandbox. Without
//! `framepath`, this crate runs the libraries in the caller's process.
//!
//! - [`Demuxer`] reads the [`Packet`]s of one video track of a file or of a network stream.
//!   [`containers`] lists the containers that it reads with [`Formats::Known`].
//! - [`Decoder`] turns packets into frames of a `framepath-os` pool. A software decoder writes into
//!   the pool's slots, so [`OutputFormat::Native`] copies nothing; each other output format requires a
//!   conversion. Decoders of libavcodec without direct rendering, and pixel formats that framepath
//!   does not support, require one copy or conversion in every output format.
//! - [`Hardware`] opens a hardware decoder's device (VA-API, NVDEC, VDPAU, Vulkan). [`Decoder::on`]
//!   opens a decoder on this device; the decoder copies each picture once.
//! - [`Encoder`] turns frames into packets, and [`Muxer`] writes packets into a container.
//! - [`Converter`] changes the pixel format; [`Painter`] paints frames as RGB into a screen's
//!   memory.
//! - [`filter`] runs graphs of libavfilter, which is loaded at run time.
//! - [`frei0r`] loads third-party plug-ins: filters, sources and mixers.
//! - [`bare`] decodes with libavcodec only, without framepath's pools, as a baseline for measurements.
//!
//! # Example
//!
//! ```no_run
//! use framepath_codec::{Decoder, DecoderOptions, Demuxer, DecoderOutput};
//!
//! let mut demuxer = Demuxer::open("clip.mp4".as_ref())?;
//! let mut decoder = Decoder::open(demuxer.info(), &DecoderOptions::default())?;
//! let mut frames = 0;
//! loop {
//!     match decoder.receive()? {
//!         DecoderOutput::Frame(frame) => {
//!             println!("{:?}: {}x{}", frame.meta().pts, frame.layout().width, frame.layout().height);
//!             frames += 1;
//!         }
//!         // Only with `DecoderOptions::conceals`.
//!         DecoderOutput::Undecoded { error, .. } => eprintln!("{error}"),
//!         DecoderOutput::NeedsPacket => match demuxer.read()? {
//!             Some(packet) => decoder.send(packet)?,
//!             None => decoder.drain()?,
//!         },
//!         DecoderOutput::End => break,
//!     }
//! }
//! println!("{frames} frames");
//! # Ok::<(), framepath_codec::CodecError>(())
//! ```
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod annexb;
pub mod bare;
mod buffer_hook;
mod byte_client;
mod chroma;
mod codec;
mod colors;
mod container;
mod convert;
mod dav1d;
mod decoder;
mod demux;
mod encoder;
mod encoder_settings;
mod error;
pub mod filter;
pub mod frei0r;
mod hardware;
mod hardware_api;
mod input;
mod lent_frame;
mod libav;
mod libav_format;
mod mux_format;
mod muxer;
mod network_input;
mod numbers;
mod output_format;
mod packet;
mod paint;
mod palette;
mod picture;
mod pool_provider;
mod rgb_to_yuv;
mod rising_times;
mod shortage;
mod slots;
mod surface;
mod track;
mod versions;

pub use annexb::AnnexB;
pub use buffer_hook::BufferHook;
pub use codec::{Codec, OtherCodec};
pub use container::{Formats, containers};
pub use convert::{ConvertError, Converter, ScaleFilter};
pub use decoder::{Decoder, DecoderOptions, DecoderOutput, DecoderThreading, DecoderThreads, WorkDivision};
pub use demux::{Demuxer, NetworkProtocol, NetworkStream, silence_ffmpeg, write_chunk};
pub use encoder::{EncodeError, Encoder, EncoderOptions};
pub use encoder_settings::{EncoderApi, EncoderPreset, RateBuffer, RateControl};
pub use error::CodecError;
pub use hardware::Hardware;
pub use hardware_api::HardwareApi;
pub use input::{MediaFile, ReadBytes};
pub use mux_format::MuxFormat;
pub use muxer::{MuxError, Muxer, SeekWrite};
pub use output_format::OutputFormat;
pub use packet::Packet;
pub use paint::{PaintArea, Painter, PixelOrder, planar8};
pub use pool_provider::{DecodeProvider, ProviderRef};
pub use track::TrackInfo;
pub use versions::versions;
