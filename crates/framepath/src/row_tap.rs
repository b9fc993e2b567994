// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of a run while it runs: whole frames for the other end of a network stream, and for the live ledger.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use framepath_model::ledger::{HopTree, Row, flag};
use framepath_os::measure::meter::Level;
use framepath_os::time::now_ns;

use crate::recorder::RowSink;
use crate::report::{HopInfo, Report, SinkReport};

/// Maximum number of frames that are inside the path at once; the oldest are forgotten.
const MOST_FRAMES: usize = 1024;
/// Time of which the live ledger has the frames, nanoseconds.
const LIVE_NS: u64 = 5_000_000_000;
/// Maximum number of frames in the live ledger; the oldest are forgotten.
const MOST_LIVE: usize = 2048;
/// Time until the rows of the other end are there, nanoseconds. The live ledger leaves out the frames of this time.
const SETTLED_NS: u64 = 500_000_000;

/// Part of a path whose other end, on another machine, has a ledger of its own.
pub(crate) trait RemoteEnd: Send + Sync {
    /// Returns the index of the hop at which the way ends that the other end gets the rows of.
    fn last_hop(&self, hops: &[HopInfo]) -> u16;

    /// Begins the run. `way` has the hops up to [`last_hop`](RemoteEnd::last_hop), and `threads` the names of the threads. The rows of
    /// the other end are of use for the last `frames` frames.
    fn begin(&self, way: &[&HopInfo], threads: &[String], frames: usize);

    /// Takes the collector of the run's rows, which has the frames of the last seconds.
    fn watch(&self, tap: &Arc<RowTap>);

    /// Takes the rows of a frame that has ended, in the order of the way. Their hops are indices into the way.
    fn push(&self, rows: Vec<Row>);

    /// Adds the ledger of the other end, as far as it is known, to the frames of `report`.
    fn add_to(&self, report: &mut Report);
}

/// Ledger of a run, as far as its [`RowTap`] has to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TapSettings {
    pub(crate) level: Level,
    /// Maximum number of rows of a thread, and so of frames of which this end has rows.
    pub(crate) rows: usize,
    /// True if the run has a [`LiveLedger`](crate::LiveLedger).
    pub(crate) is_watched: bool,
}

/// Collector of the rows of each frame. The recorders of all threads write to it.
pub(crate) struct RowTap {
    /// Other end of the path's network stream; `None` if the path has none.
    end: Option<Arc<dyn RemoteEnd>>,
    level: Level,
    begun_ns: u64,
    hops: Vec<HopInfo>,
    threads: Vec<String>,
    /// Last hop of the way of which the rows are collected.
    last: u16,
    /// Index in the way of each hop; `None` for a hop that is not on it.
    places: Vec<Option<u16>>,
    frames: Mutex<TappedFrames>,
}

/// Frames of a [`RowTap`].
#[derive(Default)]
struct TappedFrames {
    /// Rows of the frames inside the path, by the frames' numbers.
    inside: BTreeMap<u64, Vec<Row>>,
    /// Frames that have ended, oldest first, each with its rows and the end of the last one, CLOCK_MONOTONIC nanoseconds.
    ended: VecDeque<(u64, Vec<Row>)>,
}

impl TappedFrames {
    fn end(&mut self, rows: Vec<Row>, end_ns: u64) {
        let oldest_ns = end_ns.saturating_sub(LIVE_NS + SETTLED_NS);
        while self.ended.front().is_some_and(|(end_ns, _)| *end_ns < oldest_ns)
            || self.ended.len() == MOST_LIVE
        {
            self.ended.pop_front();
        }
        self.ended.push_back((end_ns, rows));
    }
}

impl RowTap {
    /// Makes the collector for a path of these hops and threads, and begins the exchange with the other end.
    fn new(
        end: Option<Arc<dyn RemoteEnd>>,
        settings: TapSettings,
        hops: &[HopInfo],
        threads: &[String],
    ) -> RowTap {
        let TapSettings { level, rows, .. } = settings;
        let tree = HopTree::new(hops.iter().map(|hop| hop.before));
        let last_leaf = || tree.leaves().last().copied().unwrap_or_default();
        let last = end.as_ref().map_or_else(last_leaf, |end| end.last_hop(hops));
        let on_way = tree.way_to(last);
        let mut next = 0..;
        let places = on_way.iter().map(|on_way| on_way.then(|| next.next()).flatten()).collect();
        let on_way = hops.iter().zip(&on_way).filter(|(_, on_way)| **on_way);
        let way: Vec<&HopInfo> = on_way.map(|(hop, _)| hop).collect();
        if let Some(end) = &end {
            end.begin(&way, threads, rows.max(MOST_LIVE));
        }
        let (hops, threads) = (hops.to_vec(), threads.to_vec());
        RowTap { end, level, begun_ns: now_ns(), hops, threads, last, places, frames: Mutex::default() }
    }

    /// Begins the run of a path of these hops and threads: makes its collector. Returns `None` at level `off`, and if the path has no
    /// other end with a ledger and nobody watches the run.
    pub(crate) fn begin(
        end: Option<&Arc<dyn RemoteEnd>>,
        settings: TapSettings,
        hops: &[HopInfo],
        threads: &[String],
    ) -> Option<Arc<RowTap>> {
        if settings.level == Level::Off || end.is_none() && !settings.is_watched {
            return None;
        }
        let tap = Arc::new(RowTap::new(end.cloned(), settings, hops, threads));
        end.iter().for_each(|end| end.watch(&tap));
        Some(tap)
    }

