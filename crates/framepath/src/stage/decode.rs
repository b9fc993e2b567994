// SPDX-License-Identifier: MIT OR Apache-2.0
//! `decode`: decodes packets into frames, and chooses the decoder.

mod inline;

use std::path::PathBuf;

use framepath_codec::{
    Codec, DecoderOptions, DecoderThreading, DecoderThreads, HardwareApi, OutputFormat, TrackInfo,
};
use framepath_model::path::{AUTO, Arg, DefaultValue, Definition, Hop, Hosts, ValueKind};

use crate::device::decode::DeviceDecode;
use crate::device::decoder_node;
use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::host::Task;
use crate::stage::Stage;
use inline::{DamageHandling, DamageMode, Decode, HardwareFallback};

static DEFINITION: Definition = Definition::stage(
    "decode",
    "packets of H.264, HEVC, VP8, VP9, AV1 or another codec of libavcodec into frames",
)
.args(&[
    Arg::option(
        "format",
        ValueKind::choice(&["native", "nv12", "p010"]),
        DefaultValue::Is("native"),
        "pixel format of the frames; native: the decoder's own format, or the nearest supported one",
    ),
    Arg::option(
        "threads",
        ValueKind::count_or(1, 256, "auto", AUTO),
        DefaultValue::Is("auto"),
        "number of decoder threads; auto: by the number of processors",
    ),
    Arg::option(
        "threading",
        ValueKind::choice(&["auto", "frame", "slice"]),
        DefaultValue::Is("auto"),
        "work of the threads in software: `frame`: a picture each, and each thread but one delays the output by a \
         picture; `slice`: slices or tiles of one picture, without delay; `auto`: the library's choice, mostly frame",
    ),
    Arg::option(
        "lowdelay",
        ValueKind::Flag,
        DefaultValue::Is("0"),
        "output each picture as soon as it is decoded, without frame threads; for streams without B pictures, \
         because libavcodec then does not restore the presentation order",
    ),
    Arg::option(
        "damage",
        ValueKind::choice(&["show", "skip", "stop"]),
        DefaultValue::Is("show"),
        "damaged stream in software: `show` delivers what the decoder conceals, as ffmpeg does; `skip` delivers \
         nothing from the damage to the next random access point; `stop` ends with an error",
    ),
    Arg::option(
        "pool",
        ValueKind::count_or(1, 4096, "auto", AUTO),
        DefaultValue::Is("auto"),
        "number of frames in the decoder's pool; auto: as many as the decoder and the hops behind need",
    ),
    Arg::option(
        "api",
        ValueKind::choice(&["software", "vaapi", "nvdec", "vulkan", "vdpau", "v4l2m2m", "auto"]),
        DefaultValue::Is("software"),
        "decoder to use; if it cannot decode the stream, software decodes and a note says why",
    ),
    Arg::option(
        "device",
        ValueKind::Text("the path of a V4L2 node"),
        DefaultValue::Unset("with api=v4l2m2m or auto the first device that decodes the codec, else none"),
        "V4L2 device that must decode the stream, such as /dev/video0, or the run fails; implies api=v4l2m2m, and \
         is not for host=service",
    ),
])
.hosts(Hosts::Any)
.known_as(&["decodebin", "avdec_h264", "dav1ddec"]);

pub(crate) fn element() -> Element {
    Element::boxed(&DEFINITION, make).with_task(task).with_least_out(least_out).decoding()
}

/// A hardware decoder that can be tried.
enum Candidate {
    /// A V4L2 device, by the path of its node.
    Node(PathBuf),
    /// A hardware decoder that libavcodec uses through this interface.
    Library(HardwareApi),
}

/// Hardware decoders that the hop allows. If `candidates` and `reasons` are empty, the hop requests software.
struct Choice {
    /// Decoders in the order in which to try them.
    candidates: Vec<Candidate>,
    /// True if the hop has `device=`. No other decoder may then be used, not even software.
    only: bool,
    /// Reasons why other hardware decoders are not tried, for the note to the user.
    reasons: Vec<String>,
}

impl Choice {
    /// Returns the hardware decoders for `codec` that `hop` allows: first a V4L2 device, then libavcodec's
    /// decoders in the order of [`HardwareApi::ALL`]. Fails if `device=` and `api=` contradict each other.
    fn of(hop: &Hop, codec: Codec) -> Result<Choice, StageError> {
        let api = hop.choice("api");
        let mut choice = Choice { candidates: Vec::new(), only: hop.is_set("device"), reasons: Vec::new() };
        if choice.only {
            if hop.is_set("api") && !matches!(api, "v4l2m2m" | "auto") {
                let what = format!("device= needs api=v4l2m2m or api=auto; the stage has api={api}");
                return Err(StageError::Option(what));
            }
            choice.candidates.push(Candidate::Node(hop.text("device").into()));
            return Ok(choice);
        }
        if matches!(api, "auto" | "v4l2m2m") {
            match decoder_node(codec, api == "auto") {
                Some(node) => choice.candidates.push(Candidate::Node(node)),
                None => choice.reasons.push(format!("v4l2m2m: no device decodes {codec}")),
            }
        }
        let apis =
            if api == "auto" { HardwareApi::ALL.into() } else { Vec::from_iter(HardwareApi::named(api)) };
        choice.candidates.extend(apis.into_iter().map(Candidate::Library));
        Ok(choice)
    }

