// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepathsink`: a pipeline's frames go into a path.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use framepath::{Level, Options, Pipeline, Report, Stop};
use gst::glib;
use gst::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::prelude::*;
use gst_video::VideoInfo;

use crate::format::raw_template;
use crate::handover::{Given, Handover};
use crate::pictures::{GivenPicture, PictureSource};
use crate::properties::{path_property, report_property};
use crate::report::report_json;

static CATEGORY: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new(
        "framepathsink",
        gst::DebugColorFlags::empty(),
        Some("path of framepath as a sink"),
    )
});

/// Pictures that wait for the path before the pipeline has to.
const MOST_WAITING: usize = 2;

/// Pictures on their way to the path, and the path's result.
pub(crate) type Pictures = Handover<GivenPicture, Result<Report, String>>;

/// Path that runs in a thread of its own.
struct RunningPath {
    pictures: Arc<Pictures>,
    stop: Stop,
    thread: JoinHandle<()>,
}

/// Path of the sink.
#[derive(Default)]
enum SinkPath {
    /// Starts with the next caps or frame.
    #[default]
    Idle,
    Running(RunningPath),
    /// Takes no frames until a flush or the next start, and says why.
    Over(gst::FlowError),
}

#[derive(Default)]
struct SinkState {
    text: String,
    info: Option<VideoInfo>,
    path: SinkPath,
    report: Option<String>,
}

/// Implementation of [`FramepathSink`].
#[derive(Default)]
pub struct FramepathSinkImp {
    state: Mutex<SinkState>,
}

glib::wrapper! {
    /// The element `framepathsink`.
    pub struct FramepathSink(ObjectSubclass<FramepathSinkImp>)
        @extends gst_base::BaseSink, gst::Element, gst::Object;
}

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "framepathsink", gst::Rank::NONE, FramepathSink::static_type())
}

#[glib::object_subclass]
impl ObjectSubclass for FramepathSinkImp {
    const NAME: &'static str = "GstFramepathSink";
    type Type = FramepathSink;
    type ParentType = gst_base::BaseSink;
}

impl ObjectImpl for FramepathSinkImp {
    fn constructed(&self) {
        self.parent_constructed();
        // As `filesink`: most paths write files and streams, and those that show frames wait by themselves.
        self.obj().set_sync(false);
    }

    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
            vec![
                path_property("Path of framepath behind the frames, such as: encode vp8 ! mux out.webm"),
                report_property(),
            ]
        });
        &PROPERTIES
    }

    fn set_property(&self, _: usize, value: &glib::Value, property: &glib::ParamSpec) {
        if property.name() == "path" {
            self.lock().text = value.get::<Option<String>>().ok().flatten().unwrap_or_default();
        }
    }

    fn property(&self, _: usize, property: &glib::ParamSpec) -> glib::Value {
        match property.name() {
            "path" => self.lock().text.to_value(),
            _ => self.lock().report.to_value(),
        }
    }
}

impl GstObjectImpl for FramepathSinkImp {}

impl ElementImpl for FramepathSinkImp {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "framepath sink",
                "Sink/Video",
                "Gives frames to a whole path of framepath",
                "The framepath project",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> =
            LazyLock::new(|| raw_template("sink", gst::PadDirection::Sink).into_iter().collect());
        &TEMPLATES
    }
}

impl BaseSinkImpl for FramepathSinkImp {
    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        let path = {
            let mut state = self.lock();
            state.info = None;
            std::mem::take(&mut state.path)
        };
        if let SinkPath::Running(running) = path {
            running.pictures.at_end();
            running.stop.stop();
            // Nobody waits for the error of a path that is stopped.
            let _ = self.ended(running);
        }
        Ok(())
    }

    fn set_caps(&self, caps: &gst::Caps) -> Result<(), gst::LoggableError> {
        let info = VideoInfo::from_caps(caps).map_err(|error| gst::loggable_error!(CATEGORY, "{error}"))?;
        self.lock().info = Some(info);
        // The hops of a path that runs see the change in the frames.
        match self.pictures() {
            Ok(_) | Err(gst::FlowError::Eos) => Ok(()),
            Err(flow) => Err(gst::loggable_error!(CATEGORY, "{flow}")),
        }
    }

    fn render(&self, buffer: &gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
        let pictures = self.pictures()?;
        let info = self.lock().info.clone().ok_or(gst::FlowError::NotNegotiated)?;
        let segment = self.obj().segment();
        let segment = segment.downcast_ref::<gst::ClockTime>();
        let time = segment.and_then(|segment| segment.to_running_time(buffer.pts()));
        loop {
            let picture = GivenPicture { buffer: buffer.clone(), info: info.clone(), time };
            match pictures.give(picture) {
                Given::Done => return Ok(gst::FlowSuccess::Ok),
                // Paused, or flushing.
                Given::Unlocked => self.obj().wait_preroll().map(|_| ())?,
                Given::Ended => return Err(self.path_has_ended()),
            }
        }
    }

    fn event(&self, event: gst::Event) -> bool {
        match event.type_() {
            gst::EventType::Eos if !self.finish() => return false,
            gst::EventType::FlushStop => {
                let mut state = self.lock();
                if matches!(state.path, SinkPath::Over(_)) {
                    state.path = SinkPath::Idle;
                }
            }
            _ => {}
        }
        self.parent_event(event)
    }

    fn unlock(&self) -> Result<(), gst::ErrorMessage> {
        self.set_unlocked(true);
        Ok(())
    }

    fn unlock_stop(&self) -> Result<(), gst::ErrorMessage> {
        self.set_unlocked(false);
        Ok(())
    }

    fn propose_allocation(&self, query: &mut gst::query::Allocation) -> Result<(), gst::LoggableError> {
        query.add_allocation_meta::<gst_video::VideoMeta>(None);
        self.parent_propose_allocation(query)
    }
}

