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

static ASKED: Definition = Definition::source("asked", "frames until it was asked for both, or so many")
    .args(&[Arg::option("frames", ValueKind::count(1, 1_000_000), DefaultValue::Is("1"), "so many")]);

static ASKS: Definition = Definition::stage("asks", "asks for a keyframe and a bit rate")
    .args(&[
        Arg::option("at", ValueKind::count(0, 1_000_000), DefaultValue::Is("0"), "the frame"),
        Arg::option("times", ValueKind::count(1, 1000), DefaultValue::Is("1"), "how often for each frame"),
        Arg::option("again", ValueKind::count(0, 1), DefaultValue::Is("0"), "1: at each frame behind, too"),
    ])
    .hosts(Hosts::Any);

static OVERREACHES: Definition =
    Definition::stage("overreaches", "asks for what a worker may not have").hosts(Hosts::Any);

const BIT_RATE: u64 = 2_000_000;

/// Requests that a source received, and how many frames it had given before each.
type Heard = Arc<Mutex<Vec<(Request, u64)>>>;

/// Gives frames until it got all requests it waits for, or has given enough frames.
struct Asked {
    layout: Layout,
    pool: Pool,
    given: u64,
    frames: u64,
    heard: Heard,
}

impl Source for Asked {
    fn info(&self) -> StreamInfo {
        StreamInfo::from_layout(&self.layout, Rational::new(25, 1))
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        let mut frame = self.pool.acquire().map_err(|error| out.fail(error))?;
        frame.set_layout(&self.layout).map_err(|error| out.fail(error))?;
        let meta = FrameMeta { seq: self.given, birth_ns: out.birth(), pts: None, duration: 1 };
        self.given += 1;
        out.push(Item::Frame(frame.freeze(meta)))?;
        Ok(self.given < self.frames)
    }

    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        let mut heard = self.heard.lock().unwrap();
        heard.push((*request, self.given));
        let (mut keyframe, mut bit_rate) = (false, false);
        for (request, _) in heard.iter() {
            keyframe |= *request == Request::Keyframe;
            bit_rate |= matches!(request, Request::BitRate(_));
        }
        if keyframe && bit_rate {
            // Both requests came: the next frame is the last.
            self.frames = self.frames.min(self.given + 1);
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

/// Fails if a request that a worker must not send is not refused.
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

/// Makes the tests' registry; requests to the source are recorded in `heard`.
fn registry(heard: &Heard) -> Registry {
    let mut registry = Registry::default();
    let heard = heard.clone();
    let source = move |hop: &framepath::path::Hop, place: &framepath::HopPlace<'_>| {
        let layout = Layout::packed(PixelFormat::Grey, 16, 16)?;
        let pool = place.pool(layout.size, 4)?;
        Ok(Asked { layout, pool, given: 0, frames: hop.count("frames"), heard: heard.clone() })
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
    framepath::worker::init_with(&registry(&Heard::default()));
    harness::main(vec![
        test("the_source_gets_what_a_stage_requests", the_source_gets_what_a_stage_requests),
        test("requests_pass_several_threads_and_workers", requests_pass_several_threads_and_workers),
        test("an_honest_worker_may_request_with_every_frame", an_honest_worker_may_request_with_every_frame),
        test(
            "a_stage_in_a_worker_cannot_move_or_stop_the_run",
            a_stage_in_a_worker_cannot_move_or_stop_the_run,
        ),
    ])
}

fn run(text: &str) -> (Report, Vec<(Request, u64)>) {
    let heard = Heard::default();
    let pipeline = Pipeline::parse_with(&registry(&heard), text).unwrap();
    let report = pipeline.run(&Options::default()).unwrap();
    assert!(report.error.is_none(), "{text}: {:?}", report.error);
    assert!(report.workers.iter().all(|worker| worker.deaths == 0), "{text}: {:?}", report.workers);
    let heard = heard.lock().unwrap().clone();
    (report, heard)
}

/// Returns the requests, after asserting that none came before frame `at`.
fn requests(heard: &[(Request, u64)], at: u64) -> Vec<Request> {
    assert!(heard.iter().all(|(_, given)| *given > at), "{heard:?}");
    heard.iter().map(|(request, _)| *request).collect()
}

fn the_source_gets_what_a_stage_requests() {
    let both = [Request::Keyframe, Request::BitRate(BIT_RATE)];
    for host in ["inline", "process"] {
        // Enough frames for any delay; the two requests end the run.
        let text = format!("asked frames=1000000 ! asks at=7 host={host} ! null");
        let (report, heard) = run(&text);
        assert_eq!(requests(&heard, 7), both, "{host}");
        assert!((8..1_000_000).contains(&report.frames), "{host}: {}", report.frames);
    }
}

fn requests_pass_several_threads_and_workers() {
    let both = [Request::Keyframe, Request::BitRate(BIT_RATE)];
    let text = "asked frames=1000000 ! queue depth=2 ! threshold host=process ! queue depth=2 ! \
                asks at=20 host=process ! queue depth=2 ! null";
    let (_, heard) = run(text);
    assert_eq!(requests(&heard, 20), both);
}

fn an_honest_worker_may_request_with_every_frame() {
    // The stage sends a hundred of each for each frame: one of each is passed on, and none is a breach.
    let heard = Heard::default();
    let registry = registry(&heard);
    let text = "test frames=3000 size=16x16 format=grey ! asks at=0 times=100 again=1 host=process ! null";
    let report = Pipeline::parse_with(&registry, text).unwrap().run(&Options::default()).unwrap();
    assert!(report.error.is_none(), "{:?}", report.error);
    let worker = &report.workers[0];
    assert_eq!((report.frames, worker.deaths), (3000, 0), "{worker:?}");
    // A frame and two requests for each input, and a few layouts and pools.
    let (_, from_worker) = worker.cells;
    assert!((9000..9020).contains(&from_worker), "{from_worker}");
}

fn a_stage_in_a_worker_cannot_move_or_stop_the_run() {
    let (report, heard) = run("asked frames=3 ! overreaches host=process ! null");
    assert_eq!((report.frames, report.interrupted, heard.len()), (3, false, 0));
}
