// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of a compressed picture, read without decoding: whether decoding can start at it,
//! and whether a new sequence begins.
//!
//! Only heads are read, by the tables of ITU-T H.264 (7.3.1, 7.4.1), ITU-T H.265 (7.3.1), RFC 6386
//! (9.1), the VP9 bitstream specification (6.2) and the AV1 specification (5.3, 5.5, 5.9). The
//! bytes are not trusted: at an access unit whose bytes cannot be parsed, neither decoding nor a
//! sequence begins.

use std::fmt;

/// Codec of a stream, as far as the reading of its packets distinguishes codecs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// H.264, as the container has it; [`Sequences`] takes byte streams (Annex B) only.
    H264,
    /// HEVC, as the container has it; [`Sequences`] takes byte streams (Annex B) only.
    Hevc,
    /// VP8; an access unit is one frame.
    Vp8,
    /// VP9; an access unit is one frame or superframe.
    Vp9,
    /// AV1 in the low-overhead format; an access unit is one temporal unit.
    Av1,
    /// Codec whose packets are decoded one by one, without references, such as ProRes.
    Intra,
    /// MJPEG: pictures without references, but the quantisation tables may be in an earlier packet.
    Mjpeg,
    /// MPEG-1 or MPEG-2 video.
    Mpeg2,
    /// MPEG-4 part 2.
    Mpeg4,
    /// H.263, with or without its version 2 (H.263+).
    H263,
    /// Sorenson's form of H.263, in FLV.
    Flv1,
    /// Codec whose pictures may all refer to earlier ones, because no picture has a type: H.261. No
    /// packet is a random access point, whatever the container says; decoding starts at the first.
    Inter,
    /// Codec whose packets are not parsed: nothing confirms that decoding can start at one.
    Other,
}

impl fmt::Display for Coding {
    /// Writes the codec's name in small letters, as the formats and the command line have it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Coding::H264 => "h264",
            Coding::Hevc => "hevc",
            Coding::Vp8 => "vp8",
            Coding::Vp9 => "vp9",
            Coding::Av1 => "av1",
            Coding::Intra => "intra",
            Coding::Mjpeg => "mjpeg",
            Coding::Mpeg2 => "mpeg2",
            Coding::Mpeg4 => "mpeg4",
            Coding::H263 => "h263",
            Coding::Flv1 => "flv1",
            Coding::Inter => "inter",
            Coding::Other => "other",
        })
    }
}

/// Properties of one access unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// True if decoding can start here, with `before` as a prefix.
    pub key: bool,
    /// True if decoding can start here and a new sequence begins: pictures from here on may have
    /// another size or format. Also true for the first sequence of a stream. Never true for
    /// [`Coding::Intra`], [`Coding::Mjpeg`], [`Coding::Other`] and the codecs of MPEG and ITU-T before H.264, of which
    /// no sequence is known, and for H.264 and HEVC before the first sequence parameter set.
    pub begins: bool,
    /// Earlier parameter sets that this unit needs and does not contain, as a byte stream. Not
    /// empty only for H.264 and HEVC, if decoding can start here and the unit has no sequence
    /// parameter set itself.
    pub before: Vec<u8>,
}

/// Reader for the access units of one stream, in decode order, which finds where sequences begin.
#[derive(Clone, Debug)]
pub struct Sequences {
    coding: Coding,
    /// Parameter sets in force as a byte stream with start codes, in order of arrival: those of the
    /// last unit with a sequence parameter set, and of later units as far as
    /// [`Sequences::add_sets`] keeps them.
    sets: Vec<u8>,
    /// Sequence parameter sets among `sets`, without start codes.
    sets_mark: Vec<u8>,
    /// Bytes that distinguish the present sequence from another: its sequence parameter sets or
    /// header, or its size and format. `None` before the first sequence.
    mark: Option<Vec<u8>>,
}

impl Sequences {
    /// Creates the reader for the start of a stream.
    pub fn new(coding: Coding) -> Sequences {
        Sequences { coding, sets: Vec::new(), sets_mark: Vec::new(), mark: None }
    }

