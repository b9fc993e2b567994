// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random access points: verifies a container's keyframe flags against the packet's bytes.
//!
//! A container may flag any packet. MP4 without `stss` flags all packets, and Matroska stores the
//! flag outside the bytes. A replay that starts where decoding cannot start loses pictures or
//! makes wrong ones. So the flag alone is not trusted.
//!
//! Tables: ITU-T H.264 (7.3.3, 7.4.1, D.1.8), ITU-T H.265 (7.4.2.2, D.2.8), ISO/IEC 14496-15
//! (length prefixes), and those of [`access_unit`](crate::access_unit) and `picture_start`. Of H.264 and HEVC, only NAL
//! unit heads, SEI messages and slice headers are read; of the other codecs, only the heads of
//! frames. A decoder that starts at a point may need parameter sets from earlier packets:
//! [`ParameterSets`](crate::parameter_sets::ParameterSets) keeps them. The bytes are not trusted:
//! bytes that cannot be parsed confirm nothing.

mod resets;

use crate::access_unit::{Bits, Coding, FRAME, FRAME_HEADER, obu_head, vp8, vp9};
use crate::framing::Framing;
use crate::picture_start;
use crate::recovery_point::{is_exact, recovery_point, unescaped};

/// Maximum number of pictures that HEVC decodes before the recovery point and outputs after it:
/// the size of the largest picture buffer (ITU-T H.265, A.4.2).
const MOST_REORDERED: u32 = 16;

/// Type of HEVC's NAL units for RADL pictures to which no picture of the same sub-layer refers.
/// This type and the next three are those of leading pictures (ITU-T H.265, table 7-1).
const RADL_N: u8 = 6;
const RADL_R: u8 = 7;
const RASL_N: u8 = 8;
const RASL_R: u8 = 9;

/// Classification of a picture by its type. A leading picture follows a random access point in
/// decode order and is shown before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leading {
    /// No leading picture.
    No,
    /// Leading picture that does not refer to pictures before the point: a RADL picture of HEVC.
    Decodable,
    /// Leading picture that may refer to pictures before the point: a RASL picture of HEVC. Every B
    /// picture of H.264 has this class, too, although it can be a leading picture only between a
    /// random access point and the next picture that is not B.
    Skipped,
}

/// Class of a packet, which says whether a decoder can start at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RandomAccess {
    /// Picture that is not a random access point.
    Picture {
        /// False if no other picture refers to this picture; true if others may, or if this is not
        /// known. Only pictures with `true` count towards the `recovery` of a claimed point.
        reference: bool,
        /// Classification as a leading picture; [`Leading::No`] if the packet's bytes were not
        /// read. Used only if this packet or the random access point before it has no presentation
        /// time; otherwise the times decide.
        leading: Leading,
    },
    /// Packet that the container flags as random access point, and that the bytes neither confirm
    /// nor refute: a gradual refresh, or no proof that later pictures are valid. A flag that the
    /// bytes refute makes the packet a [`RandomAccess::Picture`].
    Claimed {
        /// Upper limit of the number of reference pictures after this packet until pictures are
        /// valid; 0 if the bytes announce no gradual refresh.
        recovery: u32,
    },
    /// Random access point: decoding can start here. The container flags the packet, and the
    /// packet's bytes confirm it; or the codec does, if all its pictures are random access points.
    /// The replay log of a stage that takes frames has this class for every frame.
    Point,
}

impl RandomAccess {
    /// Picture that is not a random access point, and of which nothing else is known: it counts as
    /// a reference picture and not as a leading picture.
    pub const PICTURE: RandomAccess = RandomAccess::Picture { reference: true, leading: Leading::No };
}

