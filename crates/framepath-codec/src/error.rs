// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors between a file and a frame.

use std::ffi::{CStr, c_int};
use std::io;

use ffmpeg_sys_next as ff;
use framepath_model::format::{LayoutError, PixelFormat};
use framepath_os::memory::pool::PoolError;

use crate::{HardwareApi, OutputFormat};

/// Any failure of this crate. Each names the operation and its object, and ends with the
/// message of the library underneath.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The operating system refused an operation on the file.
    #[error("{file}: cannot {operation}: {source}")]
    Io {
        /// The file, as it was given.
        file: String,
        /// The operation that failed: `open`, `read`, ...
        operation: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The path names a directory.
    #[error("{file}: is a directory, not a video file")]
    IsDirectory {
        /// The path, as it was given.
        file: String,
    },
    /// The file has no bytes.
    #[error("{file}: empty file")]
    Empty {
        /// The file, as it was given.
        file: String,
    },
    /// The file names other files, or places in the network.
    #[error("{file}: a playlist ({container}) names other files; give the media file itself")]
    Playlist {
        /// The file, as it was given.
        file: String,
        /// libavformat's name of the format.
        container: String,
    },
    /// The container of the file is not supported.
    #[error(
        "{file}: container {container} is not supported; supported: {}",
        crate::containers().collect::<Vec<_>>().join(", ")
    )]
    UnsupportedContainer {
        /// The file, as it was given.
        file: String,
        /// libavformat's name of the format.
        container: String,
    },
    /// The description of a video, from another process, cannot be used.
    #[error("the description of the video cannot be read: {detail}")]
    Track {
        /// The defect.
        detail: &'static str,
    },
    /// A packet with length-prefixed parts is damaged.
    #[error("{codec}: a length in a packet of {bytes} bytes is longer than the packet")]
    UnitLength {
        /// The codec.
        codec: &'static str,
        /// Bytes of the packet.
        bytes: usize,
    },
    /// libavformat refused the file or a part of it.
    #[error("{file}: cannot {operation}: {message}")]
    Demux {
        /// The file, as it was given.
        file: String,
        /// The operation that failed.
        operation: &'static str,
        /// libavformat's own words.
        message: String,
    },
    /// The demuxer had too little memory for a part of the file.
    #[error(
        "{file}: cannot {operation} the file: out of memory; a demuxer in a worker may have more by `memory=`"
    )]
    Memory {
        /// The file, as it was given.
        file: String,
        /// The operation that failed.
        operation: &'static str,
    },
    /// The file opened, but holds no video.
    #[error("{file}: no video stream")]
    NoVideo {
        /// The file, as it was given.
        file: String,
    },
    /// The file holds fewer video tracks.
    #[error("{file}: no video track {track}; it has {}", tracks_of(*.tracks))]
    NoTrack {
        /// The file, as it was given.
        file: String,
        /// The number asked for, counted from 0.
        track: usize,
        /// Number of video tracks in the file, at least one.
        tracks: usize,
    },
    /// A seek to another time of the stream is not possible.
    #[error("{file}: cannot seek: {reason}")]
    CannotSeek {
        /// The file, as it was given.
        file: String,
        /// The reason.
        reason: &'static str,
    },
    /// The codec's head changes inside the stream, to one with NAL unit lengths of another size.
    #[error(
        "{file}: packet {packet} brings another codec configuration, with NAL unit lengths of another size, which is \
         not supported"
    )]
    OtherFraming {
        /// The file.
        file: String,
        /// Number of the packet, from 0.
        packet: u64,
    },
    /// The container ends, or is damaged, inside a packet.
    #[error("{file}: packet {packet} is damaged or cut short")]
    DamagedPacket {
        /// The file, as it was given.
        file: String,
        /// The packet's number, counted from 0 since the last start.
        packet: u64,
    },
    /// The video is of a codec framepath does not decode.
    #[error("{file}: unsupported codec `{codec}`; known: h264, hevc, vp8, vp9, av1")]
    UnsupportedCodec {
        /// The file, as it was given.
        file: String,
        /// libavcodec's name of the codec.
        codec: String,
    },
    /// The decoder makes pictures in a format framepath does not move.
    #[error("{codec}: unsupported pixel format `{format}`; known: gray, yuv420p, yuvj420p, yuv420p10le")]
    UnsupportedPixelFormat {
        /// The codec.
        codec: &'static str,
        /// The name of the format.
        format: String,
    },
    /// The stream's pictures cannot become the requested output.
    #[error("{codec}: the stream is {stream}, which does not become {asked}; use format={instead}")]
    WrongOutput {
        /// The codec.
        codec: &'static str,
        /// Requested output.
        asked: OutputFormat,
        /// The decoder's own format.
        stream: PixelFormat,
        /// An output that fits.
        instead: OutputFormat,
    },
    /// The machine's own decoder cannot be used.
    #[error("{api}: {reason}")]
    Hardware {
        /// The API of the decoder.
        api: HardwareApi,
        /// The missing part, or the driver's message.
        reason: String,
    },
    /// The installed FFmpeg was built without this decoder.
    #[error("{codec}: the installed libavcodec has no decoder for it")]
    NoDecoder {
        /// The codec.
        codec: &'static str,
    },
    /// The decoder cannot write into memory it is given.
    #[error("{codec}: decoder `{decoder}` has no direct rendering and cannot write into the pool")]
    NoDirectRendering {
        /// The codec.
        codec: &'static str,
        /// libavcodec's name of the decoder.
        decoder: String,
    },
    /// A call into a decoder library failed.
    #[error("{codec}: cannot {operation}: {message}")]
    Decoder {
        /// The codec.
        codec: &'static str,
        /// The operation that failed.
        operation: &'static str,
        /// The library's own words.
        message: String,
    },
    /// The decoder rejected a packet.
    #[error("{codec}: packet {packet}{earlier} rejected: {message}", earlier = or_earlier(*.in_flight))]
    Rejected {
        /// The codec.
        codec: &'static str,
        /// Number of the packet in the order of sending, from 0.
        packet: u64,
        /// Number of earlier packets that may be the culprit as well: with frame threads
        /// a rejection shows only when later packets were sent.
        in_flight: u32,
        /// The library's own words.
        message: String,
    },
    /// The decoder made a picture although the packet was damaged. The picture is
    /// withheld, because parts of it are invented.
    #[error("{codec}: the picture of packet {packet} is damaged")]
    DamagedPicture {
        /// The codec.
        codec: &'static str,
        /// Number of the packet in the order of sending, from 0.
        packet: u64,
    },
    /// A packet was sent while frames were still waiting to be received.
    #[error("{codec}: packet sent before the frames of the last one were received")]
    NotDrained {
        /// The codec.
        codec: &'static str,
    },
    /// The pool has fewer slots than the decoder keeps at a time.
    #[error(
        "{codec}: a pool of {slots} slots is too small, the decoder holds them all; use {advised} or more"
    )]
    PoolTooSmall {
        /// The codec.
        codec: &'static str,
        /// Slots the pool has.
        slots: u32,
        /// Slots that are enough for any stream of this codec.
        advised: u32,
    },
    /// The pool could not be made or used.
    #[error("{codec}: frame pool: {source}")]
    Pool {
        /// The codec.
        codec: &'static str,
        /// The pool's error.
        source: PoolError,
    },
    /// The layout of a picture does not fit its slot.
    #[error("{codec}: decoded picture: {source}")]
    Layout {
        /// The codec.
        codec: &'static str,
        /// The part that does not fit.
        source: LayoutError,
    },
    /// A picture lies outside the memory the decoder was given.
    #[error("{codec}: decoded picture lies outside its slot")]
    OutsideSlot {
        /// The codec.
        codec: &'static str,
    },
}

fn tracks_of(tracks: usize) -> String {
    match tracks {
        1 => "1 video track, track=0".to_owned(),
        _ => format!("{tracks} video tracks, track=0 to {}", tracks - 1),
    }
}

fn or_earlier(in_flight: u32) -> String {
    if in_flight == 0 { String::new() } else { format!(" (or one of the {in_flight} before it)") }
}

/// Returns libav's text for an error code.
pub(crate) fn libav_message(code: c_int) -> String {
    let mut text = [0; 256];
    // SAFETY: the buffer is as long as stated; av_strerror always ends it
    // with a zero, for unknown codes too.
    let text = unsafe {
        ff::av_strerror(code, text.as_mut_ptr(), text.len());
        CStr::from_ptr(text.as_ptr())
    };
    text.to_string_lossy().into_owned()
}
