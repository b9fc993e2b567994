// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resumption of a stream after packets of it were lost.

use std::mem;

use crate::access_point::{Leading, RandomAccess};

/// Treatment of the next packet, which may follow a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The packet is decoded, and its frames may be delivered: it has all its references.
    Whole,
    /// The packet is decoded as reference for later packets; its own frames may lack references,
    /// and must not be delivered.
    Withheld,
    /// The packet is dropped: it is a leading picture of the random access point where the stream
    /// resumed or the withholding ended. Only other leading pictures, which are dropped too, may
    /// refer to it.
    Leading,
    /// The packet is dropped: the stream has not resumed since the loss.
    Skipped,
}

/// State of a stream after a loss of packets, until the loss no longer affects later packets. The
/// leading pictures of a random access point are identified by their times, and without times by
/// their types.
#[derive(Debug, Default)]
pub(super) struct Resumption {
    /// True while packets are dropped, until a random access point or a packet flagged as one.
    skipping: bool,
    /// Number of reference pictures that are still withheld, together with the pictures between
    /// them, after the stream resumed at a packet that is only flagged as a random access point; 0
    /// if the recovery is complete, or there is none. `u32::MAX`, less the pictures since, if the
    /// stream resumed at a gradual refresh and the next has not begun.
    withholding: u32,
    /// Presentation time, ticks, before which pictures lack their references: that of the random
    /// access point where the stream resumed or the withholding ended, or of the picture that
    /// completed a recovery. `None` if there is no such picture, or it has no time. Applies until
    /// the next random access point.
    valid_from: Option<i64>,
    /// True from a random access point where the stream resumed or the withholding ended, until a
    /// later packet is only flagged as a random access point, or is no leading picture. If this
    /// packet and the point have a time, the times decide whether the packet is a leading picture;
    /// else its type decides. While true, a picture of the type [`Leading::Skipped`] is dropped if
    /// its own time or that of the point is missing.
    by_type: bool,
    /// True if a random access point came, and no loss since. Pictures shown before `valid_from`
    /// are then dropped, because it is the time of this point, and no picture shown later refers to
    /// them. False before the first point and from a loss to the next point: these pictures are
    /// then withheld, because `valid_from` is the time of the picture that completed a recovery.
    is_point: bool,
}

impl Resumption {
    /// Records that packets directly before the next packet are lost.
    pub(super) fn lose(&mut self) {
        *self = Resumption { skipping: true, ..Resumption::default() };
    }

    /// Returns true after a loss until a packet arrives at which the stream can resume.
    pub(super) fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// Returns true if the next packet, of any class, is decoded, so that no packet is skipped, and
    /// no leading picture is dropped. Its frame may still be withheld.
    pub(super) fn admits_all(&self) -> bool {
        let drops_leading = self.is_point && self.valid_from.is_some();
        // While pictures are withheld, the leading pictures of the next point are dropped.
        !self.skipping && self.withholding == 0 && !drops_leading && !self.by_type
    }

    /// Decides how the next packet in decode order is treated, and updates the state by this
    /// packet. `pts` is its presentation time, ticks; `None` if not known.
    pub(super) fn admit(&mut self, access: RandomAccess, pts: Option<i64>) -> Admission {
        let (reference, leading) = match access {
            RandomAccess::Point => {
                let was_whole = !self.skipping && self.withholding == 0;
                let valid_from = if was_whole { None } else { pts };
                *self =
                    Resumption { valid_from, by_type: !was_whole, is_point: true, ..Resumption::default() };
                return Admission::Whole;
            }
            RandomAccess::Claimed { recovery } => {
                let pictures = recovery.saturating_add(1);
                self.by_type = false;
                if !mem::take(&mut self.skipping) {
                    self.withholding = self.withholding.min(pictures);
                } else if recovery == 0 {
                    self.withholding = pictures;
                } else {
                    // The next refresh ends the withholding. A decoder may be unable to decode the first
                    // picture of this one, because it has no picture to which this one refers.
                    self.withholding = u32::MAX;
                }
                (true, Leading::No)
            }
            RandomAccess::Picture { reference, leading } => {
                // The first picture that is no leading picture ends the leading pictures.
                self.by_type &= match (pts, self.valid_from) {
                    (Some(pts), Some(from)) => pts < from,
                    _ => leading != Leading::No,
                };
                (reference, leading)
            }
        };
        if self.skipping {
            return Admission::Skipped;
        }
        let shown_before = match (pts, self.valid_from) {
            (Some(pts), Some(from)) => pts < from,
            _ => self.by_type && leading == Leading::Skipped,
        };
        if shown_before && self.is_point {
            return Admission::Leading;
        }
        let was_whole = self.withholding == 0;
        if !was_whole && reference {
            self.withholding -= 1;
            if self.withholding == 0 {
                self.valid_from = pts;
            }
        }
        if shown_before || !was_whole { Admission::Withheld } else { Admission::Whole }
    }
}
