// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a supervisor remembers of a stream, so that a reader sees every frame
//! once and in order although the worker that decodes it may die.
//!
//! A [`Book`] keeps the packets since a random access point from which all
//! that was not delivered can be had again. After a death they are submitted
//! once more, to the next worker; frames that were delivered before are
//! counted off per packet and dropped.
//!
//! # Where the history may start
//!
//! It may start at the random access point R once nothing is owed any more that a
//! decoder starting at R could not give: neither a frame of a packet before R,
//! nor one of R's leading pictures (open GOP: behind R in decode order, shown
//! before it, made of pictures before it). Frames come in presentation order,
//! and random access points are shown in the order in which they are decoded,
//! behind all that is decoded before them. Two rules follow:
//!
//! 1. A frame of R was delivered, then one of a packet that is decoded and
//!    shown after R, and each packet before R and each leading picture of R
//!    gave a frame. It does not rest on the order alone: decoders exist that
//!    show a picture too early while they learn how far a stream reorders.
//! 2. Otherwise (packets that give nothing, packets without pts) a frame of
//!    the random access point behind R was delivered. What would be shown
//!    before that one and is missing gives nothing.
//!
//! So the history is the packets since the last delivered random access point,
//! and in streams where rule 1 cannot tell, since the last but one.
//!
//! Both rules hold for random access points that the bytes confirm
//! ([`Access::Point`](crate::access_point::Access)), and for no flag of a container. A
//! packet that leaves the history without a frame stays known, so that a stream that
//! confirms what is wrong loses nothing while its worker lives, and what a death then
//! costs is counted.
//!
//! # Where a stream resumes
//!
//! Where history was lost (a poisoned packet, [`Book::forget`]), the stream goes on at
//! the next packet that is, or claims to be, a random access point. Of a claim the
//! pictures up to its recovery are decoded and not delivered: they lack what came before.
//!
//! # When a packet is given up
//!
//! The first death leads to a plain replay. A second one without a new frame
//! between leads to a replay on one thread, since with frame threads several
//! packets are inside and none can be blamed. Two deaths in a row at the same
//! packet, the second on one thread, with no new frame between: that packet is
//! poisoned, unless it ever gave a frame, for then it can be decoded. Deaths
//! at different packets look like somebody killing the worker, and are borne
//! [`FRUITLESS`] times before the last packet is given up all the same.
//! A new frame clears all suspicion.

mod forgotten;
mod resumption;

use std::collections::VecDeque;
use std::mem;

use forgotten::Forgotten;
use resumption::{Admission, Resumption};

use crate::access_point::Access;

/// Deaths on one thread in a row, without a new frame between, after which a
/// packet is given up even if each death was at another packet.
pub const FRUITLESS: u32 = 4;

/// Deaths in a row, without a packet taken between, after which the stream is
/// given up.
pub const UNOPENED: u32 = 8;

/// A packet that may have to be submitted again.
#[derive(Debug)]
pub struct Entry<P> {
    seq: u64,
    pts: Option<i64>,
    access: Access,
    packet: P,
    /// Frames delivered to the reader, from whichever worker.
    delivered: u32,
    /// Frames that came from the present worker.
    given: u32,
    /// Leading picture of the history's start that is known to give nothing;
    /// what a replay makes of it lacks its references.
    closed: bool,
    /// Decoded for those behind it alone: it lacks what was lost before it. Counts as
    /// skipped.
    withheld: bool,
}

impl<P> Entry<P> {
    /// The packet's number.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Presentation time in ticks of the track's time base.
    pub fn pts(&self) -> Option<i64> {
        self.pts
    }

    /// What decoding can do here.
    pub fn access(&self) -> Access {
        self.access
    }

    fn is_point(&self) -> bool {
        self.access == Access::Point
    }

    /// The packet.
    pub fn packet(&self) -> &P {
        &self.packet
    }

    /// Shown before the random access point at `key`; `None` where a pts is
    /// missing.
    fn shown_before(&self, key: Option<i64>) -> Option<bool> {
        Some(self.pts? < key?)
    }
}

/// What to do with a frame that came from the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The reader has not seen it.
    Deliver,
    /// It comes from a replay: the reader has seen it. Give the slot back.
    AlreadyDelivered,
    /// It lacks what was lost before it, and was counted as skipped. Give the slot back.
    Withheld,
    /// The present worker was not given that packet: it is lying.
    Unknown,
}

/// What to do after a death. Unsent packets begin anew in every case but the
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Submit the history again.
    Replay {
        /// To a worker that decodes on one thread and takes one packet at a
        /// time.
        single_threaded: bool,
    },
    /// As [`Plan::Replay`] on one thread, but the book has dropped the
    /// poisoned packet and all behind it that cannot be decoded without it.
    Skip {
        /// The packet that kills.
        poisoned: u64,
        /// Where the stream resumes, if that has been read yet.
        next: Option<u64>,
    },
    /// Workers die before they take a packet: opening the stream kills.
    GiveUp,
}

/// What [`Book::abandon`] forgot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abandoned {
    /// Packets or frames that had given nothing.
    pub count: u64,
    /// Number of the first of them.
    pub first: Option<u64>,
}

