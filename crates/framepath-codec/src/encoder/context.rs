// SPDX-License-Identifier: MIT OR Apache-2.0
//! libavcodec's context of an encoder: its choice, settings and description.

use std::ffi::{CString, c_int};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ffmpeg_sys_next as ff;
use framepath_model::format::Layout;
use framepath_model::stream::{Rational, StreamInfo};

use super::error::failure;
use super::upload;
use super::{EncodeError, EncoderOptions};
use crate::encoder_settings::{EncoderFamily, EncoderName, EncoderSettings};
use crate::lent_frame::range_number;
use crate::libav_format::{libav_format, pixel_format};
use crate::track::{Parameters, TrackInfo};
use crate::{Codec, RateBuffer, RateControl};

/// An `AVCodecContext` of an encoder, freed on drop.
pub(super) struct EncoderContext(pub(super) NonNull<ff::AVCodecContext>);

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
pub(super) fn find(names: &[EncoderName]) -> Option<(EncoderName, NonNull<ff::AVCodec>)> {
    names.iter().find_map(|encoder| {
        // SAFETY: searches a static table by a C string.
        let found = unsafe { ff::avcodec_find_encoder_by_name(encoder.name.as_ptr()) };
        NonNull::new(found.cast_mut()).map(|found| (*encoder, found))
    })
}

/// Returns the pixel formats that `codec` takes, as libav's numbers; `None` if it does not list them.
pub(super) fn formats_of(codec: NonNull<ff::AVCodec>) -> Option<Vec<c_int>> {
    // SAFETY: a static description; the list ends with -1. Enums are read as integers as in C.
    unsafe {
        let list = (&raw const (*codec.as_ptr()).pix_fmts).read().cast::<c_int>();
        if list.is_null() {
            return None;
        }
        Some((0..).map(|index| *list.add(index)).take_while(|format| *format >= 0).collect())
    }
}

/// Returns the duration of a frame in ticks of the time base, at least 1.
pub(super) fn frame_ticks(info: &StreamInfo) -> i64 {
    let frame = Rational::new(info.frame_rate.den, info.frame_rate.num);
    frame.rescale(1, info.time_base).unwrap_or(1).max(1)
}

/// Sets the fields of a context that is not open yet.
///
/// # Safety
/// `context` is valid and not open.
pub(super) unsafe fn configure(
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
            RateControl::BitRate(bits, buffer) => {
                set_bit_rate(context, bits, buffer);
                match family {
                    // A rate would be a target; the maximum remains.
                    EncoderFamily::Svt if options.best_quality.is_some() => (*context).bit_rate = 0,
                    _ if options.best_quality.is_some() => {}
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

/// Sets bit rate, maximum rate and buffer.
///
/// # Safety
/// `context` is valid.
pub(super) unsafe fn set_bit_rate(context: *mut ff::AVCodecContext, bits: u64, buffer: RateBuffer) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let rate = (*context).framerate;
        let frames = if rate.num > 0 { i64::from(rate.num) / i64::from(rate.den.max(1)) } else { 12 };
        let parts = match buffer {
            RateBuffer::Twelfth => frames.clamp(1, 12),
            RateBuffer::Frame => frames.max(1),
        };
        let bits = bits as i64;
        (*context).bit_rate = bits;
        (*context).rc_max_rate = bits;
        // x264 counts in kilobits, and 0 would be no limit.
        let buffer = (bits / parts).max(1000);
        (*context).rc_buffer_size = c_int::try_from(buffer).unwrap_or(c_int::MAX);
    }
}

/// Opens `context` with the options of the encoder.
pub(super) fn open(
    context: &EncoderContext,
    encoder: EncoderName,
    description: NonNull<ff::AVCodec>,
    layout: &Layout,
    options: &EncoderOptions,
) -> Result<(), EncodeError> {
    let settings = EncoderSettings {
        codec: options.codec,
        rate: options.rate,
        best_quality: options.best_quality,
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
pub(super) fn track_of(
    context: *mut ff::AVCodecContext,
    codec: Codec,
    info: &StreamInfo,
) -> Option<TrackInfo> {
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
        Some(TrackInfo { codec, stream, bit_rates: None, duration: None, parameters: Arc::new(copy?) })
    }
}
