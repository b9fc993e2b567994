// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloads of VP9 (RFC 9628) with one spatial layer.

use std::sync::Arc;

use super::{LARGEST_PAYLOAD, PayloadJoiner};

// Bits of a descriptor's first byte (RFC 9628, 4.2).
/// A picture number follows.
const PICTURE_ID: u8 = 0x80;
/// The frame refers to others.
const PREDICTED: u8 = 0x40;
/// The numbers of the layers follow.
const LAYERS: u8 = 0x20;
/// Flexible mode: the numbers of the references follow.
const FLEXIBLE: u8 = 0x10;
/// First payload of a frame.
const BEGIN: u8 = 0x08;
/// Last payload of a frame.
const END: u8 = 0x04;
/// A description of the layers follows.
const STRUCTURE: u8 = 0x02;

/// Number of bits of a picture's number.
const PICTURE_BITS: u16 = 15;

/// Splitter of frames. Counts the frames, because receivers such as browsers want numbers.
#[derive(Debug, Default)]
pub(crate) struct Vp9Splitter {
    /// Number of the next frame.
    picture: u16,
}

impl Vp9Splitter {
    /// Splits a frame or superframe. The descriptors are those of libwebrtc for a stream without layers: not flexible, because
    /// Safari drops frames in flexible mode.
    pub(super) fn split(&mut self, frame: &[u8], key: bool) -> Vec<Arc<[u8]>> {
        /// Numbers of the layers: all 0, and the next frame may belong to a higher one.
        const LAYER: u8 = 0x10;
        /// Description of the layers: one, without its size and without groups of pictures.
        const ONE_LAYER: u8 = 0;
        /// Bytes of the largest descriptor.
        const DESCRIPTOR: usize = 6;
        let [high, low] = self.picture.to_be_bytes();
        let is_predicted = if key { 0 } else { PREDICTED };
        let mut payloads = Vec::new();
        let mut parts = frame.chunks(LARGEST_PAYLOAD - DESCRIPTOR).peekable();
        while let Some(part) = parts.next() {
            let is_first = payloads.is_empty();
            let mut flags = PICTURE_ID | LAYERS | is_predicted;
            flags |= if is_first { BEGIN } else { 0 };
            flags |= if parts.peek().is_none() { END } else { 0 };
            flags |= if is_first && key { STRUCTURE } else { 0 };
            // The number has 15 bits. The last byte counts the frames of the lowest layer: all.
            let mut payload = vec![flags, 0x80 | high, low, LAYER, low];
            if is_first && key {
                payload.push(ONE_LAYER);
            }
            payload.extend_from_slice(part);
            payloads.push(payload.into());
        }
        self.picture = (self.picture + 1) % (1 << PICTURE_BITS);
        payloads
    }
}

/// Joiner of the payloads of a frame.
#[derive(Debug, Default)]
pub(super) struct Vp9Joiner {
    has_begun: bool,
    has_ended: bool,
}

impl PayloadJoiner for Vp9Joiner {
    fn push(&mut self, payload: &[u8], frame: &mut Vec<u8>) -> Option<()> {
        let flags = *payload.first()?;
        let (layer, part) = describe(payload)?;
        let is_next = (flags & BEGIN == 0) == self.has_begun && !self.has_ended;
        if layer != 0 || part.is_empty() || !is_next {
            return None;
        }
        frame.extend_from_slice(part);
        (self.has_begun, self.has_ended) = (true, flags & END != 0);
        Some(())
    }

    fn is_complete(&self) -> bool {
        self.has_ended
    }
}

/// Returns true if a payload begins a frame of the lowest spatial layer.
pub(super) fn begins_frame(payload: &[u8]) -> bool {
    let is_lowest = || describe(payload).is_some_and(|(layer, _)| layer == 0);
    payload.first().is_some_and(|flags| flags & BEGIN != 0) && is_lowest()
}

