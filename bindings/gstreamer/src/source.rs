// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepathsrc`: the frames of a whole path.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use framepath::{Frame, Frames, FramesWaker, Level, NextFrame, Options, Pipeline, SeekTo, StreamInfo};
use gst::glib;
use gst::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::base_src::CreateSuccess;
use gst_base::subclass::prelude::*;
use gst_video::VideoInfo;

use crate::fields::StreamFields;
use crate::format::{clock_time, raw_template, video_info};
use crate::memory::{KeptFrames, buffer};
use crate::properties::{path_property, report_property};
use crate::report::report_json;

static CATEGORY: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new(
        "framepathsrc",
        gst::DebugColorFlags::empty(),
        Some("path of framepath as a source"),
    )
});

#[derive(Default)]
struct SourceState {
    path: String,
    /// `None` before the start, and while the streaming thread waits for a frame.
    frames: Option<Frames>,
    /// Ends the wait of the streaming thread.
    waker: Option<FramesWaker>,
    can_seek: bool,
    /// `None` if the path does not know it.
    duration: Option<gst::ClockTime>,
    /// True once a frame was taken or a seek was made.
    has_moved: bool,
    /// First frame, or the end before it, which `negotiate` has taken for `create`.
    first: Option<NextFrame>,
    /// Output, and whether the elements behind understand strides.
    output: Option<(VideoInfo, bool)>,
    fields: StreamFields,
    /// True if `output` is to be agreed on again.
    is_stale: bool,
    kept: KeptFrames,
    report: Option<String>,
}

/// Implementation of [`FramepathSrc`].
#[derive(Default)]
pub struct FramepathSrcImp {
    state: Mutex<SourceState>,
    /// True while the streaming thread must not wait.
    is_unlocked: AtomicBool,
}

glib::wrapper! {
    /// The element `framepathsrc`.
    pub struct FramepathSrc(ObjectSubclass<FramepathSrcImp>)
        @extends gst_base::PushSrc, gst_base::BaseSrc, gst::Element, gst::Object;
}

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "framepathsrc", gst::Rank::NONE, FramepathSrc::static_type())
}

#[glib::object_subclass]
impl ObjectSubclass for FramepathSrcImp {
    const NAME: &'static str = "GstFramepathSrc";
    type Type = FramepathSrc;
    type ParentType = gst_base::PushSrc;
}

impl ObjectImpl for FramepathSrcImp {
    fn constructed(&self) {
        self.parent_constructed();
        self.obj().set_format(gst::Format::Time);
    }

    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
            vec![
                path_property(
                    "Path of framepath that ends in frames, such as: file clip.mp4 ! decode host=process",
                ),
                glib::ParamSpecBoolean::builder("is-live")
                    .nick("Is live")
                    .blurb("Whether the frames come from the present, as a camera's or a screen's do")
                    .mutable_ready()
                    .build(),
                report_property(),
            ]
        });
        &PROPERTIES
    }

    fn set_property(&self, _: usize, value: &glib::Value, property: &glib::ParamSpec) {
        match property.name() {
            "path" => self.lock().path = value.get::<Option<String>>().ok().flatten().unwrap_or_default(),
            "is-live" => self.obj().set_live(value.get().unwrap_or_default()),
            _ => {}
        }
    }

    fn property(&self, _: usize, property: &glib::ParamSpec) -> glib::Value {
        match property.name() {
            "path" => self.lock().path.to_value(),
            "is-live" => self.obj().is_live().to_value(),
            _ => self.lock().report.to_value(),
        }
    }
}

impl GstObjectImpl for FramepathSrcImp {}

impl ElementImpl for FramepathSrcImp {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "framepath source",
                "Source/Video",
                "Frames of a whole path of framepath",
                "The framepath project",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> =
            LazyLock::new(|| raw_template("src", gst::PadDirection::Src).into_iter().collect());
        &TEMPLATES
    }
}

