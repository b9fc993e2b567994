// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths with branches: every frame reaches every sink, branches do not disturb each other,
//! and the ledger follows each branch.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use framepath::ledger::{Row, flag};
use framepath::{
    Answered, Frame, HopFailure, Item, Leaky, Level, Options, Out, Pipeline, Report, Request, RunError,
    SeekTo, Stage, StageError, StreamInfo, export,
};
use framepath_testkit::pipeline::{at, run};
use framepath_testkit::{clip, md5_lines};

/// Returns the text of each sink and its number of frames, in path order.
fn by_sink(report: &Report) -> Vec<(&str, u64)> {
    report.sinks.iter().map(|sink| (report.hops[usize::from(sink.hop)].text.as_str(), sink.frames)).collect()
}

fn lines_of(file: &Path) -> Vec<String> {
    md5_lines(&fs::read_to_string(file).unwrap())
}

#[test]
fn every_branch_gets_every_frame_and_none_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [alone, a, b, c] = ["alone", "a", "b", "c"].map(file);
    let source = format!("file {} ! decode", clip("vp9-180p8.ivf"));
    run(&format!("{source} ! framemd5 {alone}"), &Options::default());
    let text = format!(
        "{source} ! tee ( queue depth=2 ! framemd5 {a} ) ( queue ! tee ( queue ! null ) ( framemd5 {b} ) ) \
         ( framemd5 {c} )"
    );
    let report = run(&text, &Options::default());
    assert!(report.error.is_none(), "{:?}", report.error);
    assert_eq!((report.copied_bytes, report.dropped), (0, 0));
    assert_eq!(report.sinks.iter().map(|sink| sink.frames).collect::<Vec<_>>(), [report.frames; 4]);
    let expected = lines_of(Path::new(&alone));
    assert_eq!(expected.len() as u64, report.frames);
    for file in [a, b, c] {
        assert_eq!(lines_of(Path::new(&file)), expected, "{file}");
    }
}

#[test]
fn packets_go_into_branches_with_a_decoder_each() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [a, b] = ["a", "b"].map(file);
    let text = format!(
        "file {} ! tee ( queue ! decode threads=1 ! framemd5 {a} ) ( decode ! queue ! framemd5 {b} )",
        clip("h264-180p8-high.h264")
    );
    let report = run(&text, &Options::default());
    assert!(report.error.is_none() && report.frames > 0, "{:?}", report.error);
    assert_eq!(lines_of(Path::new(&a)), lines_of(Path::new(&b)));
}

#[test]
fn a_leaky_branch_drops_for_itself_alone() {
    let text =
        "test frames=60 size=64x48 ! tee ( queue depth=1 leaky=downstream ! burn time=3ms ! null ) ( null )";
    let mut report = run(text, &Options::default());
    let [(_, slow), (_, fast)] = by_sink(&report)[..] else { panic!("{report:?}") };
    assert_eq!((fast, slow + report.dropped), (60, 60));
    assert!(report.dropped > 0);
    let digest = report.digest();
    assert_eq!((digest.hops[2].dropped, digest.hops[2].frames), (report.dropped, slow));
    assert_eq!(report.frames, 60);
}

#[test]
fn a_branch_that_waits_lets_the_others_wait() {
    let text = "test frames=20 size=64x48 ! tee ( queue depth=1 ! burn time=1ms ! null ) ( null )";
    let report = run(text, &Options::default());
    assert_eq!((report.dropped, report.frames), (0, 20));
    assert!(by_sink(&report).iter().all(|(_, frames)| *frames == 20));
    // The wait is in the tee's row, which belongs to the frames that waited.
    let waited: u64 = report.rows.iter().filter(|row| row.hop == 1).map(|row| row.blocked_ns).sum();
    assert!(waited > 0);
}

/// Sink that fails from the frame with this number on.
struct FailsAt(u64);

impl Stage for FailsAt {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        match item.meta().seq < self.0 {
            true => Ok(()),
            false => Err(out.fail(StageError::Other("the disk is full".into()))),
        }
    }
}

