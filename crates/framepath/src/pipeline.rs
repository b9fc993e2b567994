// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipeline: a source, stages, links and sinks, ready to run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use framepath_codec::TrackInfo;
use framepath_os::memory::pool::Frame;
use framepath_os::sync::queue::{Leaky, Receiver, queue};

use crate::error::RunError;
use crate::host::{CollectInput, WorkerStats};
use crate::out::HopStage;
use crate::outcomes::Outcomes;
use crate::queue::{QueueEnd, Queued};
use crate::registry::Registry;
use crate::report::{HopInfo, path_text};
use crate::request::RequestError;
use crate::requests::Requests;
use crate::sink::function::{Function, SinkReturn};
use crate::source::Source;
use crate::stage::{HopRole, Stage};
use crate::tee::Tee;

/// The hops that one thread runs.
pub(crate) struct ThreadSegment {
    /// Input of the segment; `None` for the first, which has the source.
    pub(crate) input: Option<SegmentInput>,
    /// Stages of the segment in path order, without the source.
    pub(crate) chain: Vec<HopStage>,
    /// Index in the path of the segment's first hop; 0, the source, for the first segment.
    pub(crate) first: u16,
    /// Index of the segment that sends this segment's items; `None` for the first segment.
    pub(crate) before: Option<usize>,
    /// Index in the path of the hop that sends this segment's items; 0 for the first segment.
    pub(crate) behind: u16,
}

/// Input of a thread behind the first.
pub(crate) enum SegmentInput {
    /// Index of a queue's hop in the path, and the reading end of the queue.
    Queue(u16, Receiver<Queued>),
    /// Receiver of the frames of a worker's stage.
    Worker(Box<CollectInput>),
}

/// A source, stages and links, and a sink, ready to run.
///
/// Made from [path text](Pipeline::parse), from parts of the caller's own, or from
/// both:
///
/// ```
/// use framepath::{Frame, Options, Pipeline};
///
/// let mut lines = 0;
/// let pipeline = Pipeline::parse("test frames=3 size=64x48 format=grey ! queue")?;
/// let report = pipeline
///     .sink_fn(move |frame: Frame| {
///         lines += frame.layout().height;
///         println!("{lines} lines so far");
///     })
///     .run(&Options::default())?;
/// assert_eq!(report.frames, 3);
/// # Ok::<(), framepath::RunError>(())
/// ```
///
/// Each hop runs in the thread of the hop before it, except behind a
/// [queue](Pipeline::queue), in a [branch](Pipeline::branch) and behind a stage that runs in a
/// worker. Frames stay in the order in which a stage emits them. A decoder emits them in presentation
/// order (with `lowdelay=1` only for streams without B pictures); no other built-in stage changes the order,
/// except a `filter` whose graph does.
pub struct Pipeline {
    pub(crate) source: Box<dyn Source>,
    pub(crate) segments: Vec<ThreadSegment>,
    pub(crate) hops: Vec<HopInfo>,
    /// Number of items that full leaky queues of the pipeline have dropped.
    pub(crate) dropped: Arc<AtomicU64>,
    /// Index of each hop that runs in a worker, with the statistics of its workers; in path order.
    pub(crate) workers: Vec<(u16, Arc<WorkerStats>)>,
    pub(crate) outcomes: Outcomes,
    /// Registry with the elements that [`append`](Pipeline::append) accepts.
    pub(crate) registry: Registry,
    /// True if a run without a frame is an error, as for path text. False for a source of the caller's
    /// own, which may be empty.
    pub(crate) expects_frames: bool,
    /// Description of the source's compressed track, until an element of path text that decodes or encodes is added;
    /// `None` behind one that decodes, and for a source that emits frames or packets without a description. A decoder that
    /// the caller implements does not clear it.
    pub(crate) track: Option<TrackInfo>,
    pub(crate) requests: Requests,
    /// Index of the segment that gets the next hop.
    at: usize,
    /// Index of the hop that precedes the next hop in the ledger.
    last: u16,
    /// Index of the sink of the path, or of the branch that is being built; `None` while there is none.
    sink: Option<u16>,
    /// `BehindSink` of the first part that was added behind a sink, reported when the pipeline runs or
    /// `frames` is called; `None` without one.
    problem: Option<RunError>,
}

impl Pipeline {
    /// Starts a pipeline with a source of the caller's own. A run without frames is then no error.
    pub fn from_source(source: impl Source + 'static) -> Pipeline {
        Pipeline::with_source(Box::new(source), Registry::default(), Outcomes::default())
    }

