// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encoder: turns frames of a pool into packets, by libavcodec.
//!
//! libavcodec reads the pixels in the pool's slot. Each software encoder copies the picture into its own memory
//! before it uses the values; this copy is the library's own, and the meter does not count it.
//!
//! The settings are those of a live stream: no pictures that refer to later ones, no lookahead. With a bit rate, the
//! buffer is a twelfth of a second. So the software encoders output the packet of a frame in the call that takes
//! the frame, except SVT-AV1, whose threads work on at their own pace.

mod upload;

use std::collections::VecDeque;
use std::ffi::{CString, c_int};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ffmpeg_sys_next as ff;
use framepath_model::format::{Layout, LayoutError, PixelFormat};
use framepath_model::stream::{FrameMeta, Rational, StreamInfo};
use framepath_os::measure::meter;
use framepath_os::memory::pool::Frame;

use crate::encoder_settings::{EncoderFamily, EncoderName, EncoderSettings, encoders};
use crate::error::libav_message;
use crate::lent_frame::{lend, range_number};
use crate::libav_format::{libav_format, pixel_format};
use crate::rising_times::RisingTimes;
use crate::track::{Parameters, TrackInfo};
use crate::{Codec, EncoderApi, EncoderPreset, Packet, RateControl};
use upload::Uploader;

/// Error of an encoder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The installed libavcodec has no encoder for the codec with this API.
    #[error("the installed libavcodec has no {api} encoder of {codec}{}", missing(names))]
    NotBuilt {
        /// Name of the codec.
        codec: &'static str,
        /// API of the encoder.
        api: EncoderApi,
        /// Names of the encoders that libavcodec would have; empty if no such encoder exists.
        names: String,
    },
    /// The encoder does not take the pixel format.
    #[error("{encoder} does not take {format} frames; put `convert format={instead}` in front")]
    Format {
        /// libavcodec's name of the encoder.
        encoder: String,
        /// Pixel format of the frames.
        format: PixelFormat,
        /// Pixel format that the encoder takes.
        instead: String,
    },
    /// The encoder does not take pictures with an odd width or height in this format.
    #[error(
        "{encoder} does not take {format} pictures of {width}x{height} pixels, because a side is odd; put `crop \
         roi=0,0,{},{}` or `scale` in front",
        .width & !1,
        .height & !1
    )]
    OddSize {
        /// libavcodec's name of the encoder.
        encoder: String,
        /// Pixel format of the frames.
        format: PixelFormat,
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// An option of the encoder is not possible.
    #[error("{option}: {encoder} {reason}")]
    Option {
        /// Name of the option in paths.
        option: &'static str,
        /// libavcodec's name of the encoder.
        encoder: String,
        /// Reason why the option is not possible.
        reason: String,
    },
    /// libavcodec, the encoder or the hardware failed.
    #[error("{encoder}: cannot {operation}: {message}")]
    Encoder {
        /// libavcodec's name of the encoder.
        encoder: String,
        /// Failed operation, as a verb phrase.
        operation: &'static str,
        /// libav's message, or the name of the missing device.
        message: String,
    },
    /// The frame is not a picture.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

fn missing(names: &str) -> String {
    if names.is_empty() { String::new() } else { format!(" ({names}); install a build that has one") }
}

/// Options of an encoder.
#[derive(Clone, Copy, Debug)]
pub struct EncoderOptions {
    /// Codec of the packets, one of [`Codec::KNOWN`].
    pub codec: Codec,
    /// API of the encoder.
    pub api: EncoderApi,
    /// Amount of bits.
    pub rate: RateControl,
    /// Maximum distance of keyframes in frames; `None`: two seconds.
    pub gop: Option<u32>,
    /// Speed of the encoder.
    pub preset: EncoderPreset,
    /// Number of threads; `None`: the library's choice, by the number of processors.
    pub threads: Option<u32>,
    /// True if the encoder refreshes the picture column by column instead of by keyframes, once in `gop` frames.
    /// For H.264 and HEVC in software.
    pub intra_refresh: bool,
}

/// Encoder of frames of one layout. It may move between threads.
///
/// ```no_run
/// # use framepath_codec::{Encoder, EncoderOptions, EncodeError};
/// # fn encode(frames: Vec<framepath_os::memory::pool::Frame>, info: &framepath_model::stream::StreamInfo,
/// #           options: &EncoderOptions) -> Result<(), EncodeError> {
/// let mut encoder = Encoder::open(frames[0].layout(), info, options)?;
/// for frame in frames {
///     encoder.send(frame, false)?;
///     while let Some(packet) = encoder.receive()? {
///         println!("{} bytes", packet.len());
///     }
/// }
/// encoder.drain()?;
/// while let Some(packet) = encoder.receive()? {
///     println!("{} bytes", packet.len());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Encoder {
    context: EncoderContext,
    encoder: EncoderName,
    options: EncoderOptions,
    /// Copy of frames into the memory of a hardware encoder; `None` for an encoder that reads the pool's memory.
    uploader: Option<Uploader>,
    track: TrackInfo,
    /// Encoder's times of the frames, made from their presentation times.
    times: RisingTimes,
    /// Encoder's time and metadata of the frames whose packets have not come out, oldest first.
    inside: VecDeque<(i64, FrameMeta)>,
    /// True until the first packet, which carries the description of the track.
    is_first: bool,
}

