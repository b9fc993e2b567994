// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloads of HEVC (RFC 7798): single NAL units, aggregated ones, and fragments, without decoding order numbers.

use std::sync::Arc;

use framepath_model::access_unit::nals;
use framepath_model::frame_number::is_frame_number;

use super::{LARGEST_PAYLOAD, PayloadJoiner};
use crate::error::WebrtcError;

/// Type of a payload with several NAL units.
const AGGREGATED: u8 = 48;
/// Type of a payload with a fragment of a NAL unit.
const FRAGMENT: u8 = 49;
/// Types of parameter sets: of the video, of a sequence, of pictures.
const SETS: [u8; 3] = [32, 33, 34];
/// Bits of a fragment's header for the first and the last fragment of a unit.
const START: u8 = 0x80;
const END: u8 = 0x40;
/// Bits of a NAL unit's first byte that are not its type.
const NOT_TYPE: u8 = 0x81;
/// Start code of NAL units in the frames.
const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// Returns the type of a NAL unit or payload by its first byte.
fn kind_of(first: u8) -> u8 {
    first >> 1 & 0x3f
}

/// Splits a frame with start codes. Small NAL units in a row share a payload, and large ones are split into fragments.
///
/// # Errors
/// The header of a NAL unit is cut off, or its type is one of payloads.
pub(super) fn split(frame: &[u8]) -> Result<Vec<Arc<[u8]>>, WebrtcError> {
    /// Bytes in front of the units of an aggregate, and in front of each of them.
    const HEADER: usize = 2;
    const SIZE: usize = 2;
    let mut payloads = Vec::new();
    let mut waiting: Vec<&[u8]> = Vec::new();
    let mut size = HEADER;
    for nal in nals(frame) {
        if nal.len() < HEADER || kind_of(nal[0]) >= AGGREGATED {
            let wrong =
                format!("a NAL unit of {} bytes and type {} is not valid", nal.len(), kind_of(nal[0]));
            return Err(WebrtcError::Packetize(wrong));
        }
        if size + SIZE + nal.len() > LARGEST_PAYLOAD {
            payloads.extend(joined(&std::mem::take(&mut waiting)));
            size = HEADER;
        }
        if nal.len() > LARGEST_PAYLOAD {
            payloads.extend(fragments(nal));
        } else {
            waiting.push(nal);
            size += SIZE + nal.len();
        }
    }
    payloads.extend(joined(&waiting));
    Ok(payloads)
}

/// Returns the payload of NAL units that fit into one; `None` if there are none.
fn joined(nals: &[&[u8]]) -> Option<Arc<[u8]>> {
    if let [nal] = nals {
        return Some(Arc::from(*nal));
    }
    // The numbers of layer and temporal sub-layer are the lowest of the units'.
    let numbers = |nal: &&[u8]| (nal[0] & 1, nal[1] & 0xf8, nal[1] & 7);
    let high = nals.iter().map(numbers).map(|(high, low, _)| (high, low)).min()?;
    let sub_layer = nals.iter().map(numbers).map(|(.., sub_layer)| sub_layer).min()?;
    let mut payload = vec![AGGREGATED << 1 | high.0, high.1 | sub_layer];
    for nal in nals {
        payload.extend_from_slice(&(nal.len() as u16).to_be_bytes());
        payload.extend_from_slice(nal);
    }
    Some(payload.into())
}

/// Returns the payloads of a NAL unit that is too large for one.
fn fragments(nal: &[u8]) -> impl Iterator<Item = Arc<[u8]>> {
    let parts = nal[2..].chunks(LARGEST_PAYLOAD - 3);
    let last = parts.len() - 1;
    let (first, second) = (nal[0], nal[1]);
    parts.enumerate().map(move |(at, part)| {
        let place = if at == 0 { START } else { 0 } | if at == last { END } else { 0 };
        let header = [first & NOT_TYPE | FRAGMENT << 1, second, place | kind_of(first)];
        [&header[..], part].concat().into()
    })
}

/// Joiner of the payloads of a frame.
#[derive(Debug, Default)]
pub(super) struct HevcJoiner {
    /// Type of the NAL unit of which the last fragment has not come; `None` between units.
    open: Option<u8>,
    has_begun: bool,
}

