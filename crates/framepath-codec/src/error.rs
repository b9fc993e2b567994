// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of demuxing and decoding.

use std::ffi::{CStr, c_int};
use std::io;

use ffmpeg_sys_next as ff;
use framepath_model::format::{LayoutError, PixelFormat};
use framepath_os::memory::pool::PoolError;

use crate::{HardwareApi, OutputFormat};

/// Error of demuxing or decoding. Each error names its object: the file, the track description, the
/// codec or the hardware API. If an underlying library has a message, the message comes last.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// An operation on the file failed: a system call, the allocation of the read buffer, or the
    /// rewind of an input that is not a regular file. Also if a read was canceled because the run
    /// ends.
    #[error("{file}: cannot {operation}: {source}")]
    Io {
        /// File, as specified by the user.
        file: String,
        /// Failed operation: `open`, `stat`, `read` or `rewind`.
        operation: &'static str,
        /// Error of the operating system, or [`io::ErrorKind::OutOfMemory`] for the read buffer.
        source: io::Error,
    },
    /// The path names a directory.
    #[error("{file}: is a directory, not a video file")]
    IsDirectory {
        /// Path, as specified by the user.
        file: String,
    },
    /// The file is a regular file without bytes.
    #[error("{file}: empty file")]
    Empty {
        /// File, as specified by the user.
        file: String,
    },
    /// The file has a format that refers to other files or to network addresses.
    #[error("{file}: a playlist ({container}) is not supported; use the media file itself")]
    Playlist {
        /// File, as specified by the user.
        file: String,
        /// libavformat's name of the format; the first name if the format has several.
        container: String,
    },
    /// The container of the file is not supported.
    #[error(
        "{file}: container {container} is not supported; supported: {}",
        crate::containers().collect::<Vec<_>>().join(", ")
    )]
    UnsupportedContainer {
        /// File, as specified by the user.
        file: String,
        /// libavformat's name of the container; the first name if the container has several.
        container: String,
    },
    /// The head of the container names a video codec outside [`Codec::KNOWN`](crate::Codec::KNOWN), and only known
    /// formats may be read in this process.
    #[error(
        "{file}: has a codec other than H.264, HEVC, VP8, VP9 and AV1; open it with `Formats::All`, in a sandbox"
    )]
    OtherCodec {
        /// File, as specified by the user.
        file: String,
    },
    /// A track description is invalid, its parameter sets are damaged, or memory for it is missing.
    #[error("track description: {detail}")]
    Track {
        /// Description of the defect.
        detail: &'static str,
    },
    /// The length prefix of a NAL unit is incomplete or exceeds the rest of its packet.
    #[error("{codec}: the length of a NAL unit exceeds its packet of {bytes} bytes; the stream is damaged")]
    UnitLength {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// Size of the packet, bytes.
        bytes: usize,
    },
    /// libavformat failed on the input or a part of it, there is no memory for a packet, the file
    /// has no packet to repeat, or the connection of a network stream ended without the sender's
    /// goodbye (RTCP BYE).
    #[error("{file}: cannot {operation}: {message}")]
    Demux {
        /// File, as specified by the user; `connection` or `session` for a network stream.
        file: String,
        /// Failed operation, as a verb phrase.
        operation: &'static str,
        /// Message of libavformat; this crate's own if the file has no packet to repeat, or the
        /// connection ended without a goodbye.
        message: String,
    },
    /// The demuxer had not enough memory for a part of the file or of the network stream.
    #[error(
        "{file}: cannot {operation} the file: out of memory; if the demuxer runs in a worker, raise `memory=`"
    )]
    Memory {
        /// File, as specified by the user; `connection` or `session` for a network stream.
        file: String,
        /// Failed operation, as a verb whose object is the file: `open`, `read` or `look into`.
        operation: &'static str,
    },
    /// The file was opened but has no video.
    #[error("{file}: no video stream")]
    NoVideo {
        /// File, as specified by the user; `connection` or `session` for a network stream.
        file: String,
    },
    /// The requested video track does not exist.
    #[error("{file}: no video track {track}; the file has {}", tracks_of(*.tracks))]
    NoTrack {
        /// File, as specified by the user; `connection` or `session` for a network stream.
        file: String,
        /// Requested track number, from 0.
        track: usize,
        /// Number of video tracks in the file; 0 if it has only a cover picture.
        tracks: usize,
    },
    /// The file is not seekable, the time is out of range, or the stream has neither timestamps
    /// nor a frame rate.
    #[error("{file}: cannot seek: {reason}")]
    CannotSeek {
        /// File, as specified by the user; `connection` or `session` for a network stream.
        file: String,
        /// Reason why the seek is not possible.
        reason: &'static str,
    },
    /// A packet changes the size of the NAL unit length fields.
    #[error(
        "{file}: packet {packet} has another codec configuration, with NAL unit lengths of another size, which is \
         not supported"
    )]
    OtherFraming {
        /// File, as specified by the user; `connection` or `session` for a network stream.
        file: String,
        /// Number of packets that the demuxer has read before this one since the file was opened or
        /// rewound. Packets that the demuxer reads while it seeks count.
        packet: u64,
    },
    /// The container marks a packet as damaged, or ends or is damaged inside it, or packets of a
    /// network stream were lost before it. The stage `decode` returns this error; the demuxer does
    /// not: see [`Packet::is_damaged`](crate::Packet::is_damaged).
    #[error(
        "{codec}: the demuxer reports that packet {packet} is damaged or cut short; damage=show and damage=skip go on"
    )]
    DamagedPacket {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// Number of the packet, from 0, in the order of the source.
        packet: u64,
    },
    /// The installed libavcodec has no software decoder for the codec of the video.
    #[error("{file}: the installed libavcodec has no software decoder for the codec {codec}")]
    UnsupportedCodec {
        /// File, as specified by the user; `connection` or `session` for a network stream.
        file: String,
        /// Name of the codec in libavcodec, or the tag in the container.
        codec: String,
    },
    /// framepath does not support the format of the decoder's pictures, and cannot convert it to a supported
    /// one.
    #[error("{codec}: pixel format `{format}` is not supported, and libswscale cannot convert it")]
    UnsupportedPixelFormat {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// libav's name of the pixel format; `number N` if libav has no name.
        format: String,
    },
    /// The stream's pictures cannot be converted to the requested output.
    #[error("{codec}: cannot convert {stream} to {asked}; use format={instead}")]
    WrongOutput {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// Requested output format.
        asked: OutputFormat,
        /// Format of the decoder's pictures.
        stream: PixelFormat,
        /// Output format that is possible for these pictures.
        instead: OutputFormat,
    },
    /// A hardware decoder failed: the device cannot be opened, cannot decode the codec or output
    /// the format, or rejects the stream.
    #[error("{api}: {reason}")]
    Hardware {
        /// API of the decoder.
        api: HardwareApi,
        /// Missing device, codec or format, or libav's message for the driver's error.
        reason: String,
    },
    /// The installed FFmpeg was built without a decoder for this codec.
    #[error("{codec}: the installed libavcodec has no decoder for this codec; install a build that has one")]
    NoDecoder {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
    },
    /// A call of a decoder library failed, the memory provider failed, or a repeated picture
    /// changed its size.
    #[error("{codec}: cannot {operation}: {message}")]
    Decoder {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// Failed operation, as a verb phrase.
        operation: &'static str,
        /// Message of the library or of the memory provider, or the change of the repeated picture.
        message: String,
    },
    /// The decoder rejected a packet.
    #[error("{codec}: packet {packet}{earlier} rejected: {message}", earlier = or_earlier(*.in_flight))]
    Rejected {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// Number of the rejected packet, from 0, in the order of sending since the decoder was opened;
        /// the last packet sent if the library does not report which packet failed.
        packet: u64,
        /// Number of earlier packets that may have caused the error as well, because a decoder with
        /// several threads reports a rejection only after later packets were sent. 0 if only `packet`
        /// can be the cause.
        in_flight: u32,
        /// Message of the decoder library.
        message: String,
    },
    /// The decoder made a picture although the packet was damaged. The picture is withheld,
    /// because parts of it are invalid.
    #[error("{codec}: the picture of packet {packet} is damaged")]
    DamagedPicture {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// Number of the packet, from 0, in the order of sending since the decoder was opened.
        packet: u64,
    },
    /// A packet was sent before all frames of the earlier packets were received.
    #[error("{codec}: packet sent too early; receive all frames of the last packet first")]
    NotDrained {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
    },
    /// The pool has fewer slots than the decoder holds at a time.
    #[error(
        "{codec}: a pool of {slots} slots is too small, the decoder holds all of them; use pool={advised} or more"
    )]
    PoolTooSmall {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// Number of slots in the pool.
        slots: u32,
        /// Recommended number of slots; more than `slots`.
        advised: u32,
    },
    /// The frame pool could not be created, or no slot of the pool could be taken.
    #[error("{codec}: frame pool: {source}")]
    Pool {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// Error of the pool.
        source: PoolError,
    },
    /// The layout of a decoded picture is invalid, or exceeds its slot.
    #[error("{codec}: decoded picture: {source}")]
    Layout {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// Defect of the layout.
        source: LayoutError,
    },
    /// A plane of a decoded picture is not inside its slot, has a negative stride, or has no slot.
    #[error("{codec}: decoded picture is outside its slot")]
    OutsideSlot {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
    },
}

