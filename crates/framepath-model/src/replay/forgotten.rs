// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that the log no longer keeps for a replay, although their frames may still arrive from
//! the present worker.

use std::collections::VecDeque;

use super::ReplayEntry;

/// Maximum number of forgotten packets whose frames are still recognized. A decoder outputs
/// nothing for so many packets only if they contain no picture.
const MAX_FORGOTTEN: usize = 16 * 1024;

/// Forgotten packets of a stream: the last [`MAX_FORGOTTEN`], stripped, in decode order, and counts
/// of the older ones, the unknown packets.
#[derive(Debug)]
pub(super) struct Forgotten<P> {
    entries: VecDeque<ReplayEntry<P>>,
    /// Number of the last unknown packet; `None` if all forgotten packets have entries.
    unknown: Option<u64>,
    /// Number of unknown packets that may still yield a frame: they had yielded none, and they
    /// follow every packet that had.
    outstanding: u64,
    /// Maximum number of frames of unknown packets that may still arrive.
    may_come: u64,
    /// Highest number and highest presentation time of a packet whose frame was delivered; `None`
    /// before the first.
    delivered: (Option<u64>, Option<i64>),
}

impl<P> Forgotten<P> {
    pub(super) fn new() -> Forgotten<P> {
        Forgotten {
            entries: VecDeque::new(),
            unknown: None,
            outstanding: 0,
            may_come: 0,
            delivered: (None, None),
        }
    }

    /// Adds a packet after all others. If the limit is reached, the oldest packet becomes unknown.
    pub(super) fn push(&mut self, entry: ReplayEntry<P>) {
        if self.entries.len() == MAX_FORGOTTEN {
            if let Some(oldest) = self.entries.pop_front() {
                self.outstanding += u64::from(self.may_output(&oldest));
                self.may_come += 1;
                self.unknown = Some(oldest.seq);
            }
        }
        self.entries.push_back(entry);
    }

    pub(super) fn get_mut(&mut self, seq: u64) -> Option<&mut ReplayEntry<P>> {
        let at = self.entries.binary_search_by_key(&seq, |entry| entry.seq).ok()?;
        Some(&mut self.entries[at])
    }

    pub(super) fn get(&self, seq: u64) -> Option<&ReplayEntry<P>> {
        let at = self.entries.binary_search_by_key(&seq, |entry| entry.seq).ok()?;
        Some(&self.entries[at])
    }

    /// Returns true if packet `seq` was forgotten so long ago that no entry for it remains.
    pub(super) fn is_unknown(&self, seq: u64) -> bool {
        Some(seq) <= self.unknown
    }

    /// Records the loss of a frame of an unknown packet. Returns false if no such frame is
    /// possible.
    pub(super) fn lose_unknown(&mut self) -> bool {
        self.outstanding = self.outstanding.saturating_sub(1);
        let may_be = self.may_come > 0;
        self.may_come = self.may_come.saturating_sub(1);
        may_be
    }

    /// Records that a frame of packet `seq`, forgotten or not, was delivered. `pts` is the packet's
    /// presentation time; `None` if not known.
    pub(super) fn delivered(&mut self, seq: u64, pts: Option<i64>) {
        self.delivered = (self.delivered.0.max(Some(seq)), self.delivered.1.max(pts));
        if Some(seq) > self.unknown {
            // A missing frame that would be shown before this one never arrives.
            self.outstanding = 0;
        }
    }

    /// Returns true if the packet may still yield a frame for the reader: it yielded none, and it
    /// is decoded or shown after the delivered ones. (Times may restart if a file is looped.)
    fn may_output(&self, entry: &ReplayEntry<P>) -> bool {
        let is_behind = Some(entry.seq) > self.delivered.0 || entry.pts > self.delivered.1;
        entry.is_outstanding() && !entry.closed && is_behind
    }

    /// Drops all packets, because their frames can no longer arrive. Returns the number of packets
    /// that might still have yielded a frame and that `counts` returns true for.
    pub(super) fn clear(&mut self, mut counts: impl FnMut(u64) -> bool) -> u64 {
        let unknown = self.unknown.unwrap_or(0);
        let mut lost = (0..self.outstanding).filter(|_| counts(unknown)).count() as u64;
        let inside = self.entries.iter().filter(|entry| self.may_output(entry));
        lost += inside.filter(|entry| counts(entry.seq)).count() as u64;
        self.entries.clear();
        (self.outstanding, self.may_come) = (0, 0);
        lost
    }
}