impl PayloadJoiner for HevcJoiner {
    fn push(&mut self, payload: &[u8], frame: &mut Vec<u8>) -> Option<()> {
        let [first, second, rest @ ..] = payload else { return None };
        // The first bit of a valid unit is 0.
        if first & 0x80 != 0 || kind_of(*first) != FRAGMENT && self.open.is_some() {
            return None;
        }
        self.has_begun = true;
        match kind_of(*first) {
            FRAGMENT => {
                let (header, part) = rest.split_first()?;
                let (is_start, is_end, kind) = (header & START != 0, header & END != 0, header & 0x3f);
                let is_next = if is_start { self.open.is_none() } else { self.open == Some(kind) };
                if !is_next || part.is_empty() || kind >= AGGREGATED || is_start && is_end {
                    return None;
                }
                if is_start {
                    frame.extend_from_slice(&START_CODE);
                    frame.extend_from_slice(&[first & NOT_TYPE | kind << 1, *second]);
                }
                frame.extend_from_slice(part);
                self.open = (!is_end).then_some(kind);
            }
            AGGREGATED if !rest.is_empty() => {
                let mut units = Aggregate(rest);
                while !units.0.is_empty() {
                    let unit = units.next()?;
                    frame.extend_from_slice(&START_CODE);
                    frame.extend_from_slice(unit);
                }
            }
            kind if kind < AGGREGATED => {
                frame.extend_from_slice(&START_CODE);
                frame.extend_from_slice(payload);
            }
            // Headers of their own (PACI, 50), which no known sender writes, and types without a meaning.
            _ => return None,
        }
        Some(())
    }

    fn is_complete(&self) -> bool {
        self.has_begun && self.open.is_none()
    }
}

/// Units of an aggregate behind its header, each with a size of two bytes.
struct Aggregate<'a>(&'a [u8]);

impl<'a> Iterator for Aggregate<'a> {
    type Item = &'a [u8];

    /// Takes the next unit; `None` if it is cut off or not valid.
    fn next(&mut self) -> Option<&'a [u8]> {
        let (size, rest) = self.0.split_first_chunk()?;
        let (unit, rest) = rest.split_at_checked(u16::from_be_bytes(*size).into())?;
        self.0 = rest;
        (unit.len() >= 2 && unit[0] & 0x80 == 0 && kind_of(unit[0]) < AGGREGATED).then_some(unit)
    }
}

/// Returns true if a payload begins a frame, as [`super::begins_frame`].
pub(super) fn begins_frame(payload: &[u8], behind_loss: bool) -> bool {
    let begins_unit = |kind: u8, bytes: &[u8]| match kind {
        // The first bit of a slice says whether it is the first one of the picture. In front of a keyframe's are parameter sets.
        0..16 => bytes.first().is_some_and(|byte| byte & 0x80 != 0),
        // A video parameter set, which every keyframe has and which comes first, or a delimiter.
        32 | 35 => true,
        33 => !behind_loss,
        // The sender's frame number is in front of the first slice, and only parameter sets may be in front of it.
        39 => !behind_loss || is_frame_number(bytes),
        _ => false,
    };
    match payload {
        [first, _, rest @ ..] if kind_of(*first) == AGGREGATED => {
            // The first unit decides.
            Aggregate(rest).next().is_some_and(|unit| begins_unit(kind_of(unit[0]), &unit[2..]))
        }
        [first, _, header, rest @ ..] if kind_of(*first) == FRAGMENT => {
            header & START != 0 && begins_unit(header & 0x3f, rest)
        }
        [first, _, rest @ ..] => begins_unit(kind_of(*first), rest),
        _ => false,
    }
}

