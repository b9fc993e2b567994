// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seek and flush, by the iterator, by a handle and by stages.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use framepath::format::{Layout, PixelFormat};
use framepath::{
    Answered, Frame, FrameMeta, HopFailure, Item, Leaky, Options, Out, Pipeline, Pool, Rational, Request,
    RequestError, RunError, SeekTo, Source, Stage, StageError, StreamInfo,
};
use framepath_testkit::{ffmpeg, within_deadline};

/// Presentation time of a frame in ticks, and the MD5 hash of its pixels.
type Shown = (Option<i64>, String);

/// Number of frames in each clip, which has 25 frames per second.
const FRAMES: usize = 60;

/// Ten targets in milliseconds, each with the number of the first frame that is not before it. They cover
/// the start, times of frames, times between frames, backward seeks, and times after the end.
const TARGETS: [(u64, usize); 10] = [
    (1000, 25),
    (0, 0),
    (1320, 33),
    (1341, 34),
    (2360, 59),
    (90_000, 60),
    (40, 1),
    (19, 1),
    (1999, 50),
    (720, 18),
];

const X264: &str = "-c:v libx264 -preset veryfast -pix_fmt yuv420p -bf 3 -g 12 -sc_threshold 0";

fn clip(folder: &Path, name: &str, encoder: &str) -> String {
    let path = folder.join(name);
    let path = path.to_str().unwrap();
    let source = "testsrc2=size=128x96:rate=25,noise=alls=6:allf=t";
    let frames = FRAMES.to_string();
    let mut words = vec!["-f", "lavfi", "-i", source, "-frames:v", &frames];
    words.extend(encoder.split_whitespace());
    words.push(path);
    ffmpeg(&words);
    path.to_owned()
}

fn shown(frame: &Frame) -> Shown {
    let mut context = md5::Context::new();
    for plane in 0..frame.layout().planes().len() {
        context.consume(frame.plane(plane).to_vec());
    }
    (frame.meta().pts, format!("{:x}", context.finalize()))
}

fn all(text: &str) -> Vec<Shown> {
    let frames = Pipeline::parse(text).unwrap().frames().unwrap();
    frames.map(|frame| shown(&frame.unwrap())).collect()
}

/// Seeks to each target, first with frames inside and then at the end of the stream, and compares the frames
/// with those of a whole decode.
fn check(text: &str) {
    let whole = all(text);
    assert_eq!(whole.len(), FRAMES, "{text}");
    let mut frames = Pipeline::parse(text).unwrap().frames().unwrap();
    for leave_at in [5, usize::MAX] {
        for (milliseconds, first) in TARGETS {
            frames.seek(Duration::from_millis(milliseconds), SeekTo::Exact).unwrap();
            let rest: Vec<_> = frames.by_ref().take(leave_at).map(|frame| shown(&frame.unwrap())).collect();
            let expected: Vec<_> = whole[first..].iter().take(leave_at).cloned().collect();
            assert!(
                rest == expected,
                "{text} to {milliseconds} ms: {:?}, expected {:?}",
                rest.first(),
                expected.first()
            );
        }
    }
    frames.seek(Duration::from_millis(1390), SeekTo::KeyframeBefore).unwrap();
    let rest: Vec<_> = frames.by_ref().map(|frame| shown(&frame.unwrap())).collect();
    assert!(whole.ends_with(&rest) && (FRAMES - 34..=FRAMES).contains(&rest.len()), "{text}: {}", rest.len());
    let report = frames.report().unwrap();
    assert!(report.error.is_none() && report.losses().is_empty() && report.dropped == 0, "{report:?}");
    // Each of ten seeks from the middle of the stream discards the frames inside.
    assert!(report.flushed > 0, "{text}");
    assert!(matches!(frames.seek(Duration::ZERO, SeekTo::Exact), Err(RequestError::Ended)));
}

#[test]
fn ten_seeks_in_each_codec_are_as_a_decode_from_there() {
    within_deadline(|| {
        let folder = tempfile::tempdir().unwrap();
        let x265 = "-c:v libx265 -preset ultrafast -pix_fmt yuv420p -x265-params \
                    log-level=none:bframes=3:b-adapt=0:open-gop=1:scenecut=0:keyint=12";
        for (name, encoder) in [
            ("a.mp4", X264),
            ("a.ts", X264),
            ("a.h264", X264),
            ("b.mkv", x265),
            ("b.hevc", x265),
            ("c.webm", "-c:v libvpx -b:v 300k -g 12 -auto-alt-ref 1 -lag-in-frames 9 -cpu-used 8"),
            ("d.ivf", "-c:v libvpx-vp9 -b:v 300k -g 12 -auto-alt-ref 1 -lag-in-frames 9 -cpu-used 8"),
            ("e.mp4", "-c:v libsvtav1 -preset 12 -g 12 -pix_fmt yuv420p"),
        ] {
            let file = clip(folder.path(), name, encoder);
            check(&format!("file {file} ! decode"));
            check(&format!(
                "file {file} ! queue depth=3 ! decode threads=3 ! queue depth=2 ! threshold ! queue depth=1"
            ));
        }
    });
}

