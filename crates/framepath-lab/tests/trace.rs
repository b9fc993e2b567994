// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath trace` beside independent observers: a program that injects known costs, pictures that show their
//! numbers, framepath's own ledger, and GStreamer's tracer.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use framepath_lab::LabError;
use framepath_lab::experiment::{ExperimentSettings, Size, find};
use framepath_lab::progress::NoProgress;
use framepath_lab::traced::{NumberedClip, OwnReport, TracedProgram, TracedRun, order_of_output, trace};
use framepath_model::ledger::Cause;
use framepath_model::summary::{Summary, SummaryRow};
use framepath_testkit::clips;
use framepath_testkit::harness::{Missing, Tested};

framepath_testkit::tests! {
    compute_is_in_the_stage_that_computes,
    copies_are_in_the_stage_that_copies,
    waits_are_in_the_stage_that_waits,
    waits_in_a_decoders_thread_are_the_frames,
    waits_of_a_consumer_are_not_its_producers_work,
    frames_wait_in_a_full_queue,
    h264_frames_are_identified,
    hevc_frames_are_identified,
    vp9_frames_are_identified,
    av1_frames_are_identified,
    mpeg4_frames_are_identified,
    frames_without_times_are_identified,
    frames_of_the_ffmpeg_tool_are_identified,
    framepaths_own_ledger_agrees,
    gstreamers_tracer_agrees,
}

const FRAMES: u32 = 60;
const H264: [&str; 8] = ["-c:v", "libx264", "-preset", "veryfast", "-bf", "2", "-slices", "2"];

/// Converts what this machine lacks to the reason why a test is ignored; panics at other errors.
fn found<T>(result: Result<T, LabError>) -> Result<T, Missing> {
    match result {
        Ok(value) => Ok(value),
        Err(LabError::Missing(reason)) => Err(Missing::new(reason)),
        Err(error) => panic!("{error}"),
    }
}

/// Returns the program, compiled once, and a folder for its clips.
fn program() -> Result<&'static TracedProgram, Missing> {
    static PROGRAM: OnceLock<Result<TracedProgram, Missing>> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            found(TracedProgram::build_in(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("traced")))
        })
        .as_ref()
        .map_err(Clone::clone)
}

fn clip(name: &str, encoder: &[&str]) -> Result<NumberedClip, Missing> {
    found(NumberedClip::encode(&program()?.file(""), name, FRAMES, encoder))
}

/// Runs the program on `clip`, and checks that the ledger has all its frames.
fn run(options: &str, clip: &NumberedClip) -> Result<TracedRun, Missing> {
    let options: Vec<&str> = options.split(' ').collect();
    let traced = found(program()?.trace(&options, &clip.path))?;
    let stream = traced.stream().unwrap();
    let counts = (traced.trace.lost_events, traced.trace.ambiguous, stream.frames, stream.others);
    assert_eq!(counts, (0, 0, u64::from(FRAMES), 0), "{options:?}");
    Ok(traced)
}

/// Runs the program with these options until `check` is content: one of three runs must be. Another process may take the CPU
/// at a moment that the program's clocks and the ledger count differently; a wrong row is wrong in each run.
fn one_of_three(
    options: &str,
    clip: &NumberedClip,
    check: impl Fn(&TracedRun) -> Result<(), String>,
) -> Tested {
    let mut wrong = Vec::new();
    while wrong.len() < 3 {
        match check(&run(options, clip)?) {
            Ok(()) => return Ok(()),
            Err(reason) => wrong.push(reason),
        }
    }
    panic!("{options}: {wrong:#?}");
}

/// Checks that each frame with an injected cost has it in the row of `stage` and `cause`, nine tenths of it at least, and
/// that there are six such frames.
fn has_costs(traced: &TracedRun, stage: &str, cause: Cause) -> Result<(), String> {
    let stage_index = traced.stage(stage).unwrap();
    let injected = &traced.own.injected;
    assert_eq!(injected.len(), 6, "{injected:?}");
    for cost in injected {
        let rows = traced.rows(cost.pts);
        let attributed = rows[stage_index].causes()[cause].unwrap_or(0.0);
        // The clocks of the observers do not begin at the same instruction.
        if attributed < 0.9 * cost.ns as f64 {
            return Err(format!("{stage} {cause:?}: {attributed} of {cost:?}"));
        }
    }
    Ok(())
}

