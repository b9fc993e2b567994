// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summary of the ledger's rows: the figures that a table shows.

use super::{Cause, Causes, FrameTotal, HopTree, Row, flag, frame_totals};

/// Percentiles of durations in nanoseconds, by nearest rank: of the latency of frames, or of their
/// time in one hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Shortest of the durations that at least half of the durations do not exceed, nanoseconds.
    pub p50: u64,
    /// Shortest of the durations that at least 95 % of the durations do not exceed, nanoseconds.
    pub p95: u64,
    /// Shortest of the durations that at least 99 % of the durations do not exceed, nanoseconds.
    pub p99: u64,
    /// Longest of the durations, nanoseconds.
    pub max: u64,
}

impl Latency {
    /// Computes the percentiles of `sorted`, durations in nanoseconds in rising order; `None` if it
    /// is empty.
    pub fn from_sorted(sorted: &[u64]) -> Option<Latency> {
        let max = *sorted.last()?;
        let rank = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        Some(Latency { p50: rank(50), p95: rank(95), p99: rank(99), max })
    }
}

/// Figures of one hop, over all frames of a run that have a row for it, unless a field says
/// otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HopDigest {
    /// Number of frames that passed the hop, without dropped ones.
    pub frames: u64,
    /// Number of frames that the hop dropped.
    pub dropped: u64,
    /// Percentiles of the time from entering to leaving the hop, waits included, nanoseconds; zeros
    /// if no frame passed.
    pub wall: Latency,
    /// Mean time by cause of the frames that passed, nanoseconds; a frame without a figure for a
    /// cause counts as 0. `None` for a cause if no frame that passed has a figure for it.
    pub causes: Causes,
    /// Part of the median frame's latency that this hop accounts for, by cause, nanoseconds: the
    /// mean over the same frames as [`Digest::causes`]. `None` for a cause if none of these frames
    /// has a figure for it in this hop; so all are `None` if the hop is not on the way to the sink.
    pub median: Causes,
    /// Part of `median[Cause::Held]` that is due to the depth of frame threads, nanoseconds; 0 if
    /// there was none or it is not known.
    pub median_held_depth_ns: f64,
    /// True if a frame passed whose waits come from the switch records of a decoder's frame
    /// threads.
    pub has_frame_threads: bool,
    /// CPU time of all rows of the hop, those of dropped frames included, copies included,
    /// nanoseconds. `None` without rows, and if a row lacks the thread's counters, as for a link or
    /// below level `full`.
    pub cpu_ns: Option<u64>,
    /// Mean number of bytes that the CPU copied for a frame that passed; 0 if no frame passed.
    pub copied_bytes: f64,
    /// Mean number of context switches, voluntary and involuntary, for a frame that passed. `None`
    /// if no frame passed, or if the row of one lacks the thread's counters, as for a link or below
    /// level `full`.
    pub switches: Option<f64>,
}

/// Figures of a run's ledger for the frames that reached one of the path's sinks.
#[derive(Clone, Debug, PartialEq)]
pub struct Digest {
    /// Number of frames that reached the sink and have rows.
    pub frames: u64,
    /// Percentiles of the latency, from the frame's creation to the end of the sink; `None` without
    /// frames.
    pub latency: Option<Latency>,
    /// Latency of the median frame by cause, nanoseconds: the mean over the frames in the middle by
    /// latency, about a tenth of all frames and at least one. A frame without a figure for a cause
    /// counts as 0; `None` for a cause if none of these frames has a figure for it. The causes add
    /// up to `median_ns` if `Unexplained` is known for each of these frames, as at level `full`.
    pub causes: Causes,
    /// Latency of the median frame, nanoseconds: the mean over the same frames as in `causes`; 0
    /// without frames.
    pub median_ns: f64,
    /// Mean number of bytes that the CPU copied for a frame on the way to the sink; 0 without
    /// frames.
    pub copied_bytes: f64,
    /// Mean number of context switches for a frame on the way to the sink, voluntary and
    /// involuntary; `None` without frames, and if they are not known for one of the frames, as
    /// below level `full`.
    pub switches: Option<f64>,
    /// Figures of all hops in path order, including hops that are not on the way to the sink.
    pub hops: Vec<HopDigest>,
    /// Totals of the frames that reached the sink, in order of `seq`.
    pub totals: Vec<FrameTotal>,
    /// True if the rows are of another program ([`flag::TRACED`]).
    pub is_traced: bool,
}

