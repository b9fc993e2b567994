// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a stream in its supervisor: a reader gets every frame once and in
//! order, although the worker that decodes the stream may die.
//!
//! A [`ReplayLog`] keeps the packets since a random access point from which every
//! undelivered frame can be decoded again. After a death the packets are submitted
//! once more, to the next worker; frames that were delivered before are
//! counted per packet and dropped.
//!
//! # Where the history may start
//!
//! It may start at the random access point R once every frame still owed can be
//! decoded by a decoder that starts at R: none may be owed of packets before R
//! or of R's leading pictures (open GOP: after R in decode order, shown before it,
//! made of pictures before it). Frames come in presentation order, and random
//! access points are shown in the order in which they are decoded, after all
//! that is decoded before them. Two rules follow:
//!
//! 1. A frame of R was delivered, then a frame of a packet that is decoded and
//!    shown after R, and each packet before R and each leading picture of R
//!    gave a frame. The rule does not rest on the order alone: some decoders
//!    show a picture too early while they learn how far a stream reorders.
//! 2. Otherwise (packets that give nothing, packets without pts) a frame of
//!    the random access point after R was delivered. A missing frame that would be
//!    shown before that one never comes.
//!
//! So the history is the packets since the last delivered random access point;
//! in streams where rule 1 cannot decide, since the last but one.
//!
//! Both rules hold only for random access points that the bytes confirm
//! ([`RandomAccess::Point`](crate::access_point::RandomAccess)), not for a container's flag alone. A
//! packet that leaves the history without a frame stays known. So a stream whose bytes
//! confirm a wrong point loses nothing while its worker lives, and the losses at a death
//! are counted.
//!
//! # Where a stream resumes
//!
//! After history was lost (a poisoned packet, [`ReplayLog::forget`]), the stream resumes at
//! the next packet that is, or claims to be, a random access point. After a claim, the
//! pictures up to its recovery are decoded and not delivered: they lack what came before.
//!
//! # When a packet is given up
//!
//! The first death leads to a plain replay. A second death without a new frame
//! between leads to a replay on one thread, since with frame threads several
//! packets are being decoded and none can be blamed. Two deaths in a row at the same
//! packet, the second on one thread, with no new frame between: that packet is
//! poisoned, unless it ever gave a frame, because then it can be decoded. Deaths
//! at different packets look as if something else kills the worker. They are tolerated
//! [`FRUITLESS`] times; then the last packet is given up all the same.
//! A new frame clears all suspicion.

mod forgotten;
mod resumption;

use std::collections::VecDeque;
use std::mem;

use forgotten::Forgotten;
use resumption::{Admission, Resumption};

use crate::access_point::RandomAccess;

/// Deaths on one thread in a row, without a new frame between, after which a
/// packet is given up even if each death was at another packet.
pub const FRUITLESS: u32 = 4;

/// Deaths in a row, without a packet taken between, after which the stream is
/// given up.
pub const UNOPENED: u32 = 8;

/// A packet that may have to be submitted again.
#[derive(Debug)]
pub struct ReplayEntry<P> {
    seq: u64,
    pts: Option<i64>,
    access: RandomAccess,
    packet: P,
    /// Frames delivered to the reader, from any worker.
    delivered: u32,
    /// Frames received from the present worker.
    given: u32,
    /// Leading picture of the history's start that is known to give nothing;
    /// frames that a replay makes of it lack their references.
    closed: bool,
    /// Decoded only as reference for later packets: it lacks what was lost before it. Counts
    /// as skipped.
    withheld: bool,
    /// Packets before it are lost.
    after_loss: bool,
}

impl<P> ReplayEntry<P> {
    /// Returns the packet's number.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the presentation time in ticks of the track's time base.
    pub fn pts(&self) -> Option<i64> {
        self.pts
    }

    /// Returns the ability of a decoder to start at this packet.
    pub fn access(&self) -> RandomAccess {
        self.access
    }

    /// Returns true if packets before this one are lost: the decoder has to output what it has
    /// and to start anew, because the numbers of later pictures do not continue the earlier ones.
    pub fn is_after_loss(&self) -> bool {
        self.after_loss
    }

    fn is_point(&self) -> bool {
        self.access == RandomAccess::Point
    }

    /// Returns the packet.
    pub fn packet(&self) -> &P {
        &self.packet
    }

