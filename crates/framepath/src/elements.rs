// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipelines from path text: the constructor of each source, stage and sink.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use framepath_codec::frei0r;
use framepath_codec::{Api, DecoderOptions, Lenders, Output, Threads, TrackInfo};
use framepath_model::format::PixelFormat;
use framepath_model::path::{self, AUTO, Kind};
use framepath_os::pool::GiveBack;
use framepath_os::queue::Leaky;
use framepath_os::v4l2::{Heap, Node};

use crate::copy_pool::CopyPool;
use crate::device::{PATIENCE, decode::DeviceDecode, decoder_node, io_of, threshold::DeviceThreshold};
use crate::error::{RunError, StageError};
use crate::frames::FRAMES_BEHIND;
use crate::host::{self, DemuxerSpec, RemoteDemuxer, SandboxChoice, Seat, Session, Spec, WorkerOptions};
use crate::notes::Notes;
use crate::pipeline::{Pipeline, SegmentInput};
use crate::sink::play::{Play, PlayOptions, Played};
use crate::sink::{framemd5::FrameMd5, null::Null, pgm::Pgm, y4m::Y4m};
use crate::source::Source;
use crate::source::file::File;
use crate::source::fixture::Fixture;
use crate::source::test::{Test, TestOptions};
use crate::source::v4l2::{V4l2, V4l2Options};
use crate::stage::{Role, Stage, block::Block, burn::Burn, convert::Convert, copy::Copy};
use crate::stage::{
    decode::Decode, decode::Wish, encode::RawEncode, fill::Fill, plugin::Plugin, threshold::Threshold,
};

/// What a stage has to know of its place in the path.
pub(crate) struct Place {
    /// What the source gives, where that is compressed.
    pub(crate) track: Option<TrackInfo>,
    /// Frames that the hops behind may keep.
    pub(crate) frames_behind: u32,
    /// In a worker: the way back of frames from the caller.
    pub(crate) give_back: Option<&'static GiveBack>,
    /// In a worker: who lends the memory that is decoded into, where it is not
    /// the worker's own.
    pub(crate) lender: Option<Lenders>,
    /// In a worker: the file of the plug-in that is loaded already.
    pub(crate) plugin: Option<PathBuf>,
    /// In a worker: the device that it decodes by.
    pub(crate) node: Option<Arc<Node>>,
    /// Where the stage says what users should know.
    pub(crate) notes: Notes,
}

impl Pipeline {
    /// Builds the pipeline that `text` describes: opens its files, makes its pools,
    /// starts its workers. The text need not end in a sink.
    ///
    /// # Errors
    /// [`RunError::Path`] for text that is no path; else the hop that could not be
    /// made, and why.
    ///
    /// ```
    /// use framepath::{Options, Pipeline};
    ///
    /// let report = Pipeline::parse("test frames=3 ! null")?.run(&Options::default())?;
    /// assert_eq!(report.frames, 3);
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Pipeline, RunError> {
        Pipeline::from_path(&path::parse_open(text)?)
    }

    /// Builds what `path` says: opens its files, makes its pools.
    ///
    /// # Errors
    /// The hop that could not be made, and why.
    pub fn from_path(path: &path::Path) -> Result<Pipeline, RunError> {
        let (source, rest) = path.hops.split_first().expect("a path that was read has hops");
        let mut pipeline = Pipeline::source_of(source, rest).map_err(|error| of_hop(source, error))?;
        pipeline.expects_frames = true;
        pipeline.append_hops(rest)
    }

    /// Adds the hops of `text`, which has no source: stages, queues, a sink.
    ///
    /// # Errors
    /// [`RunError::Path`] for text that is no path without its source; else the hop
    /// that could not be made, and why.
    ///
    /// ```
    /// use framepath::{Options, Pipeline};
    ///
    /// let mut pipeline = Pipeline::parse("test frames=3 size=64x48")?;
    /// pipeline = pipeline.append("threshold ! queue depth=2")?.append("null")?;
    /// assert_eq!(pipeline.run(&Options::default())?.frames, 3);
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    pub fn append(self, text: &str) -> Result<Pipeline, RunError> {
        self.append_hops(&path::parse_rest(text)?.hops)
    }