impl CodecError {
    /// Returns true if the error is damage of the stream: decoding can restart at a later packet.
    pub fn is_damage(&self) -> bool {
        use CodecError::{DamagedPacket, DamagedPicture, Rejected, UnitLength};
        matches!(self, DamagedPacket { .. } | DamagedPicture { .. } | Rejected { .. } | UnitLength { .. })
    }
}

fn tracks_of(tracks: usize) -> String {
    match tracks {
        0 => "only a cover picture, which has no number; leave out track=".to_owned(),
        1 => "1 video track, track=0".to_owned(),
        _ => format!("{tracks} video tracks, track=0 to {}", tracks - 1),
    }
}

fn or_earlier(in_flight: u32) -> String {
    if in_flight == 0 { String::new() } else { format!(" (or one of the {in_flight} before it)") }
}

/// Returns libav's text for an error code, also for an unknown one.
pub(crate) fn libav_message(code: c_int) -> String {
    let mut text = [0; 256];
    // SAFETY: the buffer has the stated length; av_strerror always ends the text with a zero, for
    // unknown codes too.
    let text = unsafe {
        ff::av_strerror(code, text.as_mut_ptr(), text.len());
        CStr::from_ptr(text.as_ptr())
    };
    text.to_string_lossy().into_owned()
}
