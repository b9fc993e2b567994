// SPDX-License-Identifier: MIT OR Apache-2.0
//! Description of a video track, which a decoder needs before the first packet.

use std::ffi::c_int;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ffmpeg_sys_next as ff;
use framepath_model::access_point::AccessPoints;
use framepath_model::access_unit::Coding;
use framepath_model::parameter_sets::ParameterSets;
use framepath_model::stream::StreamInfo;

use crate::CodecError;
use crate::surface::pixel_format;

/// Codec that framepath decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// H.264, ITU-T H.264.
    H264,
    /// HEVC, ITU-T H.265.
    Hevc,
    /// VP8, RFC 6386.
    Vp8,
    /// VP9.
    Vp9,
    /// AV1.
    Av1,
}

impl Codec {
    /// All codecs.
    pub const ALL: [Codec; 5] = [Codec::H264, Codec::Hevc, Codec::Vp8, Codec::Vp9, Codec::Av1];

    /// Returns libavcodec's name of the codec, which errors and output use.
    pub fn name(self) -> &'static str {
        match self {
            Codec::H264 => "h264",
            Codec::Hevc => "hevc",
            Codec::Vp8 => "vp8",
            Codec::Vp9 => "vp9",
            Codec::Av1 => "av1",
        }
    }

    pub(crate) fn id(self) -> ff::AVCodecID {
        match self {
            Codec::H264 => ff::AVCodecID::AV_CODEC_ID_H264,
            Codec::Hevc => ff::AVCodecID::AV_CODEC_ID_HEVC,
            Codec::Vp8 => ff::AVCodecID::AV_CODEC_ID_VP8,
            Codec::Vp9 => ff::AVCodecID::AV_CODEC_ID_VP9,
            Codec::Av1 => ff::AVCodecID::AV_CODEC_ID_AV1,
        }
    }

    pub(crate) fn from_id(id: u32) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.id() as u32 == id)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
    /// Geometry, time base and rate, as declared by the container. `format` is the expected format
    /// of the decoder's pictures; `None` if this format is unknown or framepath does not support it.
    pub stream: StreamInfo,
    pub(crate) parameters: Arc<Parameters>,
}

/// Number of bytes before the codec's head in [`TrackInfo::to_bytes`].
const FIXED: usize = 8 * 4;

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

    /// Creates a verifier for the key flags of the track's packets: it finds the random access
    /// points in their bytes.
    pub fn access_points(&self) -> AccessPoints {
        AccessPoints::new(self.coding(), self.head())
    }

    /// Creates a collector of the parameter sets in the track's packets.
    pub fn parameter_sets(&self) -> ParameterSets {
        ParameterSets::new(self.coding(), self.head())
    }

    pub(crate) fn coding(&self) -> Coding {
        match self.codec {
            Codec::H264 => Coding::H264,
            Codec::Hevc => Coding::Hevc,
            Codec::Vp8 => Coding::Vp8,
            Codec::Vp9 => Coding::Vp9,
            Codec::Av1 => Coding::Av1,
        }
    }

    /// Encodes the description for a decoder in another process: little-endian 32-bit words
    /// (libavcodec's codec number, tag, pixel format, width, height, profile, level, reorder
    /// delay), then the codec's head. [`TrackInfo::stream`] is not included.
    pub fn to_bytes(&self) -> Vec<u8> {
        // SAFETY: a valid parameter set that nothing writes; enums are read as integers, as in C.
        let words = unsafe {
            let raw = self.parameters.as_ptr();
            [
                (&raw const (*raw).codec_id).cast::<u32>().read(),
                (*raw).codec_tag,
                (*raw).format as u32,
                (*raw).width as u32,
                (*raw).height as u32,
                (*raw).profile as u32,
                (*raw).level as u32,
                (*raw).video_delay as u32,
            ]
        };
        words.iter().flat_map(|word| word.to_le_bytes()).chain(self.head().iter().copied()).collect()
    }

    /// Parses the bytes of [`TrackInfo::to_bytes`], which may come from an untrusted process. The
    /// result has the given `stream`, but with the pixel format of the bytes.
    ///
    /// # Errors
    /// There are too few or too many bytes, the codec is unknown, or there is not enough memory.
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
            (*raw).codec_id = codec.id();
            (*raw).codec_tag = word(1);
            (*raw).format = word(2) as c_int;
            (*raw).width = word(3) as c_int;
            (*raw).height = word(4) as c_int;
            (*raw).profile = word(5) as c_int;
            (*raw).level = word(6) as c_int;
            (*raw).video_delay = word(7) as c_int;
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
            Ok(TrackInfo { codec, stream, parameters: Arc::new(parameters) })
        }
    }
}

impl TrackInfo {
    /// Creates the description of a video without a head, from the codec and `stream`, whose pixel
    /// format is ignored. The packets have to declare the rest, as in elementary streams.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn from_codec(codec: Codec, stream: StreamInfo) -> Result<TrackInfo, CodecError> {
        let mut words = [0; FIXED];
        words[..4].copy_from_slice(&(codec.id() as u32).to_le_bytes());
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

#[cfg(test)]
pub(crate) mod tests {
    use framepath_model::stream::Rational;

    use super::*;

    /// Makes the bytes by which another process describes a track with `codec` and `head`.
    fn bytes_of(codec: Codec, head: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        bytes[..4].copy_from_slice(&(codec.id() as u32).to_le_bytes());
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
        }
    }

    /// Makes a track with `codec` and `head`; size and times are unknown.
    pub(crate) fn track(codec: Codec, head: &[u8]) -> TrackInfo {
        TrackInfo::from_bytes(&bytes_of(codec, head), unknown_stream()).unwrap()
    }

    #[test]
    fn codecs_are_known_by_their_id() {
        for codec in [Codec::H264, Codec::Hevc, Codec::Vp8, Codec::Vp9, Codec::Av1] {
            assert_eq!(Codec::from_id(codec.id() as u32), Some(codec));
        }
        assert_eq!(Codec::from_id(ff::AVCodecID::AV_CODEC_ID_MJPEG as u32), None);
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