    fn append_hops(self, rest: &[path::Hop]) -> Result<Pipeline, RunError> {
        let is_open = rest.last().is_none_or(|last| last.def.kind != Kind::Sink);
        let mut pipeline = self;
        let kept = if is_open { FRAMES_BEHIND } else { 0 };
        for (at, hop) in rest.iter().enumerate() {
            let text = hop.to_string();
            pipeline = match hop.def.kind {
                Kind::Link => {
                    let leaky = match hop.choice("leaky") {
                        "upstream" => Leaky::Upstream,
                        "downstream" => Leaky::Downstream,
                        _ => Leaky::No,
                    };
                    pipeline.queue(hop.count("depth") as usize, leaky).named(&text)
                }
                Kind::Stage => pipeline.add_hop(hop, kept + frames_behind(&rest[at + 1..]))?,
                Kind::Sink if hop.name() == "play" => {
                    let played = Arc::<Played>::default();
                    let sink = Play::new(PlayOptions::of(hop), played.clone());
                    pipeline.played = Some(played);
                    pipeline.add(Box::new(sink.map_err(|error| of_hop(hop, error))?), Role::Sink).named(&text)
                }
                Kind::Sink | Kind::Source => pipeline.add(sink_of(hop), Role::Sink).named(&text),
            };
        }
        Ok(pipeline)
    }

    /// Adds a stage that paths know, inline or in a worker as `hop` says
    /// ([`path::parse_stage`]). Hops behind it may keep `frames_behind` of its
    /// frames.
    ///
    /// # Errors
    /// It could not be made.
    pub fn add_hop(self, hop: &path::Hop, frames_behind: u32) -> Result<Pipeline, RunError> {
        let (track, notes) = (self.track.clone(), self.notes.clone());
        let place =
            Place { track, frames_behind, give_back: None, lender: None, plugin: None, node: None, notes };
        let added = match hop.is_hosted() {
            true => self.hosted(hop, place),
            false => {
                stage_of(hop, &place).map(|stage| self.add(stage, Role::Through).named(&hop.to_string()))
            }
        };
        let mut added = added.map_err(|error| of_hop(hop, error))?;
        if hop.name() == "decode" {
            added.track = None;
        }
        Ok(added)
    }

    /// Runs a stage in a worker: what follows runs in another thread.
    fn hosted(self, hop: &path::Hop, place: Place) -> Result<Pipeline, StageError> {
        let node = if hop.def.arg("api").is_some() { node_of_worker(hop, &place) } else { None };
        let Place { track, frames_behind, .. } = place;
        let watchdog = Duration::from_nanos(hop.duration_ns("watchdog"));
        let index = self.hops.len() as u16;
        let options = WorkerOptions {
            // A device that is silent is no packet's fault, and its client says so
            // by itself in the end.
            watchdog: if node.is_some() { watchdog.max(PATIENCE + Duration::from_secs(2)) } else { watchdog },
            memory_bytes: hop.bytes("memory").unwrap_or(0),
            sandbox: SandboxChoice::of(hop.choice("sandbox")),
            faults: hop.text("fault").parse().map_err(StageError::Option)?,
            uncached: hop.def.arg("cache").is_some() && hop.choice("cache") == "off",
            plugin: match hop.name() {
                "plugin" => Some(canonical(frei0r::find(hop.text("plugin"))?.path)?),
                _ => None,
            },
            node,
        };
        let text = hop.to_string();
        let seat = seat_of(hop, hop);
        let session =
            Session::new(Spec { hop: hop.clone(), track, frames_behind, options, seat, lends: None });
        let (submit, collect) = host::ends(index, session.clone());
        let mut pipeline = self.add(Box::new(submit), Role::Through).named(&text);
        pipeline.workers.push((index, session.stats()));
        pipeline.begin_segment(SegmentInput::Worker(Box::new(collect)));
        Ok(pipeline)
    }

    /// Starts with a source that paths know.
    fn of_known(source: impl Source + 'static, text: &str) -> Pipeline {
        let mut pipeline = Pipeline::from_source(source).named(text);
        pipeline.hops[0].own = false;
        pipeline
    }

    fn source_of(hop: &path::Hop, rest: &[path::Hop]) -> Result<Pipeline, StageError> {
        let text = hop.to_string();
        if hop.name() == "file" {
            let (loops, demuxer) = (hop.count("loop"), demuxer_of(hop, rest)?);
            let file = File::open(hop.text("path"), loops, hop.rate("rate"), demuxer)?;
            let (track, demuxer) = (file.track().clone(), file.worker().map(RemoteDemuxer::stats));
            let mut pipeline = Pipeline::of_known(file, &text);
            (pipeline.track, pipeline.demuxer) = (Some(track), demuxer);
            return Ok(pipeline);
        }
        if hop.name() == "fixture" {
            let fixture = Fixture::open(
                hop.text("file"),
                &heap_of(hop),
                hop.count("frames"),
                hop.count("pool") as u32,
            )?;
            return Ok(Pipeline::of_known(fixture, &text));
        }
        if hop.name() == "v4l2" {
            let missed = Arc::new(AtomicU64::new(0));
            let source = V4l2::open(&v4l2_options(hop)?, missed.clone())?;
            let mut pipeline = Pipeline::of_known(source, &text);
            pipeline.missed = missed;
            return Ok(pipeline);
        }
        let (width, height) = hop.size("size");
        let test = Test::new(&TestOptions {
            width,
            height,
            format: hop.choice("format").parse::<PixelFormat>()?,
            bytes: hop.bytes("bytes"),
            rate: hop.rate("rate"),
            frames: hop.count("frames"),
            pool: hop.count("pool") as u32,
        })?;
        Ok(Pipeline::of_known(test, &text))
    }
}