/// Verifier for the flags of one stream's packets, in decode order.
#[derive(Clone, Debug)]
pub struct AccessPoints {
    coding: Coding,
    framing: Framing,
    /// True after the first flagged packet with a gradual refresh of more than 0 pictures. From
    /// then on, the bytes of every H.264 packet are inspected, to distinguish reference pictures
    /// from others.
    gradual: bool,
    /// True after the first flagged packet whose recovery point message says that pictures are only
    /// approximately right when the refresh is complete.
    approximate: bool,
    /// True if the last packet that the container flags has no presentation time; false before the
    /// first flagged packet. Times then do not identify its leading pictures, so the bytes of all
    /// H.264 and HEVC packets up to the next flagged packet with a time are inspected.
    untimed: bool,
}

impl AccessPoints {
    /// Creates the verifier for a new stream. `head` is the codec's own head (avcC, hvcC, parameter
    /// sets or nothing).
    pub fn new(coding: Coding, head: &[u8]) -> AccessPoints {
        AccessPoints {
            coding,
            framing: Framing::new(coding, head),
            gradual: false,
            approximate: false,
            untimed: false,
        }
    }

    /// Returns true from the first flagged packet on that begins a gradual refresh.
    pub fn is_gradual(&self) -> bool {
        self.gradual
    }

    /// Returns true if pictures are right when a gradual refresh is complete, by the messages of all
    /// flagged packets so far.
    pub fn is_exact(&self) -> bool {
        !self.approximate
    }

    /// Returns true if [`AccessPoints::inspect`] has to read the bytes of the next packet in decode
    /// order; else the packet is a [`RandomAccess::PICTURE`]. `flagged` is the container's flag;
    /// `timed` is true if the packet has a presentation time. Call this function once for each
    /// packet, before [`AccessPoints::inspect`].
    pub fn needs(&mut self, flagged: bool, timed: bool) -> bool {
        if flagged {
            self.untimed = !timed;
        }
        match self.coding {
            Coding::H264 => flagged || self.gradual || self.untimed || !timed,
            Coding::Hevc => flagged || self.untimed || !timed,
            Coding::Mpeg2 | Coding::Mpeg4 => flagged || self.untimed || !timed,
            Coding::Vp8 | Coding::Vp9 | Coding::Av1 => flagged,
            Coding::Intra | Coding::Mjpeg | Coding::H263 | Coding::Flv1 | Coding::Inter | Coding::Other => {
                flagged
            }
        }
    }

    /// Classifies a packet by its first `bytes`; `whole` is true if these are all of them,
    /// `flagged` is the container's flag. A packet without the flag is always a
    /// [`RandomAccess::Picture`]. Returns `None` if more bytes are needed, never if `whole` is
    /// true. Records a flagged gradual refresh, after which [`AccessPoints::needs`] returns true
    /// for every H.264 packet.
    pub fn inspect(&mut self, bytes: &[u8], flagged: bool, whole: bool) -> Option<RandomAccess> {
        let access = match self.coding {
            Coding::H264 | Coding::Hevc => self.units(bytes, flagged, whole)?,
            Coding::Vp8 => match vp8(bytes).0 {
                true if keeps_segment_map(bytes) => RandomAccess::Claimed { recovery: 0 },
                is_key => point_or_picture(is_key),
            },
            // A VP9 key frame, shown or not, replaces all references of the frames after it.
            Coding::Vp9 => point_or_picture(vp9(bytes).is_some()),
            Coding::Av1 => av1(bytes, whole)?,
            Coding::Intra => RandomAccess::Point,
            coding @ (Coding::Mjpeg | Coding::Mpeg2 | Coding::Mpeg4 | Coding::H263 | Coding::Flv1) => {
                picture_start::inspect(coding, bytes, whole)?
            }
            Coding::Inter => RandomAccess::PICTURE,
            Coding::Other => RandomAccess::Claimed { recovery: 0 },
        };
        if !flagged && !matches!(access, RandomAccess::Picture { .. }) {
            // The container does not flag this packet, so nothing seeks here.
            return Some(RandomAccess::PICTURE);
        }
        if matches!(access, RandomAccess::Claimed { recovery: 1.. }) {
            self.gradual = true;
            self.approximate |= self.is_approximate(bytes);
        }
        Some(access)
    }