    pub(crate) fn with_source(source: Box<dyn Source>, registry: Registry, outcomes: Outcomes) -> Pipeline {
        let hops = vec![HopInfo { own: true, ..HopInfo::new(source.name()) }];
        let first = ThreadSegment { input: None, chain: Vec::new(), first: 0, before: None, behind: 0 };
        outcomes.is_live.store(source.is_live(), Ordering::Relaxed);
        let cannot_seek = source.can_seek().err().map(|reason| RequestError::CannotSeek {
            source_hop: source.name().to_owned(),
            reason: reason.to_owned(),
        });
        Pipeline {
            track: source.track_info(),
            source,
            segments: vec![first],
            hops,
            dropped: Arc::default(),
            workers: Vec::new(),
            outcomes,
            registry,
            expects_frames: false,
            requests: Requests::new(cannot_seek),
            at: 0,
            last: 0,
            sink: None,
            problem: None,
        }
    }

    /// Adds a stage, which runs in the thread of the previous hop.
    ///
    /// Behind a sink this is an error, which [`run`](Pipeline::run) and
    /// [`frames`](Pipeline::frames) return.
    ///
    /// ```
    /// use framepath::{Options, Pipeline, RunError};
    ///
    /// let late = Pipeline::parse("test frames=1 ! null")?.append("threshold")?;
    /// assert!(matches!(late.run(&Options::default()), Err(RunError::BehindSink { .. })));
    /// # Ok::<(), RunError>(())
    /// ```
    pub fn stage(self, stage: impl Stage + 'static) -> Pipeline {
        self.add(Box::new(stage), HopRole::Through).caller_stages()
    }

    /// Ends the pipeline in a sink: a stage without output. Behind
    /// another sink this is an error, as with [`stage`](Pipeline::stage).
    pub fn sink(self, sink: impl Stage + 'static) -> Pipeline {
        self.add(Box::new(sink), HopRole::Sink).caller_stages()
    }

    /// Ends the pipeline in a function, which is called with each frame in the thread of the hop before it.
    /// The frame's buffer returns to its pool when the last handle to the frame is dropped.
    ///
    /// The function returns nothing, a [`ControlFlow`](std::ops::ControlFlow) that
    /// may end the run early, or a `Result` of either, whose error ends the run:
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use framepath::{Options, Pipeline};
    ///
    /// let mut left = 10;
    /// let report = Pipeline::parse("test frames=1000")?
    ///     .sink_fn(move |_| {
    ///         left -= 1;
    ///         if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    ///     })
    ///     .run(&Options::default())?;
    /// assert_eq!(report.frames, 10);
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    pub fn sink_fn<R: SinkReturn>(self, function: impl FnMut(Frame) -> R + Send + 'static) -> Pipeline {
        self.sink(Function::new(function)).named("sink_fn")
    }

    /// Adds a queue of `depth` frames or packets; 0 acts as 1. The hops behind it run in a thread of their
    /// own. `leaky` says what happens when the queue is full: wait ([`Leaky::No`]), drop the new item
    /// ([`Leaky::Upstream`]), or drop the oldest ([`Leaky::Downstream`]).
    /// Behind a sink this is an error, as with [`stage`](Pipeline::stage).
    ///
    /// ```
    /// use framepath::{Leaky, Options, Pipeline};
    ///
    /// // A slow consumer that needs the newest frame: the queue drops the oldest.
    /// let report = Pipeline::parse("test frames=50 rate=1000 size=64x48")?
    ///     .queue(1, Leaky::Downstream)
    ///     .sink_fn(|_| std::thread::sleep(std::time::Duration::from_millis(5)))
    ///     .run(&Options::default())?;
    /// assert_eq!(report.frames + report.dropped, 50);
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    pub fn queue(self, depth: usize, leaky: Leaky) -> Pipeline {
        let index = self.hops.len() as u16;
        let (sender, receiver) = queue(depth, leaky);
        let end = QueueEnd::new(index, sender, self.dropped.clone());
        let mut pipeline = self.add(Box::new(end), HopRole::Link);
        pipeline.begin_segment(SegmentInput::Queue(index, receiver), index);
        pipeline.named(&format!("queue depth={depth}"))
    }

