// SPDX-License-Identifier: MIT OR Apache-2.0
//! A registered stage sends requests to the hops in front: the source gets the same requests inline
//! and from a worker. The binary is its own worker program.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use framepath::format::{Layout, PixelFormat};
use framepath::path::{Arg, DefaultValue, Definition, Hosts, ValueKind};
use framepath::{
    Answered, FrameMeta, HopFailure, Item, Options, Out, Pipeline, Pool, Rational, Registry, Report, Request,
    RequestError, SeekTo, Source, Stage, StageError, StreamInfo,
};
use framepath_testkit::harness::{self, test};

static ASKED: Definition =
    Definition::source("asked", "frames until a keyframe and a bit rate were requested").args(&[
        Arg::option(
            "frames",
            ValueKind::count(1, 1_000_000),
            DefaultValue::Is("1"),
            "maximum number of frames",
        ),
    ]);

static ASKS: Definition = Definition::stage("asks", "requests a keyframe and a bit rate")
    .args(&[
        Arg::option(
            "at",
            ValueKind::count(0, 1_000_000),
            DefaultValue::Is("0"),
            "number of the frame that starts the requests",
        ),
        Arg::option(
            "times",
            ValueKind::count(1, 1000),
            DefaultValue::Is("1"),
            "number of requests of each kind per frame",
        ),
        Arg::option(
            "again",
            ValueKind::count(0, 1),
            DefaultValue::Is("0"),
            "1: send the requests with each later frame, too",
        ),
    ])
    .hosts(Hosts::Any);

static OVERREACHES: Definition =
    Definition::stage("overreaches", "sends requests that a worker must not send").hosts(Hosts::Any);

const BIT_RATE: u64 = 2_000_000;

/// Requests that a source received, each with the number of frames that it had emitted before.
type ReceivedRequests = Arc<Mutex<Vec<(Request, u64)>>>;

/// Source that records and answers all requests, and emits `frames` frames. After a keyframe and a bit rate
/// request have arrived, it emits at most one more.
struct Asked {
    layout: Layout,
    pool: Pool,
    emitted: u64,
    frames: u64,
    received: ReceivedRequests,
}

impl Source for Asked {
    fn info(&self) -> StreamInfo {
        StreamInfo::from_layout(&self.layout, Rational::new(25, 1))
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        let mut frame = self.pool.acquire().map_err(|error| out.fail(error))?;
        frame.set_layout(&self.layout).map_err(|error| out.fail(error))?;
        let meta = FrameMeta {
            seq: self.emitted,
            birth_ns: out.birth(),
            pts: None,
            duration: 1,
            ..FrameMeta::default()
        };
        self.emitted += 1;
        out.push(Item::Frame(frame.freeze(meta)))?;
        Ok(self.emitted < self.frames)
    }

    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        let mut received = self.received.lock().unwrap();
        received.push((*request, self.emitted));
        let (mut keyframe, mut bit_rate) = (false, false);
        for (request, _) in received.iter() {
            keyframe |= *request == Request::Keyframe;
            bit_rate |= matches!(request, Request::BitRate(_));
        }
        if keyframe && bit_rate {
            // Both requests have arrived, so the next frame is the last.
            self.frames = self.frames.min(self.emitted + 1);
        }
        Ok(Answered::Done)
    }
}

struct Asks {
    at: u64,
    times: u64,
    again: bool,
}

impl Stage for Asks {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let seq = item.meta().seq;
        if seq == self.at || self.again && seq > self.at {
            for _ in 0..self.times {
                let asked = out.request(Request::Keyframe).and(out.request(Request::BitRate(BIT_RATE)));
                asked.map_err(|error| out.fail(StageError::Option(error.to_string())))?;
            }
        }
        out.push(item)
    }
}

/// Stage that fails if it can send a request that a worker must not send.
struct Overreaches;

impl Stage for Overreaches {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let seek = Request::Seek { to: std::time::Duration::ZERO, mode: SeekTo::Exact };
        for request in [seek, Request::Flush, Request::Stop, Request::BitRate(0)] {
            let answer = out.request(request);
            if answer != Err(RequestError::InWorker) {
                return Err(out.fail(StageError::Option(format!("{request:?}: {answer:?}"))));
            }
        }
        out.push(item)
    }
}

