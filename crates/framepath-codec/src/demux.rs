// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demuxer: reads the packets of one video track of a file, of an image sequence or of a network stream.

mod context;
mod gradual;
mod network;
mod origin;
mod pictures;
mod seek;

pub use network::{NetworkProtocol, NetworkStream};
pub use pictures::write_chunk;

use std::ffi::c_int;
use std::fmt;
use std::path::Path;
use std::time::Instant;

use ffmpeg_sys_next as ff;
use framepath_model::access_point::{AccessPoints, RandomAccess};
use framepath_model::parameter_sets::in_band;

use self::context::Context;
use self::origin::DemuxerInput;
use crate::container::Formats;
use crate::error::libav_message;
use crate::input::{ContainerInput, MediaFile};
use crate::palette;
use crate::shortage::Shortage;
use crate::track::TrackInfo;
use crate::{Codec, CodecError, Packet};

/// Reader for the packets of one video track of a file or of a network stream. A demuxer may move
/// between threads.
pub struct Demuxer {
    // Dropped before `input`, from which the context reads.
    context: Context,
    input: DemuxerInput,
    name: String,
    info: TrackInfo,
    /// Requested video track, from 0; `None` for the best by libavformat's rating.
    track: Option<usize>,
    formats: Formats,
    stream: c_int,
    packets: u64,
    /// Verifier of the packets' key flags.
    points: AccessPoints,
    /// True if the bytes of the packet that was read last refute its key flag.
    is_refuted: bool,
    /// Class of the packet that was read last, by its bytes, if the container flags it; else `None`.
    claim: Option<RandomAccess>,
    /// Identity of the track's first packet, by which a rewind checks its result; `None` before the
    /// first read.
    first: Option<Mark>,
    /// True if the track's first packet makes a decoder forget all earlier packets: a repetition needs no restart.
    first_resets: bool,
    /// Packet that a seek, a rewind or [`skip_to_key`](Demuxer::skip_to_key) has read already; the
    /// next [`read`](Demuxer::read) returns this packet.
    read_ahead: Option<Packet>,
    /// State of marking packets as discarded after a seek; `None` if no packet has to be marked.
    marking: Option<seek::Marking>,
    /// Search for the end of the gradual refresh at which decoding has started; `None` if no refresh has
    /// to be completed. All packets are marked as discarded until it is found.
    recovery: Option<gradual::LandingSearch>,
    /// True if the next [`read`](Demuxer::read) returns the first packet after a seek or
    /// [`skip_to_key`](Demuxer::skip_to_key), or after a rewind that a decoder would notice.
    restarts: bool,
    /// True once libavformat has reported invalid data in place of a packet (AVERROR_INVALIDDATA)
    /// since the file was opened or rewound. The second such report is the end of the file.
    is_unreadable: bool,
    /// Last palette of the stream, with the marker of [`palette`] in front; `None` before the
    /// first.
    palette: Option<Vec<u8>>,
    /// Number of packets of the network that were lost since the last [`take_lost`](Demuxer::take_lost).
    lost: u64,
}

/// Identity of a packet among all packets of a file: its position in the file (bytes, as
/// libavformat reports it), presentation time and length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    position: i64,
    pts: Option<i64>,
    length: usize,
}

impl Mark {
    fn of(packet: &Packet) -> Mark {
        // SAFETY: a valid packet.
        let position = unsafe { (*packet.as_ptr()).pos };
        Mark { position, pts: packet.meta().pts, length: packet.len() }
    }
}

impl Demuxer {
    /// Opens `path` and reads its first packets in this process. The parsers of the container and
    /// of the codecs read untrusted bytes here.
    ///
    /// # Errors
    /// As [`MediaFile::open`] and [`Demuxer::new`].
    pub fn open(path: &Path) -> Result<Demuxer, CodecError> {
        Demuxer::new(MediaFile::open(path)?)
    }

