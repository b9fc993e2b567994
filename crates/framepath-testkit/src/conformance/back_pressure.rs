// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check that a slow sink stops the source, or makes the link drop frames.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use framepath::{Level, Pipeline, Report};
use framepath_model::ledger::flag;

use super::parts::{PathRecord, run, wait_for};
use super::way::{PathUnderTest, WhenFull};

const FRAMES: u64 = 500;

/// Checks a sink that holds the first frame. If the link waits when it is full, the source stops,
/// and all frames arrive in the end. Otherwise the link drops the newest or the oldest frames, and
/// the ledger has them.
pub fn a_slow_sink_stops_the_source(way: &PathUnderTest) {
    let holds = way.link.holds.unwrap_or(0);
    match way.link.full {
        WhenFull::Waits => {
            for slots in [1, 2, holds as u32 + 4] {
                waits(way, slots);
            }
        }
        // The frame in the sink, and the frames in the link at that time.
        WhenFull::DropsNew => drops(way, (0..=holds).collect()),
        WhenFull::DropsOldest => drops(way, [0].into_iter().chain(FRAMES - holds..FRAMES).collect()),
    }
}

fn waits(way: &PathUnderTest, slots: u32) {
    // One frame is in the sink, and the source cannot pass on one more.
    let in_pool = u64::from(slots) + way.link.copied();
    let most = way.link.holds.map_or(1, |holds| (holds + 2).min(in_pool));
    let least = way.link.holds.map_or(1, |_| (way.link.holds_least + 2).min(in_pool));
    let watch = PathRecord::new(slots);
    let sink = watch.sink().gated(move |watch| {
        wait_for("the source running full", || watch.given.load(Ordering::SeqCst) >= least);
        // A wrong source would continue within this time.
        sleep(Duration::from_millis(10));
        let given = watch.given.load(Ordering::SeqCst);
        assert!(given <= most, "the source did not stop: {given} frames");
    });
    // A full link may let the source sleep until more than one frame has left
    // the link, so the sink must have the first frame before that.
    let mut source = watch.source(FRAMES);
    source.awaits_first = true;
    let built = Pipeline::from_source(source).named("numbered");
    let report = run(way.through(built).sink(sink).named("collect"), Level::Full);
    assert!(report.error.is_none(), "{:?}", report.error);
    assert_eq!((report.frames, report.dropped), (FRAMES, 0));
    assert_eq!(watch.order(), (0..FRAMES).collect::<Vec<_>>());
    assert!(watch.most_alive.load(Ordering::SeqCst) <= in_pool);
    watch.assert_all_back();
}

fn drops(way: &PathUnderTest, arrive: Vec<u64>) {
    let holds = way.link.holds.unwrap_or(0);
    let watch = PathRecord::new(holds as u32 + 4);
    let sink = watch.sink().gated(|watch| {
        wait_for("the end of the source", || watch.ended.load(Ordering::SeqCst));
    });
    let mut source = watch.source(FRAMES);
    source.awaits_first = true;
    let built = Pipeline::from_source(source).named("numbered");
    let report = run(way.through(built).sink(sink).named("collect"), Level::Times);
    assert!(report.error.is_none(), "{:?}", report.error);
    assert_eq!(watch.order(), arrive);
    assert_eq!(report.dropped, FRAMES - arrive.len() as u64);
    assert_eq!(dropped_frames(&report), (0..FRAMES).filter(|n| !arrive.contains(n)).collect::<Vec<_>>());
    watch.assert_all_back();
}

/// Returns the sequence numbers of the frames that a link dropped, by the rows of the ledger, in
/// rising order.
fn dropped_frames(report: &Report) -> Vec<u64> {
    let mut dropped: Vec<u64> =
        report.rows.iter().filter(|r| r.has(flag::DROPPED | flag::LINK)).map(|r| r.seq).collect();
    dropped.sort_unstable();
    dropped
}
