// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that frames arrive in order, once, and unchanged.

use framepath::{Level, Pipeline};

use super::parts::{Pass, PathRecord, run, unpoisoned};
use super::way::PathUnderTest;

/// Number of frames that the source emits.
const FRAMES: u64 = 2_000;

/// Asserts that `delivered` frames reached the sink, in order, once and unchanged, and that
/// `dropped` is the number of all others, 0 if the link keeps all frames.
fn assert_order(watch: &PathRecord, way: &PathUnderTest, delivered: u64, dropped: u64) {
    let order = watch.order();
    assert!(order.windows(2).all(|w| w[0] < w[1]), "frames out of order or duplicated");
    assert_eq!(order.len() as u64, delivered);
    assert_eq!(delivered + dropped, FRAMES);
    if way.keeps_all() {
        assert_eq!(dropped, 0);
    }
    // The source writes each frame's number into the pixels: a slot reused too early has a later number.
    assert!(unpoisoned(&watch.seen).iter().all(|s| s.written == s.seq));
}

/// Checks order, count and content of the frames at every level of the ledger.
pub fn frames_arrive_in_order_and_unchanged(way: &PathUnderTest) {
    for level in [Level::Off, Level::Times, Level::Full] {
        let watch = PathRecord::new(8);
        let report = watch.run(way, FRAMES, level);
        assert!(report.error.is_none(), "{:?}", report.error);
        assert_order(&watch, way, report.frames, report.dropped);
        watch.assert_all_back();
    }
}

/// Checks order, count and content of the frames after two links in a row, with 1, 2 and 64 slots
/// in the source's pool.
pub fn unequal_rates_lose_no_frame(way: &PathUnderTest) {
    for slots in [1, 2, 64] {
        let watch = PathRecord::new(slots);
        let source = Pipeline::from_source(watch.source(FRAMES)).named("numbered");
        let built = way.through(way.through(source)).stage(Pass).named("pass");
        let report = run(built.sink(watch.sink()).named("collect"), Level::Off);
        assert!(report.error.is_none(), "{:?}", report.error);
        assert_order(&watch, way, report.frames, report.dropped);
        watch.assert_all_back();
    }
}