impl BaseSrcImpl for FramepathSrcImp {
    fn start(&self) -> Result<(), gst::ErrorMessage> {
        let path = self.lock().path.clone();
        let options = Options { level: Level::Times, ..Options::default() };
        let frames = Pipeline::parse(&path).and_then(|pipeline| pipeline.frames_with(options));
        let frames = frames
            .map_err(|error| gst::error_msg!(gst::ResourceError::OpenRead, ["path={path:?}: {error}"]))?;
        let mut state = self.lock();
        state.waker = Some(frames.waker());
        state.can_seek = frames.requests().can_seek().is_ok();
        let duration = frames.duration().and_then(|duration| u64::try_from(duration.as_nanos()).ok());
        state.duration = duration.map(gst::ClockTime::from_nseconds);
        (state.frames, state.output, state.first) = (Some(frames), None, None);
        (state.has_moved, state.fields) = (false, StreamFields::Unknown);
        Ok(())
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        let frames = self.lock().frames.take();
        let report = frames.and_then(Frames::into_report).map(report_json);
        let mut state = self.lock();
        (state.waker, state.report) = (None, report);
        Ok(())
    }

    fn is_seekable(&self) -> bool {
        self.lock().can_seek
    }

    fn query(&self, query: &mut gst::QueryRef) -> bool {
        if let gst::QueryViewMut::Duration(asked) = query.view_mut() {
            let duration = self.lock().duration.filter(|_| asked.format() == gst::Format::Time);
            if let Some(duration) = duration {
                asked.set(duration);
                return true;
            }
        }
        BaseSrcImplExt::parent_query(self, query)
    }

    fn event(&self, event: &gst::Event) -> bool {
        if let gst::EventView::Seek(seek) = event.view() {
            // Refused here, because GStreamer flushes before it asks `do_seek`.
            if seek.get().0 <= 0.0 {
                return false;
            }
        }
        self.parent_event(event)
    }

    fn do_seek(&self, segment: &mut gst::Segment) -> bool {
        // Of a seek that only changes the rate, the position that was reached.
        let to = segment.downcast_ref::<gst::ClockTime>().and_then(|segment| segment.position());
        let Some(to) = to else { return false };
        let mut state = self.lock();
        // GStreamer seeks to 0 at the start, in live streams too.
        if to.is_zero() && !state.has_moved {
            return true;
        }
        let can_seek = state.can_seek;
        (state.has_moved, state.first) = (true, None);
        let Some(frames) = &mut state.frames else { return false };
        can_seek && frames.seek(Duration::from_nanos(to.nseconds()), SeekTo::Exact).is_ok()
    }

    fn unlock(&self) -> Result<(), gst::ErrorMessage> {
        self.is_unlocked.store(true, Ordering::Release);
        if let Some(waker) = &self.lock().waker {
            waker.wake();
        }
        Ok(())
    }

    fn unlock_stop(&self) -> Result<(), gst::ErrorMessage> {
        self.is_unlocked.store(false, Ordering::Release);
        Ok(())
    }

    /// Waits for the first frame: it, not the elements behind, says the format.
    fn negotiate(&self) -> Result<(), gst::LoggableError> {
        if self.lock().output.is_some() {
            // Other elements are behind, which may not understand strides.
            self.lock().is_stale = true;
            return Ok(());
        }
        let (next, stream) = self.next().map_err(|flow| gst::loggable_error!(CATEGORY, "{flow}"))?;
        let is_flushing = self.obj().src_pad().pad_flags().contains(gst::PadFlags::FLUSHING);
        if is_flushing && matches!(next, NextFrame::News) {
            return Err(gst::loggable_error!(CATEGORY, "flushing"));
        }
        let info = match &next {
            NextFrame::Frame(Ok(frame)) => self.video_info(frame, stream).ok(),
            _ => None,
        };
        self.lock().first = Some(next);
        // Without a frame, or with one that GStreamer does not know, `create` says why.
        if let Some(info) = info {
            self.agree(&info).map_err(|flow| gst::loggable_error!(CATEGORY, "{flow}"))?;
        }
        Ok(())
    }
}

