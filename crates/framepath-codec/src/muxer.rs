// SPDX-License-Identifier: MIT OR Apache-2.0
//! Muxer: writes the packets of one video track into a container, by libavformat.
//!
//! Containers need a decoding time for each packet. A packet of a demuxer in this process has one; for others it is
//! made from the presentation times and the reorder delay ([`DecodeTimes`]). Times go on where a stream restarts.

mod decode_times;
mod write_output;

use std::ffi::c_int;
use std::io::{self, Seek, Write};
use std::ptr::{self, NonNull};

use ffmpeg_sys_next as ff;
use framepath_model::stream::{Rational, StreamInfo};

use crate::error::libav_message;
use crate::mux_format::MuxFormat;
use crate::rising_times::RisingTimes;
use crate::{Packet, TrackInfo};
use decode_times::DecodeTimes;
use write_output::MuxOutput;

/// Largest time of a packet, seconds: 68 years. Far larger ones overflow in libavformat, which then writes files that nothing opens.
const FARTHEST_S: i128 = 1 << 31;

/// Error of a muxer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MuxError {
    /// The container cannot hold the codec.
    #[error("{file}: {format} cannot hold {codec}; use a name that ends in .mkv")]
    Codec {
        /// Name of the output.
        file: String,
        /// The container.
        format: MuxFormat,
        /// Name of the codec.
        codec: &'static str,
    },
    /// The muxer goes back in the file, and the output cannot.
    #[error("{file}: {format} needs an output that can seek, not a pipe; use format=mkv or format=ts")]
    NeedsSeek {
        /// Name of the output.
        file: String,
        /// The container.
        format: MuxFormat,
    },
    /// The stream does not begin with the parameter sets that the container needs.
    #[error("{file}: the first packet has no parameter sets; the stream must begin at a keyframe")]
    NoParameterSets {
        /// Name of the output.
        file: String,
    },
    /// The source does not know the size of the pictures, as `recv`, and the container needs it.
    #[error(
        "{file}: {format} needs the size of the pictures, which this source does not know; use a name that ends in .ts, or put \
         `decode ! encode h264` in front"
    )]
    NoSize {
        /// Name of the output.
        file: String,
        /// The container.
        format: MuxFormat,
    },
    /// The order of the packets is not that of presentation, and they have no times.
    #[error(
        "{file}: packet {packet} has no presentation time, and the pictures are not in the order of presentation; put \
         `decode ! encode h264` in front"
    )]
    NoTimes {
        /// Name of the output.
        file: String,
        /// Number of the packet, from 0.
        packet: u64,
    },
    /// The time of a packet is so far away that containers cannot hold it.
    #[error("{file}: packet {packet} has a time of more than {FARTHEST_S} s; the input is damaged")]
    FarTime {
        /// Name of the output.
        file: String,
        /// Number of the packet, from 0.
        packet: u64,
    },
    /// The size of the pictures changes.
    #[error(
        "{file}: the pictures change from {from} to {to}, which one track cannot hold; put `scale` in front"
    )]
    SizeChange {
        /// Name of the output.
        file: String,
        /// Size before the change.
        from: String,
        /// Size after the change.
        to: String,
    },
    /// The output cannot be written.
    #[error("{file}: {source}")]
    Io {
        /// Name of the output.
        file: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// libavformat failed.
    #[error("{file}: cannot {operation}: {message}")]
    Muxer {
        /// Name of the output.
        file: String,
        /// Failed operation, as a verb phrase.
        operation: &'static str,
        /// libav's message.
        message: String,
    },
}

/// Bytes that a muxer writes.
pub trait SeekWrite: Write + Seek + Send {}

impl<T: Write + Seek + Send> SeekWrite for T {}

/// Writer of the packets of one video track into a container. It may move between threads.
pub struct Muxer {
    // Dropped before `output`, to which the context writes.
    context: FormatContext,
    output: MuxOutput,
    file: String,
    /// Size of the pictures, pixels.
    size: (u32, u32),
    /// Seconds per tick of the packets' times.
    time_base: ff::AVRational,
    /// Makes the decoding times of packets that have none.
    decode_times: DecodeTimes,
    rising: RisingTimes,
    /// Number of packets so far.
    packets: u64,
    /// True once the end of the container is written.
    is_finished: bool,
}

