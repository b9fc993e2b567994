// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replay log of a stream, kept by the supervisor of its worker: the thread that takes the worker's
//! frames and passes them to the reader. The log makes sure that the reader gets every frame once
//! and in order, even if a worker dies. Only the frames of packets that are given up are missing.
//!
//! A [`ReplayLog`] keeps the last packets, from the stream's start or from a random access point
//! on: the *history*. Every undelivered frame can be decoded from the history, unless
//! [`ReplayLog::forget`] has shortened it. After a worker's death, the supervisor submits the
//! history to the next worker. The log counts the delivered frames of each packet, so that no frame
//! is delivered twice. Where a stage takes frames instead of packets, each frame counts as a packet
//! that is a random access point.
//!
//! # Start of the history
//!
//! The history may start at the random access point R if a decoder that starts at R can decode
//! every outstanding frame. So no outstanding frame may belong to a packet before R or to a
//! leading picture of R. (Open GOP: a leading picture follows R in decode order, is shown before
//! R, and may refer to pictures before R.) Decoders output frames in presentation order. Random
//! access points are shown in the order in which they are decoded, after all pictures decoded
//! before them. Two rules follow:
//!
//! 1. R has yielded a frame, and then a packet that follows R in decode order and is not known to
//!    be shown before R yields a frame. At the first such frame, the log checks all other packets
//!    of the history: each packet before R, and each packet after R that is not known to be shown
//!    after R, must have yielded a frame. (Packets whose frames are discarded or withheld are left
//!    out.) If one has not, the rule fails for this R. The rule does not rely on the order alone:
//!    some decoders output a picture too early while they learn how far a stream reorders.
//! 2. If rule 1 fails (packets that yield no frame, packets without pts): the random access point
//!    after R has yielded a frame. A missing frame that would be shown before that frame never
//!    arrives.
//!
//! So the history usually starts at the last random access point that has yielded a frame, or,
//! where rule 1 fails, at the one before it.
//!
//! Both rules apply only to random access points that the bytes confirm
//! ([`RandomAccess::Point`](crate::access_point::RandomAccess)). A container's flag alone is not
//! enough. A packet that leaves the history without a frame is remembered, so that its frame is
//! still delivered if the worker outputs it. So a wrong point loses nothing while the worker lives,
//! and at a worker's death the log counts the losses.
//!
//! # Resuming a stream
//!
//! Packets are lost if a packet is given up, or if a worker dies after [`ReplayLog::forget`]. The
//! stream then resumes at the next packet that is a random access point, or is flagged as one by the
//! container while its bytes do not refute the flag. The packets before it are dropped. The leading
//! pictures of a random access point are dropped too, because their references are missing. After a
//! packet that is only flagged, pictures may lack references, so they are decoded, but not delivered
//! until the recovery is complete. If the packet begins a gradual refresh, they are not delivered
//! until the recovery of the next refresh is complete, because a decoder may be unable to decode the
//! first picture of a refresh without any picture before it.
//!
//! # Frames that are left out
//!
//! A seek or an edit list leaves frames out ([`Preroll`]). Workers do not output the frame of a
//! discarded packet, so this packet is never outstanding and its loss is no loss. A seek in a
//! stream without times skips the next n frames in presentation order. Workers output these frames.
//! The log withholds them and counts each as delivered, so that no replay delivers them. If a
//! packet is lost before its frame arrived, and the seek would have skipped this frame, n becomes
//! smaller by one, and the loss does not count. (n is a number of frames: if packets are fields,
//! such losses reduce it too much.)
//!
//! # Giving up a packet
//!
//! The first death after a new frame leads to a plain replay: the next worker has as many threads
//! as the stream's first. (Exception: after a worker with one thread, the next worker has one
//! thread too if the dead worker took no packet, or if the history still starts where it started at
//! the death before.) A second death without a new frame in between leads to a replay on one
//! thread, because with frame threads no single packet can be blamed.
//!
//! A death happens *at* the last packet that the worker took. A packet is *poisoned*, and is given
//! up, if two deaths in a row happen at it, the second on one thread, with no new frame in between.
//! A packet that has ever yielded a frame is not poisoned, because it can be decoded. Deaths at
//! different packets suggest another cause. But the [`FRUITLESS`]th (4th) death on one thread
//! without a new frame since the death before gives up the packet at which it happens, even a
//! packet that has yielded a frame. A new frame, delivered or withheld, resets all counts; giving
//! up a packet resets those of this paragraph.

