// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole paths as a source and a sink of a pipeline.

mod support;

use std::sync::{Arc, Mutex};

use gst::prelude::*;
use support::{NotedFrame, clips, decoded, init, packed, pipeline, play, taken};

fn path_of(clip: &str, host: &str) -> String {
    format!("framepathsrc path=\"file {} ! decode host={host}\"", clips().join(clip).display())
}

/// Times and hashes.
fn seen(frames: &[NotedFrame]) -> Vec<(Option<gst::ClockTime>, u64)> {
    frames.iter().map(|frame| (frame.pts, frame.hash)).collect()
}

#[test]
fn a_source_has_the_frames_and_times_of_its_path() {
    for clip in ["h264-180p8-container.mp4", "vp9-99x57p8-odd.ivf", "vp9-resize-180p8.ivf"] {
        let decoder = if clip.contains("h264") { "h264parse ! avdec_h264" } else { "vp9parse ! avdec_vp9" };
        let (expected, _) = decoded(&clips().join(clip), decoder);
        for host in ["inline", "process"] {
            let (pipeline, frames) = pipeline(&format!("{} ! fakesink name=sink", path_of(clip, host)));
            assert_eq!(play(&pipeline), [""; 0]);
            pipeline.set_state(gst::State::Null).unwrap();
            let ours = taken(&frames);
            assert_eq!(ours.len(), expected.len(), "{clip} {host}");
            let since_first = |frames: &[NotedFrame], index: usize| {
                // A path's times begin at 0; a demuxer's may not, and its segment says so.
                frames[index].pts.unwrap().nseconds() - frames[0].pts.unwrap().nseconds()
            };
            for (index, (frame, like)) in ours.iter().zip(&expected).enumerate() {
                assert_eq!((frame.hash, frame.size), (like.hash, like.size), "{clip} {host}");
                // The two round the ticks of the container otherwise.
                let apart = since_first(&ours, index).abs_diff(since_first(&expected, index));
                assert!(apart <= 1_000_000, "{clip} {host}: {:?} {:?}", frame.pts, like.pts);
            }
        }
    }
}

#[test]
fn a_source_says_the_duration_that_the_container_declares() {
    for (clip, expected) in
        [("h264-180p8-container.mp4", Some(gst::ClockTime::SECOND)), ("h264-180p8-high.h264", None)]
    {
        let (pipeline, _) = pipeline(&format!("{} ! fakesink name=sink", path_of(clip, "process")));
        pipeline.set_state(gst::State::Paused).unwrap();
        pipeline.state(gst::ClockTime::from_seconds(60)).0.unwrap();
        assert_eq!(pipeline.query_duration::<gst::ClockTime>(), expected, "{clip}");
        pipeline.set_state(gst::State::Null).unwrap();
    }
}

#[test]
fn a_source_seeks_to_the_frame() {
    let (pipeline, frames) = pipeline(&format!(
        "{} ! fakesink name=sink sync=false",
        path_of("h264-180p8-container.mp4", "process")
    ));
    assert_eq!(play(&pipeline), [""; 0]);
    let all = seen(&taken(&frames));
    for ms in [0, 500, 300] {
        let to = gst::ClockTime::from_mseconds(ms);
        pipeline.set_state(gst::State::Paused).unwrap();
        pipeline.seek_simple(gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE, to).unwrap();
        assert_eq!(play(&pipeline), [""; 0]);
        let expected: Vec<_> = all.iter().copied().filter(|(pts, _)| *pts >= Some(to)).collect();
        assert!(expected.len() > 5);
        assert_eq!(seen(&taken(&frames)), expected, "{ms} ms");
    }
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn a_source_that_waits_for_its_next_frame_can_be_stopped() {
    // 50 s from one frame to the next.
    let (pipeline, frames) = pipeline(
        "framepathsrc path=\"test rate=0.02 frames=0 size=64x48\" is-live=true ! fakesink name=sink",
    );
    pipeline.set_state(gst::State::Playing).unwrap();
    while frames.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    pipeline.set_state(gst::State::Paused).unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(taken(&frames).len(), 1);
}

#[test]
fn a_wrong_path_is_an_error_on_the_bus() {
    let (source, _) = pipeline("framepathsrc path=\"file /no/such/file ! decode\" ! fakesink name=sink");
    let texts = play(&source);
    source.set_state(gst::State::Null).unwrap();
    assert!(texts.len() == 1 && texts[0].contains("/no/such/file"), "{texts:?}");
    for path in ["nonsense", "", "encode vp8 ! null"] {
        // Greyscale is not for libvpx, so that the last path fails in its run.
        let (sink, _) = pipeline(&format!(
            "videotestsrc num-buffers=20 ! video/x-raw,format=GRAY16_LE ! framepathsink name=sink path=\"{path}\""
        ));
        let texts = play(&sink);
        sink.set_state(gst::State::Null).unwrap();
        assert!(
            texts.len() == 1
                && texts[0].contains(if path.is_empty() { "empty" } else { path.split(' ').next().unwrap() }),
            "{path}: {texts:?}"
        );
    }
}

#[test]
fn a_sink_gives_its_path_all_frames_and_reports() {
    let folder = tempfile::tempdir().unwrap();
    for (format, size) in [
        ("I420", (99, 57)),
        ("NV12", (320, 180)),
        ("RGB", (31, 17)),
        ("I420_10LE", (64, 48)),
        ("YUY2", (62, 40)),
    ] {
        let file = folder.path().join(format);
        let caps = format!("video/x-raw,format={format},width={},height={},framerate=25/1", size.0, size.1);
        let (pipeline, frames) = pipeline(&format!(
            "videotestsrc num-buffers=40 pattern=ball ! {caps} ! framepathsink name=sink path=\"raw '{}'\"",
            file.display()
        ));
        let given = Arc::<Mutex<Vec<u8>>>::default();
        let bytes = given.clone();
        let pad = pipeline.by_name("sink").unwrap().static_pad("sink").unwrap();
        pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            let video = gst_video::VideoInfo::from_caps(&pad.current_caps().unwrap()).unwrap();
            bytes.lock().unwrap().extend(packed(info.buffer().unwrap(), &video));
            gst::PadProbeReturn::Ok
        });
        assert_eq!(play(&pipeline), [""; 0], "{format}");
        let report: Option<String> = pipeline.by_name("sink").unwrap().property("report");
        pipeline.set_state(gst::State::Null).unwrap();
        assert_eq!(taken(&frames).len(), 40, "{format}");
        assert!(std::fs::read(&file).unwrap() == *given.lock().unwrap(), "{format}");
        let report: serde_json::Value = serde_json::from_str(&report.unwrap()).unwrap();
        assert_eq!(report["rows"][0]["frames"], 40, "{format}: {report}");
    }
}