/// An `AVCodecContext` of an encoder, freed on drop.
struct EncoderContext(NonNull<ff::AVCodecContext>);

// SAFETY: owned by one encoder; libavcodec ties nothing to a thread.
unsafe impl Send for EncoderContext {}

impl Drop for EncoderContext {
    fn drop(&mut self) {
        let mut raw = self.0.as_ptr();
        // SAFETY: from avcodec_alloc_context3, freed only here. Ends the library's threads first.
        unsafe { ff::avcodec_free_context(&mut raw) };
    }
}

/// Returns the first of `names` that libavcodec has, with its description; `None` if it has none of them.
fn find(names: &[EncoderName]) -> Option<(EncoderName, NonNull<ff::AVCodec>)> {
    names.iter().find_map(|encoder| {
        // SAFETY: searches a static table by a C string.
        let found = unsafe { ff::avcodec_find_encoder_by_name(encoder.name.as_ptr()) };
        NonNull::new(found.cast_mut()).map(|found| (*encoder, found))
    })
}

/// Returns the pixel formats that `codec` takes, as libav's numbers; `None` if it does not list them.
fn formats_of(codec: NonNull<ff::AVCodec>) -> Option<Vec<c_int>> {
    // SAFETY: a static description; the list ends with -1. Enums are read as integers as in C.
    unsafe {
        let list = (&raw const (*codec.as_ptr()).pix_fmts).read().cast::<c_int>();
        if list.is_null() {
            return None;
        }
        Some((0..).map(|index| *list.add(index)).take_while(|format| *format >= 0).collect())
    }
}

impl Encoder {
    /// Opens the encoder for frames like `layout`, in format, size and colours, of the stream `info`.
    ///
    /// # Errors
    /// libavcodec has no such encoder, the encoder does not take the format, the size or an option, the hardware is
    /// missing, or there is not enough memory.
    pub fn open(
        layout: &Layout,
        info: &StreamInfo,
        options: &EncoderOptions,
    ) -> Result<Encoder, EncodeError> {
        let EncoderOptions { codec, api, .. } = *options;
        Encoder::open_first(&encoders(codec, api), layout, info, options)
    }

