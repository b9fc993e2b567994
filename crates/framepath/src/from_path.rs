// SPDX-License-Identifier: MIT OR Apache-2.0
//! Construction of a pipeline from path text.

use std::sync::atomic::Ordering;

use framepath_codec::{Codec, TrackInfo};
use framepath_model::orientation::Orientation;
use framepath_model::path::{self, DefinitionKind, Hop, all_hops};
use framepath_model::stream::{Rational, StreamInfo};
use framepath_os::sync::queue::Leaky;

use crate::congestion::Congestion;
use crate::element::{Element, EncodedStream, HopPlace, Make};
use crate::error::{RunError, StageError};
use crate::export::files::check_files;
use crate::frames::FRAMES_BEHIND;
use crate::host::{self, EncoderControl, Session, Spec, Task};
use crate::hosting::{refuse_required_sandbox, refuse_worker_options, service_stream_of, worker_options};
use crate::pipeline::{Pipeline, SegmentInput};
use crate::registry::Registry;
use crate::stage::HopRole;

impl Pipeline {
    /// Builds the pipeline that `text` describes. Opens the input files and the devices, connects to the
    /// server of a `url`, and starts the worker that demuxes, if any. Files for output are opened, and other
    /// workers started, when the run starts or later. The text need not end in a sink.
    ///
    /// # Errors
    /// [`RunError::Path`] for text that is not a path; [`RunError::SharedFile`] for an output that is the input or another output;
    /// [`RunError::Stage`] for a hop that cannot be made.
    ///
    /// ```
    /// use framepath::{Options, Pipeline};
    ///
    /// let report = Pipeline::parse("test frames=3 ! null")?.run(&Options::default())?;
    /// assert_eq!(report.frames, 3);
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Pipeline, RunError> {
        Pipeline::parse_with(Registry::built_in(), text)
    }

    /// [`parse`](Pipeline::parse) with the elements of `registry`. A later [`append`](Pipeline::append)
    /// uses them too.
    ///
    /// # Errors
    /// As [`parse`](Pipeline::parse).
    pub fn parse_with(registry: &Registry, text: &str) -> Result<Pipeline, RunError> {
        Pipeline::from_path_with(registry, &registry.definitions().parse_open(text)?)
    }

    /// Builds the pipeline of `path`. Opens and starts the same as [`parse`](Pipeline::parse).
    ///
    /// # Errors
    /// [`RunError::SharedFile`] for an output that is the input or another output; [`RunError::Stage`] for a hop that cannot be made.
    pub fn from_path(path: &path::Path) -> Result<Pipeline, RunError> {
        Pipeline::from_path_with(Registry::built_in(), path)
    }

    /// [`from_path`](Pipeline::from_path) with the elements of `registry`, which must be the registry that
    /// parsed the path.
    ///
    /// # Errors
    /// As [`from_path`](Pipeline::from_path).
    pub fn from_path_with(registry: &Registry, path: &path::Path) -> Result<Pipeline, RunError> {
        let (source, behind) = path.hops.split_first().expect("a path that was read has hops");
        check_files(&path.hops, [])?;
        let mut pipeline =
            Pipeline::from_hop(registry, source, behind).map_err(|error| hop_error(source, error))?;
        pipeline.expects_frames = true;
        pipeline.append_hops(behind)
    }

