// SPDX-License-Identifier: MIT OR Apache-2.0
//! libavformat's context of an open container: its streams, and the selection of the video track.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use ffmpeg_sys_next as ff;
use framepath_model::stream::{Rational, StreamInfo};

use super::origin::DemuxerInput;
use crate::codec::codec_name;
use crate::container::{self, Formats, MAX_TRACKS};
use crate::error::libav_message;
use crate::input::{ContainerInput, INTERRUPT};
use crate::libav_format::pixel_format;
use crate::picture::stream_orientation;
use crate::shortage::Shortage;
use crate::track::{Parameters, TrackInfo};
use crate::{Codec, CodecError};

/// An open `AVFormatContext`, closed on drop.
pub(super) struct Context(pub(super) NonNull<ff::AVFormatContext>);

// SAFETY: owned by one demuxer, and libavformat binds nothing to a thread.
unsafe impl Send for Context {}

impl Context {
    /// Opens the container that `input` reads, and selects the video track with the number `track`,
    /// or the best one. libavformat discards the packets of other streams. Returns the context and
    /// the index of the track's stream. Fails for an image sequence and a network.
    pub(super) fn open(
        name: &str,
        input: &mut DemuxerInput,
        track: Option<usize>,
        formats: Formats,
    ) -> Result<(Context, c_int), CodecError> {
        let DemuxerInput::File(file_input) = input else {
            return Err(CodecError::CannotSeek { file: name.to_owned(), reason: "it is no single file" });
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
                // libavformat refuses a track more with the error of lacking memory.
                _ if code == ff::AVERROR(libc::ENOMEM) => {
                    let message =
                        format!("it has more than {MAX_TRACKS} tracks, or asks for too much memory");
                    let error = CodecError::Demux { file: file(), operation: "open", message };
                    return Err(io_or(input, name, error));
                }
                // libavformat adds six bytes to the negative code of an invalid size.
                _ if found == "yuv4mpegpipe" && code == ff::AVERROR(libc::EBUSY) => {
                    let message = "the size of its pictures is out of range".to_owned();
                    return Err(CodecError::Demux { file: file(), operation: "open", message });
                }
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
    pub(super) fn select(
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

    /// Returns true if the input is a single picture (PNG, JPEG, ...) without a container: libavformat has a
    /// demuxer for a pipe of such pictures.
    pub(super) fn is_picture(&self) -> bool {
        // SAFETY: an open context, whose format is a static description with a static name.
        let name = unsafe { CStr::from_ptr((*(*self.0.as_ptr()).iformat).name) };
        name.to_bytes().ends_with(b"_pipe")
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

    pub(super) fn track(&self, name: &str, stream: c_int) -> Result<TrackInfo, CodecError> {
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
            let duration = declared_duration(raw, stream);
            Ok(TrackInfo { codec, stream: info, bit_rates: None, duration, parameters: Arc::new(parameters) })
        }
    }

    /// Makes libavformat calculate presentation times that the container leaves out (MPEG program
    /// streams), from the decoding times of later packets. Does nothing for the codecs of
    /// [`Codec::KNOWN`], whose packets stay without the time.
    pub(super) fn complete_times(&mut self, info: &TrackInfo) {
        if matches!(info.codec, Codec::Other(_)) {
            // SAFETY: a valid context, between two reads.
            unsafe { (*self.0.as_ptr()).flags |= ff::AVFMT_FLAG_GENPTS as c_int };
        }
    }

    /// Returns the earliest presentation time of the stream, in ticks; `None` if it is not known.
    pub(super) fn start(&self, stream: c_int) -> Option<i64> {
        // SAFETY: the context is valid and has this stream.
        let start = unsafe { (**(*self.0.as_ptr()).streams.add(stream as usize)).start_time };
        (start != ff::AV_NOPTS_VALUE).then_some(start)
    }

    /// Returns true if the stream is declared as interlaced: a packet may then be a field, half of
    /// a picture.
    pub(super) fn has_fields(&self, stream: c_int) -> bool {
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

/// Returns the time from the start of the stream to its end, as the container declares it; `None` if it declares none, or libavformat
/// only estimates one from the bit rate.
///
/// # Safety
/// `stream` is a stream of the open context `context`.
unsafe fn declared_duration(
    context: *const ff::AVFormatContext,
    stream: *const ff::AVStream,
) -> Option<Duration> {
    // SAFETY: fields of an open context and of its stream; the enum is read as the integer that it is in C.
    let (of_stream, base, of_file, method) = unsafe {
        let method = (&raw const (*context).duration_estimation_method).cast::<u32>().read();
        ((*stream).duration, rational((*stream).time_base), (*context).duration, method)
    };
    if method == ff::AVDurationEstimationMethod::AVFMT_DURATION_FROM_BITRATE as u32 {
        return None;
    }
    let microseconds =
        if of_stream > 0 { base.rescale(of_stream, Rational::new(1, ff::AV_TIME_BASE))? } else { of_file };
    u64::try_from(microseconds).ok().filter(|duration| *duration > 0).map(Duration::from_micros)
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
