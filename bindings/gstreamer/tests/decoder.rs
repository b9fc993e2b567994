// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decoder in GStreamer's harness and in pipelines.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once};

use gst::prelude::*;
use gst_video::VideoFrameExt;

fn init() {
    static INIT: Once = Once::new();
    INIT.call_once(|| {
        gst::init().unwrap();
        gstframepath::plugin_register_static().unwrap();
    });
}

fn clips() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clips")
}

/// Hashes of the frames that a decoder makes of a clip, each with its presentation time; also the errors on the bus.
fn decoded(clip: &str, parser: &str, decoder: &str) -> (Vec<(Option<gst::ClockTime>, u64)>, Vec<String>) {
    init();
    let file = clips().join(clip);
    let location = file.display();
    let text = format!(
        "filesrc location={location} ! parsebin ! {parser} ! {decoder} ! fakesink name=sink sync=false"
    );
    let pipeline = gst::parse::launch(&text).unwrap().downcast::<gst::Pipeline>().unwrap();
    let sink = pipeline.by_name("sink").unwrap();
    let frames = Arc::<Mutex<Vec<_>>>::default();
    let pad = sink.static_pad("sink").unwrap();
    let seen = frames.clone();
    pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        let buffer = info.buffer().unwrap();
        let caps = pad.current_caps().unwrap();
        let video = gst_video::VideoInfo::from_caps(&caps).unwrap();
        seen.lock().unwrap().push((buffer.pts(), hash(buffer, &video)));
        gst::PadProbeReturn::Ok
    });
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut errors = Vec::new();
    let bus = pipeline.bus().unwrap();
    for message in bus.iter_timed(gst::ClockTime::from_seconds(60)) {
        match message.view() {
            gst::MessageView::Eos(_) => break,
            gst::MessageView::Error(error) => {
                errors.push(format!("{} {:?}", error.error(), error.debug()));
                break;
            }
            _ => {}
        }
    }
    pipeline.set_state(gst::State::Null).unwrap();
    let frames = std::mem::take(&mut *frames.lock().unwrap());
    (frames, errors)
}

