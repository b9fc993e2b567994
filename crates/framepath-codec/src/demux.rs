// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demuxer: reads the packets of one video track of a file or of a network stream.

mod network;
mod origin;
mod seek;

pub use network::{NetworkProtocol, NetworkStream};

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ffmpeg_sys_next as ff;
use framepath_model::parameter_sets::in_band;
use framepath_model::stream::{Rational, StreamInfo};

use self::origin::DemuxerInput;
use crate::codec::codec_name;
use crate::container::{self, Formats};
use crate::error::libav_message;
use crate::input::{ContainerInput, INTERRUPT, MediaFile};
use crate::libav_format::pixel_format;
use crate::palette;
use crate::picture::stream_orientation;
use crate::shortage::Shortage;
use crate::track::{Parameters, TrackInfo};
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
    /// Identity of the track's first packet, by which a rewind checks its result; `None` before the
    /// first read.
    first: Option<Mark>,
    /// Packet that a seek, a rewind or [`skip_to_key`](Demuxer::skip_to_key) has read already; the
    /// next [`read`](Demuxer::read) returns this packet.
    read_ahead: Option<Packet>,
    /// State of marking packets as discarded after a seek; `None` if no packet has to be marked.
    marking: Option<seek::Marking>,
    /// True if the next [`read`](Demuxer::read) returns the first packet after a seek or
    /// [`skip_to_key`](Demuxer::skip_to_key).
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
        Ok(Demuxer {
            context,
            input,
            name,
            info,
            track,
            formats,
            stream,
            packets: 0,
            first,
            read_ahead,
            marking,
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
    /// file is recorded as blocked.
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
        }
        let Some(mut packet) = packet else { return Ok(None) };
        packet.preroll_mut().restarts = std::mem::take(&mut self.restarts);
        if let Some(marking) = &mut self.marking {
            if !marking.mark(&mut packet) {
                self.marking = None;
            }
        }
        Ok(Some(packet))
    }

    fn read_next(&mut self) -> Result<Option<Packet>, CodecError> {
        let mut packet = Packet::new().ok_or_else(|| self.demux_error("read", ff::AVERROR(libc::ENOMEM)))?;
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
            if matches!(self.input, DemuxerInput::Network { .. }) {
                if code == ff::AVERROR(libc::EAGAIN) {
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
            let packet = self.with_palette(packet)?;
            self.packets += 1;
            return Ok(Some(packet));
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
    /// packet, with the same timestamps as the first time.
    ///
    /// # Errors
    /// The input is not a regular file (a pipe, a device or a network stream), or the file can no
    /// longer be read or opened as a container.
    pub fn rewind(&mut self) -> Result<(), CodecError> {
        let io_error = |file: String, source| CodecError::Io { file, operation: "rewind", source };
        if !self.input.is_seekable() {
            return Err(io_error(self.name(), std::io::Error::from_raw_os_error(libc::ESPIPE)));
        }
        (self.read_ahead, self.marking, self.restarts) = (None, None, false);
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

/// An open `AVFormatContext`, closed on drop.
struct Context(NonNull<ff::AVFormatContext>);

// SAFETY: owned by one demuxer, and libavformat binds nothing to a thread.
unsafe impl Send for Context {}

impl Context {
    /// Opens the container that `input` reads, and selects the video track with the number `track`,
    /// or the best one. libavformat discards the packets of other streams. Returns the context and
    /// the index of the track's stream. Fails for a network.
    fn open(
        name: &str,
        input: &mut DemuxerInput,
        track: Option<usize>,
        formats: Formats,
    ) -> Result<(Context, c_int), CodecError> {
        let DemuxerInput::File(file_input) = input else {
            return Err(CodecError::CannotSeek { file: name.to_owned(), reason: "it comes from a network" });
        };
        let file = || name.to_owned();
        let failed =
            |operation, code| CodecError::Demux { file: file(), operation, message: libav_message(code) };
        // libav uses only the extension of the name. A name with a zero byte cannot have been
        // opened.
        let c_name = CString::new(name).unwrap_or_default();
        // Watches the index, the tracks and the first packets: if a part was dropped for lack of
        // memory, it would be missing later, or another track would be selected.
        let shortage = Shortage::watch();
        let no_memory = || CodecError::Memory { file: file(), operation: "look into" };
        // SAFETY: the I/O context is valid and at the start; the format's description is a static
        // of libavformat. Bytes read for the probe are read again.
        let probe = |input: &mut ContainerInput, name: &CStr| unsafe {
            let mut format = ptr::null();
            let code =
                ff::av_probe_input_buffer2(input.as_ptr(), &mut format, name.as_ptr(), ptr::null_mut(), 0, 0);
            (code, format)
        };
        let (mut code, mut format) = probe(file_input, &c_name);
        // SAFETY: a description that was found; its name is a static string.
        if code >= 0 && !format.is_null() && unsafe { CStr::from_ptr((*format).name) } == c"image2" {
            // By the file's name, libavformat takes a picture for a part of an image sequence.
            // Without the name, the picture's own bytes decide.
            (code, format) = probe(file_input, c"");
        }
        if code < 0 || format.is_null() {
            return Err(io_or(input, name, failed("open", code)));
        }
        // SAFETY: a description found above; its name is a static string.
        let (found, flags) = unsafe { (CStr::from_ptr((*format).name).to_string_lossy(), (*format).flags) };
        container::check(name, &found, flags & ff::AVFMT_NOFILE as c_int != 0, formats)?;

        // SAFETY: the context is new and reads through `input`, which the caller keeps longer.
        // avformat_open_input frees it on failure. The options dictionary is freed in any case.
        // Streams are read within `nb_streams`.
        unsafe {
            let mut raw = ff::avformat_alloc_context();
            if raw.is_null() {
                return Err(failed("open", ff::AVERROR(libc::ENOMEM)));
            }
            (*raw).pb = file_input.as_ptr();
            (*raw).io_open = Some(refuse_to_open);
            (*raw).interrupt_callback = INTERRUPT;
            let mut options = ptr::null_mut();
            for (key, value) in formats.limits() {
                ff::av_dict_set(&mut options, key.as_ptr(), value.as_ptr(), 0);
            }
            let code = ff::avformat_open_input(&mut raw, c_name.as_ptr(), format, &mut options);
            ff::av_dict_free(&mut options);
            if shortage.occurred() {
                ff::avformat_close_input(&mut raw);
                return Err(no_memory());
            }
            let context = match NonNull::new(raw) {
                Some(raw) if code >= 0 => Context(raw),
                _ => return Err(io_or(input, name, failed("open", code))),
            };
            if formats == Formats::Known && context.shows_other_codec() {
                // Returns here, before the parser of that codec runs.
                return Err(CodecError::OtherCodec { file: file() });
            }
            context.select(name, input, track, &shortage)
        }
    }

    /// Reads the properties of the streams, and selects the video track with the number `track`, or the best
    /// one. Returns the context and the index of the track's stream. libavformat discards the packets of other
    /// streams. `shortage` has watched since before the context was opened.
    fn select(
        self,
        name: &str,
        input: &mut DemuxerInput,
        track: Option<usize>,
        shortage: &Shortage,
    ) -> Result<(Context, c_int), CodecError> {
        let file = || name.to_owned();
        let failed =
            |operation, code| CodecError::Demux { file: file(), operation, message: libav_message(code) };
        let no_memory = || CodecError::Memory { file: file(), operation: "look into" };
        let context = self;
        // SAFETY: an open context. Streams are read within `nb_streams`.
        unsafe {
            let raw = context.0.as_ptr();
            let code = ff::avformat_find_stream_info(raw, ptr::null_mut());
            if shortage.occurred() {
                return Err(no_memory());
            }
            if code < 0 {
                return Err(io_or(input, name, failed("read the stream's head", code)));
            }
            let best =
                ff::av_find_best_stream(raw, ff::AVMediaType::AVMEDIA_TYPE_VIDEO, -1, -1, ptr::null_mut(), 0);
            if best < 0 {
                return Err(io_or(input, name, CodecError::NoVideo { file: file() }));
            }
            let stream = match track {
                None => best,
                Some(track) => {
                    let videos = context.video_streams();
                    let tracks = videos.len();
                    let no_track = CodecError::NoTrack { file: file(), track, tracks };
                    *videos.get(track).ok_or(no_track)?
                }
            };
            for index in 0..(*raw).nb_streams as usize {
                if index != stream as usize {
                    (**(*raw).streams.add(index)).discard = ff::AVDiscard::AVDISCARD_ALL;
                }
            }
            Ok((context, stream))
        }
    }

    /// Returns true if the container's head names a codec outside [`Codec::KNOWN`] for one of the video tracks, or,
    /// in a file without video tracks, for a cover picture. Some containers (MPEG-TS, MPEG-PS) have no such head.
    fn shows_other_codec(&self) -> bool {
        let mut streams = self.video_streams();
        if streams.is_empty() {
            streams = self.pictures(true);
        }
        streams.into_iter().any(|stream| {
            // SAFETY: an open context with this stream; the enum is read as the integer that it is in C.
            let id = unsafe {
                let parameters = (**(*self.0.as_ptr()).streams.add(stream as usize)).codecpar;
                (&raw const (*parameters).codec_id).cast::<u32>().read()
            };
            // Without a number, the codec shows later ([`Demuxer::open_track`]).
            let is_known = Codec::KNOWN.into_iter().any(|codec| codec.id() == id);
            id != ff::AVCodecID::AV_CODEC_ID_NONE as u32 && !is_known
        })
    }

    /// Returns the indices of the streams that are video tracks, in the order of the file; cover
    /// pictures are left out.
    fn video_streams(&self) -> Vec<c_int> {
        self.pictures(false)
    }

    /// Returns the indices of the cover pictures if `covers` is true, otherwise those of the video
    /// tracks, in the order of the file.
    fn pictures(&self, covers: bool) -> Vec<c_int> {
        let video = ff::AVMediaType::AVMEDIA_TYPE_VIDEO as c_int;
        // SAFETY: an open context; streams are read within `nb_streams`, and enums as integers as
        // in C.
        let is_wanted = |index: &usize| unsafe {
            let stream: *mut ff::AVStream = *(*self.0.as_ptr()).streams.add(*index);
            let is_cover = (*stream).disposition & ff::AV_DISPOSITION_ATTACHED_PIC as c_int != 0;
            (&raw const (*(*stream).codecpar).codec_type).cast::<c_int>().read() == video
                && is_cover == covers
        };
        // SAFETY: as above.
        let count = unsafe { (*self.0.as_ptr()).nb_streams as usize };
        (0..count).filter(is_wanted).map(|index| index as c_int).collect()
    }

    fn track(&self, name: &str, stream: c_int) -> Result<TrackInfo, CodecError> {
        let file = || name.to_owned();
        // SAFETY: `stream` came from av_find_best_stream on this context, so the stream and its
        // parameters exist. Enum fields are read as integers as in C, because a newer library may
        // have new values.
        unsafe {
            let raw = self.0.as_ptr();
            let stream: *mut ff::AVStream = *(*raw).streams.add(stream as usize);
            let parameters = (*stream).codecpar;
            let id = (&raw const (*parameters).codec_id).cast::<u32>().read();
            let Some(codec) = Codec::from_id(id) else {
                return Err(CodecError::UnsupportedCodec {
                    file: file(),
                    codec: unknown_codec(id, (*parameters).codec_tag),
                });
            };
            let side = |length: c_int| u32::try_from(length).unwrap_or(0);
            let info = StreamInfo {
                format: pixel_format((*parameters).format),
                width: side((*parameters).width),
                height: side((*parameters).height),
                time_base: rational((*stream).time_base),
                frame_rate: rational(ff::av_guess_frame_rate(raw, stream, ptr::null_mut())),
                sample_aspect: rational(ff::av_guess_sample_aspect_ratio(raw, stream, ptr::null_mut())),
                orientation: stream_orientation(stream),
            };
            let parameters = Parameters::copy_of(parameters).ok_or_else(|| CodecError::Demux {
                file: file(),
                operation: "copy the stream's parameters",
                message: libav_message(ff::AVERROR(libc::ENOMEM)),
            })?;
            Ok(TrackInfo { codec, stream: info, parameters: Arc::new(parameters) })
        }
    }

    /// Makes libavformat calculate presentation times that the container leaves out (MPEG program
    /// streams), from the decoding times of later packets. Does nothing for the codecs of
    /// [`Codec::KNOWN`], whose packets stay without the time.
    fn complete_times(&mut self, info: &TrackInfo) {
        if matches!(info.codec, Codec::Other(_)) {
            // SAFETY: a valid context, between two reads.
            unsafe { (*self.0.as_ptr()).flags |= ff::AVFMT_FLAG_GENPTS as c_int };
        }
    }

    /// Returns the earliest presentation time of the stream, in ticks; `None` if it is not known.
    fn start(&self, stream: c_int) -> Option<i64> {
        // SAFETY: the context is valid and has this stream.
        let start = unsafe { (**(*self.0.as_ptr()).streams.add(stream as usize)).start_time };
        (start != ff::AV_NOPTS_VALUE).then_some(start)
    }

    /// Returns true if the stream is declared as interlaced: a packet may then be a field, half of
    /// a picture.
    fn has_fields(&self, stream: c_int) -> bool {
        // SAFETY: the context is valid and has this stream; the enum is read as the
        // integer that it is in C.
        let order = unsafe {
            let parameters = (**(*self.0.as_ptr()).streams.add(stream as usize)).codecpar;
            (&raw const (*parameters).field_order).cast::<c_int>().read()
        };
        ![ff::AVFieldOrder::AV_FIELD_UNKNOWN as c_int, ff::AVFieldOrder::AV_FIELD_PROGRESSIVE as c_int]
            .contains(&order)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let mut raw = self.0.as_ptr();
        // SAFETY: opened by avformat_open_input, closed only here. The I/O context belongs to
        // `input` and stays.
        unsafe { ff::avformat_close_input(&mut raw) };
    }
}

/// Takes the error of a failed read of `input` and returns it as [`CodecError::Io`]; returns `error` if
/// no read has failed.
fn io_or(input: &mut DemuxerInput, name: &str, error: CodecError) -> CodecError {
    match input.take_error() {
        Some(source) => CodecError::Io { file: name.to_owned(), operation: "read", source },
        None => error,
    }
}

/// Returns a name for a codec without a decoder: libavcodec's name for the number `id`, or the
/// container's tag if `id` is the number for no codec.
fn unknown_codec(id: u32, tag: u32) -> String {
    if id != ff::AVCodecID::AV_CODEC_ID_NONE as u32 {
        return codec_name(id).to_owned();
    }
    let letters = tag.to_le_bytes().map(|byte| char::from(byte).escape_default().to_string());
    format!("tag {tag:#010x} `{}`", letters.concat())
}

/// Callback for demuxers that try to open another file: opens nothing and returns `EACCES`.
unsafe extern "C" fn refuse_to_open(
    _context: *mut ff::AVFormatContext,
    _io: *mut *mut ff::AVIOContext,
    _url: *const c_char,
    _flags: c_int,
    _options: *mut *mut ff::AVDictionary,
) -> c_int {
    ff::AVERROR(libc::EACCES)
}

fn rational(value: ff::AVRational) -> Rational {
    Rational::new(value.num, value.den)
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