    /// Returns true if it is shown before the random access point at `key`; `None` if a
    /// pts is missing.
    fn shown_before(&self, key: Option<i64>) -> Option<bool> {
        Some(self.pts? < key?)
    }
}

/// Action for a frame that came from the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The reader has not seen it.
    Deliver,
    /// It comes from a replay: the reader has seen it. Give the slot back.
    AlreadyDelivered,
    /// It lacks what was lost before it, and was counted as skipped. Give the slot back.
    Withheld,
    /// The present worker was not given that packet: the worker violates the protocol.
    Unknown,
}

/// Action after a death. Unsent packets are submitted again in every case but the
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPlan {
    /// Submit the history again.
    Replay {
        /// To a worker that decodes on one thread and takes one packet at a
        /// time.
        single_threaded: bool,
    },
    /// As [`RestartPlan::Replay`] on one thread, but the book has dropped the
    /// poisoned packet and all later ones that cannot be decoded without it.
    Skip {
        /// The packet that kills.
        poisoned: u64,
        /// Where the stream resumes, if that has been read yet.
        next: Option<u64>,
    },
    /// Workers die before they take a packet: opening the stream kills.
    GiveUp,
}

/// Packets that [`ReplayLog::abandon`] forgot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abandoned {
    /// Number of packets or frames that had given nothing.
    pub count: u64,
    /// Number of the first of them.
    pub first: Option<u64>,
}

/// The last death.
#[derive(Clone, Copy, Debug)]
struct Death {
    /// Last packet that the worker had taken.
    popped: Option<u64>,
    /// Number of the first packet of the history then.
    start: Option<u64>,
}

/// Memory of one stream; see the module.
#[derive(Debug)]
pub struct ReplayLog<P> {
    /// Packets in decode order, numbers rising; without the skipped ones.
    history: VecDeque<ReplayEntry<P>>,
    /// Packets before the history whose frames may still come.
    forgotten: Forgotten<P>,
    /// Removes the parts that a forgotten packet no longer needs.
    strip: fn(&mut P),
    /// Number of packets of the history that were submitted to the present worker.
    cursor: usize,
    /// Packets below this number were submitted to some worker.
    submitted: u64,
    /// Packets below this number were submitted to a worker that is dead.
    replayed_below: u64,
    /// A point whose first frame came and which rule 1 has not tried as start.
    untried: Option<u64>,
    resumption: Resumption,
    /// Packets that a replay needs are missing before the history: [`ReplayLog::forget`].
    torn: bool,
    /// A frame was delivered since the last death.
    progressed: bool,
    last: Option<Death>,
    /// Deaths since the last progress.
    in_a_row: u32,
    /// Deaths among `in_a_row` on one thread, not counting the first, since the last skip.
    fruitless: u32,
    /// Deaths among `in_a_row` in succession without a packet taken.
    unopened: u32,
    deaths: u64,
    replayed: u64,
    skipped: u64,
    skipped_leading: u64,
}

impl<P> ReplayLog<P> {
    /// Creates an empty book for a new stream. `strip` removes from a packet the parts that
    /// only a replay needs.
    pub fn new(strip: fn(&mut P)) -> ReplayLog<P> {
        ReplayLog {
            history: VecDeque::new(),
            forgotten: Forgotten::new(),
            strip,
            cursor: 0,
            submitted: 0,
            replayed_below: 0,
            untried: None,
            resumption: Resumption::default(),
            torn: false,
            // Before the first death a stream is under no suspicion.
            progressed: true,
            last: None,
            in_a_row: 0,
            fruitless: 0,
            unopened: 0,
            deaths: 0,
            replayed: 0,
            skipped: 0,
            skipped_leading: 0,
        }
    }

    /// Adds the next packet in decode order; numbers rise, gaps are allowed.
    /// After a poisoned packet, drops packets at once until the stream can resume.
    pub fn append(&mut self, seq: u64, pts: Option<i64>, access: RandomAccess, packet: P) {
        debug_assert!(self.history.back().is_none_or(|last| last.seq < seq), "numbers rise");
        let mut entry = ReplayEntry {
            seq,
            pts,
            access,
            packet,
            delivered: 0,
            given: 0,
            closed: false,
            withheld: false,
            after_loss: false,
        };
        if self.admits(&mut entry) {
            self.history.push_back(entry);
        }
    }

    /// Returns the next packet to submit to the present worker.
    pub fn next_unsent(&self) -> Option<&ReplayEntry<P>> {
        self.history.get(self.cursor)
    }

