// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts that the tests share.

#![allow(dead_code, reason = "each test program uses some of them")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once};

use gst::prelude::*;
use gst_video::video_frame::VideoBufferExt;
use gst_video::{VideoBufferFlags, VideoFieldOrder, VideoFrameExt, VideoInterlaceMode};

/// Initialises GStreamer with the plug-in.
pub fn init() {
    static INIT: Once = Once::new();
    INIT.call_once(|| {
        gst::init().unwrap();
        gstframepath::plugin_register_static().unwrap();
    });
}

/// Returns the folder of the clips.
pub fn clips() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clips")
}

/// Frame as a probe notes it.
#[derive(Clone, Debug, PartialEq)]
pub struct NotedFrame {
    pub pts: Option<gst::ClockTime>,
    pub size: (u32, u32),
    pub colorimetry: String,
    /// Fields as the caps say them.
    pub fields: (VideoInterlaceMode, VideoFieldOrder),
    /// Fields as the buffer's flags say them: interlaced, and the top field first.
    pub is_interlaced: (bool, bool),
    pub hash: u64,
    /// Number of memories in the buffer.
    pub memories: usize,
}

/// Frames that a probe has noted.
pub type NotedFrames = Arc<Mutex<Vec<NotedFrame>>>;

/// Notes the frames that reach an element; forgets them at a flush.
pub fn note(element: &gst::Element) -> NotedFrames {
    let frames = NotedFrames::default();
    let seen = frames.clone();
    let kind = gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_FLUSH;
    element.static_pad("sink").unwrap().add_probe(kind, move |pad, info| {
        match &info.data {
            Some(gst::PadProbeData::Buffer(buffer)) => {
                let video = gst_video::VideoInfo::from_caps(&pad.current_caps().unwrap()).unwrap();
                let has = |flag| buffer.video_flags().contains(flag);
                seen.lock().unwrap().push(NotedFrame {
                    pts: buffer.pts(),
                    size: (video.width(), video.height()),
                    colorimetry: video.colorimetry().to_string(),
                    fields: (video.interlace_mode(), video.field_order()),
                    is_interlaced: (has(VideoBufferFlags::INTERLACED), has(VideoBufferFlags::TFF)),
                    hash: hash(&packed(buffer, &video)),
                    memories: buffer.n_memory(),
                });
            }
            Some(gst::PadProbeData::Event(event)) if event.type_() == gst::EventType::FlushStop => {
                seen.lock().unwrap().clear();
            }
            _ => {}
        }
        gst::PadProbeReturn::Ok
    });
    frames
}

/// Takes what was noted.
pub fn taken(frames: &NotedFrames) -> Vec<NotedFrame> {
    std::mem::take(&mut *frames.lock().unwrap())
}

/// Samples of a frame without the padding of its rows.
pub fn packed(buffer: &gst::BufferRef, info: &gst_video::VideoInfo) -> Vec<u8> {
    let frame = gst_video::VideoFrameRef::from_buffer_ref_readable(buffer, info).unwrap();
    let mut packed = Vec::with_capacity(info.size());
    for plane in 0..frame.n_planes() {
        let stride = frame.plane_stride()[plane as usize] as usize;
        let bytes = frame.plane_data(plane).unwrap();
        // Component of the plane: all formats of the tests have their components in order.
        let component = if frame.n_planes() == 1 { 0 } else { plane as u8 };
        let format = frame.format_info();
        let height = format.scale_height(component, frame.height()) as usize;
        let width = format.scale_width(component, frame.width()) as usize
            * format.pixel_stride()[component as usize] as usize;
        for row in 0..height {
            packed.extend_from_slice(&bytes[row * stride..][..width]);
        }
    }
    packed
}

/// Hash of bytes (FNV-1a of words).
fn hash(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|word| {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        u64::from_le_bytes(padded)
    });
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x100_0000_01b3))
}

/// Makes a pipeline whose element `sink` notes its frames.
pub fn pipeline(text: &str) -> (gst::Pipeline, NotedFrames) {
    init();
    let pipeline = gst::parse::launch(text).unwrap().downcast::<gst::Pipeline>().unwrap();
    let frames = note(&pipeline.by_name("sink").unwrap());
    (pipeline, frames)
}

/// Plays a pipeline to its end. Returns the texts of the errors and warnings on the bus.
pub fn play(pipeline: &gst::Pipeline) -> Vec<String> {
    pipeline.set_state(gst::State::Playing).ok();
    let mut texts = Vec::new();
    let bus = pipeline.bus().unwrap();
    for message in bus.iter_timed(gst::ClockTime::from_seconds(120)) {
        match message.view() {
            gst::MessageView::Eos(_) => return texts,
            gst::MessageView::Warning(warning) => {
                texts.push(format!("{} {:?}", warning.error(), warning.debug()))
            }
            gst::MessageView::Error(error) => {
                texts.push(format!("{} {:?}", error.error(), error.debug()));
                return texts;
            }
            _ => {}
        }
    }
    panic!("no end within two minutes");
}

/// Frames that an element makes of a file, and the errors and warnings on the bus. `decoder` may be several elements.
pub fn decoded(file: &Path, decoder: &str) -> (Vec<NotedFrame>, Vec<String>) {
    let location = file.display();
    let text = format!("filesrc location={location} ! parsebin ! {decoder} ! fakesink name=sink sync=false");
    let (pipeline, frames) = pipeline(&text);
    let texts = play(&pipeline);
    pipeline.set_state(gst::State::Null).unwrap();
    (taken(&frames), texts)
}
