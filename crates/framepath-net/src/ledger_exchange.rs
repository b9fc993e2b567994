// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchange of the ledgers of both ends of a stream: the rows that this end gives, and those that it has got.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Mutex;

use framepath_model::ledger::Row;

use crate::ledger_message::{FrameRows, MOST_HOPS, RemotePath};
use crate::lock::lock;
use crate::sent_frame::SentFrame;

/// Maximum number of own frames whose rows wait for the network thread; the oldest are forgotten.
const MOST_OUTGOING: usize = 1024;
/// Maximum number of frames of the other end that are kept; the oldest are forgotten.
const MOST_FRAMES: usize = 1 << 16;
/// Maximum number of rows of all these frames, about 200 MB. Frames of honest ends have one row for each hop.
const MOST_ROWS: usize = 1 << 20;

/// Rows of one frame at the other end, in this machine's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFrame {
    /// Rows, in the order of the hops. Times are CLOCK_MONOTONIC of this machine, nanoseconds.
    pub rows: Vec<Row>,
    /// Largest error of the times, nanoseconds: the same for all rows.
    pub error_ns: u64,
    /// Departure of the frame to the end that sent the rows; `None` if the rows are a sender's.
    pub departure: Option<SentFrame>,
}

/// Ledger of one other end.
#[derive(Clone, Debug, Default)]
pub struct RemoteLedger {
    /// Path of the other end; without hops if the other end has sent none.
    pub path: RemotePath,
    /// Frames by their number at the sender.
    pub frames: HashMap<u64, RemoteFrame>,
    /// Number of times that the clock of one of the machines jumped.
    pub clock_jumps: u64,
}

/// Exchange of the ledgers of both ends of a stream. The threads of the path give rows, and the network thread sends them.
#[derive(Debug, Default)]
pub struct LedgerExchange(Mutex<ExchangeState>);

#[derive(Debug, Default)]
struct ExchangeState {
    /// Path of this end; `None` until the run begins, and without a ledger.
    path: Option<RemotePath>,
    outgoing: VecDeque<FrameRows>,
    /// Ledgers of the other ends that have sent rows, by the number of the viewer; a sender's has the number 0.
    remotes: BTreeMap<u64, RemoteLedger>,
    /// Viewer and number of the frames in `remotes`, oldest first.
    order: VecDeque<(u64, u64)>,
    /// Number of rows of the frames in `remotes`.
    rows: usize,
}

impl LedgerExchange {
    /// Sets the path of this end, and begins the exchange. Paths of more than 64 hops are not exchanged.
    pub fn begin(&self, path: RemotePath) {
        if path.hops.len() <= MOST_HOPS && path.threads.len() <= MOST_HOPS {
            lock(&self.0).path = Some(path);
        }
    }

    /// Gives the rows of a frame, to be sent to the other end.
    pub fn push(&self, frame: FrameRows) {
        let mut state = lock(&self.0);
        if state.outgoing.len() == MOST_OUTGOING {
            state.outgoing.pop_front();
        }
        state.outgoing.push_back(frame);
    }

    /// Returns the ledgers of the other ends, as far as they have arrived, by the number of the viewer ([`SentFrame::viewer`]); that of
    /// a sender has the number 0. Leaves out the frames for whose number `is_wanted` returns false.
    pub fn remotes(&self, is_wanted: impl Fn(u64) -> bool) -> BTreeMap<u64, RemoteLedger> {
        let state = lock(&self.0);
        let wanted = |remote: &RemoteLedger| {
            let frames = remote.frames.iter().filter(|(id, _)| is_wanted(**id));
            let frames = frames.map(|(id, frame)| (*id, frame.clone())).collect();
            RemoteLedger { path: remote.path.clone(), frames, clock_jumps: remote.clock_jumps }
        };
        state.remotes.iter().map(|(viewer, remote)| (*viewer, wanted(remote))).collect()
    }

    /// Returns the path of this end; `None` before the run has begun.
    pub(crate) fn path(&self) -> Option<RemotePath> {
        lock(&self.0).path.clone()
    }

    /// Takes the rows that were given since the last call.
    pub(crate) fn take_outgoing(&self) -> VecDeque<FrameRows> {
        std::mem::take(&mut lock(&self.0).outgoing)
    }

    /// Keeps the rows of a frame of the viewer with this number; 0 is the sender.
    pub(crate) fn keep(&self, viewer: u64, path: &RemotePath, id: u64, frame: RemoteFrame) {
        let state = &mut *lock(&self.0);
        let remote = state.remotes.entry(viewer);
        let remote = remote.or_insert_with(|| RemoteLedger { path: path.clone(), ..RemoteLedger::default() });
        state.rows += frame.rows.len();
        match remote.frames.insert(id, frame) {
            Some(before) => state.rows -= before.rows.len(),
            None => state.order.push_back((viewer, id)),
        }
        while state.order.len() > MOST_FRAMES || state.rows > MOST_ROWS {
            let Some((viewer, oldest)) = state.order.pop_front() else { break };
            let Entry::Occupied(mut remote) = state.remotes.entry(viewer) else { continue };
            let forgotten = remote.get_mut().frames.remove(&oldest);
            state.rows -= forgotten.map_or(0, |frame| frame.rows.len());
            if remote.get().frames.is_empty() {
                // The path of a viewer that left long ago.
                remote.remove();
            }
        }
    }

    /// Counts jumps of the clock of this machine, or of that of the viewer with this number; 0 is the sender.
    pub(crate) fn count_jumps(&self, viewer: u64, jumps: u64) {
        if let Some(remote) = lock(&self.0).remotes.get_mut(&viewer) {
            remote.clock_jumps += jumps;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_with_many_rows_are_forgotten_earlier() {
        let exchange = LedgerExchange::default();
        let keep = |id: u64, rows: usize| {
            let rows = vec![Row::default(); rows];
            exchange.keep(1, &RemotePath::default(), id, RemoteFrame { rows, error_ns: 0, departure: None });
        };
        // The same number again does not count twice.
        for id in 0..20 {
            keep(id / 2, MOST_ROWS / 8);
        }
        let ids = |exchange: &LedgerExchange| -> Vec<u64> {
            exchange.remotes(|_| true).into_values().flat_map(|remote| remote.frames.into_keys()).collect()
        };
        let mut kept = ids(&exchange);
        kept.sort_unstable();
        assert_eq!(kept, [2, 3, 4, 5, 6, 7, 8, 9]);
        (0..MOST_FRAMES as u64).for_each(|id| keep(id, 1));
        // A viewer whose frames are all forgotten is forgotten, too.
        let frame = RemoteFrame { rows: vec![Row::default()], error_ns: 0, departure: None };
        (0..MOST_FRAMES as u64).for_each(|id| exchange.keep(2, &RemotePath::default(), id, frame.clone()));
        let remotes = exchange.remotes(|id| id > 0);
        assert_eq!(remotes.keys().collect::<Vec<_>>(), [&2]);
        assert_eq!(remotes[&2].frames.len(), MOST_FRAMES - 1);
    }
}