    /// Marks the packet of [`ReplayLog::next_unsent`] as submitted.
    pub fn sent(&mut self) {
        let Some(entry) = self.history.get(self.cursor) else { return };
        if entry.seq < self.submitted {
            self.replayed += 1;
        } else {
            self.submitted = entry.seq.saturating_add(1);
        }
        self.cursor += 1;
    }

    /// Returns the number of the last packet submitted to the present worker for which
    /// `is_it` is true.
    pub fn last_submitted(&self, mut is_it: impl FnMut(&P) -> bool) -> Option<u64> {
        let submitted = self.history.iter().take(self.cursor);
        submitted.rev().find(|entry| is_it(&entry.packet)).map(|entry| entry.seq)
    }

    /// Returns true if [`ReplayLog::append`] keeps every packet: none is dropped because of
    /// a poisoned or forgotten packet before it.
    pub fn takes_all(&self) -> bool {
        self.resumption.admits_all()
    }

    /// Records a frame of packet `seq` from the present worker.
    pub fn arrived(&mut self, seq: u64) -> Arrived {
        // Submitted for the first time to this worker: the reader cannot have seen
        // a frame of it.
        let first_time = seq >= self.replayed_below;
        let Some(at) = self.find(seq) else {
            if let Some(entry) = self.forgotten.get_mut(seq) {
                if entry.closed && !first_time {
                    return Arrived::AlreadyDelivered;
                }
                if entry.withheld {
                    return Arrived::Withheld;
                }
                entry.delivered = entry.delivered.saturating_add(1);
                let pts = entry.pts;
                self.forgotten.delivered(seq, pts);
                self.progressed = true;
                return Arrived::Deliver;
            }
            let trimmed = seq < self.submitted && self.history.front().is_none_or(|start| seq < start.seq);
            return match (trimmed, first_time) {
                (true, true) => {
                    self.progressed = true;
                    Arrived::Deliver
                }
                (true, false) => Arrived::AlreadyDelivered,
                (false, _) => Arrived::Unknown,
            };
        };
        if at >= self.cursor {
            return Arrived::Unknown;
        }
        let entry = &mut self.history[at];
        // Saturates, because a worker may send this as often as it likes.
        entry.given = entry.given.saturating_add(1);
        if entry.given <= entry.delivered || (entry.closed && !first_time) {
            return Arrived::AlreadyDelivered;
        }
        entry.delivered = entry.given;
        if entry.withheld {
            // The worker made progress, although the reader does not see it.
            self.progressed = true;
            return Arrived::Withheld;
        }
        let pts = entry.pts;
        self.forgotten.delivered(seq, pts);
        self.progressed = true;
        self.trim(at);
        Arrived::Deliver
    }

    /// Forgets submitted packets except the last `keep` of them, when the history
    /// has grown too large to be kept. After a death the stream then resumes as after a
    /// poisoned packet, and the packets before count as skipped.
    ///
    /// A frame of a forgotten packet is [`Arrived::Deliver`] when it comes: the last
    /// 16,384 packets are still known to [`ReplayLog::get`], without the stripped parts.
    pub fn forget(&mut self, keep: usize) {
        let forgotten = self.cursor.saturating_sub(keep);
        if forgotten > 0 {
            for mut entry in self.history.drain(..forgotten) {
                (self.strip)(&mut entry.packet);
                self.forgotten.push(entry);
            }
            self.cursor -= forgotten;
            // Also if the history begins at a point: the point's leading pictures may be owed,
            // and their references were forgotten.
            self.torn = true;
        }
    }

    /// Iterates over the kept packets, oldest first.
    pub fn packets(&self) -> impl Iterator<Item = &P> {
        self.history.iter().map(|entry| &entry.packet)
    }

