// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker is killed while it holds frames. The next worker continues, and no frame is
//! lost, duplicated or out of order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use framepath::host::WorkerStats;
use framepath::{HopFailure, Item, Level, Out, Pipeline, Stage, StageError};
use framepath_model::stream::StreamInfo;
use rustix::process::{Pid, Signal, kill_process};

use framepath_testkit::conformance::parts::{PathRecord, run, unpoisoned};
use framepath_testkit::conformance::way::PathUnderTest;

const FRAMES: u64 = 400;
/// Numbers of the frames at whose arrival the worker is killed.
const KILLS: [u64; 3] = [50, 150, 300];

/// Stage that kills the worker of the preceding stage at each frame of [`KILLS`].
struct Kills {
    worker: Arc<WorkerStats>,
}

impl Stage for Kills {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if KILLS.contains(&item.meta().seq) {
            let pid = Pid::from_raw(self.worker.pid.load(Ordering::Relaxed) as i32).expect("a worker");
            kill_process(pid, Signal::KILL).unwrap();
        }
        out.push(item)
    }
}

pub fn no_frame_is_lost(way: &PathUnderTest) {
    for slots in [1, 8, 200] {
        let watch = PathRecord::new(slots);
        let source = Pipeline::from_source(watch.source(FRAMES)).named("numbered");
        let built = (way.link.add)(source);
        let worker = built.workers().next().expect("a stage in a worker");
        let built = built.stage(Kills { worker }).named("kills");
        let report = run(built.sink(watch.sink()).named("collect"), Level::Full);
        assert!(report.error.is_none(), "{:?}", report.error);
        assert_eq!((report.frames, report.dropped), (FRAMES, 0));
        assert_eq!(watch.order(), (0..FRAMES).collect::<Vec<_>>());
        assert!(unpoisoned(&watch.seen).iter().all(|s| s.written == s.seq));
        let [worker] = &report.workers[..] else { panic!("one hop has workers") };
        // With many frames in flight the last worker may have decoded all frames before its kill.
        assert!((KILLS.len() as u64 - 1..=KILLS.len() as u64).contains(&worker.deaths), "{worker:?}");
        assert_eq!((worker.lost, worker.skipped), (0, 0));
        watch.assert_all_back();
    }
}