/// The stage that `hop` names, to run where it is made.
pub(crate) fn stage_of(hop: &path::Hop, place: &Place) -> Result<Box<dyn Stage>, StageError> {
    let device = hop.device();
    for only in ["io", "algo", "in_place"] {
        if device.is_none()
            && hop.def.arg("host").is_some()
            && hop.def.arg(only).is_some()
            && hop.is_set(only)
        {
            let what = format!("{only}= is for host=device:PATH; the stage runs host={}", hop.choice("host"));
            return Err(StageError::Option(what));
        }
    }
    Ok(match hop.name() {
        "decode" => {
            let track = place.track.clone().ok_or(StageError::WrongInput {
                takes: "packets",
                gets: "frames",
                advice: "what comes is not compressed: leave `decode` out",
            })?;
            let options = decoder_options(hop, place);
            if device.is_some() && hop.is_set("api") {
                let what = "api= and host=device: both name the decoder; give one of them".to_owned();
                return Err(StageError::Option(what));
            }
            match device {
                Some(node) => Box::new(DeviceDecode::open(node, track, &options)?),
                // What a worker decodes by was chosen when it was made.
                None if hop.choice("api") == "software" || place.give_back.is_some() => match &place.node {
                    Some(node) => Box::new(DeviceDecode::by(node.clone(), track, &options)?),
                    None => Box::new(Decode::new(track, options, None)),
                },
                None => by_machine(hop.choice("api"), track, options, &place.notes),
            }
        }
        "threshold" if device.is_some() => Box::new(DeviceThreshold::open(hop)?),
        "threshold" => Box::new(Threshold {
            level: hop.level("level"),
            region: hop.roi("roi"),
            copies: CopyPool::for_worker(place.give_back),
        }),
        "convert" => Box::new(Convert::new(hop.choice("format").parse()?, place.give_back)),
        // Finding looks at folders alone; the file is opened at the start.
        "plugin" => {
            let file = match &place.plugin {
                Some(loaded) => loaded.clone(),
                None => frei0r::find(hop.text("plugin"))?.path,
            };
            Box::new(Plugin::new(file, hop.open(), place.give_back))
        }
        "encode" => Box::new(RawEncode::new(hop.flag("copy").then(|| CopyPool::for_worker(place.give_back)))),
        "burn" => Box::new(Burn { cpu_ns: hop.duration_ns("time") }),
        "copy" => Box::new(Copy::new(hop.bytes("bytes").unwrap_or(0) as usize)),
        "fill" => Box::new(Fill::new(hop.bytes("bytes").unwrap_or(0) as usize, place.give_back)),
        // The table has no other stage.
        _ => Box::new(Block { ns: hop.duration_ns("time") }),
    })
}

/// The device that a worker is to decode by, where `hop` asks for one that can
/// be; else says why it is software.
fn node_of_worker(hop: &path::Hop, place: &Place) -> Option<PathBuf> {
    let (api, track) = (hop.choice("api"), place.track.as_ref()?);
    let options = || decoder_options(hop, place);
    let why = match api {
        "software" => return None,
        _ if hop.choice("host") == "service" => "the service's workers have no devices".to_owned(),
        "auto" | "v4l2m2m" => match decoder_node(track.codec, api == "auto") {
            // A trial: what it is refused, its worker would be.
            Some(node) => match DeviceDecode::open(&node.to_string_lossy(), track.clone(), &options()) {
                Ok(_) => return Some(node),
                Err(error) => format!("v4l2m2m: {error}"),
            },
            None => format!("no V4L2 device decodes {}, and a sandbox has no other", track.codec),
        },
        _ => "a worker's sandbox has V4L2 devices only".to_owned(),
    };
    place.notes.say(format!("decode api={api}: in software, because {why}"));
    None
}

