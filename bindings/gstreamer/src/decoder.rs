// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepathdec`: a decoder in a sandboxed process.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use framepath::{Codec, Frame, FrameMeta, Packet};
use gst::glib;
use gst::prelude::*;
use gst_video::VideoInfo;
use gst_video::prelude::*;
use gst_video::subclass::prelude::*;

use crate::fields::StreamFields;
use crate::format::{raw_template, video_info};
use crate::latency::DelayEstimate;
use crate::memory::{KeptFrames, buffer};
use crate::running::{DecodeEnd, Packets, RunningDecoder};

static CATEGORY: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new(
        "framepathdec",
        gst::DebugColorFlags::empty(),
        Some("sandboxed decoder of framepath"),
    )
});

/// State between the calls of GStreamer, which has a lock of its own around most of them.
#[derive(Default)]
struct DecoderState {
    input: Option<gst_video::VideoCodecState<'static, gst_video::video_codec_state::Readable>>,
    codec: Option<Codec>,
    running: Option<RunningDecoder>,
    /// Packets of the decoder that runs, or has run last.
    packets: Option<Arc<Packets>>,
    delay: DelayEstimate,
    output: Option<VideoInfo>,
    fields: StreamFields,
    /// True if the elements behind understand strides.
    has_meta: bool,
    kept: KeptFrames,
}

/// Implementation of [`FramepathDec`].
#[derive(Default)]
pub struct FramepathDecImp {
    state: Mutex<DecoderState>,
    /// Further options of the stage `decode`.
    options: Mutex<String>,
}

glib::wrapper! {
    /// The element `framepathdec`.
    pub struct FramepathDec(ObjectSubclass<FramepathDecImp>)
        @extends gst_video::VideoDecoder, gst::Element, gst::Object;
}

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "framepathdec", gst::Rank::NONE, FramepathDec::static_type())
}

#[glib::object_subclass]
impl ObjectSubclass for FramepathDecImp {
    const NAME: &'static str = "GstFramepathDec";
    type Type = FramepathDec;
    type ParentType = gst_video::VideoDecoder;
}

impl ObjectImpl for FramepathDecImp {
    fn constructed(&self) {
        self.parent_constructed();
        let decoder = self.obj();
        decoder.set_packetized(true);
        decoder.set_needs_format(true);
        decoder.set_use_default_pad_acceptcaps(true);
        // Caps without size or rate are accepted: the stream has them.
        let sink = decoder.sink_pad();
        sink.set_pad_flags(gst::PadFlags::ACCEPT_TEMPLATE);
        let element = self.obj().downgrade();
        sink.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            if let Some(element) = element.upgrade() {
                element.imp().wait_for_room();
            }
            gst::PadProbeReturn::Ok
        });
    }

    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
            let options = glib::ParamSpecString::builder("options")
                .nick("Options")
                .blurb("Further options of framepath's stage decode, such as threads=2; see framepath stages decode")
                .mutable_ready()
                .build();
            vec![options]
        });
        &PROPERTIES
    }

    fn set_property(&self, _: usize, value: &glib::Value, property: &glib::ParamSpec) {
        if property.name() == "options" {
            let options = value.get::<Option<String>>().ok().flatten().unwrap_or_default();
            *self.options.lock().unwrap_or_else(PoisonError::into_inner) = options;
        }
    }

    fn property(&self, _: usize, _: &glib::ParamSpec) -> glib::Value {
        self.options.lock().unwrap_or_else(PoisonError::into_inner).to_value()
    }
}

impl GstObjectImpl for FramepathDecImp {}

impl ElementImpl for FramepathDecImp {
    fn change_state(
        &self,
        change: gst::StateChange,
    ) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
        if change == gst::StateChange::PausedToReady {
            self.set_unlocked(true);
        }
        self.parent_change_state(change)
    }

    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "framepath decoder",
                "Codec/Decoder/Video",
                "Decodes video in a sandboxed process, whose crash costs no frame",
                "The framepath project",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let units = |name: &str, format: &str, alignment: &str| {
                gst::Structure::builder(name)
                    .field("stream-format", format)
                    .field("alignment", alignment)
                    .build()
            };
            let sink = gst::Caps::builder_full()
                .structure(units("video/x-h264", "byte-stream", "au"))
                .structure(units("video/x-h265", "byte-stream", "au"))
                .structure(gst::Structure::new_empty("video/x-vp8"))
                .structure(gst::Structure::new_empty("video/x-vp9"))
                .structure(units("video/x-av1", "obu-stream", "tu"))
                .build();
            let (direction, presence) = (gst::PadDirection::Sink, gst::PadPresence::Always);
            let sink = gst::PadTemplate::new("sink", direction, presence, &sink);
            [sink, raw_template("src", gst::PadDirection::Src)].into_iter().flatten().collect()
        });
        &TEMPLATES
    }
}

impl VideoDecoderImpl for FramepathDecImp {
    fn start(&self) -> Result<(), gst::ErrorMessage> {
        *self.lock() = DecoderState::default();
        Ok(())
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        let running = self.lock().running.take();
        drop(running);
        *self.lock() = DecoderState::default();
        Ok(())
    }

