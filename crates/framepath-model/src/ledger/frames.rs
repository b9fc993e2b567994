// SPDX-License-Identifier: MIT OR Apache-2.0
//! Totals of each frame over all hops, computed from the ledger's rows.

use super::{Cause, Causes, Row, flag};

/// Totals of one frame over all hops on the way to one sink.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrameTotal {
    /// Sequence number of the frame.
    pub seq: u64,
    /// Time at which the frame was created, CLOCK_MONOTONIC nanoseconds.
    pub birth_ns: u64,
    /// Time at which the sink had finished the frame, CLOCK_MONOTONIC nanoseconds.
    pub end_ns: u64,
    /// Latency of the frame divided among its causes, nanoseconds. Compute, preempted and
    /// unexplained are `None` if the row of a hop other than a link lacks the thread's counters, as
    /// below level `full`.
    pub causes: Causes,
    /// Number of bytes that the CPU copied for the frame in the hops on the way to the sink.
    pub copied_bytes: u64,
    /// Number of context switches, voluntary and involuntary; `None` if the row of a hop other than
    /// a link lacks the thread's counters, as below level `full`.
    pub switches: Option<u64>,
}

impl FrameTotal {
    /// Returns the time from the creation of the frame to the end of the sink, nanoseconds.
    pub fn latency_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.birth_ns)
    }

    /// Returns the time that no cause accounts for, or by which the causes exceed the latency, as a
    /// share of the latency: not negative. `None` if the unexplained time is not known or the
    /// latency is 0.
    pub fn unexplained_share(&self) -> Option<f64> {
        let latency = self.latency_ns();
        let left = self.causes[Cause::Unexplained]?;
        (latency > 0).then(|| left.abs() / latency as f64)
    }
}

/// Computes the totals of every frame that reached one sink, in order of `seq`. `way` has one value
/// for each hop: true if the hop is on the way to this sink
/// ([`HopTree::way_to`](super::HopTree::way_to)). Rows may be in any order; the function sorts them.
pub fn frame_totals(rows: &mut [Row], way: &[bool]) -> Vec<FrameTotal> {
    rows.sort_unstable_by_key(|r| (r.seq, r.enter_ns, r.hop));
    let frames = rows.chunk_by(|a, b| a.seq == b.seq);
    if way.iter().all(|on_way| *on_way) {
        return frames.filter_map(total).collect();
    }
    let on_way = |row: &&Row| way.get(usize::from(row.hop)).is_some_and(|on_way| *on_way);
    let of_way = |frame: &[Row]| frame.iter().filter(on_way).copied().collect::<Vec<Row>>();
    frames.filter_map(|frame| total(&of_way(frame))).collect()
}

/// Computes the total of `rows`, the rows of one frame on the way to one sink. Returns `None` if the frame
/// did not reach the sink.
fn total(rows: &[Row]) -> Option<FrameTotal> {
    let last = rows.iter().find(|r| r.has(flag::LAST))?;
    let mut causes = Causes::default();
    let counted = rows.iter().all(|r| r.has(flag::COUNTED) || r.has(flag::LINK));
    let mut known_ns = 0.0;
    for row in rows {
        let mut of_row = row.causes();
        of_row[Cause::Unexplained] = None;
        known_ns += of_row.total();
        causes += of_row;
    }
    if counted {
        // Subtract once, from the whole latency: time between the rows counts
        // as unexplained too.
        let latency = last.leave_ns.saturating_sub(last.birth_ns) as f64;
        causes[Cause::Unexplained] = Some(latency - known_ns);
    } else {
        causes[Cause::Compute] = None;
        causes[Cause::Preempted] = None;
    }
    let switches = rows.iter().map(|r| u64::from(r.voluntary_switches) + u64::from(r.involuntary_switches));
    Some(FrameTotal {
        seq: last.seq,
        birth_ns: last.birth_ns,
        end_ns: last.leave_ns,
        causes,
        copied_bytes: rows.iter().map(|r| r.copied_bytes).sum(),
        switches: counted.then(|| switches.sum()),
    })
}
