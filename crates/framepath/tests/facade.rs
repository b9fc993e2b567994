// SPDX-License-Identifier: MIT OR Apache-2.0
//! Uses of a pipeline by a program: take its frames, add parts of its own, stop it,
//! and get its errors.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use framepath::{
    CopyPool, Frame, HopFailure, Item, Leaky, Level, Options, Out, Pipeline, RunError, Stage, StageError,
    Stop, StreamInfo,
};

const GREY: &str = "test frames=20 size=64x48 format=grey";

/// Stage that passes frames on, and fails at the frame with this number.
struct FailsAt(u64);

impl Stage for FailsAt {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if item.meta().seq == self.0 {
            return Err(out.fail(StageError::Other(io::Error::other("the reason").into())));
        }
        out.push(item)
    }
}

/// Stage that inverts the first plane, with a pool for frames that others still read.
#[derive(Default)]
struct Invert(CopyPool);

impl Stage for Invert {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = item.into_frame().map_err(|error| out.fail(error))?;
        let meta = frame.meta();
        let mut frame = self.0.writable(frame).map_err(|error| out.fail(error))?;
        frame.plane_mut(0).iter_mut().for_each(|pixel| *pixel = !*pixel);
        out.push(Item::Frame(frame.freeze(meta)))
    }
}

fn numbers(frames: impl Iterator<Item = Result<Frame, RunError>>) -> Vec<u64> {
    frames.map(|frame| frame.unwrap().meta().seq).collect()
}

#[test]
fn frames_come_in_order_and_end() {
    let mut frames = Pipeline::parse(GREY).unwrap().frames().unwrap();
    assert!(frames.report().is_none());
    assert_eq!(numbers(frames.by_ref()), (0..20).collect::<Vec<_>>());
    assert!(frames.next().is_none() && frames.next().is_none());
    assert_eq!(frames.report().unwrap().frames, 20);
}

#[test]
fn frames_that_have_ended_stop_no_run_that_shares_their_stop() {
    let stop = Stop::new();
    let frames = |options| Pipeline::parse(GREY).unwrap().frames_with(options).unwrap();
    assert_eq!(frames(Options { stop: stop.clone(), ..Options::default() }).count(), 20);
    assert!(!stop.is_requested());
    drop(frames(Options { stop: stop.clone(), ..Options::default() }));
    assert!(stop.is_requested());
}

#[test]
fn frames_of_a_file_are_those_of_the_decoder() {
    let clip = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clips/vp9-180p8.ivf");
    for decode in ["decode", "decode threads=1", "decode ! queue depth=2"] {
        let frames = Pipeline::parse(&format!("file {clip} ! {decode}")).unwrap().frames().unwrap();
        let times: Vec<i64> = frames.map(|frame| frame.unwrap().meta().pts.unwrap()).collect();
        assert_eq!(times.len(), 30, "{decode}");
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{decode}: {times:?}");
    }
}

#[test]
fn a_program_may_keep_four_frames() {
    let clip = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clips/h264-180p8-high.h264");
    for source in [GREY, &format!("file {clip} ! decode"), &format!("file {clip} ! decode threads=1")] {
        let mut kept = std::collections::VecDeque::new();
        for frame in Pipeline::parse(source).unwrap().frames().unwrap() {
            kept.push_back(frame.unwrap());
            if kept.len() > 4 {
                kept.pop_front();
            }
        }
        assert_eq!(kept.len(), 4);
    }
}

#[test]
fn an_error_comes_once_behind_the_frames_before_it() {
    let mut frames = Pipeline::parse(GREY).unwrap().stage(FailsAt(5)).frames().unwrap();
    assert_eq!(numbers(frames.by_ref().take(5)), [0, 1, 2, 3, 4]);
    match frames.next() {
        Some(Err(RunError::Stage { hop, error: StageError::Other(error) })) => {
            assert_eq!((hop.as_str(), error.to_string().as_str()), ("FailsAt", "the reason"));
        }
        other => panic!("{other:?}"),
    }
    assert!(frames.next().is_none());
}

#[test]
fn packets_are_no_frames() {
    let clip = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clips/vp9-180p8.ivf");
    let mut frames = Pipeline::parse(&format!("file {clip}")).unwrap().frames().unwrap();
    let Some(Err(RunError::Stage { error: StageError::WrongInput { .. }, .. })) = frames.next() else {
        panic!("packets arrived as frames");
    };
}

#[test]
fn dropping_the_frames_early_ends_the_threads() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let mut counts = Vec::new();
    for round in 0..50 {
        let mut frames = Pipeline::parse("test frames=0 size=64x48 ! queue").unwrap().frames().unwrap();
        assert!(frames.by_ref().take(round % 5).all(|frame| frame.is_ok()));
        drop(frames);
        counts.push(threads());
    }
    // Other tests of this program run at the same time, so only growth counts.
    let least = |counts: &[usize]| *counts.iter().min().unwrap();
    assert!(least(&counts[40..]) < least(&counts[..10]) + 10, "{counts:?}");
}

#[test]
fn dropping_the_frames_ends_a_read_of_a_silent_fifo() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("video");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let clip = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../clips/vp9-180p8.ivf")).unwrap();
    let writer = std::thread::spawn({
        let fifo = fifo.clone();
        move || {
            let mut writer = std::fs::File::create(fifo).unwrap();
            // The reader may be gone before it has read all.
            let _ = io::Write::write_all(&mut writer, &clip[..clip.len() * 3 / 4]);
            writer
        }
    });
    let text = format!("file {} ! decode threads=1", fifo.display());
    let mut frames = Pipeline::parse(&text).unwrap().frames().unwrap();
    assert_eq!(numbers(frames.by_ref().take(10)).len(), 10);
    drop(frames);
    // Only now the file ends.
    drop(writer.join().unwrap());
}