/// A decoder of the machine as `asked`, software as what is left.
fn by_machine(asked: &str, track: TrackInfo, options: DecoderOptions, notes: &Notes) -> Box<dyn Stage> {
    let auto = asked == "auto";
    let mut reasons = Vec::new();
    if auto || asked == "v4l2m2m" {
        match decoder_node(track.codec, auto) {
            Some(node) => match DeviceDecode::open(&node.to_string_lossy(), track.clone(), &options) {
                Ok(stage) => return Box::new(stage),
                Err(error) => reasons.push(format!("v4l2m2m: {error}")),
            },
            None => reasons.push(format!("v4l2m2m: no device decodes {}", track.codec)),
        }
    }
    let apis = if auto { Api::ALL.into() } else { Api::named(asked).into_iter().collect() };
    let wish = Wish { asked: asked.to_owned(), apis, reasons, notes: notes.clone() };
    Box::new(Decode::new(track, options, Some(wish)))
}

/// The stream's place in the service, where `hop` runs there; `named` may name
/// the service's socket.
fn seat_of(hop: &path::Hop, named: &path::Hop) -> Option<Arc<Seat>> {
    (hop.choice("host") == "service").then(|| {
        let socket = named.is_set("socket").then(|| named.text("socket").into());
        let uid = |of: &path::Hop| of.is_set("service_uid").then(|| of.count("service_uid") as u32);
        Seat::new(socket.unwrap_or_else(host::default_socket), uid(named).or_else(|| uid(hop)))
    })
}

/// The worker that demuxes for `file`: as it says itself, else as the decoder
/// behind it. `None` where it is demuxed inline.
fn demuxer_of(file: &path::Hop, rest: &[path::Hop]) -> Result<Option<DemuxerSpec>, StageError> {
    let decoder = rest.iter().find(|hop| hop.name() == "decode");
    let decoder = decoder.filter(|decoder| decoder.is_hosted());
    let hop = match decoder {
        Some(decoder) if !file.is_set("host") => decoder,
        _ if file.is_hosted() => file,
        _ => return Ok(None),
    };
    let naming = |option| if file.is_set(option) { file } else { hop };
    let options = WorkerOptions {
        watchdog: Duration::from_nanos(naming("watchdog").duration_ns("watchdog")),
        memory_bytes: naming("memory").bytes("memory").unwrap_or(0),
        sandbox: SandboxChoice::of(naming("sandbox").choice("sandbox")),
        faults: file.text("fault").parse().map_err(StageError::Option)?,
        uncached: false,
        plugin: None,
        node: None,
    };
    let seat = seat_of(hop, naming("socket"));
    Ok(Some(DemuxerSpec { loops: file.count("loop"), options, seat, private: decoder.is_none() }))
}

fn heap_of(hop: &path::Hop) -> Heap {
    if hop.is_set("heap") { Heap::named(hop.text("heap")) } else { Heap::any() }
}

fn v4l2_options(hop: &path::Hop) -> Result<V4l2Options, StageError> {
    Ok(V4l2Options {
        node: hop.text("device").to_owned(),
        io: io_of(hop.choice("io")),
        size: hop.is_set("size").then(|| hop.size("size")),
        format: if hop.is_set("format") { Some(hop.choice("format").parse()?) } else { None },
        rate: if hop.is_set("rate") { hop.rate("rate") } else { 0.0 },
        frames: hop.count("frames"),
        buffers: hop.count("buffers") as u32,
        heap: heap_of(hop),
    })
}

fn canonical(file: PathBuf) -> Result<PathBuf, StageError> {
    file.canonicalize().map_err(StageError::io(file.display().to_string()))
}

fn sink_of(hop: &path::Hop) -> Box<dyn Stage> {
    match hop.name() {
        "framemd5" => Box::new(FrameMd5::new(hop.text("file"))),
        "y4m" => Box::new(Y4m::new(hop.text("file"))),
        "pgm" => Box::new(Pgm::new(hop.text("dir"))),
        // The table has no other sink.
        _ => Box::new(Null),
    }
}

fn of_hop(hop: &path::Hop, error: StageError) -> RunError {
    RunError::Stage { hop: hop.to_string(), error }
}

/// Frames that the hops behind a decoder may keep from it: what its queues
/// hold, and one in the hands of each thread.
fn frames_behind(rest: &[path::Hop]) -> u32 {
    let links = rest.iter().filter(|hop| hop.def.kind == Kind::Link);
    1 + links.map(|hop| hop.count("depth") as u32 + 1).sum::<u32>()
}

fn decoder_options(hop: &path::Hop, place: &Place) -> DecoderOptions {
    DecoderOptions {
        threads: match hop.count("threads") {
            AUTO => Threads::Auto,
            n => Threads::Count(n as u32),
        },
        output: match hop.choice("format") {
            "nv12" => Output::Nv12,
            "p010" => Output::P010,
            _ => Output::Native,
        },
        pool_slots: match hop.count("pool") {
            AUTO => None,
            n => Some(n as u32),
        },
        downstream_frames: place.frames_behind,
        give_back: place.give_back,
        lender: place.lender,
    }
}