    /// Creates a demuxer for the video track of `file` that libavformat rates best, and reads the
    /// file's first packets. Reads the formats of [`Formats::Known`]. Opens no other file, even if
    /// `file` refers to others.
    ///
    /// # Errors
    /// The file cannot be read, is not a container of [`Formats::Known`], is a playlist, has no
    /// video or none that libavcodec decodes, or has a video codec outside [`Codec::KNOWN`] (see
    /// [`CodecError::OtherCodec`]); or there is not enough memory.
    pub fn new(file: MediaFile) -> Result<Demuxer, CodecError> {
        Demuxer::open_track(file, None, Formats::Known)
    }

    /// Creates a demuxer as [`Demuxer::new`] does, for the video track with the number `track`.
    /// Tracks count from 0 in the order of the file, without cover pictures. `None` selects the
    /// best track by libavformat's rating. libavformat uses the demuxers and decoders of `formats`.
    ///
    /// # Errors
    /// As [`Demuxer::new`], but for `formats`: with [`Formats::All`], any container except
    /// playlists and any video that libavcodec decodes is possible. [`CodecError::NoTrack`] if the
    /// file has no such track.
    pub fn open_track(
        file: MediaFile,
        track: Option<usize>,
        formats: Formats,
    ) -> Result<Demuxer, CodecError> {
        let name = file.name().to_owned();
        if file.is_sequence() {
            return match formats {
                // Each file could have another codec.
                Formats::Known => Err(CodecError::OtherCodec { file: name }),
                Formats::All => Demuxer::open_pictures(file, track),
            };
        }
        let mut input = DemuxerInput::File(ContainerInput::new(file)?);
        let (context, stream) = Context::open(&name, &mut input, track, formats)?;
        let demuxer = Demuxer::from_parts(name, input, context, stream, (track, formats))?;
        if formats == Formats::Known && matches!(demuxer.info.codec, Codec::Other(_)) {
            return Err(CodecError::OtherCodec { file: demuxer.name });
        }
        Ok(demuxer)
    }

    fn from_parts(
        name: String,
        input: DemuxerInput,
        mut context: Context,
        stream: c_int,
        (track, formats): (Option<usize>, Formats),
    ) -> Result<Demuxer, CodecError> {
        let info = context.track(&name, stream)?;
        context.complete_times(&info);
        let (first, read_ahead, marking) = (None, None, None);
        let points = info.access_points();
        Ok(Demuxer {
            context,
            input,
            name,
            info,
            track,
            formats,
            stream,
            packets: 0,
            points,
            is_refuted: false,
            claim: None,
            first,
            first_resets: false,
            read_ahead,
            marking,
            recovery: None,
            restarts: false,
            is_unreadable: false,
            palette: None,
            lost: 0,
        })
    }

    /// Returns the properties of the video track.
    pub fn info(&self) -> &TrackInfo {
        &self.info
    }

    /// Returns the next packet of the video; `None` at the end. An empty damaged packet stands for
    /// a part of the file, mostly the rest, that libavformat cannot read. The time of reading the
    /// file is recorded as blocked. A key flag of the container is removed from a packet whose
    /// bytes refute the flag: see [`RandomAccess`].
    ///
    /// # Errors
    /// The file cannot be read further, or changes the size of NAL unit lengths; a network stream
    /// ended without the sender's goodbye; or there is not enough memory. Earlier packets were
    /// returned. Damage is no error: see [`Packet::is_damaged`].
    pub fn read(&mut self) -> Result<Option<Packet>, CodecError> {
        let packet = match self.read_ahead.take() {
            Some(packet) => Some(packet),
            None => self.read_next()?,
        };
        if self.first.is_none() {
            self.first = packet.as_ref().map(Mark::of);
            let resets =
                |packet: &Packet| packet.is_key() && self.points.resets(packet.bytes().unwrap_or_default());
            self.first_resets = packet.as_ref().is_some_and(resets);
        }
        let Some(mut packet) = packet else { return Ok(None) };
        packet.preroll_mut().restarts = std::mem::take(&mut self.restarts);
        self.mark_recovery(&mut packet);
        if let Some(marking) = &mut self.marking {
            if !marking.mark(&mut packet) {
                self.marking = None;
            }
        }
        Ok(Some(packet))
    }

