// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ledgers of a receiver and its sender.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use framepath_model::ledger::Row;
use framepath_net::{FrameRows, LedgerExchange, RemoteHop, RemotePath};

use crate::recorder::FrameArrival;
use crate::remote_table::{ARRIVAL, RemoteTable};
use crate::report::{HopInfo, Report};
use crate::row_tap::{RemoteEnd, RowTap};
use crate::sink::send::remote_viewer::{remote_path, remote_rows, remote_table};

/// Sender, as the run of the receiver sees it.
pub(super) struct RemoteSender(Mutex<Connections>);

/// Connections to a sender, one after the other.
struct Connections {
    /// Exchange of the present connection.
    exchange: Arc<LedgerExchange>,
    /// Path of this end; `None` before the run.
    path: Option<RemotePath>,
    /// Maximum number of frames whose arrival is kept; the oldest are forgotten. 0 before the run, and without a ledger.
    most: usize,
    /// Frames that have arrived, by their numbers in this run.
    arrivals: HashMap<u64, ArrivedFrame>,
    /// Numbers of these frames, oldest first.
    order: VecDeque<u64>,
    /// Rows that the senders of earlier connections have sent.
    earlier: RemoteTable,
}

/// Frame that has arrived.
struct ArrivedFrame {
    /// Number at the sender; `None` if it is not known, or the frame is of an earlier connection: a sender that has started again
    /// numbers its frames from 0.
    id: Option<u64>,
    arrival: FrameArrival,
}

impl RemoteSender {
    pub(super) fn new(exchange: Arc<LedgerExchange>) -> RemoteSender {
        RemoteSender(Mutex::new(Connections {
            exchange,
            path: None,
            most: 0,
            arrivals: HashMap::new(),
            order: VecDeque::new(),
            earlier: RemoteTable::default(),
        }))
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the sender's frame `id` is frame `seq` of this run, and its way up to the source.
    pub(super) fn arrived(&self, seq: u64, id: Option<u64>, arrival: FrameArrival) {
        let connections = &mut *self.connections();
        connections.arrivals.insert(seq, ArrivedFrame { id, arrival });
        connections.order.push_back(seq);
        if connections.order.len() > connections.most {
            if let Some(oldest) = connections.order.pop_front() {
                connections.arrivals.remove(&oldest);
                connections.earlier.frames.remove(&oldest);
            }
        }
    }

    /// Goes on with a new connection, to the same sender or to one that has started again.
    pub(super) fn reconnected(&self, exchange: Arc<LedgerExchange>) {
        let connections = &mut *self.connections();
        connections.earlier = connections.table(|_| true);
        connections.arrivals.values_mut().for_each(|frame| frame.id = None);
        if let Some(path) = &connections.path {
            exchange.begin(path.clone(), connections.most);
        }
        connections.exchange = exchange;
    }
}

impl Connections {
    /// Returns the rows of the senders of all connections for the frames whose number in this run is wanted. A sender that came back
    /// with other stages replaces the one before: a table has one path.
    fn table(&self, is_wanted: impl Fn(u64) -> bool) -> RemoteTable {
        let known = self.arrivals.iter().filter(|(seq, _)| is_wanted(**seq));
        let ids: HashMap<u64, u64> = known.filter_map(|(seq, frame)| Some((frame.id?, *seq))).collect();
        let remote = self.exchange.remotes(|id| ids.contains_key(&id)).remove(&0);
        let new = remote.map(|remote| {
            let mut table = remote_table(&remote);
            let rows = remote.frames.into_iter();
            table.frames =
                rows.filter_map(|(id, frame)| Some((*ids.get(&id)?, remote_rows(frame)))).collect();
            table
        });
        let mut table = new.unwrap_or_default();
        if table.hops.is_empty() {
            (table.hops, table.threads) = (self.earlier.hops.clone(), self.earlier.threads.clone());
        }
        table.clock_jumps += self.earlier.clock_jumps;
        if (&table.hops, &table.threads) == (&self.earlier.hops, &self.earlier.threads) {
            let earlier = self.earlier.frames.iter().filter(|(seq, _)| is_wanted(**seq));
            table.frames.extend(earlier.map(|(seq, rows)| (*seq, rows.clone())));
        }
        table
    }
}

impl RemoteEnd for RemoteSender {
    fn last_hop(&self, hops: &[HopInfo]) -> u16 {
        let tree = framepath_model::ledger::HopTree::new(hops.iter().map(|hop| hop.before));
        tree.leaves().last().copied().unwrap_or_default()
    }

    fn begin(&self, way: &[&HopInfo], threads: &[String], frames: usize) {
        let mut path = remote_path(way, threads);
        let arrival = ARRIVAL.map(|name| RemoteHop { name: name.to_owned(), link: name == ARRIVAL[1] });
        path.hops.splice(0..0, arrival);
        let mut connections = self.connections();
        connections.exchange.begin(path.clone(), frames);
        (connections.path, connections.most) = (Some(path), frames);
    }

    fn watch(&self, _: &Arc<RowTap>) {}

    fn push(&self, rows: Vec<Row>) {
        let Some(seq) = rows.first().map(|row| row.seq) else { return };
        let connections = self.connections();
        let Some(&ArrivedFrame { id: Some(id), arrival }) = connections.arrivals.get(&seq) else { return };
        let first = ARRIVAL.len() as u16;
        let mut split = Vec::with_capacity(rows.len() + ARRIVAL.len());
        for row in rows {
            if row.hop > 0 {
                split.push(Row { hop: row.hop + first, ..row });
                continue;
            }
            let [mut reassembly, jitter, source] = arrival.split(&row);
            reassembly.begin_at(arrival.last_ns);
            split.extend([reassembly, Row { hop: 1, ..jitter }, Row { hop: first, ..source }]);
        }
        connections.exchange.push(FrameRows::new(id, split));
    }

    fn add_to(&self, report: &mut Report) {
        let connections = self.connections();
        let wanted: HashSet<u64> = report.rows.iter().map(|row| row.seq).collect();
        let arrivals = connections.arrivals.iter().filter(|(seq, _)| wanted.contains(seq));
        let arrivals = arrivals.map(|(seq, frame)| (*seq, frame.arrival)).collect();
        report.add_arrivals(&arrivals);
        let table = connections.table(|seq| wanted.contains(&seq));
        if !table.hops.is_empty() {
            report.add_sender(&table, &arrivals);
        }
    }
}
