// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encoder: turns frames of a pool into packets, by libavcodec.
//!
//! libavcodec reads the pixels in the pool's slot. Each software encoder copies the picture into its own memory
//! before it uses the values; this copy is the library's own, and the meter does not count it.
//!
//! The settings are those of a live stream: no pictures that refer to later ones, no lookahead. With a bit rate, the
//! buffer is a twelfth of a second. So the software encoders output the packet of a frame in the call that takes
//! the frame, except SVT-AV1, whose threads work on at their own pace.

mod context;
mod error;
mod upload;

pub use error::EncodeError;

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr::{self, NonNull};

use ffmpeg_sys_next as ff;
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::stream::{FrameMeta, StreamInfo};
use framepath_os::measure::meter;
use framepath_os::memory::pool::Frame;

use crate::encoder_settings::{EncoderFamily, EncoderName, encoders};
use crate::lent_frame::lend;
use crate::libav_format::{libav_format, pixel_format};
use crate::rising_times::RisingTimes;
use crate::track::{TrackInfo, timed};
use crate::{Codec, EncoderApi, EncoderPreset, Packet, RateBuffer, RateControl};
use context::{EncoderContext, configure, find, formats_of, frame_ticks, open, set_bit_rate, track_of};
use error::failure;
use upload::Uploader;

/// Options of an encoder.
#[derive(Clone, Copy, Debug)]
pub struct EncoderOptions {
    /// Codec of the packets, one of [`Codec::KNOWN`].
    pub codec: Codec,
    /// API of the encoder.
    pub api: EncoderApi,
    /// Amount of bits.
    pub rate: RateControl,
    /// Best quality number with a [`RateControl::BitRate`]: pictures that reach it have fewer bits. `None`: all bits are
    /// spent, also on pictures that do not change. Only for encoders in software and NVENC.
    pub best_quality: Option<u32>,
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

    /// True if the encoder makes the packet of a frame a random access point on request. Otherwise the caller opens
    /// another encoder, whose first packet is one.
    pub fn follows_key_requests(&self) -> bool {
        self.encoder.family.follows_key_requests()
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

    /// Sets the bit rate of the next frames, bits per second, and its buffer. Returns false, and changes nothing, if the
    /// encoder cannot change its bit rate, or has no bit rate; the caller then opens another encoder.
    pub fn set_bit_rate(&mut self, bits: u64, buffer: RateBuffer) -> bool {
        if !self.encoder.family.follows_bit_rate() || !matches!(self.options.rate, RateControl::BitRate(..)) {
            return false;
        }
        self.options.rate = RateControl::BitRate(bits, buffer);
        // SAFETY: an open context whose encoder reads these fields before each frame.
        unsafe { set_bit_rate(self.context.0.as_ptr(), bits, buffer) };
        true
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("encoder", &self.encoder.name).finish_non_exhaustive()
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
    let quality = match options.rate {
        RateControl::Quality(quality) => quality,
        RateControl::BitRate(..) => options.best_quality,
    };
    if quality.is_some_and(|quality| quality > worst) {
        let reason = format!("takes 0 to {worst}");
        return Err(EncodeError::Option { option: "crf", encoder: name(), reason });
    }
    let is_limited = matches!(options.rate, RateControl::BitRate(..)) && quality.is_some();
    if is_limited && !family.limits_quality() {
        let reason = "cannot be used together with bitrate=".to_owned();
        return Err(EncodeError::Option { option: "crf", encoder: name(), reason });
    }
    if options.intra_refresh && !family.refreshes_gradually() {
        let reason = "cannot do this; only libx264 and libx265 can".to_owned();
        return Err(EncodeError::Option { option: "intra_refresh", encoder: name(), reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use framepath_model::stream::Rational;
    use framepath_os::memory::pool::Pool;

    use super::*;

    const ABSENT: EncoderName = EncoderName { name: c"no-such-encoder", family: EncoderFamily::X264 };

    fn options(codec: Codec, api: EncoderApi) -> EncoderOptions {
        EncoderOptions {
            codec,
            api,
            rate: RateControl::BitRate(1_000_000, RateBuffer::Twelfth),
            best_quality: None,
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
    fn libvpx_opens_with_each_preset() {
        let (layout, info) = picture();
        for codec in [Codec::Vp8, Codec::Vp9] {
            for preset in EncoderPreset::ALL {
                let options = EncoderOptions { preset, ..options(codec, EncoderApi::Software) };
                let opened = Encoder::open_first(&encoders(codec, options.api), &layout, &info, &options);
                assert!(opened.is_ok(), "{codec} {}: {:?}", preset.name(), opened.err());
            }
        }
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
        assert_eq!((encoder.name().as_str(), encoder.follows_key_requests()), ("libsvtav1", false));
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
            encoder.send(frame.freeze(meta), false).unwrap();
            receive(&mut encoder);
        }
        encoder.drain().unwrap();
        receive(&mut encoder);
        assert_eq!(numbers, (0..10).map(|seq| (seq, seq == 0)).collect::<Vec<_>>());
    }
}
