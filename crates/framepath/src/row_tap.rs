// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of a run while it runs: whole frames for the other end of a network stream.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use framepath_model::ledger::{HopTree, Row, flag};
use framepath_os::measure::meter::Level;

use crate::recorder::RowSink;
use crate::report::{HopInfo, Report};

/// Maximum number of frames that are inside the path at once; the oldest are forgotten.
const MOST_FRAMES: usize = 1024;

/// Part of a path whose other end, on another machine, has a ledger of its own.
pub(crate) trait RemoteEnd: Send + Sync {
    /// Returns the index of the hop at which the way ends that the other end gets the rows of.
    fn last_hop(&self, hops: &[HopInfo]) -> u16;

    /// Begins the run. `way` has the hops up to [`last_hop`](RemoteEnd::last_hop), and `threads` the names of the threads.
    fn begin(&self, way: &[&HopInfo], threads: &[String]);

    /// Takes the rows of a frame that has ended, in the order of the way. Their hops are indices into the way.
    fn push(&self, rows: Vec<Row>);

    /// Adds the ledger of the other end to the report of the run.
    fn finish(&self, report: &mut Report);
}

/// Collector of the rows of each frame. The recorders of all threads write to it.
pub(crate) struct RowTap {
    end: Arc<dyn RemoteEnd>,
    /// Index in the way of each hop; `None` for a hop that is not on it.
    places: Vec<Option<u16>>,
    /// Rows of the frames inside the path, by the frames' numbers.
    frames: Mutex<BTreeMap<u64, Vec<Row>>>,
}

impl RowTap {
    /// Makes the collector for a path of these hops and threads, and begins the exchange with the other end.
    fn new(end: Arc<dyn RemoteEnd>, hops: &[HopInfo], threads: &[String]) -> RowTap {
        let tree = HopTree::new(hops.iter().map(|hop| hop.before));
        let on_way = tree.way_to(end.last_hop(hops));
        let mut next = 0..;
        let places = on_way.iter().map(|on_way| on_way.then(|| next.next()).flatten()).collect();
        let on_way = hops.iter().zip(&on_way).filter(|(_, on_way)| **on_way);
        let way: Vec<&HopInfo> = on_way.map(|(hop, _)| hop).collect();
        end.begin(&way, threads);
        RowTap { end, places, frames: Mutex::default() }
    }

    /// Begins the run of a path of these hops and threads: makes its collector. Returns `None` if the path has no other end with a
    /// ledger, or at level `off`.
    pub(crate) fn begin(
        end: Option<&Arc<dyn RemoteEnd>>,
        level: Level,
        hops: &[HopInfo],
        threads: &[String],
    ) -> Option<Arc<RowTap>> {
        let end = end.filter(|_| level != Level::Off)?;
        Some(Arc::new(RowTap::new(end.clone(), hops, threads)))
    }

    /// Ends the run: adds the other end's ledger to its report.
    pub(crate) fn finish(&self, report: &mut Report) {
        self.end.finish(report);
    }
}

impl RowSink for RowTap {
    /// Takes a row. The last one of a frame passes on all of the frame's.
    fn record(&self, row: &Row) {
        let Some(hop) = self.places.get(usize::from(row.hop)).copied().flatten() else { return };
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if row.has(flag::DROPPED) {
            frames.remove(&row.seq);
            return;
        }
        let rows = frames.entry(row.seq).or_default();
        rows.push(Row { hop, ..*row });
        if row.has(flag::LAST) {
            let rows = frames.remove(&row.seq).unwrap_or_default();
            drop(frames);
            self.end.push(rows);
        } else if frames.len() > MOST_FRAMES {
            frames.pop_first();
        }
    }
}

impl fmt::Debug for RowTap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowTap").field("places", &self.places).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// End that keeps what it is given.
    #[derive(Default)]
    struct Kept {
        way: Mutex<Vec<String>>,
        frames: Mutex<Vec<Vec<Row>>>,
    }

    impl RemoteEnd for Kept {
        fn last_hop(&self, _: &[HopInfo]) -> u16 {
            4
        }

        fn begin(&self, way: &[&HopInfo], _: &[String]) {
            *self.way.lock().unwrap() = way.iter().map(|hop| hop.text.clone()).collect();
        }

        fn push(&self, rows: Vec<Row>) {
            self.frames.lock().unwrap().push(rows);
        }

        fn finish(&self, _: &mut Report) {}
    }

    #[test]
    fn a_frame_is_passed_on_with_its_last_row_and_without_other_branches() {
        let before = [None, Some(0), Some(0), Some(2), Some(1)];
        let hops = "a tee queue null send".split(' ').zip(before);
        let hops: Vec<_> = hops.map(|(text, before)| HopInfo { before, ..HopInfo::new(text) }).collect();
        let kept = Arc::new(Kept::default());
        let tap = RowTap::new(kept.clone(), &hops, &[]);
        assert_eq!(*kept.way.lock().unwrap(), ["a", "tee", "send"]);
        let row = |seq, hop, flags| Row { seq, hop, flags, ..Row::default() };
        for row in [
            row(1, 0, 0),
            row(1, 1, 0),
            row(1, 3, flag::LAST),
            row(2, 0, 0),
            row(1, 4, flag::LAST),
            row(2, 1, flag::DROPPED),
            row(2, 4, flag::LAST),
        ] {
            tap.record(&row);
        }
        let frames = kept.frames.lock().unwrap();
        let hops: Vec<Vec<_>> =
            frames.iter().map(|rows| rows.iter().map(|row| (row.seq, row.hop)).collect()).collect();
        assert_eq!(hops, [vec![(1, 0), (1, 1), (1, 2)], vec![(2, 2)]]);
    }

    #[test]
    fn frames_without_an_end_are_forgotten() {
        let kept = Arc::new(Kept::default());
        let hops = vec![HopInfo::new("a"); 5];
        let tap = RowTap::new(kept, &hops, &[]);
        (0..3000).for_each(|seq| tap.record(&Row { seq, ..Row::default() }));
        assert_eq!(tap.frames.lock().unwrap().len(), MOST_FRAMES);
    }
}
