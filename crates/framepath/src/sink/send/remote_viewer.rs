// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ledgers of a sender and its viewers.

use std::sync::Arc;

use framepath_model::ledger::{Row, flag};
use framepath_net::{FrameRows, LedgerExchange, RemoteFrame, RemoteHop, RemotePath, SentFrame};

use crate::remote_table::{RemoteRows, RemoteTable};
use crate::report::{HopInfo, Report};
use crate::row_tap::RemoteEnd;

/// Viewers, as the run of the sender sees them.
pub(super) struct RemoteViewer(pub(super) Arc<LedgerExchange>);

/// Returns the path that the other end gets: names without arguments, which may be private.
pub(crate) fn remote_path(way: &[&HopInfo], threads: &[String]) -> RemotePath {
    let first_word = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    let hop = |hop: &&HopInfo| RemoteHop { name: first_word(&hop.text), link: hop.link };
    let threads = threads.iter().map(|thread| first_word(thread)).collect();
    RemotePath { hops: way.iter().map(hop).collect(), threads }
}

/// Returns the table of the other end with this path.
pub(crate) fn remote_table(end: &'static str, path: RemotePath, clock_jumps: u64) -> RemoteTable {
    let hops = path.hops.into_iter().map(|hop| (hop.name, hop.link)).collect();
    RemoteTable { end, hops, threads: path.threads, frames: Default::default(), clock_jumps }
}

impl RemoteEnd for RemoteViewer {
    fn last_hop(&self, hops: &[HopInfo]) -> u16 {
        let is_send = |hop: &HopInfo| hop.text.split(' ').next() == Some("send");
        hops.iter().position(is_send).unwrap_or_default() as u16
    }

    fn begin(&self, way: &[&HopInfo], threads: &[String]) {
        let mut path = remote_path(way, threads);
        if let Some(last) = path.hops.last_mut() {
            last.name = "packetise".to_owned();
        }
        path.hops.push(RemoteHop { name: "pace".to_owned(), link: true });
        self.0.begin(path);
    }

    fn push(&self, rows: Vec<Row>) {
        if let Some(id) = rows.first().map(|row| row.seq) {
            self.0.push(FrameRows { id, rows });
        }
    }

    fn finish(&self, report: &mut Report) {
        let remote = self.0.take_remote();
        if remote.path.hops.is_empty() {
            return;
        }
        if remote.frames_of_others > 0 {
            report.notes.push(
                "send: the ledger has the rows of one viewer only, of the first that sent any".to_owned(),
            );
        }
        let mut table = remote_table("viewer", remote.path, remote.clock_jumps);
        let of_frame = |(id, RemoteFrame { rows, error_ns, departure }): (u64, RemoteFrame)| {
            let own = departure.as_ref().map(pace_row).into_iter().collect();
            (id, RemoteRows { rows, error_ns, own })
        };
        table.frames = remote.frames.into_iter().map(of_frame).collect();
        let sink = self.last_hop(&report.hops);
        report.add_viewer(&table, sink);
    }
}

/// Returns the row of a frame's way through the sender's thread. Only its times are set.
fn pace_row(sent: &SentFrame) -> Row {
    let began_ns = sent.began_ns.max(sent.packetized_ns);
    let sent_ns = sent.sent_ns.max(began_ns);
    Row {
        enter_ns: sent.packetized_ns,
        leave_ns: sent_ns,
        queue_ns: began_ns - sent.packetized_ns,
        paced_ns: sent_ns - began_ns,
        flags: flag::LINK,
        ..Row::default()
    }
}
