// SPDX-License-Identifier: MIT OR Apache-2.0
//! A frame that arrives while all threads wait costs two wake-ups: that of the worker, and
//! that of the thread after the worker.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};

use framepath::host::WorkerStats;
use framepath::{HopFailure, Item, Level, Out, Pipeline, Stage, StageError, Test, TestOptions};
use framepath_model::stream::StreamInfo;

use framepath_testkit::conformance::parts::run;
use framepath_testkit::conformance::way::PathUnderTest;

const FRAMES: u64 = 100;
/// Frame rate at which every thread sleeps between two frames.
const RATE: f64 = 200.0;
/// Maximum number of a thread's sleeps with another cause.
const OTHERS: u64 = FRAMES / 5;

/// Returns the number of sleeps of a thread so far; `of` is the name of its folder in /proc.
fn sleeps(of: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{of}/status")).unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).expect("the kernel counts switches")
}

/// Stage that reports the number of sleeps of the worker and of its own thread, at the first
/// frame and at the last.
struct Counts {
    worker: Arc<WorkerStats>,
    counts_out: Sender<[u64; 2]>,
}

impl Stage for Counts {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, _: &mut Out<'_>) -> Result<(), HopFailure> {
        if [0, FRAMES].contains(&item.meta().seq) {
            let worker = self.worker.pid.load(Ordering::Relaxed).to_string();
            self.counts_out.send([&worker, "thread-self"].map(sleeps)).unwrap();
        }
        Ok(())
    }
}

pub fn one_each_way(way: &PathUnderTest) {
    let options = TestOptions { rate: RATE, frames: FRAMES + 1, ..TestOptions::default() };
    let source = Pipeline::from_source(Test::new(&options).unwrap()).named("test");
    let built = (way.link.add)(source);
    let worker = built.workers().next().expect("a stage in a worker");
    let (counts_out, counts) = channel();
    let report = run(built.sink(Counts { worker, counts_out }).named("counts"), Level::Off);
    assert!(report.error.is_none(), "{:?}", report.error);
    let [first, last] = [(); 2].map(|()| counts.recv().unwrap());
    for (who, (first, last)) in ["worker", "thread behind it"].into_iter().zip(first.into_iter().zip(last)) {
        let slept = last - first;
        assert!(slept <= FRAMES + OTHERS, "the {who} slept {slept} times");
    }
}