    /// Adds a `tee`: every item continues in this pipeline, and also enters a branch that runs in a thread
    /// of its own, behind a [`queue`](Pipeline::queue). `side` gets a pipeline, adds the hops of the
    /// branch, a sink last, and returns it.
    ///
    /// When one branch ends, because one of its hops fails or takes no more items, the others go on. The run ends
    /// when all branches have ended. If the queue is not leaky, the other branches wait while it is full.
    /// Behind a sink this is an error, as with [`stage`](Pipeline::stage). In path text a branch is
    /// `tee ( queue ! ... ) ( ... )`.
    ///
    /// ```
    /// use framepath::{Leaky, Options, Pipeline};
    ///
    /// let pipeline = Pipeline::parse("test frames=20 size=64x48")?
    ///     .branch(4, Leaky::No, |side| side.append("threshold ! null"))?
    ///     .sink_fn(|_| ());
    /// let report = pipeline.run(&Options::default())?;
    /// let sinks = report.sinks.iter().map(|sink| (report.hops[usize::from(sink.hop)].text.as_str(), sink.frames));
    /// assert_eq!(sinks.collect::<Vec<_>>(), [("null", 20), ("sink_fn", 20)]);
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    ///
    /// # Errors
    /// The error that `side` returns, or a branch without a sink.
    pub fn branch(
        self,
        depth: usize,
        leaky: Leaky,
        side: impl FnOnce(Pipeline) -> Result<Pipeline, RunError>,
    ) -> Result<Pipeline, RunError> {
        let (before, tee) = (self.last, self.hops.len() as u16);
        let link = tee + 1;
        let (sender, receiver) = queue(depth, leaky);
        let end = QueueEnd::new(link, sender, self.dropped.clone());
        let mut pipeline = self.add(Box::new(Tee::new(end)), HopRole::Through).named("tee");
        // Behind `before` instead of the tee, because the branch's row begins when the tee gets the frame.
        let text = format!("queue depth={depth}");
        pipeline.hops.push(HopInfo { link: true, before: Some(before), ..HopInfo::new(text) });
        let (at, track, sink) = (pipeline.at, pipeline.track.clone(), pipeline.sink.take());
        pipeline.begin_segment(SegmentInput::Queue(link, receiver), tee);
        pipeline.last = link;
        let mut pipeline = side(pipeline)?;
        if pipeline.sink.is_none() {
            let last = pipeline.hops.last().map(|hop| hop.text.clone()).unwrap_or_default();
            return Err(RunError::NoSink { last });
        }
        (pipeline.at, pipeline.track, pipeline.sink, pipeline.last) = (at, track, sink, tee);
        Ok(pipeline)
    }

    /// Sets the name of the hop that was added last, for errors and the ledger. The default is
    /// [`Stage::name`] or [`Source::name`].
    ///
    /// ```
    /// use framepath::{Options, Pipeline};
    ///
    /// let pipeline = Pipeline::parse("test frames=1")?.sink_fn(|_| ()).named("display");
    /// assert_eq!(pipeline.run(&Options::default())?.hops[1].text, "display");
    /// # Ok::<(), framepath::RunError>(())
    /// ```
    pub fn named(mut self, name: &str) -> Pipeline {
        if let Some(last) = self.hops.last_mut() {
            name.clone_into(&mut last.text);
        }
        if self.hops.len() == 1 {
            self.requests.name_source(name);
        }
        self
    }

    /// Returns a handle that sends requests ([`Request`](crate::Request)) to the run from any thread.
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Returns the statistics of the workers of each stage that runs in a worker, in path order; without
    /// those of a worker that demuxes. Any thread may read them while the path runs.
    pub fn workers(&self) -> impl Iterator<Item = Arc<WorkerStats>> + '_ {
        self.workers.iter().map(|(_, stats)| stats.clone())
    }

    /// Marks the last hop as a part of the caller's own ([`HopInfo::own`]).
    fn caller_stages(mut self) -> Pipeline {
        if let Some(last) = self.hops.last_mut() {
            last.own = true;
        }
        self
    }

    /// Adds a hop to the segment that gets the next hop. Behind a sink, records [`RunError::BehindSink`],
    /// which [`check`](Pipeline::check) returns, unless an earlier part has recorded this error.
    pub(crate) fn add(mut self, stage: Box<dyn Stage>, role: HopRole) -> Pipeline {
        let index = self.hops.len() as u16;
        let text = stage.name().to_owned();
        if let (Some(sink), None) = (self.sink, &self.problem) {
            let sink = self.hops[usize::from(sink)].text.clone();
            self.problem = Some(RunError::BehindSink { hop: text.clone(), sink });
        }
        if role == HopRole::Sink {
            self.sink = Some(index);
        }
        self.segments[self.at].chain.push(HopStage::new(stage, index, role));
        let before = Some(self.last);
        self.hops.push(HopInfo { link: role == HopRole::Link, before, ..HopInfo::new(text) });
        self.last = index;
        self
    }

    /// Starts a segment: the following hops run in a thread of their own. The thread reads `input`, which
    /// comes from hop `behind`.
    pub(crate) fn begin_segment(&mut self, input: SegmentInput, behind: u16) {
        let (first, before) = (self.hops.len() as u16, Some(self.at));
        self.at = self.segments.len();
        self.segments.push(ThreadSegment { input: Some(input), chain: Vec::new(), first, before, behind });
    }

    /// Checks that the pipeline was built without an error and has a sink.
    ///
    /// # Errors
    /// The first error that a part recorded, which this call takes; [`RunError::NoSink`].
    pub(crate) fn check(&mut self) -> Result<(), RunError> {
        match (self.problem.take(), self.sink) {
            (Some(problem), _) => Err(problem),
            (None, Some(_)) => Ok(()),
            (None, None) => {
                let last = self.hops.last().map(|hop| hop.text.clone()).unwrap_or_default();
                Err(RunError::NoSink { last })
            }
        }
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pipeline").field(&path_text(&self.hops)).finish()
    }
}