/// Returns true if a frame has parameter sets of all kinds.
pub(super) fn has_parameter_sets(frame: &[u8]) -> bool {
    SETS.iter().all(|set| nals(frame).any(|nal| kind_of(nal[0]) == *set))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VPS: &[u8] = &[0x40, 1, 7];
    const SPS: &[u8] = &[0x42, 1, 8];
    const PPS: &[u8] = &[0x44, 1, 9];
    /// IDR slice of a picture's start, without its contents.
    const IDR: &[u8] = &[0x26, 1, 0x80];

    fn frame(nals: &[&[u8]]) -> Vec<u8> {
        nals.iter().flat_map(|nal| [&START_CODE, *nal].concat()).collect()
    }

    fn joined_again(payloads: &[&[u8]]) -> Option<Vec<u8>> {
        let (mut joiner, mut frame) = (HevcJoiner::default(), Vec::new());
        payloads.iter().try_for_each(|payload| joiner.push(payload, &mut frame))?;
        joiner.is_complete().then_some(frame)
    }

    #[test]
    fn frames_are_split_by_the_specification() {
        // A slice of another temporal sub-layer, which is small; one that fits exactly; one that does not.
        let small = &[0x02, 3, 0x80, 1][..];
        // The end of a sequence is a header alone.
        let end = &[0x48, 1][..];
        let fitting = [IDR, &vec![5; LARGEST_PAYLOAD - 3]].concat();
        let large = [IDR, &vec![6; 2 * (LARGEST_PAYLOAD - 3)]].concat();
        let bytes = frame(&[VPS, SPS, PPS, &fitting, small, &large, end]);
        let payloads = split(&bytes).unwrap();
        assert_eq!(payloads[0][..], [&[0x60, 1][..], &[0, 3], VPS, &[0, 3], SPS, &[0, 3], PPS].concat());
        assert_eq!(payloads[1][..], fitting);
        assert_eq!(payloads[2][..], *small);
        let heads: Vec<_> = payloads[3..6].iter().map(|payload| (payload.len(), &payload[..3])).collect();
        assert_eq!(
            heads,
            [
                (LARGEST_PAYLOAD, &[0x62, 1, 0x80 | 19][..]),
                (LARGEST_PAYLOAD, &[0x62, 1, 19][..]),
                (4, &[0x62, 1, 0x40 | 19][..])
            ]
        );
        assert_eq!(payloads[6][..], *end);
        let all: Vec<&[u8]> = payloads.iter().map(|payload| &payload[..]).collect();
        assert_eq!(joined_again(&all), Some(bytes));
        let begins: Vec<bool> = all.iter().map(|payload| begins_frame(payload, true)).collect();
        assert_eq!(begins, [true, false, true, false, false, false, false]);
        // The lowest numbers of layer and sub-layer.
        let payload = joined(&[&[0x03, 0x0b, 1], &[0x02, 0x14, 1]]).unwrap();
        assert_eq!(payload[..2], [0x60, 0x13]);
        assert!(split(&[]).unwrap().is_empty());
    }

    #[test]
    fn units_that_cannot_be_carried_are_refused() {
        for nal in [&[0x26][..], &[0x60, 1, 1], &[0x7e, 1, 1]] {
            assert!(matches!(split(&frame(&[nal])), Err(WebrtcError::Packetize(_))), "{nal:?}");
        }
    }

    #[test]
    fn payloads_that_are_not_valid_are_refused() {
        let (start, middle, end) =
            (&[0x62, 1, 0x80 | 19, 1][..], &[0x62, 1, 19, 2][..], &[0x62, 1, 0x40 | 19, 3][..]);
        assert_eq!(joined_again(&[start, middle, end]), Some(frame(&[&[0x26, 1, 1, 2, 3]])));
        let refused: [&[&[u8]]; 21] = [
            // Fragments in a wrong place, or without an end.
            &[middle, end],
            &[start, middle],
            &[start, start, end],
            &[start, IDR],
            &[start, &[0x60, 1, 0, 3, 0x26, 1, 1], end],
            &[start, &[0x62, 1, 0x40 | 1, 3]],
            // Both the first and the last, without contents, of a payload's type, cut off.
            &[&[0x62, 1, 0xc0 | 19, 1]],
            &[start, &[0x62, 1, 0x40 | 19]],
            &[&[0x62, 1, 0x80 | 48, 1], &[0x62, 1, 0x40 | 48, 1]],
            &[&[0x62, 1]],
            // Aggregates with a size behind the end, of 0, of a part of a header, with a part of a size, nested.
            &[&[0x60, 1, 0, 4, 0x26, 1, 1]],
            &[&[0x60, 1, 0, 0]],
            &[&[0x60, 1, 0, 1, 0x26]],
            &[&[0x60, 1, 0, 3, 0x26, 1, 1, 0]],
            &[&[0x60, 1, 0, 3, 0x60, 1, 1]],
            // No unit, a forbidden bit, types of payloads that are not known.
            &[],
            &[&[0x26]],
            &[&[0x60, 1]],
            &[&[0xa6, 1, 1]],
            &[&[0x64, 1, 1]],
            &[&[0x7e, 1, 1]],
        ];
        for payloads in refused {
            assert_eq!(joined_again(payloads), None, "{payloads:?}");
        }
    }

    #[test]
    fn payloads_begin_a_frame_only_if_nothing_can_be_missing_in_front() {
        let number = [&[0x4e, 1][..], &{
            let mut unit = frame(&[IDR]);
            framepath_model::frame_number::insert_frame_number(
                framepath_model::access_unit::Coding::Hevc,
                &mut unit,
                7,
            );
            nals(&unit).next().unwrap()[2..].to_vec()
        }]
        .concat();
        let other_data: &[u8] = &[0x4e, 1, 6, 1, 1];
        for (payload, at_start, behind_loss) in [
            (VPS, true, true),
            (&[0x46, 1, 0x50], true, true),
            (SPS, true, false),
            (PPS, false, false),
            (other_data, true, false),
            (&number, true, true),
            (IDR, false, false),
            (&[0x02, 1, 0x80], true, true),
            // A slice behind the first.
            (&[0x02, 1, 0x40], false, false),
            (&[0x60, 1, 0, 3, 0x42, 1, 8, 0, 3, 0x44, 1, 9], true, false),
            (&[0x60, 1, 0], false, false),
            (&[0x62, 1, 0x80 | 32, 1], true, true),
            (&[0x62, 1, 0x80 | 1, 0x80], true, true),
            (&[0x62, 1, 1, 0x80], false, false),
            (&[0x62, 1], false, false),
            (&[], false, false),
        ] {
            let begins = [false, true].map(|behind_loss| begins_frame(payload, behind_loss));
            assert_eq!(begins, [at_start, behind_loss], "{payload:?}");
        }
        assert!(has_parameter_sets(&frame(&[VPS, SPS, PPS, IDR])));
        for sets in [[VPS, SPS], [VPS, PPS], [SPS, PPS]] {
            assert!(!has_parameter_sets(&frame(&[sets[0], sets[1], IDR])));
        }
    }
}
