// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that a book no longer keeps for a replay, although their frames may
//! still come from the present worker.

use std::collections::VecDeque;

use super::ReplayEntry;

/// Most forgotten packets whose frames are still recognized. A decoder gives
/// nothing for so many packets only if they have no picture.
const MOST: usize = 16 * 1024;

/// The last forgotten packets, without their bytes, in decode order.
#[derive(Debug)]
pub(super) struct Forgotten<P> {
    entries: VecDeque<ReplayEntry<P>>,
    /// Number of the last packet that is no longer known, if there is one.
    unknown: Option<u64>,
    /// How many unknown packets may still be owed: without a frame, and after every packet
    /// that gave one.
    owed: u64,
    /// Frames of unknown packets that may still come.
    may_come: u64,
    /// Highest number and highest presentation time of a delivered frame's packet.
    delivered: (Option<u64>, Option<i64>),
}

impl<P> Forgotten<P> {
    pub(super) fn new() -> Forgotten<P> {
        Forgotten { entries: VecDeque::new(), unknown: None, owed: 0, may_come: 0, delivered: (None, None) }
    }

    /// Adds a packet after all others. Drops the oldest if there are too many.
    pub(super) fn push(&mut self, entry: ReplayEntry<P>) {
        if self.entries.len() == MOST {
            if let Some(oldest) = self.entries.pop_front() {
                self.owed += u64::from(self.may_output(&oldest));
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

    /// Returns true for a packet that was forgotten so long ago that nothing is known of it.
    pub(super) fn is_unknown(&self, seq: u64) -> bool {
        Some(seq) <= self.unknown
    }

    /// Records the loss of a frame of an unknown packet. Returns false if there can be no such frame.
    pub(super) fn lose_unknown(&mut self) -> bool {
        self.owed = self.owed.saturating_sub(1);
        let may_be = self.may_come > 0;
        self.may_come = self.may_come.saturating_sub(1);
        may_be
    }

    /// Records that a frame of packet `seq`, forgotten or not, was delivered.
    pub(super) fn delivered(&mut self, seq: u64, pts: Option<i64>) {
        self.delivered = (self.delivered.0.max(Some(seq)), self.delivered.1.max(pts));
        if Some(seq) > self.unknown {
            // A missing frame that would be shown before this one never comes.
            self.owed = 0;
        }
    }

    /// Returns true if a frame for the reader may still come: the packet gave none, and it is decoded
    /// or shown after the delivered ones. (Times may restart when a file is looped.)
    fn may_output(&self, entry: &ReplayEntry<P>) -> bool {
        let is_behind = Some(entry.seq) > self.delivered.0 || entry.pts > self.delivered.1;
        entry.delivered == 0 && !entry.closed && !entry.withheld && is_behind
    }

    /// Drops all, because their frames can no longer come; returns how many may have
    /// been owed.
    pub(super) fn clear(&mut self) -> u64 {
        let lost = self.owed + self.entries.iter().filter(|entry| self.may_output(entry)).count() as u64;
        self.entries.clear();
        (self.owed, self.may_come) = (0, 0);
        lost
    }
}