/// Returns the number of the spatial layer, and the bytes behind the descriptor; `None` if the descriptor is cut off or not valid.
fn describe(payload: &[u8]) -> Option<(u8, &[u8])> {
    /// Maximum number of references of a frame.
    const REFERENCES: usize = 3;
    let (&flags, mut rest) = payload.split_first()?;
    if flags & PICTURE_ID != 0 {
        // The first bit says whether the number has 15 bits or 7.
        let long = take(&mut rest, 1)?[0] & 0x80 != 0;
        take(&mut rest, usize::from(long))?;
    }
    let mut layer = 0;
    if flags & LAYERS != 0 {
        layer = take(&mut rest, 1)?[0] >> 1 & 7;
        // The number of the frame in the lowest layer.
        take(&mut rest, usize::from(flags & FLEXIBLE == 0))?;
    }
    if flags & (FLEXIBLE | PREDICTED) == FLEXIBLE | PREDICTED {
        let mut count = 1;
        // The last bit says whether another one follows.
        while take(&mut rest, 1)?[0] & 1 != 0 {
            count += 1;
            if count > REFERENCES {
                return None;
            }
        }
    }
    if flags & STRUCTURE != 0 {
        let head = take(&mut rest, 1)?[0];
        let (layers, has_sizes, has_groups) =
            (usize::from(head >> 5) + 1, head & 0x10 != 0, head & 0x08 != 0);
        // Width and height, two bytes each.
        take(&mut rest, if has_sizes { layers * 4 } else { 0 })?;
        let pictures = if has_groups { take(&mut rest, 1)?[0] } else { 0 };
        for _ in 0..pictures {
            let references = take(&mut rest, 1)?[0] >> 2 & 3;
            take(&mut rest, references.into())?;
        }
    }
    Some((layer, rest))
}

/// Takes `count` bytes from the front of `rest`; `None` if there are fewer.
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(count)?;
    *rest = behind;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(payloads: &[&[u8]]) -> Option<Vec<u8>> {
        let (mut joiner, mut frame) = (Vp9Joiner::default(), Vec::new());
        payloads.iter().try_for_each(|payload| joiner.push(payload, &mut frame))?;
        joiner.is_complete().then_some(frame)
    }

    #[test]
    fn frames_are_split_by_the_specification() {
        let mut splitter = Vp9Splitter { picture: 0x7fff };
        let key = splitter.split(&[7; 2 * 1114 + 1], true);
        let sizes: Vec<usize> = key.iter().map(|payload| payload.len()).collect();
        assert_eq!(sizes, [LARGEST_PAYLOAD, LARGEST_PAYLOAD - 1, 6]);
        assert_eq!(key[0][..7], [0xaa, 0xff, 0xff, 0x10, 0xff, 0, 7]);
        assert_eq!(key[1][..6], [0xa0, 0xff, 0xff, 0x10, 0xff, 7]);
        assert_eq!(key[2][..], [0xa4, 0xff, 0xff, 0x10, 0xff, 7]);
        let next = splitter.split(&[8], false);
        assert_eq!(next, [Arc::from([0xec, 0x80, 0, 0x10, 0, 8])]);
        let begins: Vec<bool> = key.iter().map(|payload| begins_frame(payload)).collect();
        assert_eq!((begins, begins_frame(&next[0])), (vec![true, false, false], true));
    }

    #[test]
    fn all_descriptors_are_skipped() {
        let descriptors: [&[u8]; 6] = [
            &[BEGIN | END],
            &[PICTURE_ID | BEGIN | END, 0x7f],
            &[PICTURE_ID | BEGIN | END, 0x80, 0],
            // Three references.
            &[FLEXIBLE | PREDICTED | LAYERS | BEGIN | END, 0xf1, 3, 5, 6],
            // Two layers with sizes.
            &[STRUCTURE | BEGIN | END, 0x30, 1, 2, 3, 4, 5, 6, 7, 8],
            // A group of two pictures, with three references and none.
            &[STRUCTURE | BEGIN | END, 0x08, 2, 0x0c, 1, 2, 3, 0],
        ];
        for descriptor in descriptors {
            let payload = [descriptor, &[9, 8]].concat();
            assert_eq!(joined(&[&payload]), Some(vec![9, 8]), "{descriptor:?}");
            // Cut off, or without a part of the frame.
            for length in 0..=descriptor.len() {
                assert_eq!(joined(&[&descriptor[..length]]), None, "{descriptor:?} {length}");
            }
        }
    }

    #[test]
    fn payloads_in_a_wrong_place_are_refused() {
        let (begin, middle, end) = (&[BEGIN, 1][..], &[0, 2][..], &[END, 3][..]);
        assert_eq!(joined(&[begin, middle, end]), Some(vec![1, 2, 3]));
        let whole = &[BEGIN | END, 1][..];
        for payloads in
            [&[begin, middle][..], &[middle, end], &[begin, begin, end], &[whole, end], &[whole, whole]]
        {
            assert_eq!(joined(payloads), None, "{payloads:?}");
        }
        // Another spatial layer, and more references than there are.
        assert_eq!(joined(&[&[LAYERS | BEGIN | END, 2, 0, 1]]), None);
        assert!(!begins_frame(&[LAYERS | BEGIN | END, 2, 0, 1]) && !begins_frame(&[]));
        assert_eq!(joined(&[&[FLEXIBLE | PREDICTED | BEGIN | END, 1, 1, 1, 0, 9]]), None);
    }
}
