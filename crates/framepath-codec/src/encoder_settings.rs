// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choice of libavcodec's encoder for a codec, and its settings for little delay.

use std::ffi::CStr;
use std::fmt;

use crate::Codec;

/// API of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EncoderApi {
    /// An encoder on the CPU.
    Software,
    /// VA-API: Intel's and AMD's GPUs on Linux, and others.
    Vaapi,
    /// NVENC: NVIDIA's API.
    Nvenc,
    /// A V4L2 device.
    V4l2m2m,
}

impl EncoderApi {
    /// APIs of hardware, in the order in which the stage `encode` tries them with `api=auto`.
    pub const HARDWARE: [EncoderApi; 3] = [EncoderApi::Vaapi, EncoderApi::Nvenc, EncoderApi::V4l2m2m];

    /// Returns the API's name in paths.
    pub fn name(self) -> &'static str {
        match self {
            EncoderApi::Software => "software",
            EncoderApi::Vaapi => "vaapi",
            EncoderApi::Nvenc => "nvenc",
            EncoderApi::V4l2m2m => "v4l2m2m",
        }
    }
}

impl fmt::Display for EncoderApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Amount of bits that an encoder spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateControl {
    /// Bits per second, and the encoder's buffer.
    BitRate(u64, RateBuffer),
    /// Constant quality: the encoder's own number, lower is better; `None`: the usual number of the encoder.
    Quality(Option<u32>),
}

/// Buffer of an encoder's rate control (VBV): the bits by which frames may exceed the bit rate on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateBuffer {
    /// A twelfth of a second, or a frame if that is longer.
    Twelfth,
    /// A frame: no frame takes longer than a frame interval on a network that carries the bit rate and no more.
    Frame,
}

/// Speed of an encoder: a faster one needs more bits for the same quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EncoderPreset {
    /// Fastest.
    Ultrafast,
    /// The default of the stage `encode`.
    Superfast,
    /// Slower than superfast.
    Veryfast,
    /// Slower than veryfast.
    Faster,
    /// Slower than faster.
    Fast,
    /// Slower than fast.
    Medium,
}

impl EncoderPreset {
    /// All presets, fastest first.
    pub const ALL: [EncoderPreset; 6] = [
        EncoderPreset::Ultrafast,
        EncoderPreset::Superfast,
        EncoderPreset::Veryfast,
        EncoderPreset::Faster,
        EncoderPreset::Fast,
        EncoderPreset::Medium,
    ];

    /// Returns the name in paths, which is x264's.
    pub fn name(self) -> &'static str {
        match self {
            EncoderPreset::Ultrafast => "ultrafast",
            EncoderPreset::Superfast => "superfast",
            EncoderPreset::Veryfast => "veryfast",
            EncoderPreset::Faster => "faster",
            EncoderPreset::Fast => "fast",
            EncoderPreset::Medium => "medium",
        }
    }

    /// Returns the preset named `name`; `None` if there is none.
    pub fn named(name: &str) -> Option<EncoderPreset> {
        EncoderPreset::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// Returns the number of the presets that are slower or equal, less one: 5 for the fastest, 0 for the slowest.
    fn speed(self) -> u32 {
        EncoderPreset::Medium as u32 - self as u32
    }
}

/// Family of libavcodec's encoders with the same options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EncoderFamily {
    X264,
    X265,
    /// libvpx: VP8 and VP9.
    Vpx,
    /// SVT-AV1.
    Svt,
    /// libaom: AV1.
    Aom,
    Vaapi,
    Nvenc,
    V4l2m2m,
}

/// Encoder of libavcodec, by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncoderName {
    pub(crate) name: &'static CStr,
    pub(crate) family: EncoderFamily,
}