    /// Reads the next access unit, `bytes`, and returns its properties.
    pub fn inspect(&mut self, bytes: &[u8]) -> Unit {
        let (key, mark) = match self.coding {
            Coding::H264 => return self.byte_stream(bytes, |head| Nal::of_h264(head[0])),
            Coding::Hevc => return self.byte_stream(bytes, Nal::from_hevc),
            Coding::Vp8 => vp8(bytes),
            Coding::Vp9 => vp9(bytes).map_or((false, None), |mark| (true, Some(mark))),
            Coding::Av1 => av1(bytes),
            Coding::Intra => (true, None),
            Coding::Mjpeg | Coding::Mpeg2 | Coding::Mpeg4 | Coding::H263 | Coding::Flv1 => (false, None),
            Coding::Inter | Coding::Other => (false, None),
        };
        let begins = self.begins(mark.filter(|_| key));
        Unit { key, begins, before: Vec::new() }
    }

    fn begins(&mut self, mark: Option<Vec<u8>>) -> bool {
        if mark.is_none() || mark == self.mark {
            return false;
        }
        self.mark = mark;
        true
    }

    fn byte_stream(&mut self, bytes: &[u8], kind: impl Fn(&[u8]) -> Nal) -> Unit {
        let (mut key, mut sets, mut mark) = (false, Vec::new(), Vec::new());
        for nal in nals(bytes) {
            match kind(nal) {
                Nal::Random => key = true,
                Nal::Set { sequence } => {
                    sets.extend_from_slice(&[0, 0, 0, 1]);
                    sets.extend_from_slice(nal);
                    if sequence {
                        mark.extend_from_slice(nal);
                    }
                }
                Nal::Other => {}
            }
        }
        let before = if key && mark.is_empty() { self.sets.clone() } else { Vec::new() };
        if mark.is_empty() {
            // A picture parameter set without a sequence parameter set is added to the present
            // sets.
            self.add_sets(&sets);
        } else {
            (self.sets, self.sets_mark) = (sets, mark);
        }
        let begins = key && !self.sets_mark.is_empty() && self.begins(Some(self.sets_mark.clone()));
        Unit { key, begins, before }
    }

    /// Adds `sets` to the sets in force unless they are known or the sets would exceed 64 KiB,
    /// because a stream may repeat or change a set without limit.
    fn add_sets(&mut self, sets: &[u8]) {
        const MOST: usize = 64 << 10;
        let known = sets.is_empty() || self.sets.windows(sets.len()).any(|known| known == sets);
        if !known && self.sets.len() + sets.len() <= MOST {
            self.sets.extend_from_slice(sets);
        }
    }
}

/// Kind of a NAL unit of a byte stream, as far as [`Sequences`] distinguishes them.
enum Nal {
    /// A slice at which decoding can start.
    Random,
    /// A parameter set; `sequence` is true if the set applies to the whole sequence.
    Set {
        sequence: bool,
    },
    Other,
}

impl Nal {
    fn of_h264(head: u8) -> Nal {
        match head & 0x1f {
            5 => Nal::Random,
            7 => Nal::Set { sequence: true },
            8 | 13 | 15 => Nal::Set { sequence: false },
            _ => Nal::Other,
        }
    }

    fn from_hevc(head: &[u8]) -> Nal {
        // Other layers are not decoded.
        if head[0] & 1 != 0 || head.get(1).is_some_and(|second| second >> 3 != 0) {
            return Nal::Other;
        }
        match head[0] >> 1 & 0x3f {
            16..=21 => Nal::Random,
            33 => Nal::Set { sequence: true },
            32 | 34 => Nal::Set { sequence: false },
            _ => Nal::Other,
        }
    }
}

/// Iterates over the NAL units between the start codes of `bytes`; each unit has at least one byte.
/// Zeros at a unit's end belong to the next start code. Bytes before the first start code belong to
/// no unit.
pub fn nals(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = start_code(bytes).map_or(&[][..], |(_, behind)| &bytes[behind..]);
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let (end, next) = start_code(rest).unwrap_or((rest.len(), rest.len()));
            let zeros = rest[..end].iter().rev().take_while(|byte| **byte == 0).count();
            let nal = &rest[..end - zeros];
            rest = &rest[next..];
            if !nal.is_empty() {
                return Some(nal);
            }
        }
        None
    })
}

/// Returns the position of the first start code in `bytes` and the position after it; `None` if
/// there is none.
fn start_code(bytes: &[u8]) -> Option<(usize, usize)> {
    let at = bytes.windows(3).position(|three| three == [0, 0, 1])?;
    Some((at, at + 3))
}