    fn set_format(
        &self,
        input: &gst_video::VideoCodecState<'static, gst_video::video_codec_state::Readable>,
    ) -> Result<(), gst::LoggableError> {
        // The frames of the stream before.
        self.drain_all().map_err(|error| gst::loggable_error!(CATEGORY, "{error}"))?;
        let caps = input.caps().map(|caps| caps.structure(0).map(|of| of.name().to_string()));
        let codec = match caps.flatten().as_deref() {
            Some("video/x-h264") => Codec::H264,
            Some("video/x-h265") => Codec::Hevc,
            Some("video/x-vp8") => Codec::Vp8,
            Some("video/x-vp9") => Codec::Vp9,
            Some("video/x-av1") => Codec::Av1,
            other => return Err(gst::loggable_error!(CATEGORY, "caps {other:?}")),
        };
        let mut state = self.lock();
        state.codec = Some(codec);
        state.input = Some(input.clone());
        (state.output, state.fields) = (None, StreamFields::Unknown);
        Ok(())
    }

    fn handle_frame(&self, frame: gst_video::VideoCodecFrame) -> Result<gst::FlowSuccess, gst::FlowError> {
        let packet = {
            let Some(input) = frame.input_buffer() else { return Ok(gst::FlowSuccess::Ok) };
            let bytes = input.map_readable().map_err(|_| gst::FlowError::Error)?;
            let pts = frame.pts().map(|pts| pts.nseconds() as i64);
            let meta = FrameMeta { seq: u64::from(frame.system_frame_number()), pts, ..FrameMeta::default() };
            let is_key = frame.flags().contains(gst_video::VideoCodecFrameFlags::SYNC_POINT);
            Packet::copied(&bytes, meta, is_key).ok_or(gst::FlowError::Error)?
        };
        drop(frame);
        let running = self.lock().running.take();
        let running = match running {
            Some(running) => running,
            None => self.start_decoder()?,
        };
        self.lock().delay.packet();
        // There is room: `wait_for_room` was called before GStreamer locked the stream.
        let flow = running.decode(packet);
        match flow {
            // Elements that take no more get nothing at the end of the stream either.
            Ok(()) | Err(DecodeEnd::Flow(gst::FlowError::NotLinked)) => self.lock().running = Some(running),
            Err(_) => self.unlocked(|| drop(running)),
        }
        self.flow(flow)
    }

    fn drain(&self) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.drain_all()
    }

    fn finish(&self) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.drain_all()
    }

    fn flush(&self) -> bool {
        let running = self.lock().running.take();
        if let Some(running) = running {
            self.unlocked(|| drop(running));
        }
        true
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        match event.type_() {
            gst::EventType::FlushStart => self.set_unlocked(true),
            gst::EventType::FlushStop => self.set_unlocked(false),
            _ => {}
        }
        self.parent_sink_event(event)
    }

    fn decide_allocation(&self, query: &mut gst::query::Allocation) -> Result<(), gst::LoggableError> {
        self.lock().has_meta = query.find_allocation_meta::<gst_video::VideoMeta>().is_some();
        self.parent_decide_allocation(query)
    }
}