    /// Returns true unless the packet, whose bytes begin with `bytes`, has a recovery point message with
    /// `exact_match_flag` 1.
    fn is_approximate(&self, bytes: &[u8]) -> bool {
        let message = self.framing.units(bytes).find_map(|unit| match self.coding {
            Coding::H264 if unit[0] & 0x1f == 6 => recovery_point(&unit[1..]),
            Coding::Hevc if unit[0] >> 1 & 0x3f == 39 => recovery_point(unit.get(2..).unwrap_or_default()),
            _ => None,
        });
        !message.is_some_and(|message| is_exact(&message))
    }

    fn units(&self, bytes: &[u8], flagged: bool, whole: bool) -> Option<RandomAccess> {
        let units = self.framing.units(bytes);
        match self.coding {
            Coding::H264 => h264(units, flagged, whole),
            _ => hevc(units, flagged, whole),
        }
    }
}

/// Returns true if a VP8 key frame keeps the previous frame's segment map: segments are in use, and
/// the frame has no map (RFC 6386, 9.2, 9.3). The four bits after the frame's tag are coded with
/// equal probabilities (7.3). Returns false for a frame that is cut off there.
fn keeps_segment_map(frame: &[u8]) -> bool {
    let Some(&[first, second]) = frame.get(10..12) else { return false };
    let (mut value, mut range) = (u32::from(first) << 8 | u32::from(second), 255u32);
    let mut bit = || {
        let split = 1 + (range - 1) / 2;
        let is_set = value >= split << 8;
        if is_set {
            (value, range) = (value - (split << 8), range - split);
        } else {
            range = split;
        }
        // Four bits need no byte after these two.
        let shift = range.leading_zeros() - 24;
        (value, range) = (value << shift, range << shift);
        is_set
    };
    let (_color_space, _clamping) = (bit(), bit());
    let (segments, new_map) = (bit(), bit());
    segments && !new_map
}

fn point_or_picture(is_key: bool) -> RandomAccess {
    if is_key { RandomAccess::Point } else { RandomAccess::PICTURE }
}

/// Type of an H.264 slice (7.4.3); SP counts as P, SI as I.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SliceType {
    P,
    B,
    I,
}

/// Returns `first_mb_in_slice` and the type of the H.264 slice `unit`, a NAL unit with its head;
/// `None` if these fields are cut off, or do not end in the 16 bytes after the head.
fn h264_slice(unit: &[u8]) -> Option<(u32, SliceType)> {
    let head = unescaped(&unit[1..unit.len().min(17)]);
    let mut bits = Bits::new(&head);
    let (first, number) = (bits.exp_golomb()?, bits.exp_golomb()?);
    let slice_type = match number % 5 {
        1 => SliceType::B,
        2 | 4 => SliceType::I,
        _ => SliceType::P,
    };
    Some((first, slice_type))
}

