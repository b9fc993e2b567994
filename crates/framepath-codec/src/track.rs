// SPDX-License-Identifier: MIT OR Apache-2.0
//! Description of a video track, which a decoder needs before the first packet.

use std::ffi::c_int;
use std::fmt;
use std::ops::RangeInclusive;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use ffmpeg_sys_next as ff;
use framepath_model::access_point::AccessPoints;
use framepath_model::access_unit::Coding;
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::parameter_sets::{ParameterSets, in_band};
use framepath_model::stream::{Rational, StreamInfo};

use crate::libav_format::{format_name, nearest, pixel_format};
use crate::{Codec, CodecError};

/// libav's description of a stream (`AVCodecParameters`), freed on drop.
pub(crate) struct Parameters(NonNull<ff::AVCodecParameters>);

// SAFETY: written only while one thread creates the value, and only read afterwards.
unsafe impl Send for Parameters {}
// SAFETY: as for Send: after the creation every access reads.
unsafe impl Sync for Parameters {}

impl Parameters {
    /// Copies `source`; returns `None` if there is not enough memory.
    ///
    /// # Safety
    /// `source` is a valid, initialised parameter set.
    pub(crate) unsafe fn copy_of(source: *const ff::AVCodecParameters) -> Option<Parameters> {
        // SAFETY: `copy` owns the new set, and its drop frees the set if the copy fails. The caller
        // guarantees that `source` is valid.
        unsafe {
            let copy = Parameters(NonNull::new(ff::avcodec_parameters_alloc())?);
            (ff::avcodec_parameters_copy(copy.0.as_ptr(), source) >= 0).then_some(copy)
        }
    }

    /// Returns a pointer for libav to read; valid while `self` lives.
    pub(crate) fn as_ptr(&self) -> *const ff::AVCodecParameters {
        self.0.as_ptr()
    }
}

impl Drop for Parameters {
    fn drop(&mut self) {
        let mut raw = self.0.as_ptr();
        // SAFETY: from avcodec_parameters_alloc, freed only here.
        unsafe { ff::avcodec_parameters_free(&mut raw) };
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parameters")
    }
}

/// Description of a video track, known before the first packet. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TrackInfo {
    /// Codec of the packets.
    pub codec: Codec,
    /// Geometry, time base, rate and orientation, as declared by the container or found in the
    /// first packets. `format` is the expected format of the decoder's pictures; `None` if this
    /// format is unknown, or if framepath does not support it and so converts the pictures.
    pub stream: StreamInfo,
    /// Lowest and highest bit rate of an encoder that follows requests, bits per second; `None` if no encoder of this program
    /// makes the packets, or one of constant quality.
    pub bit_rates: Option<RangeInclusive<u64>>,
    /// Time from the stream's start to its end, as the container declares it; `None` if it declares none, as
    /// elementary and live streams.
    pub duration: Option<Duration>,
    pub(crate) parameters: Arc<Parameters>,
}

/// Number of 32-bit words before the codec's head in [`TrackInfo::to_bytes`].
const WORDS: usize = 16;

/// Number of bytes of the [`WORDS`] words.
const FIXED: usize = WORDS * 4;

/// Returns the addresses of those fields of `parameters` that a decoder in another process needs.
/// Each field is accessed as a 32-bit number.
fn fields(parameters: *mut ff::AVCodecParameters) -> [*mut u32; WORDS] {
    // SAFETY: only takes addresses of fields, each of four bytes. Enums are accessed as integers as in C.
    unsafe {
        [
            (&raw mut (*parameters).codec_id).cast(),
            (&raw mut (*parameters).codec_tag).cast(),
            (&raw mut (*parameters).format).cast(),
            (&raw mut (*parameters).width).cast(),
            (&raw mut (*parameters).height).cast(),
            (&raw mut (*parameters).profile).cast(),
            (&raw mut (*parameters).level).cast(),
            (&raw mut (*parameters).video_delay).cast(),
            (&raw mut (*parameters).bits_per_coded_sample).cast(),
            (&raw mut (*parameters).bits_per_raw_sample).cast(),
            (&raw mut (*parameters).field_order).cast(),
            (&raw mut (*parameters).color_range).cast(),
            (&raw mut (*parameters).color_primaries).cast(),
            (&raw mut (*parameters).color_trc).cast(),
            (&raw mut (*parameters).color_space).cast(),
            (&raw mut (*parameters).chroma_location).cast(),
        ]
    }
}

impl TrackInfo {
    /// Returns the codec's head (libavcodec's `extradata`), as stored in the container: parameter sets
    /// or a configuration record. Empty if the container stores none.
    pub(crate) fn head(&self) -> &[u8] {
        // SAFETY: a valid parameter set that nothing writes, and that lives as long as `self`.
        unsafe {
            let raw = self.parameters.as_ptr();
            match usize::try_from((*raw).extradata_size) {
                Ok(size) if !(*raw).extradata.is_null() => std::slice::from_raw_parts((*raw).extradata, size),
                _ => &[],
            }
        }
    }