#[test]
fn a_file_starts_and_loops_at_a_time() {
    within_deadline(|| {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.mp4", "a.h264"] {
            let file = clip(folder.path(), name, X264);
            let whole = all(&format!("file {file} ! decode"));
            for (start, first) in [("0s", 0), ("1s", 25), ("1341ms", 34), ("2.36s", 59)] {
                let tail = &whole[first..];
                assert!(all(&format!("file {file} start={start} ! decode")) == tail, "{name} {start}");
                let thrice = all(&format!("file {file} start={start} loop=3 ! decode"));
                assert!(thrice == [tail, tail, tail].concat(), "{name} {start} loop=3");
            }
            // There are no frames at this start, once or with an endless loop.
            for more in ["", "loop=inf"] {
                let frames = Pipeline::parse(&format!("file {file} start=9s {more} ! decode")).unwrap();
                let failed: Vec<_> = frames.frames().unwrap().collect();
                assert!(matches!(failed[..], [Err(_)]), "{name} {more}: {failed:?}");
            }
        }
    });
}

#[test]
fn a_track_that_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = clip(folder.path(), "a.mp4", X264);
    assert_eq!(all(&format!("file {file} track=0 ! decode")).len(), FRAMES);
    let refused = Pipeline::parse(&format!("file {file} track=1 ! decode"));
    let Err(RunError::Stage { error: StageError::Codec(error), .. }) = refused else { panic!("{refused:?}") };
    assert!(matches!(error, framepath::CodecError::NoTrack { track: 1, tracks: 1, .. }), "{error}");
}

/// Runs `pipeline` with a sink that seeks to the time `to` at its frame number `count`, counted from 1.
/// Returns the presentation times of the frames that reached the sink, and the report.
fn times_with_seek(pipeline: Pipeline, count: usize, to: Duration) -> (Vec<i64>, framepath::Report) {
    let requests = pipeline.requests();
    let times = Arc::new(Mutex::new(Vec::new()));
    let seen = times.clone();
    let pipeline = pipeline.sink_fn(move |frame: Frame| {
        let mut seen = seen.lock().unwrap();
        seen.push(frame.meta().pts.unwrap());
        if seen.len() == count {
            requests.seek(to, SeekTo::Exact).unwrap();
        }
    });
    let report = within_deadline(move || pipeline.run(&Options::default())).unwrap();
    let times = times.lock().unwrap().clone();
    (times, report)
}

#[test]
fn no_frame_from_before_a_seek_follows_a_frame_from_after_it() {
    let tails = [
        "",
        " ! queue depth=8",
        " ! queue depth=8 leaky=downstream",
        " ! queue depth=2 leaky=upstream",
        " ! queue depth=8 ! threshold ! queue depth=8 ! threshold ! queue depth=8",
    ];
    for tail in tails {
        // A queue that drops frames does not slow the source down, which must not end before the seek.
        let frames = if tail.contains("leaky") { "frames=2000 rate=4000" } else { "frames=400" };
        let text = format!("test {frames} size=64x48 format=grey{tail}");
        // Backwards, so that the two parts of the stream overlap.
        for to in [0, 2] {
            let pipeline = Pipeline::parse(&text).unwrap();
            let (times, report) = times_with_seek(pipeline, 100, Duration::from_secs(to));
            assert!(report.error.is_none(), "{text}: {report:?}");
            let turns: Vec<_> = times.windows(2).filter(|pair| pair[1] <= pair[0]).collect();
            assert!(turns.len() <= 1, "{text}: {turns:?}");
            if !tail.contains("leaky") {
                let target = 30 * to as i64;
                let expected: Vec<i64> = (0..100).chain(target..400).collect();
                assert!(times == expected, "{text} to {to} s: {} frames, {turns:?}", times.len());
                assert_eq!(report.frames, times.len() as u64);
                assert_eq!(report.dropped, 0);
            }
            if tail.is_empty() {
                assert_eq!(report.flushed, 0);
            }
        }
    }
}