/// Classifies an H.264 packet by its NAL units, as [`AccessPoints::inspect`] describes. A random
/// access point has an IDR slice, or a recovery point message with 0 frames and only I slices in
/// its first field or frame. A packet whose first slice is P or B, without a recovery point message, is
/// never one. An unflagged packet with an IDR slice is also returned as a point; the caller corrects
/// this.
fn h264<'a>(units: impl Iterator<Item = &'a [u8]>, flagged: bool, whole: bool) -> Option<RandomAccess> {
    let (mut recovery, mut slices) = (None, 0);
    for unit in units {
        match unit[0] & 0x1f {
            5 => return Some(RandomAccess::Point),
            6 => {
                let payload = recovery_point(&unit[1..]);
                let frames = payload.and_then(|payload| Bits::new(&payload).exp_golomb());
                recovery = recovery.or(frames);
            }
            // Decoders ignore data partitions (2 to 4), so these confirm nothing.
            2..=4 if flagged => return Some(RandomAccess::Claimed { recovery: recovery.unwrap_or(0) }),
            1 => {
                let slice_type = h264_slice(unit).map(|(_, slice_type)| slice_type);
                let refuted = recovery.is_none() && matches!(slice_type, Some(SliceType::P | SliceType::B));
                if !flagged || refuted {
                    let reference = unit[0] >> 5 & 3 != 0;
                    let is_b = slice_type == Some(SliceType::B);
                    let leading = if is_b { Leading::Skipped } else { Leading::No };
                    return Some(RandomAccess::Picture { reference, leading });
                }
                let Some(0) = recovery else {
                    // The rest of the slice header decides whether the flag is refuted.
                    if recovery.is_none() && slice_type.is_none() && !whole {
                        return None;
                    }
                    return Some(RandomAccess::Claimed { recovery: recovery.unwrap_or(0) });
                };
                match h264_slice(unit) {
                    // The second field: it may refer to the first, so its type does not matter.
                    Some((0, _)) if slices > 0 => return Some(RandomAccess::Point),
                    Some((_, SliceType::I)) => slices += 1,
                    // The slice header is cut off.
                    None if !whole => return None,
                    _ => return Some(RandomAccess::Claimed { recovery: 0 }),
                }
            }
            _ => {}
        }
    }
    match (whole, slices) {
        (false, _) => None,
        (true, 0) if flagged => Some(RandomAccess::Claimed { recovery: recovery.unwrap_or(0) }),
        (true, 0) => Some(RandomAccess::PICTURE),
        (true, _) => Some(RandomAccess::Point),
    }
}

/// Classifies an HEVC packet by its NAL units, as [`AccessPoints::inspect`] describes: a random
/// access point if it has slices and each belongs to an IRAP picture. A packet whose first slice
/// belongs to another picture of a known type, without a recovery point message, is never one.
/// Slices of other layers are left out, because a decoder ignores them. An unflagged packet of IRAP
/// slices is also returned as a point; the caller corrects this.
fn hevc<'a>(units: impl Iterator<Item = &'a [u8]>, flagged: bool, whole: bool) -> Option<RandomAccess> {
    let (mut recovery, mut is_irap, mut announces) = (0, false, false);
    for unit in units {
        let layer = (unit[0] & 1) << 5 | unit.get(1).map_or(0, |second| second >> 3);
        match unit[0] >> 1 & 0x3f {
            _ if layer != 0 => {}
            16..=21 => is_irap = true,
            kind @ 0..=31 if !flagged || (kind <= RASL_R && !is_irap && !announces) => {
                let leading = match kind {
                    RADL_N | RADL_R => Leading::Decodable,
                    RASL_N | RASL_R => Leading::Skipped,
                    _ => Leading::No,
                };
                return Some(RandomAccess::Picture { reference: true, leading });
            }
            0..=31 => return Some(RandomAccess::Claimed { recovery }),
            // `recovery_poc_cnt` is signed: odd codes are positive numbers.
            39 => {
                let payload = recovery_point(unit.get(2..).unwrap_or_default());
                announces |= payload.is_some();
                let order = payload.and_then(|payload| Bits::new(&payload).exp_golomb());
                if let Some(order) = order.filter(|order| order % 2 == 1) {
                    recovery = order.div_ceil(2) + MOST_REORDERED;
                }
            }
            _ => {}
        }
    }
    whole.then_some(match (is_irap, flagged) {
        (true, _) => RandomAccess::Point,
        (false, true) => RandomAccess::Claimed { recovery },
        (false, false) => RandomAccess::PICTURE,
    })
}

