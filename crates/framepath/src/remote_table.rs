// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ledger of the other end of a network stream, in the report of a run: one table for both machines.

use std::collections::{BTreeMap, HashMap};

use framepath_model::ledger::{Row, SpanPlace, flag};
use framepath_net::SentFrame;

use crate::recorder::FrameArrival;
use crate::remote::RemoteReport;
use crate::report::{HopInfo, Report, SinkReport};

/// Text of the hop between the two machines.
const WIRE: &str = "wire";
/// Texts of the hops between the network and the source: the receiver's thread, and the wait in its buffer.
pub(crate) const ARRIVAL: [&str; 2] = ["reassemble", "jitter"];
/// Index of the source behind them.
const SOURCE: u16 = ARRIVAL.len() as u16;

/// Frame at the other end.
#[derive(Clone, Debug)]
pub(crate) struct RemoteRows {
    /// Rows, in this machine's clock.
    pub(crate) rows: Vec<Row>,
    /// Largest error of the times, nanoseconds.
    pub(crate) error_ns: u64,
    /// Way of the frame through the sender's thread, which is not in the sender's own rows; `None` at the receiver.
    pub(crate) departure: Option<SentFrame>,
}

/// Table of one other end.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemoteTable {
    /// Names of the hops, and whether each is a link.
    pub(crate) hops: Vec<(String, bool)>,
    /// Names of the threads.
    pub(crate) threads: Vec<String>,
    /// Frames by their number in this run.
    pub(crate) frames: HashMap<u64, RemoteRows>,
    pub(crate) clock_jumps: u64,
}

impl RemoteTable {
    /// Returns the hops; `end` is the name of the other end.
    fn hop_infos<'a>(&'a self, end: &'a str) -> impl Iterator<Item = HopInfo> + 'a {
        let info = move |(name, link): &(String, bool)| HopInfo {
            link: *link,
            ..HopInfo::new(format!("{end}: {name}"))
        };
        self.hops.iter().map(info)
    }
}

/// Place of a viewer's hops and threads in a report.
struct ViewerPlace<'a> {
    table: &'a RemoteTable,
    /// Index of the thread that is the first of the table.
    threads: u16,
    /// First and last frame with rows.
    between: (u64, u64),
    report: RemoteReport,
}

impl Report {
    /// Puts the rows of the arrival in front of that of the source, which had all of this time. `arrivals` has the frames by their
    /// numbers.
    pub(crate) fn add_arrivals(&mut self, arrivals: &HashMap<u64, FrameArrival>) {
        self.shift_hops(SOURCE);
        let hops = ARRIVAL.map(|text| HopInfo { link: text == ARRIVAL[1], ..HopInfo::new(text) });
        self.hops.splice(0..0, hops);
        let mut added = Vec::new();
        for row in self.rows.iter_mut().filter(|row| row.hop == SOURCE) {
            let Some(arrival) = arrivals.get(&row.seq) else { continue };
            let [reassembly, jitter, source] = arrival.split(row);
            added.extend([Row { hop: 0, ..reassembly }, Row { hop: 1, ..jitter }]);
            *row = source;
        }
        self.rows.append(&mut added);
        for span in self.spans.iter_mut().filter(|span| span.hop == SOURCE) {
            span.hop = match arrivals.get(&span.seq) {
                Some(arrival) if span.start_ns < arrival.whole_ns => 0,
                Some(arrival) if span.start_ns < arrival.released_ns => 1,
                _ => SOURCE,
            };
        }
    }

