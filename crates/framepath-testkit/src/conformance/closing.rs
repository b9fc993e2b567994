// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the ledger closes: rows tile a frame's latency, and causes add up to it.

use framepath::{Level, Report};
use framepath_model::ledger::{Cause, Row, flag};

use super::parts::PathRecord;
use super::way::PathUnderTest;

const FRAMES: u64 = 300;

fn ran(way: &PathUnderTest, level: Level) -> Report {
    let watch = PathRecord::new(6);
    let report = watch.run(way, FRAMES, level);
    assert!(report.error.is_none(), "{:?}", report.error);
    assert_eq!(report.overwritten, 0);
    report
}

/// Checks that the ledger rows of each frame have no gap and no overlap.
pub fn rows_tile_the_latency_of_every_frame(way: &PathUnderTest) {
    for level in [Level::Times, Level::Full] {
        let mut report = ran(way, level);
        report.rows.sort_unstable_by_key(|r| (r.seq, r.enter_ns, r.hop));
        let (mut delivered, mut dropped) = (0, 0);
        for frame in report.rows.chunk_by(|a, b| a.seq == b.seq) {
            assert_tiles(frame);
            let last = frame.last().expect("chunks are not empty");
            if last.has(flag::DROPPED) {
                dropped += 1;
                assert!(frame.iter().all(|r| !r.has(flag::LAST)), "a dropped frame has the flag LAST");
            } else {
                delivered += 1;
                assert!(last.has(flag::LAST), "frame {} has no end", last.seq);
                assert_eq!(frame.len(), way.hops());
            }
        }
        assert_eq!((delivered, dropped), (report.frames, report.dropped));
        assert_eq!(delivered + dropped, FRAMES);
    }
}

fn assert_tiles(frame: &[Row]) {
    assert_eq!(frame[0].enter_ns, frame[0].birth_ns, "frame {}: birth", frame[0].seq);
    for (hop, row) in frame.iter().enumerate() {
        assert_eq!(usize::from(row.hop), hop, "frame {}", row.seq);
        assert_eq!(row.birth_ns, frame[0].birth_ns, "frame {}: birth changed", row.seq);
        assert!(row.leave_ns >= row.enter_ns);
    }
    for pair in frame.windows(2) {
        assert_eq!(pair[0].leave_ns, pair[1].enter_ns, "frame {}: hop {}", pair[1].seq, pair[1].hop);
    }
}

/// Checks that at level `full` the causes of each frame's latency add up to the latency, and that
/// at level `times` compute, unexplained and the number of context switches are unknown.
pub fn causes_add_up_exactly(way: &PathUnderTest) {
    let mut report = ran(way, Level::Full);
    for row in &report.rows {
        let causes = row.causes();
        assert_eq!(causes.total(), row.wall_ns() as f64, "{row:?}");
        if row.has(flag::LINK) && !row.has(flag::DROPPED) {
            assert_eq!(causes[Cause::Unexplained], Some(0.0), "{row:?}");
        }
    }
    let (frames, dropped) = (report.frames, report.dropped);
    let digest = report.digest();
    assert_eq!(digest.frames, frames);
    assert_eq!(digest.hops.iter().map(|h| h.dropped).sum::<u64>(), dropped);
    for total in &digest.totals {
        assert_eq!(total.causes.total(), total.latency_ns() as f64, "frame {}", total.seq);
        assert!(total.causes[Cause::Compute].is_some());
    }
    assert_eq!(digest.latency.map(|l| l.max), digest.totals.iter().map(|t| t.latency_ns()).max());

    let mut report = ran(way, Level::Times);
    for total in report.digest().totals {
        assert_eq!(total.causes[Cause::Unexplained], None);
        assert_eq!(total.causes[Cause::Compute], None);
        assert_eq!(total.switches, None);
    }
}