    /// Records the worker's death. `popped` is the last packet it had taken;
    /// `single_threaded` if it decoded on one thread.
    pub fn died(&mut self, popped: Option<u64>, single_threaded: bool) -> RestartPlan {
        self.skipped += self.forgotten.clear();
        if mem::take(&mut self.torn) {
            self.resumption.lose();
            for mut entry in mem::take(&mut self.history) {
                if self.admits(&mut entry) {
                    self.history.push_back(entry);
                }
            }
            self.cursor = self.cursor.min(self.history.len());
        }
        let popped_at = popped.and_then(|seq| self.find(seq)).filter(|at| *at < self.cursor);
        let popped = popped_at.map(|at| self.history[at].seq);
        let start = self.history.front().map(|entry| entry.seq);
        let before = self.last.replace(Death { popped, start });
        let progressed = mem::replace(&mut self.progressed, false);
        self.deaths += 1;
        self.cursor = 0;
        self.replayed_below = self.submitted;
        for entry in &mut self.history {
            entry.given = 0;
        }

        if progressed {
            self.in_a_row = 0;
            self.fruitless = 0;
            self.unopened = 0;
        }
        self.in_a_row += 1;
        self.fruitless += u32::from(single_threaded && !progressed);
        let Some(at) = popped_at else {
            self.unopened += 1;
            if self.unopened >= UNOPENED {
                return RestartPlan::GiveUp;
            }
            return RestartPlan::Replay { single_threaded: single_threaded || self.in_a_row >= 2 };
        };
        self.unopened = 0;

        if single_threaded && !progressed {
            let same = before.is_some_and(|death| death.popped == popped);
            if (same && self.history[at].delivered == 0) || self.fruitless >= FRUITLESS {
                return self.skip(at);
            }
        }
        // Stay on one thread until the history's start has moved on; otherwise the same
        // deaths would repeat at the same place.
        let there_still = before.is_some_and(|death| death.start == start);
        RestartPlan::Replay { single_threaded: self.in_a_row >= 2 || (single_threaded && there_still) }
    }

    /// Returns true for a packet that was forgotten so long ago that [`ReplayLog::get`] does not
    /// know it.
    pub fn is_unknown(&self, seq: u64) -> bool {
        self.forgotten.is_unknown(seq)
    }

    /// Records a frame of packet `seq`, which [is unknown](ReplayLog::is_unknown), from the
    /// present worker: the frame cannot be delivered, and the packet counts as skipped.
    /// Returns false if more such frames came than are possible.
    pub fn lose_unknown(&mut self, seq: u64) -> bool {
        let may_be = self.forgotten.is_unknown(seq) && self.forgotten.lose_unknown();
        self.skipped += u64::from(may_be);
        may_be
    }

    /// Returns the packet appended with number `seq`, while it is known.
    pub fn get(&self, seq: u64) -> Option<&P> {
        match self.find(seq) {
            Some(at) => Some(&self.history[at].packet),
            None => self.forgotten.get(seq).map(|entry| &entry.packet),
        }
    }

    /// Returns the same packet as [`ReplayLog::get`], mutable.
    pub fn get_mut(&mut self, seq: u64) -> Option<&mut P> {
        match self.find(seq) {
            Some(at) => Some(&mut self.history[at].packet),
            None => self.forgotten.get_mut(seq).map(|entry| &mut entry.packet),
        }
    }

    /// Records the worker's death when its packets cannot be submitted again: forgets all
    /// up to `popped`, the last packet it had taken. Packets submitted after that one are
    /// submitted to the next worker.
    pub fn abandon(&mut self, popped: Option<u64>) -> Abandoned {
        let popped = popped.and_then(|seq| self.find(seq)).filter(|at| *at < self.cursor);
        let taken = popped.map_or(0, |at| at + 1);
        let mut lost = Abandoned { count: self.forgotten.clear(), first: None };
        for entry in self.history.drain(..taken).filter(|entry| entry.delivered == 0) {
            lost.first.get_or_insert(entry.seq);
            lost.count += 1;
        }
        for entry in &mut self.history {
            entry.given = 0;
        }
        self.cursor = 0;
        self.replayed_below = self.submitted;
        self.deaths += 1;
        lost
    }

    /// Forgets all packets: the next packet is from another place of the stream, and frames of
    /// the earlier ones are no longer wanted. Returns how many packets had given no frame and
    /// might still have given one: those shown after every delivered frame, or, without times,
    /// decoded after them.
    pub fn flush(&mut self) -> u64 {
        let delivered = |entry: &&ReplayEntry<P>| entry.delivered > 0;
        let last_shown = self.history.iter().filter(delivered).filter_map(|entry| entry.pts).max();
        let last = self.history.iter().filter(delivered).map(|entry| entry.seq).max();
        let owed = self.history.iter().filter(|entry| match (entry.pts, last_shown) {
            _ if entry.delivered > 0 => false,
            (Some(pts), Some(shown)) => pts > shown,
            _ => Some(entry.seq) > last,
        });
        let owed = owed.count() as u64 + self.forgotten.clear();
        let (deaths, replayed) = (self.deaths, self.replayed);
        let (skipped, skipped_leading) = (self.skipped, self.skipped_leading);
        *self = ReplayLog { deaths, replayed, skipped, skipped_leading, ..ReplayLog::new(self.strip) };
        owed
    }