#[test]
fn discarded_frames_of_a_seek_are_counted_in_the_ledger() {
    use framepath::ledger::flag;

    let folder = tempfile::tempdir().unwrap();
    let file = clip(folder.path(), "a.mp4", X264);
    let pipeline = Pipeline::parse(&format!("file {file} ! decode threads=1 ! queue depth=16")).unwrap();
    let requests = pipeline.requests();
    // At the seek the queue is full: 16 frames are in it, one in each thread, and some in the decoder.
    let (full, wait) = channel();
    let mut count = 0;
    let pipeline = pipeline.sink_fn(move |_: Frame| {
        count += 1;
        if count == 1 {
            let _: Result<(), _> = Receiver::recv_timeout(&wait, Duration::from_secs(5));
            requests.seek(Duration::from_secs(90), SeekTo::Exact).unwrap();
        }
    });
    let filled = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        full.send(()).unwrap();
    });
    let report = within_deadline(move || pipeline.run(&Options::default())).unwrap();
    filled.join().unwrap();
    let dropped = report.rows.iter().filter(|row| row.has(flag::DROPPED)).count() as u64;
    // Each frame that the decoder emitted before the seek is counted once.
    assert!((16..=17).contains(&dropped), "{dropped}");
    assert!(report.flushed >= dropped && report.flushed < 30, "{} {dropped}", report.flushed);
    assert_eq!((report.frames, report.dropped, report.losses().len()), (1, 0, 0));
}

/// Source that emits 100,000 grey frames, and records and answers all requests.
struct Asked {
    layout: Layout,
    pool: Pool,
    next: u64,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl Asked {
    fn new(asked: Arc<Mutex<Vec<Request>>>) -> Asked {
        let layout = Layout::packed(PixelFormat::Grey, 64, 48).unwrap();
        Asked { layout, pool: Pool::new(layout.size, 64).unwrap(), next: 0, asked }
    }
}

impl Source for Asked {
    fn info(&self) -> StreamInfo {
        StreamInfo::from_layout(&self.layout, Rational::new(25, 1))
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        let birth_ns = out.birth();
        let mut frame = self.pool.acquire().map_err(|error| out.fail(error))?;
        frame.set_layout(&self.layout).map_err(|error| out.fail(error))?;
        let meta = FrameMeta {
            seq: self.next,
            birth_ns,
            pts: Some(self.next as i64),
            duration: 1,
            ..FrameMeta::default()
        };
        self.next += 1;
        out.push(Item::Frame(frame.freeze(meta)))?;
        Ok(self.next < 100_000)
    }

    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        self.asked.lock().unwrap().push(*request);
        Ok(Answered::Done)
    }
}

/// Stage that passes frames on, sends one request once, and records the requests of other hops.
struct Hop {
    /// Request to send with the next frame; `None` after it was sent.
    asks: Option<Request>,
    /// Request that the stage answers; the stage passes others on.
    answers: Option<Request>,
    /// Requests of other hops, in order.
    asked: Arc<Mutex<Vec<Request>>>,
    /// Number of flushes.
    flushed: Arc<Mutex<u32>>,
}

impl Stage for Hop {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if let Some(request) = self.asks.take() {
            out.request(request).unwrap();
        }
        out.push(item)
    }

    fn flush(&mut self, _: &mut Out<'_>) -> Result<(), HopFailure> {
        *self.flushed.lock().unwrap() += 1;
        Ok(())
    }

    fn request(&mut self, request: &Request) -> Answered {
        self.asked.lock().unwrap().push(*request);
        if self.answers == Some(*request) { Answered::Done } else { Answered::PassOn }
    }
}

#[test]
fn requests_travel_to_the_hop_that_answers_them() {
    let logs: [Arc<Mutex<Vec<Request>>>; 4] = Default::default();
    let flushes: [Arc<Mutex<u32>>; 3] = Default::default();
    let hop = |n: usize, asks, answers| Hop {
        asks,
        answers,
        asked: logs[n + 1].clone(),
        flushed: flushes[n].clone(),
    };
    let rate = Request::BitRate(1_000_000);
    let pipeline = Pipeline::from_source(Asked::new(logs[0].clone()))
        .stage(hop(0, None, Some(rate)))
        .queue(2, Leaky::No)
        .stage(hop(1, Some(Request::Keyframe), Some(Request::Flush)))
        .queue(2, Leaky::No)
        .stage(hop(2, Some(rate), None))
        .sink_fn({
            let logs = logs.clone();
            let mut frames = 0;
            move |_: Frame| {
                frames += 1;
                let arrived = logs[0].lock().unwrap().len() == 2 && logs[1].lock().unwrap().len() == 3;
                if arrived && frames > 10 {
                    std::ops::ControlFlow::Break(())
                } else {
                    std::ops::ControlFlow::Continue(())
                }
            }
        });
    let requests = pipeline.requests();
    requests.send(Request::Flush).unwrap();
    let report = within_deadline(move || pipeline.run(&Options::default())).unwrap();
    assert!(report.error.is_none(), "{report:?}");
    let logs = logs.map(|log| {
        let mut log = log.lock().unwrap().clone();
        log.sort_by_key(|request| format!("{request:?}"));
        log
    });
    // A flush reaches the source, whatever the stages answer. The sender does not get its own request.
    assert_eq!(logs[0], [Request::Flush, Request::Keyframe]);
    assert_eq!(logs[1], [rate, Request::Flush, Request::Keyframe]);
    assert_eq!(logs[2], [rate, Request::Flush]);
    assert_eq!(logs[3], [Request::Flush]);
    assert_eq!(flushes.map(|count| *count.lock().unwrap()), [1, 1, 1]);
    assert_eq!(requests.send(Request::Keyframe), Err(RequestError::Ended));
}

