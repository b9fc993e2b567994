// SPDX-License-Identifier: MIT OR Apache-2.0
//! `encode host=process`: the packets are those of an encoder in this process, also while workers die.

use std::sync::{Arc, Mutex};

use framepath::host::WorkerStats;
use framepath::ledger::flag;
use framepath::{
    HopFailure, Item, Level, Options, Out, Pipeline, Report, Request, SeekTo, Stage, StageError, StreamInfo,
};
use framepath_testkit::{clip, ffprobe};

const CODECS: [&str; 5] = ["h264", "hevc", "vp8", "vp9", "av1"];

const TEST: &str = "test frames=60 size=160x96 format=yuv420p";

/// A packet: number, time, key flag, true if it has the description of the track, and the bytes.
type PacketRecord = (u64, Option<i64>, bool, bool, Vec<u8>);

/// Event that a sink causes when a packet arrives.
#[derive(Clone)]
enum Event {
    Request(Request),
    /// Kills the present worker of a stream.
    Kill(Arc<WorkerStats>),
}

/// Returns the event that the arrival of a packet causes.
type Events = Box<dyn FnMut(&PacketRecord) -> Option<Event> + Send>;

/// Sink that keeps a record of each packet, and causes events when packets arrive.
struct RecordingSink {
    events: Events,
    records: Arc<Mutex<Vec<PacketRecord>>>,
}

impl Stage for RecordingSink {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let packet = item.into_packet().map_err(|error| out.fail(error))?;
        let meta = packet.meta();
        let bytes = packet.bytes().unwrap().to_vec();
        let record = (meta.seq, meta.pts, packet.is_key(), packet.track().is_some(), bytes);
        let event = (self.events)(&record);
        self.records.lock().unwrap().push(record);
        match event {
            Some(Event::Request(request)) => out.request(request).unwrap(),
            Some(Event::Kill(stats)) => _ = stats.recoveries.kill_present(),
            None => {}
        }
        Ok(())
    }
}

/// Runs `text`, which ends in an encoder, with `events` of the sink, and returns the packets and the report.
fn encoded_with(text: &str, events: impl FnOnce(&Pipeline) -> Events) -> (Vec<PacketRecord>, Report) {
    framepath::host::set_worker_program(env!("CARGO_BIN_EXE_framepath"));
    framepath::silence_ffmpeg();
    let pipeline = Pipeline::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let records = Arc::default();
    let sink = RecordingSink { events: events(&pipeline), records: Arc::clone(&records) };
    let options = Options { level: Level::Full, ..Options::default() };
    let report = pipeline.sink(sink).run(&options).unwrap();
    assert!(report.error.is_none(), "{text}: {:?}", report.error);
    let records = std::mem::take(&mut *records.lock().unwrap());
    (records, report)
}

fn encoded(text: &str) -> Vec<PacketRecord> {
    encoded_with(text, |_| at(vec![])).0
}

/// Returns events, each caused by the packet with this number.
fn at(events: Vec<(u64, Event)>) -> Events {
    Box::new(move |record| events.iter().find(|(at, _)| *at == record.0).map(|(_, event)| event.clone()))
}

fn numbers(records: &[PacketRecord]) -> Vec<u64> {
    records.iter().map(|record| record.0).collect()
}

fn keys(records: &[PacketRecord]) -> Vec<u64> {
    records.iter().filter(|record| record.2).map(|record| record.0).collect()
}

#[test]
fn packets_are_those_of_an_encoder_in_this_process() {
    for codec in CODECS {
        // With several threads, x264 shares the bits of a bit rate by the threads' progress.
        for options in ["threads=1 bitrate=800k gop=16", "threads=3"] {
            let text = format!("{TEST} ! encode {codec} {options}");
            let (mut inline, mut worker) = (encoded(&text), encoded(&format!("{text} host=process")));
            assert_eq!(numbers(&worker), (0..60).collect::<Vec<_>>(), "{codec}");
            if codec == "vp8" {
                // libvpx chooses its speed by the time that earlier pictures took.
                inline.iter_mut().chain(&mut worker).for_each(|record| record.4.clear());
            }
            assert!(worker == inline, "{codec} {options}: {:?} {:?}", keys(&worker), keys(&inline));
        }
    }
}