    /// Returns the number of deaths so far.
    pub fn deaths(&self) -> u64 {
        self.deaths
    }

    /// Returns how many packets were submitted again so far; a packet counts each time.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Returns how many packets without a frame were given up so far: the poisoned ones, those
    /// up to the next random access point, and those that lack their references there.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns how many of [`ReplayLog::skipped`] were leading pictures: they are intact, but made of
    /// pictures that were skipped.
    pub fn skipped_leading(&self) -> u64 {
        self.skipped_leading
    }

    /// Returns how many packets the book keeps now.
    pub fn kept(&self) -> usize {
        self.history.len()
    }

    fn find(&self, seq: u64) -> Option<usize> {
        self.history.binary_search_by_key(&seq, |entry| entry.seq).ok()
    }

    /// Returns true if a packet that follows all others in decode order is to be decoded after
    /// a loss. Counts it as skipped if not, or if its frames are withheld.
    fn admits(&mut self, entry: &mut ReplayEntry<P>) -> bool {
        let was_skipping = self.resumption.is_skipping();
        let admission = self.resumption.admit(entry.access, entry.pts);
        entry.after_loss |= was_skipping && !self.resumption.is_skipping();
        let lost = u64::from(entry.delivered == 0 && !entry.withheld);
        match admission {
            Admission::Whole => return true,
            Admission::Withheld => entry.withheld = true,
            Admission::Leading => self.skipped_leading += lost,
            Admission::Skipped => {}
        }
        self.skipped += lost;
        admission == Admission::Withheld
    }

    /// Drops the packet at `poisoned` and the packets that cannot be decoded without it.
    fn skip(&mut self, poisoned: usize) -> RestartPlan {
        let mut behind = self.history.split_off(poisoned).into_iter();
        // The packet exists: the caller found it.
        let first = behind.next().map_or(0, |entry| {
            self.skipped += u64::from(entry.delivered == 0 && !entry.withheld);
            entry.seq
        });
        self.resumption.lose();
        let mut next = None;
        for mut entry in behind {
            if self.admits(&mut entry) {
                next = next.or(Some(entry.seq));
                self.history.push_back(entry);
            }
        }
        // Later deaths are judged on their own.
        self.last = None;
        self.fruitless = 0;
        RestartPlan::Skip { poisoned: first, next }
    }

    /// Moves the start of the history if the frame just delivered, of the
    /// packet at `at`, allows it. Looks through the history a few times per
    /// random access point, not per frame.
    fn trim(&mut self, at: usize) {
        let entry = &self.history[at];
        if entry.is_point() && entry.delivered == 1 {
            // Rule 2, for the point before this one.
            self.untried = Some(entry.seq);
            if let Some(start) = (1..at).rev().find(|at| self.history[*at].is_point()) {
                self.start_at(start);
            }
            return;
        }
        // Rule 1, tried once.
        let Some(key) = self.untried.and_then(|seq| self.find(seq)) else { return };
        let start_pts = self.history[key].pts;
        if at < key || entry.shown_before(start_pts) == Some(true) {
            return;
        }
        self.untried = None;
        let settled = self.history.iter().enumerate().all(|(at, entry)| {
            let owed = at < key || (at > key && entry.shown_before(start_pts) != Some(false));
            !owed || entry.delivered > 0 || entry.withheld
        });
        if settled && key > 0 {
            self.start_at(key);
        }
    }

    fn start_at(&mut self, start: usize) {
        for mut entry in self.history.drain(..start) {
            // By the rules it gives nothing. A stream with false access points breaks them.
            if entry.delivered == 0 {
                (self.strip)(&mut entry.packet);
                self.forgotten.push(entry);
            }
        }
        self.torn = false;
        // A delivered packet had been submitted, and so had all before it.
        debug_assert!(self.cursor >= start, "the start was submitted");
        self.cursor -= start;
        let start_pts = self.history.front().and_then(|entry| entry.pts);
        // Up to the next point: after that, times may restart, as in a file that is looped.
        for entry in self.history.iter_mut().skip(1).take_while(|entry| !entry.is_point()) {
            entry.closed |= entry.delivered == 0 && entry.shown_before(start_pts) == Some(true);
        }
    }
}