    fn is_software(&self) -> bool {
        self.candidates.is_empty() && self.reasons.is_empty()
    }
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<Box<dyn Stage>, StageError> {
    let track = place.track.clone().ok_or(StageError::WrongInput {
        takes: "packets",
        gets: "frames",
        advice: "the input is not compressed; leave `decode` out",
    })?;
    let options = decoder_options(hop, place);
    // In a worker that has a device, the process that runs the path has already tried this device (see
    // `task`).
    if let Some(node) = &place.node {
        return Ok(Box::new(DeviceDecode::by(node.clone(), track, &options)?));
    }
    let log = place.outcomes.damage.clone();
    log.set_time_base(track.stream.time_base);
    let damage = DamageHandling { mode: DamageMode::named(hop.choice("damage")), log };
    let choice = Choice::of(hop, track.codec)?;
    // In a worker without a device (`give_back` is set), the process that runs the path has decided for
    // software.
    if place.give_back.is_some() || choice.is_software() {
        return Ok(Box::new(Decode::new(track, options, None, damage)));
    }
    let Choice { candidates, only, mut reasons } = choice;
    let mut apis = Vec::new();
    for candidate in candidates {
        match candidate {
            Candidate::Library(api) => apis.push(api),
            Candidate::Node(node) => {
                match DeviceDecode::open(&node.to_string_lossy(), track.clone(), &options) {
                    Ok(stage) => return Ok(Box::new(stage)),
                    Err(error) if only => return Err(error),
                    Err(error) => reasons.push(format!("v4l2m2m: {error}")),
                }
            }
        }
    }
    let requested = hop.choice("api").to_owned();
    let fallback = HardwareFallback { requested, apis, reasons, notes: place.outcomes.notes.clone() };
    Ok(Box::new(Decode::new(track, options, Some(fallback), damage)))
}

/// Returns the task of a worker that decodes for `hop`: [`Task::Device`] if the hop allows a V4L2 device that
/// opens the stream, else (and always with `host=service`) [`Task::Stage`], which decodes in software. Adds a
/// note with the reasons if the hop requested hardware and software decodes. Returns an error if the hop has
/// `device=`, and this device fails, the host is the service, or `api=` names another interface.
fn task(hop: &Hop, place: &HopPlace<'_>) -> Result<Task, StageError> {
    let Some(track) = &place.track else { return Ok(Task::Stage) };
    let Choice { candidates, only, mut reasons } = Choice::of(hop, track.codec)?;
    if hop.choice("host") == "service" && !candidates.is_empty() {
        reasons = vec!["the service's workers have no devices".to_owned()];
        if only {
            return Err(StageError::Option(format!("device= and host=service: {}", reasons[0])));
        }
    } else {
        for candidate in candidates {
            let Candidate::Node(node) = candidate else {
                reasons.push("a worker's sandbox has V4L2 devices only".to_owned());
                break;
            };
            // Opens the device in this process first: a worker would get the same error later.
            match probe(&node, track, hop, place) {
                Ok(()) => return Ok(Task::Device(node)),
                Err(error) if only => return Err(error),
                Err(error) => reasons.push(format!("v4l2m2m: {error}")),
            }
        }
    }
    if !reasons.is_empty() {
        let (requested, why) = (hop.choice("api"), reasons.join("; "));
        place.note(&format!("decode api={requested}: in software, because {why}"));
    }
    Ok(Task::Stage)
}

/// Opens the stream in the device `node`, and closes the device again. Returns an error if the device cannot
/// decode the stream.
fn probe(
    node: &std::path::Path,
    track: &TrackInfo,
    hop: &Hop,
    place: &HopPlace<'_>,
) -> Result<(), StageError> {
    let options = decoder_options(hop, place);
    DeviceDecode::open(&node.to_string_lossy(), track.clone(), &options).map(drop)
}

fn least_out(hop: &Hop, place: &HopPlace<'_>) -> u32 {
    place.track.as_ref().map_or(1, |track| decoder_options(hop, place).least_out(track.codec))
}

fn decoder_options(hop: &Hop, place: &HopPlace<'_>) -> DecoderOptions {
    DecoderOptions {
        threads: match hop.count("threads") {
            AUTO => DecoderThreads::Auto,
            n => DecoderThreads::Count(n as u32),
        },
        threading: match hop.choice("threading") {
            "frame" => DecoderThreading::Frame,
            "slice" => DecoderThreading::Slice,
            _ => DecoderThreading::Auto,
        },
        low_delay: hop.flag("lowdelay"),
        output: match hop.choice("format") {
            "nv12" => OutputFormat::Nv12,
            "p010" => OutputFormat::P010,
            _ => OutputFormat::Native,
        },
        pool_slots: match hop.count("pool") {
            AUTO => None,
            n => Some(n as u32),
        },
        downstream_frames: place.frames_behind,
        conceals: hop.choice("damage") == "show",
        give_back: place.give_back,
        provider: place.provider,
    }
}