impl PushSrcImpl for FramepathSrcImp {
    fn create(&self, _: Option<&mut gst::BufferRef>) -> Result<CreateSuccess, gst::FlowError> {
        let (next, stream) = self.next()?;
        match next {
            NextFrame::Frame(Ok(frame)) => self.buffer_of(frame, stream).map(CreateSuccess::NewBuffer),
            NextFrame::Frame(Err(error)) => Err(self.failed(&error.to_string())),
            NextFrame::End => Err(gst::FlowError::Eos),
            NextFrame::News => Err(gst::FlowError::Flushing),
        }
    }
}

impl FramepathSrcImp {
    fn lock(&self) -> MutexGuard<'_, SourceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next frame, and returns it with the stream's description.
    ///
    /// # Errors
    /// The path does not run.
    fn next(&self) -> Result<(NextFrame, Option<StreamInfo>), gst::FlowError> {
        // No lock is held during the wait, so that `unlock` can end it.
        let (frames, first) = {
            let mut state = self.lock();
            (state.frames.take(), state.first.take())
        };
        let Some(mut frames) = frames else { return Err(gst::FlowError::Flushing) };
        let next = first.unwrap_or_else(|| frames.next_unless(|| self.is_unlocked.load(Ordering::Acquire)));
        let stream = frames.stream();
        let mut state = self.lock();
        state.frames = Some(frames);
        state.has_moved |= matches!(next, NextFrame::Frame(_) | NextFrame::End);
        Ok((next, stream))
    }

    fn failed(&self, text: &str) -> gst::FlowError {
        gst::element_imp_error!(self, gst::ResourceError::Read, ["{text}"]);
        gst::FlowError::Error
    }

    fn video_info(&self, frame: &Frame, stream: Option<StreamInfo>) -> Result<VideoInfo, String> {
        let fields = self.lock().fields.add(frame.meta().field_order);
        video_info(frame.layout(), fields, stream)
    }

    fn buffer_of(&self, frame: Frame, stream: Option<StreamInfo>) -> Result<gst::Buffer, gst::FlowError> {
        let info = self.video_info(&frame, stream).map_err(|text| self.failed(&text))?;
        let has_meta = self.agree(&info)?;
        let (meta, kept) = (frame.meta(), self.lock().kept.clone());
        if meta.is_damaged {
            gst::warning!(CATEGORY, imp = self, "frame {} is damaged", meta.seq);
        }
        let mut made = buffer(frame, &info, &kept, has_meta)?;
        let time_base = stream.map(|stream| stream.time_base);
        let times = made.get_mut().ok_or(gst::FlowError::Error)?;
        times.set_pts(clock_time(meta.pts, time_base));
        times.set_duration(clock_time(Some(meta.duration).filter(|ticks| *ticks > 0), time_base));
        Ok(made)
    }

    /// Tells the elements behind of another output. Returns whether they understand strides.
    fn agree(&self, info: &VideoInfo) -> Result<bool, gst::FlowError> {
        {
            let mut state = self.lock();
            let is_stale = std::mem::take(&mut state.is_stale);
            if let Some((last, has_meta)) = &state.output {
                if last == info && !is_stale {
                    return Ok(*has_meta);
                }
            }
        }
        let source = self.obj();
        let caps = info.to_caps().map_err(|_| gst::FlowError::NotNegotiated)?;
        source.set_caps(&caps).map_err(|_| gst::FlowError::NotNegotiated)?;
        let mut query = gst::query::Allocation::new(Some(&caps), false);
        let has_meta = source.src_pad().peer_query(&mut query)
            && query.find_allocation_meta::<gst_video::VideoMeta>().is_some();
        self.lock().output = Some((info.clone(), has_meta));
        Ok(has_meta)
    }
}