    /// Opens the first encoder of `names` that libavcodec has, as [`Encoder::open`].
    fn open_first(
        names: &[EncoderName],
        layout: &Layout,
        info: &StreamInfo,
        options: &EncoderOptions,
    ) -> Result<Encoder, EncodeError> {
        let EncoderOptions { codec, api, .. } = *options;
        let Some((encoder, description)) = find(names) else {
            let names = names.iter().map(|encoder| encoder.name.to_string_lossy()).collect::<Vec<_>>();
            return Err(EncodeError::NotBuilt { codec: codec.name(), api, names: names.join(", ") });
        };
        // Opaque buffers are no pictures.
        Layout::from_planes(layout.format, layout.width, layout.height, layout.planes())?;
        check(encoder, description, layout, options)?;
        let uploader = match encoder.family {
            EncoderFamily::Vaapi => Some(Uploader::open(encoder, layout)?),
            _ => None,
        };
        let failed = |code| failure(encoder, "set up the encoder", code);
        // SAFETY: a static description of libavcodec; the context is owned by the result from here on.
        let raw = unsafe { ff::avcodec_alloc_context3(description.as_ptr()) };
        let context = EncoderContext(NonNull::new(raw).ok_or_else(|| failed(ff::AVERROR(libc::ENOMEM)))?);
        let info = timed(info);
        // SAFETY: valid and not open yet, so fields may be set.
        unsafe { configure(raw, encoder.family, layout, &info, options) };
        if let Some(uploader) = &uploader {
            // SAFETY: as above.
            unsafe { uploader.attach(raw) }.map_err(failed)?;
        }
        open(&context, encoder, description, layout, options)?;
        let track = track_of(raw, codec, &info).ok_or_else(|| failed(ff::AVERROR(libc::ENOMEM)))?;
        Ok(Encoder {
            context,
            encoder,
            options: *options,
            uploader,
            track,
            times: RisingTimes::new(frame_ticks(&info)),
            inside: VecDeque::new(),
            is_first: true,
        })
    }

    /// Returns the description of the packets.
    pub fn track(&self) -> &TrackInfo {
        &self.track
    }

    /// Returns libavcodec's name of the encoder.
    pub fn name(&self) -> String {
        self.encoder.name.to_string_lossy().into_owned()
    }

    /// True if threads of the library encode, besides the caller's.
    pub fn has_threads(&self) -> bool {
        self.options.threads != Some(1) || self.encoder.family == EncoderFamily::Svt
    }

    /// Returns the number of frames whose packets have not come out.
    pub fn frames_inside(&self) -> usize {
        self.inside.len()
    }

    /// Sends a frame, and makes its packet a random access point if `key` is true. The library holds the frame
    /// until it has copied the pixels.
    ///
    /// # Errors
    /// The frame is not a picture or was refused, the encoder failed, or there is not enough memory.
    pub fn send(&mut self, frame: Frame, key: bool) -> Result<(), EncodeError> {
        let layout = frame.layout();
        // Opaque buffers may be wider than any picture, and the fields of a layout can be changed without its planes.
        Layout::from_planes(layout.format, layout.width, layout.height, layout.planes())?;
        let meta = frame.meta();
        let no_memory = || failure(self.encoder, "encode", ff::AVERROR(libc::ENOMEM));
        let picture = match &self.uploader {
            Some(uploader) => {
                uploader.upload(&frame).map_err(|code| failure(self.encoder, "copy a frame", code))?
            }
            None => lend(Box::new(frame)).ok_or_else(no_memory)?,
        };
        let time = self.times.next(meta.pts);
        // SAFETY: a frame of ours, and an open context; libavcodec takes a reference of its own. The enum is
        // written as the integer that it is in C.
        let send = || unsafe {
            let raw = picture.as_ptr();
            (*raw).pts = time;
            let kind = if key {
                ff::AVPictureType::AV_PICTURE_TYPE_I
            } else {
                ff::AVPictureType::AV_PICTURE_TYPE_NONE
            };
            (&raw mut (*raw).pict_type).cast::<u32>().write(kind as u32);
            #[cfg(not(callbacks_need_flag))]
            {
                (*raw).duration = meta.duration;
            }
            ff::avcodec_send_frame(self.context.0.as_ptr(), raw)
        };
        let code = self.timed_call(send);
        if code < 0 {
            return Err(failure(self.encoder, "encode", code));
        }
        self.inside.push_back((time, meta));
        Ok(())
    }

    /// Runs `call`, which encodes. If the library's threads do the work, the meter counts the call as a wait.
    fn timed_call<R>(&self, call: impl FnOnce() -> R) -> R {
        if self.has_threads() { meter::blocked(call) } else { call() }
    }

