// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeks in streams with gradual refresh (H.264: `intra-refresh` of x264), in which few packets or none
//! but the first are random access points that their bytes confirm.
//!
//! A gradual refresh begins at a packet with a recovery point message, and its pictures are right some
//! pictures later. libavcodec does not decode the first picture of a refresh if there is no picture to
//! which this picture can refer: it makes a stand-in only if the picture's frame number is not 0. A
//! refresh without its first picture leaves a part of later pictures wrong. So decoding starts at the
//! begin of one refresh, and pictures are right when the *next* refresh is complete.

use framepath_model::access_point::RandomAccess;

use super::seek::Marking;
use super::{Demuxer, Mark};
use crate::{CodecError, Packet};

/// Maximum number of seeks before decoding starts at the first packet of the file.
const TRIES: u32 = 24;

/// Packet at which decoding starts after a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Landing<P> {
    pub(super) start: P,
    /// Presentation time, in ticks, from which pictures are right; `None` if it is not known.
    pub(super) right_from: Option<i64>,
}

/// Search for the last packet from which the picture at the time of a seek is decoded right. Takes the
/// packets in decode order.
#[derive(Debug)]
pub(super) struct LandingSearch {
    /// Time of the seek, in ticks.
    latest: i64,
    /// True if a complete refresh makes pictures right: the stream's messages say that it does, and each
    /// packet has a whole frame, so that packets can be counted.
    trusts_refreshes: bool,
    /// Last packet at which a decoder can start, even if its first pictures are wrong.
    last_start: Option<Mark>,
    /// Refreshes that are not complete yet: the start before each, and the number of reference pictures
    /// up to the one that completes the refresh.
    pending: Vec<(Mark, u32)>,
    found: Option<Landing<Mark>>,
}

impl LandingSearch {
    fn new(latest: i64, trusts_refreshes: bool) -> LandingSearch {
        LandingSearch { latest, trusts_refreshes, last_start: None, pending: Vec::new(), found: None }
    }

    /// Takes the next packet with its class. Returns false if no later packet matters: a random access
    /// point is shown after the time of the seek.
    fn take(&mut self, mark: Mark, access: RandomAccess) -> bool {
        if !matches!(access, RandomAccess::Picture { .. }) && mark.pts.is_some_and(|pts| pts > self.latest) {
            return false;
        }
        match access {
            RandomAccess::Picture { reference: false, .. } => return true,
            RandomAccess::Picture { .. } => {}
            RandomAccess::Claimed { recovery: recovery @ 1.. } => {
                if let Some(start) = self.last_start.filter(|_| self.trusts_refreshes) {
                    self.pending.push((start, recovery.saturating_add(1)));
                }
                self.last_start = Some(mark);
            }
            RandomAccess::Point | RandomAccess::Claimed { recovery: 0 } => {
                self.pending.clear();
                self.last_start = Some(mark);
                if mark.pts.is_some() {
                    self.found = Some(Landing { start: mark, right_from: mark.pts });
                }
            }
        }
        let completed = |(start, left): &mut (Mark, u32)| {
            *left -= 1;
            (*left == 0).then_some(*start)
        };
        if let Some(start) = self.pending.iter_mut().filter_map(completed).next_back() {
            self.pending.retain(|(_, left)| *left > 0);
            if mark.pts.is_some_and(|pts| pts <= self.latest) {
                self.found = Some(Landing { start, right_from: mark.pts });
            }
        }
        true
    }
}

impl Demuxer {
    /// Returns the last packet from which the picture at `latest` (in ticks) is decoded right, for a stream
    /// with gradual refresh. The next read returns the packet after this one. Returns `None` if decoding
    /// has to start at the first packet of the file; the caller then rewinds.
    pub(super) fn land_in_gradual(&mut self, latest: i64) -> Result<Option<Landing<Packet>>, CodecError> {
        let mut step = self.second();
        let mut aim = latest;
        for _ in 0..TRIES {
            if !self.go_before(aim) {
                return Ok(None);
            }
            if let Some(found) = self.search_landing(latest)? {
                if !self.go_before(aim) {
                    return Ok(None);
                }
                return self.read_up_to(found, latest);
            }
            aim = aim.saturating_sub(step);
            step = step.saturating_mul(2);
        }
        Ok(None)
    }

