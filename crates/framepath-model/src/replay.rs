// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replay log of a stream, kept by the supervisor of its worker. The log makes sure that the
//! reader gets every frame once and in order, even if a worker dies.
//!
//! A [`ReplayLog`] keeps all packets from a random access point on, from which every undelivered
//! frame can be decoded. After a worker's death, the supervisor submits them to the next worker.
//! The log counts the delivered frames of each packet, so that no frame is delivered twice.
//!
//! # Start of the history
//!
//! The history may start at the random access point R if a decoder that starts at R can decode
//! every outstanding frame. So no outstanding frame may belong to a packet before R or to a
//! leading picture of R. (Open GOP: a leading picture follows R in decode order, is shown before
//! R, and refers to pictures before R.) Decoders output frames in presentation order. Random
//! access points are shown in the order in which they are decoded, after all pictures decoded
//! before them. Two rules follow:
//!
//! 1. R and one packet that is decoded and shown after R have each yielded a frame, and so has
//!    every packet before R and every leading picture of R. The rule does not rely on the order
//!    alone: some decoders output a picture too early while they learn how far a stream reorders.
//! 2. If rule 1 cannot decide (packets that yield no frame, packets without pts): the random
//!    access point after R has yielded a frame. A missing frame that would be shown before that
//!    frame never arrives.
//!
//! So the history starts at the last delivered random access point, or at the last but one in
//! streams where rule 1 cannot decide.
//!
//! Both rules apply only to random access points that the bytes confirm
//! ([`RandomAccess::Point`](crate::access_point::RandomAccess)). A container's flag alone is not
//! enough. A packet that leaves the history without a frame is remembered. So a wrong point loses
//! nothing while the worker lives, and a death counts the losses.
//!
//! # Resuming a stream
//!
//! If history is lost (a poisoned packet, [`ReplayLog::forget`]), the stream resumes at the next
//! packet that is a random access point, or is flagged as one. After a packet that is only
//! flagged, pictures lack references, so they are not delivered until the recovery is complete.
//!
//! # Frames that are left out
//!
//! A seek or an edit list leaves frames out ([`Preroll`]). Workers do not output the frame of a
//! discarded packet, so this packet is never outstanding and its loss is no loss. A seek by number
//! skips the next n frames in presentation order. The log withholds these frames and counts each as
//! delivered, so that no replay delivers them. A packet that is lost before its frame arrived
//! reduces the count, too. (The count is of frames: if packets are fields, such a loss reduces it
//! too much.)
//!
//! # Giving up a packet
//!
//! The first death leads to a plain replay. A second death without a new frame in between leads
//! to a replay on one thread, because with frame threads no single packet can be blamed.
//!
//! A packet is *poisoned* if two deaths in a row happen at it, the second on one thread, with no
//! new frame in between. A packet that has ever yielded a frame is not poisoned, because it can
//! be decoded. Deaths at different packets suggest another cause. They are tolerated
//! [`FRUITLESS`] times; then the last packet is given up. A new frame resets all counts.

mod entry;
mod forgotten;
mod resumption;
mod seek_skips;

use std::collections::VecDeque;
use std::mem;

pub use entry::ReplayEntry;
use forgotten::Forgotten;
use resumption::{Admission, Resumption};
use seek_skips::SeekSkips;

use crate::access_point::RandomAccess;
use crate::stream::Preroll;

/// Number of single-threaded deaths in a row, each without a new frame since the death before it,
/// after which a packet is given up even if each death happened at another packet.
pub const FRUITLESS: u32 = 4;

/// Number of deaths in a row, each before the worker took a packet, after which the stream is given
/// up.
pub const UNOPENED: u32 = 8;

/// Action of the supervisor for a frame received from the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The reader does not have the frame: deliver it.
    Deliver,
    /// The frame is from a replay, and the reader has it already. Return the slot.
    AlreadyDelivered,
    /// The reader does not get the frame: a seek skips it, or it lacks its references and its packet
    /// was counted as skipped. Return the slot.
    Withheld,
    /// The packet was never submitted to the present worker: the worker violates the protocol.
    Unknown,
}

