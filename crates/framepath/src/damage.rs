// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damage of a stream: packets that cannot be decoded, and frames that a decoder concealed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use framepath_model::shown::shown;
use framepath_model::stream::{FrameMeta, Rational};

/// Damage of the streams that a run has decoded. It counts only in runs that continue after damage
/// (`decode damage=show` or `skip`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Number of packets that could not be decoded: the decoder rejected them, they are damaged and no frame
    /// came of them, or they stand for an unreadable part of the file.
    pub undecodable: u64,
    /// Number of delivered frames that are damaged: the decoder concealed parts of them, or their packets
    /// are marked as damaged.
    pub concealed: u64,
    /// Number of packets that `damage=skip` has dropped without a frame: those that the decoder had not
    /// finished when it found the damage, and those between the damage and the next random access point.
    pub skipped: u64,
    /// First damage; `None` if there is none.
    pub first: Option<FirstDamage>,
}

/// Place and reason of the first damage.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FirstDamage {
    /// Number of the packet, from 0, in the order of the source. A decoder that reports damage after it got
    /// further packets does not say which one is damaged: the number is then that of the most likely packet,
    /// or with `damage=skip` that of the last.
    pub packet: u64,
    /// Presentation time, counted from the first frame that was decoded, nanoseconds; 0 before that frame.
    /// `None` if the packet or the stream has no times.
    pub time_ns: Option<u64>,
    /// Message with which the decoder rejected the packet. `None` if no decoder in this process rejected it:
    /// for a concealed frame, for a packet that is only marked as damaged, for an unreadable part of the
    /// file, and for every damage that a decoder in a worker found.
    pub reason: Option<String>,
}

impl Damage {
    /// Returns true if no damage was found.
    pub fn is_none(&self) -> bool {
        self.first.is_none()
    }

    /// Adds the counts of `other`, whose stream was decoded in the same run. The first damage stays that of
    /// `self`; without one, it becomes that of `other`.
    pub(crate) fn add(&mut self, other: Damage) {
        self.undecodable += other.undecodable;
        self.concealed += other.concealed;
        self.skipped = self.skipped.saturating_add(other.skipped);
        self.first = self.first.take().or(other.first);
    }
}

/// Writes one line, such as `2 packets undecodable, 5 frames concealed, first at 2.12 s`.
impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |count: u64| if count == 1 { "" } else { "s" };
        let Damage { undecodable, concealed, skipped, first } = self;
        write!(
            f,
            "{undecodable} packet{} undecodable, {concealed} frame{} concealed",
            s(*undecodable),
            s(*concealed)
        )?;
        if *skipped > 0 {
            write!(f, ", {skipped} packet{} skipped up to random access points", s(*skipped))?;
        }
        let Some(FirstDamage { packet, time_ns, reason }) = first else { return Ok(()) };
        match time_ns {
            Some(ns) => write!(f, ", first at {:.2} s (packet {packet})", *ns as f64 / 1e9)?,
            None => write!(f, ", first in packet {packet}")?,
        }
        reason.iter().try_for_each(|reason| write!(f, ": {}", shown(reason)))
    }
}

/// Record of the damage that all decoders of a run in this process have found, or the decoder in the workers of
/// one stream. Clones share the record. Any thread may use it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DamageLog(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    damage: Damage,
    /// Seconds per tick of the stream; `None` if not known.
    time_base: Option<Rational>,
    /// Presentation time of the first frame that has one, ticks; `None` before that frame.
    start: Option<i64>,
    /// Packets to report to the process that runs the path: number of the packet, and number of skipped
    /// packets or 0. Always empty unless `is_in_worker`.
    unsent: Vec<(u64, u64)>,
    /// True if this process is a worker that runs a stage. The process that runs the path then gets the packets
    /// of `unsent`.
    is_in_worker: bool,
    /// Damaged packets in the decoder of which no frame has come so far, oldest first; at most
    /// [`MOST_PENDING`].
    pending: VecDeque<FrameMeta>,
}

/// Maximum number of damaged packets whose frame is awaited: more than any decoder has inside.
const MOST_PENDING: usize = 256;

impl DamageLog {
    /// Makes the log of a stage in a worker. The worker sends the packets of [`DamageLog::take_unsent`] to
    /// the process that runs the path.
    pub(crate) fn in_worker() -> DamageLog {
        DamageLog(Arc::new(Mutex::new(Record { is_in_worker: true, ..Record::default() })))
    }

    /// Sets the duration of a tick of the stream, seconds.
    pub(crate) fn set_time_base(&self, time_base: Rational) {
        self.record().time_base = Some(time_base);
    }

    /// Records a decoded frame; a damaged frame counts as concealed. The first presentation time of a frame
    /// becomes the origin of times.
    pub(crate) fn frame(&self, meta: &FrameMeta) {
        let mut record = self.record();
        record.start = record.start.or(meta.pts);
        if meta.is_damaged {
            record.damage.concealed += 1;
            record.note_first(meta, None);
            record.pending.retain(|packet| packet.seq != meta.seq);
        }
    }

    /// Records that the decoder gets a damaged packet. The packet counts as undecodable when
    /// [`DamageLog::drained`] is called before its frame comes. If more than [`MOST_PENDING`] packets await
    /// their frames, the oldest counts as undecodable at once.
    pub(crate) fn damaged(&self, packet: &FrameMeta) {
        let mut record = self.record();
        record.pending.push_back(*packet);
        if record.pending.len() > MOST_PENDING {
            record.give_up_oldest();
        }
    }