#[test]
fn frames_of_a_worker_are_encoded_in_a_worker() {
    let source = format!("file {} ! decode", clip("vp9-180p10.ivf"));
    for codec in ["h264 threads=1", "hevc threads=2"] {
        let inline = encoded(&format!("{source} ! encode {codec}"));
        let worker = encoded(&format!("{source} host=process ! encode {codec} host=process"));
        assert!(!inline.is_empty() && worker == inline, "{codec}");
    }
}

#[test]
fn frames_that_change_size_get_a_new_encoder_in_the_worker() {
    let text = format!("file {} ! decode ! encode h264 threads=1", clip("vp9-resize-180p8.ivf"));
    let (inline, worker) = (encoded(&text), encoded(&format!("{text} host=process")));
    assert!(worker.iter().filter(|record| record.3).count() > 1);
    assert!(worker == inline);
}

/// Returns the number of frames of the path `text`.
fn frames_of(text: &str) -> u64 {
    framepath_testkit::pipeline::run(text, &Options::default()).frames
}

#[test]
fn twenty_deaths_lose_no_frame_and_every_picture_can_be_decoded() {
    let folder = tempfile::tempdir().unwrap();
    for (number, codec) in CODECS.into_iter().enumerate() {
        let source = "test frames=600 size=160x96 format=yuv420p";
        let text = format!("{source} ! encode {codec} gop=inf host=process");
        // Kills each worker with its fifth packet. More packets of it may arrive, although it is dead.
        let kills = |pipeline: &Pipeline| -> Events {
            let stats = pipeline.workers().next().unwrap();
            let (mut workers, mut packets) = (0, 0);
            Box::new(move |record| {
                (workers, packets) = if record.3 { (workers + 1, 1) } else { (workers, packets + 1) };
                (workers <= 20 && packets == 5).then(|| Event::Kill(stats.clone()))
            })
        };
        let (records, report) = encoded_with(&text, kills);
        assert_eq!(numbers(&records), (0..600).collect::<Vec<_>>(), "{codec}");
        assert_eq!(report.workers[0].deaths, 20, "{codec}");
        assert_eq!((report.losses().len(), report.workers[0].lost), (0, 0), "{codec}");
        // Each worker begins with a keyframe and its track, and makes no other keyframe.
        assert_eq!(keys(&records).len(), 21, "{codec}");
        assert!(records.iter().all(|record| record.2 == record.3), "{codec}");

        let file = folder.path().join(format!("{number}.mkv")).to_str().unwrap().to_owned();
        let (source, faults) = ("test frames=110 size=160x96 format=yuv420p", "fault=crash@7");
        frames_of(&format!("{source} ! encode {codec} gop=inf host=process {faults} ! mux {file}"));
        assert_eq!(frames_of(&format!("file {file} ! decode damage=stop ! null")), 110, "{codec}");
        let counted = ffprobe(&file, "frame=key_frame");
        assert_eq!(counted.len(), 110, "{codec}");
        assert_eq!(counted.iter().filter(|line| line.contains(&"1".to_owned())).count(), 2, "{codec}");
    }
}

#[test]
fn a_requested_keyframe_comes_with_one_of_the_next_frames() {
    for codec in CODECS {
        let text = format!("{TEST} pool=1 ! encode {codec} gop=inf host=process");
        let key = |at| (at, Event::Request(Request::Keyframe));
        let (records, _) = encoded_with(&text, |_| at(vec![key(11), key(40)]));
        let keys = keys(&records);
        assert_eq!((keys.len(), keys[0]), (3, 0), "{codec}: {keys:?}");
        // A few frames are on their way; more on a busy machine.
        assert!((12..=39).contains(&keys[1]) && keys[2] > 40, "{codec}: {keys:?}");
    }
}