/// Action after a death. In every case but the last, unsent packets are submitted too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPlan {
    /// Submit the history to the next worker.
    Replay {
        /// True if the next worker has to decode on one thread and take one packet at a time.
        single_threaded: bool,
    },
    /// As [`RestartPlan::Replay`] on one thread. The log has dropped the poisoned packet and all
    /// later packets that cannot be decoded without it.
    Skip {
        /// Number of the packet that is given up.
        poisoned: u64,
        /// Number of the packet where the stream resumes; `None` if that packet was not read yet.
        next: Option<u64>,
    },
    /// Workers die before they take a packet, so the cause is the opening of the stream.
    GiveUp,
}

/// Packets or frames without output that [`ReplayLog::abandon`] dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abandoned {
    /// Number of dropped packets or frames that had yielded no output and might still have.
    pub count: u64,
    /// Sequence number of the first of them; `None` if there is none in the history.
    pub first: Option<u64>,
}

/// Facts about the last death of a worker.
#[derive(Clone, Copy, Debug)]
struct Death {
    /// Number of the last packet of the history that the worker had taken; `None` if there is none.
    popped: Option<u64>,
    /// Number of the first packet of the history at that time; `None` if the history was empty.
    start: Option<u64>,
}

/// Replay log of one stream; see the module.
#[derive(Debug)]
pub struct ReplayLog<P> {
    /// Packets in decode order, with rising numbers. Packets that the log skips are removed.
    history: VecDeque<ReplayEntry<P>>,
    /// Packets before the history whose frames may still arrive.
    forgotten: Forgotten<P>,
    /// Function that removes the parts of a packet which a forgotten packet no longer needs.
    strip: fn(&mut P),
    /// Number of packets in the history that were submitted to the present worker.
    cursor: usize,
    /// Number after the highest packet number submitted to any worker; 0 before the first.
    submitted: u64,
    /// Number after the highest packet number submitted to a worker that died; 0 before a death.
    replayed_below: u64,
    /// Number of the last random access point that has yielded its first frame, until rule 1 is tried for
    /// it; `None` if there is none.
    untried: Option<u64>,
    resumption: Resumption,
    seek_skips: SeekSkips,
    /// True if [`ReplayLog::forget`] dropped packets that a replay would need.
    incomplete: bool,
    /// True if a new frame was delivered or withheld since the last death; also before the first death.
    progressed: bool,
    last: Option<Death>,
    /// Number of deaths since the last delivered or withheld new frame, as of the last death.
    in_a_row: u32,
    /// Number of single-threaded deaths in `in_a_row` since the last skip, without the row's first.
    fruitless: u32,
    /// Number of the latest deaths in `in_a_row` that happened before a packet was taken.
    unopened: u32,
    deaths: u64,
    replayed: u64,
    skipped: u64,
    skipped_leading: u64,
}

impl<P> ReplayLog<P> {
    /// Creates an empty log. `strip` removes the parts of a packet that only a replay needs.
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
            seek_skips: SeekSkips::default(),
            incomplete: false,
            // Counts as progress: the first death of a stream is no repetition.
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

    /// Adds the next packet in decode order. Numbers rise; gaps are allowed. After a loss, packets
    /// are dropped, and count as skipped, until the stream can resume. `pts` is the presentation time in
    /// ticks of the track's time base; `None` if not known.
    pub fn append(&mut self, seq: u64, pts: Option<i64>, access: RandomAccess, packet: P) {
        self.append_preroll(seq, pts, access, Preroll::default(), packet);
    }

    /// Adds a packet as [`ReplayLog::append`] does. `preroll` names the frames that are not
    /// delivered. The log withholds the frames of `preroll.skipped`, so workers must output them.
    /// Workers must not output the frame of a packet with `preroll.discarded`.
    pub fn append_preroll(
        &mut self,
        seq: u64,
        pts: Option<i64>,
        access: RandomAccess,
        preroll: Preroll,
        packet: P,
    ) {
        debug_assert!(self.history.back().is_none_or(|last| last.seq < seq), "numbers rise");
        self.seek_skips.begin(seq, preroll.skipped);
        let mut entry = ReplayEntry::new(seq, pts, access, preroll.discarded, packet);
        if self.admits(&mut entry) {
            self.history.push_back(entry);
        }
    }

