// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ledgers of a sender and its viewers.

use std::collections::HashSet;
use std::sync::Arc;

use framepath_model::ledger::Row;
use framepath_net::{FrameRows, LedgerExchange, RemoteFrame, RemoteHop, RemoteLedger, RemotePath};

use crate::live_ledger::LiveLedger;
use crate::remote_table::{RemoteRows, RemoteTable};
use crate::report::{HopInfo, Report};
use crate::row_tap::{RemoteEnd, RowTap};

/// Viewers, as the run of the sender sees them.
pub(super) struct RemoteViewer {
    pub(super) exchange: Arc<LedgerExchange>,
    pub(super) live: LiveLedger,
}

/// Returns the path that the other end gets: names without arguments, which may be private.
pub(crate) fn remote_path(way: &[&HopInfo], threads: &[String]) -> RemotePath {
    let first_word = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    let hop = |hop: &&HopInfo| RemoteHop { name: first_word(&hop.text), link: hop.link };
    let threads = threads.iter().map(|thread| first_word(thread)).collect();
    RemotePath { hops: way.iter().map(hop).collect(), threads }
}

/// Returns the table of the other end that has sent `remote`, without frames.
pub(crate) fn remote_table(remote: &RemoteLedger) -> RemoteTable {
    let hops = remote.path.hops.iter().map(|hop| (hop.name.clone(), hop.link)).collect();
    let (threads, clock_jumps) = (remote.path.threads.clone(), remote.clock_jumps);
    RemoteTable { hops, threads, clock_jumps, ..RemoteTable::default() }
}

pub(crate) fn remote_rows(frame: RemoteFrame) -> RemoteRows {
    let RemoteFrame { rows, error_ns, departure } = frame;
    RemoteRows { rows, error_ns, departure }
}

impl RemoteEnd for RemoteViewer {
    fn last_hop(&self, hops: &[HopInfo]) -> u16 {
        let is_send = |hop: &HopInfo| hop.text.split(' ').next() == Some("send");
        hops.iter().position(is_send).unwrap_or_default() as u16
    }

    fn begin(&self, way: &[&HopInfo], threads: &[String], frames: usize) {
        let mut path = remote_path(way, threads);
        if let Some(last) = path.hops.last_mut() {
            last.name = "packetise".to_owned();
        }
        path.hops.push(RemoteHop { name: "pace".to_owned(), link: true });
        self.exchange.begin(path, frames);
    }

    fn watch(&self, tap: &Arc<RowTap>) {
        self.live.begin(tap);
    }

    fn push(&self, rows: Vec<Row>) {
        if let Some(id) = rows.first().map(|row| row.seq) {
            self.exchange.push(FrameRows::new(id, rows));
        }
    }

    fn add_to(&self, report: &mut Report) {
        let wanted: HashSet<u64> = report.rows.iter().map(|row| row.seq).collect();
        let with_frames = |(viewer, remote): (u64, RemoteLedger)| {
            let mut table = remote_table(&remote);
            table.frames = remote.frames.into_iter().map(|(id, frame)| (id, remote_rows(frame))).collect();
            (!table.frames.is_empty()).then_some((viewer, table))
        };
        let remotes = self.exchange.remotes(|id| wanted.contains(&id));
        let tables = remotes.into_iter().filter_map(with_frames).collect();
        let sink = self.last_hop(&report.hops);
        report.add_viewers(&tables, sink);
        let forgotten = self.exchange.forgotten();
        if forgotten > 0 {
            report.notes.push(format!(
                "ledger: the rows of {forgotten} viewers are left out; a sender keeps those of the newest frames, of at most {} \
                 viewers",
                LedgerExchange::MOST_REMOTES
            ));
        }
    }
}