// over 600 lines because the comments derive the rules of a replay, and name their exceptions.

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

/// Number of deaths of single-threaded workers, each without a new frame since the death before it,
/// at the last of which its packet is given up, even if each death happened at another packet. The
/// count restarts when a packet is given up.
pub const FRUITLESS: u32 = 4;

/// Number of deaths in a row at the last of which the stream is given up: each happened before the
/// worker took a packet of the history, and no new frame came between them.
pub const UNOPENED: u32 = 8;

/// Action of the supervisor for a frame received from the worker. Unless the frame is delivered,
/// the supervisor returns its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The reader does not have the frame: deliver it.
    Deliver,
    /// An earlier worker was sent the packet too, so the frame comes from a replay, and the reader
    /// must not get it: the frame was delivered or withheld before, or it is the frame of a leading
    /// picture of the history's start, whose references the replay lacks.
    AlreadyDelivered,
    /// The frame is new, but the reader must not get it: a seek skips it, or it lacks its
    /// references.
    Withheld,
    /// The packet was not submitted to the present worker: the worker violates the protocol. If the
    /// packet is older than the history, the log cannot tell this, and returns another value.
    Unknown,
}

/// Action of the supervisor after a worker's death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPlan {
    /// Submit the whole history to the next worker, also packets that no worker got yet.
    Replay {
        /// True if the next worker has to decode on one thread, so that its death can be blamed
        /// on the last packet that it took.
        single_threaded: bool,
    },
    /// Submit the whole history to the next worker, also packets that no worker got yet; this
    /// worker has to decode on one thread. The log has dropped the packet that is given up, the
    /// packets after it up to the one where the stream resumes, and the leading pictures there.
    Skip {
        /// Number of the packet that is given up.
        poisoned: u64,
        /// Number of the packet where the stream resumes: a random access point, or a packet that
        /// is only flagged as one. `None` if no such packet was appended yet.
        next: Option<u64>,
    },
    /// Start no other worker: [`UNOPENED`] workers in a row died before they took a packet of the
    /// history, so the cause is the opening of the stream.
    GiveUp,
}

/// Losses by [`ReplayLog::abandon`]: the dropped packets that had yielded no frame and might still
/// have. A packet whose frame a seek would have left out is not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abandoned {
    /// Number of these packets, forgotten ones included.
    pub count: u64,
    /// Number of the first of these packets that was in the history, not forgotten; `None` if none
    /// was, even if `count` is not 0.
    pub first: Option<u64>,
}

/// Facts about a worker's death.
#[derive(Clone, Copy, Debug)]
struct Death {
    /// Number of the last packet of the history that the worker had taken; `None` if there is none.
    popped: Option<u64>,
    /// Number of the first packet of the history at the death; `None` if the history was empty.
    start: Option<u64>,
}

/// Replay log of one stream; see the module. [`ReplayLog::flush`] resets all fields but `strip` and
/// the last four counts.
#[derive(Debug)]
pub struct ReplayLog<P> {
    /// Packets in decode order, with rising numbers. Packets that are given up are removed.
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
    /// Number of the last random access point that has yielded its first frame, until rule 1 is
    /// checked for it; `None` if there is none.
    untried: Option<u64>,
    resumption: Resumption,
    seek_skips: SeekSkips,
    /// True if [`ReplayLog::forget`] dropped packets that a replay would need: from then on until
    /// the history's start moves to a random access point, or [`ReplayLog::died`] is called.
    incomplete: bool,
    /// True if a new frame was delivered or withheld since the last [`ReplayLog::died`]; also
    /// before the first. A frame that is withheld because it lacks references does not count if its
    /// packet is forgotten.
    progressed: bool,
    /// Last death that [`ReplayLog::died`] recorded; `None` before the first, and after a packet
    /// was given up.
    last: Option<Death>,
    /// Number of deaths in the latest row, as [`ReplayLog::died`] recorded them. A row begins with
    /// the first death, and with each death before which a new frame came since the death before.
    in_a_row: u32,
    /// Number of deaths of single-threaded workers in the latest row since the last packet was
    /// given up, without the first death of the row.
    fruitless: u32,
    /// Number of the last deaths of the latest row that all happened before the worker took a
    /// packet of the history.
    unopened: u32,
    /// Number of workers' deaths that [`ReplayLog::died`] and [`ReplayLog::abandon`] recorded.
    deaths: u64,
    /// Number of packets submitted again to a later worker; a packet counts each time.
    replayed: u64,
    /// Number of packets given up without a frame, as [`ReplayLog::skipped`] describes.
    skipped: u64,
    /// Part of `skipped`: leading pictures of a random access point where the stream resumed.
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