/// An `AVFormatContext` of a muxer, freed on drop.
struct FormatContext(NonNull<ff::AVFormatContext>);

// SAFETY: owned by one muxer, and libavformat ties nothing to a thread.
unsafe impl Send for FormatContext {}

impl Drop for FormatContext {
    fn drop(&mut self) {
        // SAFETY: from avformat_alloc_output_context2, freed only here. `pb` is not the context's.
        unsafe { ff::avformat_free_context(self.0.as_ptr()) };
    }
}

impl Muxer {
    /// Writes the head of a container for packets of `track`, of which `first` is the first. `info` describes the
    /// stream. `open` opens the empty output, and is called once the container and the codec are known to fit; it
    /// also returns true if the output can go back. `file` is the output's name in errors.
    ///
    /// # Errors
    /// The container cannot hold the codec, needs an output that can seek, or needs the size of the pictures; the first packet lacks
    /// parameter sets; the output cannot be written; libavformat refuses the track; or there is not enough memory.
    pub fn create(
        file: &str,
        open: impl FnOnce() -> io::Result<(Box<dyn SeekWrite>, bool)>,
        format: MuxFormat,
        (track, info): (&TrackInfo, &StreamInfo),
        first: &Packet,
    ) -> Result<Muxer, MuxError> {
        let file = file.to_owned();
        let no_memory = |file: String| MuxError::Muxer {
            file,
            operation: "set up the muxer",
            message: libav_message(ff::AVERROR(libc::ENOMEM)),
        };
        let mut raw = ptr::null_mut();
        // SAFETY: writes a new context, or leaves null; the name is a C string.
        let code = unsafe {
            ff::avformat_alloc_output_context2(&mut raw, ptr::null(), format.muxer().as_ptr(), ptr::null())
        };
        let Some(context) = NonNull::new(raw).map(FormatContext) else {
            let message = libav_message(code);
            return Err(MuxError::Muxer { file, operation: "set up the muxer", message });
        };
        if !format.holds(track.codec) || !holds(&context, track) {
            return Err(MuxError::Codec { file, format, codec: track.codec.name() });
        }
        let (output, seekable) = match open() {
            Ok((_, false)) if format.needs_seek() => return Err(MuxError::NeedsSeek { file, format }),
            Ok(opened) => opened,
            Err(source) => return Err(MuxError::Io { file, source }),
        };
        let Some(output) = MuxOutput::new(output, seekable) else { return Err(no_memory(file)) };
        let known =
            |value: Rational, default: Rational| if value.value().is_some() { value } else { default };
        let base = known(info.time_base, Rational::new(1, 1_000_000));
        let head = head_of(track, first);
        // SAFETY: a new context of ours; the output lives longer.
        let delay = unsafe {
            (*raw).pb = output.as_ptr();
            (*raw).flags |= ff::AVFMT_FLAG_CUSTOM_IO as c_int;
            (*raw).max_delay = 0;
            let Some(stream) = add_stream(raw, track, &head, info, base) else { return Err(no_memory(file)) };
            (*(*stream).codecpar).video_delay
        };
        let rate = known(info.frame_rate, Rational::new(25, 1));
        let step = Rational::new(rate.den, rate.num).rescale(1, base).unwrap_or(1).max(1);
        let mut muxer = Muxer {
            context,
            output,
            file,
            size: (track.stream.width, track.stream.height),
            time_base: ff::AVRational { num: base.num, den: base.den },
            decode_times: DecodeTimes::new(usize::try_from(delay).unwrap_or(0), step),
            rising: RisingTimes::new(step),
            packets: 0,
            is_finished: false,
        };
        // SAFETY: a context with one stream and an output.
        let code = unsafe { ff::avformat_write_header(raw, ptr::null_mut()) };
        match muxer.checked("write the head", code) {
            Err(MuxError::Muxer { file, .. }) if muxer.size.0 == 0 => Err(MuxError::NoSize { file, format }),
            Err(MuxError::Muxer { file, .. }) if needs_sets(track) && head.is_empty() => {
                Err(MuxError::NoParameterSets { file })
            }
            Err(error) => Err(error),
            Ok(()) => Ok(muxer),
        }
    }

