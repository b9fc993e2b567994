// SPDX-License-Identifier: MIT OR Apache-2.0
//! Part of a path (source, stage, sink or link) that path text can name: its declaration and its constructor.
//!
//! Both are in the file that implements a built-in part. A program adds its own by a
//! [`Registry`](crate::Registry).

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use framepath_codec::{Codec, ProviderRef, TrackInfo};
use framepath_model::path::{Definition, DefinitionKind, Hop};
use framepath_os::memory::pool::{GiveBack, Pool};
use framepath_os::v4l2::Node;

use crate::copy_pool::CopyPool;
use crate::error::StageError;
use crate::host::Task;
use crate::outcomes::Outcomes;
use crate::source::Source;
use crate::stage::Stage;

type MakeSource = dyn Fn(&Hop, &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> + Send + Sync;
type MakeStage = dyn Fn(&Hop, &HopPlace<'_>) -> Result<Box<dyn Stage>, StageError> + Send + Sync;
pub(crate) type LeastOut = fn(&Hop, &HopPlace<'_>) -> u32;
type FindTask = dyn Fn(&Hop, &HopPlace<'_>) -> Result<Task, StageError> + Send + Sync;

/// Constructor of an element.
#[derive(Clone)]
pub(crate) enum Make {
    Source(Arc<MakeSource>),
    /// Constructor of a stage or a sink.
    Stage(Arc<MakeStage>),
    /// The `queue`, which the pipeline builds.
    Queue,
    /// The `tee`, which the pipeline builds with its branches.
    Tee,
}

/// Properties of an encoder's packets that are known before the first of them.
pub(crate) struct EncodedStream {
    pub(crate) codec: Codec,
    /// Lowest and highest bit rate, bits per second; `None` for constant quality.
    pub(crate) bit_rates: Option<RangeInclusive<u64>>,
}

/// A source, stage, sink or link that path text can name.
#[derive(Clone)]
pub(crate) struct Element {
    pub(crate) definition: &'static Definition,
    pub(crate) make: Make,
    /// Function that returns the task of the worker for a hop; `None` if the task is always
    /// [`Task::Stage`].
    pub(crate) task: Option<Arc<FindTask>>,
    /// True if the element decodes: the input is packets, and the output is frames.
    pub(crate) decodes: bool,
    /// Function that returns what is known of the element's packets for a hop; `None` for a hop that emits what it
    /// takes, or frames.
    pub(crate) encodes: fn(&Hop) -> Option<EncodedStream>,
    /// Function that returns the minimum number of the element's frames that the hops behind hold while
    /// the element waits for a slot of its pool. The watchdog ignores a worker's report of such a wait
    /// while the hops hold fewer.
    pub(crate) least_out: LeastOut,
}

impl Element {
    pub(crate) fn source<S: Source + 'static>(
        definition: &'static Definition,
        make: impl Fn(&Hop, &HopPlace<'_>) -> Result<S, StageError> + Send + Sync + 'static,
    ) -> Element {
        Element::new(
            definition,
            Make::Source(Arc::new(move |hop, place| Ok(Box::new(make(hop, place)?) as Box<dyn Source>))),
        )
    }

    /// Makes the element of a source. `make` returns the source in a box, because its type depends on the hop.
    pub(crate) fn boxed_source(
        definition: &'static Definition,
        make: impl Fn(&Hop, &HopPlace<'_>) -> Result<Box<dyn Source>, StageError> + Send + Sync + 'static,
    ) -> Element {
        Element::new(definition, Make::Source(Arc::new(make)))
    }

    /// Makes the element of a stage or a sink.
    pub(crate) fn stage<S: Stage + 'static>(
        definition: &'static Definition,
        make: impl Fn(&Hop, &HopPlace<'_>) -> Result<S, StageError> + Send + Sync + 'static,
    ) -> Element {
        Element::new(
            definition,
            Make::Stage(Arc::new(move |hop, place| Ok(Box::new(make(hop, place)?) as Box<dyn Stage>))),
        )
    }

    /// Makes the element of a stage. `make` returns the stage in a box, because its type depends on the hop.
    pub(crate) fn boxed(
        definition: &'static Definition,
        make: impl Fn(&Hop, &HopPlace<'_>) -> Result<Box<dyn Stage>, StageError> + Send + Sync + 'static,
    ) -> Element {
        Element::new(definition, Make::Stage(Arc::new(make)))
    }

    pub(crate) fn queue(definition: &'static Definition) -> Element {
        Element::new(definition, Make::Queue)
    }

    pub(crate) fn tee(definition: &'static Definition) -> Element {
        Element::new(definition, Make::Tee)
    }

    fn new(definition: &'static Definition, make: Make) -> Element {
        // 1 is safe for every stage: a user's stage may itself keep all other slots.
        Element { definition, make, task: None, decodes: false, encodes: |_| None, least_out: |_, _| 1 }
    }

    /// Sets the function that returns the task of the element's worker for a hop.
    pub(crate) fn with_task(
        self,
        task: impl Fn(&Hop, &HopPlace<'_>) -> Result<Task, StageError> + Send + Sync + 'static,
    ) -> Element {
        Element { task: Some(Arc::new(task)), ..self }
    }

    /// Declares that the element decodes packets into frames.
    pub(crate) fn decoding(self) -> Element {
        Element { decodes: true, ..self }
    }

    /// Sets the function that returns what is known of the packets that the element makes of frames for a hop.
    pub(crate) fn encoding(self, encodes: fn(&Hop) -> Option<EncodedStream>) -> Element {
        Element { encodes, ..self }
    }

    /// Sets the function that returns the minimum number of frames that the hops behind hold while the
    /// element waits for a slot. The default function returns 1.
    pub(crate) fn with_least_out(self, least_out: LeastOut) -> Element {
        Element { least_out, ..self }
    }

    /// True if the constructor makes the kind of element that the definition declares.
    pub(crate) fn is_whole(&self) -> bool {
        match self.make {
            Make::Source(_) => self.definition.kind == DefinitionKind::Source,
            Make::Stage(_) => matches!(self.definition.kind, DefinitionKind::Stage | DefinitionKind::Sink),
            Make::Queue => self.definition.kind == DefinitionKind::Link,
            Make::Tee => self.definition.kind == DefinitionKind::Tee,
        }
    }
}

/// Surroundings of a hop in the path, for its constructor.
pub struct HopPlace<'a> {
    /// Hops behind the hop in the text that added it (a path, its branch, or the text of
    /// [`Pipeline::append`](crate::Pipeline::append)). Empty in a worker, and for a single hop that
    /// [`Pipeline::add_hop`](crate::Pipeline::add_hop) adds.
    pub(crate) behind: &'a [Hop],
    /// Description of the compressed track: the source's, or behind an element that encodes its codec only, because
    /// the first packet has the rest. `None` for a source, behind an element that decodes, and if the source emits
    /// frames or packets without a description. It is set but wrong behind a decoder that the caller implements.
    pub(crate) track: Option<TrackInfo>,
    pub(crate) frames_behind: u32,
    /// In a worker: table of the frames that the process that runs the path still reads, with the shared
    /// words by which that process returns them; `None` outside a worker.
    pub(crate) give_back: Option<&'static GiveBack>,
    /// In a worker: the provider of the decoder's buffers; `None` if the decoder has a pool of its own, and
    /// outside a worker.
    pub(crate) provider: Option<ProviderRef>,
    /// In a worker with [`Task::Plugin`]: path of the plug-in's file, which the worker's sandbox allows;
    /// `None` elsewhere.
    pub(crate) plugin: Option<PathBuf>,
    /// In a worker with [`Task::Device`]: the open device that decodes for the stage; `None` elsewhere.
    pub(crate) node: Option<Arc<Node>>,
    /// Receiver of the hop's notes for the user and of its counts, for the run's report.
    pub(crate) outcomes: Outcomes,
}

impl<'a> HopPlace<'a> {
    /// Makes the place of a hop in this process, in front of the hops `behind`, which may keep
    /// `frames_behind` of its frames.
    pub(crate) fn inline(
        behind: &'a [Hop],
        track: Option<TrackInfo>,
        frames_behind: u32,
        outcomes: Outcomes,
    ) -> HopPlace<'a> {
        HopPlace {
            behind,
            track,
            frames_behind,
            give_back: None,
            provider: None,
            plugin: None,
            node: None,
            outcomes,
        }
    }
}

impl HopPlace<'_> {
    /// Returns the number of frames to add to a stage's pool for the hops behind: those in their
    /// queues, one for each thread that runs them, and those that the program may keep. Does not count
    /// frames inside workers; always 0 for a source. For a hop of
    /// [`Pipeline::add_hop`](crate::Pipeline::add_hop), the number that its caller passed.
    pub fn frames_behind(&self) -> u32 {
        self.frames_behind
    }

    /// Makes a pool of `slots` buffers of `slot_bytes` bytes each, for the stage's output. A stage that
    /// can run in a worker must make its output pools here or by [`copy_pool`](HopPlace::copy_pool), because
    /// other memory of a worker cannot be passed to the program.
    ///
    /// # Errors
    /// Memory is short, the size is impossible, or the worker has too many slots.
    pub fn pool(&self, slot_bytes: usize, slots: u32) -> Result<Pool, StageError> {
        Ok(Pool::for_stage(slot_bytes, slots, self.give_back)?)
    }

    /// Makes a [`CopyPool`] for the stage, for a worker or for the program's own process, wherever the stage
    /// runs.
    pub fn copy_pool(&self) -> CopyPool {
        CopyPool::for_worker(self.give_back)
    }

    /// Adds a line to [`Report::notes`](crate::Report::notes), for the user, and logs it as a warning. Lines
    /// of a stage in a worker are lost.
    pub fn note(&self, line: &str) {
        self.outcomes.notes.add(line.to_owned());
    }
}