    /// Reads the packets up to the time `latest` (in ticks), and searches the landing among them.
    fn search_landing(&mut self, latest: i64) -> Result<Option<Landing<Mark>>, CodecError> {
        let counts = !self.context.has_fields(self.stream);
        let mut search = LandingSearch::new(latest, counts && self.points.is_exact());
        while let Some(packet) = self.read_next()? {
            let access = self.access_of(&packet);
            search.trusts_refreshes &= self.points.is_exact();
            let refuted_behind = self.is_refuted && packet.meta().pts.is_some_and(|pts| pts > latest);
            if refuted_behind || !search.take(Mark::of(&packet), access) {
                break;
            }
        }
        Ok(search.found)
    }

    /// Returns the search for the first right picture, if decoding starts at the packet that was read
    /// ahead, and this packet begins a gradual refresh that another can complete.
    pub(super) fn recovery_from_start(&self) -> Option<LandingSearch> {
        let is_refresh = matches!(self.claim, Some(RandomAccess::Claimed { recovery: 1.. }));
        let has_time = self.read_ahead.as_ref().is_some_and(|packet| packet.meta().pts.is_some());
        let trusts = self.points.is_exact() && !self.context.has_fields(self.stream);
        (is_refresh && has_time && trusts).then(|| LandingSearch::new(i64::MAX, trusts))
    }

    /// Marks `packet`, the next one in decode order, as discarded if the gradual refresh is not complete at
    /// which decoding has started. When it is, the marking by times begins.
    pub(super) fn mark_recovery(&mut self, packet: &mut Packet) {
        let Some(mut search) = self.recovery.take() else { return };
        let access = self.access_of(packet);
        search.take(Mark::of(packet), access);
        match search.found.and_then(|found| found.right_from) {
            Some(right_from) => self.marking = Some(Marking::starting_before(right_from)),
            None => {
                packet.preroll_mut().discarded = true;
                self.recovery = Some(search);
            }
        }
    }

    /// Returns the class of `packet`, which was read last. A damaged packet is no random access point.
    fn access_of(&mut self, packet: &Packet) -> RandomAccess {
        match self.claim {
            Some(access) if !packet.is_damaged() => access,
            _ => {
                let bytes = packet.bytes().unwrap_or_default();
                self.points.inspect(bytes, false, true).unwrap_or(RandomAccess::PICTURE)
            }
        }
    }

    /// Reads up to the packet of `found`, and returns this packet; `None` if no packet up to `latest` (in
    /// ticks) is that packet, because libavformat's seek led to another place than before.
    fn read_up_to(
        &mut self,
        found: Landing<Mark>,
        latest: i64,
    ) -> Result<Option<Landing<Packet>>, CodecError> {
        while let Some(packet) = self.read_next()? {
            if Mark::of(&packet) == found.start {
                return Ok(Some(Landing { start: packet, right_from: found.right_from }));
            }
            if packet.is_key() && packet.meta().pts.is_some_and(|pts| pts > latest) {
                break;
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURE: RandomAccess = RandomAccess::PICTURE;
    const REFRESH: RandomAccess = RandomAccess::Claimed { recovery: 2 };

    fn mark(pts: i64) -> Mark {
        Mark { position: pts, pts: Some(pts), length: 1 }
    }

    /// Returns the times of the start and of the first right picture for a seek to `latest`, in a stream
    /// with a point every 20 pictures, a refresh of two pictures every 5, and no other references than
    /// every picture.
    fn found(latest: i64, from: i64, trusts_refreshes: bool) -> Option<(i64, i64)> {
        let mut search = LandingSearch::new(latest, trusts_refreshes);
        for pts in from..40 {
            let access = match pts {
                _ if pts % 20 == 0 => RandomAccess::Point,
                _ if pts % 5 == 0 => REFRESH,
                _ => PICTURE,
            };
            if !search.take(mark(pts), access) {
                break;
            }
        }
        search.found.map(|found| (found.start.position, found.right_from.unwrap()))
    }

    #[test]
    fn decoding_starts_one_refresh_before_a_complete_one() {
        assert_eq!(found(11, 0, true), Some((0, 7)));
        assert_eq!(found(12, 0, true), Some((5, 12)));
        assert_eq!(found(16, 0, true), Some((5, 12)));
        assert_eq!(found(17, 0, true), Some((10, 17)));
        assert_eq!(found(21, 0, true), Some((20, 20)));
        // The seek led to a place behind the point.
        assert_eq!(found(11, 3, true), None);
        assert_eq!(found(12, 3, true), Some((5, 12)));
        // A refresh that does not make pictures right.
        assert_eq!((found(17, 0, false), found(17, 3, false)), (Some((0, 0)), None));
    }
}