    /// Adds the next packet in decode order. Numbers rise; gaps are allowed. After a loss, the log
    /// drops the packets up to the one where the stream resumes, and leading pictures of that one;
    /// it keeps packets that may lack references, but withholds their frames. All these packets
    /// count as skipped, except those whose frame a seek leaves out. `pts` is the presentation time
    /// in ticks of the track's time base; `None` if not known.
    pub fn append(&mut self, seq: u64, pts: Option<i64>, access: RandomAccess, packet: P) {
        self.append_preroll(seq, pts, access, Preroll::default(), packet);
    }

    /// Adds a packet as [`ReplayLog::append`] does. `preroll` names the frames that are not
    /// delivered. The log withholds the frames of `preroll.skipped`, so workers must output them.
    /// Workers must not output the frame of a packet with `preroll.discarded`. The log ignores
    /// `preroll.restarts`. A packet that a seek leaves out anyway does not count as skipped if it
    /// is lost.
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

    /// Returns the next packet to submit to the present worker; `None` if all packets of the
    /// history are submitted.
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

    /// Returns true if [`ReplayLog::append`] keeps the next packet, whatever its class: no loss
    /// makes the log drop it. (The log may still withhold its frame.)
    pub fn takes_all(&self) -> bool {
        self.resumption.admits_all()
    }

    /// Returns true if the history has packet `seq`, and it was submitted to the present worker.
    pub fn is_submitted(&self, seq: u64) -> bool {
        self.find(seq).is_some_and(|at| at < self.cursor)
    }

