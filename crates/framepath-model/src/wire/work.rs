// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time and resources that a worker spent on one frame: the part of a ledger row that the worker
//! sends.

use super::WireError;
use super::error::check;
use super::picture::{PICTURE_BITS, picture_bits, picture_of};
use crate::ledger::Row;
use crate::stream::PictureFlags;

/// Time and resources of a worker's hop for one frame. Durations are nanoseconds; a duration above
/// the 32-bit maximum (4.3 s), and a count above the maximum of its field, is stored as the
/// maximum. A cell keeps the first 20 bits of a duration and rounds it down, so it is right within a
/// millionth.
///
/// The level with which the stream was opened decides which fields are known, as in a [`Row`];
/// unknown fields are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerTime {
    /// Time at which the stage received the packet or frame, CLOCK_MONOTONIC nanoseconds.
    pub enter_ns: u64,
    /// Time at which the frame left the stage, not before `enter_ns`.
    pub leave_ns: u64,
    /// Time inside the stage in which no thread is known to have worked on the frame: the queue,
    /// held, device and pool time of the worker's row together.
    pub inside_ns: u32,
    /// Part of `inside_ns` in which only the depth of the decoder's frame threads delayed the frame.
    pub held_depth_ns: u32,
    /// Time from when a decoder's frame thread could begin the picture until the thread ran.
    pub wakeup_ns: u32,
    /// Time for which the worker was idle before it received the latest submission before this
    /// output;
    /// 0 if that submission had waited for the worker.
    pub idle_ns: u32,
    /// Time that the stage waited, for example for a free buffer, I/O or a lock.
    pub blocked_ns: u32,
    /// CPU time of the stage's thread and of a decoder's frame thread, without copies and waits.
    pub compute_ns: u32,
    /// Time in which the stage's thread, or a decoder's frame thread, could run but had no CPU.
    pub preempted_ns: u32,
    /// Time of the copies in `copied_bytes`: CPU time at level `full`, wall time at level `times`.
    pub copy_ns: u32,
    /// Number of pixel and packet bytes that the CPU copied.
    pub copied_bytes: u32,
    /// Number of voluntary context switches during the work on the frame.
    pub voluntary_switches: u16,
    /// Number of involuntary context switches during the work on the frame, at most [`MOST_INVOLUNTARY`].
    pub involuntary_switches: u16,
    /// True if a part of `inside_ns` is pool time ([`Row::pool_ns`]). The caller then counts all of
    /// `inside_ns` as pool time, unless the stage works with a device.
    pub is_pool: bool,
}

/// Largest [`WorkerTime::involuntary_switches`]; a higher number is sent as this one.
pub const MOST_INVOLUNTARY: u16 = (1 << INVOLUNTARY_BITS) - 1;

/// Bit in the encoded number of involuntary switches that is set if [`WorkerTime::is_pool`] is true.
const POOL_BIT: u16 = 1 << 15;

/// Number of bits of the involuntary switches.
const INVOLUNTARY_BITS: u32 = 15 - PICTURE_BITS;

impl WorkerTime {
    /// Encodes words 2 to 7 of the completion of a frame with `picture`.
    pub(super) fn encode(&self, picture: &PictureFlags) -> [u64; 6] {
        let times = [
            self.inside_ns,
            self.idle_ns,
            self.blocked_ns,
            self.compute_ns,
            self.preempted_ns,
            self.copy_ns,
            self.wakeup_ns,
            self.held_depth_ns,
        ];
        // Eight times of 24 bits fill three words: each word has two times, and 16 of the 48 bits
        // of the last two times.
        let [a, b, c, d, e, f, g, h] = times.map(short_time);
        let last = g | h << SHORT_BITS;
        let triple = |low: u64, high: u64, part: u64| low | high << SHORT_BITS | part << (2 * SHORT_BITS);
        let pool = if self.is_pool { POOL_BIT } else { 0 };
        let involuntary = self.involuntary_switches.min(MOST_INVOLUNTARY)
            | pool
            | (picture_bits(picture) as u16) << INVOLUNTARY_BITS;
        let switches = u64::from(self.voluntary_switches) | u64::from(involuntary) << 16;
        [
            self.enter_ns,
            self.leave_ns,
            triple(a, b, last & 0xffff),
            triple(c, d, last >> 16 & 0xffff),
            triple(e, f, last >> 32),
            u64::from(self.copied_bytes) | switches << 32,
        ]
    }

