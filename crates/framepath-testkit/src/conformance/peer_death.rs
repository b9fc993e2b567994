// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of a path in which one hop fails: the other hops stop, the error is reported once, and
//! the frames before the failure are delivered and in the ledger.

use std::sync::atomic::Ordering;
use std::thread;

use framepath::{Level, Pipeline, Report, RunError};
use framepath_model::ledger::flag;

use super::parts::{ENDLESS, FailsAt, KeepStage, PathRecord, run};
use super::way::{BEFORE, BEHIND, PathUnderTest};

const GOOD: u64 = 5;

/// Asserts that the report has one error, of hop `hop`, and that exactly `delivered` frames reached
/// the sink and the ledger's last hop.
fn assert_failed(report: &Report, hop: &str, delivered: u64) {
    let error = report.error.as_ref().expect("an error");
    assert!(matches!(error, RunError::Stage { hop: at, .. } if at == hop), "{error}");
    assert_eq!(error.to_string().matches("failed on purpose").count(), 1, "{error}");
    assert_eq!(report.frames, delivered);
    assert_eq!(report.rows.iter().filter(|r| r.has(flag::LAST)).count() as u64, delivered);
}

fn assert_first(watch: &PathRecord, way: &PathUnderTest, frames: u64) {
    let order = watch.order();
    assert_eq!(order.len() as u64, frames);
    assert!(order.windows(2).all(|w| w[0] < w[1]));
    if way.keeps_all() {
        assert_eq!(order, (0..frames).collect::<Vec<_>>());
    }
}

/// Checks a stage after the link that fails: the hops before it stop, and the frames before the
/// failure are delivered and in the ledger.
pub fn a_stage_after_the_link_fails(way: &PathUnderTest) {
    let watch = PathRecord::new(4);
    let source = Pipeline::from_source(watch.source(ENDLESS)).named("numbered");
    let built = (way.link.add)((way.host.pass)(source, BEFORE));
    let built = (way.host.fails_at)(built, BEHIND, GOOD);
    let report = run(built.sink(watch.sink()).named("collect"), Level::Full);
    assert_failed(&report, BEHIND, GOOD);
    assert_first(&watch, way, GOOD);
    // The other frames were delivered or dropped, or were in the link or in the stages on both
    // sides.
    let inside = GOOD + way.link.holds.unwrap_or(0) + 4 + report.dropped;
    assert!(watch.given.load(Ordering::SeqCst) <= inside);
    watch.assert_all_back();
}

/// Checks a stage before the link that fails: the frames before the failure still arrive, including
/// those that later stages keep.
pub fn a_stage_before_the_link_fails(way: &PathUnderTest) {
    // The capacity of the smallest link that drops frames.
    let good = GOOD.min(way.link.holds.filter(|_| !way.keeps_all()).unwrap_or(GOOD));
    let watch = PathRecord::new(8);
    let source = Pipeline::from_source(watch.source(ENDLESS)).named("numbered");
    let built = (way.host.fails_at)(source, BEFORE, good).stage(KeepStage::default()).named("keeps");
    let built = (way.host.pass)((way.link.add)(built), BEHIND).stage(KeepStage::default()).named("keeps");
    let report = run(built.sink(watch.sink()).named("collect"), Level::Full);
    assert_failed(&report, BEFORE, good);
    assert_eq!(watch.order(), (0..good).collect::<Vec<_>>());
    assert_eq!(watch.drained.load(Ordering::SeqCst), 1);
    assert_eq!(watch.given.load(Ordering::SeqCst), good + 1);
    watch.assert_all_back();
}

/// Checks a sink that fails on the first frame while an endless source waits for the sink or is
/// about to wait.
pub fn a_sink_fails_while_the_source_waits_for_it(way: &PathUnderTest) {
    for slots in [1, 2, 3, 256].into_iter().cycle().take(way.link.runs) {
        let watch = PathRecord::new(slots);
        let source = Pipeline::from_source(watch.source(ENDLESS)).named("numbered");
        let built = way.through(source);
        let report = run(built.sink(FailsAt::new(0)).named("fails"), Level::Times);
        assert_failed(&report, "fails", 0);
        watch.assert_all_back();
    }
}

/// Checks a source that fails: the frames before the failure arrive.
pub fn the_source_fails(way: &PathUnderTest) {
    let good = GOOD.min(way.link.holds.filter(|_| !way.keeps_all()).unwrap_or(GOOD));
    let watch = PathRecord::new(8);
    let mut source = watch.source(good);
    source.fails = true;
    let built = Pipeline::from_source(source).named("numbered");
    let built = way.through(built).stage(KeepStage::default()).named("keeps");
    let report = run(built.sink(watch.sink()).named("collect"), Level::Full);
    assert_failed(&report, "numbered", good);
    assert_eq!(watch.order(), (0..good).collect::<Vec<_>>());
    assert_eq!(watch.drained.load(Ordering::SeqCst), 1);
    watch.assert_all_back();
}

/// Checks that a panic of a stage after the link ends only the thread of the stage, and that the
/// run returns an error. If the link is a direct call, that thread is the caller's, so the run
/// panics.
pub fn a_stage_after_the_link_panics(way: &PathUnderTest) {
    for slots in [1, 4] {
        let watch = PathRecord::new(slots);
        let source = Pipeline::from_source(watch.source(ENDLESS)).named("numbered");
        let built = way.through(source).stage(FailsAt::panicking(GOOD)).named("panics");
        let built = built.sink(watch.sink()).named("collect");
        if way.link.holds.is_none() {
            // The stage runs in the caller's thread, so the caller panics. A separate thread is
            // needed, because a thread with an unwound run closes its counters only at its end.
            assert!(thread::spawn(|| run(built, Level::Full)).join().is_err());
            assert_first(&watch, way, GOOD);
            watch.assert_all_back();
            continue;
        }
        let report = run(built, Level::Full);
        let error = report.error.as_ref().expect("an error");
        assert!(matches!(error, RunError::Thread { hop, .. } if hop == BEHIND), "{error}");
        assert_first(&watch, way, GOOD);
        watch.assert_all_back();
    }
}
