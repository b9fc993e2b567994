// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the end of the stream passes every hop and drains every frame.

use std::sync::atomic::Ordering;

use framepath::{Level, Pipeline};

use super::parts::{KeepStage, PathRecord, run};
use super::way::PathUnderTest;

/// Checks a source without a frame: the sink is drained once, and the report has no frame and no
/// row.
pub fn an_empty_stream_ends(way: &PathUnderTest) {
    let watch = PathRecord::new(1);
    let mut report = watch.run(way, 0, Level::Full);
    assert!(report.error.is_none(), "{:?}", report.error);
    assert_eq!((report.frames, report.rows.len()), (0, 0));
    assert_eq!(watch.drained.load(Ordering::SeqCst), 1);
    assert_eq!(report.digest().latency, None);
    watch.assert_all_back();
}

/// Checks that frames which stages on both sides of the link keep until the drain, and frames in
/// the link, arrive when the source ends.
pub fn frames_in_flight_are_drained(way: &PathUnderTest) {
    const FRAMES: u64 = 4;
    let watch = PathRecord::new(FRAMES as u32);
    let source = Pipeline::from_source(watch.source(FRAMES)).named("numbered");
    let built = source.stage(KeepStage::default()).named("keeps");
    let built = way.through(built).stage(KeepStage::default()).named("keeps");
    let mut report = run(built.sink(watch.sink()).named("collect"), Level::Full);
    assert!(report.error.is_none(), "{:?}", report.error);
    assert_eq!(watch.order(), (0..FRAMES).collect::<Vec<_>>());
    assert_eq!(watch.drained.load(Ordering::SeqCst), 1);
    let digest = report.digest();
    assert_eq!(digest.frames, FRAMES);
    for total in &digest.totals {
        assert_eq!(total.causes.total(), total.latency_ns() as f64, "frame {}", total.seq);
    }
    watch.assert_all_back();
}