/// The last death.
#[derive(Clone, Copy, Debug)]
struct Death {
    /// Packet the worker had taken last.
    popped: Option<u64>,
    /// Number of the first packet of the history then.
    start: Option<u64>,
}

/// The memory of one stream; see the module.
#[derive(Debug)]
pub struct Book<P> {
    /// In decode order, numbers rising. Skipped packets are not in it.
    history: VecDeque<Entry<P>>,
    /// Packets before the history whose frames may still come.
    forgotten: Forgotten<P>,
    /// Takes away what a forgotten packet needs no more.
    strip: fn(&mut P),
    /// `history[..cursor]` was submitted to the present worker.
    cursor: usize,
    /// Packets below this number were submitted to some worker.
    submitted: u64,
    /// Packets below this number were submitted to a worker that is dead.
    replayed_below: u64,
    /// A point whose first frame came, not yet tried as start by rule 1.
    untried: Option<u64>,
    resumption: Resumption,
    /// Packets before the history are missing for a replay: [`Book::forget`].
    torn: bool,
    /// A frame was delivered since the last death.
    progressed: bool,
    last: Option<Death>,
    /// Deaths since the last progress.
    in_a_row: u32,
    /// Of these, on one thread, without the first and since the last skip.
    fruitless: u32,
    /// Of these, in a row, without a packet taken.
    unopened: u32,
    deaths: u64,
    replayed: u64,
    skipped: u64,
    skipped_leading: u64,
}

impl<P> Book<P> {
    /// An empty book for a new stream. `strip` takes from a packet what only a replay
    /// needs.
    pub fn new(strip: fn(&mut P)) -> Book<P> {
        Book {
            history: VecDeque::new(),
            forgotten: Forgotten::new(),
            strip,
            cursor: 0,
            submitted: 0,
            replayed_below: 0,
            untried: None,
            resumption: Resumption::default(),
            torn: false,
            // Nothing is held against a stream before its first death.
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
    /// Behind a poisoned packet it is dropped at once, until the stream can resume.
    pub fn append(&mut self, seq: u64, pts: Option<i64>, access: Access, packet: P) {
        debug_assert!(self.history.back().is_none_or(|last| last.seq < seq), "numbers rise");
        let mut entry =
            Entry { seq, pts, access, packet, delivered: 0, given: 0, closed: false, withheld: false };
        if self.admits(&mut entry) {
            self.history.push_back(entry);
        }
    }

    /// The next packet to submit to the present worker.
    pub fn next_unsent(&self) -> Option<&Entry<P>> {
        self.history.get(self.cursor)
    }

    /// The packet of [`Book::next_unsent`] was submitted.
    pub fn sent(&mut self) {
        let Some(entry) = self.history.get(self.cursor) else { return };
        if entry.seq < self.submitted {
            self.replayed += 1;
        } else {
            self.submitted = entry.seq.saturating_add(1);
        }
        self.cursor += 1;
    }

    /// Number of the last packet, of those submitted to the present worker, for which
    /// `is_it` is true.
    pub fn last_submitted(&self, mut is_it: impl FnMut(&P) -> bool) -> Option<u64> {
        let submitted = self.history.iter().take(self.cursor);
        submitted.rev().find(|entry| is_it(&entry.packet)).map(|entry| entry.seq)
    }

    /// True where [`Book::append`] keeps every packet: none has to be dropped because of
    /// a poisoned or forgotten one before it.
    pub fn takes_all(&self) -> bool {
        self.resumption.admits_all()
    }

    /// A frame of packet `seq` came from the present worker.
    pub fn arrived(&mut self, seq: u64) -> Arrived {
        // Submitted for the first time to this worker: there is no frame of it
        // that the reader could have seen.
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
        // Saturating: a worker may say this as often as it likes.
        entry.given = entry.given.saturating_add(1);
        if entry.given <= entry.delivered || (entry.closed && !first_time) {
            return Arrived::AlreadyDelivered;
        }
        entry.delivered = entry.given;
        if entry.withheld {
            // The worker got on, although the reader does not see it.
            self.progressed = true;
            return Arrived::Withheld;
        }
        let pts = entry.pts;
        self.forgotten.delivered(seq, pts);
        self.progressed = true;
        self.trim(at);
        Arrived::Deliver
    }

    /// Forgets submitted packets, but for the last `keep` of them, where the history
    /// has grown too large to be kept. After a death the stream then resumes as behind a
    /// poisoned packet, and what lies before counts as skipped.
    ///
    /// A frame of a forgotten packet is [`Arrived::Deliver`] when it comes: the last
    /// 16,384 are still known to [`Book::get`], without what is stripped.
    pub fn forget(&mut self, keep: usize) {
        let forgotten = self.cursor.saturating_sub(keep);
        if forgotten > 0 {
            for mut entry in self.history.drain(..forgotten) {
                (self.strip)(&mut entry.packet);
                self.forgotten.push(entry);
            }
            self.cursor -= forgotten;
            // Also where it begins at a point: that point's leading pictures may be owed, and
            // what they are made of was forgotten.
            self.torn = true;
        }
    }

    /// The packets that are kept, oldest first.
    pub fn packets(&self) -> impl Iterator<Item = &P> {
        self.history.iter().map(|entry| &entry.packet)
    }

    /// The worker died. `popped` is the last packet it had taken;
    /// `single_threaded` how it decoded.
    pub fn died(&mut self, popped: Option<u64>, single_threaded: bool) -> Plan {
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
                return Plan::GiveUp;
            }
            return Plan::Replay { single_threaded: single_threaded || self.in_a_row >= 2 };
        };
        self.unopened = 0;

        if single_threaded && !progressed {
            let same = before.is_some_and(|death| death.popped == popped);
            if (same && self.history[at].delivered == 0) || self.fruitless >= FRUITLESS {
                return self.skip(at);
            }
        }
        // One thread is kept until the place of the trouble has been left
        // behind, else the same steps would be taken again to the same place.
        let there_still = before.is_some_and(|death| death.start == start);
        Plan::Replay { single_threaded: self.in_a_row >= 2 || (single_threaded && there_still) }
    }

