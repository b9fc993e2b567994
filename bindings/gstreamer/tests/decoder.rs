// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decoder in GStreamer's harness and in pipelines.

mod support;

use gst::prelude::*;
use gst_video::prelude::*;
use support::{NotedFrame, clips, decoded, init, pipeline, play, taken};

/// Frames without what may differ between decoders.
fn compared(frames: Vec<NotedFrame>) -> Vec<NotedFrame> {
    frames.into_iter().map(|frame| NotedFrame { memories: 0, ..frame }).collect()
}

#[test]
fn frames_times_and_colours_of_all_clips_are_those_of_gstreamers_decoders() {
    let mut count = 0;
    for entry in std::fs::read_dir(clips()).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_name().unwrap().to_str().unwrap();
        let (parser, decoder) = match name {
            _ if name.ends_with(".md") || name.ends_with(".sh") => continue,
            _ if name.contains("h264") => ("h264parse", "avdec_h264"),
            _ if name.contains("hevc") => ("h265parse", "avdec_h265"),
            _ if name.contains("vp8") => ("identity", "avdec_vp8"),
            _ if name.contains("vp9") => ("vp9parse", "avdec_vp9"),
            _ if name.contains("av1") => ("av1parse", "av1dec"),
            _ => panic!("{name}: no decoder is known"),
        };
        let (expected, texts) = decoded(&file, &format!("{parser} ! {decoder}"));
        assert!(texts.is_empty(), "{name}, {decoder}: {texts:?}");
        let (ours, texts) = decoded(&file, &format!("{parser} ! framepathdec"));
        assert!(texts.is_empty(), "{name}: {texts:?}");
        assert!(expected.len() > 5, "{name}: {}", expected.len());
        let first = compared(ours.clone())
            .into_iter()
            .zip(compared(expected.clone()))
            .find(|(ours, expected)| ours != expected);
        assert!(
            ours.len() == expected.len() && first.is_none(),
            "{name}: {} {} {first:?}",
            ours.len(),
            expected.len()
        );
        count += 1;
    }
    assert!(count >= 29, "{count} clips");
}

