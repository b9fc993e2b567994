// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchange of the ledgers of both ends of a stream: the rows that this end gives, and those that it has got.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Mutex;

use framepath_model::ledger::Row;

use crate::ledger_message::{FrameRows, MOST_HOPS, RemotePath};
use crate::lock::lock;
use crate::sent_frame::SentFrame;

/// Maximum number of own frames whose rows wait for the network thread; the oldest are forgotten.
const MOST_OUTGOING: usize = 1024;
/// Maximum number of frames of all other ends that are kept; the oldest are forgotten.
const MOST_FRAMES: usize = 1 << 16;
/// Maximum number of rows of all these frames, about 60 MB. Frames of honest ends have one row for each hop.
const MOST_ROWS: usize = 1 << 18;
// Numbers of hops have 16 bits in a report, which also has the hops of this end, and two of the way to each other end.
const _: () = assert!(LedgerExchange::MOST_REMOTES * (MOST_HOPS + 2) < 1 << 13);

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
    /// Value of `ExchangeState::kept` at the last frame.
    last_kept: u64,
}

/// Exchange of the ledgers of both ends of a stream. The threads of the path give rows, and the network thread sends them.
#[derive(Debug, Default)]
pub struct LedgerExchange(Mutex<ExchangeState>);

#[derive(Debug, Default)]
struct ExchangeState {
    /// Path of this end; `None` until the run begins, and without a ledger.
    path: Option<RemotePath>,
    outgoing: VecDeque<FrameRows>,
    /// Maximum number of frames that are kept of each other end, on average.
    most_frames: usize,
    /// Ledgers of the other ends that have sent rows, by the number of the viewer; a sender's has the number 0.
    remotes: BTreeMap<u64, RemoteLedger>,
    /// Viewer and number of the frames in `remotes`, oldest first.
    order: VecDeque<(u64, u64)>,
    /// Number of rows of the frames in `remotes`.
    rows: usize,
    /// Number of frames that were kept, also of those that are forgotten.
    kept: u64,
    /// Numbers of the viewers of whom all frames are forgotten.
    forgotten: BTreeSet<u64>,
}

impl LedgerExchange {
    /// Maximum number of other ends whose frames are kept: as many as watch at once. Of more, those whose last frame is oldest are
    /// forgotten, so that a report does not grow with the number of ended sessions.
    pub const MOST_REMOTES: usize = 64;

    /// Sets the path of this end, and begins the exchange. Paths of more than 64 hops are not exchanged. Of the other ends, the rows
    /// of at most `frames` frames for each end are kept, and of 65,536 frames of all ends.
    pub fn begin(&self, path: RemotePath, frames: usize) {
        lock(&self.0).most_frames = frames;
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
            RemoteLedger { path: remote.path.clone(), frames, ..*remote }
        };
        state.remotes.iter().map(|(viewer, remote)| (*viewer, wanted(remote))).collect()
    }

    /// Returns the number of viewers that have sent rows and of whom all frames are forgotten, because other viewers came later.
    pub fn forgotten(&self) -> usize {
        lock(&self.0).forgotten.len()
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
        if state.remotes.len() >= LedgerExchange::MOST_REMOTES && !state.remotes.contains_key(&viewer) {
            state.forget_oldest_remote();
        }
        state.forgotten.remove(&viewer);
        state.kept += 1;
        let remote = state.remotes.entry(viewer);
        let remote = remote.or_insert_with(|| RemoteLedger { path: path.clone(), ..RemoteLedger::default() });
        remote.last_kept = state.kept;
        state.rows += frame.rows.len();
        match remote.frames.insert(id, frame) {
            Some(before) => state.rows -= before.rows.len(),
            None => state.order.push_back((viewer, id)),
        }
        let most_frames = state.most_frames.saturating_mul(state.remotes.len()).min(MOST_FRAMES);
        while state.order.len() > most_frames || state.rows > MOST_ROWS {
            let Some((viewer, oldest)) = state.order.pop_front() else { break };
            let Entry::Occupied(mut remote) = state.remotes.entry(viewer) else { continue };
            let forgotten = remote.get_mut().frames.remove(&oldest);
            state.rows -= forgotten.map_or(0, |frame| frame.rows.len());
            if remote.get().frames.is_empty() {
                // The path of a viewer that left long ago.
                remote.remove();
                state.forgotten.insert(viewer);
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

impl ExchangeState {
    /// Forgets the other end whose last frame is oldest.
    fn forget_oldest_remote(&mut self) {
        let oldest =
            self.remotes.iter().min_by_key(|(_, remote)| remote.last_kept).map(|(viewer, _)| *viewer);
        let Some((viewer, remote)) = oldest.and_then(|viewer| self.remotes.remove_entry(&viewer)) else {
            return;
        };
        self.rows -= remote.frames.values().map(|frame| frame.rows.len()).sum::<usize>();
        self.order.retain(|(of, _)| *of != viewer);
        self.forgotten.insert(viewer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exchange that keeps as many frames of each other end as possible.
    fn exchange() -> LedgerExchange {
        let exchange = LedgerExchange::default();
        exchange.begin(RemotePath::default(), MOST_FRAMES);
        exchange
    }

    #[test]
    fn as_many_frames_of_each_end_are_kept_as_are_of_use() {
        let exchange = LedgerExchange::default();
        let frame = RemoteFrame { rows: vec![Row::default(); 3], error_ns: 0, departure: None };
        let keep = |viewer, id| exchange.keep(viewer, &RemotePath::default(), id, frame.clone());
        let kept = || {
            let remotes = exchange.remotes(|_| true).into_values();
            remotes.map(|remote| remote.frames.into_keys().min()).collect::<Vec<_>>()
        };
        // Without a ledger here, nobody will look at them.
        keep(1, 0);
        assert_eq!(kept(), []);
        exchange.begin(RemotePath::default(), 10);
        (0..50).for_each(|id| keep(1, id));
        assert_eq!(kept(), [Some(40)]);
        (0..50).for_each(|id| [1, 2].into_iter().for_each(|viewer| keep(viewer, 50 + id)));
        assert_eq!(kept(), [Some(90), Some(90)]);
        assert_eq!(lock(&exchange.0).rows, 2 * 10 * 3);
    }

    #[test]
    fn frames_with_many_rows_are_forgotten_earlier() {
        let exchange = exchange();
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
        assert_eq!(exchange.forgotten(), 1);
    }

    #[test]
    fn of_ended_sessions_the_last_ones_are_kept() {
        const MOST: usize = LedgerExchange::MOST_REMOTES;
        let exchange = exchange();
        let frame = RemoteFrame { rows: vec![Row::default(); 2], error_ns: 0, departure: None };
        for viewer in 2..=2000 {
            // Viewer 1 watches all the time, and the others one after another.
            exchange.keep(1, &RemotePath::default(), viewer, frame.clone());
            exchange.keep(viewer, &RemotePath::default(), viewer, frame.clone());
        }
        let remotes = exchange.remotes(|_| true);
        let last = 2001 - (MOST as u64 - 1)..=2000;
        assert_eq!(
            remotes.keys().copied().collect::<Vec<_>>(),
            [1].into_iter().chain(last).collect::<Vec<_>>()
        );
        assert_eq!((exchange.forgotten(), remotes[&1].frames.len()), (2000 - MOST, 1999));
        let state = lock(&exchange.0);
        let kept: usize = remotes.values().map(|remote| remote.frames.len()).sum();
        assert_eq!((state.order.len(), state.rows), (kept, 2 * kept));
    }
}