    /// Returns the next packet to submit to the present worker; `None` if all are submitted.
    pub fn next_unsent(&self) -> Option<&ReplayEntry<P>> {
        self.history.get(self.cursor)
    }

    /// Marks the packet of [`ReplayLog::next_unsent`] as submitted, and counts it as replayed if an earlier
    /// worker got it too. Does nothing if all packets are submitted.
    pub fn sent(&mut self) {
        let Some(entry) = self.history.get(self.cursor) else { return };
        if entry.seq < self.submitted {
            self.replayed += 1;
        } else {
            self.submitted = entry.seq.saturating_add(1);
        }
        self.cursor += 1;
    }

    /// Returns the number of the last packet of the history that was submitted to the present
    /// worker and meets `is_it`; `None` if there is none.
    pub fn last_submitted(&self, mut is_it: impl FnMut(&P) -> bool) -> Option<u64> {
        let submitted = self.history.iter().take(self.cursor);
        submitted.rev().find(|entry| is_it(&entry.packet)).map(|entry| entry.seq)
    }

    /// Returns true if [`ReplayLog::append`] keeps every packet: no loss affects the next ones.
    pub fn takes_all(&self) -> bool {
        self.resumption.admits_all()
    }

    /// Records a frame of `seq` from the present worker, and may trim the history. Returns the action.
    pub fn arrived(&mut self, seq: u64) -> Arrived {
        // This worker is the first one that got the packet, so the reader has no frame of it.
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
                return self.new_frame(seq);
            }
            let trimmed = seq < self.submitted && self.history.front().is_none_or(|start| seq < start.seq);
            return match (trimmed, first_time) {
                (true, true) => self.new_frame(seq),
                (true, false) => Arrived::AlreadyDelivered,
                (false, _) => Arrived::Unknown,
            };
        };
        if at >= self.cursor {
            return Arrived::Unknown;
        }
        let entry = &mut self.history[at];
        // Saturates, because a hostile worker may repeat this without limit.
        entry.received = entry.received.saturating_add(1);
        if entry.received <= entry.delivered || (entry.closed && !first_time) {
            return Arrived::AlreadyDelivered;
        }
        entry.delivered = entry.received;
        if entry.withheld {
            // The worker made progress, although the reader does not get the frame.
            self.progressed = true;
            return Arrived::Withheld;
        }
        let pts = entry.pts;
        self.forgotten.delivered(seq, pts);
        self.trim(at);
        self.new_frame(seq)
    }

    /// Records a frame of packet `seq` that has not arrived before as progress, and counts it if a seek
    /// skips it. Returns the action.
    fn new_frame(&mut self, seq: u64) -> Arrived {
        self.progressed = true;
        if self.seek_skips.frame(seq) { Arrived::Withheld } else { Arrived::Deliver }
    }

    /// Forgets the submitted packets except the last `keep`, for a history that is too large to
    /// be kept. After a later death the stream resumes as after a poisoned packet, and the
    /// forgotten packets without a frame count as skipped.
    ///
    /// A frame of a forgotten packet is still [`Arrived::Deliver`]. [`ReplayLog::get`] finds the
    /// last 16,384 forgotten packets, without the stripped parts.
    pub fn forget(&mut self, keep: usize) {
        let forgotten = self.cursor.saturating_sub(keep);
        if forgotten > 0 {
            for mut entry in self.history.drain(..forgotten) {
                (self.strip)(&mut entry.packet);
                self.forgotten.push(entry);
            }
            self.cursor -= forgotten;
            // Applies even if the history begins at a random access point: its leading pictures
            // may be outstanding, and their references were forgotten.
            self.incomplete = true;
        }
    }

    /// Iterates over the kept packets, oldest first.
    pub fn packets(&self) -> impl Iterator<Item = &P> {
        self.history.iter().map(|entry| &entry.packet)
    }

    /// Records the worker's death; from now on, all kept packets are unsent. Drops the packets that no
    /// worker can decode after this death, and counts them as skipped. Returns the action for the next
    /// worker. `popped` is the last packet that the worker took, `None` if it took none;
    /// `single_threaded` is true if it decoded on one thread.
    pub fn died(&mut self, popped: Option<u64>, single_threaded: bool) -> RestartPlan {
        let seek_skips = &mut self.seek_skips;
        self.skipped += self.forgotten.clear(|seq| !seek_skips.lost(seq));
        if mem::take(&mut self.incomplete) {
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
            entry.received = 0;
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
        // Stays on one thread until the history's start has moved; otherwise the same deaths
        // would repeat at the same place.
        let there_still = before.is_some_and(|death| death.start == start);
        RestartPlan::Replay { single_threaded: self.in_a_row >= 2 || (single_threaded && there_still) }
    }

    /// Returns true if packet `seq` was forgotten so long ago that `get` cannot find it.
    pub fn is_unknown(&self, seq: u64) -> bool {
        self.forgotten.is_unknown(seq)
    }

    /// Records a frame of packet `seq`, which [is unknown](ReplayLog::is_unknown), from the
    /// present worker. The frame cannot be delivered, and the packet counts as skipped. Returns
    /// false if more such frames arrived than are possible.
    pub fn lose_unknown(&mut self, seq: u64) -> bool {
        let may_be = self.forgotten.is_unknown(seq) && self.forgotten.lose_unknown();
        self.skipped += u64::from(may_be && !self.seek_skips.frame(seq));
        may_be
    }

    /// Returns packet `seq`, stripped if it was forgotten; `None` if the log does not keep it.
    pub fn get(&self, seq: u64) -> Option<&P> {
        match self.find(seq) {
            Some(at) => Some(&self.history[at].packet),
            None => self.forgotten.get(seq).map(|entry| &entry.packet),
        }
    }

    /// Returns the packet of [`ReplayLog::get`] as mutable; `None` as there.
    pub fn get_mut(&mut self, seq: u64) -> Option<&mut P> {
        match self.find(seq) {
            Some(at) => Some(&mut self.history[at].packet),
            None => self.forgotten.get_mut(seq).map(|entry| &mut entry.packet),
        }
    }

    /// Records the death of a worker whose packets cannot be submitted again. Drops the packets up to
    /// `popped`, the last packet that the worker took; none if it is `None`. Later packets are submitted
    /// to the next worker. Returns the loss.
    pub fn abandon(&mut self, popped: Option<u64>) -> Abandoned {
        let popped = popped.and_then(|seq| self.find(seq)).filter(|at| *at < self.cursor);
        let taken = popped.map_or(0, |at| at + 1);
        let seek_skips = &mut self.seek_skips;
        let mut lost = Abandoned { count: self.forgotten.clear(|seq| !seek_skips.lost(seq)), first: None };
        let missing = self.history.drain(..taken).filter(ReplayEntry::is_outstanding);
        for entry in missing.filter(|entry| !seek_skips.lost(entry.seq)) {
            lost.first.get_or_insert(entry.seq);
            lost.count += 1;
        }
        for entry in &mut self.history {
            entry.received = 0;
        }
        self.cursor = 0;
        self.replayed_below = self.submitted;
        self.deaths += 1;
        lost
    }

    /// Forgets all packets, because the next packet is from another place of the stream. The caller
    /// drops frames of the earlier packets from now on; [`ReplayLog::arrived`] would return
    /// [`Arrived::Unknown`] for them. Returns the number of packets that yielded
    /// no frame and might still have yielded one: those shown after every delivered frame or,
    /// without times, decoded after them.
    pub fn flush(&mut self) -> u64 {
        let delivered = |entry: &&ReplayEntry<P>| entry.delivered > 0;
        let last_shown = self.history.iter().filter(delivered).filter_map(|entry| entry.pts).max();
        let last = self.history.iter().filter(delivered).map(|entry| entry.seq).max();
        let owed = self.history.iter().filter(|entry| match (entry.pts, last_shown) {
            _ if entry.delivered > 0 || entry.discarded => false,
            (Some(pts), Some(shown)) => pts > shown,
            _ => Some(entry.seq) > last,
        });
        let owed = owed.count() as u64 + self.forgotten.clear(|_| true);
        let (deaths, replayed) = (self.deaths, self.replayed);
        let (skipped, skipped_leading) = (self.skipped, self.skipped_leading);
        *self = ReplayLog { deaths, replayed, skipped, skipped_leading, ..ReplayLog::new(self.strip) };
        owed
    }

    /// Returns the number of workers' deaths that were recorded.
    pub fn deaths(&self) -> u64 {
        self.deaths
    }

    /// Returns the number of packets submitted again to a later worker; a packet counts each time.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Returns the number of packets given up without a frame: poisoned ones, those up to the next
    /// random access point, those whose references are missing there, and forgotten ones.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns the number of leading pictures in `skipped`: their references are missing.
    pub fn skipped_leading(&self) -> u64 {
        self.skipped_leading
    }

    /// Returns the number of packets in the history; forgotten packets do not count.
    pub fn kept(&self) -> usize {
        self.history.len()
    }

    fn find(&self, seq: u64) -> Option<usize> {
        self.history.binary_search_by_key(&seq, |entry| entry.seq).ok()
    }

    /// Returns true if `entry`, the next packet in decode order, is to be decoded. If it is not, or if its frames
    /// are withheld, counts it as skipped, unless no frame of it is awaited or a seek leaves its frame out anyway.
    fn admits(&mut self, entry: &mut ReplayEntry<P>) -> bool {
        let was_skipping = self.resumption.is_skipping();
        let admission = self.resumption.admit(entry.access, entry.pts);
        entry.after_loss |= was_skipping && !self.resumption.is_skipping();
        let misses = admission != Admission::Whole && entry.is_outstanding();
        let lost = u64::from(misses && !self.seek_skips.lost(entry.seq));
        match admission {
            Admission::Whole => return true,
            Admission::Withheld => entry.withheld = true,
            Admission::Leading => self.skipped_leading += lost,
            Admission::Skipped => {}
        }
        self.skipped += lost;
        admission == Admission::Withheld
    }

    /// Drops the packet with index `poisoned` and the packets that cannot be decoded without it.
    fn skip(&mut self, poisoned: usize) -> RestartPlan {
        let mut behind = self.history.split_off(poisoned).into_iter();
        // The packet exists, because the caller found it.
        let first = behind.next().map_or(0, |entry| {
            let kept = self.history.iter().filter(|entry| entry.is_outstanding());
            self.seek_skips.lose_from(entry.seq, kept.map(|entry| entry.seq));
            self.skipped += u64::from(entry.is_outstanding() && !self.seek_skips.lost(entry.seq));
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
        // A later death is not compared with the ones before this skip.
        self.last = None;
        self.fruitless = 0;
        RestartPlan::Skip { poisoned: first, next }
    }

    /// Moves the start of the history forward if the rules allow it, after a frame of the packet
    /// with index `at` was delivered. Scans the history a few times per random access point, not
    /// per frame.
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
            !owed || !entry.is_outstanding()
        });
        if settled && key > 0 {
            self.start_at(key);
        }
    }

    fn start_at(&mut self, start: usize) {
        for mut entry in self.history.drain(..start) {
            // By the rules the packet yields nothing more, unless the access points are false.
            if entry.delivered == 0 {
                (self.strip)(&mut entry.packet);
                self.forgotten.push(entry);
            }
        }
        self.incomplete = false;
        // A packet with a delivered frame was submitted, and so were all packets before it.
        debug_assert!(self.cursor >= start, "the start was submitted");
        self.cursor -= start;
        let start_pts = self.history.front().and_then(|entry| entry.pts);
        // Stops at the next point: after it, times may restart, as in a looped file.
        for entry in self.history.iter_mut().skip(1).take_while(|entry| !entry.is_point()) {
            entry.closed |= entry.delivered == 0 && entry.shown_before(start_pts) == Some(true);
        }
    }
}