    /// Records that the decoder has no packet inside any more: no frame will come of the damaged packets that
    /// are still awaited.
    pub(crate) fn drained(&self) {
        let mut record = self.record();
        while !record.pending.is_empty() {
            record.give_up_oldest();
        }
    }

    /// Records that the packets inside the decoder were dropped on request, as for a seek: the damaged ones
    /// among them are no longer awaited, and do not count as undecodable.
    pub(crate) fn dropped(&self) {
        self.record().pending.clear();
    }

    /// Records a packet that cannot be decoded, and no longer awaits its frame. `reason` is the decoder's
    /// message, if it is known.
    pub(crate) fn undecodable(&self, packet: &FrameMeta, reason: Option<String>) {
        let mut record = self.record();
        record.pending.retain(|pending| pending.seq != packet.seq);
        record.undecodable(packet, reason);
    }

    /// Records `count` skipped packets, the last of which is `packet`.
    pub(crate) fn skipped(&self, packet: &FrameMeta, count: u64) {
        let mut record = self.record();
        // A worker may claim any count.
        record.damage.skipped = record.damage.skipped.saturating_add(count);
        if count > 0 {
            record.report(packet.seq, count);
        }
    }

    /// Returns the packets recorded since the last call: their numbers, and for each the number of skipped
    /// packets that end there, or 0 for a packet that cannot be decoded. Empty outside workers.
    pub(crate) fn take_unsent(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.record().unsent)
    }

    /// Returns the damage recorded so far.
    pub(crate) fn damage(&self) -> Damage {
        self.record().damage.clone()
    }

    /// Locks the record, even if it is poisoned: every method leaves it consistent.
    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    fn undecodable(&mut self, packet: &FrameMeta, reason: Option<String>) {
        self.damage.undecodable += 1;
        self.note_first(packet, reason);
        self.report(packet.seq, 0);
    }

    fn give_up_oldest(&mut self) {
        if let Some(packet) = self.pending.pop_front() {
            self.undecodable(&packet, None);
        }
    }

    fn note_first(&mut self, meta: &FrameMeta, reason: Option<String>) {
        if self.damage.first.is_some() {
            return;
        }
        let ticks = meta.pts.map(|pts| pts.saturating_sub(self.start.unwrap_or(pts)));
        let ns = |ticks| self.time_base?.rescale(ticks, Rational::new(1, 1_000_000_000));
        let time_ns = ticks.and_then(ns).map(|ns| ns.max(0) as u64);
        self.damage.first = Some(FirstDamage { packet: meta.seq, time_ns, reason });
    }

    fn report(&mut self, seq: u64, skipped: u64) {
        if self.is_in_worker {
            self.unsent.push((seq, skipped));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_packet_without_a_frame_is_undecodable_at_the_end() {
        let log = DamageLog::default();
        let meta = |seq| FrameMeta { seq, is_damaged: true, ..FrameMeta::default() };
        (3..6).for_each(|seq| log.damaged(&meta(seq)));
        log.frame(&meta(4));
        log.undecodable(&meta(5), Some("bad".to_owned()));
        assert_eq!((log.damage().undecodable, log.damage().concealed), (1, 1));
        log.drained();
        log.drained();
        assert_eq!(log.damage().undecodable, 2);
        log.damaged(&meta(6));
        log.dropped();
        log.drained();
        assert_eq!(log.damage().undecodable, 2);
        (0..MOST_PENDING as u64 + 1).for_each(|seq| log.damaged(&meta(seq)));
        assert_eq!(log.damage().undecodable, 3);
    }

    #[test]
    fn damage_is_counted_and_its_first_time_is_from_the_first_frame() {
        let log = DamageLog::default();
        log.set_time_base(Rational::new(1, 1000));
        let meta = |seq, pts, is_damaged| FrameMeta { seq, pts, is_damaged, ..FrameMeta::default() };
        log.frame(&meta(0, Some(1400), false));
        assert!(log.damage().is_none());
        log.frame(&meta(7, Some(3520), true));
        log.undecodable(&meta(9, Some(4000), false), Some("bad\ndata".to_owned()));
        log.skipped(&meta(12, None, false), 3);
        let damage = log.damage();
        assert_eq!((damage.undecodable, damage.concealed, damage.skipped), (1, 1, 3));
        let text = "1 packet undecodable, 1 frame concealed, 3 packets skipped up to random access points, first at \
                    2.12 s (packet 7)";
        assert_eq!(damage.to_string(), text);
        assert!(log.take_unsent().is_empty());
    }

    #[test]
    fn a_worker_reports_each_packet_once_and_a_reason_is_one_line() {
        let log = DamageLog::in_worker();
        let packet = FrameMeta { seq: 4, ..FrameMeta::default() };
        log.undecodable(&packet, Some("bad\ndata".to_owned()));
        log.skipped(&packet, 2);
        log.skipped(&packet, 0);
        assert_eq!((log.take_unsent(), log.take_unsent()), (vec![(4, 0), (4, 2)], vec![]));
        let text = log.damage().to_string();
        assert!(text.ends_with("first in packet 4: bad\\ndata") && text.lines().count() == 1, "{text}");
    }
}