    /// Adds the hops of `text`: stages, queues and tees, and a sink or none, without a source. Behind a sink
    /// this is an error, which [`run`](Pipeline::run) and [`frames`](Pipeline::frames) return.
    ///
    /// # Errors
    /// [`RunError::Path`] for text that is not such a part of a path; [`RunError::Stage`] for a hop that
    /// cannot be made.
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
        let path = self.registry.definitions().parse_rest(text)?;
        self.append_hops(&path.hops)
    }

    /// Adds the stage of `hop` ([`path::parse_stage`](crate::path::parse_stage)), inline or in a worker
    /// as `hop` requests; also a sink or a `queue`. Hops behind it may keep up to `frames_behind` of its
    /// frames.
    ///
    /// # Errors
    /// [`RunError::Stage`] if the stage cannot be made, `hop` is a source or a `tee`, or the pipeline's
    /// registry lacks it.
    pub fn add_hop(self, hop: &Hop, frames_behind: u32) -> Result<Pipeline, RunError> {
        self.add_known(hop, &[], frames_behind).map_err(|error| hop_error(hop, error))
    }

    /// Starts a pipeline with the source that `hop` names. `behind` are the hops after it in the path.
    fn from_hop(registry: &Registry, hop: &Hop, behind: &[Hop]) -> Result<Pipeline, StageError> {
        let Make::Source(make) = &registry.element(hop)?.make else {
            return Err(StageError::Option(format!("`{}` is not a source", hop.name())));
        };
        let place = HopPlace::inline(behind, None, 0, Default::default());
        let source = make(hop, &place)?;
        let outcomes = place.outcomes;
        let mut pipeline = Pipeline::with_source(source, registry.clone(), outcomes).named(&hop.to_string());
        pipeline.hops[0].own = false;
        Ok(pipeline)
    }

    fn append_hops(self, hops: &[Hop]) -> Result<Pipeline, RunError> {
        let kept = if is_open(hops) { FRAMES_BEHIND } else { 0 };
        self.append_keeping(hops, kept)
    }

    /// Adds `hops`. The program may keep `kept` frames that come out of the last of these hops.
    fn append_keeping(self, hops: &[Hop], kept: u32) -> Result<Pipeline, RunError> {
        let mut pipeline = self;
        for (at, hop) in hops.iter().enumerate() {
            if let Some((last, sides)) = hop.branches.split_last() {
                for side in sides {
                    pipeline = pipeline.append_branch(side)?;
                }
                return pipeline.append_keeping(last, kept);
            }
            let behind = &hops[at + 1..];
            let added = pipeline.add_known(hop, behind, kept + frames_behind(behind));
            pipeline = added.map_err(|error| hop_error(hop, error))?;
        }
        Ok(pipeline)
    }

    /// Adds a `tee` with one branch of its own thread: `hops`, whose first hop is a queue.
    fn append_branch(self, hops: &[Hop]) -> Result<Pipeline, RunError> {
        let (link, behind) = hops.split_first().expect("a branch that was read has hops");
        let (depth, leaky) = queue_of(link);
        self.branch(depth, leaky, |side| side.named(&link.to_string()).append_keeping(behind, 0))
    }

    fn add_known(self, hop: &Hop, behind: &[Hop], frames_behind: u32) -> Result<Pipeline, StageError> {
        let registry = self.registry.clone();
        let element = registry.element(hop)?;
        hop.renamed().iter().for_each(|line| self.outcomes.notes.add(line.clone()));
        let make = match &element.make {
            Make::Stage(make) => make,
            Make::Queue => {
                let (depth, leaky) = queue_of(hop);
                return Ok(self.queue(depth, leaky).named(&hop.to_string()));
            }
            Make::Source(_) | Make::Tee => {
                return Err(StageError::Option(format!("`{}` is not a stage", hop.name())));
            }
        };
        let place = HopPlace::inline(behind, self.track.clone(), frames_behind, self.outcomes.clone());
        let in_worker = element.decodes.then(|| decoded_in_worker(hop, &place)).flatten();
        let hop = in_worker.as_ref().unwrap_or(hop);
        let mut pipeline = match hop.is_hosted() {
            true => {
                let task = element.task.as_ref().map_or(Ok(Task::Stage), |task| task(hop, &place))?;
                self.hosted(hop, place, task, element)?
            }
            false => {
                refuse_required_sandbox(hop)?;
                refuse_worker_options(hop)?;
                let role =
                    if hop.def.kind == DefinitionKind::Sink { HopRole::Sink } else { HopRole::Through };
                self.add(make(hop, &place)?, role).named(&hop.to_string())
            }
        };
        if element.decodes {
            pipeline.track = None;
        }
        if let Some(EncodedStream { codec, bit_rates }) = (element.encodes)(hop) {
            let mut track = TrackInfo::from_codec(codec, UNKNOWN_STREAM)?;
            track.bit_rates = bit_rates;
            pipeline.track = Some(track);
        }
        Ok(pipeline)
    }

    /// Adds a stage in a worker. The hops behind the stage run in another thread.
    fn hosted(
        self,
        hop: &Hop,
        place: HopPlace<'_>,
        task: Task,
        element: &Element,
    ) -> Result<Pipeline, StageError> {
        let least_out = (element.least_out)(hop, &place);
        let encodes = (element.encodes)(hop).map(|encoded| encoded.codec);
        let encoder = encodes.map(|_| EncoderControl::new(Congestion::new(&place.outcomes)));
        let HopPlace { track, frames_behind, .. } = place;
        let options = worker_options(hop, task, |_| hop)?;
        let index = self.hops.len() as u16;
        let service = service_stream_of(hop, hop);
        let session = Session::new(Spec {
            hop: hop.clone(),
            track,
            encodes,
            frames_behind,
            least_out,
            options,
            service,
            provider: None,
        });
        let (submit, collect) = host::channel(index, session.clone(), encoder);
        let mut pipeline = self.add(Box::new(submit), HopRole::Through).named(&hop.to_string());
        pipeline.workers.push((index, session.stats()));
        pipeline.begin_segment(SegmentInput::Worker(Box::new(collect)), index);
        Ok(pipeline)
    }
}