    /// Adds the other end's ledger to a report of the run.
    pub(crate) fn add_remote(&self, report: &mut Report) {
        if let Some(end) = &self.end {
            end.add_to(report);
        }
    }

    /// Returns a report of the frames of the last seconds.
    pub(crate) fn report(&self) -> Report {
        let until_ns = now_ns().saturating_sub(if self.end.is_some() { SETTLED_NS } else { 0 });
        let from_ns = until_ns.saturating_sub(LIVE_NS).max(self.begun_ns);
        let tapped = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let is_shown = |(end_ns, _): &&(u64, Vec<Row>)| (from_ns..until_ns).contains(end_ns);
        let shown: Vec<&Vec<Row>> = tapped.ended.iter().filter(is_shown).map(|(_, rows)| rows).collect();
        let (frames, rows) = (shown.len() as u64, shown.into_iter().flatten().copied().collect());
        drop(tapped);
        let mut report = Report {
            frames,
            sinks: vec![SinkReport { hop: self.last, frames }],
            wall_ns: until_ns.saturating_sub(from_ns),
            level: self.level,
            hops: self.hops.clone(),
            threads: self.threads.clone(),
            rows,
            ..Report::default()
        };
        self.add_remote(&mut report);
        report
    }
}

impl RowSink for RowTap {
    /// Takes a row. The last one of a frame passes on all of the frame's.
    fn record(&self, row: &Row) {
        if self.places.get(usize::from(row.hop)).copied().flatten().is_none() {
            return;
        }
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if row.has(flag::DROPPED) {
            frames.inside.remove(&row.seq);
            return;
        }
        frames.inside.entry(row.seq).or_default().push(*row);
        if row.has(flag::LAST) {
            let rows = frames.inside.remove(&row.seq).unwrap_or_default();
            let on_way = |row: &Row| Some(Row { hop: self.places[usize::from(row.hop)]?, ..*row });
            let of_end = self.end.as_ref().map(|end| (end, rows.iter().filter_map(on_way).collect()));
            frames.end(rows, row.leave_ns);
            drop(frames);
            if let Some((end, rows)) = of_end {
                end.push(rows);
            }
        } else if frames.inside.len() > MOST_FRAMES {
            frames.inside.pop_first();
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

    const ROWS: usize = 3000;

    fn settings(level: Level) -> TapSettings {
        TapSettings { level, rows: ROWS, is_watched: false }
    }

    impl RemoteEnd for Kept {
        fn last_hop(&self, _: &[HopInfo]) -> u16 {
            4
        }

        fn begin(&self, way: &[&HopInfo], _: &[String], frames: usize) {
            assert_eq!(frames, MOST_LIVE.max(ROWS));
            *self.way.lock().unwrap() = way.iter().map(|hop| hop.text.clone()).collect();
        }

        fn push(&self, rows: Vec<Row>) {
            self.frames.lock().unwrap().push(rows);
        }

        fn watch(&self, _: &Arc<RowTap>) {}

        fn add_to(&self, report: &mut Report) {
            report.notes.push("added".to_owned());
        }
    }

    #[test]
    fn a_frame_is_passed_on_with_its_last_row_and_without_other_branches() {
        let before = [None, Some(0), Some(0), Some(2), Some(1)];
        let hops = "a tee queue null send".split(' ').zip(before);
        let hops: Vec<_> = hops.map(|(text, before)| HopInfo { before, ..HopInfo::new(text) }).collect();
        let kept = Arc::new(Kept::default());
        let tap = RowTap::new(Some(kept.clone()), settings(Level::Full), &hops, &[]);
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
        let tap = RowTap::new(Some(kept), settings(Level::Full), &hops, &[]);
        (0..3000).for_each(|seq| tap.record(&Row { seq, ..Row::default() }));
        assert_eq!(tap.frames.lock().unwrap().inside.len(), MOST_FRAMES);
    }

    #[test]
    fn the_live_ledger_has_the_frames_of_the_last_seconds() {
        let hops = vec![HopInfo::new("a"); 2];
        let end = |at_ns| {
            move |hop| Row { seq: at_ns, hop, birth_ns: at_ns - 5, leave_ns: at_ns, ..Row::default() }
        };
        let begin_ns = now_ns();
        for (kept, later_ns, expected) in [(Some(Arc::<Kept>::default()), 100, 0), (None, 100, 1)] {
            let kept = kept.map(|kept| kept as Arc<dyn RemoteEnd>);
            let has_end = kept.is_some();
            let tap = RowTap::new(kept, settings(Level::Times), &hops, &["t".to_owned()]);
            let tap = RowTap { begun_ns: begin_ns, ..tap };
            let row = end(begin_ns + later_ns);
            // The rows of an other end are not there yet.
            [row(0), Row { flags: flag::LAST, ..row(1) }].iter().for_each(|row| tap.record(row));
            while now_ns() <= begin_ns + later_ns {}
            let mut report = tap.report();
            assert_eq!((report.frames, report.digest().frames), (expected, expected));
            assert_eq!(report.notes.len(), usize::from(has_end));
        }
        let tap = RowTap::new(None, settings(Level::Times), &hops, &[]);
        for number in 0..3 * MOST_LIVE as u64 {
            let row = end(begin_ns + number);
            tap.record(&Row { flags: flag::LAST, ..row(1) });
        }
        assert_eq!(tap.frames.lock().unwrap().ended.len(), MOST_LIVE);
        // A later frame forgets those of long ago.
        tap.record(&Row { flags: flag::LAST, ..end(begin_ns + 60_000_000_000)(1) });
        assert_eq!(tap.frames.lock().unwrap().ended.len(), 1);
    }
}