    /// Decodes words 2 to 7 of a frame completion. Fails with [`WireError::Field`] if the frame
    /// leaves before it enters, has no known field order, or has a time that [`short_time`] does not return.
    pub(super) fn decode(words: [u64; 6], is_damaged: bool) -> Result<(WorkerTime, PictureFlags), WireError> {
        let [enter_ns, leave_ns, first, second, third, counts] = words;
        check(enter_ns <= leave_ns, "frame completion", "leave", leave_ns)?;
        let last = [first, second, third].map(|word| word >> (2 * SHORT_BITS));
        let last = last[0] | last[1] << 16 | last[2] << 32;
        let (low, high) = (long_time, |word: u64| long_time(word >> SHORT_BITS));
        for word in [first, second, third, last] {
            let is_short = |word: u64| short_time(long_time(word)) == word & SHORT_MASK;
            check(is_short(word) && is_short(word >> SHORT_BITS), "frame completion", "time", word)?;
        }
        let picture = picture_of(counts >> (48 + INVOLUNTARY_BITS), is_damaged, "frame completion")?;
        let work = WorkerTime {
            enter_ns,
            leave_ns,
            inside_ns: low(first),
            idle_ns: high(first),
            blocked_ns: low(second),
            compute_ns: high(second),
            preempted_ns: low(third),
            copy_ns: high(third),
            wakeup_ns: low(last),
            held_depth_ns: high(last),
            copied_bytes: counts as u32,
            voluntary_switches: (counts >> 32) as u16,
            involuntary_switches: (counts >> 48) as u16 & MOST_INVOLUNTARY,
            is_pool: (counts >> 48) as u16 & POOL_BIT != 0,
        };
        Ok((work, picture))
    }
}

/// Number of bits of a time in a cell: 20 bits of the time, and above them the number of bits that are
/// left out at the low end.
const SHORT_BITS: u32 = 24;

/// Mask of the bits of a time in a cell.
const SHORT_MASK: u64 = (1 << SHORT_BITS) - 1;

/// Encodes `ns` in [`SHORT_BITS`] bits, rounded down to its first 20 bits.
fn short_time(ns: u32) -> u64 {
    let left_out = (u32::BITS - ns.leading_zeros()).saturating_sub(20);
    u64::from(ns >> left_out) | u64::from(left_out) << 20
}

/// Decodes a time from the low [`SHORT_BITS`] bits of `word`; the maximum for bits that stand for more.
fn long_time(word: u64) -> u32 {
    let (bits, left_out) = (word & 0xf_ffff, word >> 20 & 0xf);
    u32::try_from(bits << left_out).unwrap_or(u32::MAX)
}

impl From<&Row> for WorkerTime {
    /// Takes the part of `row` that the worker sends; a value too large for its field becomes the
    /// field's largest value. `inside_ns` is the row's queue, held, device and pool time together.
    /// `idle_ns` is 0, because a row has no idle time.
    fn from(row: &Row) -> WorkerTime {
        let long = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let short = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
        WorkerTime {
            enter_ns: row.enter_ns,
            // A row that ends before it begins counts as zero time.
            leave_ns: row.leave_ns.max(row.enter_ns),
            inside_ns: long(row.queue_ns + row.held_ns + row.device_ns + row.pool_ns),
            held_depth_ns: long(row.held_depth_ns),
            wakeup_ns: long(row.wakeup_ns),
            idle_ns: 0,
            blocked_ns: long(row.blocked_ns),
            compute_ns: long(row.compute_ns),
            preempted_ns: long(row.preempted_ns),
            copy_ns: long(row.copy_ns),
            copied_bytes: long(row.copied_bytes),
            voluntary_switches: short(row.voluntary_switches),
            involuntary_switches: short(row.involuntary_switches).min(MOST_INVOLUNTARY),
            is_pool: row.pool_ns > 0,
        }
    }
}