    /// Writes a packet. Packets without bytes are left out.
    ///
    /// # Errors
    /// The output cannot be written, the size of the pictures changes, the packet has no time where one is needed,
    /// libavformat refuses the packet, or there is not enough memory.
    pub fn write(&mut self, packet: &Packet) -> Result<(), MuxError> {
        if packet.is_empty() {
            return Ok(());
        }
        if let Some(track) = packet.track() {
            let size = (track.stream.width, track.stream.height);
            if size != self.size {
                let described = |(width, height): (u32, u32)| format!("{width}x{height}");
                let (from, to) = (described(self.size), described(size));
                return Err(MuxError::SizeChange { file: self.file.clone(), from, to });
            }
        }
        let times = self.times(packet)?;
        let number = self.packets;
        self.packets += 1;
        let no_memory = ff::AVERROR(libc::ENOMEM);
        // The muxer gets bytes that no other process can change, and a packet of its own, whose times it may change.
        let Some(shared) = packet.share().and_then(Packet::private) else {
            return self.checked("write a packet", no_memory);
        };
        let context = self.context.0.as_ptr();
        // SAFETY: a packet of ours, and a context with one stream whose head is written.
        let code = unsafe {
            let raw = shared.as_ptr();
            ((*raw).pts, (*raw).dts) = times;
            (*raw).duration = packet.meta().duration;
            (*raw).stream_index = 0;
            let stream: *mut ff::AVStream = *(*context).streams;
            ff::av_packet_rescale_ts(raw, self.time_base, (*stream).time_base);
            ff::av_write_frame(context, raw)
        };
        log::trace!("{}: packet {number}: {times:?}", self.file);
        self.checked("write a packet", code)
    }

    /// Returns the presentation time and the decoding time of `packet`, in ticks of the packets' time base.
    fn times(&mut self, packet: &Packet) -> Result<(i64, i64), MuxError> {
        // SAFETY: a valid packet.
        let (raw_pts, raw_dts) = unsafe { ((*packet.as_ptr()).pts, (*packet.as_ptr()).dts) };
        let known = |ticks: i64| (ticks != ff::AV_NOPTS_VALUE).then_some(ticks);
        if packet.preroll().restarts {
            self.decode_times.restart();
        }
        let pts = packet.meta().pts;
        // A source may have replaced the presentation time; the decoding time moves with it.
        let moved = known(raw_pts).zip(pts).map_or(0, |(raw, pts)| pts.saturating_sub(raw));
        let dts = match (known(raw_dts), pts) {
            (Some(dts), _) => Some(dts.saturating_add(moved)),
            (None, Some(pts)) => Some(self.decode_times.next(pts)),
            (None, None) => None,
        };
        if pts.is_none() && self.decode_times.reorders() {
            return Err(MuxError::NoTimes { file: self.file.clone(), packet: self.packets });
        }
        let rising = self.rising.next(dts);
        let pts = pts.map_or(rising, |pts| pts.saturating_add(self.rising.shift())).max(rising);
        let ff::AVRational { num, den } = self.time_base;
        let ticks_of = |seconds: i128| seconds * i128::from(den) / i128::from(num.max(1));
        if [pts, rising].iter().any(|ticks| i128::from(ticks.unsigned_abs()) > ticks_of(FARTHEST_S)) {
            return Err(MuxError::FarTime { file: self.file.clone(), packet: self.packets });
        }
        Ok((pts, rising))
    }