/// Returns true for a VP8 key frame, with the bytes that distinguish its sequence from another: the
/// size. Returns false and `None` for every other frame, and if the header is invalid or cut off.
pub(crate) fn vp8(bytes: &[u8]) -> (bool, Option<Vec<u8>>) {
    match bytes {
        [head, _, _, 0x9d, 0x01, 0x2a, size @ ..] if head & 1 == 0 && size.len() >= 4 => {
            // The upper two bits of each number are the scaling for display.
            let mark = vec![size[0], size[1] & 0x3f, size[2], size[3] & 0x3f];
            (true, Some(mark))
        }
        _ => (false, None),
    }
}

/// Reader of bits, from the highest of each byte down.
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    pub(crate) fn new(bytes: &[u8]) -> Bits<'_> {
        Bits { bytes, at: 0 }
    }

    /// Reads an Exp-Golomb number, ue(v). Returns `None` if the bits end first, or if the number
    /// has more than 30 leading zeros.
    pub(crate) fn exp_golomb(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while self.take(1)? == 0 {
            zeros += 1;
            if zeros > 30 {
                return None;
            }
        }
        Some((1 << zeros) - 1 + self.take(zeros)?)
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<u32> {
        (0..count).try_fold(0, |value, _| {
            let bit = self.bytes.get(self.at / 8)? >> (7 - self.at % 8) & 1;
            self.at += 1;
            Some(value << 1 | u32::from(bit))
        })
    }
}