impl Digest {
    /// Returns a short text that says how the median frame's time for `cause` is obtained.
    pub fn known_by(&self, cause: Cause) -> &'static str {
        if self.is_traced {
            return cause.traced_by();
        }
        let is_woken =
            |hop: &&HopDigest| cause == Cause::Wakeup && hop.median[cause].is_some_and(|ns| ns > 0.0);
        let mut hops = self.hops.iter().filter(is_woken);
        match (hops.clone().any(|hop| hop.has_frame_threads), hops.any(|hop| !hop.has_frame_threads)) {
            (false, _) => cause.known_by(),
            (true, false) => "measured: switch records of the decoder's threads",
            (true, true) => {
                "measured: hand-off stamps, consumer idle; switch records of the decoder's threads"
            }
        }
    }

    /// Returns the time of the median frame that no cause accounts for, or by which the causes
    /// exceed the latency, as a share of the latency: not negative. `None` if the unexplained time
    /// is not known or the latency is 0.
    pub fn unexplained_share(&self) -> Option<f64> {
        let left = self.causes[Cause::Unexplained]?;
        (self.median_ns > 0.0).then(|| left.abs() / self.median_ns)
    }
}

/// Computes the figures of `rows`, the ledger of a path with the hops of `hops`, for the frames
/// that reached hop `sink`. Sorts the rows by frame, time of entry and hop.
pub fn digest(rows: &mut [Row], hops: &HopTree, sink: u16) -> Digest {
    let way = hops.way_to(sink);
    let totals = frame_totals(rows, &way);
    let mut by_latency: Vec<&FrameTotal> = totals.iter().collect();
    by_latency.sort_unstable_by_key(|t| t.latency_ns());
    let latencies: Vec<u64> = by_latency.iter().map(|t| t.latency_ns()).collect();
    let middle = middle_tenth(&by_latency);
    let share = 1.0 / middle.len().max(1) as f64;
    let mut causes = Causes::default();
    let mut numbers: Vec<u64> = middle.iter().map(|total| total.seq).collect();
    numbers.sort_unstable();
    for total in middle {
        causes += total.causes.scaled(share);
    }
    let median_ns = middle.iter().map(|t| t.latency_ns() as f64 * share).sum();
    let count = totals.len() as f64;
    let switches: Option<u64> = totals.iter().map(|t| t.switches).sum();
    Digest {
        frames: totals.len() as u64,
        latency: Latency::from_sorted(&latencies),
        causes,
        median_ns,
        copied_bytes: totals.iter().map(|t| t.copied_bytes as f64).sum::<f64>() / count.max(1.0),
        switches: switches.filter(|_| !totals.is_empty()).map(|n| n as f64 / count),
        hops: by_hop(rows, hops.len())
            .iter()
            .zip(&way)
            .map(|(rows, on_way)| hop_digest(rows, on_way.then_some(&numbers)))
            .collect(),
        totals,
        is_traced: rows.iter().any(|row| row.has(flag::TRACED)),
    }
}

/// Returns the frames in the middle of `sorted`: n/20, rounded down, on each side of the middle
/// one.
fn middle_tenth<'a, 'b>(sorted: &'a [&'b FrameTotal]) -> &'a [&'b FrameTotal] {
    let count = sorted.len();
    let half = count / 20;
    let middle = count.saturating_sub(1) / 2;
    &sorted[middle.saturating_sub(half)..(middle + half + 1).min(count)]
}

/// Returns the rows of each hop.
fn by_hop(rows: &[Row], hops: usize) -> Vec<Vec<&Row>> {
    let mut by_hop = vec![Vec::new(); hops];
    for row in rows {
        if let Some(of_hop) = by_hop.get_mut(usize::from(row.hop)) {
            of_hop.push(row);
        }
    }
    by_hop
}