#[test]
fn a_sink_may_be_a_function_that_has_enough_or_fails() {
    let run = |pipeline: Pipeline| pipeline.run(&Options::default()).unwrap();
    let (sender, taken) = mpsc::channel();
    let count = sender.clone();
    let report =
        run(Pipeline::parse(GREY).unwrap().sink_fn(move |frame| count.send(frame.meta().seq).unwrap()));
    assert_eq!((report.frames, taken.try_iter().count()), (20, 20));

    for queued in ["", " ! queue depth=2"] {
        let count = sender.clone();
        let pipeline = Pipeline::parse(&format!("{GREY}{queued}")).unwrap().sink_fn(move |frame| {
            count.send(frame.meta().seq).unwrap();
            if frame.meta().seq == 6 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let report = run(pipeline);
        assert!(report.error.is_none(), "{:?}", report.error);
        assert_eq!((report.frames, taken.try_iter().last()), (7, Some(6)));
    }

    let report = run(Pipeline::parse(GREY).unwrap().sink_fn(|frame| match frame.meta().seq {
        3 => Err(io::Error::other("no room")),
        _ => Ok(()),
    }));
    assert_eq!(report.frames, 3);
    let error = report.error.unwrap();
    assert!(matches!(&error, RunError::Stage { error: StageError::Other(_), .. }), "{error:?}");
    assert!(error.to_string().contains("no room"), "{error}");
}

#[test]
fn a_run_may_be_limited_to_so_many_frames_and_its_output_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.y4m");
    for queued in ["", " ! queue depth=4"] {
        let text = format!("{GREY}{queued} ! y4m {}", file.display());
        let options = Options { frames: Some(7), ..Options::default() };
        let report = Pipeline::parse(&text).unwrap().run(&options).unwrap();
        assert!(report.error.is_none() && !report.interrupted, "{:?}", report.error);
        assert_eq!(report.frames, 7);
        let bytes = std::fs::read(&file).unwrap();
        let head = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert_eq!(bytes.len() - head, 7 * (64 * 48 + "FRAME\n".len()), "{queued}");
    }
}

#[test]
fn a_stop_ends_its_own_run_alone() {
    let stop = Stop::new();
    let options = Options { stop: stop.clone(), ..Options::default() };
    let progress = options.progress.clone();
    let endless = std::thread::spawn(move || {
        Pipeline::parse("test frames=0 rate=0.01 size=64x48 ! queue ! null").unwrap().run(&options).unwrap()
    });
    // Its second frame is due in 100 seconds: the source sleeps now, or soon.
    while progress.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    let other = Pipeline::parse(GREY).unwrap().frames().unwrap();
    stop.stop();
    let report = endless.join().unwrap();
    assert!(report.interrupted && report.error.is_none(), "{:?}", report.error);
    assert_eq!((report.frames, other.count()), (1, 20));
}

#[test]
fn hops_behind_a_sink_and_pipelines_without_one_are_errors() {
    let behind = Pipeline::parse("test ! null").unwrap().stage(Invert::default());
    match behind.run(&Options::default()) {
        Err(RunError::BehindSink { hop, sink }) => {
            assert_eq!((hop.as_str(), sink.as_str()), ("Invert", "null"))
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(Pipeline::parse("test ! null").unwrap().frames(), Err(RunError::BehindSink { .. })));
    let queued = Pipeline::parse("test ! null").unwrap().queue(1, Leaky::No);
    assert!(matches!(queued.run(&Options::default()), Err(RunError::BehindSink { .. })));
    let open = Pipeline::parse("test ! threshold").unwrap();
    assert!(matches!(open.run(&Options::default()), Err(RunError::NoSink { last }) if last == "threshold"));
    let error = Pipeline::parse("test ! kueue ! null").unwrap_err();
    assert!(matches!(&error, RunError::Path(error) if error.span == (7..12)), "{error:?}");
    assert!(error.to_string().contains("queue"), "{error}");
}

#[test]
fn own_stages_work_between_parts_of_a_path_and_their_copies_are_counted() {
    let clip = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clips/vp9-180p8.ivf");
    let luma = |pipeline: Pipeline| -> Vec<Vec<u8>> {
        pipeline.frames().unwrap().map(|frame| frame.unwrap().row(0, 10).to_vec()).collect()
    };
    let decoded = || Pipeline::parse(&format!("file {clip} ! decode")).unwrap();
    let plain = luma(decoded());
    let inverted = luma(decoded().stage(Invert::default()).append("queue depth=2").unwrap());
    assert_eq!(plain.len(), 30);
    for (plain, inverted) in plain.iter().zip(&inverted) {
        assert!(plain.iter().zip(inverted).all(|(a, b)| *a == !*b));
    }

    let options = Options { level: Level::Times, ..Options::default() };
    let pipeline = Pipeline::parse(GREY).unwrap().sink_fn(|frame| drop(frame.plane(0).to_vec()));
    let report = pipeline.run(&options).unwrap();
    assert_eq!(report.copied_bytes, 20 * 64 * 48);
}