#[test]
fn a_branch_that_fails_leaves_the_others_running_and_the_run_failed() {
    let source = || Pipeline::parse("test frames=50 size=64x48").unwrap();
    let side_fails = source().branch(2, Leaky::No, |side| Ok(side.sink(FailsAt(3)).named("disk"))).unwrap();
    let side_fails = side_fails.append("null").unwrap();
    let main_fails = source().branch(2, Leaky::No, |side| side.append("null")).unwrap();
    let main_fails = main_fails.sink(FailsAt(3)).named("disk");
    let behind_queue = source().branch(2, Leaky::No, |side| side.append("null")).unwrap();
    let behind_queue = behind_queue.queue(2, Leaky::No).sink(FailsAt(3)).named("disk");
    for pipeline in [side_fails, main_fails, behind_queue] {
        let report = pipeline.run(&Options::default()).unwrap();
        let mut sinks = by_sink(&report);
        sinks.sort_unstable();
        assert_eq!(sinks, [("disk", 3), ("null", 50)]);
        let error = report.error.map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("disk") && error.contains("the disk is full"), "{error}");
    }
}

#[test]
fn a_run_ends_when_all_branches_have_ended() {
    // The source has no end, so the run ends only because both sinks have ended.
    let source = || Pipeline::parse("test frames=0 size=64x48").unwrap();
    let breaks_at = |count: u64| {
        let mut taken = 0;
        move |_: Frame| {
            taken += 1;
            if taken == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    };
    for (side_wants, main_wants) in [(3, 30), (30, 3)] {
        let pipeline = source().branch(2, Leaky::No, |side| Ok(side.sink_fn(breaks_at(side_wants)))).unwrap();
        let report = pipeline.sink_fn(breaks_at(main_wants)).run(&Options::default()).unwrap();
        assert!(report.error.is_none(), "{:?}", report.error);
        assert_eq!(report.sinks.iter().map(|sink| sink.frames).collect::<Vec<_>>(), [side_wants, main_wants]);
        assert_eq!(report.frames, 30);
    }
    let options = Options { frames: Some(7), ..Options::default() };
    let report = run("test frames=0 size=64x48 ! tee ( queue ! null ) ( queue ! null )", &options);
    assert_eq!(by_sink(&report), [("null", 7), ("null", 7)]);
}

#[test]
fn rows_tile_the_path_to_each_sink() {
    let text = "test frames=30 size=64x48 ! copy bytes=100 ! tee ( queue ! copy bytes=50 ! null ) \
                ( queue ! null ) ( null )";
    for level in [Level::Times, Level::Full] {
        let mut report = run(text, &at(level));
        let texts: Vec<&str> = report.hops.iter().map(|hop| hop.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "test size=64x48 frames=30",
                "copy bytes=100",
                "tee",
                "queue",
                "copy bytes=50",
                "null",
                "tee",
                "queue",
                "null",
                "null"
            ]
        );
        let hops = report.hop_tree();
        assert_eq!(hops.leaves(), [5, 8, 9]);
        for end in hops.leaves() {
            let way = hops.way_to(end);
            let mut rows: Vec<Row> =
                report.rows.iter().filter(|row| way[usize::from(row.hop)]).copied().collect();
            rows.sort_unstable_by_key(|row| (row.seq, row.hop));
            let frames: Vec<&[Row]> = rows.chunk_by(|a, b| a.seq == b.seq).collect();
            assert_eq!(frames.len(), 30);
            for frame in frames {
                assert_eq!(frame.len(), way.iter().filter(|on_way| **on_way).count());
                assert!(frame.windows(2).all(|pair| pair[1].enter_ns == pair[0].leave_ns), "{frame:?}");
                assert!(frame[frame.len() - 1].has(flag::LAST));
            }
            let digest = report.digest_of(end);
            assert_eq!((digest.frames, digest.totals.len()), (30, 30));
            assert_eq!(digest.copied_bytes, if end == 5 { 150.0 } else { 100.0 });
        }
        assert_eq!(
            report.path(),
            "test size=64x48 frames=30 ! copy bytes=100 ! tee ( queue ! copy bytes=50 ! null ) ( tee ( queue ! null ) ( null ) )"
        );
        let summary = export::summary::summary(&mut report, "three");
        let rows: Vec<_> = summary.rows.iter().map(|row| (row.contender.as_str(), row.frames)).collect();
        let names = ["path to null (hop 5)", "path to null (hop 8)", "path to null (hop 9)"];
        assert_eq!(rows, names.map(|name| (name, 30)));
        let text = export::text::summary(&mut report);
        assert!(text.contains("\nframes: 30 to null, 30 to null, 30 to null\n"), "{text}");
    }
}

