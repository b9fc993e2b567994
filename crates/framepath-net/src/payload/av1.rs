// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloads of AV1, by "RTP Payload Format For AV1" of the Alliance for Open Media, without its dependency descriptor.
//!
//! A payload has an aggregation header and parts of units (OBUs). Units have no sizes of their own in payloads, and have
//! them in frames, which are temporal units in the low-overhead format, without their delimiters.

use std::sync::Arc;

use super::{LARGEST_PAYLOAD, PayloadJoiner};
use crate::error::WebrtcError;

// Bits of the aggregation header.
/// The first part continues the last one of the payload before.
const CONTINUES: u8 = 0x80;
/// The last part is continued in the next payload.
const CONTINUED: u8 = 0x40;
/// First payload of a coded video sequence: of a keyframe.
const NEW_SEQUENCE: u8 = 0x08;

// Bits of a unit's header.
const FORBIDDEN: u8 = 0x80;
const HAS_EXTENSION: u8 = 4;
const HAS_SIZE: u8 = 2;

// Types of units.
const SEQUENCE_HEADER: u8 = 1;
const TEMPORAL_DELIMITER: u8 = 2;
const TILE_LIST: u8 = 8;
const PADDING: u8 = 15;

/// Unit of a stream, without its size.
struct ObuParts<'a> {
    /// Header, with its extension.
    header: &'a [u8],
    body: &'a [u8],
}

impl ObuParts<'_> {
    /// Takes the first unit from `rest`; without a size, the unit is all of it. Returns `None` if the unit is not valid or cut off.
    fn take<'a>(rest: &mut &'a [u8]) -> Option<ObuParts<'a>> {
        let first = *rest.first()?;
        if first & FORBIDDEN != 0 {
            return None;
        }
        let (header, mut behind) = rest.split_at_checked(if first & HAS_EXTENSION != 0 { 2 } else { 1 })?;
        let size = if first & HAS_SIZE != 0 { take_leb128(&mut behind)? } else { behind.len() };
        let (body, behind) = behind.split_at_checked(size)?;
        *rest = behind;
        Some(ObuParts { header, body })
    }

    fn kind(&self) -> u8 {
        self.header[0] >> 3 & 15
    }

    /// Returns true for a unit that RTP does not carry.
    fn is_left_out(&self) -> bool {
        matches!(self.kind(), TEMPORAL_DELIMITER | TILE_LIST | PADDING)
    }
}

/// Takes a number in the form LEB128 from the front of `rest`; `None` if it has more than eight bytes or is cut off.
fn take_leb128(rest: &mut &[u8]) -> Option<usize> {
    let mut value = 0u64;
    for at in 0..8 {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return usize::try_from(value).ok();
        }
    }
    None
}

