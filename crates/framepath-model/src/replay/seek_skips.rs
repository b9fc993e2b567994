// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that a seek skips in a stream without times: the first n frames, in presentation order,
//! from a packet on.
//!
//! The log counts these frames itself, because a count that only the worker has would be lost with
//! the worker, and with the packet that carries the count.

use std::collections::VecDeque;

/// Maximum number of counts that are kept; a further one removes the oldest. A looped file has one
/// for each loop, and no decoder holds packets of so many loops.
const MAX_COUNTS: usize = 256;

/// Counts of skipped frames, one for each packet with such a count, in decode order.
#[derive(Debug, Default)]
pub(super) struct SeekSkips {
    counts: VecDeque<SeekSkip>,
}

/// Count of the frames to skip from one packet on, up to the next packet with a count.
#[derive(Debug)]
struct SeekSkip {
    /// Number of the packet with the count, the first to which the count applies.
    from: u64,
    /// Number of frames that are still to be skipped.
    left: u64,
    /// Number of frames in `left` that belong to the packets below `kept_below`. These frames are
    /// shown before those of the lost packets, so the count skips them first.
    reserved: u64,
    /// Number of the packet that was given up last since this count began; 0 before the first.
    kept_below: u64,
}

impl SeekSkips {
    /// Records that the first `count` frames, in presentation order, of the packets from number `from` on
    /// are skipped. Removes the oldest counts that have no frames left, or that are too many. Does
    /// nothing if `count` is 0.
    pub(super) fn begin(&mut self, from: u64, count: u64) {
        if count == 0 {
            return;
        }
        while self.counts.front().is_some_and(|first| first.left == 0) || self.counts.len() >= MAX_COUNTS {
            self.counts.pop_front();
        }
        self.counts.push_back(SeekSkip { from, left: count, reserved: 0, kept_below: 0 });
    }

    /// Records a frame of packet `seq`, the next one in presentation order. Returns true if the frame
    /// is skipped.
    pub(super) fn frame(&mut self, seq: u64) -> bool {
        let Some(skip) = self.counts.iter_mut().rev().find(|skip| skip.from <= seq) else { return false };
        // A missing frame of a kept packet never arrives behind a frame of a later packet.
        skip.reserved = if seq < skip.kept_below { skip.reserved.saturating_sub(1) } else { 0 };
        let is_skipped = skip.left > 0;
        skip.left = skip.left.saturating_sub(1);
        is_skipped
    }

    /// Records that packet `seq` is lost before it yielded a frame. Returns true if the count would
    /// have skipped the frame, and then reduces the count by one.
    pub(super) fn lost(&mut self, seq: u64) -> bool {
        let Some(skip) = self.counts.iter_mut().rev().find(|skip| skip.from <= seq) else { return false };
        let is_skipped = skip.left > skip.reserved;
        skip.left -= u64::from(is_skipped);
        is_skipped
    }

    /// Records that packets from number `below` on are about to be lost; [`SeekSkips::lost`] then
    /// records each of them. `kept` are the numbers of the earlier packets that may still yield a
    /// frame: the counts skip their frames first.
    pub(super) fn lose_from(&mut self, below: u64, kept: impl Iterator<Item = u64>) {
        for skip in &mut self.counts {
            (skip.reserved, skip.kept_below) = (0, below);
        }
        for seq in kept {
            if let Some(skip) = self.counts.iter_mut().rev().find(|skip| skip.from <= seq) {
                skip.reserved = (skip.reserved + 1).min(skip.left);
            }
        }
    }
}
