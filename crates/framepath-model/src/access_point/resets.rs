// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that make a decoder forget all earlier ones.

use std::ops::RangeInclusive;

use super::{AccessPoints, RandomAccess, av1, keeps_segment_map};
use crate::access_unit::{Coding, vp8, vp9};

impl AccessPoints {
    /// Returns true if a decoder that has decoded other packets gives the same pictures from this packet on as a new
    /// decoder: the packet, whose bytes are `bytes`, is a random access point, and no picture after it, leading ones included,
    /// refers to one before it. False if this is not known.
    pub fn resets(&self, bytes: &[u8]) -> bool {
        let begins = |kinds: RangeInclusive<u8>, kind: fn(u8) -> u8| {
            self.framing.units(bytes).any(|unit| kinds.contains(&kind(unit[0])))
        };
        match self.coding {
            // IDR slices.
            Coding::H264 => begins(5..=5, |head| head & 0x1f),
            // IDR and BLA pictures: decoders drop the RASL pictures of a BLA picture. Those of a CRA picture may refer to
            // earlier pictures.
            Coding::Hevc => begins(16..=20, |head| head >> 1 & 0x3f),
            Coding::Vp8 => vp8(bytes).0 && !keeps_segment_map(bytes),
            Coding::Vp9 => vp9(bytes).is_some(),
            Coding::Av1 => av1(bytes, true) == Some(RandomAccess::Point),
            Coding::Intra => true,
            // MPEG-1 and MPEG-2 have open groups of pictures; of the others, nothing is known.
            Coding::Mjpeg | Coding::Mpeg2 | Coding::Mpeg4 | Coding::H263 | Coding::Flv1 => false,
            Coding::Inter | Coding::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_without_leading_pictures_of_earlier_references_reset() {
        let resets = |coding, bytes: &[u8]| AccessPoints::new(coding, &[]).resets(bytes);
        assert!(resets(Coding::H264, &[0, 0, 1, 0x67, 1, 0, 0, 1, 0x65, 0x88, 0x80]));
        // An I picture with a recovery point of 0 frames.
        assert!(!resets(Coding::H264, &[0, 0, 1, 6, 6, 1, 0xc4, 0x80, 0, 0, 1, 0x41, 0x88, 0x80]));
        // BLA_W_LP, IDR_N_LP and CRA.
        for (kind, wanted) in [(16, true), (20, true), (21, false)] {
            assert_eq!(resets(Coding::Hevc, &[0, 0, 1, kind << 1, 1, 0x80, 0]), wanted, "{kind}");
        }
        // A sequence header, a group header with a closed group, and an I picture.
        assert!(!resets(
            Coding::Mpeg2,
            &[0, 0, 1, 0xb3, 0, 0, 1, 0xb8, 0, 0, 0, 0x40, 0, 0, 1, 0, 0, 8, 0, 0]
        ));
        assert!(resets(Coding::Intra, &[]) && !resets(Coding::Other, &[]) && !resets(Coding::Vp9, &[]));
    }
}
