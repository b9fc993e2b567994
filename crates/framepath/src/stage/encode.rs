// SPDX-License-Identifier: MIT OR Apache-2.0
//! `encode`: frames into packets, or with `encode raw` the pixels unchanged.

mod compressed;
mod raw;

use std::ops::RangeInclusive;

use framepath_codec::{Codec, EncoderApi, EncoderOptions, EncoderPreset, RateBuffer, RateControl};
use framepath_model::path::{AUTO, Arg, DefaultValue, Definition, Hop, Hosts, INFINITE, ValueKind};

use crate::congestion::Congestion;
use crate::copy_pool::COPY_SLOTS;
use crate::element::{Element, EncodedStream, HopPlace};
use crate::error::StageError;
use crate::host::Task;
use crate::stage::Stage;
use compressed::{Encode, EncoderChoice};
use raw::RawEncode;

/// Names of the presets, fastest first.
const PRESETS: [&str; EncoderPreset::ALL.len()] =
    ["ultrafast", "superfast", "veryfast", "faster", "fast", "medium"];

/// Option of `encode raw`.
const COPY: &str = "copy";

static DEFINITION: Definition = Definition::stage(
    "encode",
    "frames into packets of H.264, HEVC, VP8, VP9 or AV1 with little delay",
)
.args(&[
    Arg::word(
        "codec",
        ValueKind::choice(&["raw", "h264", "hevc", "vp8", "vp9", "av1"]),
        "codec of the packets; raw: the pixels as they are",
    ),
    Arg::option(
        "bitrate",
        ValueKind::BitRate,
        DefaultValue::Unset("constant quality, see crf"),
        "highest bit rate, bits per second; with a buffer of a twelfth of a second",
    ),
    Arg::option(
        "min_bitrate",
        ValueKind::BitRate,
        DefaultValue::Unset("a quarter of bitrate"),
        "lowest bit rate on a slow network of `send`, bits per second; if it is too high, frames are dropped and not encoded",
    ),
    Arg::option(
        "crf",
        ValueKind::count(0, 63),
        DefaultValue::Unset("h264 23, hevc 28, vp8 10, vp9 31, av1 35"),
        "quality, lower is better: constant, or the best with bitrate=; h264, hevc up to 51; 0: lossless for h264, hevc, vp9",
    ),
    Arg::option(
        "gop",
        ValueKind::count_or(1, 1_000_000, "inf", INFINITE),
        DefaultValue::Unset("two seconds"),
        "maximum number of frames from a keyframe to the next; inf: keyframes only on request",
    )
    .known_as(&["g", "keyint"]),
    Arg::option(
        "preset",
        ValueKind::choice(&PRESETS),
        DefaultValue::Is("superfast"),
        "speed of the encoder; a faster one needs more bits for the same quality",
    ),
    Arg::option(
        "threads",
        ValueKind::count_or(1, 256, "auto", AUTO),
        DefaultValue::Is("auto"),
        "number of encoder threads; auto: by the number of processors",
    ),
    Arg::option(
        "intra_refresh",
        ValueKind::Flag,
        DefaultValue::Is("0"),
        "refresh the picture column by column over `gop` frames instead of by keyframes; h264 and hevc",
    ),
    Arg::option(
        "api",
        ValueKind::choice(&["software", "vaapi", "nvenc", "v4l2m2m", "auto"]),
        DefaultValue::Is("software"),
        "encoder to use; auto: the first that works, software last; not tested on hardware; in a worker only software",
    ),
    Arg::option(
        COPY,
        ValueKind::Flag,
        DefaultValue::Is("0"),
        "with raw: copy the pixels, as a naive encoder does",
    ),
])
.hosts(Hosts::Any)
.known_as(&["x264enc", "x265enc", "vp8enc", "vp9enc", "av1enc"]);

pub(crate) fn element() -> Element {
    Element::boxed(&DEFINITION, make).with_task(task).with_least_out(|_, _| COPY_SLOTS - 1).encoding(|hop| {
        Some(EncodedStream { codec: Codec::named(hop.choice("codec"))?, bit_rates: bit_rates(hop) })
    })
}

/// Returns the lowest and highest bit rate, bits per second; `None` for constant quality.
fn bit_rates(hop: &Hop) -> Option<RangeInclusive<u64>> {
    let highest = hop.is_set("bitrate").then(|| hop.count("bitrate"))?;
    let lowest = if hop.is_set("min_bitrate") { hop.count("min_bitrate") } else { highest / 4 };
    Some(lowest..=highest)
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<Box<dyn Stage>, StageError> {
    let Some(codec) = Codec::named(hop.choice("codec")) else {
        let other =
            DEFINITION.own.iter().find(|arg| !arg.positional && arg.name != COPY && hop.is_set(arg.name));
        return match other {
            Some(arg) => Err(StageError::Option(format!("{}= is not for `encode raw`", arg.name))),
            None => Ok(Box::new(RawEncode::new(hop.flag(COPY).then(|| place.copy_pool())))),
        };
    };
    if hop.is_set(COPY) {
        return Err(StageError::Option("copy= is only for `encode raw`".to_owned()));
    }
    let bit_rates = bit_rates(hop);
    if hop.is_set("min_bitrate") && bit_rates.as_ref().is_none_or(RangeInclusive::is_empty) {
        return Err(StageError::Option("min_bitrate=: expected bitrate=, and no more than that".to_owned()));
    }
    let api = hop.choice("api");
    let options = EncoderOptions {
        codec,
        api: EncoderApi::Software,
        rate: match (hop.is_set("bitrate"), hop.is_set("crf")) {
            (true, _) => RateControl::BitRate(hop.count("bitrate"), RateBuffer::Twelfth),
            (_, true) => RateControl::Quality(Some(hop.count("crf") as u32)),
            _ => RateControl::Quality(None),
        },
        best_quality: hop.is_set("crf").then(|| hop.count("crf") as u32),
        gop: hop.is_set("gop").then(|| u32::try_from(hop.count("gop")).unwrap_or(u32::MAX)),
        preset: EncoderPreset::named(hop.choice("preset")).unwrap_or(EncoderPreset::Superfast),
        threads: match hop.count("threads") {
            AUTO => None,
            n => Some(n as u32),
        },
        intra_refresh: hop.flag("intra_refresh"),
    };
    let mut apis: Vec<EncoderApi> = EncoderApi::HARDWARE.into();
    apis.push(EncoderApi::Software);
    apis.retain(|known| api == "auto" || known.name() == api);
    let choice = EncoderChoice { apis, notes: place.outcomes.notes.clone() };
    let congestion = Congestion::new(&place.outcomes);
    let lowest = bit_rates.map_or(0, |rates| *rates.start());
    Ok(Box::new(Encode::new(options, lowest, choice, congestion)))
}

/// Returns the task of a worker. A worker has no hardware, because its sandbox denies the devices.
fn task(hop: &Hop, _: &HopPlace<'_>) -> Result<Task, StageError> {
    match hop.choice("api") {
        "software" => Ok(Task::Stage),
        api => Err(StageError::Option(format!(
            "api={api} cannot run in a worker, whose sandbox denies the hardware; leave host={} out, or use api=software",
            hop.choice("host")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_are_those_of_the_encoders() {
        assert_eq!(EncoderPreset::ALL.map(EncoderPreset::name), PRESETS);
    }
}