impl FramepathDecImp {
    fn lock(&self) -> MutexGuard<'_, DecoderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, text: &str) -> gst::FlowError {
        gst::element_imp_error!(self, gst::StreamError::Decode, ["{text}"]);
        gst::FlowError::Error
    }

    fn start_decoder(&self) -> Result<RunningDecoder, gst::FlowError> {
        let (codec, info) = {
            let state = self.lock();
            (state.codec, state.input.as_ref().map(|input| input.info().clone()))
        };
        let Some(codec) = codec else { return Err(gst::FlowError::NotNegotiated) };
        let size = info.map_or((0, 0), |info| (info.width(), info.height()));
        let is_live = self.is_live();
        let mut options = self.options.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if is_live && !["threading=", "lowdelay="].iter().any(|option| options.contains(option)) {
            // Each further thread of whole frames delays the stream by one frame.
            options.push_str(" threading=slice");
        }
        self.lock().delay = DelayEstimate::default();
        let element = self.ref_counted();
        let pass = move |frame| element.finish_one(frame, is_live);
        let running =
            RunningDecoder::start(codec, size, &options, pass).map_err(|text| self.failed(&text))?;
        self.lock().packets = Some(running.packets());
        Ok(running)
    }

    /// Returns whether the pipeline's frames come from the present.
    fn is_live(&self) -> bool {
        let mut query = gst::query::Latency::new();
        self.obj().sink_pad().peer_query(&mut query) && query.result().0
    }

    /// Waits until the decoder can take a packet. GStreamer has no lock meanwhile.
    fn wait_for_room(&self) {
        let packets = self.lock().packets.clone();
        if let Some(packets) = packets {
            packets.wait_for_room();
        }
    }

    /// Ends the waits for the decoder, or lets them be.
    fn set_unlocked(&self, is_unlocked: bool) {
        if let Some(packets) = &self.lock().packets {
            packets.set_unlocked(is_unlocked);
        }
    }

    /// Calls a function that waits for the thread of frames. That thread needs the lock of the stream, which GStreamer has locked once for
    /// the functions of a decoder.
    fn unlocked<T>(&self, call: impl FnOnce() -> T) -> T {
        let decoder: *mut gst_video::ffi::GstVideoDecoder = self.obj().as_ptr().cast();
        // SAFETY: the element lives as long as `self`; `handle_frame`, `drain`, `finish`, `flush` and `set_format` are called with the lock
        // held once by this thread (`GST_VIDEO_DECODER_STREAM_LOCK`), as other decoders with threads rely on.
        unsafe { glib::ffi::g_rec_mutex_unlock(&raw mut (*decoder).stream_lock) };
        let result = call();
        // SAFETY: as above.
        unsafe { glib::ffi::g_rec_mutex_lock(&raw mut (*decoder).stream_lock) };
        result
    }

    /// Takes all frames of the packets so far, and ends the decoder: another one begins with the next packet.
    fn drain_all(&self) -> Result<gst::FlowSuccess, gst::FlowError> {
        let Some(running) = self.lock().running.take() else { return Ok(gst::FlowSuccess::Ok) };
        let flow = self.unlocked(|| running.drain());
        self.flow(flow)
    }

    /// Posts the decoder's error.
    fn flow(&self, flow: Result<(), DecodeEnd>) -> Result<gst::FlowSuccess, gst::FlowError> {
        match flow {
            Ok(()) | Err(DecodeEnd::Done) => Ok(gst::FlowSuccess::Ok),
            Err(DecodeEnd::Flow(flow)) => Err(flow),
            Err(DecodeEnd::Failed(text)) => Err(self.failed(&text)),
        }
    }

    /// Passes a frame on. Called by the thread of the decoder.
    fn finish_one(&self, frame: Frame, is_live: bool) -> Result<(), gst::FlowError> {
        let decoder = self.obj();
        if decoder.src_pad().check_reconfigure() {
            // Other elements are behind, which may not understand strides.
            self.lock().output = None;
        }
        let delay = self.lock().delay.frame().filter(|_| is_live);
        if let Some(delay) = delay {
            decoder.set_latency(self.frame_duration() * delay, None);
        }
        let number = frame.meta().seq;
        let fields = self.lock().fields.add(frame.meta().field_order);
        let info = video_info(frame.layout(), fields, None).map_err(|text| self.failed(&text))?;
        self.negotiate(&info)?;
        let Some(mut codec_frame) = decoder.frame(number as i32) else {
            // GStreamer has dropped it.
            return Ok(());
        };
        if decoder.max_decode_time(&codec_frame) < 0 {
            // Too late to be shown (QoS); GStreamer counts it.
            return decoder.drop_frame(codec_frame).map(|_| ());
        }
        let (kept, has_meta) = {
            let state = self.lock();
            (state.kept.clone(), state.has_meta)
        };
        if frame.meta().is_damaged {
            gst::warning!(CATEGORY, imp = self, "frame {number} is damaged");
        }
        codec_frame.set_output_buffer(buffer(frame, &info, &kept, has_meta)?);
        decoder.finish_frame(codec_frame).map(|_| ())
    }

    /// Returns the time from one frame to the next; 1/25 s if the caps do not say it.
    fn frame_duration(&self) -> gst::ClockTime {
        let fps = self.lock().input.as_ref().map(|input| input.info().fps());
        let fps =
            fps.and_then(|fps| Some((u64::try_from(fps.numer()).ok()?, u64::try_from(fps.denom()).ok()?)));
        let (rate, per) = fps.filter(|(rate, _)| *rate > 0).unwrap_or((25, 1));
        gst::ClockTime::SECOND.mul_div_floor(per, rate).unwrap_or(gst::ClockTime::ZERO)
    }

    /// Agrees on the output with the elements behind, if it is another one.
    fn negotiate(&self, output: &VideoInfo) -> Result<(), gst::FlowError> {
        let input = {
            let mut state = self.lock();
            if state.output.as_ref() == Some(output) {
                return Ok(());
            }
            state.output = Some(output.clone());
            state.input.clone()
        };
        let decoder = self.obj();
        let (format, width, height) = (output.format(), output.width(), output.height());
        let mode = output.interlace_mode();
        let state = decoder.set_interlaced_output_state(format, mode, width, height, input.as_ref());
        let mut state = state.map_err(|_| gst::FlowError::NotNegotiated)?;
        // The container and the parser have the last word about the colours; what they do not say, the decoder does.
        let says = input.and_then(|input| input.caps_owned()).is_some_and(|caps| {
            caps.structure(0).is_some_and(|structure| structure.has_field("colorimetry"))
        });
        let colorimetry = if says { state.info().colorimetry() } else { output.colorimetry() };
        let info = VideoInfo::builder_from_info(state.info())
            .colorimetry(&colorimetry)
            .field_order(output.field_order())
            .build();
        state.set_info(info.map_err(|_| gst::FlowError::NotNegotiated)?);
        decoder.negotiate(state)
    }
}
