// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ledgers that an experiment keeps in addition to its figures, for the run folder and
//! for the timeline of the slowest frames.

use framepath::Report;
use framepath_model::ledger::{Cause, Row, flag};

use crate::report::{CauseSegment, FrameTimeline};

/// Maximum number of frames in the timeline of a ledger.
const SLOWEST: usize = 3;

/// Report of one run, with its ledger, and the run's name.
pub struct KeptLedger {
    /// Experiment, case and contender, such as `decode vp9-1080p8 inline`.
    pub name: String,
    /// Report of the run, with the rows of the ledger.
    pub report: Report,
}

impl KeptLedger {
    /// Returns the frames with the longest latency, at most three, slowest first, each as a
    /// sequence of causes along its hops. Sorts the report's rows, and removes those of frames with
    /// overwritten rows.
    pub fn slowest_frames(&mut self) -> Vec<FrameTimeline> {
        let mut totals = self.report.digest().totals;
        totals.sort_unstable_by_key(|t| std::cmp::Reverse(t.latency_ns()));
        totals.iter().take(SLOWEST).map(|total| self.timeline(total.seq, total.birth_ns)).collect()
    }

    fn timeline(&self, seq: u64, birth_ns: u64) -> FrameTimeline {
        let mut rows: Vec<&Row> = self.report.rows.iter().filter(|r| r.seq == seq).collect();
        rows.sort_unstable_by_key(|r| (r.enter_ns, r.hop));
        let segments = rows.iter().flat_map(|row| self.segments(row, birth_ns)).collect();
        FrameTimeline { path: self.name.clone(), seq, segments }
    }

    /// Divides the row's time into one segment per cause above 0; the times count from `birth_ns`.
    /// The order of the segments is fixed, waits first: a row has only the sum of each cause, not
    /// the real order. A row of a dropped frame has no segments.
    fn segments(&self, row: &Row, birth_ns: u64) -> Vec<CauseSegment> {
        let hop = self.report.hops.get(usize::from(row.hop)).map_or_else(String::new, |h| h.text.clone());
        let order = [
            Cause::Wakeup,
            Cause::Queue,
            Cause::Held,
            Cause::Pool,
            Cause::Blocked,
            Cause::Paced,
            Cause::Device,
            Cause::Network,
            Cause::Preempted,
            Cause::Throttled,
            Cause::Stopped,
            Cause::Stolen,
            Cause::Compute,
            Cause::Copy,
            Cause::Unexplained,
        ];
        let causes = row.causes();
        let mut at_us = row.enter_ns.saturating_sub(birth_ns) as f64 / 1e3;
        let mut segments = Vec::new();
        for cause in order {
            let us = causes[cause].unwrap_or(0.0).max(0.0) / 1e3;
            if us > 0.0 && !row.has(flag::DROPPED) {
                let cause = cause.name().to_owned();
                segments.push(CauseSegment { hop: hop.clone(), cause, start_us: at_us, end_us: at_us + us });
                at_us += us;
            }
        }
        segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use framepath::{HopInfo, Level};

    #[test]
    fn segments_add_up_to_the_time_of_the_row() {
        let row = Row {
            birth_ns: 1000,
            enter_ns: 1000,
            leave_ns: 51_000,
            copy_ns: 5000,
            device_ns: 30_000,
            compute_ns: 10_000,
            flags: flag::COUNTED,
            ..Row::default()
        };
        let mut report = Report::default();
        report.hops = vec![HopInfo::new("threshold device=/dev/video2")];
        (report.rows, report.level, report.frames) = (vec![row], Level::Full, 1);
        let kept = KeptLedger { name: "m2m".to_owned(), report };
        let segments = kept.segments(&row, row.birth_ns);
        let causes: Vec<&str> = segments.iter().map(|s| s.cause.as_str()).collect();
        assert_eq!(causes, ["device", "compute", "copy", "unexplained"]);
        assert_eq!(segments.last().unwrap().end_us, 50.0);
    }
}