#[test]
fn a_sink_is_paused_and_stopped_while_its_path_is_full() {
    init();
    // The pipeline makes frames much faster than the path takes them.
    let (pipeline, _) = pipeline(
        "videotestsrc ! video/x-raw,format=I420,width=64,height=48 ! framepathsink name=sink path=\"block time=300ms ! null\"",
    );
    pipeline.set_state(gst::State::Playing).unwrap();
    pipeline.state(gst::ClockTime::from_seconds(30)).0.unwrap();
    pipeline.set_state(gst::State::Paused).unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn a_sink_begins_anew_after_a_seek_behind_the_end() {
    let (pipeline, frames) =
        pipeline(&format!("{} ! framepathsink name=sink path=null", path_of("vp9-180p8.ivf", "inline")));
    for _ in 0..2 {
        assert_eq!(play(&pipeline), [""; 0]);
        assert_eq!(taken(&frames).len(), 30);
        let report: Option<String> = pipeline.by_name("sink").unwrap().property("report");
        let report: serde_json::Value = serde_json::from_str(&report.unwrap()).unwrap();
        assert_eq!(report["rows"][0]["frames"], 30);
        pipeline.set_state(gst::State::Paused).unwrap();
        pipeline.seek_simple(gst::SeekFlags::FLUSH, gst::ClockTime::ZERO).unwrap();
    }
    pipeline.set_state(gst::State::Null).unwrap();
}

#[test]
fn a_source_seeks_before_its_first_frame_and_changes_its_rate() {
    let (pipeline, frames) = pipeline(&format!(
        "{} ! fakesink name=sink sync=false",
        path_of("h264-180p8-container.mp4", "inline")
    ));
    let settled = || pipeline.state(gst::ClockTime::from_seconds(30)).0.unwrap();
    let first = || frames.lock().unwrap().first().unwrap().pts.unwrap().mseconds();
    pipeline.set_state(gst::State::Paused).unwrap();
    settled();
    // Twice, so that the second one goes back to a start that the first one has left.
    for ms in [500, 0] {
        let to = gst::ClockTime::from_mseconds(ms);
        pipeline.seek_simple(gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE, to).unwrap();
        settled();
        assert_eq!(first(), ms);
    }
    let to = gst::ClockTime::from_mseconds(500);
    pipeline.seek_simple(gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE, to).unwrap();
    settled();
    let none = gst::ClockTime::NONE;
    let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE;
    pipeline.seek(1.5, flags, gst::SeekType::None, none, gst::SeekType::None, none).unwrap();
    settled();
    assert!(first() >= 500, "{}", first());
    // Backwards is refused, and the stream goes on.
    let end = gst::ClockTime::from_seconds(1);
    assert!(
        pipeline
            .seek(-1.0, flags, gst::SeekType::Set, gst::ClockTime::ZERO, gst::SeekType::Set, end)
            .is_err()
    );
    assert_eq!(play(&pipeline), [""; 0]);
    pipeline.set_state(gst::State::Null).unwrap();
}
