// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ledger of the other end of a network stream, in the report of a run: one table for both machines.

use std::collections::HashMap;
use std::ops::Range;

use framepath_model::ledger::{Row, SpanPlace, flag};

use crate::remote::RemoteReport;
use crate::report::{HopInfo, Report};

/// Text of the hop between the two machines.
const WIRE: &str = "wire";

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
            if let Some(arrived_ns) = arrivals.get(&row.seq).filter(|_| row.hop == own) {
                // The time since the arrival of the first packet is on the network.
                row.begin_at(*arrived_ns);
            }
            row.birth_ns = birth_ns;
        }
        cut_spans(self, own);
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
                row.end_at(paced.enter_ns);
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
        cut_spans(self, sink);
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

/// Shortens the waits inside rows of hop `hop` to the times of the rows, which [`Row::begin_at`] and [`Row::end_at`] have changed.
fn cut_spans(report: &mut Report, hop: u16) {
    let rows = report.rows.iter().filter(|row| row.hop == hop);
    let times: HashMap<u64, (u64, u64)> = rows.map(|row| (row.seq, (row.enter_ns, row.leave_ns))).collect();
    report.spans.retain_mut(|span| {
        let is_wait = span.hop == hop && matches!(span.place, SpanPlace::Inside(_));
        let Some((enter_ns, leave_ns)) = times.get(&span.seq).filter(|_| is_wait) else { return true };
        (span.start_ns, span.end_ns) = (span.start_ns.max(*enter_ns), span.end_ns.min(*leave_ns));
        span.start_ns < span.end_ns
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::SinkReport;

    fn row(seq: u64, hop: u16, enter_ns: u64, leave_ns: u64, flags: u32) -> Row {
        Row { seq, hop, birth_ns: 1000, enter_ns, leave_ns, flags, ..Row::default() }
    }

    fn report(hops: &[&str]) -> Report {
        let hops: Vec<HopInfo> = hops.iter().map(|text| HopInfo::new(*text)).collect();
        let sinks = vec![SinkReport { hop: hops.len() as u16 - 1, frames: 2 }];
        Report { hops, sinks, threads: vec!["main".to_owned()], ..Report::default() }
    }

    fn table(end: &'static str, hops: &[&str], frames: Vec<(u64, Vec<Row>, Vec<Row>)>) -> RemoteTable {
        let hops = hops.iter().map(|name| ((*name).to_owned(), false)).collect();
        let frame = |(seq, rows, own)| (seq, RemoteRows { rows, error_ns: 50, own });
        let frames = frames.into_iter().map(frame).collect();
        RemoteTable { end, hops, threads: vec!["t".to_owned()], frames, clock_jumps: 0 }
    }

    /// Returns hop, entry and end of the rows of frame `seq`, in order.
    fn times(report: &mut Report, seq: u64) -> Vec<(u16, u64, u64)> {
        report.rows.sort_by_key(|row| (row.hop, row.enter_ns));
        let rows = report.rows.iter().filter(|row| row.seq == seq);
        rows.map(|row| (row.hop, row.enter_ns, row.leave_ns)).collect()
    }

    #[test]
    fn a_senders_rows_are_in_front_and_leave_no_gap() {
        let mut report = report(&["recv", "null"]);
        for seq in 0..2 {
            let of_recv = Row { blocked_ns: 400, queue_ns: 300, ..row(seq, 0, 1000, 2000, 0) };
            report.rows.extend([of_recv, row(seq, 1, 2000, 3000, flag::LAST)]);
        }
        let sent = vec![row(7, 0, 100, 500, 0), row(7, 1, 500, 1200, flag::LAST)]
            .into_iter()
            .map(|row| Row { birth_ns: 100, ..row })
            .collect();
        let table = table("sender", &["file", "pace"], vec![(0, sent, Vec::new())]);
        report.add_sender(&table, &HashMap::from([(0, 1400), (1, 1300)]));
        let texts: Vec<_> = report.hops.iter().map(|hop| hop.text.as_str()).collect();
        assert_eq!(texts, ["sender: file", "sender: pace", "wire", "recv", "null"]);
        assert_eq!(report.hop_tree(), framepath_model::ledger::HopTree::line(5));
        assert_eq!(
            times(&mut report, 0),
            [(0, 100, 500), (1, 500, 1200), (2, 1200, 1400), (3, 1400, 2000), (4, 2000, 3000)]
        );
        assert_eq!(times(&mut report, 1), [(3, 1000, 2000), (4, 2000, 3000)]);
        let of_recv = report.rows.iter().find(|row| (row.seq, row.hop) == (0, 3)).unwrap();
        // The wait for the rest of the packets is on the wire.
        assert_eq!((of_recv.blocked_ns, of_recv.queue_ns, of_recv.birth_ns), (0, 300, 100));
        let remote = report.remote.clone().unwrap();
        assert_eq!((remote.frames, remote.without, remote.error_ns, remote.impossible), (1, 1, 50, 0));
        assert_eq!((remote.own.clone(), report.sinks[0].hop), (3..5, 4));
        assert_eq!(
            remote.to_string(),
            "rows of the sender for 1 frames; the clocks agree to ±50 ns; 1 frames without: their ledger begins at `recv`"
        );
        let digest = report.digest();
        assert_eq!(
            (digest.frames, digest.totals[0].latency_ns(), digest.totals[1].latency_ns()),
            (2, 2900, 2000)
        );
        assert_eq!(digest.hops[2].causes[framepath_model::ledger::Cause::Network], Some(200.0));
        assert_eq!(report.hop_labels()[2], "wire ±50 ns");
    }

    #[test]
    fn a_viewers_rows_are_behind_and_leave_no_gap() {
        let mut report = report(&["file", "send"]);
        for seq in 0..2 {
            report.rows.extend([row(seq, 0, 1000, 2000, 0), row(seq, 1, 2000, 3000, flag::LAST)]);
        }
        let shown = vec![row(0, 0, 4000, 5000, 0), row(0, 1, 5000, 6000, flag::LAST)];
        let pace = Row { enter_ns: 2900, leave_ns: 3800, paced_ns: 900, ..Row::default() };
        let table = table("viewer", &["recv", "play"], vec![(1, shown, vec![pace])]);
        report.add_viewer(&table, 1);
        let texts: Vec<_> = report.hops.iter().map(|hop| hop.text.as_str()).collect();
        assert_eq!(texts, ["file", "send", "pace", "wire", "viewer: recv", "viewer: play"]);
        assert_eq!(report.hop_tree(), framepath_model::ledger::HopTree::line(6));
        assert_eq!(times(&mut report, 0), [(0, 1000, 2000), (1, 2000, 3000)]);
        assert_eq!(
            times(&mut report, 1),
            [
                (0, 1000, 2000),
                (1, 2000, 2900),
                (2, 2900, 3800),
                (3, 3800, 4000),
                (4, 4000, 5000),
                (5, 5000, 6000)
            ]
        );
        let digest = report.digest();
        let latencies: Vec<_> = digest.totals.iter().map(|total| total.latency_ns()).collect();
        assert_eq!((latencies, report.sinks[0].hop), (vec![2000, 5000], 5));
        assert_eq!(report.remote.unwrap().without, 1);
    }

    #[test]
    fn a_frame_that_arrives_before_it_has_left_was_not_on_the_way() {
        for (ahead_ns, impossible) in [(30, 0), (400, 1)] {
            let mut receiver = report(&["recv"]);
            receiver.rows.push(row(0, 0, 1000, 2000, flag::LAST));
            let sent = vec![row(0, 0, 1000, 1000 + ahead_ns, 0)];
            receiver.add_sender(&table("sender", &["pace"], vec![(0, sent, Vec::new())]), &HashMap::new());
            let expected = [(0, 1000 - ahead_ns, 1000), (1, 1000, 1000), (2, 1000, 2000)];
            assert_eq!(times(&mut receiver, 0), expected);
            assert_eq!(receiver.remote.unwrap().impossible, impossible);
            let mut sender = report(&["send"]);
            sender.rows.push(row(0, 0, 1000, 2000, flag::LAST));
            let shown = vec![row(0, 0, 2000 - ahead_ns, 3000 - ahead_ns, flag::LAST)];
            sender.add_viewer(&table("viewer", &["recv"], vec![(0, shown, Vec::new())]), 0);
            assert_eq!(times(&mut sender, 0), [(0, 1000, 2000), (2, 2000, 2000), (3, 2000, 3000)]);
            assert_eq!(sender.remote.unwrap().impossible, impossible);
        }
    }
}