    /// Announces that no frame follows: [`receive`](Encoder::receive) then returns the remaining packets.
    ///
    /// # Errors
    /// The encoder failed.
    pub fn drain(&mut self) -> Result<(), EncodeError> {
        // SAFETY: an open context; a null frame means the end.
        let code =
            self.timed_call(|| unsafe { ff::avcodec_send_frame(self.context.0.as_ptr(), ptr::null()) });
        if code < 0 && code != ff::AVERROR_EOF { Err(failure(self.encoder, "drain", code)) } else { Ok(()) }
    }

    /// Returns the next packet, with the metadata of its frame; `None` if the encoder needs more frames, or has
    /// ended. The first packet carries the description of the track ([`Packet::track`]).
    ///
    /// # Errors
    /// The encoder failed, or there is not enough memory.
    pub fn receive(&mut self) -> Result<Option<Packet>, EncodeError> {
        let failed = |code| failure(self.encoder, "encode", code);
        let mut packet = Packet::new().ok_or_else(|| failed(ff::AVERROR(libc::ENOMEM)))?;
        let raw = packet.as_ptr();
        // SAFETY: an open context and an empty packet of ours.
        let code = self.timed_call(|| unsafe { ff::avcodec_receive_packet(self.context.0.as_ptr(), raw) });
        if code == ff::AVERROR(libc::EAGAIN) || code == ff::AVERROR_EOF {
            return Ok(None);
        }
        if code < 0 {
            return Err(failed(code));
        }
        // SAFETY: a filled packet of ours.
        let time = unsafe { (*raw).pts };
        // An encoder that drops a frame outputs no packet for it.
        while self.inside.front().is_some_and(|(first, _)| *first < time) {
            self.inside.pop_front();
        }
        let meta = self.inside.pop_front().map_or_else(FrameMeta::default, |(_, meta)| meta);
        let ticks = meta.pts.unwrap_or(ff::AV_NOPTS_VALUE);
        // SAFETY: as above. No picture refers to a later one, so both times are equal.
        unsafe { ((*raw).pts, (*raw).dts, (*raw).duration) = (ticks, ticks, meta.duration) };
        *packet.meta_mut() = FrameMeta { is_damaged: false, ..meta };
        if std::mem::take(&mut self.is_first) {
            packet.set_track(self.track.clone());
        }
        Ok(Some(packet))
    }

    /// Sets the bit rate of the next frames, bits per second. Returns false, and changes nothing, if the encoder cannot
    /// change its bit rate, or has no bit rate; the caller then opens another encoder.
    pub fn set_bit_rate(&mut self, bits: u64) -> bool {
        if !self.encoder.family.follows_bit_rate() || !matches!(self.options.rate, RateControl::BitRate(_)) {
            return false;
        }
        self.options.rate = RateControl::BitRate(bits);
        // SAFETY: an open context whose encoder reads these fields before each frame.
        unsafe { set_bit_rate(self.context.0.as_ptr(), bits) };
        true
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("encoder", &self.encoder.name).finish_non_exhaustive()
    }
}

fn failure(encoder: EncoderName, operation: &'static str, code: c_int) -> EncodeError {
    EncodeError::Encoder {
        encoder: encoder.name.to_string_lossy().into_owned(),
        operation,
        message: libav_message(code),
    }
}

