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
    /// The highest number of which a frame was delivered.
    delivered: Option<u64>,
}

impl<P> Forgotten<P> {
    pub(super) fn new() -> Forgotten<P> {
        Forgotten { entries: VecDeque::new(), delivered: None }
    }

    /// Adds a packet behind all others. The oldest leaves where there are too many.
    pub(super) fn push(&mut self, entry: Entry<P>) {
        if self.entries.len() == MOST {
            self.entries.pop_front();
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

    /// A frame of packet `seq`, forgotten or not, was delivered.
    pub(super) fn delivered(&mut self, seq: u64) {
        self.delivered = self.delivered.max(Some(seq));
    }

    /// Drops all, as no frame of them can come any more; returns how many were behind
    /// every packet that gave a frame.
    pub(super) fn clear(&mut self) -> u64 {
        let lost = self.entries.iter().filter(|entry| Some(entry.seq) > self.delivered).count();
        self.entries.clear();
        lost as u64
    }
}
