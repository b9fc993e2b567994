// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ledgers of a receiver and its sender.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use framepath_model::ledger::Row;
use framepath_net::{FrameRows, LedgerExchange};

use crate::remote_table::RemoteRows;
use crate::report::{HopInfo, Report};
use crate::row_tap::RemoteEnd;
use crate::sink::send::remote_viewer::{remote_path, remote_table};

/// Maximum number of frames whose arrival is known; the oldest are forgotten.
const MOST_ARRIVALS: usize = 1 << 16;

/// Sender, as the run of the receiver sees it.
pub(super) struct RemoteSender {
    exchange: Arc<LedgerExchange>,
    arrivals: Mutex<Arrivals>,
}

/// Frames that have arrived.
#[derive(Default)]
struct Arrivals {
    /// Number at the sender, and arrival of the last packet (CLOCK_MONOTONIC nanoseconds), by the number in this run.
    frames: HashMap<u64, (u64, u64)>,
    /// Numbers in this run, oldest first.
    order: VecDeque<u64>,
}

impl RemoteSender {
    pub(super) fn new(exchange: Arc<LedgerExchange>) -> RemoteSender {
        RemoteSender { exchange, arrivals: Mutex::default() }
    }

    /// Records that the sender's frame `id` is frame `seq` of this run, and that its last packet arrived at `arrived_ns`.
    pub(super) fn arrived(&self, seq: u64, id: u64, arrived_ns: u64) {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.frames.insert(seq, (id, arrived_ns));
        arrivals.order.push_back(seq);
        if arrivals.order.len() > MOST_ARRIVALS {
            if let Some(oldest) = arrivals.order.pop_front() {
                arrivals.frames.remove(&oldest);
            }
        }
    }
}

impl RemoteEnd for RemoteSender {
    fn last_hop(&self, hops: &[HopInfo]) -> u16 {
        let tree = framepath_model::ledger::HopTree::new(hops.iter().map(|hop| hop.before));
        tree.leaves().last().copied().unwrap_or_default()
    }

    fn begin(&self, way: &[&HopInfo], threads: &[String]) {
        self.exchange.begin(remote_path(way, threads));
    }

    fn push(&self, mut rows: Vec<Row>) {
        let Some(seq) = rows.first().map(|row| row.seq) else { return };
        let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(&(id, arrived_ns)) = arrivals.frames.get(&seq) else { return };
        drop(arrivals);
        rows.iter_mut().filter(|row| row.hop == 0).for_each(|row| row.begin_at(arrived_ns));
        self.exchange.push(FrameRows { id, rows });
    }

    fn finish(&self, report: &mut Report) {
        let mut remote = self.exchange.take_remote();
        if remote.path.hops.is_empty() {
            return;
        }
        let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = remote_table("sender", remote.path, remote.clock_jumps);
        for (seq, (id, _)) in &arrivals.frames {
            if let Some(frame) = remote.frames.remove(id) {
                let (rows, error_ns) = (frame.rows, frame.error_ns);
                table.frames.insert(*seq, RemoteRows { rows, error_ns, own: Vec::new() });
            }
        }
        let arrivals = arrivals.frames.iter().map(|(seq, (_, arrived_ns))| (*seq, *arrived_ns)).collect();
        report.add_sender(&table, &arrivals);
    }
}