/// Returns the decoder `hop` with a worker as its host if its codec, or the file's container, is not one of
/// the known ones and the hop names no host. `None` if the hop stays as it is, also if the track is not known.
/// Adds a note for the user about the worker, and one if the track's pictures are converted to another format.
///
/// The container counts, because the codec is then the word of a worker that demuxes an unusual container: an
/// attacker in this worker could report a codec whose decoder would run in this process.
fn decoded_in_worker(hop: &Hop, place: &HopPlace<'_>) -> Option<Hop> {
    let track = place.track.as_ref()?;
    if let Some((from, to)) = track.converted_format() {
        place
            .note(&format!("decode: pictures in {from} are converted to {to}, the nearest supported format"));
    }
    let is_unusual =
        matches!(track.codec, Codec::Other(_)) || place.outcomes.is_unusual.load(Ordering::Relaxed);
    if hop.is_set("host") || !is_unusual {
        return None;
    }
    place.note(&format!(
        "decode: {} is decoded in a sandboxed process (host=inline: in this process)",
        track.codec
    ));
    Some(hop.with_choice("host", "process"))
}

/// Stream whose properties are known only when the run starts.
const UNKNOWN_STREAM: StreamInfo = StreamInfo {
    format: None,
    width: 0,
    height: 0,
    time_base: Rational::new(0, 1),
    frame_rate: Rational::new(0, 1),
    sample_aspect: Rational::new(0, 1),
    orientation: Orientation::Upright,
};

fn hop_error(hop: &Hop, error: StageError) -> RunError {
    RunError::Stage { hop: hop.to_string(), error }
}

/// Returns the depth in items and the drop policy that the `queue` hop requests.
fn queue_of(hop: &Hop) -> (usize, Leaky) {
    let leaky = match hop.choice("leaky") {
        "upstream" => Leaky::Upstream,
        "downstream" => Leaky::Downstream,
        _ => Leaky::No,
    };
    (hop.count("depth") as usize, leaky)
}

/// True if `hops` end without a sink; in a path with a `tee`, if the last branch does.
fn is_open(hops: &[Hop]) -> bool {
    match hops.last() {
        None => true,
        Some(last) => match last.branches.last() {
            Some(branch) => is_open(branch),
            None => last.def.kind != DefinitionKind::Sink,
        },
    }
}

/// Returns the number of a stage's frames that the hops behind it may keep: those in their queues, and one
/// in each thread that runs them, the stage's own included. Does not count frames inside workers, nor in the
/// threads that receive from workers.
fn frames_behind(hops: &[Hop]) -> u32 {
    let links = all_hops(hops).filter(|hop| hop.def.kind == DefinitionKind::Link);
    1 + links.map(|hop| hop.count("depth") as u32 + 1).sum::<u32>()
}