/// Computes the figures of the hop with the rows `mine`. `middle` has the numbers of the frames in the middle by latency, in
/// rising order; `None` if the hop is not on their way.
fn hop_digest(mine: &[&Row], middle: Option<&Vec<u64>>) -> HopDigest {
    let passed: Vec<&Row> = mine.iter().copied().filter(|r| !r.has(flag::DROPPED)).collect();
    let mut walls: Vec<u64> = passed.iter().map(|r| r.wall_ns()).collect();
    walls.sort_unstable();
    let count = passed.len().max(1) as f64;
    let mut causes = Causes::default();
    for row in &passed {
        causes += row.causes();
    }
    let counted = !passed.is_empty() && passed.iter().all(|r| r.has(flag::COUNTED));
    let (mut median, mut median_held_depth_ns) = (Causes::default(), 0.0);
    if let Some(numbers) = middle.filter(|numbers| !numbers.is_empty()) {
        for row in passed.iter().filter(|row| numbers.binary_search(&row.seq).is_ok()) {
            median += row.causes();
            median_held_depth_ns += row.held_depth_ns as f64;
        }
        median = median.scaled(1.0 / numbers.len() as f64);
        median_held_depth_ns /= numbers.len() as f64;
    }
    let is_counted = !mine.is_empty() && mine.iter().all(|r| r.has(flag::COUNTED));
    let switches = |r: &&Row| f64::from(r.voluntary_switches) + f64::from(r.involuntary_switches);
    HopDigest {
        frames: passed.len() as u64,
        dropped: (mine.len() - passed.len()) as u64,
        wall: Latency::from_sorted(&walls).unwrap_or_default(),
        causes: causes.scaled(1.0 / count),
        median,
        median_held_depth_ns,
        has_frame_threads: passed.iter().any(|row| row.has(flag::FRAME_THREAD)),
        // Rows of another machine can have any times.
        cpu_ns: is_counted.then(|| {
            mine.iter().map(|r| r.compute_ns.saturating_add(r.copy_ns)).fold(0, u64::saturating_add)
        }),
        copied_bytes: passed.iter().map(|r| r.copied_bytes as f64).sum::<f64>() / count,
        switches: counted.then(|| passed.iter().map(switches).sum::<f64>() / count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seq: u64, hop: u16, enter_ns: u64, leave_ns: u64, flags: u32) -> Row {
        Row { seq, hop, enter_ns, leave_ns, birth_ns: 0, flags, ..Row::default() }
    }

    fn line(rows: &mut [Row], hops: u16) -> Digest {
        digest(rows, &HopTree::line(hops.into()), hops - 1)
    }

    #[test]
    fn times_of_a_strange_machine_do_not_overflow() {
        let long =
            Row { compute_ns: u64::MAX, copy_ns: u64::MAX, ..row(0, 0, 0, 100, flag::COUNTED | flag::LAST) };
        let digest = line(&mut [long, Row { seq: 1, ..long }], 1);
        assert_eq!(digest.hops[0].cpu_ns, Some(u64::MAX));
    }

    #[test]
    fn each_sink_behind_a_tee_has_its_own_latency_and_causes() {
        // test ! tee ( queue ! null ) ( null ): the link's row begins where the tee's does.
        let tree = HopTree::new([None, Some(0), Some(0), Some(2), Some(1)]);
        let mut rows = vec![
            Row { compute_ns: 100, ..row(0, 0, 0, 100, flag::COUNTED) },
            Row { blocked_ns: 20, ..row(0, 1, 100, 120, flag::COUNTED) },
            Row { compute_ns: 30, ..row(0, 4, 120, 150, flag::COUNTED | flag::LAST) },
            Row { queue_ns: 400, ..row(0, 2, 100, 500, flag::LINK) },
            Row { compute_ns: 60, ..row(0, 3, 500, 560, flag::COUNTED | flag::LAST) },
            row(1, 0, 100, 200, flag::COUNTED),
            row(1, 2, 200, 300, flag::LINK | flag::DROPPED),
        ];
        let direct = digest(&mut rows, &tree, 4);
        assert_eq!((direct.frames, direct.median_ns, direct.causes.total()), (1, 150.0, 150.0));
        assert_eq!(direct.causes[Cause::Blocked], Some(20.0));
        assert_eq!((direct.causes[Cause::Queue], direct.causes[Cause::Unexplained]), (Some(0.0), Some(0.0)));
        let queued = digest(&mut rows, &tree, 3);
        assert_eq!((queued.frames, queued.median_ns, queued.causes.total()), (1, 560.0, 560.0));
        assert_eq!((queued.causes[Cause::Queue], queued.causes[Cause::Blocked]), (Some(400.0), Some(0.0)));
        assert_eq!((queued.hops[2].dropped, queued.hops[4].frames), (1, 1));
        assert_eq!(queued.hops[2].median[Cause::Queue], Some(400.0));
        assert_eq!((queued.hops[1].median, queued.hops[4].median), (Causes::default(), Causes::default()));
    }

    #[test]
    fn a_ledger_that_tiles_closes() {
        let mut rows = vec![
            Row { compute_ns: 90, preempted_ns: 10, ..row(0, 0, 0, 100, flag::COUNTED) },
            Row { queue_ns: 30, wakeup_ns: 20, ..row(0, 1, 100, 150, flag::LINK) },
            Row { copy_ns: 40, compute_ns: 5, ..row(0, 2, 150, 200, flag::COUNTED | flag::LAST) },
        ];
        let d = line(&mut rows, 3);
        assert_eq!(d.latency, Some(Latency { p50: 200, p95: 200, p99: 200, max: 200 }));
        assert_eq!(d.causes[Cause::Compute], Some(95.0));
        assert_eq!(d.causes[Cause::Unexplained], Some(5.0));
        assert_eq!(d.causes.total(), 200.0);
        let by_hop: f64 = d.hops.iter().map(|hop| hop.median.total()).sum();
        assert_eq!((by_hop, d.hops[0].median[Cause::Compute]), (200.0, Some(90.0)));
        assert_eq!(d.hops.iter().map(|hop| hop.cpu_ns).collect::<Vec<_>>(), [Some(90), None, Some(45)]);
        assert_eq!(d.unexplained_share(), Some(0.025));
    }

    #[test]
    fn unmeasured_causes_are_empty_not_zero() {
        let mut rows = vec![row(0, 0, 0, 100, 0), row(0, 1, 100, 150, flag::LAST)];
        let d = line(&mut rows, 2);
        assert_eq!(d.causes[Cause::Compute], None);
        assert_eq!(d.causes[Cause::Unexplained], None);
        assert_eq!(d.causes[Cause::Copy], Some(0.0));
        assert_eq!(d.switches, None);
    }

    #[test]
    fn a_wakeup_is_known_by_the_stamps_or_records_of_its_hops() {
        let woken = |hop, flags| Row { wakeup_ns: 10, ..row(0, hop, 0, 100, flags) };
        let decoder = woken(0, flag::COUNTED | flag::FRAME_THREAD);
        let end = row(0, 1, 100, 150, flag::COUNTED | flag::LAST);
        let threads = line(&mut [decoder, end], 2).known_by(Cause::Wakeup);
        assert!(threads.contains("switch records") && !threads.contains("stamps"), "{threads}");
        let link = woken(1, flag::LINK);
        let end = row(0, 2, 100, 150, flag::COUNTED | flag::LAST);
        let both = line(&mut [decoder, link, end], 3).known_by(Cause::Wakeup);
        assert!(both.contains("switch records") && both.contains("stamps"), "{both}");
        let stamps = line(&mut [row(0, 0, 0, 100, flag::COUNTED), link, end], 3);
        assert_eq!(stamps.known_by(Cause::Wakeup), Cause::Wakeup.known_by());
        assert_eq!(stamps.known_by(Cause::Held), Cause::Held.known_by());
    }

    #[test]
    fn a_gap_between_rows_is_unexplained() {
        let mut rows = vec![
            Row { compute_ns: 100, ..row(0, 0, 0, 100, flag::COUNTED) },
            Row { compute_ns: 50, ..row(0, 1, 130, 180, flag::COUNTED | flag::LAST) },
        ];
        assert_eq!(line(&mut rows, 2).causes[Cause::Unexplained], Some(30.0));
    }

    #[test]
    fn frames_that_never_ended_count_as_nothing_but_drops() {
        let mut rows = vec![
            row(0, 0, 0, 10, 0),
            row(1, 0, 10, 20, 0),
            row(1, 1, 20, 30, flag::DROPPED | flag::LINK),
            row(2, 0, 20, 30, 0),
            row(2, 1, 30, 40, flag::LAST),
        ];
        let d = line(&mut rows, 2);
        assert_eq!((d.frames, d.hops[1].dropped, d.hops[1].frames), (1, 1, 1));
        assert_eq!(line(&mut [], 1).latency, None);
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!(Latency::from_sorted(&sorted), Some(Latency { p50: 50, p95: 95, p99: 99, max: 100 }));
        assert_eq!(Latency::from_sorted(&[7]).unwrap().p99, 7);
    }
}
