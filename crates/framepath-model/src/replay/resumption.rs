// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resumption of a stream after packets of it were lost.

use std::mem;

use crate::access_point::RandomAccess;

/// Treatment of a packet after a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is decoded, and its frames are right.
    Whole,
    /// It is decoded as reference for later packets; its frames lack what was lost.
    Withheld,
    /// A leading picture of the point where the stream resumes: no other picture needs it.
    Leading,
    /// It cannot be decoded.
    Skipped,
}

/// The loss before the next packet in decode order, as long as it still matters. The leading
/// pictures of a point are known by their times, and without times by their types.
#[derive(Debug, Default)]
pub(super) struct Resumption {
    /// Packets are dropped until a point comes, or a packet that claims to be one.
    skipping: bool,
    /// Reference pictures still to withhold after such a claim.
    withholding: u32,
    /// Until the next point: pictures shown before this time lack their references.
    right_from: Option<i64>,
    /// Directly behind a point: pictures without a time that may be leading ones by their type
    /// are leading ones.
    by_type: bool,
    /// `right_from` is a point's pts, and not that of the picture at which a claim was
    /// made good: pictures shown before it are no references of later ones.
    is_point: bool,
}

impl Resumption {
    /// Records that packets before the next one are lost.
    pub(super) fn lose(&mut self) {
        *self = Resumption { skipping: true, ..Resumption::default() };
    }

    /// Returns true until a packet comes where the stream can resume.
    pub(super) fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// Returns true while every packet is to be decoded, whatever comes next.
    pub(super) fn admits_all(&self) -> bool {
        let drops_leading = self.is_point && self.right_from.is_some();
        // While pictures are withheld, the next point has leading pictures to drop.
        !self.skipping && self.withholding == 0 && !drops_leading && !self.by_type
    }

    /// Decides about the next packet in decode order.
    pub(super) fn admit(&mut self, access: RandomAccess, pts: Option<i64>) -> Admission {
        let reference = match access {
            RandomAccess::Point => {
                let was_whole = !self.skipping && self.withholding == 0;
                let right_from = if was_whole { None } else { pts };
                *self =
                    Resumption { right_from, by_type: !was_whole, is_point: true, ..Resumption::default() };
                return Admission::Whole;
            }
            RandomAccess::Claimed { recovery } => {
                let pictures = recovery.saturating_add(1);
                self.by_type = false;
                if mem::take(&mut self.skipping) {
                    self.withholding = pictures;
                }
                self.withholding = self.withholding.min(pictures);
                true
            }
            RandomAccess::Picture { reference, leading } => {
                self.by_type &= pts.is_some() || leading;
                reference
            }
        };
        if self.skipping {
            return Admission::Skipped;
        }
        let shown_before = match (pts, self.right_from) {
            (Some(pts), Some(from)) => pts < from,
            (None, _) => self.by_type,
            _ => false,
        };
        if shown_before && self.is_point {
            return Admission::Leading;
        }
        let was_whole = self.withholding == 0;
        if !was_whole && reference {
            self.withholding -= 1;
            if self.withholding == 0 {
                self.right_from = pts;
            }
        }
        if shown_before || !was_whole { Admission::Withheld } else { Admission::Whole }
    }
}