const ALL_STAGES: &str = "scale=160:96 encoder=mpeg4 format=nut";

fn compute_is_in_the_stage_that_computes() -> Tested {
    let clip = clip("compute.mp4", &H264)?;
    for (place, stage) in [
        ("send", "decode"),
        ("buffer", "decode"),
        ("filter", "filter"),
        ("encode", "encode"),
        ("write", "mux"),
    ] {
        let options = format!("{ALL_STAGES} inject=spin:{place}:3000:10");
        one_of_three(&options, &clip, |traced| has_costs(traced, stage, Cause::Compute))?;
    }
    let options = format!("threads=3 {ALL_STAGES} inject=spin:buffer-early:3000:10");
    one_of_three(&options, &clip, |traced| has_costs(traced, "decode", Cause::Compute))
}

fn copies_are_in_the_stage_that_copies() -> Tested {
    let clip = clip("copies.mp4", &H264)?;
    let options = format!("{ALL_STAGES} inject=copy:encode:10000:10");
    one_of_three(&options, &clip, |traced| {
        let copied = |stage: &str| {
            let hop = traced.stage(stage).unwrap();
            let rows = traced.own.frames.iter().map(|frame| traced.rows(frame.pts)[hop].causes());
            rows.map(|causes| causes[Cause::Copy].expect("copies are sampled")).sum::<f64>()
        };
        let injected: u64 = traced.own.injected.iter().map(|cost| cost.ns).sum();
        let [encode, others] = [copied("encode"), copied("demux") + copied("decode") + copied("mux")];
        // Samples are taken by chance: 60 of the injection's.
        match encode >= 0.6 * injected as f64 && others <= 0.2 * injected as f64 {
            true => Ok(()),
            false => Err(format!("{encode} and {others} of {injected}")),
        }
    })
}

fn waits_are_in_the_stage_that_waits() -> Tested {
    let clip = clip("waits.mp4", &H264)?;
    for (kind, place, stage, cause) in [
        ("sleep", "buffer", "decode", Cause::Paced),
        ("sleep", "filter", "filter", Cause::Paced),
        ("futex", "encode", "encode", Cause::Blocked),
        ("mutex", "filter", "filter", Cause::Blocked),
        ("read", "write", "mux", Cause::Blocked),
        ("fault", "encode", "encode", Cause::Blocked),
    ] {
        let options = format!("{ALL_STAGES} inject={kind}:{place}:3000:10");
        one_of_three(&options, &clip, |traced| has_costs(traced, stage, cause))?;
    }
    Ok(())
}

fn waits_in_a_decoders_thread_are_the_frames() -> Tested {
    let clip = clip("worker.mp4", &H264)?;
    for (kind, place, cause) in [
        ("sleep", "buffer", Cause::Paced),
        ("sleep", "buffer-early", Cause::Paced),
        ("futex", "buffer", Cause::Blocked),
        ("futex", "buffer-early", Cause::Blocked),
    ] {
        let options = format!("threads=3 {ALL_STAGES} inject={kind}:{place}:3000:10");
        one_of_three(&options, &clip, |traced| has_costs(traced, "decode", cause))?;
    }
    Ok(())
}

fn waits_of_a_consumer_are_not_its_producers_work() -> Tested {
    let clip = clip("consumer.mp4", &H264)?;
    for (kind, cause) in [("sleep", Cause::Paced), ("futex", Cause::Blocked), ("read", Cause::Blocked)] {
        let options = format!("queue=8 pace=3000 {ALL_STAGES} inject={kind}:filter:3000:10");
        one_of_three(&options, &clip, |traced| has_costs(traced, "filter", cause))?;
    }
    Ok(())
}