/// Checks that `encoder` takes frames of `layout`, and the options. libavcodec's own errors have less detail.
fn check(
    encoder: EncoderName,
    description: NonNull<ff::AVCodec>,
    layout: &Layout,
    options: &EncoderOptions,
) -> Result<(), EncodeError> {
    let EncoderName { name, family } = encoder;
    let name = || name.to_string_lossy().into_owned();
    let (format, width, height) = (layout.format, layout.width, layout.height);
    let formats = match family {
        EncoderFamily::Vaapi => {
            Some(vec![libav_format(PixelFormat::Nv12) as c_int, libav_format(PixelFormat::P010) as c_int])
        }
        _ => formats_of(description),
    };
    if let Some(formats) = formats.filter(|formats| !formats.contains(&(libav_format(format) as c_int))) {
        let known: Vec<PixelFormat> = formats.into_iter().filter_map(pixel_format).collect();
        let deep = if format.depth() > 8 {
            [PixelFormat::Yuv420p10, PixelFormat::P010]
        } else {
            [PixelFormat::Yuv420p; 2]
        };
        let preferred = [deep[0], deep[1], PixelFormat::Yuv420p, PixelFormat::Nv12];
        let instead = preferred.into_iter().find(|format| known.contains(format)).or(known.first().copied());
        let instead = instead.map_or_else(String::new, |format| format.to_string().to_lowercase());
        return Err(EncodeError::Format { encoder: name(), format, instead });
    }
    let is_odd = {
        let luma = layout.planes()[0];
        let chroma = layout.planes().get(1);
        let halves_rows = chroma.is_some_and(|chroma| chroma.rows < luma.rows);
        let halves_columns =
            chroma.is_some_and(|chroma| chroma.width < luma.width || chroma.rows < luma.rows);
        halves_columns && width % 2 == 1 || halves_rows && height % 2 == 1
    };
    if is_odd && family.needs_even_sides() {
        return Err(EncodeError::OddSize { encoder: name(), format, width, height });
    }
    let worst = family.worst_quality(options.codec);
    if let RateControl::Quality(Some(quality)) = options.rate {
        if quality > worst {
            let reason = format!("takes 0 to {worst}");
            return Err(EncodeError::Option { option: "crf", encoder: name(), reason });
        }
    }
    if options.intra_refresh && !family.refreshes_gradually() {
        let reason = "cannot do this; only libx264 and libx265 can".to_owned();
        return Err(EncodeError::Option { option: "intra_refresh", encoder: name(), reason });
    }
    Ok(())
}

/// Returns `info` with a known time base and frame rate: 25 frames per second if the rate is not known, and
/// microseconds if the time base is not known.
fn timed(info: &StreamInfo) -> StreamInfo {
    let known = |value: Rational, default: Rational| if value.value().is_some() { value } else { default };
    StreamInfo {
        time_base: known(info.time_base, Rational::new(1, 1_000_000)),
        frame_rate: known(info.frame_rate, Rational::new(25, 1)),
        ..*info
    }
}

/// Returns the duration of a frame in ticks of the time base, at least 1.
fn frame_ticks(info: &StreamInfo) -> i64 {
    let frame = Rational::new(info.frame_rate.den, info.frame_rate.num);
    frame.rescale(1, info.time_base).unwrap_or(1).max(1)
}

