// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ledger of the other end of a network stream, in the report of a run: one table for both machines.

use std::collections::HashMap;
use std::ops::Range;

use framepath_model::ledger::{Row, SpanPlace, flag};

use crate::report::{HopInfo, Report};

/// Text of the hop between the two machines.
const WIRE: &str = "wire";

/// Part of a report that came from the other end of a network stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteReport {
    /// Indices in [`Report::hops`] of the hops of this machine.
    pub own: Range<usize>,
    /// Index in [`Report::hops`] of the hop between the machines.
    pub wire: u16,
    /// Number of frames whose rows of both ends are in the report.
    pub frames: u64,
    /// Number of frames without rows of the other end: for a receiver, their ledger begins at `recv`, for a sender it ends at `send`.
    pub without: u64,
    /// Largest error of all times that depend on both machines' clocks, nanoseconds; 0 without frames.
    pub error_ns: u64,
    /// Number of frames that arrived before they had left by the clocks, by more than the error. Their way counts as 0.
    pub impossible: u64,
    /// Number of times that the clock of one of the machines jumped during the run: the machine slept.
    pub clock_jumps: u64,
}

/// Frame at the other end.
pub(crate) struct RemoteRows {
    /// Rows, in this machine's clock.
    pub(crate) rows: Vec<Row>,
    /// Largest error of the times, nanoseconds.
    pub(crate) error_ns: u64,
    /// Rows of this end that are not in its own ledger: the way through the sender's thread.
    pub(crate) own: Vec<Row>,
}

/// Table of the other end.
pub(crate) struct RemoteTable {
    /// Name of the other end: `sender` or `viewer`.
    pub(crate) end: &'static str,
    /// Names of the hops, and whether each is a link.
    pub(crate) hops: Vec<(String, bool)>,
    /// Names of the threads.
    pub(crate) threads: Vec<String>,
    /// Frames by their number in this run.
    pub(crate) frames: HashMap<u64, RemoteRows>,
    pub(crate) clock_jumps: u64,
}

impl RemoteTable {
    fn hop_infos(&self) -> impl Iterator<Item = HopInfo> {
        let info = |(name, link): &(String, bool)| HopInfo {
            link: *link,
            ..HopInfo::new(format!("{}: {name}", self.end))
        };
        self.hops.iter().map(info)
    }
}

impl Report {
    /// Returns the hops of this machine.
    pub fn own_hops(&self) -> Range<usize> {
        self.remote.as_ref().map_or(0..self.hops.len(), |remote| remote.own.clone())
    }

    /// Puts the table of a sender in front of the rows of each frame. `arrivals` has the times at which the last packet of each
    /// frame arrived, CLOCK_MONOTONIC nanoseconds, by the frame's number.
    pub(crate) fn add_sender(&mut self, table: &RemoteTable, arrivals: &HashMap<u64, u64>) {
        let wire = table.hops.len() as u16;
        let own = wire + 1;
        let end = usize::from(own) + self.hops.len();
        let mut remote = self.begin_remote(usize::from(own)..end, wire, table);
        self.shift_hops(own);
        let link = HopInfo { link: true, ..HopInfo::new(WIRE) };
        self.hops.splice(0..0, table.hop_infos().chain([link]));
        let threads = self.add_threads(table);
        let mut added = Vec::new();
        let mut seen: HashMap<u64, Option<u64>> = HashMap::new();
        for row in &mut self.rows {
            let birth_ns = *seen.entry(row.seq).or_insert_with(|| {
                let frame = table.frames.get(&row.seq)?;
                let arrived_ns = arrivals.get(&row.seq).copied().unwrap_or(row.birth_ns);
                let sent_ns = frame.rows.iter().map(|row| row.leave_ns).max()?;
                // Within the error of the clocks, a frame cannot arrive before it has left.
                let ahead_ns = remote.count(frame, sent_ns.saturating_sub(arrived_ns));
                let earlier = |row: &Row| moved(row, |ns| ns.saturating_sub(ahead_ns));
                let rows = frame.rows.iter().map(earlier).map(|remote| Row {
                    seq: row.seq,
                    thread: threads + remote.thread,
                    flags: remote.flags & !flag::LAST,
                    ..remote
                });
                added.extend(rows);
                let birth_ns = added.last()?.birth_ns;
                let enter_ns = sent_ns - ahead_ns;
                added.push(wire_row(row, wire, birth_ns, enter_ns, arrived_ns));
                Some(birth_ns)
            });
            let Some(birth_ns) = birth_ns else { continue };
            if row.hop == own {
                begin_at(row, arrivals.get(&row.seq).copied().unwrap_or(row.enter_ns));
            }
            row.birth_ns = birth_ns;
        }
        remote.without = seen.values().filter(|birth| birth.is_none()).count() as u64;
        self.rows.append(&mut added);
        self.remote = Some(remote);
    }