#[test]
fn torn_frames_are_left_out_for_each_sink() {
    let options = Options { rows: 64, ..at(Level::Times) };
    let mut report = run("test frames=100 size=64x48 ! tee ( queue ! null ) ( null )", &options);
    assert!(report.overwritten > 0);
    for end in [3, 4] {
        let digest = report.digest_of(end);
        assert!((1..=64).contains(&digest.frames), "{}", digest.frames);
        assert_eq!(digest.totals.last().map(|total| total.seq), Some(99));
    }
}

#[test]
fn a_seek_flushes_every_branch() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let recorded = seen.clone();
    let record = move |frame: Frame| recorded.lock().unwrap().push(frame.meta().pts.unwrap());
    let pipeline = Pipeline::parse("test frames=90 size=64x48").unwrap();
    let pipeline = pipeline.branch(3, Leaky::No, |side| Ok(side.sink_fn(record))).unwrap();
    let mut frames = pipeline.queue(3, Leaky::No).frames().unwrap();
    assert_eq!(frames.next().unwrap().unwrap().meta().pts, Some(0));
    frames.seek(Duration::from_secs(2), SeekTo::Exact).unwrap();
    let rest: Vec<i64> = frames.by_ref().map(|frame| frame.unwrap().meta().pts.unwrap()).collect();
    assert_eq!(rest, (60..90).collect::<Vec<i64>>());
    drop(frames);
    let seen = seen.lock().unwrap();
    // The branch gets some of the frames before the seek, and then all frames after it.
    let at = seen.iter().position(|pts| *pts == 60).unwrap();
    assert_eq!(seen[at..], (60..90).collect::<Vec<i64>>());
    assert!(seen[..at].iter().copied().eq(0..at as i64), "{seen:?}");
}

#[test]
fn a_seek_works_after_the_end_of_a_branch() {
    let pipeline = Pipeline::parse("test frames=90 size=64x48").unwrap();
    let mut taken = 0;
    let ends = move |_: Frame| {
        taken += 1;
        if taken == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let pipeline = pipeline.branch(2, Leaky::No, |side| Ok(side.sink_fn(ends))).unwrap();
    let mut frames = pipeline.frames().unwrap();
    assert_eq!(frames.by_ref().take(20).map(Result::unwrap).count(), 20);
    frames.seek(Duration::from_secs(2), SeekTo::Exact).unwrap();
    assert_eq!(frames.by_ref().map(Result::unwrap).count(), 30);
    assert_eq!(frames.report().unwrap().sinks[0].frames, 2);

    // The reverse: the part behind the tee in the tee's thread ends.
    let seen = Arc::new(AtomicU64::new(0));
    let (count, requests_sent) = (seen.clone(), Arc::new(AtomicU64::new(0)));
    let pipeline = Pipeline::parse("test frames=90 size=64x48").unwrap();
    let requests = pipeline.requests();
    let seek_once = move |_: Frame| {
        count.fetch_add(1, Ordering::Relaxed);
        if requests_sent.fetch_add(1, Ordering::Relaxed) == 20 {
            requests.seek(Duration::from_secs(2), SeekTo::Exact).unwrap();
        }
    };
    let pipeline = pipeline.branch(1, Leaky::No, |side| Ok(side.sink_fn(seek_once))).unwrap();
    let report = pipeline.sink_fn(|_| ControlFlow::Break(())).run(&Options::default()).unwrap();
    assert!(report.error.is_none(), "{:?}", report.error);
    assert_eq!(report.sinks[1].frames, 1);
    assert_eq!(report.sinks[0].frames, 21 + 30);
}

/// Stage that counts requests for a keyframe in the counter, and answers each with the given answer.
struct Asked(Arc<AtomicU64>, Answered);

impl Stage for Asked {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        out.push(item)
    }

    fn request(&mut self, request: &Request) -> Answered {
        if *request == Request::Keyframe {
            self.0.fetch_add(1, Ordering::Relaxed);
            return self.1;
        }
        Answered::PassOn
    }
}

