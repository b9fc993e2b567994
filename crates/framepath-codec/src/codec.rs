// SPDX-License-Identifier: MIT OR Apache-2.0
//! Codecs that framepath decodes.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr;

use ffmpeg_sys_next as ff;
use framepath_model::access_unit::Coding;

/// Codec of a video track.
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
    /// Any other codec for which libavcodec has a software decoder, such as MPEG-2 or ProRes.
    Other(OtherCodec),
}

/// Codec of libavcodec that has no variant of its own in [`Codec`]. Its decoder was fuzzed less
/// than those of the others, so a path of the crate `framepath` decodes the codec in a sandboxed
/// process unless the path sets the option `host` of the stage `decode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OtherCodec(u32);

impl Codec {
    /// All codecs except [`Codec::Other`]: H.264, HEVC, VP8, VP9 and AV1.
    pub const KNOWN: [Codec; 5] = [Codec::H264, Codec::Hevc, Codec::Vp8, Codec::Vp9, Codec::Av1];

    /// Returns libavcodec's name of the codec, which errors and output use.
    pub fn name(self) -> &'static str {
        match self {
            Codec::H264 => "h264",
            Codec::Hevc => "hevc",
            Codec::Vp8 => "vp8",
            Codec::Vp9 => "vp9",
            Codec::Av1 => "av1",
            Codec::Other(OtherCodec(id)) => codec_name(id),
        }
    }

    /// Returns the codec with this name in libavcodec. Returns `None` if there is no such codec, or
    /// if libavcodec has no software decoder for a codec outside [`Codec::KNOWN`].
    pub fn named(name: &str) -> Option<Codec> {
        let known = Codec::KNOWN.into_iter().find(|codec| codec.name() == name);
        let name = std::ffi::CString::new(name).ok()?;
        known.or_else(|| {
            // SAFETY: searches a static table; the name is a C string. The number is read as an integer as in C.
            let id = unsafe {
                let descriptor = ff::avcodec_descriptor_get_by_name(name.as_ptr());
                descriptor.as_ref().map(|found| (&raw const found.id).cast::<u32>().read())
            };
            id.and_then(Codec::from_id)
        })
    }

    /// Returns libavcodec's number of the codec.
    pub(crate) fn id(self) -> u32 {
        match self {
            Codec::H264 => ff::AVCodecID::AV_CODEC_ID_H264 as u32,
            Codec::Hevc => ff::AVCodecID::AV_CODEC_ID_HEVC as u32,
            Codec::Vp8 => ff::AVCodecID::AV_CODEC_ID_VP8 as u32,
            Codec::Vp9 => ff::AVCodecID::AV_CODEC_ID_VP9 as u32,
            Codec::Av1 => ff::AVCodecID::AV_CODEC_ID_AV1 as u32,
            Codec::Other(OtherCodec(id)) => id,
        }
    }

    /// Returns the codec with libavcodec's number `id`; `None` if it is outside [`Codec::KNOWN`]
    /// and libavcodec has no software decoder for it.
    pub(crate) fn from_id(id: u32) -> Option<Codec> {
        let known = Codec::KNOWN.into_iter().find(|codec| codec.id() == id);
        known.or_else(|| software_decoder(id).map(|_| Codec::Other(OtherCodec(id))))
    }

    /// Returns the rules by which random access points are found in the codec's packets.
    pub fn coding(self) -> Coding {
        match self {
            Codec::H264 => Coding::H264,
            Codec::Hevc => Coding::Hevc,
            Codec::Vp8 => Coding::Vp8,
            Codec::Vp9 => Coding::Vp9,
            Codec::Av1 => Coding::Av1,
            Codec::Other(OtherCodec(id)) if id == ff::AVCodecID::AV_CODEC_ID_MJPEG as u32 => Coding::Mjpeg,
            Codec::Other(OtherCodec(id)) if has_only_intra(id) => Coding::Intra,
            Codec::Other(OtherCodec(id)) => coding_of_other(id),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns libavcodec's first video decoder for the codec with the number `id` that is neither a
/// hardware decoder nor experimental; `None` if there is none.
pub(crate) fn software_decoder(id: u32) -> Option<*const ff::AVCodec> {
    const HARDWARE: u32 = ff::AV_CODEC_CAP_HARDWARE | ff::AV_CODEC_CAP_EXPERIMENTAL;
    let mut state = ptr::null_mut();
    // SAFETY: lists the entries of a static table; enums are read as integers as in C.
    unsafe {
        loop {
            let codec = ff::av_codec_iterate(&mut state);
            if codec.is_null() {
                return None;
            }
            let is_video = (&raw const (*codec).type_).cast::<c_int>().read()
                == ff::AVMediaType::AVMEDIA_TYPE_VIDEO as c_int;
            let found = (&raw const (*codec).id).cast::<u32>().read();
            let is_hardware = (*codec).capabilities as u32 & HARDWARE != 0;
            if found == id && is_video && !is_hardware && ff::av_codec_is_decoder(codec) != 0 {
                return Some(codec);
            }
        }
    }
}

/// Returns libavcodec's name of the codec with the number `id`; `unknown_codec` if libavcodec has
/// none.
pub(crate) fn codec_name(id: u32) -> &'static str {
    // SAFETY: any number is valid; the result is a static string.
    unsafe { CStr::from_ptr(codec_name_of(id)) }.to_str().unwrap_or("unknown_codec")
}

/// Returns the rules for the codec with libavcodec's number `id`, which is outside [`Codec::KNOWN`] and
/// has references between its pictures.
fn coding_of_other(id: u32) -> Coding {
    use ff::AVCodecID::{
        AV_CODEC_ID_FLV1, AV_CODEC_ID_H261, AV_CODEC_ID_H263, AV_CODEC_ID_H263P, AV_CODEC_ID_MPEG1VIDEO,
        AV_CODEC_ID_MPEG2VIDEO, AV_CODEC_ID_MPEG4,
    };
    let rules = [
        (AV_CODEC_ID_MPEG1VIDEO, Coding::Mpeg2),
        (AV_CODEC_ID_MPEG2VIDEO, Coding::Mpeg2),
        (AV_CODEC_ID_MPEG4, Coding::Mpeg4),
        (AV_CODEC_ID_H263, Coding::H263),
        (AV_CODEC_ID_H263P, Coding::H263),
        (AV_CODEC_ID_FLV1, Coding::Flv1),
        (AV_CODEC_ID_H261, Coding::Inter),
    ];
    rules.into_iter().find(|(known, _)| *known as u32 == id).map_or(Coding::Other, |(_, coding)| coding)
}

/// Returns true if each packet of the codec with the number `id` is decoded alone: libavcodec says
/// so, or the codec is PNG.
fn has_only_intra(id: u32) -> bool {
    // SAFETY: any number is valid; the result is null or a static description.
    let descriptor = unsafe { descriptor_of(id).as_ref() };
    // libavcodec does not set the property for PNG; animated PNG is another codec.
    id == ff::AVCodecID::AV_CODEC_ID_PNG as u32
        || descriptor.is_some_and(|found| found.props & ff::AV_CODEC_PROP_INTRA_ONLY as c_int != 0)
}

// Declared with C's plain integer, because a number from a stream must not become a Rust enum unchecked.
unsafe extern "C" {
    #[link_name = "avcodec_get_name"]
    fn codec_name_of(id: u32) -> *const c_char;
    #[link_name = "avcodec_descriptor_get"]
    fn descriptor_of(id: u32) -> *const ff::AVCodecDescriptor;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_known_by_number_and_name() {
        for codec in Codec::KNOWN {
            assert_eq!((Codec::from_id(codec.id()), Codec::named(codec.name())), (Some(codec), Some(codec)));
        }
        let [mjpeg, mpeg2] = ["mjpeg", "mpeg2video"].map(|name| Codec::named(name).unwrap());
        assert_eq!((mjpeg.name(), mjpeg.coding()), ("mjpeg", Coding::Mjpeg));
        assert_eq!((mpeg2.name(), mpeg2.coding()), ("mpeg2video", Coding::Mpeg2));
        for (name, coding) in
            [("mpeg1video", Coding::Mpeg2), ("mpeg4", Coding::Mpeg4), ("h261", Coding::Inter)]
        {
            assert_eq!(Codec::named(name).unwrap().coding(), coding);
        }
        for (name, coding) in [("h263", Coding::H263), ("flv1", Coding::Flv1), ("rpza", Coding::Other)] {
            assert_eq!(Codec::named(name).unwrap().coding(), coding);
        }
        assert_eq!(Codec::from_id(mpeg2.id()), Some(mpeg2));
        for name in ["aac", "no codec", "nul\0byte"] {
            assert_eq!(Codec::named(name), None);
        }
        assert_eq!((Codec::from_id(u32::MAX), codec_name(u32::MAX)), (None, "unknown_codec"));
    }
}