/// Hash of a frame's samples without the padding of its rows (FNV-1a).
fn hash(buffer: &gst::BufferRef, info: &gst_video::VideoInfo) -> u64 {
    let frame = gst_video::VideoFrameRef::from_buffer_ref_readable(buffer, info).unwrap();
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for plane in 0..frame.n_planes() {
        let (stride, bytes) =
            (frame.plane_stride()[plane as usize] as usize, frame.plane_data(plane).unwrap());
        let format = frame.format_info();
        let height = format.scale_height(plane as u8, frame.height()) as usize;
        let width = format.scale_width(plane as u8, frame.width()) as usize
            * format.pixel_stride()[plane as usize] as usize;
        for y in 0..height {
            for byte in &bytes[y * stride..y * stride + width] {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
    hash
}

#[test]
fn frames_and_times_are_those_of_gstreamers_decoders() {
    for (clip, parser, decoder) in [
        ("h264-180p8-container.mp4", "h264parse", "avdec_h264"),
        ("h264-180p8-high.h264", "h264parse", "avdec_h264"),
        ("h264-98x58p8-cropped.h264", "h264parse", "avdec_h264"),
        ("hevc-180p8-container.mkv", "h265parse", "avdec_h265"),
        ("hevc-180p10.hevc", "h265parse", "avdec_h265"),
        ("vp8-180p8-container.webm", "identity", "avdec_vp8"),
        ("vp9-180p8.ivf", "vp9parse", "avdec_vp9"),
        ("vp9-99x57p8-odd.ivf", "vp9parse", "avdec_vp9"),
    ] {
        let (expected, errors) = decoded(clip, parser, decoder);
        assert!(errors.is_empty(), "{clip}, {decoder}: {errors:?}");
        let (ours, errors) = decoded(clip, parser, "framepathdec");
        assert!(errors.is_empty(), "{clip}: {errors:?}");
        assert!(expected.len() > 5, "{clip}: {}", expected.len());
        assert_eq!(ours, expected, "{clip}");
    }
}

#[test]
fn killed_workers_cost_no_frame() {
    let clip = "h264-180p8-container.mp4";
    let (expected, _) = decoded(clip, "h264parse", "avdec_h264");
    let (ours, errors) =
        decoded(clip, "h264parse", "framepathdec options=\"fault=crash@3,crash@14,crash@25\"");
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(ours, expected);
}

#[test]
fn a_wrong_option_is_an_error_on_the_bus() {
    let (frames, errors) = decoded("vp9-180p8.ivf", "vp9parse", "framepathdec options=no-such-option");
    assert!(frames.is_empty() && errors.len() == 1 && errors[0].contains("no-such-option"), "{errors:?}");
}

/// Frames with their times, as a probe notes them.
type NotedFrames = Arc<Mutex<Vec<(Option<gst::ClockTime>, u64)>>>;

/// Makes a paused pipeline that notes its frames.
fn paused(decoder: &str) -> (gst::Pipeline, NotedFrames) {
    init();
    let file = clips().join("h264-180p8-container.mp4");
    let location = file.display();
    let text = format!(
        "filesrc location={location} ! parsebin ! h264parse ! {decoder} ! fakesink name=sink sync=false"
    );
    let pipeline = gst::parse::launch(&text).unwrap().downcast::<gst::Pipeline>().unwrap();
    let frames = NotedFrames::default();
    let (seen, sink) = (frames.clone(), pipeline.by_name("sink").unwrap());
    let kind = gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_FLUSH;
    sink.static_pad("sink").unwrap().add_probe(kind, move |pad, info| {
        match &info.data {
            Some(gst::PadProbeData::Buffer(buffer)) => {
                let video = gst_video::VideoInfo::from_caps(&pad.current_caps().unwrap()).unwrap();
                seen.lock().unwrap().push((buffer.pts(), hash(buffer, &video)));
            }
            Some(gst::PadProbeData::Event(event)) if event.type_() == gst::EventType::FlushStop => {
                seen.lock().unwrap().clear();
            }
            _ => {}
        }
        gst::PadProbeReturn::Ok
    });
    pipeline.set_state(gst::State::Paused).unwrap();
    pipeline.state(gst::ClockTime::from_seconds(30)).0.unwrap();
    (pipeline, frames)
}

fn play_to_end(pipeline: &gst::Pipeline) {
    pipeline.set_state(gst::State::Playing).unwrap();
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let message =
        pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds).unwrap();
    assert_eq!(message.type_(), gst::MessageType::Eos, "{message:?}");
}

#[test]
fn seeks_give_the_same_frames() {
    let seek = |decoder: &str| {
        let (pipeline, frames) = paused(decoder);
        let mut all = Vec::new();
        for ms in [500, 0, 300] {
            let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE;
            pipeline.seek_simple(flags, gst::ClockTime::from_mseconds(ms)).unwrap();
            pipeline.state(gst::ClockTime::from_seconds(30)).0.unwrap();
            play_to_end(&pipeline);
            all.push(std::mem::take(&mut *frames.lock().unwrap()));
            pipeline.set_state(gst::State::Paused).unwrap();
        }
        pipeline.set_state(gst::State::Null).unwrap();
        all
    };
    let (ours, expected) = (seek("framepathdec"), seek("avdec_h264"));
    assert!(expected.iter().all(|frames| frames.len() > 5));
    assert_eq!(ours, expected);
}

#[test]
fn a_harness_gets_each_frame_and_the_end() {
    init();
    let mut harness = gst_check::Harness::new("framepathdec");
    harness.set_src_caps_str("video/x-vp8,width=99,height=57,framerate=30/1");
    let file = std::fs::read(clips().join("vp8-99x57p8-odd.ivf")).unwrap();
    let (mut at, mut number) = (32, 0);
    while at + 12 <= file.len() {
        let size = u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
        let mut buffer = gst::Buffer::from_slice(file[at + 12..at + 12 + size].to_vec());
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(number * 33));
        harness.push(buffer).unwrap();
        (at, number) = (at + 12 + size, number + 1);
        if number == 5 {
            // A gap in the stream, which is passed on behind the frames before it.
            harness.push_event(gst::event::Gap::new(gst::ClockTime::from_mseconds(number * 33), None));
        }
    }
    harness.push_event(gst::event::Eos::new());
    let mut times = Vec::new();
    while let Some(buffer) = harness.try_pull() {
        times.push(buffer.pts().unwrap().mseconds());
    }
    assert_eq!(times, (0..number).map(|number| number * 33).collect::<Vec<_>>());
}