    /// Records a frame of packet `seq` from the present worker, and may move the history's start.
    /// Returns the action.
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
                let (pts, is_point) = (entry.pts, entry.is_point());
                self.forgotten.delivered(seq, pts, is_point);
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
        let (pts, is_point) = (entry.pts, entry.is_point());
        self.forgotten.delivered(seq, pts, is_point);
        self.trim(at);
        self.new_frame(seq)
    }

    /// Records a frame of packet `seq` that has not arrived before as progress, and counts it if a seek
    /// skips it. Returns the action.
    fn new_frame(&mut self, seq: u64) -> Arrived {
        self.progressed = true;
        if self.seek_skips.frame(seq) { Arrived::Withheld } else { Arrived::Deliver }
    }

    /// Forgets the packets that were submitted to the present worker, except the last `keep`, for a
    /// history that is too large to be kept. At the worker's death the stream resumes as after a
    /// packet that was given up, unless the history's start has moved to a random access point
    /// since. The forgotten packets that might still have yielded a frame then count as skipped,
    /// unless a seek would have left the frame out.
    ///
    /// While the worker lives, frames of forgotten packets are treated as others: a new one is
    /// still [`Arrived::Deliver`], if it is not withheld. [`ReplayLog::get`] finds the last 16,384
    /// forgotten packets, without the stripped parts. Of older ones the frames are lost: see
    /// [`ReplayLog::is_unknown`].
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

    /// Iterates over the packets of the history, oldest first.
    pub fn packets(&self) -> impl Iterator<Item = &P> {
        self.history.iter().map(|entry| &entry.packet)
    }

    /// Records the worker's death; from now on, all kept packets are unsent. Drops the forgotten
    /// packets, and those that no worker can decode after this death. Counts a dropped packet as
    /// skipped if it might still have yielded a frame for the reader. Returns the action for the
    /// next worker. `popped` is the last packet that the worker took, `None` if it took none; a
    /// packet that the history no longer has counts as none. `single_threaded` is true if the
    /// worker decoded on one thread.
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

    /// Returns true if packet `seq` was forgotten so long ago that [`ReplayLog::get`] cannot find
    /// it: its number is at most that of the newest such packet.
    pub fn is_unknown(&self, seq: u64) -> bool {
        self.forgotten.is_unknown(seq)
    }

    /// Records a frame of packet `seq`, which [is unknown](ReplayLog::is_unknown), from the present
    /// worker. The frame cannot be delivered, and the packet counts as skipped, unless a seek skips
    /// the frame anyway. Returns false, and counts nothing, if `seq` is no such packet, or if as
    /// many such frames arrived before as there are unknown packets since the last death.
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

    /// Returns packet `seq` as mutable, stripped if it was forgotten; `None` if the log does not
    /// keep it.
    pub fn get_mut(&mut self, seq: u64) -> Option<&mut P> {
        match self.find(seq) {
            Some(at) => Some(&mut self.history[at].packet),
            None => self.forgotten.get_mut(seq).map(|entry| &mut entry.packet),
        }
    }

    /// Records the death of a worker whose packets cannot be submitted again, because the stage's
    /// output may depend on earlier packets than the history's. Drops the forgotten packets, and
    /// those of the history up to `popped`, the last packet that the worker took. If `popped` is
    /// `None` or no longer in the history, drops none of the history. Later packets are submitted
    /// to the next worker. Returns the loss, which [`ReplayLog::skipped`] does not count.
    pub fn abandon(&mut self, popped: Option<u64>) -> Abandoned {
        let popped = popped.and_then(|seq| self.find(seq)).filter(|at| *at < self.cursor);
        let taken = popped.map_or(0, |at| at + 1);
        let seek_skips = &mut self.seek_skips;
        let mut lost = Abandoned { count: self.forgotten.clear(|seq| !seek_skips.lost(seq)), first: None };
        let missing = self.history.drain(..taken).filter(|entry| self.forgotten.may_output(entry));
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

    /// Drops all packets, because the next packet is from another place of the stream. From now on
    /// the caller must drop frames of the earlier packets and not pass them to
    /// [`ReplayLog::arrived`], which no longer knows them.
    ///
    /// Returns the number of packets that had yielded no frame and might still have yielded one.
    /// These are the packets of the history, without discarded ones, that are shown after every
    /// packet with a frame; if a time is missing, those decoded after every packet with a frame.
    /// Times from before a restart do not count (see `Forgotten::may_output`): a decoder outputs all
    /// frames before the restart first. Also counted are forgotten packets that might still have yielded a frame, and packets whose
    /// frame would have been withheld.
    pub fn flush(&mut self) -> u64 {
        let restart = self.forgotten.restart();
        let current = || self.history.iter().filter(|entry| entry.seq >= restart);
        let delivered = || current().filter(|entry| entry.delivered > 0);
        let last_shown = delivered().filter_map(|entry| entry.pts).max();
        let last = delivered().map(|entry| entry.seq).max();
        // Random access point at which times restart, if no frame has come from there on.
        let next_restart = current()
            .filter(|entry| entry.is_point() && Some(entry.seq) > last)
            .find(|entry| matches!((entry.pts, last_shown), (Some(pts), Some(shown)) if pts < shown))
            .map_or(u64::MAX, |entry| entry.seq);
        let owed = current().filter(|entry| match (entry.pts, last_shown) {
            _ if entry.delivered > 0 || entry.discarded => false,
            _ if entry.seq >= next_restart => true,
            (Some(pts), Some(shown)) => pts > shown,
            _ => Some(entry.seq) > last,
        });
        let owed = owed.count() as u64 + self.forgotten.clear(|_| true);
        let (deaths, replayed) = (self.deaths, self.replayed);
        let (skipped, skipped_leading) = (self.skipped, self.skipped_leading);
        *self = ReplayLog { deaths, replayed, skipped, skipped_leading, ..ReplayLog::new(self.strip) };
        owed
    }

    /// Returns the number of workers' deaths that [`ReplayLog::died`] and [`ReplayLog::abandon`]
    /// recorded.
    pub fn deaths(&self) -> u64 {
        self.deaths
    }

    /// Returns the number of packets submitted again to a later worker; a packet counts each time.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Returns the number of packets given up without a frame: those at which workers died, those
    /// from there up to where the stream resumed, those whose references are missing there (dropped
    /// or withheld), and forgotten ones. Packets whose frame a seek leaves out do not count, nor do
    /// losses of [`ReplayLog::abandon`].
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns the number of packets in [`ReplayLog::skipped`] that are leading pictures of a
    /// random access point where the stream resumed: their references are missing.
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

    /// Returns true if `entry`, the next packet in decode order, is to be decoded. If it is not, or
    /// if its frames are withheld, counts it as skipped, unless no frame of it is awaited or a seek
    /// leaves its frame out anyway.
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

    /// Drops the packet with index `poisoned` in the history and the later packets that cannot be
    /// decoded without it. Counts those without a frame as skipped.
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
    /// with index `at` arrived that is delivered, or withheld only because a seek skips it. Scans
    /// the history a few times per random access point, not per frame.
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
            // By the rules this packet yields no frame any more, unless the access point is false.
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
