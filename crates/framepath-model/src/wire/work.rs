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
/// maximum.
///
/// The level with which the stream was opened decides which fields are known, as in a [`Row`];
/// unknown fields are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerTime {
    /// Time at which the stage received the packet or frame, CLOCK_MONOTONIC nanoseconds.
    pub enter_ns: u64,
    /// Time at which the frame left the stage, not before `enter_ns`.
    pub leave_ns: u64,
    /// Time inside the stage in which no thread is known to have worked on the frame: kept by a
    /// decoder, in a device, or in the threads of a decoder that share the frames.
    pub inside_ns: u32,
    /// Time that the worker had been idle when the input arrived, at `enter_ns`; 0 if the worker
    /// was busy.
    pub idle_ns: u32,
    /// Time that the stage waited, for example for a free buffer, I/O or a lock.
    pub blocked_ns: u32,
    /// CPU time of the stage without copies and waits.
    pub compute_ns: u32,
    /// Time in which the stage's thread was runnable and had no CPU.
    pub preempted_ns: u32,
    /// Time in which the CPU copied pixels or packet bytes.
    pub copy_ns: u32,
    /// Number of bytes that the CPU copied.
    pub copied_bytes: u32,
    /// Number of voluntary context switches.
    pub voluntary_switches: u16,
    /// Number of involuntary context switches, at most [`MOST_INVOLUNTARY`].
    pub involuntary_switches: u16,
    /// True if `inside_ns` was spent in threads of a decoder that share the frames.
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
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let pool = if self.is_pool { POOL_BIT } else { 0 };
        let involuntary = self.involuntary_switches.min(MOST_INVOLUNTARY)
            | pool
            | (picture_bits(picture) as u16) << INVOLUNTARY_BITS;
        let switches = u32::from(self.voluntary_switches) | u32::from(involuntary) << 16;
        [
            self.enter_ns,
            self.leave_ns,
            pair(self.inside_ns, self.idle_ns),
            pair(self.blocked_ns, self.compute_ns),
            pair(self.preempted_ns, self.copy_ns),
            pair(self.copied_bytes, switches),
        ]
    }

    /// Decodes words 2 to 7 of a frame completion. Fails with [`WireError::Field`] if the frame
    /// leaves before it enters, or has no known field order.
    pub(super) fn decode(words: [u64; 6], is_damaged: bool) -> Result<(WorkerTime, PictureFlags), WireError> {
        let [enter_ns, leave_ns, a, b, c, d] = words;
        check(enter_ns <= leave_ns, "frame completion", "leave", leave_ns)?;
        let picture = picture_of(d >> (48 + INVOLUNTARY_BITS), is_damaged, "frame completion")?;
        let work = WorkerTime {
            enter_ns,
            leave_ns,
            inside_ns: a as u32,
            idle_ns: (a >> 32) as u32,
            blocked_ns: b as u32,
            compute_ns: (b >> 32) as u32,
            preempted_ns: c as u32,
            copy_ns: (c >> 32) as u32,
            copied_bytes: d as u32,
            voluntary_switches: (d >> 32) as u16,
            involuntary_switches: (d >> 48) as u16 & MOST_INVOLUNTARY,
            is_pool: (d >> 48) as u16 & POOL_BIT != 0,
        };
        Ok((work, picture))
    }
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