#[test]
fn a_source_that_cannot_seek_goes_on() {
    let pipeline = Pipeline::from_source(Asked::new(Arc::default()));
    let mut frames = pipeline.queue(4, Leaky::No).frames().unwrap();
    let numbers: Vec<_> = frames.by_ref().take(3).map(|frame| frame.unwrap().meta().seq).collect();
    let refused = frames.seek(Duration::from_secs(1), SeekTo::Exact).unwrap_err();
    assert!(
        matches!(&refused, RequestError::CannotSeek { source_hop, .. } if source_hop == "Asked"),
        "{refused}"
    );
    let after: Vec<_> = frames.by_ref().take(3).map(|frame| frame.unwrap().meta().seq).collect();
    assert_eq!((numbers, after), (vec![0, 1, 2], vec![3, 4, 5]));

    // A flush works: no frame arrives twice, and no old frame follows a new frame.
    frames.flush().unwrap();
    let numbers: Vec<_> = frames.by_ref().take(3).map(|frame| frame.unwrap().meta().seq).collect();
    assert!(numbers[0] > 5 && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
}

#[test]
fn a_pipe_cannot_seek() {
    let folder = tempfile::tempdir().unwrap();
    let file = clip(folder.path(), "a.ts", X264);
    let fifo: PathBuf = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let feed = |fifo: PathBuf| {
        let bytes = std::fs::read(&file).unwrap();
        std::thread::spawn(move || std::fs::write(fifo, bytes))
    };
    let feeding = feed(fifo.clone());
    let mut frames = Pipeline::parse(&format!("file {} ! decode", fifo.display())).unwrap().frames().unwrap();
    let refused = frames.seek(Duration::ZERO, SeekTo::Exact);
    assert!(matches!(refused, Err(RequestError::CannotSeek { .. })), "{refused:?}");
    assert_eq!(frames.filter(|frame| frame.is_ok()).count(), FRAMES);
    feeding.join().unwrap().unwrap();
    let feeding = feed(fifo.clone());
    let refused = Pipeline::parse(&format!("file {} start=1s ! decode", fifo.display()));
    let Err(RunError::Stage { error: StageError::Codec(error), .. }) = refused else { panic!("{refused:?}") };
    assert!(matches!(error, framepath::CodecError::CannotSeek { .. }), "{error}");
    // The pipe's reader is gone, so writing the rest may have failed.
    let _ = feeding.join().unwrap();
}

#[test]
fn a_seek_wakes_a_sleeping_source_and_the_threads_behind_it() {
    within_deadline(|| {
        // The second frame is due in a thousand seconds.
        for tail in ["", " ! queue ! threshold ! queue"] {
            let text = format!("test rate=0.001 frames=100000 size=64x48 format=grey{tail}");
            let mut frames = Pipeline::parse(&text).unwrap().frames().unwrap();
            assert_eq!(frames.next().unwrap().unwrap().meta().pts, Some(0));
            for number in [3, 1, 2] {
                let time = Duration::from_secs(1000 * number + 10);
                frames.seek(time, SeekTo::KeyframeBefore).unwrap();
                assert_eq!(frames.next().unwrap().unwrap().meta().pts, Some(number as i64), "{text}");
            }
        }
    });
}

#[test]
fn a_handle_stops_a_run_and_seeks_at_its_end() {
    within_deadline(|| {
        let mut frames = Pipeline::parse("test frames=60 size=64x48 ! queue").unwrap().frames().unwrap();
        let requests = frames.requests();
        assert_eq!(frames.by_ref().count(), 60);
        requests.seek(Duration::from_secs(1), SeekTo::Exact).unwrap();
        assert_eq!(frames.by_ref().count(), 30);
        // The end is reported again, without a frame before it.
        requests.send(Request::Flush).unwrap();
        assert_eq!(frames.by_ref().count(), 0);
        requests.seek(Duration::ZERO, SeekTo::Exact).unwrap();
        assert!(frames.next().is_some());
        requests.send(Request::Stop).unwrap();
        assert!(frames.by_ref().count() < 60);
        assert!(frames.report().is_some_and(|report| report.interrupted));
    });
}