impl RunningPath {
    /// Starts a path behind frames of this kind.
    ///
    /// # Errors
    /// Text of the reason: the path is wrong, or no thread can be started.
    fn start(path: &str, info: &VideoInfo) -> Result<RunningPath, String> {
        let pictures = Arc::new(Pictures::new(MOST_WAITING));
        let source = PictureSource::new(pictures.clone(), info)?;
        let pipeline = Pipeline::from_source(source).append(path).map_err(|error| error.to_string())?;
        let options = Options { level: Level::Times, ..Options::default() };
        let (stop, taken) = (options.stop.clone(), pictures.clone());
        let run = move || {
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pipeline.run(&options)));
            let run = run.map_err(|_| "the path has ended in a panic, which is a bug".to_owned());
            let report = run.and_then(|report| report.map_err(|error| error.to_string()));
            taken.end(report.and_then(|mut report| match report.error.take() {
                Some(error) => Err(error.to_string()),
                None => Ok(report),
            }));
        };
        let thread = std::thread::Builder::new().name("framepath".to_owned()).spawn(run);
        Ok(RunningPath { pictures, stop, thread: thread.map_err(|error| error.to_string())? })
    }
}

impl FramepathSinkImp {
    fn lock(&self) -> MutexGuard<'_, SinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the way to the path; starts the path if it is idle.
    ///
    /// # Errors
    /// The path takes no frames.
    fn pictures(&self) -> Result<Arc<Pictures>, gst::FlowError> {
        let mut state = self.lock();
        match &state.path {
            SinkPath::Running(running) => return Ok(running.pictures.clone()),
            SinkPath::Over(flow) => return Err(*flow),
            SinkPath::Idle => {}
        }
        let info = state.info.as_ref().ok_or(gst::FlowError::NotNegotiated)?;
        let failed = match RunningPath::start(&state.text, info) {
            Ok(running) => {
                let pictures = running.pictures.clone();
                state.path = SinkPath::Running(running);
                return Ok(pictures);
            }
            Err(text) => format!("path={:?}: {text}", state.text),
        };
        // GStreamer offers the caps again and again.
        state.path = SinkPath::Over(gst::FlowError::Error);
        drop(state);
        gst::element_imp_error!(self, gst::ResourceError::OpenWrite, ["{failed}"]);
        Err(gst::FlowError::Error)
    }

    fn set_unlocked(&self, is_unlocked: bool) {
        if let SinkPath::Running(running) = &self.lock().path {
            running.pictures.set_unlocked(is_unlocked);
        }
    }

    /// Waits until the path has worked through all frames. Returns false if it has failed, or the wait was ended.
    fn finish(&self) -> bool {
        let pictures = match &self.lock().path {
            SinkPath::Running(running) => running.pictures.clone(),
            SinkPath::Idle | SinkPath::Over(_) => return true,
        };
        loop {
            match pictures.finish() {
                Given::Unlocked if self.obj().wait_preroll().is_ok() => {}
                Given::Unlocked => return false,
                Given::Done | Given::Ended => return self.path_has_ended() != gst::FlowError::Error,
            }
        }
    }

    /// Notes the report of the path, or posts its error. Returns what the flow of frames ends in.
    fn path_has_ended(&self) -> gst::FlowError {
        let path = std::mem::take(&mut self.lock().path);
        let flow = match path {
            SinkPath::Idle => gst::FlowError::Eos,
            SinkPath::Over(flow) => flow,
            SinkPath::Running(running) => match self.ended(running) {
                Ok(()) => gst::FlowError::Eos,
                Err(text) => {
                    gst::element_imp_error!(self, gst::ResourceError::Write, ["{text}"]);
                    gst::FlowError::Error
                }
            },
        };
        self.lock().path = SinkPath::Over(flow);
        flow
    }

    /// Waits for the path's thread, and notes the report.
    fn ended(&self, running: RunningPath) -> Result<(), String> {
        let RunningPath { pictures, thread, .. } = running;
        // It has caught its panics.
        let _ = thread.join();
        match pictures.take_end() {
            Some(Ok(report)) => {
                self.lock().report = Some(report_json(report));
                Ok(())
            }
            Some(Err(text)) => Err(text),
            None => Ok(()),
        }
    }
}