    /// Puts the table of a sender in front of the rows of each frame. `arrivals` has the times at which the last packet of each
    /// frame arrived, CLOCK_MONOTONIC nanoseconds, by the frame's number.
    pub(crate) fn add_sender(&mut self, table: &RemoteTable, arrivals: &HashMap<u64, FrameArrival>) {
        let wire = table.hops.len() as u16;
        let first = wire + 1;
        let mut remote = RemoteReport {
            hops: 0..usize::from(first),
            wire,
            clock_jumps: table.clock_jumps,
            ..RemoteReport::default()
        };
        self.shift_hops(first);
        let link = HopInfo { link: true, ..HopInfo::new(WIRE) };
        self.hops.splice(0..0, table.hop_infos("sender").chain([link]));
        let threads = self.add_threads("sender", table);
        let mut added = Vec::new();
        let mut seen: HashMap<u64, Option<u64>> = HashMap::new();
        for row in &mut self.rows {
            let last_ns = arrivals.get(&row.seq).map(|arrival| arrival.last_ns);
            let birth_ns = *seen.entry(row.seq).or_insert_with(|| {
                let frame = table.frames.get(&row.seq)?;
                let arrived_ns = last_ns.unwrap_or(row.birth_ns);
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
            if let Some(last_ns) = last_ns.filter(|_| row.hop == first) {
                // The time since the arrival of the first packet is on the network.
                row.begin_at(last_ns);
            }
            row.birth_ns = birth_ns;
        }
        cut_spans(self, first);
        remote.without = seen.values().filter(|birth| birth.is_none()).count() as u64;
        self.rows.append(&mut added);
        self.remotes.push(remote);
    }

    /// Puts the tables of viewers, by their numbers, behind the rows of each frame at the sink that is hop `sink`: each is a branch.
    pub(crate) fn add_viewers(&mut self, tables: &BTreeMap<u64, RemoteTable>, sink: u16) {
        if tables.is_empty() {
            return;
        }
        self.own.get_or_insert(0..self.hops.len());
        let mut places: Vec<ViewerPlace<'_>> = tables
            .iter()
            .map(|(viewer, table)| self.add_viewer(*viewer, table, tables.len() > 1, sink))
            .collect();
        let mut added = Vec::new();
        for row in self.rows.iter_mut().filter(|row| row.hop == sink) {
            let frames: Vec<_> = places.iter().map(|place| place.table.frames.get(&row.seq)).collect();
            let departures: Vec<SentFrame> =
                frames.iter().flatten().filter_map(|frame| frame.departure).collect();
            if frames.iter().any(Option::is_some) {
                SentFrame::end_packetizing(row, &departures);
                row.flags &= !flag::LAST;
            }
            for (place, frame) in places.iter_mut().zip(frames) {
                match frame {
                    Some(frame) => place.add(row, frame, &mut added),
                    None => place.report.without += u64::from(tables.len() == 1 || place.is_between(row.seq)),
                }
            }
        }
        cut_spans(self, sink);
        self.rows.append(&mut added);
        self.add_viewer_sinks(&places, sink);
        self.remotes.extend(places.into_iter().map(|place| place.report));
    }

    /// Adds the hops and threads of a viewer behind hop `sink`. With `several` viewers, the texts have the viewer's number.
    fn add_viewer<'a>(
        &mut self,
        viewer: u64,
        table: &'a RemoteTable,
        several: bool,
        sink: u16,
    ) -> ViewerPlace<'a> {
        let first = self.hops.len();
        let (pace, wire) = (first as u16, first as u16 + 1);
        let (end, prefix) = match several {
            true => (format!("viewer {viewer}"), format!("viewer {viewer}: ")),
            false => ("viewer".to_owned(), String::new()),
        };
        let link = |text: &str, before| HopInfo {
            link: true,
            before: Some(before),
            ..HopInfo::new(format!("{prefix}{text}"))
        };
        self.hops.extend([link("pace", sink), link(WIRE, pace)]);
        let behind = table.hop_infos(&end).zip(wire..);
        self.hops.extend(behind.map(|(hop, before)| HopInfo { before: Some(before), ..hop }));
        let hops = first..self.hops.len();
        let threads = self.add_threads(&end, table);
        let numbers = || table.frames.keys().copied();
        let between = (numbers().min().unwrap_or_default(), numbers().max().unwrap_or_default());
        let clock_jumps = table.clock_jumps;
        let report = RemoteReport { viewer, hops, wire, clock_jumps, ..RemoteReport::default() };
        ViewerPlace { table, threads, between, report }
    }

    /// Replaces the sink that is hop `sink` by the last hop of each viewer.
    fn add_viewer_sinks(&mut self, places: &[ViewerPlace<'_>], sink: u16) {
        let Some(at) = self.sinks.iter().position(|taken| taken.hop == sink) else { return };
        let all = self.sinks[at].frames;
        let of_viewer = |place: &ViewerPlace<'_>| SinkReport {
            hop: place.report.hops.end as u16 - 1,
            frames: if places.len() == 1 { all } else { place.report.frames },
        };
        self.sinks.splice(at..=at, places.iter().map(of_viewer));
    }