/// Classifies a flagged AV1 packet by its frame headers: a point if every frame is a shown key
/// frame, and a claim if only the first ones are, as with spatial layers. (A decoder ignores a
/// frame header that another header follows, so a first key frame alone proves nothing.) Any other
/// packet is a [`RandomAccess::PICTURE`], because a decoder cannot start there. Returns `None` if
/// more bytes are needed. The packet need not have a sequence header: it may be only in the codec's
/// head.
fn av1(bytes: &[u8], whole: bool) -> Option<RandomAccess> {
    let (mut rest, mut is_key) = (bytes, false);
    while let Some((kind, size, body)) = obu_head(rest) {
        if matches!(kind, FRAME_HEADER | FRAME) && !body.is_empty() {
            if !is_shown_key_frame(body) {
                let claimed = RandomAccess::Claimed { recovery: 0 };
                return Some(if is_key { claimed } else { RandomAccess::PICTURE });
            }
            is_key = true;
        }
        rest = body.get(size..).unwrap_or_default();
    }
    whole.then(|| point_or_picture(is_key))
}

/// Returns true if the AV1 frame header has `show_existing_frame` 0, `frame_type` 0 (key) and
/// `show_frame` 1.
fn is_shown_key_frame(header: &[u8]) -> bool {
    header.first().is_some_and(|first| first >> 4 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDR: &[u8] = &[0x65, 0x88, 0x80];
    /// Slice with `first_mb_in_slice` 0 and slice type 7: all slices of the picture are I.
    const ALL_I: &[u8] = &[0x41, 0x88, 0x80];
    /// Slice with `first_mb_in_slice` 0 and slice type 5: all slices of the picture are P.
    const ALL_P: &[u8] = &[0x41, 0x98, 0x80];
    /// Slice with `first_mb_in_slice` 0 and slice type 2: this slice is I.
    const ONE_I: &[u8] = &[0x41, 0xb8, 0x80];
    /// Slice with `first_mb_in_slice` 0 and slice type 0: this slice is P.
    const ONE_P: &[u8] = &[0x41, 0xe0, 0x80];
    /// Second slice of a picture, with `first_mb_in_slice` 1 and slice type 2: I.
    const NEXT_I: &[u8] = &[0x41, 0x4c, 0x80];
    /// Second slice of a picture, with `first_mb_in_slice` 1 and slice type 0: P.
    const NEXT_P: &[u8] = &[0x41, 0x58, 0x80];
    const NOT_REFERENCE: &[u8] = &[0x01, 0x9a, 0x80];
    /// SEI unit with another message, then a recovery point: recovery after 0 frames.
    const NOW: &[u8] = &[6, 5, 2, 0, 0, 3, 6, 1, 0xc4, 0x80];
    /// SEI unit with a recovery point: recovery after 9 frames.
    const LATER: &[u8] = &[6, 6, 1, 0x14, 0x80];

    fn starts(units: &[&[u8]]) -> Vec<u8> {
        units.iter().flat_map(|unit| [&[0, 0, 1], *unit].concat()).collect()
    }

    fn with_lengths(units: &[&[u8]], bytes: usize) -> Vec<u8> {
        units
            .iter()
            .flat_map(|unit| [&(unit.len() as u32).to_be_bytes()[4 - bytes..], *unit].concat())
            .collect()
    }

    /// Returns the class of a packet with the units, and checks that it is the same with start
    /// codes and with lengths of each size.
    fn seen(coding: Coding, units: &[&[u8]], flagged: bool) -> RandomAccess {
        let looked =
            |head: &[u8], bytes: &[u8]| AccessPoints::new(coding, head).inspect(bytes, flagged, true);
        let access = looked(&[], &starts(units)).unwrap();
        assert_eq!(looked(&[0, 0, 0, 1, 0x67], &starts(units)), Some(access));
        for bytes in [1, 2, 4] {
            let mut head = vec![1; 22];
            (head[4], head[21]) = (0xfc | (bytes as u8 - 1), 0xfc | (bytes as u8 - 1));
            assert_eq!(looked(&head, &with_lengths(units, bytes)), Some(access), "{units:?}");
        }
        let (head, coded) = ([1, 0, 0, 0, 0xff], [&[0], starts(units).as_slice()].concat());
        let head = [head.as_slice(), &[0xff; 17]].concat();
        assert_eq!(looked(&head, &coded), Some(access), "start codes in spite of the head");
        access
    }

    fn claimed(recovery: u32) -> RandomAccess {
        RandomAccess::Claimed { recovery }
    }

    #[test]
    fn h264_begins_at_idr_and_at_confirmed_recovery_points() {
        let of = |units: &[&[u8]]| seen(Coding::H264, units, true);
        assert_eq!(of(&[&[9, 0xf0], &[0x67, 1], IDR]), RandomAccess::Point);
        assert_eq!(of(&[NOW, ALL_I, NEXT_I]), RandomAccess::Point);
        assert_eq!(of(&[NOW, ONE_I, NEXT_I]), RandomAccess::Point);
        assert_eq!(of(&[NOW, ONE_I, NEXT_P]), claimed(0));
        assert_eq!(of(&[NOW, ONE_P, NEXT_I]), claimed(0));
        assert_eq!(of(&[NOW, ALL_P]), claimed(0));
        // A second field.
        assert_eq!(of(&[NOW, ONE_I, NEXT_I, ONE_P]), RandomAccess::Point);
        // A partition, which decoders leave out, and the slice that they decode.
        assert_eq!(of(&[NOW, &[0x42, 0x88, 0x80], ALL_P]), claimed(0));
        assert_eq!(of(&[NOW, ALL_I, NEXT_P]), claimed(0));
        assert_eq!(of(&[LATER, ALL_I]), claimed(9));
        assert_eq!(of(&[LATER, ALL_P]), claimed(9));
        assert_eq!(of(&[ALL_I]), claimed(0));
        assert_eq!(of(&[&[6, 6, 200, 1], ALL_I]), claimed(0));
        assert_eq!(of(&[&[9, 0xf0]]), claimed(0));
    }

    #[test]
    fn h264_refutes_the_flag_of_a_p_or_b_picture_without_a_recovery_point() {
        let of = |units: &[&[u8]]| seen(Coding::H264, units, true);
        for unit in [ALL_P, ONE_P, NEXT_P] {
            assert_eq!(of(&[&[9, 0xf0], unit]), RandomAccess::PICTURE);
        }
        let leading = RandomAccess::Picture { reference: false, leading: Leading::Skipped };
        assert_eq!(of(&[&[0x01, 0x9c, 0x80]]), leading);
        // The slice header is cut off.
        let mut points = AccessPoints::new(Coding::H264, &[]);
        assert_eq!(points.inspect(&[0, 0, 1, 0x41], true, false), None);
        assert_eq!(points.inspect(&[0, 0, 1, 0x41], true, true), Some(claimed(0)));
    }

    #[test]
    fn hevc_begins_at_irap_pictures() {
        let of = |units: &[&[u8]]| seen(Coding::Hevc, units, true);
        for kind in 16..=21u8 {
            let irap = [kind << 1, 1, 9];
            assert_eq!(of(&[&[32 << 1, 1, 7], &irap, &irap]), RandomAccess::Point);
            // A slice that a decoder may ignore, and another picture after it.
            assert_eq!(of(&[&irap, &[2, 1, 9]]), claimed(0));
            // A slice of another layer.
            assert_eq!(of(&[&[kind << 1, 9, 9], &[2, 1, 9]]), RandomAccess::PICTURE);
            assert_eq!(of(&[&[kind << 1 | 1, 1, 9]]), claimed(0));
            assert_eq!(of(&[&irap, &[2, 9, 9]]), RandomAccess::Point);
        }
        // The types of reserved slices neither confirm nor refute the flag.
        for kind in [10, 15, 22, 23, 24, 31u8] {
            assert_eq!(of(&[&[kind << 1, 1, 9]]), claimed(0));
            assert_eq!(of(&[&[kind << 1, 1, 9], &[19 << 1, 1, 9]]), claimed(0));
        }
        for kind in [0, 1, 5u8] {
            assert_eq!(of(&[&[kind << 1, 1, 9]]), RandomAccess::PICTURE);
            assert_eq!(of(&[&[kind << 1, 1, 9], &[19 << 1, 1, 9]]), RandomAccess::PICTURE);
            // A recovery point message announces that decoding can begin: recovery_poc_cnt 0.
            assert_eq!(of(&[&[39 << 1, 1, 6, 1, 0xc0, 0x80], &[kind << 1, 1, 9]]), claimed(0));
        }
        let kinds = [(1, Leading::No), (6, Leading::Decodable), (7, Leading::Decodable)];
        for (kind, leading) in kinds.into_iter().chain([(8, Leading::Skipped), (9, Leading::Skipped)]) {
            let picture = RandomAccess::Picture { reference: true, leading };
            for flagged in [false, true] {
                assert_eq!(seen(Coding::Hevc, &[&[kind << 1, 1, 9]], flagged), picture);
            }
        }
        // recovery_poc_cnt 4 is 8 - 1 as ue(v): 0001000.
        assert_eq!(of(&[&[39 << 1, 1, 6, 1, 0x10, 0x80], &[2, 1, 9]]), claimed(4 + MOST_REORDERED));
    }

    #[test]
    fn other_codecs_tell_their_key_frames() {
        let look = |coding, bytes: &[u8]| AccessPoints::new(coding, &[]).inspect(bytes, true, false);
        let picture = Some(RandomAccess::PICTURE);
        assert_eq!(
            look(Coding::Vp8, &[0x10, 0, 0, 0x9d, 1, 0x2a, 64, 0, 48, 0, 5]),
            Some(RandomAccess::Point)
        );
        // Segments without a map: bits 0, 0, 1, 0. With one: 0, 0, 1, 1.
        let segments = |first| look(Coding::Vp8, &[0x10, 0, 0, 0x9d, 1, 0x2a, 64, 0, 48, 0, first, 0]);
        assert_eq!(segments(0x20), Some(claimed(0)));
        assert_eq!([0x00, 0x30].map(segments), [Some(RandomAccess::Point); 2]);
        assert_eq!(look(Coding::Vp8, &[0x11, 0, 0, 0x9d, 1, 0x2a, 64, 0, 48, 0, 5]), picture);
        let key = [0x82, 0x49, 0x83, 0x42, 0x20, 0x15, 0xf0, 0x11, 0xf0, 0];
        assert_eq!(look(Coding::Vp9, &key), Some(RandomAccess::Point));
        assert_eq!(look(Coding::Vp9, &[0x86, 0, 0]), picture);
        // A key frame that is not shown.
        let hidden = [&[0x80], &key[1..]].concat();
        assert_eq!(look(Coding::Vp9, &hidden), Some(RandomAccess::Point));
        // The frame is longer than the bytes given.
        assert_eq!(look(Coding::Av1, &[0x12, 0, 0x32, 0xff, 0x7f, 0x10, 1]), None);
        let whole = |bytes: &[u8]| AccessPoints::new(Coding::Av1, &[]).inspect(bytes, true, true);
        let (key, inter) = ([0x32, 2, 0x10, 1], [0x32, 2, 0x30, 1]);
        assert_eq!(whole(&key), Some(RandomAccess::Point));
        // A key frame that is not shown, and a header that another one follows.
        assert_eq!(whole(&[0x32, 2, 0x00, 1]), picture);
        assert_eq!(whole(&[&[0x1a, 1, 0x10], &inter[..]].concat()), Some(claimed(0)));
        assert_eq!(whole(&[inter, key].concat()), picture);
        assert_eq!(look(Coding::Av1, &[0x12, 0, 0x32, 0xff, 0x7f, 0x30, 1]), picture);
        // A second spatial layer, which refers to the key frame, in a packet with and without the
        // container's flag.
        let layers = [key, inter].concat();
        assert_eq!(whole(&layers), Some(claimed(0)));
        let unflagged = AccessPoints::new(Coding::Av1, &[]).inspect(&layers, false, true);
        assert_eq!(unflagged, picture);
        assert_eq!(look(Coding::Av1, &[0x12, 0, 0x2a, 0xff, 0x7f, 0x10]), None);
    }

    #[test]
    fn more_is_asked_for_only_where_it_matters() {
        let mut points = AccessPoints::new(Coding::H264, &[]);
        assert_eq!(points.inspect(&starts(&[&[9, 0xf0], IDR]), true, false), Some(RandomAccess::Point));
        assert_eq!(points.inspect(&starts(&[NOW]), true, false), None);
        assert_eq!(points.inspect(&starts(&[NOW, ALL_I]), true, false), None);
        assert_eq!(points.inspect(&starts(&[NOW, ALL_I]), true, true), Some(RandomAccess::Point));
        assert_eq!(points.inspect(&starts(&[NOW, ONE_I]), true, false), None);
        assert_eq!(points.inspect(&starts(&[NOW, ONE_I, NEXT_P]), true, false), Some(claimed(0)));
    }

    #[test]
    fn references_are_told_behind_a_gradual_refresh() {
        let mut points = AccessPoints::new(Coding::H264, &[]);
        assert!(!points.is_gradual() && points.is_exact());
        points.inspect(&starts(&[&[6, 6, 1, 0x15, 0x80], ALL_P]), true, true);
        assert!(points.is_gradual() && points.is_exact());
        points.inspect(&starts(&[LATER, ALL_P]), true, true);
        assert!(!points.is_exact());
        let mut points = AccessPoints::new(Coding::H264, &[]);
        assert!(!points.needs(false, true) && points.needs(true, true) && points.needs(false, false));
        points.inspect(&starts(&[LATER, ALL_P]), true, true);
        assert!(points.needs(false, true));
        let mut reference = |unit| points.inspect(&starts(&[unit]), false, true);
        assert_eq!(reference(ALL_P), Some(RandomAccess::PICTURE));
        assert_eq!(
            reference(NOT_REFERENCE),
            Some(RandomAccess::Picture { reference: false, leading: Leading::No })
        );
        // Decoding does not start at a packet that the container does not flag.
        assert_eq!(reference(IDR), Some(RandomAccess::PICTURE));
    }

    #[test]
    fn packets_are_inspected_if_they_or_the_point_before_have_no_time() {
        for coding in [Coding::H264, Coding::Hevc] {
            let mut points = AccessPoints::new(coding, &[]);
            assert!(points.needs(true, true) && points.needs(false, false) && !points.needs(false, true));
            assert!(points.needs(true, false) && points.needs(false, true) && points.needs(false, true));
            assert!(points.needs(true, true) && !points.needs(false, true));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(
            head in proptest::collection::vec(0..5u8, 0..24),
            packets in proptest::collection::vec(proptest::collection::vec(0..8u8, 0..64), 0..8),
            any in proptest::collection::vec(any::<u8>(), 0..64), flagged: bool,
        ) {
            for coding in [Coding::H264, Coding::Hevc, Coding::Vp8, Coding::Vp9, Coding::Av1] {
                let mut points = AccessPoints::new(coding, &head);
                for bytes in packets.iter().chain([&any]) {
                    let part = points.clone().inspect(&bytes[..bytes.len() / 2], flagged, false);
                    let whole = points.inspect(bytes, flagged, true);
                    prop_assert!(whole.is_some());
                    let is_picture = matches!(whole, Some(RandomAccess::Picture { .. }));
                    prop_assert!(flagged || is_picture);
                    prop_assert!(part.is_some() || whole.is_some());
                }
            }
        }
    }
}