/// Sets the fields of a context that is not open yet.
///
/// # Safety
/// `context` is valid and not open.
unsafe fn configure(
    context: *mut ff::AVCodecContext,
    family: EncoderFamily,
    layout: &Layout,
    info: &StreamInfo,
    options: &EncoderOptions,
) {
    /// Distance of keyframes for "none": encoders count in 32 bits, some in fewer.
    const MOST_GOP: u32 = 1 << 24;
    let rational = |value: Rational| ff::AVRational { num: value.num, den: value.den };
    let two_seconds = info.frame_rate.value().map_or(50, |rate| (2.0 * rate).round().max(1.0) as u32);
    let colors = layout.colors;
    // SAFETY: guaranteed by the caller. Enums are written as the integers that they are in C: libav handles any code
    // point, which Rust's enums do not.
    unsafe {
        (*context).width = layout.width as c_int;
        (*context).height = layout.height as c_int;
        (&raw mut (*context).pix_fmt).cast::<c_int>().write(libav_format(layout.format) as c_int);
        (*context).time_base = rational(info.time_base);
        (*context).framerate = rational(info.frame_rate);
        (*context).sample_aspect_ratio = match info.sample_aspect.value() {
            Some(_) => rational(info.sample_aspect),
            None => ff::AVRational { num: 0, den: 1 },
        };
        (&raw mut (*context).color_range).cast::<u32>().write(range_number(colors.range));
        (&raw mut (*context).color_primaries).cast::<u32>().write(colors.primaries.into());
        (&raw mut (*context).color_trc).cast::<u32>().write(colors.transfer.into());
        (&raw mut (*context).colorspace).cast::<u32>().write(colors.matrix.into());
        (*context).gop_size = options.gop.unwrap_or(two_seconds).min(MOST_GOP) as c_int;
        (*context).max_b_frames = 0;
        (*context).thread_count = options.threads.map_or(0, |threads| threads as c_int);
        #[cfg(callbacks_need_flag)]
        {
            // libvpx's rate control counts this as the duration of a frame.
            (*context).ticks_per_frame = c_int::try_from(frame_ticks(info)).unwrap_or(1);
        }
        match options.rate {
            RateControl::BitRate(bits) => {
                set_bit_rate(context, bits);
                match family {
                    // Equal limits make the rate constant.
                    EncoderFamily::Vpx | EncoderFamily::Aom => (*context).rc_min_rate = bits as i64,
                    // SVT-AV1 has a maximum only for other modes than constant rate.
                    EncoderFamily::Svt => (*context).rc_max_rate = 0,
                    _ => {}
                }
            }
            RateControl::Quality(quality) => {
                let quality = quality.unwrap_or_else(|| family.usual_quality(options.codec));
                // libavcodec's defaults would limit the rate.
                (*context).bit_rate = match family {
                    // These two need a rate. libvpx takes it as the upper limit for VP8.
                    EncoderFamily::Vpx if options.codec == Codec::Vp8 => 100_000_000,
                    EncoderFamily::V4l2m2m => default_bit_rate(layout, info),
                    _ => 0,
                };
                (*context).global_quality = quality as c_int;
            }
        }
    }
}

/// Returns a tenth of a bit for each pixel, in bits per second.
fn default_bit_rate(layout: &Layout, info: &StreamInfo) -> i64 {
    let pixels = f64::from(layout.width) * f64::from(layout.height);
    (pixels * info.frame_rate.value().unwrap_or(25.0) / 10.0) as i64
}

/// Sets bit rate, maximum rate and buffer: a twelfth of a second, or a frame if that is longer.
///
/// # Safety
/// `context` is valid.
unsafe fn set_bit_rate(context: *mut ff::AVCodecContext, bits: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let rate = (*context).framerate;
        let frames = if rate.num > 0 { i64::from(rate.num) / i64::from(rate.den.max(1)) } else { 12 };
        let bits = bits as i64;
        (*context).bit_rate = bits;
        (*context).rc_max_rate = bits;
        (*context).rc_buffer_size = c_int::try_from(bits / frames.clamp(1, 12)).unwrap_or(c_int::MAX);
    }
}

/// Opens `context` with the options of the encoder.
fn open(
    context: &EncoderContext,
    encoder: EncoderName,
    description: NonNull<ff::AVCodec>,
    layout: &Layout,
    options: &EncoderOptions,
) -> Result<(), EncodeError> {
    let settings = EncoderSettings {
        codec: options.codec,
        rate: options.rate,
        preset: options.preset,
        threads: options.threads,
        intra_refresh: options.intra_refresh,
        width: layout.width,
    };
    let mut dictionary = ptr::null_mut();
    for (name, value) in encoder.family.options(&settings) {
        let value = CString::new(value).unwrap_or_default();
        // SAFETY: the dictionary is null or ours; both texts are C strings, which it copies.
        unsafe { ff::av_dict_set(&mut dictionary, name.as_ptr(), value.as_ptr(), 0) };
    }
    // SAFETY: a valid context that is not open; the dictionary is ours, and freed in any case. Options that an older or
    // newer library does not know stay in it and have no effect.
    let code = unsafe {
        let code = ff::avcodec_open2(context.0.as_ptr(), description.as_ptr(), &mut dictionary);
        ff::av_dict_free(&mut dictionary);
        code
    };
    if code >= 0 {
        return Ok(());
    }
    Err(match upload::absent(options.api) {
        Some(what) => EncodeError::Encoder {
            encoder: encoder.name.to_string_lossy().into_owned(),
            operation: "open the encoder",
            message: what.to_owned(),
        },
        None => failure(encoder, "open the encoder", code),
    })
}