    /// Returns libav's name of the pixel format of the decoder's pictures, as far as it is known
    /// before decoding, and the supported format to which framepath converts the pictures. `None`
    /// if framepath supports the format, if it cannot convert it, or if the format is not known.
    pub fn converted_format(&self) -> Option<(String, PixelFormat)> {
        // SAFETY: a field of a valid parameter set that nothing writes.
        let format = unsafe { (*self.parameters.as_ptr()).format };
        match pixel_format(format) {
            Some(_) => None,
            None => nearest(format).map(|to| (format_name(format), to)),
        }
    }

    /// Returns the parameter sets of `new`, a description of the same track in another session, as
    /// bytes to put in front of a packet of this track. Empty if the two heads are equal, or if
    /// `new` has no parameter sets. `None` if the codecs differ, or the form or size of NAL unit
    /// lengths. Compares nothing else of the two tracks.
    pub fn sets_of(&self, new: &TrackInfo) -> Option<Vec<u8>> {
        match (self.codec == new.codec, self.head() == new.head()) {
            (false, _) => None,
            (true, true) => Some(Vec::new()),
            (true, false) => in_band(self.coding(), self.head(), new.head()),
        }
    }

    /// Creates a verifier for the key flags of the track's packets: it finds the random access
    /// points in their bytes.
    pub fn access_points(&self) -> AccessPoints {
        AccessPoints::new(self.coding(), self.head())
    }

    /// Creates a collector of the parameter sets in the track's packets.
    pub fn parameter_sets(&self) -> ParameterSets {
        ParameterSets::new(self.coding(), self.head())
    }

    /// Returns the codec as the readers of packets distinguish it.
    pub fn coding(&self) -> Coding {
        self.codec.coding()
    }

    /// Encodes the description for a decoder in another process: little-endian 32-bit words
    /// (libavcodec's codec number, tag, pixel format, width, height, profile, level, reorder
    /// delay, bits of coded and raw samples, field order, colour range, primaries, transfer, matrix, chroma
    /// location), then the codec's head. [`TrackInfo::stream`] and [`TrackInfo::duration`] are not included.
    pub fn to_bytes(&self) -> Vec<u8> {
        let fields = fields(self.parameters.as_ptr().cast_mut());
        // SAFETY: fields of a valid parameter set that nothing writes.
        let words = fields.map(|field| unsafe { field.read() });
        words.iter().flat_map(|word| word.to_le_bytes()).chain(self.head().iter().copied()).collect()
    }

    /// Parses the bytes of [`TrackInfo::to_bytes`], which may come from an untrusted process. The
    /// result has the given `stream`, but with the pixel format of the bytes.
    ///
    /// # Errors
    /// There are too few or too many bytes; the codec is outside [`Codec::KNOWN`], and libavcodec
    /// has no software decoder for it; or there is not enough memory.
    pub fn from_bytes(bytes: &[u8], stream: StreamInfo) -> Result<TrackInfo, CodecError> {
        let (fixed, head) = bytes.split_at_checked(FIXED).ok_or(CodecError::Track { detail: "too short" })?;
        let word = |index: usize| {
            let bytes = fixed[index * 4..].first_chunk().expect("inside the fixed part");
            u32::from_le_bytes(*bytes)
        };
        let codec = Codec::from_id(word(0)).ok_or(CodecError::Track { detail: "unknown codec" })?;
        let memory = CodecError::Track { detail: "no memory" };
        // SAFETY: a new parameter set, which `parameters` owns immediately. The head is copied into
        // memory that libav allocated, zeroed, with the padding that libav requires.
        unsafe {
            let raw = ff::avcodec_parameters_alloc();
            let parameters = Parameters(NonNull::new(raw).ok_or(memory)?);
            (*raw).codec_type = ff::AVMediaType::AVMEDIA_TYPE_VIDEO;
            for (index, field) in fields(raw).into_iter().enumerate() {
                field.write(word(index));
            }
            if !head.is_empty() {
                let size =
                    c_int::try_from(head.len()).map_err(|_| CodecError::Track { detail: "too long" })?;
                let copy =
                    ff::av_mallocz(head.len() + ff::AV_INPUT_BUFFER_PADDING_SIZE as usize).cast::<u8>();
                if copy.is_null() {
                    return Err(CodecError::Track { detail: "no memory" });
                }
                ptr::copy_nonoverlapping(head.as_ptr(), copy, head.len());
                (*raw).extradata = copy;
                (*raw).extradata_size = size;
            }
            let stream = StreamInfo { format: pixel_format((*raw).format), ..stream };
            Ok(TrackInfo { codec, stream, bit_rates: None, duration: None, parameters: Arc::new(parameters) })
        }
    }
}