/// Returns libavcodec's encoders of `codec` with `api`, in order of preference; none for other codecs than
/// [`Codec::KNOWN`].
pub(crate) fn encoders(codec: Codec, api: EncoderApi) -> Vec<EncoderName> {
    use EncoderFamily::{Aom, Nvenc, Svt, V4l2m2m, Vaapi, Vpx, X264, X265};
    let names: &[(&CStr, EncoderFamily)] = match (codec, api) {
        (Codec::H264, EncoderApi::Software) => &[(c"libx264", X264)],
        (Codec::Hevc, EncoderApi::Software) => &[(c"libx265", X265)],
        (Codec::Vp8, EncoderApi::Software) => &[(c"libvpx", Vpx)],
        (Codec::Vp9, EncoderApi::Software) => &[(c"libvpx-vp9", Vpx)],
        // SVT-AV1 last: its threads delay packets, and it writes to standard error.
        (Codec::Av1, EncoderApi::Software) => &[(c"libaom-av1", Aom), (c"libsvtav1", Svt)],
        (Codec::H264, EncoderApi::Vaapi) => &[(c"h264_vaapi", Vaapi)],
        (Codec::Hevc, EncoderApi::Vaapi) => &[(c"hevc_vaapi", Vaapi)],
        (Codec::Vp8, EncoderApi::Vaapi) => &[(c"vp8_vaapi", Vaapi)],
        (Codec::Vp9, EncoderApi::Vaapi) => &[(c"vp9_vaapi", Vaapi)],
        (Codec::Av1, EncoderApi::Vaapi) => &[(c"av1_vaapi", Vaapi)],
        (Codec::H264, EncoderApi::Nvenc) => &[(c"h264_nvenc", Nvenc)],
        (Codec::Hevc, EncoderApi::Nvenc) => &[(c"hevc_nvenc", Nvenc)],
        (Codec::Av1, EncoderApi::Nvenc) => &[(c"av1_nvenc", Nvenc)],
        (Codec::H264, EncoderApi::V4l2m2m) => &[(c"h264_v4l2m2m", V4l2m2m)],
        (Codec::Hevc, EncoderApi::V4l2m2m) => &[(c"hevc_v4l2m2m", V4l2m2m)],
        (Codec::Vp8, EncoderApi::V4l2m2m) => &[(c"vp8_v4l2m2m", V4l2m2m)],
        _ => &[],
    };
    names.iter().map(|(name, family)| EncoderName { name, family: *family }).collect()
}

/// Settings of an encoder that the family's options depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncoderSettings {
    pub(crate) codec: Codec,
    pub(crate) rate: RateControl,
    /// Best quality number with a bit rate; `None`: no limit.
    pub(crate) best_quality: Option<u32>,
    pub(crate) preset: EncoderPreset,
    /// Number of threads; `None`: the library's choice.
    pub(crate) threads: Option<u32>,
    pub(crate) intra_refresh: bool,
    /// Width of the pictures, pixels.
    pub(crate) width: u32,
}

impl EncoderFamily {
    /// True if the encoder takes only even widths and heights where chroma is subsampled.
    pub(crate) fn needs_even_sides(self) -> bool {
        !matches!(self, EncoderFamily::Vpx | EncoderFamily::Aom)
    }

    /// True if the encoder follows a change of the context's bit rate at run time.
    pub(crate) fn follows_bit_rate(self) -> bool {
        matches!(self, EncoderFamily::X264 | EncoderFamily::Nvenc)
    }

    /// True if the encoder makes a keyframe of a frame on request.
    pub(crate) fn follows_key_requests(self) -> bool {
        self != EncoderFamily::Svt
    }

    /// True if the encoder takes a best quality besides a bit rate.
    pub(crate) fn limits_quality(self) -> bool {
        !matches!(self, EncoderFamily::Vaapi | EncoderFamily::V4l2m2m)
    }

    /// True if the encoder can refresh the picture column by column.
    pub(crate) fn refreshes_gradually(self) -> bool {
        matches!(self, EncoderFamily::X264 | EncoderFamily::X265)
    }

    /// Returns the highest quality number of the encoder.
    pub(crate) fn worst_quality(self, codec: Codec) -> u32 {
        match codec {
            Codec::H264 | Codec::Hevc => 51,
            _ if self == EncoderFamily::Vaapi => 255,
            _ => 63,
        }
    }

    /// Returns the quality number if the user chooses none: for the libraries, their documentation's.
    pub(crate) fn usual_quality(self, codec: Codec) -> u32 {
        match (self, codec) {
            (EncoderFamily::X265, _) => 28,
            (EncoderFamily::Vpx, Codec::Vp8) => 10,
            (EncoderFamily::Vpx, _) => 31,
            (EncoderFamily::Svt | EncoderFamily::Aom, _) => 35,
            _ => 23,
        }
    }