fn frames_wait_in_a_full_queue() -> Tested {
    let clip = clip("queue.mp4", &H264)?;
    for kind in ["sleep", "spin", "read"] {
        let options = format!("queue=4 {ALL_STAGES} inject={kind}:after:3000:1");
        one_of_three(&options, &clip, |traced| {
            let filter = traced.stage("filter").unwrap();
            // All but the first and the last ones find the queue full.
            for frame in &traced.own.frames[8..FRAMES as usize - 8] {
                let queue_ns = traced.rows(frame.pts)[filter].queue_ns;
                // The program's own clock, from before the push to the pop.
                if frame.queued_ns == 0 || queue_ns < frame.queued_ns / 10 * 9 {
                    return Err(format!("{kind}: {queue_ns} of {frame:?}"));
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Returns the number of the packet of each picture, by the picture's number: pictures are in the order of their times.
fn packets_of_pictures(own: &OwnReport) -> Vec<u64> {
    let mut packets: Vec<usize> = (0..own.packets.len()).collect();
    packets.sort_by_key(|packet| own.packets[*packet]);
    packets.into_iter().map(|packet| packet as u64).collect()
}

/// Checks that the order of frames in the ledger is that of the pictures.
fn is_order_of(traced: &TracedRun, packets: &[u64], what: &str) {
    let shown: Vec<u64> = traced.own.frames.iter().map(|frame| packets[frame.number as usize]).collect();
    assert_eq!(shown.len(), FRAMES as usize, "{what}");
    assert_eq!(order_of_output(traced.stream().unwrap()), shown, "{what}");
}

fn are_identified(name: &str, encoder: &[&str]) -> Tested {
    let clip = clip(name, encoder)?;
    for options in
        ["threads=1", "threads=3 type=frame", "threads=3 type=slice", "threads=3 queue=4 scale=160:96"]
    {
        let traced = run(options, &clip)?;
        is_order_of(&traced, &packets_of_pictures(&traced.own), options);
    }
    Ok(())
}

fn h264_frames_are_identified() -> Tested {
    are_identified("h264.mp4", &H264)
}

fn hevc_frames_are_identified() -> Tested {
    are_identified(
        "hevc.mp4",
        &["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "bframes=3:log-level=none"],
    )
}

fn vp9_frames_are_identified() -> Tested {
    let encoder = [
        "-c:v",
        "libvpx-vp9",
        "-deadline",
        "realtime",
        "-cpu-used",
        "8",
        "-auto-alt-ref",
        "1",
        "-lag-in-frames",
        "10",
    ];
    are_identified("vp9.mkv", &encoder)
}

fn av1_frames_are_identified() -> Tested {
    are_identified("av1.mkv", &["-c:v", "libsvtav1", "-preset", "12"])
}

fn mpeg4_frames_are_identified() -> Tested {
    are_identified("mpeg4.mp4", &["-c:v", "mpeg4", "-bf", "2", "-q:v", "3"])
}

fn frames_without_times_are_identified() -> Tested {
    let clip = clip("times.mp4", &H264)?;
    let raw = found(clip.packets_in(&program()?.file(""), "times.h264"))?;
    // The same packets in the same order.
    let packets = packets_of_pictures(&run("threads=1", &clip)?.own);
    for options in ["threads=1", "threads=3 type=frame", "threads=3 type=slice"] {
        is_order_of(&run(options, &raw)?, &packets, options);
    }
    Ok(())
}

fn frames_of_the_ffmpeg_tool_are_identified() -> Tested {
    let clip = clip("tool.mp4", &H264)?;
    let packets = packets_of_pictures(&run("threads=1", &clip)?.own);
    for threads in ["1", "3"] {
        let output = program()?.file(&format!("tool-{threads}.yuv"));
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-v", "error", "-y", "-threads", threads, "-i"]).arg(&clip.path);
        command.args(["-f", "rawvideo", "-pix_fmt", "yuv420p"]).arg(&output).stdin(Stdio::null());
        let traced = found(trace(command))?;
        let shown = NumberedClip::numbers_in(&fs::read(&output).unwrap());
        let shown: Vec<u64> = shown.iter().map(|number| packets[*number as usize]).collect();
        assert_eq!(shown.len(), FRAMES as usize);
        assert_eq!(order_of_output(&traced.streams[0]), shown, "threads={threads}");
    }
    Ok(())
}

/// Runs cases of lab `trace` once. Returns the summary, in which no case was skipped.
fn lab(cases: &[&str]) -> Result<Summary, Missing> {
    let own = std::env::current_exe().unwrap();
    let framepath = own.ancestors().nth(2).unwrap().join("framepath");
    if !framepath.is_file() {
        return Err(Missing::new(format!("no {}; cargo build -p framepath-cli", framepath.display())));
    }
    let settings = ExperimentSettings {
        size: Size::Quick,
        pairs: Some(1),
        cases: cases.iter().map(|case| (*case).to_owned()).collect(),
        files: Vec::new(),
        framepath,
        clips: clips(),
        peers: "peers".into(),
    };
    let summary = found(find("trace").unwrap().run(&settings, &NoProgress))?.summary;
    match summary.skipped.first() {
        Some(skipped) => Err(Missing::new(skipped.reason.clone())),
        None => Ok(summary),
    }
}

/// Checks that in one of five runs each row of `cases` with the figure `apart_us` has one of at most 50. Another process may
/// take the CPU between the observers' clocks.
fn one_of_five(cases: &[&str], check: impl Fn(&Summary)) -> Tested {
    let mut wrong = Vec::new();
    while wrong.len() < 5 {
        let summary = lab(cases)?;
        check(&summary);
        let apart =
            |row: &SummaryRow| Some((row.case.clone(), row.contender.clone(), *row.extra.get("apart_us")?));
        let far: Vec<String> = (summary.rows.iter().filter_map(apart))
            .filter(|(.., us)| us.abs() > 50.0)
            .map(|row| format!("{row:?}"))
            .collect();
        if far.is_empty() {
            return Ok(());
        }
        wrong.push(far);
    }
    panic!("{cases:?}: {wrong:#?}");
}

fn framepaths_own_ledger_agrees() -> Tested {
    // Small pictures: in a build without optimization, framepath takes 90 µs between its call and its stamp for a large one.
    let cases = ["ledger-hevc-threads1", "ledger-hevc-frames", "ledger-vp8-threads1"];
    one_of_five(&cases, |summary| {
        for case in cases {
            let [trace, ledger] = ["trace", "ledger"].map(|observer| summary.row(case, observer).unwrap());
            assert_eq!((trace.frames, ledger.frames), (30, 30), "{case}");
            for row in [trace, ledger] {
                assert_eq!(row.extra["decode_frames"], 30.0, "{case}");
                assert!(row.hops.iter().any(|hop| hop.hop.starts_with("decode ")), "{case}: {row:?}");
            }
            assert!(trace.extra.contains_key("apart_us"), "{case}");
        }
    })
}

fn gstreamers_tracer_agrees() -> Tested {
    let wanted: [(&str, &[&str]); 3] = [
        ("gst-rtp", &["jpegenc0", "rtpjpegpay0", "queue0", "rtpjpegdepay0", "jpegdec0"]),
        ("gst-convert", &["videoconvert0", "queue0", "videoscale0", "videoconvert1", "jpegenc0"]),
        ("gst-live", &["queue0", "videobalance0"]),
    ];
    one_of_five(&wanted.map(|(case, _)| case), |summary| {
        for (case, elements) in wanted {
            for element in elements {
                for observer in ["trace", "tracer"] {
                    let name = format!("{observer} {element}");
                    let row = summary.row(case, &name).unwrap_or_else(|| panic!("{case} has no {name}"));
                    assert_eq!(row.frames, 150, "{case} {name}");
                    assert!(row.latency_us.is_some(), "{case} {name}");
                }
            }
        }
    })
}