#[test]
fn a_request_reaches_the_hops_in_front_and_no_other_branch() {
    let counts: Vec<Arc<AtomicU64>> = (0..3).map(|_| Arc::default()).collect();
    let [front, side, main] = [0, 1, 2].map(|at: usize| counts[at].clone());
    // Sends a request with frame 5, and takes no more items once all hops have got it.
    let all_asked = |counts: &[Arc<AtomicU64>]| counts.iter().all(|count| count.load(Ordering::Relaxed) > 0);
    let pipeline = |frames: u64, from: Option<&'static str>| {
        let sink = |here: &'static str| {
            let counts = counts.clone();
            Each(move |item: Item, out: &mut Out<'_>| {
                if from == Some(here) && item.meta().seq == 5 {
                    out.request(Request::Keyframe).unwrap();
                }
                if all_asked(&counts) { Err(out.enough()) } else { Ok(()) }
            })
        };
        Pipeline::parse(&format!("test frames={frames} size=64x48"))
            .unwrap()
            .stage(Asked(front.clone(), Answered::PassOn))
            .branch(2, Leaky::No, |branch| {
                Ok(branch.stage(Asked(side.clone(), Answered::PassOn)).sink(sink("side")))
            })
            .unwrap()
            .stage(Asked(main.clone(), Answered::PassOn))
            .queue(2, Leaky::No)
            .sink(sink("main"))
    };
    let taken = || counts.iter().map(|count| count.swap(0, Ordering::Relaxed)).collect::<Vec<_>>();
    pipeline(50, Some("side")).run(&Options::default()).unwrap();
    assert_eq!(taken(), [1, 1, 0]);
    pipeline(50, Some("main")).run(&Options::default()).unwrap();
    assert_eq!(taken(), [1, 0, 1]);
    // A request from outside arrives through every branch, and each hop gets it once.
    let from_outside = pipeline(1_000_000, None);
    from_outside.requests().send(Request::Keyframe).unwrap();
    assert!(from_outside.run(&Options::default()).unwrap().frames < 1_000_000);
    assert_eq!(taken(), [1, 1, 1]);
}

/// A sink made of a function of the item and the output.
struct Each<F>(F);

impl<F: FnMut(Item, &mut Out<'_>) -> Result<(), HopFailure> + Send> Stage for Each<F> {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        (self.0)(item, out)
    }
}

#[test]
fn a_branch_needs_a_sink_and_no_hop_follows_it() {
    let source = || Pipeline::parse("test frames=1").unwrap();
    let open = source().branch(1, Leaky::No, |side| side.append("threshold"));
    assert!(matches!(open, Err(RunError::NoSink { last }) if last.starts_with("threshold")));
    let no_main = source().branch(1, Leaky::No, |side| side.append("null")).unwrap();
    assert!(matches!(no_main.run(&Options::default()), Err(RunError::NoSink { .. })));
    let late = source().branch(1, Leaky::No, |side| side.append("null ! queue"));
    assert!(late.is_err());
    let behind = source().append("null").unwrap().branch(1, Leaky::No, |side| side.append("null")).unwrap();
    assert!(matches!(behind.run(&Options::default()), Err(RunError::BehindSink { .. })));
}

#[test]
fn the_program_gets_the_frames_of_the_last_branch() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.md5");
    let text =
        format!("test frames=12 size=64x48 ! tee ( queue ! framemd5 {} ) ( threshold )", file.display());
    let pipeline = Pipeline::parse(&text).unwrap();
    assert_eq!(pipeline.frames().unwrap().map(Result::unwrap).count(), 12);
    assert_eq!(lines_of(&file).len(), 12);
    // An early drop does not hang, although the branch keeps its frames.
    let mut frames = Pipeline::parse(&text.replace("frames=12", "frames=0")).unwrap().frames().unwrap();
    assert!(frames.next().unwrap().is_ok());
}