    /// Returns the options of libavcodec for `settings`, as names and values.
    pub(crate) fn options(self, settings: &EncoderSettings) -> Vec<(&'static CStr, String)> {
        let EncoderSettings { codec, rate, preset, intra_refresh, .. } = *settings;
        let quality = match rate {
            // Lossless is no limit of a bit rate.
            RateControl::BitRate(..) => settings.best_quality.map(|quality| quality.max(1)),
            RateControl::Quality(quality) => Some(quality.unwrap_or_else(|| self.usual_quality(codec))),
        };
        let mut options: Vec<(&'static CStr, String)> = Vec::new();
        let mut set = |name: &'static CStr, value: &dyn fmt::Display| options.push((name, value.to_string()));
        match self {
            EncoderFamily::X264 => {
                set(c"preset", &preset.name());
                set(c"tune", &"zerolatency");
                set(c"forced-idr", &1);
                // Keyframes only where they are due or requested, because each is a burst of bits.
                set(c"sc_threshold", &0);
                match quality {
                    // crf 0 is lossless for 8 bits only.
                    Some(0) => set(c"qp", &0),
                    Some(quality) => set(c"crf", &quality),
                    None => {}
                }
                if intra_refresh {
                    set(c"intra-refresh", &1);
                }
            }
            EncoderFamily::X265 => {
                set(c"preset", &preset.name());
                set(c"tune", &"zerolatency");
                set(c"forced-idr", &1);
                let mut extra = "log-level=none:scenecut=0:frame-threads=1".to_owned();
                match quality {
                    Some(0) => extra += ":lossless=1",
                    Some(quality) => set(c"crf", &quality),
                    None => {}
                }
                if let Some(threads) = settings.threads {
                    extra +=
                        &if threads == 1 { ":pools=none".to_owned() } else { format!(":pools={threads}") };
                }
                if intra_refresh {
                    extra += ":intra-refresh=1";
                }
                set(c"x265-params", &extra);
            }
            EncoderFamily::Vpx => {
                set(c"deadline", &"realtime");
                set(c"lag-in-frames", &0);
                set(c"auto-alt-ref", &0);
                // 9 and 16 are the highest numbers that differ.
                let fastest = if codec == Codec::Vp8 { 16 } else { 9 };
                // `cpu-used` by its older name, which accepts 9 for VP9 also before FFmpeg 6.
                set(c"speed", &(fastest - EncoderPreset::Ultrafast.speed() + preset.speed()));
                if codec == Codec::Vp9 {
                    set(c"row-mt", &1);
                    set(c"tile-columns", &tile_columns(settings.width));
                }
                match quality {
                    Some(0) if codec == Codec::Vp9 => set(c"lossless", &1),
                    Some(quality) => set(c"crf", &quality.max(if codec == Codec::Vp8 { 4 } else { 0 })),
                    None => {}
                }
            }
            EncoderFamily::Svt => {
                set(c"preset", &(7 + preset.speed()));
                if let Some(quality) = quality {
                    set(c"crf", &quality);
                }
                // Prediction from earlier pictures only.
                let mut extra = "pred-struct=1:lookahead=0:scd=0".to_owned();
                if quality.is_none() {
                    extra += ":rc=2";
                }
                if let Some(threads) = settings.threads {
                    extra += &format!(":lp={threads}");
                }
                set(c"svtav1-params", &extra);
            }
            EncoderFamily::Aom => {
                set(c"usage", &"realtime");
                set(c"lag-in-frames", &0);
                set(c"cpu-used", &(3 + preset.speed()));
                set(c"row-mt", &1);
                set(c"tile-columns", &tile_columns(settings.width));
                if let Some(quality) = quality {
                    set(c"crf", &quality);
                }
            }
            EncoderFamily::Vaapi => {
                set(c"async_depth", &1);
                set(c"rc_mode", &if quality.is_some() { "CQP" } else { "CBR" });
            }
            EncoderFamily::Nvenc => {
                set(c"preset", &format!("p{}", 6 - preset.speed()));
                set(c"tune", &"ull");
                set(c"zerolatency", &1);
                set(c"delay", &0);
                set(c"forced-idr", &1);
                match (rate, quality) {
                    (RateControl::Quality(_), Some(quality)) => {
                        set(c"rc", &"constqp");
                        set(c"qp", &quality);
                    }
                    (RateControl::BitRate(..), Some(quality)) => {
                        set(c"rc", &"vbr");
                        set(c"cq", &quality);
                    }
                    (_, None) => set(c"rc", &"cbr"),
                }
            }
            EncoderFamily::V4l2m2m => {}
        }
        options
    }
}

/// Returns the base-2 logarithm of the number of tile columns: a column has at least 256 pixels.
fn tile_columns(width: u32) -> u32 {
    (width / 256).max(1).ilog2().min(6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_names_and_speeds() {
        for preset in EncoderPreset::ALL {
            assert_eq!(EncoderPreset::named(preset.name()), Some(preset));
        }
        assert_eq!((EncoderPreset::Ultrafast.speed(), EncoderPreset::Medium.speed()), (5, 0));
        assert_eq!([100, 511, 512, 1920, 100_000].map(tile_columns), [0, 0, 1, 2, 6]);
    }

    #[test]
    fn every_known_codec_has_a_software_encoder() {
        for codec in Codec::KNOWN {
            assert!(!encoders(codec, EncoderApi::Software).is_empty(), "{codec}");
        }
        assert!(encoders(Codec::Vp9, EncoderApi::Nvenc).is_empty());
    }
}