impl TrackInfo {
    /// Parses the bytes of [`TrackInfo::to_bytes`] that describe the packets of an encoder in an untrusted
    /// process. The encoder encodes frames like `layout` of the stream `info` with `codec`.
    ///
    /// # Errors
    /// As [`TrackInfo::from_bytes`], or the bytes describe another codec or size.
    pub fn from_encoder(
        bytes: &[u8],
        codec: Codec,
        layout: &Layout,
        info: &StreamInfo,
    ) -> Result<TrackInfo, CodecError> {
        let (width, height) = (layout.width, layout.height);
        let track = TrackInfo::from_bytes(bytes, StreamInfo { width, height, ..timed(info) })?;
        // SAFETY: fields of a valid parameter set that nothing writes.
        let size = unsafe {
            let raw = track.parameters.as_ptr();
            ((*raw).width, (*raw).height)
        };
        if track.codec != codec || size != (width as c_int, height as c_int) {
            return Err(CodecError::Track { detail: "not that of the encoder" });
        }
        Ok(track)
    }

    /// Creates the description of a video without a head, from the codec and `stream`, whose pixel
    /// format is ignored. The packets have to declare the rest, as in elementary streams.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn from_codec(codec: Codec, stream: StreamInfo) -> Result<TrackInfo, CodecError> {
        let mut words = [0; FIXED];
        // 2 is the number for unspecified primaries, transfer and matrix.
        for unspecified in [12, 13, 14] {
            words[unspecified * 4..][..4].copy_from_slice(&2u32.to_le_bytes());
        }
        words[..4].copy_from_slice(&codec.id().to_le_bytes());
        // Pixel format, profile and level are unknown. libav's own value for unknown is -1 or -99,
        // depending on its version; decoders check for neither number.
        for unknown in [2, 5, 6] {
            words[unknown * 4..][..4].copy_from_slice(&(-1i32).to_le_bytes());
        }
        words[12..16].copy_from_slice(&stream.width.to_le_bytes());
        words[16..20].copy_from_slice(&stream.height.to_le_bytes());
        TrackInfo::from_bytes(&words, stream)
    }
}

/// Returns `info`, the frames of an encoder, with a known time base and frame rate: 25 frames per second if the rate is not known, and
/// microseconds if the time base is not known.
pub(crate) fn timed(info: &StreamInfo) -> StreamInfo {
    let known = |value: Rational, default: Rational| if value.value().is_some() { value } else { default };
    StreamInfo {
        time_base: known(info.time_base, Rational::new(1, 1_000_000)),
        frame_rate: known(info.frame_rate, Rational::new(25, 1)),
        ..*info
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use framepath_model::orientation::Orientation;

    use super::*;

    /// Makes the bytes by which another process describes a track with `codec` and `head`.
    fn bytes_of(codec: Codec, head: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        bytes[..4].copy_from_slice(&codec.id().to_le_bytes());
        bytes.extend(head);
        bytes
    }

    fn unknown_stream() -> StreamInfo {
        let none = Rational::new(0, 1);
        StreamInfo {
            format: None,
            width: 0,
            height: 0,
            time_base: none,
            frame_rate: none,
            sample_aspect: none,
            orientation: Orientation::Upright,
        }
    }

    /// Makes a track with `codec` and `head`; size and times are unknown.
    pub(crate) fn track(codec: Codec, head: &[u8]) -> TrackInfo {
        TrackInfo::from_bytes(&bytes_of(codec, head), unknown_stream()).unwrap()
    }

    #[test]
    fn an_encoder_describes_its_own_codec_and_size() {
        let layout = Layout::packed(PixelFormat::Yuv420p, 64, 48).unwrap();
        let info = StreamInfo { width: 64, height: 48, ..unknown_stream() };
        let bytes = TrackInfo::from_codec(Codec::H264, info).unwrap().to_bytes();
        let of = |codec, layout: &Layout| TrackInfo::from_encoder(&bytes, codec, layout, &unknown_stream());
        let track = of(Codec::H264, &layout).unwrap();
        assert_eq!((track.codec, track.stream.width, track.stream.height), (Codec::H264, 64, 48));
        assert_eq!(track.stream.frame_rate, Rational::new(25, 1), "the encoder's own default");
        let wider = Layout::packed(PixelFormat::Yuv420p, 66, 48).unwrap();
        for wrong in [of(Codec::Vp9, &layout), of(Codec::H264, &wider)] {
            assert!(matches!(wrong, Err(CodecError::Track { .. })));
        }
    }

    #[test]
    fn foreign_bytes_are_a_track_or_an_error() {
        for bytes in [&[][..], &[0; FIXED - 1], &[0xff; FIXED + 3]] {
            assert!(matches!(TrackInfo::from_bytes(bytes, unknown_stream()), Err(CodecError::Track { .. })));
        }
        let track = track(Codec::Vp9, b"head");
        assert_eq!(track.codec, Codec::Vp9);
        assert_eq!(track.to_bytes(), bytes_of(Codec::Vp9, b"head"));
    }
}
