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
    /// An operation on the input failed: a system call, a request to the process that reads the
    /// file, the allocation of the read buffer, or the rewind of an input that is not a regular
    /// file. Also if a signal canceled an open or a read, or a stop request canceled a read.
    #[error("{file}: cannot {operation}: {source}")]
    Io {
        /// Name of the input: the path as specified by the user, `standard input`, or for a network
        /// stream `connection` (RTSP) or `session` (SDP).
        file: String,
        /// Failed operation: `open`, `stat`, `read` or `rewind`.
        operation: &'static str,
        /// Error of the operating system: ECANCELED after a signal or a stop request, EIO or an
        /// error of the socket for a failed request, ESPIPE for the rewind of an input that is not
        /// a regular file. [`io::ErrorKind::OutOfMemory`] for the read buffer.
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
        /// Path, as specified by the user.
        file: String,
    },
    /// The file has a format that refers to other files or to network addresses, or makes pictures
    /// from a text (`lavfi`); or libavformat's demuxer for the format opens its input itself.
    #[error("{file}: a playlist ({container}) is not supported; use the media file itself")]
    Playlist {
        /// Name of the file: the path as specified by the user, or `standard input`.
        file: String,
        /// libavformat's name of the format; the first name if the format has several.
        container: String,
    },
    /// The container of the file is not one of [`containers`](crate::containers), and only
    /// [`Formats::Known`](crate::Formats::Known) may be read.
    #[error(
        "{file}: container {container} is not supported; supported: {}",
        crate::containers().collect::<Vec<_>>().join(", ")
    )]
    UnsupportedContainer {
        /// Name of the file: the path as specified by the user, or `standard input`.
        file: String,
        /// libavformat's name of the container; the first name if the container has several.
        container: String,
    },
    /// A video codec outside [`Codec::KNOWN`](crate::Codec::KNOWN), while only
    /// [`Formats::Known`](crate::Formats::Known) may be read in this process. Either the head of
    /// the container names this codec for any video track, or for a cover picture of a file without
    /// video tracks; or the selected track turns out to have the codec.
    #[error(
        "{file}: has a codec other than H.264, HEVC, VP8, VP9 and AV1; open it with `Formats::All`, in a sandbox"
    )]
    OtherCodec {
        /// Name of the file: the path as specified by the user, or `standard input`.
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
    /// libavformat failed on the input or a part of it, there is no memory for libavformat's
    /// context, the track's parameters or a packet, the file has no packet to repeat, or a network
    /// stream ended without the sender's goodbye (RTCP BYE).
    #[error("{file}: cannot {operation}: {message}")]
    Demux {
        /// Name of the input: the path as specified by the user, `standard input`, or for a network
        /// stream `connection` (RTSP) or `session` (SDP).
        file: String,
        /// Failed operation, as a verb phrase.
        operation: &'static str,
        /// Message of libavformat; this crate's own if the file has no packet to repeat, or the
        /// stream ended without a goodbye; both if an RTSP server sent no valid answer.
        message: String,
    },
    /// The demuxer had not enough memory for a part of the file or of the network stream.
    #[error(
        "{file}: cannot {operation} the file: out of memory; if the demuxer runs in a worker, raise `memory=`"
    )]
    Memory {
        /// Name of the input: the path as specified by the user, `standard input`, or for a network
        /// stream `connection` (RTSP) or `session` (SDP).
        file: String,
        /// Failed operation, as a verb whose object is the file: `open`, `read` or `look into`.
        operation: &'static str,
    },
    /// The file was opened but has no video.
    #[error("{file}: no video stream")]
    NoVideo {
        /// Name of the input: the path as specified by the user, `standard input`, or for a network
        /// stream `connection` (RTSP) or `session` (SDP).
        file: String,
    },
    /// The requested video track does not exist.
    #[error("{file}: no video track {track}; the file has {}", tracks_of(*.tracks))]
    NoTrack {
        /// Name of the input: the path as specified by the user, `standard input`, or for a network
        /// stream `connection` (RTSP) or `session` (SDP).
        file: String,
        /// Requested track number, from 0.
        track: usize,
        /// Number of video tracks in the file; 0 if it has only a cover picture.
        tracks: usize,
    },
    /// The input is not a regular file, the time is out of range, or the stream has neither
    /// timestamps nor a frame rate.
    #[error("{file}: cannot seek: {reason}")]
    CannotSeek {
        /// Name of the input: the path as specified by the user, `standard input`, or for a network
        /// stream `connection` (RTSP) or `session` (SDP).
        file: String,
        /// Reason why the seek is not possible.
        reason: &'static str,
    },
    /// A packet changes the size of the NAL unit length fields, or changes between length fields
    /// and start codes.
    #[error(
        "{file}: packet {packet} has another codec configuration, with NAL unit lengths of another size, which is \
         not supported"
    )]
    OtherFraming {
        /// Name of the input: the path as specified by the user, `standard input`, or for a network
        /// stream `connection` (RTSP) or `session` (SDP).
        file: String,
        /// Number of packets of the track that the demuxer has read before this one since the file
        /// was opened or rewound. Packets that the demuxer reads while it seeks count. A seek may
        /// rewind the file.
        packet: u64,
    },
    /// The container marks a packet as damaged, or ends or is damaged inside it, or packets of a
    /// network stream were lost before it. The stage `decode` returns this error with
    /// `damage=stop`. This crate never returns the error: its demuxer only marks the packet
    /// ([`Packet::is_damaged`](crate::Packet::is_damaged)).
    #[error(
        "{codec}: the demuxer reports that packet {packet} is damaged or cut short; damage=show and damage=skip go on"
    )]
    DamagedPacket {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// Number of the packet, from 0, in the order of the source.
        packet: u64,
    },
    /// The installed libavcodec has no software decoder for the codec of the video, which is
    /// outside [`Codec::KNOWN`](crate::Codec::KNOWN). (For a known codec, the decoder reports
    /// [`CodecError::NoDecoder`].)
    #[error("{file}: the installed libavcodec has no software decoder for the codec {codec}")]
    UnsupportedCodec {
        /// Name of the input: the path as specified by the user, `standard input`, or for a network
        /// stream `connection` (RTSP) or `session` (SDP).
        file: String,
        /// Name of the codec in libavcodec, or the tag in the container.
        codec: String,
    },
    /// framepath does not support the format of the decoder's pictures and cannot convert it to a
    /// supported one, for example for lack of memory; or a picture in a supported format lacks a
    /// plane, so that it cannot be copied.
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
    /// The installed libavcodec has no software decoder for this codec; for AV1 in
    /// [`bare`](crate::bare), no wrapper of dav1d.
    #[error(
        "{codec}: the installed libavcodec has no software decoder for this codec; install a build that has one"
    )]
    NoDecoder {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
    },
    /// A call of a decoder library failed, the memory provider failed, or the decoder output a
    /// picture again with another layout after the picture was converted.
    #[error("{codec}: cannot {operation}: {message}")]
    Decoder {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// Failed operation, as a verb phrase.
        operation: &'static str,
        /// Message of the library or of the memory provider; this crate's own for a repeated
        /// picture.
        message: String,
    },
    /// A software decoder had not enough memory for a packet or a picture.
    #[error("{codec}: out of memory; if the decoder runs in a worker, raise `memory=`, or use fewer threads")]
    DecoderMemory {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
    },
    /// The decoder rejected a packet.
    #[error("{codec}: packet {packet}{earlier} rejected: {message}", earlier = or_earlier(*.in_flight))]
    Rejected {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// Number of the rejected packet, from 0, in the order of sending since the decoder was
        /// opened. Packets that a [`Decoder`](crate::Decoder) ignores, such as empty ones, do not
        /// count. The last packet sent if the library does not report which packet failed.
        packet: u64,
        /// Number of earlier packets that may have caused the error as well, because a decoder with
        /// several threads reports a rejection only after later packets were sent. 0 if only `packet`
        /// can be the cause.
        in_flight: u32,
        /// Message of the decoder library.
        message: String,
    },
    /// The decoder reports that the picture it made of a packet is damaged. The picture is
    /// withheld, because parts of it may be wrong. Without
    /// [`DecoderOptions::conceals`](crate::DecoderOptions::conceals) only.
    #[error("{codec}: the picture of packet {packet} is damaged")]
    DamagedPicture {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
        /// Number of the packet, from 0, in the order of sending since the decoder was opened.
        /// Packets that the decoder ignores, such as empty ones, do not count. 0 also if the
        /// decoder does not report the packet.
        packet: u64,
    },
    /// A packet was sent before all frames of the earlier packets were received.
    #[error("{codec}: packet sent too early; receive all frames of the last packet first")]
    NotDrained {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
    },
    /// A software decoder needs another slot, but it holds all slots of its pool (or of the
    /// provider's pool) itself, and no frame uses any of them.
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
    /// The frame pool could not be created, the slots of a provider are too small, or no slot of
    /// the pool could be taken. If a software decoder holds all slots itself, the error is
    /// [`CodecError::PoolTooSmall`].
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
    /// A plane of a decoded picture is not inside its slot, or dav1d output a picture with a
    /// negative stride or without a slot. Also if a picture cannot be copied into a slot because of
    /// an earlier failure.
    #[error("{codec}: decoded picture is outside its slot")]
    OutsideSlot {
        /// Name of the codec, as in libavcodec.
        codec: &'static str,
    },
}

impl CodecError {
    /// Returns true if the error means damage of the stream, so that decoding can restart at a
    /// later packet: [`DamagedPacket`](CodecError::DamagedPacket),
    /// [`DamagedPicture`](CodecError::DamagedPicture), [`Rejected`](CodecError::Rejected) and
    /// [`UnitLength`](CodecError::UnitLength).
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

/// Returns libav's text for an error code; a text with the number for a code that libav does not
/// know.
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