    /// Writes the end of the container and flushes the output. Does nothing the second time.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(&mut self) -> Result<(), MuxError> {
        if std::mem::replace(&mut self.is_finished, true) {
            return Ok(());
        }
        // SAFETY: a context whose head is written.
        let code = unsafe { ff::av_write_trailer(self.context.0.as_ptr()) };
        self.output.flush();
        self.checked("write the end", code)
    }

    /// Returns the error of the output, which libavformat may hide, or else that of libavformat's `code`.
    fn checked(&mut self, operation: &'static str, code: c_int) -> Result<(), MuxError> {
        if let Some(source) = self.output.take_error() {
            return Err(MuxError::Io { file: self.file.clone(), source });
        }
        if code < 0 {
            let message = libav_message(code);
            return Err(MuxError::Muxer { file: self.file.clone(), operation, message });
        }
        Ok(())
    }
}

impl std::fmt::Debug for Muxer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Muxer").field("file", &self.file).finish_non_exhaustive()
    }
}

/// True if the muxer of `context` can hold the codec of `track`, or libavformat does not know.
fn holds(context: &FormatContext, track: &TrackInfo) -> bool {
    // SAFETY: a valid context with its static description. The codec's number is passed as an integer as in C.
    unsafe { query_codec((*context.0.as_ptr()).oformat.cast(), track.codec.id(), 0) != 0 }
}

/// True if containers need the parameter sets of the codec in their head.
fn needs_sets(track: &TrackInfo) -> bool {
    use crate::Codec::{Av1, H264, Hevc};
    matches!(track.codec, H264 | Hevc | Av1)
}

/// Returns the codec's head for the container: that of the track, or else the parameter sets of the first packet.
fn head_of(track: &TrackInfo, first: &Packet) -> Vec<u8> {
    let Some(bytes) = first.bytes().filter(|_| track.head().is_empty()) else { return track.head().to_vec() };
    let mut sets = track.parameter_sets();
    sets.inspect(bytes, true);
    sets.in_force().map_or_else(Vec::new, |sets| sets.in_front_of(bytes))
}

/// Adds the stream of `track` with the codec's head `head`; `None` without memory.
///
/// # Safety
/// `context` is valid, and its head is not written.
unsafe fn add_stream(
    context: *mut ff::AVFormatContext,
    track: &TrackInfo,
    head: &[u8],
    info: &StreamInfo,
    base: Rational,
) -> Option<*mut ff::AVStream> {
    let rational = |value: Rational| match value.value() {
        Some(_) => ff::AVRational { num: value.num, den: value.den },
        None => ff::AVRational { num: 0, den: 1 },
    };
    // SAFETY: guaranteed by the caller; the stream and its parameters belong to the context. The head is copied into
    // memory that libav allocated, zeroed, with the padding that libav requires.
    unsafe {
        let stream = ff::avformat_new_stream(context, ptr::null());
        if stream.is_null() || ff::avcodec_parameters_copy((*stream).codecpar, track.parameters.as_ptr()) < 0
        {
            return None;
        }
        let parameters = (*stream).codecpar;
        // The tag is another in each container.
        (*parameters).codec_tag = 0;
        (*parameters).sample_aspect_ratio = rational(info.sample_aspect);
        if (*parameters).extradata_size == 0 && !head.is_empty() {
            let copy = ff::av_mallocz(head.len() + ff::AV_INPUT_BUFFER_PADDING_SIZE as usize).cast::<u8>();
            if copy.is_null() {
                return None;
            }
            ptr::copy_nonoverlapping(head.as_ptr(), copy, head.len());
            (*parameters).extradata = copy;
            (*parameters).extradata_size = head.len() as c_int;
        }
        (*stream).sample_aspect_ratio = rational(info.sample_aspect);
        (*stream).time_base = rational(base);
        (*stream).avg_frame_rate = rational(info.frame_rate);
        Some(stream)
    }
}

// Declared with C's plain integer, because a codec's number must not become a Rust enum unchecked.
unsafe extern "C" {
    #[link_name = "avformat_query_codec"]
    fn query_codec(format: *const std::ffi::c_void, codec: u32, compliance: c_int) -> c_int;
}