    /// Puts the table of a viewer behind the rows of each frame at the sink that is hop `sink`.
    pub(crate) fn add_viewer(&mut self, table: &RemoteTable, sink: u16) {
        let own = self.hops.len() as u16;
        let (pace, wire, first) = (own, own + 1, own + 2);
        let mut remote = self.begin_remote(0..usize::from(wire), wire, table);
        let link = |text: &str, before| HopInfo { link: true, before: Some(before), ..HopInfo::new(text) };
        self.hops.extend([link("pace", sink), link(WIRE, pace)]);
        let behind = table.hop_infos().zip(wire..);
        self.hops.extend(behind.map(|(hop, before)| HopInfo { before: Some(before), ..hop }));
        let last = self.hops.len() as u16 - 1;
        self.sinks.iter_mut().filter(|taken| taken.hop == sink).for_each(|taken| taken.hop = last);
        let threads = self.add_threads(table);
        let mut added = Vec::new();
        for row in self.rows.iter_mut().filter(|row| row.hop == sink) {
            let Some(frame) = table.frames.get(&row.seq) else {
                remote.without += 1;
                continue;
            };
            let own_end_ns = frame.own.last().map_or(row.leave_ns, |row| row.leave_ns);
            let Some(arrived_ns) = frame.rows.iter().map(|row| row.enter_ns).min() else { continue };
            let ahead_ns = remote.count(frame, own_end_ns.saturating_sub(arrived_ns));
            let base = Row { thread: row.thread, birth_ns: row.birth_ns, seq: row.seq, ..Row::default() };
            for paced in &frame.own {
                // The thread of the path may be interrupted behind the hand-over, while the packets leave.
                row.leave_ns = row.leave_ns.min(paced.enter_ns).max(row.enter_ns);
                let Row { seq, birth_ns, thread, .. } = base;
                added.push(Row { seq, birth_ns, thread, hop: pace, enter_ns: row.leave_ns, ..*paced });
            }
            added.push(wire_row(&base, wire, base.birth_ns, own_end_ns, arrived_ns + ahead_ns));
            added.extend(frame.rows.iter().map(|remote| Row {
                seq: base.seq,
                birth_ns: base.birth_ns,
                hop: first + remote.hop,
                thread: threads + remote.thread,
                ..moved(remote, |ns| ns.saturating_add(ahead_ns))
            }));
            row.flags &= !flag::LAST;
        }
        self.rows.append(&mut added);
        self.remote = Some(remote);
    }

    fn begin_remote(&self, own: Range<usize>, wire: u16, table: &RemoteTable) -> RemoteReport {
        RemoteReport { own, wire, clock_jumps: table.clock_jumps, ..RemoteReport::default() }
    }

    /// Adds the threads of the other end. Returns the index of the first.
    fn add_threads(&mut self, table: &RemoteTable) -> u16 {
        let first = self.threads.len() as u16;
        let name = |thread: &String| format!("{}: {thread}", table.end);
        self.threads.extend(table.threads.iter().map(name));
        first
    }

    /// Makes room for `more` hops in front of all others.
    fn shift_hops(&mut self, more: u16) {
        for (at, hop) in self.hops.iter_mut().enumerate() {
            hop.before = Some(hop.before.map_or(at as u16, |before| before + 1) + more - 1);
        }
        self.rows.iter_mut().for_each(|row| row.hop += more);
        self.spans.iter_mut().for_each(|span| span.hop += more);
        self.helpers.iter_mut().for_each(|helper| helper.hop += more);
        self.sinks.iter_mut().for_each(|sink| sink.hop += more);
        self.workers.iter_mut().for_each(|worker| worker.hop += more);
    }
}

impl RemoteReport {
    /// Counts a frame that arrived `ahead_ns` before it had left, by the clocks. Returns this time.
    fn count(&mut self, frame: &RemoteRows, ahead_ns: u64) -> u64 {
        self.frames += 1;
        self.error_ns = self.error_ns.max(frame.error_ns);
        self.impossible += u64::from(ahead_ns > frame.error_ns);
        ahead_ns
    }
}

/// Returns the row of the way between the machines.
fn wire_row(of: &Row, hop: u16, birth_ns: u64, enter_ns: u64, leave_ns: u64) -> Row {
    Row {
        seq: of.seq,
        birth_ns,
        enter_ns,
        leave_ns,
        network_ns: leave_ns.saturating_sub(enter_ns),
        flags: flag::LINK | flag::REMOTE,
        hop,
        thread: of.thread,
        ..Row::default()
    }
}

/// Returns the row with other times.
fn moved(row: &Row, time: impl Fn(u64) -> u64) -> Row {
    let [birth_ns, enter_ns, leave_ns] = [row.birth_ns, row.enter_ns, row.leave_ns].map(time);
    Row { birth_ns, enter_ns, leave_ns, ..*row }
}

/// Lets a row of `recv` begin when the last packet of the frame arrived instead of the first: the time between is on the network.
pub(crate) fn begin_at(row: &mut Row, arrived_ns: u64) {
    let enter_ns = arrived_ns.clamp(row.enter_ns, row.leave_ns);
    let mut earlier_ns = enter_ns - row.enter_ns;
    for wait_ns in [&mut row.queue_ns, &mut row.wakeup_ns, &mut row.held_ns] {
        let taken_ns = earlier_ns.min(*wait_ns);
        (*wait_ns, earlier_ns) = (*wait_ns - taken_ns, earlier_ns - taken_ns);
    }
    row.enter_ns = enter_ns;
}

/// Removes spans of rows that begin later than before, as [`begin_at`] has changed them.
pub(crate) fn cut_spans(report: &mut Report) {
    let begins: HashMap<(u16, u64), u64> =
        report.rows.iter().map(|row| ((row.hop, row.seq), row.enter_ns)).collect();
    for span in &mut report.spans {
        if let (SpanPlace::Inside(_), Some(begin_ns)) = (span.place, begins.get(&(span.hop, span.seq))) {
            span.start_ns = span.start_ns.max(*begin_ns).min(span.end_ns);
        }
    }
}