    /// Adds the threads of the other end. Returns the index of the first.
    fn add_threads(&mut self, end: &str, table: &RemoteTable) -> u16 {
        let first = self.threads.len() as u16;
        let name = |thread: &String| format!("{end}: {thread}");
        self.threads.extend(table.threads.iter().map(name));
        first
    }

    /// Makes room for `more` hops in front of all others.
    fn shift_hops(&mut self, more: u16) {
        let own = self.own_hops();
        self.own = Some(own.start + usize::from(more)..own.end + usize::from(more));
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

impl ViewerPlace<'_> {
    /// Adds the rows of a frame behind `sent`, its row at the sender's sink.
    fn add(&mut self, sent: &Row, frame: &RemoteRows, added: &mut Vec<Row>) {
        let first = self.report.hops.start as u16;
        let wire = self.report.wire;
        let pace = frame.departure.map(|departure| Row { hop: first, ..departure.pace(sent) });
        let sent_ns = pace.map_or(sent.leave_ns, |pace| pace.leave_ns);
        let Some(arrived_ns) = frame.rows.iter().map(|row| row.enter_ns).min() else { return };
        let ahead_ns = self.report.count(frame, sent_ns.saturating_sub(arrived_ns));
        added.extend(pace);
        added.push(wire_row(sent, wire, sent.birth_ns, sent_ns, arrived_ns + ahead_ns));
        added.extend(frame.rows.iter().map(|remote| Row {
            seq: sent.seq,
            birth_ns: sent.birth_ns,
            hop: wire + 1 + remote.hop,
            thread: self.threads + remote.thread,
            ..moved(remote, |ns| ns.saturating_add(ahead_ns))
        }));
    }

    /// Returns true if a frame is between the first and the last one with rows of this viewer.
    fn is_between(&self, seq: u64) -> bool {
        (self.between.0..self.between.1).contains(&seq)
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
    use framepath_os::measure::meter::Level;

    use super::*;

    fn row(seq: u64, hop: u16, enter_ns: u64, leave_ns: u64, flags: u32) -> Row {
        Row { seq, hop, birth_ns: 1000, enter_ns, leave_ns, flags, ..Row::default() }
    }

    fn report(hops: &[&str]) -> Report {
        let hops: Vec<HopInfo> = hops.iter().map(|text| HopInfo::new(*text)).collect();
        let sinks = vec![SinkReport { hop: hops.len() as u16 - 1, frames: 2 }];
        Report { hops, sinks, threads: vec!["main".to_owned()], ..Report::default() }
    }

    fn table(hops: &[&str], frames: Vec<(u64, Vec<Row>, Option<SentFrame>)>) -> RemoteTable {
        let hops = hops.iter().map(|name| ((*name).to_owned(), false)).collect();
        let frame = |(seq, rows, departure)| (seq, RemoteRows { rows, error_ns: 50, departure });
        let frames = frames.into_iter().map(frame).collect();
        RemoteTable { hops, threads: vec!["t".to_owned()], frames, clock_jumps: 0 }
    }

    /// Returns the arrival of a frame: the last packet at `last_ns`, and then two nanoseconds of each part.
    fn arrival(first_ns: u64, last_ns: u64) -> FrameArrival {
        let (taken_ns, whole_ns, released_ns) = (last_ns + 2, last_ns + 4, last_ns + 6);
        FrameArrival { first_ns, last_ns, taken_ns, whole_ns, cpu_ns: 1, released_ns }
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
        let table = table(&["file", "pace"], vec![(0, sent, None)]);
        report.add_sender(&table, &HashMap::from([(0, arrival(1000, 1400)), (1, arrival(1000, 1300))]));
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
        let remote = report.remotes[0].clone();
        assert_eq!((remote.frames, remote.without, remote.error_ns, remote.impossible), (1, 1, 50, 0));
        assert_eq!((report.own_hops(), report.sinks[0].hop), (3..5, 4));
        assert_eq!(
            remote.to_string(),
            "rows of the sender for 1 frames; the clocks agree to ±50 ns; 1 frames without: their ledger begins at the arrival"
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
        let departure =
            SentFrame { packetized_ns: 2900, began_ns: 2900, sent_ns: 3800, ..SentFrame::default() };
        let table = table(&["recv", "play"], vec![(1, shown, Some(departure))]);
        report.add_viewers(&BTreeMap::from([(1, table)]), 1);
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
        assert_eq!((report.remotes[0].without, report.own_hops()), (1, 0..2));
    }

    #[test]
    fn a_frame_that_arrives_before_it_has_left_was_not_on_the_way() {
        for (ahead_ns, impossible) in [(30, 0), (400, 1)] {
            let mut receiver = report(&["recv"]);
            receiver.rows.push(row(0, 0, 1000, 2000, flag::LAST));
            let sent = vec![row(0, 0, 1000, 1000 + ahead_ns, 0)];
            receiver.add_sender(&table(&["pace"], vec![(0, sent, None)]), &HashMap::new());
            let expected = [(0, 1000 - ahead_ns, 1000), (1, 1000, 1000), (2, 1000, 2000)];
            assert_eq!(times(&mut receiver, 0), expected);
            assert_eq!(receiver.remotes[0].impossible, impossible);
            let mut sender = report(&["send"]);
            sender.rows.push(row(0, 0, 1000, 2000, flag::LAST));
            let shown = vec![row(0, 0, 2000 - ahead_ns, 3000 - ahead_ns, flag::LAST)];
            let table = table(&["recv"], vec![(0, shown, None)]);
            sender.add_viewers(&BTreeMap::from([(1, table)]), 0);
            assert_eq!(times(&mut sender, 0), [(0, 1000, 2000), (2, 2000, 2000), (3, 2000, 3000)]);
            assert_eq!(sender.remotes[0].impossible, impossible);
        }
    }

    #[test]
    fn the_arrival_has_rows_of_its_own_in_front_of_the_source() {
        let mut report = report(&["recv", "null"]);
        let of_recv = Row { blocked_ns: 400, wakeup_ns: 7, paced_ns: 2, ..row(0, 0, 1000, 2000, 0) };
        report.rows.extend([of_recv, row(0, 1, 2000, 3000, flag::LAST)]);
        let arrivals = HashMap::from([(0, arrival(1000, 1400))]);
        let place = |cause| SpanPlace::Inside(cause);
        let span =
            |start_ns, place| framepath_model::ledger::Span { seq: 0, hop: 0, start_ns, end_ns: 3000, place };
        use framepath_model::ledger::Cause;
        report.spans.extend([span(1402, place(Cause::Compute)), span(1404, place(Cause::Paced))]);
        report.spans.push(span(1406, place(Cause::Wakeup)));
        report.add_arrivals(&arrivals);
        assert_eq!(report.own_hops(), 2..4);
        assert_eq!(report.path(), "recv ! null");
        assert_eq!(
            times(&mut report, 0),
            [(0, 1000, 1404), (1, 1404, 1406), (2, 1406, 2000), (3, 2000, 3000)]
        );
        assert_eq!(report.spans.iter().map(|span| span.hop).collect::<Vec<_>>(), [0, 1, 2]);
        let sent = vec![Row { birth_ns: 100, ..row(7, 0, 100, 500, flag::LAST) }];
        report.add_sender(&table(&["file"], vec![(0, sent, None)]), &arrivals);
        let texts: Vec<_> = report.hops.iter().map(|hop| hop.text.as_str()).collect();
        assert_eq!(texts, ["sender: file", "wire", "reassemble", "jitter", "recv", "null"]);
        assert_eq!(report.own_hops(), 4..6);
        let all = [
            (0, 100, 500),
            (1, 500, 1400),
            (2, 1400, 1404),
            (3, 1404, 1406),
            (4, 1406, 2000),
            (5, 2000, 3000),
        ];
        assert_eq!(times(&mut report, 0), all);
        assert_eq!(report.path(), "recv ! null");
    }

    #[test]
    fn each_viewer_is_a_branch_behind_the_sink() {
        let mut report = report(&["file", "send"]);
        for seq in 0..4 {
            report.rows.extend([row(seq, 0, 1000, 2000, 0), row(seq, 1, 2000, 3000, flag::LAST)]);
        }
        let shown = |end_ns| vec![row(0, 0, 4000, end_ns, flag::LAST)];
        let departure = |sent_ns| {
            Some(SentFrame { packetized_ns: 2900, began_ns: 2900, sent_ns, ..SentFrame::default() })
        };
        let first =
            table(&["recv"], vec![(0, shown(5000), departure(3800)), (2, shown(5000), departure(3800))]);
        let second = table(&["view"], vec![(2, shown(7000), departure(3900))]);
        report.add_viewers(&BTreeMap::from([(1, first), (4, second)]), 1);
        let texts: Vec<_> = report.hops.iter().map(|hop| hop.text.as_str()).collect();
        let viewers =
            ["viewer 1: pace", "viewer 1: wire", "viewer 1: recv", "viewer 4: pace", "viewer 4: wire"];
        assert_eq!(texts, [&["file", "send"], &viewers[..], &["viewer 4: view"]].concat());
        assert_eq!(report.sinks, [SinkReport { hop: 4, frames: 2 }, SinkReport { hop: 7, frames: 1 }]);
        assert_eq!(
            report.remotes.iter().map(|remote| (remote.viewer, remote.without)).collect::<Vec<_>>(),
            [(1, 1), (4, 0)]
        );
        // Frames 1 and 3 end at the sink, and are in the figures of both.
        for (sink, expected) in [(4, [5000, 2000, 4000, 2000]), (7, [0, 2000, 6000, 2000])] {
            let digest = report.digest_of(sink);
            let latency = |seq| {
                digest.totals.iter().find(|total| total.seq == seq).map_or(0, |total| total.latency_ns())
            };
            let expected = expected.map(|ns| if ns == 5000 { 4000 } else { ns });
            assert_eq!([0, 1, 2, 3].map(latency), expected);
        }
        let ends: Vec<_> =
            times(&mut report, 2).into_iter().map(|(hop, _, leave_ns)| (hop, leave_ns)).collect();
        assert_eq!(
            ends,
            [(0, 2000), (1, 2900), (2, 3800), (3, 4000), (4, 5000), (5, 3900), (6, 4000), (7, 7000)]
        );
        let numbers: Vec<_> = [1, 2, 7].map(|hop| report.remote_of(hop).map(|remote| remote.viewer)).into();
        assert_eq!(numbers, [None, Some(1), Some(4)]);
    }

    /// Returns the report of a sender with `count` viewers, of whom the first is the slowest.
    fn with_viewers(count: u64) -> Report {
        let mut report = report(&["file", "send"]);
        report.rows.extend([row(0, 0, 1000, 2000, 0), row(0, 1, 2000, 3000, flag::LAST)]);
        let of_viewer = |viewer: u64| {
            let departure = SentFrame { packetized_ns: 2900, sent_ns: 3800, ..SentFrame::default() };
            let shown = row(0, 0, 4000, 9_000_000 - viewer * 1_000_000, flag::LAST);
            (viewer, table(&["recv"], vec![(0, vec![shown], Some(departure))]))
        };
        report.add_viewers(&(1..=count).map(of_viewer).collect(), 1);
        report
    }

    #[test]
    fn the_figures_of_a_viewer_have_no_hops_of_others() {
        let mut report = Report { level: Level::Times, ..with_viewers(5) };
        let summary = crate::export::summary::summary(&mut report, "test");
        let hops: Vec<Vec<&str>> =
            summary.rows.iter().map(|row| row.hops.iter().map(|hop| hop.hop.as_str()).collect()).collect();
        assert_eq!(hops.len(), 5);
        for (viewer, hops) in (1..).zip(hops) {
            let of_viewer = ["pace", "wire", "recv"].map(|hop| format!("viewer {viewer}: {hop}"));
            assert_eq!(hops[..2], ["file", "send"]);
            assert_eq!(hops[2..], of_viewer);
        }
        let mut page = Vec::new();
        crate::export::page::write(&mut report, &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert_eq!(page.matches("<tr><th><code>").count(), 5 * 5);
    }

    #[test]
    fn of_many_viewers_the_median_and_the_slowest_are_shown() {
        let text = |count: u64| crate::export::text::live(&mut with_viewers(count));
        let shown = |text: &str| -> Vec<u64> {
            (1..=6).filter(|viewer| text.contains(&format!("\nviewer {viewer}: recv "))).collect()
        };
        let few = text(3);
        assert_eq!(shown(&few), [1, 2, 3], "{few}");
        let many = text(5);
        assert_eq!(shown(&many), [1, 3], "{many}");
        for part in [
            "the slowest of 5 viewers",
            "latency to viewer 1: recv: p50 8.00 ms",
            "latency to viewer 3: recv: p50 6.00 ms",
        ] {
            assert!(many.contains(part), "{part}: {many}");
        }
        assert!(!many.contains("viewer 2"), "{many}");
    }
}