#[test]
fn a_request_survives_the_death_of_the_worker_that_got_it() {
    // At 8 Mbit/s, the packets grow from picture to picture.
    let source = "test frames=160 size=160x96 format=yuv420p pool=1";
    let text = format!("{source} ! encode h264 bitrate=8M gop=inf host=process");
    let events = |pipeline: &Pipeline| {
        let kill = Event::Kill(pipeline.workers().next().unwrap());
        at(vec![(40, Event::Request(Request::BitRate(50_000))), (100, kill)])
    };
    let (records, report) = encoded_with(&text, events);
    assert_eq!((report.workers[0].deaths, numbers(&records).len()), (1, 160));
    let bytes = |from: usize, to: usize| records[from..to].iter().map(|record| record.4.len()).sum::<usize>();
    // Behind the frames on their way, and behind the keyframe of the second worker.
    let (high, low, again) = (bytes(30, 40), bytes(90, 100), bytes(150, 160));
    assert!(high > 2 * low && high > 2 * again, "{high}, {low}, {again} bytes");
}

#[test]
fn frames_are_dropped_in_front_of_the_worker_during_congestion() {
    let text = format!("{TEST} pool=1 ! encode h264 gop=inf host=process");
    let events = |_: &Pipeline| at(vec![(10, Event::Request(Request::Congested(true)))]);
    let (records, report) = encoded_with(&text, events);
    let last = *numbers(&records).last().unwrap();
    // A few frames are on their way; more on a busy machine.
    assert!((10..=39).contains(&last), "{last}");
    assert_eq!((report.congested, report.losses().len()), (59 - last, 0));
    let dropped = report.rows.iter().filter(|row| row.has(flag::DROPPED | flag::CONGESTED));
    assert_eq!(dropped.map(|row| row.seq).collect::<Vec<_>>(), (last + 1..60).collect::<Vec<_>>());
    let note =
        format!("encode: dropped {} frames before they were encoded, because of congestion", 59 - last);
    assert!(report.notes.iter().any(|line| line.starts_with(&note)), "{:?}", report.notes);
    // The dropped frames did not cross.
    assert!(report.workers[0].cells.0 < last + 10, "{last}, {:?}", report.workers[0].cells);
}

#[test]
fn a_frame_that_kills_each_encoder_is_left_out_and_counted() {
    let text = format!("{TEST} ! encode h264 host=process fault=poison@9 ! null");
    let output = framepath_testkit::run(&["run", &text]).ended(3);
    output.prints("skipped 1 frame, the first is frame 9: it kills every worker");
    let text = format!("{TEST} ! encode h264 host=process watchdog=1s fault=hang@9 ! null");
    framepath_testkit::run(&["run", &text]).ended(0);
}

#[test]
fn a_seek_starts_the_stream_of_the_worker_anew() {
    framepath::host::set_worker_program(env!("CARGO_BIN_EXE_framepath"));
    let text = "test frames=30 size=64x48 format=yuv420p ! encode h264 crf=0 host=process ! decode";
    let mut frames = Pipeline::parse(text).unwrap().frames().unwrap();
    let first: Vec<_> = frames.by_ref().take(10).map(|frame| frame.unwrap().plane(0).to_vec()).collect();
    frames.seek(std::time::Duration::ZERO, SeekTo::Exact).unwrap();
    let again: Vec<_> = frames.map(|frame| frame.unwrap().plane(0).to_vec()).collect();
    assert_eq!((again.len(), &again[..10]), (30, &first[..]));
}

#[test]
fn each_packet_has_a_row_with_the_work_of_the_worker() {
    let (records, report) =
        encoded_with(&format!("{TEST} ! encode h264 threads=1 host=process"), |_| at(vec![]));
    let rows: Vec<_> = report.rows.iter().filter(|row| row.hop == 1).collect();
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), (0..60).collect::<Vec<_>>());
    assert!(rows.iter().map(|row| row.compute_ns).sum::<u64>() > 0);
    // Only the packets are copied: into the shared memory, and out of it.
    let bytes = records.iter().map(|record| record.4.len() as u64).sum::<u64>();
    assert_eq!(report.copied_bytes, 2 * bytes);
}