    fn read_next(&mut self) -> Result<Option<Packet>, CodecError> {
        let mut packet = Packet::new().ok_or_else(|| self.demux_error("read", ff::AVERROR(libc::ENOMEM)))?;
        (self.is_refuted, self.claim) = (false, None);
        if let DemuxerInput::Pictures(files) = &mut self.input {
            let Some(mut packet) = files.next(&self.name, &self.info)? else { return Ok(None) };
            self.verify_key(&mut packet);
            self.packets += 1;
            return Ok(Some(packet));
        }
        let since = Instant::now();
        loop {
            let shortage = Shortage::watch();
            // SAFETY: both are valid; av_read_frame fills the empty packet.
            let code = unsafe { ff::av_read_frame(self.context.0.as_ptr(), packet.as_ptr()) };
            // Checked before the code, because a demuxer reports success if it drops a packet for
            // lack of memory.
            if shortage.occurred() {
                return Err(CodecError::Memory { file: self.name(), operation: "read" });
            }
            if let Some(source) = self.input.take_error() {
                return Err(CodecError::Io { file: self.name(), operation: "read", source });
            }
            if let DemuxerInput::Network { patience, .. } = self.input {
                let is_early = code == ff::AVERROR(libc::ETIMEDOUT) && since.elapsed() < patience;
                if code == ff::AVERROR(libc::EAGAIN) || is_early {
                    continue;
                }
                self.count_lost(&mut packet);
                self.check_end(code)?;
            }
            if code == ff::AVERROR_INVALIDDATA && !self.is_unreadable {
                // libavformat cannot read a part of the file, mostly the rest. An empty damaged
                // packet stands for this part.
                self.is_unreadable = true;
                self.packets += 1;
                packet.set_damaged();
                return Ok(Some(packet));
            }
            // Some demuxers (RoQ) report the end of the file as an I/O error. Errors of the file
            // itself were returned above.
            let is_end = code == ff::AVERROR(libc::EIO) && self.input.is_at_end();
            if code == ff::AVERROR_EOF || code == ff::AVERROR_INVALIDDATA || is_end {
                return Ok(None);
            }
            if code < 0 {
                return Err(self.demux_error("read", code));
            }
            // SAFETY: av_read_frame succeeded, so the packet is filled.
            let raw = unsafe { &mut *packet.as_ptr() };
            if raw.stream_index != self.stream {
                // SAFETY: releases the buffer of a packet of another stream; the packet stays
                // valid and empty.
                unsafe { ff::av_packet_unref(raw) };
                continue;
            }
            // AV_PKT_FLAG_DISCARD: an edit list excludes the packet. The flag is not passed on:
            // libavcodec handles the flag wrongly for pictures that a later packet shows (VP9), and
            // dav1d does not support it.
            packet.preroll_mut().discarded = raw.flags & ff::AV_PKT_FLAG_DISCARD as c_int != 0;
            raw.flags &= !(ff::AV_PKT_FLAG_DISCARD as c_int);
            packet.meta_mut().pts = (raw.pts != ff::AV_NOPTS_VALUE).then_some(raw.pts);
            packet.meta_mut().duration = raw.duration;
            packet.meta_mut().orientation = self.info.stream.orientation;
            let packet = self.with_new_head(packet)?;
            let mut packet = self.with_palette(packet)?;
            self.verify_key(&mut packet);
            self.packets += 1;
            return Ok(Some(packet));
        }
    }

    /// Removes the key flag of `packet`, the one that was read last, if its bytes refute the flag.
    fn verify_key(&mut self, packet: &mut Packet) {
        if packet.is_key() {
            self.claim = self.points.inspect(packet.bytes().unwrap_or_default(), true, true);
        }
        // Matroska stores the flag outside the bytes, and MP4 without `stss` flags all packets.
        self.is_refuted = matches!(self.claim, Some(RandomAccess::Picture { .. }));
        if self.is_refuted {
            packet.clear_key();
        }
    }