/// Makes the tests' registry; requests to the source are recorded in `received`.
fn registry(received: &ReceivedRequests) -> Registry {
    let mut registry = Registry::default();
    let received = received.clone();
    let source = move |hop: &framepath::path::Hop, place: &framepath::HopPlace<'_>| {
        let layout = Layout::packed(PixelFormat::Grey, 16, 16)?;
        let pool = place.pool(layout.size, 4)?;
        Ok(Asked { layout, pool, emitted: 0, frames: hop.count("frames"), received: received.clone() })
    };
    registry.add_source(&ASKED, source).unwrap();
    let stage = |hop: &framepath::path::Hop, _: &framepath::HopPlace<'_>| {
        Ok(Asks { at: hop.count("at"), times: hop.count("times"), again: hop.count("again") == 1 })
    };
    registry.add_stage(&ASKS, stage).unwrap();
    registry.add_stage(&OVERREACHES, |_, _| Ok(Overreaches)).unwrap();
    registry
}

fn main() -> ExitCode {
    framepath::worker::init_with(&registry(&ReceivedRequests::default()));
    harness::main(vec![
        test("the_source_gets_what_a_stage_requests", the_source_gets_what_a_stage_requests),
        test("requests_pass_several_threads_and_workers", requests_pass_several_threads_and_workers),
        test("an_honest_worker_may_request_with_every_frame", an_honest_worker_may_request_with_every_frame),
        test(
            "a_stage_in_a_worker_cannot_seek_or_stop_the_run",
            a_stage_in_a_worker_cannot_seek_or_stop_the_run,
        ),
    ])
}

fn run(text: &str) -> (Report, Vec<(Request, u64)>) {
    let received = ReceivedRequests::default();
    let pipeline = Pipeline::parse_with(&registry(&received), text).unwrap();
    let report = pipeline.run(&Options::default()).unwrap();
    assert!(report.error.is_none(), "{text}: {:?}", report.error);
    assert!(report.workers.iter().all(|worker| worker.deaths == 0), "{text}: {:?}", report.workers);
    let received = received.lock().unwrap().clone();
    (report, received)
}

/// Asserts that no request arrived before the source had emitted frame `at`; returns the requests.
fn requests(received: &[(Request, u64)], at: u64) -> Vec<Request> {
    assert!(received.iter().all(|(_, emitted)| *emitted > at), "{received:?}");
    received.iter().map(|(request, _)| *request).collect()
}

fn the_source_gets_what_a_stage_requests() {
    let both = [Request::Keyframe, Request::BitRate(BIT_RATE)];
    for host in ["inline", "process"] {
        // More frames than any delay needs, because the two requests end the run.
        let text = format!("asked frames=1000000 ! asks at=7 host={host} ! null");
        let (report, received) = run(&text);
        assert_eq!(requests(&received, 7), both, "{host}");
        assert!((8..1_000_000).contains(&report.frames), "{host}: {}", report.frames);
    }
}

fn requests_pass_several_threads_and_workers() {
    let both = [Request::Keyframe, Request::BitRate(BIT_RATE)];
    let text = "asked frames=1000000 ! queue depth=2 ! threshold host=process ! queue depth=2 ! \
                asks at=20 host=process ! queue depth=2 ! null";
    let (_, received) = run(text);
    assert_eq!(requests(&received, 20), both);
}

fn an_honest_worker_may_request_with_every_frame() {
    // The stage sends a hundred of each kind per frame. The worker passes one of each kind on, which is
    // allowed.
    let received = ReceivedRequests::default();
    let registry = registry(&received);
    let text = "test frames=3000 size=16x16 format=grey ! asks at=0 times=100 again=1 host=process ! null";
    let report = Pipeline::parse_with(&registry, text).unwrap().run(&Options::default()).unwrap();
    assert!(report.error.is_none(), "{:?}", report.error);
    let worker = &report.workers[0];
    assert_eq!((report.frames, worker.deaths), (3000, 0), "{worker:?}");
    // A frame and two requests for each input, and a few layouts and pools.
    let (_, from_worker) = worker.cells;
    assert!((9000..9020).contains(&from_worker), "{from_worker}");
}

fn a_stage_in_a_worker_cannot_seek_or_stop_the_run() {
    let (report, received) = run("asked frames=3 ! overreaches host=process ! null");
    assert_eq!((report.frames, report.interrupted, received.len()), (3, false, 0));
}
