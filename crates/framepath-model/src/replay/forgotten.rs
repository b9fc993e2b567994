// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that the log no longer keeps for a replay, although their frames may still arrive from
//! the present worker.

use std::collections::VecDeque;

use super::ReplayEntry;

/// Maximum number of forgotten packets that keep an entry, so that a frame of them is recognized.
/// Only for packets without pictures does a decoder output nothing for so long.
const MAX_FORGOTTEN: usize = 16 * 1024;

/// Forgotten packets of a stream. The last [`MAX_FORGOTTEN`] have an entry, in decode order; their
/// packets are stripped: without the parts that only a replay needs. The older ones are the *unknown
/// packets*: only counts of them remain.
#[derive(Debug)]
pub(super) struct Forgotten<P> {
    entries: VecDeque<ReplayEntry<P>>,
    /// Sequence number of the newest unknown packet; `None` if all forgotten packets have entries.
    unknown: Option<u64>,
    /// Number of unknown packets that may still yield a frame for the reader:
    /// [`Forgotten::may_output`] was true when the packet became unknown, and no frame of a packet
    /// after the unknown ones was recorded by [`Forgotten::delivered`] since. Each frame that
    /// arrives of an unknown packet reduces the number by one; [`Forgotten::clear`] sets it to 0.
    outstanding: u64,
    /// Maximum number of frames of unknown packets that may still arrive: one for each packet that
    /// became unknown since the last [`Forgotten::clear`], less those that arrived.
    may_come: u64,
    /// Highest number of the packets that [`Forgotten::delivered`] recorded; `None` before the first.
    delivered: Option<u64>,
    /// Highest presentation time of these packets, and the number of its packet; `None` before the
    /// first time. Begins anew where times restart.
    latest: Option<(i64, u64)>,
    /// Number of the last random access point at which times restarted; 0 before the first.
    restart: u64,
    /// Number and presentation time of the packet that [`Forgotten::delivered`] recorded last.
    last: (Option<u64>, Option<i64>),
    /// True if a frame came right behind one of a later packet and a later time, as from a filter that reverses
    /// a stream. Decoders do not do this. From then on, the frame of every packet may still arrive.
    reorders: bool,
}

impl<P> Forgotten<P> {
    pub(super) fn new() -> Forgotten<P> {
        Forgotten {
            entries: VecDeque::new(),
            unknown: None,
            outstanding: 0,
            may_come: 0,
            delivered: None,
            latest: None,
            restart: 0,
            last: (None, None),
            reorders: false,
        }
    }

    /// Adds a packet, later in decode order than all others. If [`MAX_FORGOTTEN`] packets have an entry,
    /// the oldest of them becomes unknown.
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

    /// Returns true if packet `seq` is not newer than the newest unknown packet, so that it has no
    /// entry.
    pub(super) fn is_unknown(&self, seq: u64) -> bool {
        Some(seq) <= self.unknown
    }

    /// Records that a frame of an unknown packet arrived. The frame is lost, because its packet has
    /// no entry. Returns false if as many such frames have arrived before as packets became
    /// unknown, both since the last [`Forgotten::clear`].
    pub(super) fn lose_unknown(&mut self) -> bool {
        self.outstanding = self.outstanding.saturating_sub(1);
        let may_be = self.may_come > 0;
        self.may_come = self.may_come.saturating_sub(1);
        may_be
    }

    /// Records that a new frame of packet `seq`, forgotten or not, arrived and was delivered, or
    /// withheld because a seek skips it. (A frame that is withheld because it lacks references is
    /// not recorded.) `pts` is the packet's presentation time; `None` if not known. `is_point` is true
    /// if the packet is a random access point that its bytes confirm.
    pub(super) fn delivered(&mut self, seq: u64, pts: Option<i64>, is_point: bool) {
        let is_earlier = matches!((pts, self.last.1), (Some(now), Some(last)) if now < last);
        self.reorders |= Some(seq) < self.last.0 && is_earlier;
        self.last = (Some(seq), pts);
        self.delivered = self.delivered.max(Some(seq));
        let now = pts.map(|pts| (pts, seq));
        let restarts = matches!((now, self.latest), (Some((now, _)), Some((then, before))) if before < seq && now < then);
        if is_point && restarts {
            // A random access point is shown after all pictures decoded before it, so an earlier time
            // cannot be of the same sequence of times.
            (self.restart, self.latest) = (seq, now);
        } else {
            self.latest = self.latest.max(now);
        }
        if Some(seq) > self.unknown && !self.reorders {
            // Decoders output frames in presentation order: a missing frame that would be shown before
            // this one never arrives.
            self.outstanding = 0;
        }
    }

    /// Returns true if the packet may still yield a frame for the reader: the packet yielded none;
    /// its frame is not discarded, withheld or without references in a replay; and the packet
    /// follows every packet with a delivered frame, in decode order or in presentation time. (One
    /// of the two is enough, because times may restart, as in a looped file. Times from before a restart do
    /// not count: a decoder outputs the frames of the earlier packets before those behind the restart.) If
    /// the stage reorders frames, the place of the packet does not matter.
    pub(super) fn may_output(&self, entry: &ReplayEntry<P>) -> bool {
        let is_later = entry.seq >= self.restart && entry.pts > self.latest.map(|(pts, _)| pts);
        let is_behind = Some(entry.seq) > self.delivered || is_later;
        entry.is_outstanding() && !entry.closed && (is_behind || self.reorders)
    }

    /// Returns the number of the last random access point with a frame at which times restarted; 0 before the
    /// first.
    pub(super) fn restart(&self) -> u64 {
        self.restart
    }

    /// Drops all packets, because their frames can no longer arrive. Calls `counts` with the number
    /// of each packet that might still have yielded a frame for the reader. (For all unknown
    /// packets, this is the number of the newest.) Returns the number of calls that returned true.
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