#[test]
fn interlaced_streams_have_the_fields_that_gstreamers_decoder_says() {
    use gst_video::{VideoFieldOrder, VideoInterlaceMode};
    let folder = std::env::temp_dir().join(format!("framepath-fields-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (field, order) in
        [("tff", VideoFieldOrder::TopFieldFirst), ("bff", VideoFieldOrder::BottomFieldFirst)]
    {
        let file = folder.join(format!("{field}.mkv"));
        let made = std::process::Command::new("ffmpeg")
            .args(["-v", "error", "-y", "-f", "lavfi", "-i", "testsrc2=size=322x244:rate=25:duration=1"])
            .args(["-vf", &format!("setfield={field}"), "-c:v", "libx264", "-flags", "+ilme+ildct"])
            .args(["-pix_fmt", "yuv420p"])
            .arg(&file)
            .status();
        assert!(made.unwrap().success());
        let (expected, _) = decoded(&file, "h264parse ! avdec_h264");
        let (ours, texts) = decoded(&file, "h264parse ! framepathdec");
        assert!(texts.is_empty() && ours.len() == 25, "{texts:?} {}", ours.len());
        assert_eq!(ours[0].fields, (VideoInterlaceMode::Interleaved, order));
        assert!(ours.iter().all(|frame| frame.is_interlaced == (true, field == "tff")));
        assert_eq!(compared(ours.clone()), compared(expected));
        // A whole path has the same, there and back.
        let text = format!("framepathsrc path=\"file {} ! decode\" ! fakesink name=sink", file.display());
        let (pipeline, frames) = pipeline(&text);
        assert_eq!(play(&pipeline), [""; 0]);
        pipeline.set_state(gst::State::Null).unwrap();
        let fields = |frames: Vec<NotedFrame>| -> Vec<_> {
            frames.into_iter().map(|frame| (frame.fields, frame.is_interlaced, frame.hash)).collect()
        };
        assert_eq!(fields(taken(&frames)), fields(ours));
        let out = folder.join("out.y4m");
        let text = format!(
            "filesrc location={} ! parsebin ! avdec_h264 ! framepathsink name=sink sync=false path=\"y4m {}\"",
            file.display(),
            out.display()
        );
        let (pipeline, _) = support::pipeline(&text);
        assert_eq!(play(&pipeline), [""; 0]);
        pipeline.set_state(gst::State::Null).unwrap();
        let written = std::fs::read(&out).unwrap();
        let header = String::from_utf8_lossy(written.split(|byte| *byte == b'\n').next().unwrap());
        assert!(header.contains(&format!(" I{} ", &field[..1])), "{header}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn frames_are_not_copied_for_elements_that_know_no_strides() {
    let (frames, texts) = decoded(&clips().join("h264-1080p8.h264"), "h264parse ! framepathdec");
    // Of a frame's own memory, a part for each plane; a copy is one memory.
    let memories = frames.iter().map(|frame| frame.memories).collect::<Vec<_>>();
    assert!(texts.is_empty() && memories == [3; 150], "{texts:?} {memories:?}");
}

#[test]
fn killed_workers_cost_no_frame() {
    let file = clips().join("h264-180p8-container.mp4");
    let (expected, _) = decoded(&file, "h264parse ! avdec_h264");
    let (ours, texts) =
        decoded(&file, "h264parse ! framepathdec options=\"fault=crash@3,crash@14,crash@25\"");
    assert!(texts.is_empty(), "{texts:?}");
    assert_eq!(compared(ours), compared(expected));
}

#[test]
fn a_wrong_option_is_an_error_on_the_bus() {
    let file = clips().join("vp9-180p8.ivf");
    let (frames, texts) = decoded(&file, "vp9parse ! framepathdec options=no-such-option");
    assert!(frames.is_empty() && texts.len() == 1 && texts[0].contains("no-such-option"), "{texts:?}");
}

#[test]
fn a_sink_that_refuses_buffers_ends_the_stream_as_it_says() {
    let file = clips().join("h264-180p8-container.mp4");
    let (frames, texts) = decoded(&file, "h264parse ! framepathdec ! identity error-after=5");
    assert!(texts.len() == 1 && texts[0].contains("Failed after iterations as requested"), "{texts:?}");
    assert!(frames.len() < 6, "{}", frames.len());
    let (frames, texts) = decoded(&file, "h264parse ! framepathdec ! identity eos-after=5");
    assert!(texts.is_empty() && frames.len() < 6, "{texts:?} {}", frames.len());
}

#[test]
fn a_sink_that_keeps_all_frames_gets_copies() {
    init();
    let location = clips().join("h264-180p8-container.mp4").display().to_string();
    let text = format!(
        "filesrc location={location} ! parsebin ! h264parse ! framepathdec name=decoder ! fakesink sync=false"
    );
    let pipeline = gst::parse::launch(&text).unwrap().downcast::<gst::Pipeline>().unwrap();
    let kept = std::sync::Arc::<std::sync::Mutex<Vec<gst::Buffer>>>::default();
    let keep = kept.clone();
    let pad = pipeline.by_name("decoder").unwrap().static_pad("src").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        keep.lock().unwrap().push(info.buffer().unwrap().copy());
        gst::PadProbeReturn::Ok
    });
    assert_eq!(play(&pipeline), [""; 0]);
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(kept.lock().unwrap().len(), 30);
}

#[test]
fn late_frames_are_dropped() {
    let (mut harness, packets) = harness();
    let mut dropped = false;
    for (number, packet) in packets.iter().enumerate() {
        harness.push(packet.clone()).unwrap();
        if number == 3 {
            // The sink shows frames of 0 s at 10 s.
            let late = gst::ClockTime::from_seconds(10).nseconds() as i64;
            let event = gst::event::Qos::new(gst::QOSType::Underflow, 2.0, late, gst::ClockTime::ZERO);
            dropped = harness.push_upstream_event(event);
        }
    }
    harness.push_event(gst::event::Eos::new());
    let mut count = 0;
    while harness.try_pull().is_some() {
        count += 1;
    }
    assert!(dropped && count <= 4, "{dropped} {count}");
}

#[test]
fn seeks_give_the_same_frames() {
    let seek = |decoder: &str| {
        let location = clips().join("h264-180p8-container.mp4").display().to_string();
        let (pipeline, frames) = pipeline(&format!(
            "filesrc location={location} ! parsebin ! h264parse ! {decoder} ! fakesink name=sink sync=false"
        ));
        pipeline.set_state(gst::State::Paused).unwrap();
        pipeline.state(gst::ClockTime::from_seconds(30)).0.unwrap();
        let mut all = Vec::new();
        for ms in [500, 0, 300] {
            let flags = gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE;
            pipeline.seek_simple(flags, gst::ClockTime::from_mseconds(ms)).unwrap();
            pipeline.state(gst::ClockTime::from_seconds(30)).0.unwrap();
            assert_eq!(play(&pipeline), [""; 0]);
            all.push(compared(taken(&frames)));
            pipeline.set_state(gst::State::Paused).unwrap();
        }
        pipeline.set_state(gst::State::Null).unwrap();
        all
    };
    let (ours, expected) = (seek("framepathdec"), seek("avdec_h264"));
    assert!(expected.iter().all(|frames| frames.len() > 5));
    assert_eq!(ours, expected);
}

/// Makes a harness around the decoder, and the packets of a clip.
fn harness() -> (gst_check::Harness, Vec<gst::Buffer>) {
    init();
    let mut harness = gst_check::Harness::new("framepathdec");
    harness.set_src_caps_str("video/x-vp8,width=99,height=57,framerate=30/1");
    let file = std::fs::read(clips().join("vp8-99x57p8-odd.ivf")).unwrap();
    let (mut at, mut packets) = (32, Vec::new());
    while at + 12 <= file.len() {
        let size = u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
        let mut buffer = gst::Buffer::from_slice(file[at + 12..at + 12 + size].to_vec());
        let time = gst::ClockTime::from_mseconds(packets.len() as u64 * 33);
        buffer.get_mut().unwrap().set_pts(time);
        packets.push(buffer);
        at += 12 + size;
    }
    (harness, packets)
}

fn times(harness: &mut gst_check::Harness) -> Vec<u64> {
    let mut times = Vec::new();
    while let Some(buffer) = harness.try_pull() {
        times.push(buffer.pts().unwrap().mseconds());
    }
    times
}

#[test]
fn a_harness_gets_each_frame_and_the_end() {
    let (mut harness, packets) = harness();
    for (number, packet) in packets.iter().enumerate() {
        harness.push(packet.clone()).unwrap();
        if number == 5 {
            // A gap in the stream, which is passed on behind the frames before it.
            harness.push_event(gst::event::Gap::new(packet.pts().unwrap(), None));
        }
    }
    harness.push_event(gst::event::Eos::new());
    assert_eq!(times(&mut harness), (0..packets.len() as u64).map(|number| number * 33).collect::<Vec<_>>());
}

#[test]
fn a_flush_drops_what_is_inside_and_the_next_keyframe_begins_anew() {
    let (mut harness, packets) = harness();
    for packet in &packets[..4] {
        harness.push(packet.clone()).unwrap();
    }
    harness.push_event(gst::event::FlushStart::new());
    harness.push_event(gst::event::FlushStop::new(true));
    times(&mut harness);
    let segment = gst::FormattedSegment::<gst::ClockTime>::new();
    harness.push_event(gst::event::Segment::new(&segment));
    for packet in &packets {
        harness.push(packet.clone()).unwrap();
    }
    harness.push_event(gst::event::Eos::new());
    let after = times(&mut harness);
    // The frames before the flush that were ready then may have come out before `times` was called.
    assert_eq!(after, (0..packets.len() as u64).map(|number| number * 33).collect::<Vec<_>>());
}

#[test]
fn other_caps_in_the_middle_lose_no_frame() {
    let (mut harness, packets) = harness();
    for packet in &packets {
        harness.push(packet.clone()).unwrap();
    }
    harness.set_src_caps_str("video/x-vp8,width=99,height=57,framerate=25/1");
    for packet in &packets {
        harness.push(packet.clone()).unwrap();
    }
    harness.push_event(gst::event::Eos::new());
    assert_eq!(times(&mut harness).len(), 2 * packets.len());
}

#[test]
fn states_go_up_and_down_without_data() {
    init();
    let decoder = gst::ElementFactory::make("framepathdec").build().unwrap();
    for _ in 0..3 {
        for state in [gst::State::Ready, gst::State::Paused, gst::State::Playing, gst::State::Null] {
            decoder.set_state(state).unwrap();
        }
    }
}

#[test]
fn each_frame_comes_without_a_further_packet() {
    let (mut harness, packets) = harness();
    for packet in packets {
        let time = packet.pts();
        harness.push(packet).unwrap();
        // Waits for it.
        assert_eq!(harness.pull().unwrap().pts(), time);
    }
}

#[test]
fn caps_need_no_size_and_no_rate() {
    let (mut harness, packets) = harness();
    harness.set_src_caps_str("video/x-vp8");
    harness.push(packets[0].clone()).unwrap();
    harness.pull().unwrap();
    let caps = harness.sinkpad().unwrap().current_caps().unwrap();
    assert_eq!(caps.structure(0).unwrap().get::<i32>("width"), Ok(99));
}

#[test]
fn a_live_pipeline_is_told_how_long_pictures_wait_for_others() {
    init();
    // With B pictures, the decoder gives the first picture when it has the packets of two others.
    let (pipeline, frames) = pipeline(
        "videotestsrc is-live=true num-buffers=60 ! video/x-raw,format=I420,width=64,height=48,framerate=100/1 ! \
         x264enc bframes=2 b-adapt=false rc-lookahead=0 sync-lookahead=0 ! h264parse ! framepathdec name=decoder ! fakesink name=sink",
    );
    assert_eq!(play(&pipeline), [""; 0]);
    let decoder = pipeline.by_name("decoder").unwrap().downcast::<gst_video::VideoDecoder>().unwrap();
    let latency = decoder.latency().0;
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(taken(&frames).len(), 60);
    assert!(latency >= gst::ClockTime::from_mseconds(20), "{latency}");
}

#[test]
fn a_gap_between_keyframes_passes_the_frame_before_it() {
    let (mut harness, packets) = harness();
    let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
    segment.set_flags(gst::SegmentFlags::TRICKMODE | gst::SegmentFlags::TRICKMODE_KEY_UNITS);
    harness.push_event(gst::event::Segment::new(&segment));
    for number in 0..3 {
        harness.push(packets[0].clone()).unwrap();
        harness.push_event(gst::event::Gap::new(gst::ClockTime::from_mseconds(40 * (number + 1)), None));
        assert_eq!(times(&mut harness), [0]);
    }
}
