// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that a book no longer keeps for a replay, although frames of them may
//! still come from the present worker.

use std::collections::VecDeque;

use super::Entry;

/// Forgotten packets whose frames are still known when they come. A decoder gives
/// nothing for so many packets only where they have no picture.
const MOST: usize = 16 * 1024;

/// The last forgotten packets, without their bytes, in decode order.
#[derive(Debug)]
pub(super) struct Forgotten<P> {
    entries: VecDeque<Entry<P>>,
    /// The number of the last packet that is not even known, where there is one.
    unknown: Option<u64>,
    /// Of these, how many may still be owed: without a frame, and behind every packet
    /// that gave one.
    owed: u64,
    /// Frames of unknown packets that may still come.
    may_come: u64,
    /// The highest number and presentation time of which a frame was delivered.
    delivered: (Option<u64>, Option<i64>),
}

impl<P> Forgotten<P> {
    pub(super) fn new() -> Forgotten<P> {
        Forgotten { entries: VecDeque::new(), unknown: None, owed: 0, may_come: 0, delivered: (None, None) }
    }

    /// Adds a packet behind all others. The oldest leaves where there are too many.
    pub(super) fn push(&mut self, entry: Entry<P>) {
        if self.entries.len() == MOST {
            if let Some(oldest) = self.entries.pop_front() {
                self.owed += u64::from(self.owes(&oldest));
                self.may_come += 1;
                self.unknown = Some(oldest.seq);
            }
        }
        self.entries.push_back(entry);
    }

    pub(super) fn get_mut(&mut self, seq: u64) -> Option<&mut Entry<P>> {
        let at = self.entries.binary_search_by_key(&seq, |entry| entry.seq).ok()?;
        Some(&mut self.entries[at])
    }

    pub(super) fn get(&self, seq: u64) -> Option<&Entry<P>> {
        let at = self.entries.binary_search_by_key(&seq, |entry| entry.seq).ok()?;
        Some(&self.entries[at])
    }

    /// True for a packet that was forgotten so long ago that nothing is known of it.
    pub(super) fn is_unknown(&self, seq: u64) -> bool {
        Some(seq) <= self.unknown
    }

    /// A frame of an unknown packet came: it is lost. `false` if that cannot be.
    pub(super) fn lose_unknown(&mut self) -> bool {
        self.owed = self.owed.saturating_sub(1);
        let may_be = self.may_come > 0;
        self.may_come = self.may_come.saturating_sub(1);
        may_be
    }

    /// A frame of packet `seq`, forgotten or not, was delivered.
    pub(super) fn delivered(&mut self, seq: u64, pts: Option<i64>) {
        self.delivered = (self.delivered.0.max(Some(seq)), self.delivered.1.max(pts));
        if Some(seq) > self.unknown {
            // What would be shown before it and is missing gives nothing.
            self.owed = 0;
        }
    }

    /// True if a frame for the reader may still come: the packet gave none, and it is decoded or
    /// shown behind what was delivered. (Times may begin anew where a file is repeated.)
    fn owes(&self, entry: &Entry<P>) -> bool {
        let is_behind = Some(entry.seq) > self.delivered.0 || entry.pts > self.delivered.1;
        entry.delivered == 0 && !entry.closed && !entry.withheld && is_behind
    }

    /// Drops all, as no frame of them can come any more; returns how many may have
    /// been owed.
    pub(super) fn clear(&mut self) -> u64 {
        let lost = self.owed + self.entries.iter().filter(|entry| self.owes(entry)).count() as u64;
        self.entries.clear();
        (self.owed, self.may_come) = (0, 0);
        lost
    }
}