/// Returns the description of the packets of the open encoder `context`; `None` without memory.
fn track_of(context: *mut ff::AVCodecContext, codec: Codec, info: &StreamInfo) -> Option<TrackInfo> {
    // SAFETY: an open context of ours; the new parameter set is freed by `made`, and copied before.
    unsafe {
        let mut made = ff::avcodec_parameters_alloc();
        if made.is_null() {
            return None;
        }
        let code = ff::avcodec_parameters_from_context(made, context);
        let copy = if code >= 0 { Parameters::copy_of(made) } else { None };
        let format = pixel_format((*made).format);
        let (width, height) = ((*made).width as u32, (*made).height as u32);
        ff::avcodec_parameters_free(&mut made);
        let stream = StreamInfo { format, width, height, ..*info };
        Some(TrackInfo { codec, stream, parameters: Arc::new(copy?) })
    }
}

#[cfg(test)]
mod tests {
    use framepath_os::memory::pool::Pool;

    use super::*;

    const ABSENT: EncoderName = EncoderName { name: c"no-such-encoder", family: EncoderFamily::X264 };

    fn options(codec: Codec, api: EncoderApi) -> EncoderOptions {
        EncoderOptions {
            codec,
            api,
            rate: RateControl::BitRate(1_000_000),
            gop: None,
            preset: EncoderPreset::Superfast,
            threads: Some(1),
            intra_refresh: false,
        }
    }

    fn picture() -> (Layout, StreamInfo) {
        let layout = Layout::packed(PixelFormat::Yuv420p, 64, 64).unwrap();
        (layout, StreamInfo::from_layout(&layout, Rational::new(25, 1)))
    }

    #[test]
    fn an_encoder_that_is_not_built_in_is_an_error_with_its_name() {
        let (layout, info) = picture();
        let error = |names: &[EncoderName], options: EncoderOptions| {
            Encoder::open_first(names, &layout, &info, &options).unwrap_err().to_string()
        };
        assert_eq!(
            error(&[ABSENT], options(Codec::H264, EncoderApi::Software)),
            "the installed libavcodec has no software encoder of h264 (no-such-encoder); install a build that has one"
        );
        assert_eq!(
            error(&[], options(Codec::Vp9, EncoderApi::Nvenc)),
            "the installed libavcodec has no nvenc encoder of vp9"
        );
    }

    #[test]
    fn the_next_encoder_stands_in_for_one_that_is_not_built_in() {
        // Builds without libaom encode AV1 by SVT-AV1, whose packets come later, but all of them.
        let svt = encoders(Codec::Av1, EncoderApi::Software)[1];
        if find(&[svt]).is_none() {
            return;
        }
        let (layout, info) = picture();
        let options = options(Codec::Av1, EncoderApi::Software);
        let mut encoder = Encoder::open_first(&[ABSENT, svt], &layout, &info, &options).unwrap();
        assert_eq!(encoder.name(), "libsvtav1");
        let mut pool = Pool::new(layout.size, 16).unwrap();
        let mut numbers = Vec::new();
        let mut receive = |encoder: &mut Encoder| {
            while let Some(packet) = encoder.receive().unwrap() {
                assert_eq!(packet.track().is_some(), numbers.is_empty());
                numbers.push((packet.meta().seq, packet.is_key()));
            }
        };
        for seq in 0..10 {
            let mut frame = pool.acquire().unwrap();
            frame.set_layout(&layout).unwrap();
            let meta = FrameMeta { seq, pts: Some(seq as i64), duration: 1, ..FrameMeta::default() };
            encoder.send(frame.freeze(meta), seq == 5).unwrap();
            receive(&mut encoder);
        }
        encoder.drain().unwrap();
        receive(&mut encoder);
        assert_eq!(numbers, (0..10).map(|seq| (seq, seq % 5 == 0)).collect::<Vec<_>>());
    }
}