    /// Returns `packet`. If the codec's head changes at the packet, puts the new head's parameter
    /// sets in front of the packet's bytes, because a head beside a packet would not reach decoders
    /// in other processes. Fails if the new head changes the form or size of NAL unit lengths, or
    /// without memory.
    fn with_new_head(&self, packet: Packet) -> Result<Packet, CodecError> {
        let Some(new) = packet.new_head() else { return Ok(packet) };
        let sets = in_band(self.info.coding(), self.info.head(), new);
        let sets =
            sets.ok_or_else(|| CodecError::OtherFraming { file: self.name(), packet: self.packets })?;
        packet.prefixed(&sets).ok_or_else(|| self.demux_error("read", ff::AVERROR(libc::ENOMEM)))
    }

    /// Returns `packet`, with the marker and the stream's last palette in front of its bytes if
    /// there is such a palette. Fails without memory.
    fn with_palette(&mut self, packet: Packet) -> Result<Packet, CodecError> {
        self.palette = palette::of_packet(&packet).or_else(|| self.palette.take());
        let Some(palette) = &self.palette else { return Ok(packet) };
        packet.prefixed(palette).ok_or_else(|| self.demux_error("read", ff::AVERROR(libc::ENOMEM)))
    }

    /// Goes back to the start of the file: the next [`read`](Demuxer::read) returns the first
    /// packet, with the same timestamps as the first time. Unless the first packet is known to make a decoder forget all earlier
    /// ones, it is marked as a restart: pictures in front of the first random access point, and leading pictures, would otherwise be
    /// decoded with references from the end of the file.
    ///
    /// # Errors
    /// The input is not a regular file (a pipe, a device or a network stream), or the file can no
    /// longer be read or opened as a container.
    pub fn rewind(&mut self) -> Result<(), CodecError> {
        let io_error = |file: String, source| CodecError::Io { file, operation: "rewind", source };
        if !self.input.is_seekable() {
            return Err(io_error(self.name(), std::io::Error::from_raw_os_error(libc::ESPIPE)));
        }
        (self.read_ahead, self.marking, self.restarts) = (None, None, !self.first_resets);
        self.recovery = None;
        (self.packets, self.is_unreadable) = (0, false);
        // Seeking is cheap, but misses the first packet in some containers.
        let shortage = Shortage::watch();
        if self.first.is_some() && self.context.seek_to_start(self.stream) && !shortage.occurred() {
            if let Ok(Some(packet)) = self.read_next() {
                if self.first == Some(Mark::of(&packet)) {
                    self.read_ahead = Some(packet);
                    return Ok(());
                }
            }
        }
        self.packets = 0;
        if let DemuxerInput::File(input) = &mut self.input {
            input.rewind().map_err(|source| io_error(self.name.clone(), source))?;
        }
        (self.context, self.stream) = Context::open(&self.name, &mut self.input, self.track, self.formats)?;
        self.context.complete_times(&self.info);
        Ok(())
    }

    /// Makes the error for a file that has to be repeated but has no packets.
    pub fn nothing_to_repeat(&self) -> CodecError {
        let message = "the file contains no packet".to_owned();
        CodecError::Demux { file: self.name(), operation: "repeat", message }
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn demux_error(&self, operation: &'static str, code: c_int) -> CodecError {
        CodecError::Demux { file: self.name(), operation, message: libav_message(code) }
    }
}

/// Stops the log output of FFmpeg's libraries to standard error, in the whole process
/// (`av_log_set_level`). Meant for programs, because these messages would mix with the program's
/// own; errors contain the needed text. This crate never calls it.
pub fn silence_ffmpeg() {
    // SAFETY: sets one global integer of libavutil.
    unsafe { ff::av_log_set_level(ff::AV_LOG_QUIET as c_int) };
}

impl fmt::Debug for Demuxer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Demuxer").field("name", &self.name).field("info", &self.info).finish_non_exhaustive()
    }
}
