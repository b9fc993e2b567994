// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchange of the ledgers of both ends of a stream: the rows that this end gives, and those that it has got.

use std::collections::{HashMap, VecDeque};
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

/// Ledger of the other end.
#[derive(Clone, Debug, Default)]
pub struct RemoteLedger {
    /// Path of the other end; without hops if the other end has sent none.
    pub path: RemotePath,
    /// Frames by their number at the sender.
    pub frames: HashMap<u64, RemoteFrame>,
    /// Number of frames that came from viewers other than the first one, and were not kept.
    pub frames_of_others: u64,
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
    remote: RemoteLedger,
    /// Numbers of the frames in `remote`, oldest first.
    order: VecDeque<u64>,
    /// Number of rows of the frames in `remote`.
    rows: usize,
    /// Session whose rows are kept; `None` before the first rows.
    session: Option<u64>,
    next_session: u64,
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

    /// Takes the other end's ledger, as far as it has arrived.
    pub fn take_remote(&self) -> RemoteLedger {
        let mut state = lock(&self.0);
        state.order.clear();
        state.rows = 0;
        std::mem::take(&mut state.remote)
    }

    /// Returns the path of this end; `None` before the run has begun.
    pub(crate) fn path(&self) -> Option<RemotePath> {
        lock(&self.0).path.clone()
    }

    /// Takes the rows that were given since the last call.
    pub(crate) fn take_outgoing(&self) -> VecDeque<FrameRows> {
        std::mem::take(&mut lock(&self.0).outgoing)
    }

    /// Returns the number of a new session.
    pub(crate) fn add_session(&self) -> u64 {
        let mut state = lock(&self.0);
        state.next_session += 1;
        state.next_session
    }

    /// Keeps the rows of a frame that session `session` has got, if it is the first session that got any.
    pub(crate) fn keep(&self, session: u64, path: &RemotePath, id: u64, frame: RemoteFrame) {
        let mut state = lock(&self.0);
        if *state.session.get_or_insert(session) != session {
            state.remote.frames_of_others += 1;
            return;
        }
        if state.remote.path.hops.is_empty() {
            state.remote.path = path.clone();
        }
        state.rows += frame.rows.len();
        match state.remote.frames.insert(id, frame) {
            Some(before) => state.rows -= before.rows.len(),
            None => state.order.push_back(id),
        }
        while state.order.len() > MOST_FRAMES || state.rows > MOST_ROWS {
            let Some(oldest) = state.order.pop_front() else { break };
            let forgotten = state.remote.frames.remove(&oldest);
            state.rows -= forgotten.map_or(0, |frame| frame.rows.len());
        }
    }

    /// Counts a jump of one of the clocks.
    pub(crate) fn count_jumps(&self, jumps: u64) {
        lock(&self.0).remote.clock_jumps += jumps;
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
        let mut kept: Vec<u64> = exchange.take_remote().frames.into_keys().collect();
        kept.sort_unstable();
        assert_eq!(kept, [2, 3, 4, 5, 6, 7, 8, 9]);
        (0..=MOST_FRAMES as u64).for_each(|id| keep(id, 1));
        let frames = exchange.take_remote().frames;
        assert_eq!((frames.len(), frames.contains_key(&0)), (MOST_FRAMES, false));
    }
}