/// Returns the bytes that distinguish the sequence of a VP9 key frame from another: profile, depth,
/// subsampling and size. `None` for every other frame, and if the header is invalid or cut off.
pub(crate) fn vp9(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bits = Bits::new(bytes);
    if bits.take(2)? != 2 {
        return None;
    }
    let profile = bits.take(1)? | bits.take(1)? << 1;
    if profile == 3 {
        bits.take(1)?;
    }
    let (shows_existing, not_key) = (bits.take(1)?, bits.take(1)?);
    if shows_existing != 0 || not_key != 0 {
        return None;
    }
    bits.take(2)?;
    if bits.take(24)? != 0x49_83_42 {
        return None;
    }
    let depth = if profile >= 2 { bits.take(1)? } else { 0 };
    const RGB: u32 = 7;
    let space = bits.take(3)?;
    let subsampling = match (space, profile & 1) {
        (RGB, 0) => return None,
        (RGB, _) => bits.take(1)?,
        // One bit: the range.
        (_, 0) => bits.take(1).map(|_| 0)?,
        (_, _) => bits.take(4)? >> 1 & 3,
    };
    let (width, height) = (bits.take(16)?, bits.take(16)?);
    let numbers = [profile, depth, subsampling, width, height];
    Some(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
}

pub(crate) const FRAME_HEADER: u8 = 3;
pub(crate) const FRAME: u8 = 6;

/// Returns true if the AV1 frame header has `show_existing_frame` 0 and belongs to a key frame.
/// (The header of a still picture may lack these bits. The result is then without meaning, which
/// does no harm, because such a stream has only one picture.)
fn begins_key_frame(body: &[u8]) -> bool {
    body.first().is_some_and(|first| first >> 5 == 0)
}

fn av1(bytes: &[u8]) -> (bool, Option<Vec<u8>>) {
    const SEQUENCE_HEADER: u8 = 1;
    let (mut key, mut mark) = (false, None);
    let mut rest = bytes;
    while let Some((kind, body, next)) = obu(rest) {
        match kind {
            SEQUENCE_HEADER => mark = Some(body.to_vec()),
            FRAME_HEADER | FRAME => key |= begins_key_frame(body),
            _ => {}
        }
        rest = next;
    }
    (key && mark.is_some(), mark)
}

/// Returns type and body of the first AV1 unit (OBU), and the bytes after it; `None` if it is
/// invalid or cut off.
fn obu(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (kind, size, rest) = obu_head(bytes)?;
    let (body, next) = rest.split_at_checked(size)?;
    Some((kind, body, next))
}

/// Returns type and body size in bytes of the first AV1 unit (OBU), and the bytes from its body on;
/// `None` if its header is invalid or cut off. The body itself may be cut off.
pub(crate) fn obu_head(bytes: &[u8]) -> Option<(u8, usize, &[u8])> {
    let (head, mut rest) = bytes.split_first()?;
    if head & 0x80 != 0 {
        return None;
    }
    if head & 4 != 0 {
        rest = rest.get(1..)?;
    }
    let mut size = rest.len();
    if head & 2 != 0 {
        let mut value = 0u64;
        let mut length = 0;
        for byte in rest.iter().take(8) {
            value |= u64::from(byte & 0x7f) << (7 * length);
            length += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        rest = rest.get(length..)?;
        size = usize::try_from(value).ok()?;
    }
    Some((head >> 3 & 15, size, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unit(key: bool, begins: bool, before: &[u8]) -> Unit {
        Unit { key, begins, before: before.to_vec() }
    }

    #[test]
    fn h264_begins_at_idr_and_gets_its_sets_back() {
        let mut stream = Sequences::new(Coding::H264);
        let first = [0, 0, 0, 1, 0x67, 1, 2, 0, 0, 1, 0x68, 3, 0, 0, 0, 1, 0x65, 9];
        assert_eq!(stream.inspect(&[0, 0, 1, 0x41, 7]), unit(false, false, &[]));
        assert_eq!(stream.inspect(&first), unit(true, true, &[]));
        assert_eq!(stream.inspect(&first), unit(true, false, &[]));
        let sets = [0, 0, 0, 1, 0x67, 1, 2, 0, 0, 0, 1, 0x68, 3];
        assert_eq!(stream.inspect(&[0, 0, 1, 0x65, 8]), unit(true, false, &sets));
        let other = [0, 0, 1, 0x67, 1, 3, 0, 0, 1, 0x68, 3, 0, 0, 1, 0x65, 9];
        assert_eq!(stream.inspect(&other), unit(true, true, &[]));
    }

    #[test]
    fn sets_that_come_alone_are_in_force_for_the_next_key() {
        let mut stream = Sequences::new(Coding::Hevc);
        let sets = [0, 0, 0, 1, 64, 1, 5, 0, 0, 0, 1, 66, 1, 6, 0, 0, 0, 1, 68, 1, 7];
        assert_eq!(stream.inspect(&sets), unit(false, false, &[]));
        assert_eq!(stream.inspect(&[0, 0, 1, 40, 1, 9]), unit(true, true, &sets));
        for _ in 0..9 {
            stream.inspect(&[0, 0, 0, 1, 68, 1, 7]);
        }
        assert_eq!(stream.inspect(&[0, 0, 1, 42, 1, 9]).before, sets);
    }

    #[test]
    fn vp8_and_vp9_keys_tell_their_size() {
        let mut stream = Sequences::new(Coding::Vp8);
        let mut key = [0x10, 0, 0, 0x9d, 1, 0x2a, 64, 0, 48, 0, 5];
        assert_eq!(stream.inspect(&key), unit(true, true, &[]));
        assert_eq!(stream.inspect(&[0x11, 0, 0]), unit(false, false, &[]));
        key[6] = 80;
        assert_eq!(stream.inspect(&key), unit(true, true, &[]));
        let mut stream = Sequences::new(Coding::Vp9);
        // Profile 0, key, shown; sync code; BT.709; 352x288.
        let key = [0x82, 0x49, 0x83, 0x42, 0x20, 0x15, 0xf0, 0x11, 0xf0, 0];
        assert_eq!(stream.inspect(&key), unit(true, true, &[]));
        assert_eq!(stream.inspect(&key), unit(true, false, &[]));
        assert_eq!(stream.inspect(&[0x86, 0, 0]), unit(false, false, &[]));
        assert_eq!(stream.inspect(&[0x88, 0, 0]), unit(false, false, &[]));
    }

    #[test]
    fn av1_keys_come_with_their_sequence() {
        let mut stream = Sequences::new(Coding::Av1);
        let key = [0x12, 0, 0x0a, 2, 7, 8, 0x32, 1, 0x10];
        assert_eq!(stream.inspect(&key), unit(true, true, &[]));
        assert_eq!(stream.inspect(&[0x12, 0, 0x32, 1, 0x30]), unit(false, false, &[]));
        assert_eq!(stream.inspect(&[0x12, 0, 0x0a, 2, 7, 8, 0x32, 1, 0x30]), unit(false, false, &[]));
        assert_eq!(stream.inspect(&key), unit(true, false, &[]));
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(units in proptest::collection::vec(proptest::collection::vec(0..8u8, 0..64), 0..8)) {
            for coding in [Coding::H264, Coding::Hevc, Coding::Vp8, Coding::Vp9, Coding::Av1] {
                let mut stream = Sequences::new(coding);
                for bytes in &units {
                    let unit = stream.inspect(bytes);
                    prop_assert!(unit.key || !unit.begins && unit.before.is_empty());
                }
            }
        }
    }
}