    /// True for a packet that was forgotten so long ago that [`Book::get`] knows nothing
    /// of it.
    pub fn is_unknown(&self, seq: u64) -> bool {
        self.forgotten.is_unknown(seq)
    }

    /// A frame of packet `seq`, which [is unknown](Book::is_unknown), came from the
    /// present worker: it cannot be delivered, and the packet counts as skipped. `false`
    /// where more such frames came than can.
    pub fn lose_unknown(&mut self, seq: u64) -> bool {
        let may_be = self.forgotten.is_unknown(seq) && self.forgotten.lose_unknown();
        self.skipped += u64::from(may_be);
        may_be
    }

    /// What was appended for packet `seq`, while it is known.
    pub fn get(&self, seq: u64) -> Option<&P> {
        match self.find(seq) {
            Some(at) => Some(&self.history[at].packet),
            None => self.forgotten.get(seq).map(|entry| &entry.packet),
        }
    }

    /// As [`Book::get`], to change it.
    pub fn get_mut(&mut self, seq: u64) -> Option<&mut P> {
        match self.find(seq) {
            Some(at) => Some(&mut self.history[at].packet),
            None => self.forgotten.get_mut(seq).map(|entry| &mut entry.packet),
        }
    }

    /// The worker died, and what it had taken cannot be given again: forgets all up
    /// to `popped`, the last that it had taken. What was submitted behind that is
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

    /// Forgets all packets: what comes next is from another place of the stream, and no frame of
    /// what came before is wanted. How many packets had given no frame and may have been
    /// about to: shown behind every frame that was delivered, or, without times, decoded
    /// behind them.
    pub fn flush(&mut self) -> u64 {
        let delivered = |entry: &&Entry<P>| entry.delivered > 0;
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
        *self = Book { deaths, replayed, skipped, skipped_leading, ..Book::new(self.strip) };
        owed
    }

    /// Deaths so far.
    pub fn deaths(&self) -> u64 {
        self.deaths
    }

    /// Packets submitted again so far, each as often as it was.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Packets given up so far that had given no frame: the poisoned ones, those
    /// up to the next random access point, and what lacks its references there.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Of [`Book::skipped`], the leading pictures: they are intact, but made of
    /// pictures that were skipped.
    pub fn skipped_leading(&self) -> u64 {
        self.skipped_leading
    }

    /// Packets the book keeps now.
    pub fn kept(&self) -> usize {
        self.history.len()
    }

    fn find(&self, seq: u64) -> Option<usize> {
        self.history.binary_search_by_key(&seq, |entry| entry.seq).ok()
    }

    /// Whether a packet that follows all others in decode order is to be decoded after
    /// what was skipped; counts it where not, and where what it gives is withheld.
    fn admits(&mut self, entry: &mut Entry<P>) -> bool {
        let admission = self.resumption.admit(entry.access, entry.pts);
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

    /// Drops the packet at `poisoned` and what cannot be decoded without it.
    fn skip(&mut self, poisoned: usize) -> Plan {
        let mut behind = self.history.split_off(poisoned).into_iter();
        // The packet is there: the caller found it.
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
        // What comes next is judged for itself.
        self.last = None;
        self.fruitless = 0;
        Plan::Skip { poisoned: first, next }
    }

    /// Moves the start of the history where the frame just delivered, of the
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
            // By the rules it gives nothing. A stream whose points are none breaks them.
            if entry.delivered == 0 {
                (self.strip)(&mut entry.packet);
                self.forgotten.push(entry);
            }
        }
        self.torn = false;
        // What was delivered had been submitted, and so had all before it.
        debug_assert!(self.cursor >= start, "the start was submitted");
        self.cursor -= start;
        let start_pts = self.history.front().and_then(|entry| entry.pts);
        // Up to the next point: behind that, times may begin anew, as where a file is repeated.
        for entry in self.history.iter_mut().skip(1).take_while(|entry| !entry.is_point()) {
            entry.closed |= entry.delivered == 0 && entry.shown_before(start_pts) == Some(true);
        }
    }
}
