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
fn decoded(clip: &str, decoder: &str, properties: &str) -> (Vec<(Option<gst::ClockTime>, u64)>, Vec<String>) {
    init();
    let file = clips().join(clip);
    let text = format!(
        "filesrc location={} ! parsebin ! {decoder} {properties} ! appsink name=sink sync=false",
        file.display()
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
        gst::PadProbeReturn::Drop
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
    for (clip, decoder) in [
        ("h264-180p8-container.mp4", "avdec_h264"),
        ("h264-180p8-high.h264", "avdec_h264"),
        ("h264-98x58p8-cropped.h264", "avdec_h264"),
        ("hevc-180p8-container.mkv", "avdec_h265"),
        ("hevc-180p10.hevc", "avdec_h265"),
        ("vp8-180p8-container.webm", "avdec_vp8"),
        ("vp9-180p8.ivf", "avdec_vp9"),
        ("vp9-99x57p8-odd.ivf", "avdec_vp9"),
        ("av1-180p8-container.mp4", "av1dec"),
    ] {
        let (expected, errors) = decoded(clip, decoder, "");
        assert!(errors.is_empty(), "{clip}, {decoder}: {errors:?}");
        let (ours, errors) = decoded(clip, "framepathdec", "");
        assert!(errors.is_empty(), "{clip}: {errors:?}");
        assert!(expected.len() > 5, "{clip}: {}", expected.len());
        assert_eq!(ours, expected, "{clip}");
    }
}
