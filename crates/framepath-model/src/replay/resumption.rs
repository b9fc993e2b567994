// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resumption of a stream after packets of it were lost.

use std::mem;

use crate::access_point::{Leading, RandomAccess};

/// Treatment of the next packet, which may follow a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The packet is decoded, and its frames are valid.
    Whole,
    /// The packet is decoded as reference for later packets; its own frames lack their
    /// references.
    Withheld,
    /// The packet is a leading picture of the point where the stream resumes: no other picture
    /// refers to it.
    Leading,
    /// The packet cannot be decoded.
    Skipped,
}

/// State of a stream after a loss of packets, until the loss no longer affects later packets. The
/// leading pictures of a random access point are identified by their times, and without times by
/// their types.
#[derive(Debug, Default)]
pub(super) struct Resumption {
    /// True while packets are dropped, until a random access point or a packet flagged as one.
    skipping: bool,
    /// Number of reference pictures that still have to pass before frames are no longer withheld,
    /// after a packet that is only flagged as a random access point; 0 if no frames are withheld.
    withholding: u32,
    /// Presentation time, ticks, before which pictures lack their references; `None` if there is no
    /// such time. Applies until the next random access point.
    valid_from: Option<i64>,
    /// True between a random access point at which the stream resumed and the next picture in
    /// decode order that is no leading picture by its time or, without a time of both, by its type.
    /// There, pictures of the type [`Leading::Skipped`] are dropped, unless their time shows that
    /// they are no leading pictures.
    by_type: bool,
    /// True if `valid_from` is the time of a random access point: no later picture refers to
    /// pictures shown before it. False if it is the time of the picture that completed a recovery.
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

    /// Returns true if the next packet, of any kind, is decoded: no packet is skipped, and no
    /// leading picture is dropped.
    pub(super) fn admits_all(&self) -> bool {
        let drops_leading = self.is_point && self.valid_from.is_some();
        // While pictures are withheld, the leading pictures of the next point are dropped.
        !self.skipping && self.withholding == 0 && !drops_leading && !self.by_type
    }

    /// Decides how the next packet in decode order is treated, and records the packet. `pts` is its
    /// presentation time, ticks; `None` if not known.
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
                if mem::take(&mut self.skipping) {
                    self.withholding = pictures;
                }
                self.withholding = self.withholding.min(pictures);
                (true, Leading::No)
            }
            RandomAccess::Picture { reference, leading } => {
                // The first picture that is no leading picture ends them.
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