/// Adds a number in the form LEB128 to `bytes`.
fn push_leb128(mut value: usize, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Splits a temporal unit; `key` is true if decoding can start at it. Each part has its size in front.
///
/// # Errors
/// A unit is not valid or cut off.
pub(super) fn split(frame: &[u8], key: bool) -> Result<Vec<Arc<[u8]>>, WebrtcError> {
    /// Bytes of the size of the largest part.
    const SIZE: usize = 2;
    let mut payloads = Vec::new();
    let mut payload = vec![if key { NEW_SEQUENCE } else { 0 }];
    let mut rest = frame;
    while !rest.is_empty() {
        let unit = ObuParts::take(&mut rest)
            .ok_or_else(|| WebrtcError::Packetize("a unit (OBU) is not valid or cut off".to_owned()))?;
        if unit.is_left_out() {
            continue;
        }
        let header = [&[unit.header[0] & !HAS_SIZE], &unit.header[1..]].concat();
        let element = [&header, unit.body].concat();
        let mut left = &element[..];
        while !left.is_empty() {
            if payload.len() + SIZE >= LARGEST_PAYLOAD {
                payloads.push(Arc::from(std::mem::replace(&mut payload, vec![0])));
            }
            let (part, behind) = left.split_at(left.len().min(LARGEST_PAYLOAD - SIZE - payload.len()));
            left = behind;
            push_leb128(part.len(), &mut payload);
            payload.extend_from_slice(part);
            if !left.is_empty() {
                payload[0] |= CONTINUED;
                payloads.push(Arc::from(std::mem::replace(&mut payload, vec![CONTINUES])));
            }
        }
    }
    if payload.len() > 1 {
        payloads.push(payload.into());
    }
    Ok(payloads)
}

/// Joiner of the payloads of a temporal unit.
#[derive(Debug, Default)]
pub(super) struct Av1Joiner {
    /// Parts of a unit of which the last one has not come; empty between units.
    open: Vec<u8>,
    has_begun: bool,
}

impl PayloadJoiner for Av1Joiner {
    fn push(&mut self, payload: &[u8], frame: &mut Vec<u8>) -> Option<()> {
        let (&head, mut rest) = payload.split_first()?;
        let continues = head & CONTINUES != 0;
        let begins_again = head & NEW_SEQUENCE != 0 && self.has_begun;
        if rest.is_empty() || continues == self.open.is_empty() || begins_again {
            return None;
        }
        self.has_begun = true;
        // Number of parts, of which the last one then has no size; 0: not known, and each has a size.
        let count = head >> 4 & 3;
        let mut number = 0;
        while !rest.is_empty() {
            // Only up to `count`, because the last part is all of the rest.
            number = (number + 1).min(count + 1);
            let size = if number == count { rest.len() } else { take_leb128(&mut rest)? };
            let (part, behind) = rest.split_at_checked(size)?;
            rest = behind;
            if part.is_empty() {
                return None;
            }
            self.open.extend_from_slice(part);
            if !rest.is_empty() || head & CONTINUED == 0 {
                write_unit(&self.open, frame)?;
                self.open.clear();
            }
        }
        (count == 0 || number == count).then_some(())
    }

    fn is_complete(&self) -> bool {
        self.has_begun && self.open.is_empty()
    }
}

/// Adds a unit to the frame, with its size. Returns `None` if the unit is not valid.
fn write_unit(mut bytes: &[u8], frame: &mut Vec<u8>) -> Option<()> {
    let unit = ObuParts::take(&mut bytes)?;
    // A sender may leave the size in the unit; then it has to be right.
    if !bytes.is_empty() {
        return None;
    }
    if !unit.is_left_out() {
        frame.push(unit.header[0] | HAS_SIZE);
        frame.extend_from_slice(&unit.header[1..]);
        push_leb128(unit.body.len(), frame);
        frame.extend_from_slice(unit.body);
    }
    Some(())
}

/// Returns true if a payload begins a temporal unit. Of a unit that does not begin a coded video sequence this does not show: behind a
/// loss, the result is then false.
pub(super) fn begins_frame(payload: &[u8], behind_loss: bool) -> bool {
    let head = payload.first().copied().unwrap_or(CONTINUES);
    head & CONTINUES == 0 && (!behind_loss || head & NEW_SEQUENCE != 0)
}

/// Returns true if a temporal unit has a sequence header.
pub(super) fn has_sequence_header(mut frame: &[u8]) -> bool {
    let units = std::iter::from_fn(|| ObuParts::take(&mut frame));
    units.into_iter().any(|unit| unit.kind() == SEQUENCE_HEADER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(payloads: &[&[u8]]) -> Option<Vec<u8>> {
        let (mut joiner, mut frame) = (Av1Joiner::default(), Vec::new());
        payloads.iter().try_for_each(|payload| joiner.push(payload, &mut frame))?;
        joiner.is_complete().then_some(frame)
    }

    #[test]
    fn units_are_split_by_the_specification() {
        // Delimiter, sequence header, frame header with an extension, padding, and a tile group without a size.
        let frame =
            [&[0x12, 0, 0x0a, 2, 7, 8, 0x1e, 0x20, 1, 9, 0x7a, 1, 0x80, 0x20][..], &[5; 2500]].concat();
        let payloads = split(&frame, true).unwrap();
        let head = [NEW_SEQUENCE | CONTINUED, 3, 0x08, 7, 8, 3, 0x1c, 0x20, 9];
        assert_eq!(payloads[0][..9], head);
        // The rest of the first payload: 1109 bytes of the tile group, behind their size.
        assert_eq!(payloads[0][9..12], [0xd5, 0x08, 0x20]);
        assert_eq!(payloads[1][..4], [CONTINUES | CONTINUED, 0xdd, 0x08, 5]);
        assert_eq!(payloads[2][..4], [CONTINUES, 0x93, 0x02, 5]);
        let sizes: Vec<usize> = payloads.iter().map(|payload| payload.len()).collect();
        assert_eq!(sizes, [LARGEST_PAYLOAD, LARGEST_PAYLOAD, 3 + 275]);
        let all: Vec<&[u8]> = payloads.iter().map(|payload| &payload[..]).collect();
        // Each unit has its size again: 2500 is 0xc4 0x13.
        let expected = [&[0x0a, 2, 7, 8, 0x1e, 0x20, 1, 9, 0x22, 0xc4, 0x13][..], &[5; 2500]].concat();
        assert_eq!(joined(&all), Some(expected.clone()));
        assert!(has_sequence_header(&expected) && !has_sequence_header(&expected[4..]));
        let begins: Vec<bool> = all.iter().map(|payload| begins_frame(payload, true)).collect();
        assert_eq!(begins, [true, false, false]);
        let inter = split(&[0x32, 1, 9], false).unwrap();
        assert_eq!(inter, [Arc::from([0, 2, 0x30, 9])]);
        assert_eq!([false, true].map(|behind_loss| begins_frame(&inter[0], behind_loss)), [true, false]);
        assert!(split(&[0x12, 0], false).unwrap().is_empty() && !begins_frame(&[], false));
    }

    #[test]
    fn all_sizes_of_units_pass() {
        for size in (0..300).chain(LARGEST_PAYLOAD - 140..LARGEST_PAYLOAD + 140) {
            // The second unit begins at each place of the payload.
            let mut frame = Vec::new();
            for body in [vec![1; size], vec![2; 130], vec![3; 0]] {
                frame.push(0x32);
                push_leb128(body.len(), &mut frame);
                frame.extend(body);
            }
            let payloads = split(&frame, false).unwrap();
            assert!(payloads.iter().all(|payload| payload.len() <= LARGEST_PAYLOAD), "{size}");
            let all: Vec<&[u8]> = payloads.iter().map(|payload| &payload[..]).collect();
            assert_eq!(joined(&all), Some(frame), "{size}");
        }
    }

    #[test]
    fn units_that_are_cut_off_are_refused() {
        for frame in [&[0x32, 2, 9][..], &[0x32], &[0x36], &[0xb2, 0], &[0x32, 0x80], &[0x32; 1], &[0x36, 0]]
        {
            assert!(matches!(split(frame, false), Err(WebrtcError::Packetize(_))), "{frame:?}");
        }
    }

    #[test]
    fn payloads_of_other_senders_are_joined() {
        let expected = vec![0x0a, 1, 7, 0x32, 1, 9];
        for payloads in [
            // The number of parts is known; the last has no size.
            &[&[0x28, 2, 0x08, 7, 0x30, 9][..]][..],
            &[&[0x18, 0x08, 7], &[0x10, 0x30, 9]],
            // Fragments without sizes.
            &[&[0x28 | CONTINUED, 2, 0x08, 7, 0x30], &[0x10 | CONTINUES, 9]],
            // A size inside the unit, a delimiter, and padding.
            &[&[0, 3, 0x0a, 1, 7, 2, 0x12, 0, 3, 0x32, 1, 9, 2, 0x7a, 0]],
        ] {
            assert_eq!(joined(payloads), Some(expected.clone()), "{payloads:?}");
        }
    }

    #[test]
    fn payloads_that_are_not_valid_are_refused() {
        let (begin, end) = (&[CONTINUED, 2, 0x30, 1][..], &[CONTINUES, 1, 2][..]);
        assert_eq!(joined(&[begin, end]), Some(vec![0x32, 2, 1, 2]));
        for payloads in [
            // Fragments in a wrong place, or without an end.
            &[end][..],
            &[begin],
            &[begin, begin],
            &[begin, &[0, 2, 0x30, 1]],
            &[begin, &[CONTINUES | NEW_SEQUENCE, 1, 2]],
            &[&[0, 2, 0x30, 1], &[NEW_SEQUENCE, 2, 0x30, 1]],
            // Nothing, no part, an empty part, sizes behind the end, cut off, too long.
            &[],
            &[&[]],
            &[&[0]],
            &[&[0, 0]],
            &[&[0, 2, 0x30, 1, 0]],
            &[&[0, 3, 0x30, 1]],
            &[&[0, 0x80]],
            &[&[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]],
            // Fewer parts than the header says.
            &[&[0x30, 2, 0x30, 1]],
            &[&[0x20, 2, 0x30, 1]],
            // A forbidden bit, an extension that is cut off, a wrong size inside the unit.
            &[&[0x10, 0xb0, 1]],
            &[&[0x10, 0x34]],
            &[&[0x10, 0x32, 2, 1]],
            &[&[0x10, 0x32, 0, 1]],
        ] {
            assert_eq!(joined(payloads), None, "{payloads:?}");
        }
    }
}
