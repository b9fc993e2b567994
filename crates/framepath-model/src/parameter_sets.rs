// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameter sets from the packets of a stream. A decoder that starts later needs them in
//! addition to the codec's head; without them it would decode with other parameters or not at
//! all.
//!
//! Sets are kept unchanged and in order, including invalid ones, but without repetitions that
//! change nothing. So the later decoder handles them,
//! and the sets that depend on them, exactly as the first decoder did. An SEI message of H.264 that
//! names x264 counts as a parameter set, because libavcodec decodes differently after it.
//!
//! Tables: ITU-T H.264 (7.3.1, 7.4.1), ITU-T H.265 (7.3.1, 7.4.2), ISO/IEC 14496-15 (5.3.3,
//! 8.3.3), the AV1 specification (5.3, 5.5). The bytes are not trusted.

use std::sync::Arc;

use crate::access_unit::{Coding, FRAME, FRAME_HEADER, nals, obu_head};
use crate::framing::Framing;

/// Maximum size of the kept parameter sets, bytes. Common streams need about a hundred bytes.
const MOST: usize = 16 << 10;

/// Parameter sets from the packets of a stream, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetLog {
    coding: Coding,
    framing: Framing,
    /// Parameter sets by packet, in order, without prefixes and start codes. Repetitions are left
    /// out: a group equal to the last one, and an older equal group if all groups are complete.
    groups: Vec<Vec<Vec<u8>>>,
}

impl SetLog {
    /// Encodes all sets as a prefix for a packet that begins with `bytes`, with lengths or start
    /// codes as in that packet; for AV1, as units with their sizes.
    pub fn in_front_of(&self, bytes: &[u8]) -> Vec<u8> {
        let framing = self.framing.of(bytes);
        let mut front = Vec::new();
        for unit in self.groups.iter().flatten() {
            match self.coding {
                Coding::Av1 => put_obu(unit, &mut front),
                _ => framing.put(unit, &mut front),
            }
        }
        front
    }

    /// Returns the size of all sets in bytes, without prefixes and start codes.
    pub fn bytes(&self) -> usize {
        self.groups.iter().flatten().map(Vec::len).sum()
    }
}

/// Encodes the parameter sets in `new`, another head of the codec, as the start of a packet of a
/// stream with head `head`. Returns `None` if the two heads differ in the form or size of NAL unit
/// lengths.
pub fn in_band(coding: Coding, head: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let framing = Framing::new(coding, head);
    let groups = vec![head_units(coding, new).into_iter().map(<[u8]>::to_vec).collect()];
    let sets = SetLog { coding, framing, groups };
    (Framing::new(coding, new) == framing).then(|| sets.in_front_of(&[]))
}

/// Record of the parameter sets in the packets of one stream, in decode order.
#[derive(Clone, Debug)]
pub struct ParameterSets {
    coding: Coding,
    framing: Framing,
    /// Units in the codec's own head, as [`head_units`] returns them.
    head: Vec<Vec<u8>>,
    in_force: Option<Arc<SetLog>>,
    is_lost: bool,
}

impl ParameterSets {
    /// Creates a record without packets. `head` is the codec's own head (avcC, hvcC, av1C,
    /// parameter sets or nothing).
    pub fn new(coding: Coding, head: &[u8]) -> ParameterSets {
        ParameterSets {
            coding,
            framing: Framing::new(coding, head),
            head: head_units(coding, head).into_iter().map(<[u8]>::to_vec).collect(),
            in_force: None,
            is_lost: false,
        }
    }

    /// Returns the sets that a decoder with only the codec's head needs before the next packet;
    /// `None` if it needs none, or if the sets are lost. While the sets do not change, the `Arc` is
    /// the same.
    pub fn in_force(&self) -> Option<&Arc<SetLog>> {
        self.in_force.as_ref()
    }

    /// Returns true if the sets have exceeded 16 KiB: they are dropped, no later ones are recorded,
    /// and a decoder that starts later cannot get them.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Records the parameter sets before the picture of the next packet, unless the sets are lost,
    /// or the codec's head has them all and no others came before. `bytes` are the first bytes of
    /// the packet; `whole` is true if they are all of them. Returns false, and records no set, if
    /// more bytes are needed. Does nothing and returns true for a codec without parameter sets.
    pub fn inspect(&mut self, bytes: &[u8], whole: bool) -> bool {
        let (sets, reached) = match self.coding {
            Coding::H264 if self.framing.is_record(bytes) => (avcc_units(bytes), whole),
            Coding::H264 | Coding::Hevc => self.before_slices(bytes),
            Coding::Av1 => before_frames(bytes),
            _ => return true,
        };
        if !reached && !whole {
            return false;
        }
        let is_known = |unit: &&[u8]| self.head.iter().any(|known| known == unit);
        // While all sets are in the head, a decoder already has them.
        let differs = self.in_force.is_some() || !sets.iter().all(is_known);
        if !sets.is_empty() && differs && !self.is_lost {
            self.add(sets.into_iter().map(<[u8]>::to_vec).collect());
        }
        true
    }

    fn add(&mut self, group: Vec<Vec<u8>>) {
        let groups = self.in_force.as_ref().map_or(&[][..], |log| &log.groups);
        if groups.last() == Some(&group) {
            return;
        }
        let mut groups = groups.to_vec();
        // Streams may alternate between a few encodings. A complete group replaces an equal older
        // one.
        if groups.iter().all(|group| self.is_complete(group)) && self.is_complete(&group) {
            groups.retain(|older| *older != group);
        }
        groups.push(group);
        let log = SetLog { coding: self.coding, framing: self.framing, groups };
        self.is_lost = log.bytes() > MOST;
        self.in_force = (!self.is_lost).then(|| Arc::new(log));
    }

    /// Returns true if the sets of a packet, `group`, need no other sets: the group has at least
    /// one set of each kind. Always true for AV1.
    fn is_complete(&self, group: &[Vec<u8>]) -> bool {
        let has = |kinds: &[u8]| {
            let mut of_group = group.iter().filter_map(|unit| unit.first());
            kinds.iter().all(|kind| match self.coding {
                Coding::H264 => of_group.clone().any(|first| first & 0x1f == *kind),
                _ => of_group.any(|first| first >> 1 & 0x3f == *kind),
            })
        };
        match self.coding {
            Coding::H264 => has(&[7, 8]),
            Coding::Hevc => [32, 33, 34].iter().all(|kind| has(&[*kind])),
            Coding::Av1 => true,
            _ => false,
        }
    }

    /// Returns the sets before the first slice of a packet that begins with `bytes`, and true if a
    /// slice was found.
    fn before_slices<'a>(&self, bytes: &'a [u8]) -> (Vec<&'a [u8]>, bool) {
        let mut sets = Vec::new();
        for unit in self.framing.units(bytes) {
            match kind_of(self.coding, unit) {
                Unit::Slice => return (sets, true),
                Unit::Set => sets.push(unit),
                Unit::Other => {}
            }
        }
        (sets, false)
    }
}

enum Unit {
    Slice,
    Set,
    Other,
}

fn kind_of(coding: Coding, unit: &[u8]) -> Unit {
    match (coding, unit[0]) {
        (Coding::H264, first) => match first & 0x1f {
            1..=5 => Unit::Slice,
            7 | 8 | 13 | 15 => Unit::Set,
            6 if is_of_encoder(unit) => Unit::Set,
            _ => Unit::Other,
        },
        // Decoders ignore other layers.
        (_, first) if first & 1 != 0 || unit.get(1).is_none_or(|second| second >> 3 != 0) => Unit::Other,
        (_, first) => match first >> 1 & 0x3f {
            0..=31 => Unit::Slice,
            32..=34 => Unit::Set,
            _ => Unit::Other,
        },
    }
}

/// Returns true if the SEI unit names x264. By such a message libavcodec detects and works around
/// bugs of old x264 versions.
fn is_of_encoder(sei: &[u8]) -> bool {
    const NAME: &[u8] = b"x264 - core";
    sei[..sei.len().min(64)].windows(NAME.len()).any(|bytes| bytes == NAME)
}

const SEQUENCE_HEADER: u8 = 1;

/// Returns the bodies of the AV1 sequence headers before the first frame, and true if a frame was
/// found.
fn before_frames(bytes: &[u8]) -> (Vec<&[u8]>, bool) {
    let (mut rest, mut sets) = (bytes, Vec::new());
    while let Some((kind, size, body)) = obu_head(rest) {
        match kind {
            FRAME_HEADER | FRAME => return (sets, true),
            SEQUENCE_HEADER => sets.extend(body.get(..size)),
            _ => {}
        }
        rest = body.get(size..).unwrap_or_default();
    }
    (sets, false)
}

/// Appends an AV1 sequence header with its size to a packet; `body` is the header's body.
fn put_obu(body: &[u8], packet: &mut Vec<u8>) {
    packet.push(SEQUENCE_HEADER << 3 | 2);
    let mut size = body.len();
    while size > 0x7f {
        packet.push((size & 0x7f) as u8 | 0x80);
        size >>= 7;
    }
    packet.push(size as u8);
    packet.extend_from_slice(body);
}

/// Returns the NAL units, or the bodies of the AV1 sequence headers, in the codec's own `head`;
/// empty for codecs without parameter sets.
fn head_units(coding: Coding, head: &[u8]) -> Vec<&[u8]> {
    let is_record = head.first().is_some_and(|first| *first != 0);
    match coding {
        Coding::H264 if is_record => avcc_units(head),
        Coding::Hevc if is_record => hvcc_units(head),
        Coding::H264 | Coding::Hevc => nals(head).collect(),
        // The head is a record of four bytes whose first byte has the highest bit set, or only
        // units.
        Coding::Av1 => {
            let with_record = head.first().is_some_and(|first| first & 0x80 != 0);
            before_frames(if with_record { head.get(4..).unwrap_or_default() } else { head }).0
        }
        _ => Vec::new(),
    }
}

/// Takes a unit with a 16-bit length prefix from the start of `rest`; `None` if it is cut off.
fn take_unit<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_at_checked(2)?;
    let (unit, next) = behind.split_at_checked(usize::from(u16::from_be_bytes([length[0], length[1]])))?;
    *rest = next;
    Some(unit)
}

/// Returns the parameter sets of an avcC record: sequence sets, then picture sets, each with their
/// count. Stops at the first field that is cut off.
fn avcc_units(head: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut units) = (head.get(5..).unwrap_or_default(), Vec::new());
    for mask in [0x1f, 0xff] {
        let Some((count, behind)) = rest.split_first() else { return units };
        rest = behind;
        for _ in 0..count & mask {
            let Some(unit) = take_unit(&mut rest) else { return units };
            units.push(unit);
        }
    }
    units
}

/// Returns the parameter sets of an hvcC record: arrays of units of one kind. Stops at the first
/// field that is cut off.
fn hvcc_units(head: &[u8]) -> Vec<&[u8]> {
    let mut units = Vec::new();
    let Some((arrays, mut rest)) = head.get(22..).and_then(<[u8]>::split_first) else { return units };
    for _ in 0..*arrays {
        let Some((array, behind)) = rest.split_at_checked(3) else { return units };
        rest = behind;
        for _ in 0..u16::from_be_bytes([array[1], array[2]]) {
            let Some(unit) = take_unit(&mut rest) else { return units };
            units.push(unit);
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPS: &[u8] = &[0x67, 66, 0, 30, 0x80, 1];
    const SPS_NEW: &[u8] = &[0x67, 66, 0, 30, 0x80, 2];
    const PPS: &[u8] = &[0x68, 0x80, 1];
    const PPS_NEW: &[u8] = &[0x68, 0x80, 2];
    const IDR: &[u8] = &[0x65, 0x88, 0x80];
    const SLICE: &[u8] = &[0x41, 0x9a, 0x80];
    /// avcC record with `SPS` and `PPS` and lengths of four bytes.
    const RECORD: &[u8] = &[1, 66, 0, 30, 0xff, 0xe1, 0, 6, 0x67, 66, 0, 30, 0x80, 1, 1, 0, 3, 0x68, 0x80, 1];

    fn starts(units: &[&[u8]]) -> Vec<u8> {
        units.iter().flat_map(|unit| [&[0, 0, 0, 1], *unit].concat()).collect()
    }

    fn lengths(units: &[&[u8]]) -> Vec<u8> {
        units.iter().flat_map(|unit| [&[0, 0, 0, unit.len() as u8], *unit].concat()).collect()
    }

    fn in_front_of(sets: &ParameterSets, bytes: &[u8]) -> Vec<u8> {
        sets.in_force().map_or(Vec::new(), |log| log.in_front_of(bytes))
    }

    #[test]
    fn sets_are_repeated_from_the_first_that_the_head_does_not_have() {
        type Packet = fn(&[&[u8]]) -> Vec<u8>;
        for (head, packet) in [(starts(&[SPS, PPS]), starts as Packet), (RECORD.to_vec(), lengths as Packet)]
        {
            let mut sets = ParameterSets::new(Coding::H264, &head);
            let next = packet(&[SLICE]);
            assert!(sets.inspect(&packet(&[SPS, PPS, IDR]), true));
            assert_eq!(sets.in_force(), None);
            // The head's picture set belongs to the new sequence set from here on.
            assert!(sets.inspect(&packet(&[SPS_NEW, PPS, IDR]), true));
            assert_eq!(in_front_of(&sets, &next), packet(&[SPS_NEW, PPS]));
            // The result is the same while nothing changes.
            let before = sets.in_force().cloned();
            sets.inspect(&packet(&[SPS_NEW, PPS, IDR]), true);
            sets.inspect(&packet(&[SLICE]), true);
            assert!(before.zip(sets.in_force()).is_some_and(|(before, now)| Arc::ptr_eq(&before, now)));
            // Keeps the order, including sets that the head has, and an invalid set.
            let bad: &[u8] = &[0xe7, 1];
            sets.inspect(&packet(&[PPS_NEW, SLICE]), true);
            sets.inspect(&packet(&[bad, SLICE]), true);
            sets.inspect(&packet(&[SPS, PPS, IDR]), true);
            let all = packet(&[SPS_NEW, PPS, PPS_NEW, bad, SPS, PPS]);
            assert_eq!(in_front_of(&sets, &next), all);
        }
    }

    #[test]
    fn encodings_that_take_turns_do_not_add_up() {
        let mut sets = ParameterSets::new(Coding::H264, &[]);
        for _ in 0..1000 {
            sets.inspect(&starts(&[SPS, PPS, IDR]), true);
            sets.inspect(&starts(&[SPS_NEW, PPS_NEW, IDR]), true);
        }
        assert_eq!(in_front_of(&sets, &[]), starts(&[SPS, PPS, SPS_NEW, PPS_NEW]));
        // Sets that need others keep their places.
        let mut sets = ParameterSets::new(Coding::H264, &[]);
        for unit in [SPS, PPS, SPS_NEW, PPS] {
            sets.inspect(&starts(&[unit, SLICE]), true);
        }
        assert_eq!(in_front_of(&sets, &[]), starts(&[SPS, PPS, SPS_NEW, PPS]));
    }

    #[test]
    fn sets_are_framed_as_the_packet_that_they_precede() {
        let mut sets = ParameterSets::new(Coding::H264, RECORD);
        // Start codes although the head announces lengths.
        assert!(sets.inspect(&starts(&[SPS_NEW, PPS, IDR]), true));
        assert_eq!(in_front_of(&sets, &lengths(&[IDR])), lengths(&[SPS_NEW, PPS]));
        assert_eq!(in_front_of(&sets, &starts(&[IDR])), starts(&[SPS_NEW, PPS]));
        // A packet that is a configuration record.
        let mut sets = ParameterSets::new(Coding::H264, RECORD);
        let mut record = RECORD.to_vec();
        record[13] = 7;
        assert!(!sets.inspect(&record[..12], false) && sets.inspect(&record, true));
        let new: &[u8] = &[0x67, 66, 0, 30, 0x80, 7];
        assert_eq!(in_front_of(&sets, &lengths(&[IDR])), lengths(&[new, PPS]));
    }

    #[test]
    fn another_head_becomes_sets_in_a_packet() {
        let mut new = RECORD.to_vec();
        new[13] = 7;
        let sps: &[u8] = &[0x67, 66, 0, 30, 0x80, 7];
        assert_eq!(in_band(Coding::H264, RECORD, &new), Some(lengths(&[sps, PPS])));
        new[4] = 0xfd;
        assert_eq!(in_band(Coding::H264, RECORD, &new), None);
        assert_eq!(in_band(Coding::H264, &[], &starts(&[SPS])), Some(starts(&[SPS])));
        assert_eq!(in_band(Coding::Vp9, &[], &[1, 2, 3]), Some(Vec::new()));
    }

    #[test]
    fn only_whole_sets_in_front_of_the_picture_count() {
        let mut sets = ParameterSets::new(Coding::H264, &[]);
        let packet = starts(&[SPS, PPS, IDR]);
        assert!(!sets.inspect(&packet[..8], false), "a set that may go on");
        assert_eq!(sets.in_force(), None);
        assert!(sets.inspect(&packet[..packet.len() - 1], false));
        assert_eq!(in_front_of(&sets, &[]), starts(&[SPS, PPS]));
        let mut sets = ParameterSets::new(Coding::H264, &[]);
        assert!(sets.inspect(&starts(&[IDR, SPS]), true));
        assert_eq!(sets.in_force(), None);
    }

    #[test]
    fn the_message_of_an_encoder_is_kept_with_the_sets() {
        let sei = [&[6, 5, 30][..], &[7; 16], b"x264 - core 30"].concat();
        let other = [&[6, 5, 30][..], &[7; 16], b"another core 3"].concat();
        let mut sets = ParameterSets::new(Coding::H264, &starts(&[SPS, PPS]));
        sets.inspect(&starts(&[&other, SPS, PPS, IDR]), true);
        assert_eq!(sets.in_force(), None);
        sets.inspect(&starts(&[SPS, PPS, &sei, IDR]), true);
        assert_eq!(in_front_of(&sets, &[]), starts(&[SPS, PPS, &sei]));
    }

    #[test]
    fn hevc_sets_of_the_base_layer_count() {
        let [vps, sps, pps] = [32u8, 33, 34].map(|kind| vec![kind << 1, 1, 9]);
        let slice: &[u8] = &[19 << 1, 1, 9];
        let mut other = sps.clone();
        other[1] = 9;
        // A head of one array.
        let head = [&[1; 21][..], &[0xff, 1, 33, 0, 1, 0, 3], &sps].concat();
        let mut sets = ParameterSets::new(Coding::Hevc, &head);
        sets.inspect(&starts(&[&sps, &other, slice]), true);
        assert_eq!(sets.in_force(), None);
        sets.inspect(&starts(&[&vps, &sps, &pps, slice]), true);
        assert_eq!(in_front_of(&sets, &starts(&[slice])), starts(&[&vps, &sps, &pps]));
    }

    #[test]
    fn av1_has_one_sequence_header() {
        let [first, second] = [1u8, 2].map(|byte| vec![0x0a, 2, 7, byte]);
        let frame = [0x32, 2, 0x10, 1];
        for head in [first.clone(), [&[0x81, 0, 0, 0], first.as_slice()].concat()] {
            let mut sets = ParameterSets::new(Coding::Av1, &head);
            assert!(sets.inspect(&[&[0x12, 0], first.as_slice(), &frame].concat(), true));
            assert_eq!(sets.in_force(), None);
            assert!(sets.inspect(&[&[0x12, 0], second.as_slice(), &[0x32, 200]].concat(), false));
            assert_eq!(in_front_of(&sets, &[]), second);
            assert!(!sets.inspect(&[0x12, 0, 0x0a, 90, 7], false));
        }
        let mut long = Vec::new();
        put_obu(&[5; 300], &mut long);
        assert_eq!(long[..3], [0x0a, 0xac, 2]);
        assert_eq!(before_frames(&long), (vec![&[5; 300][..]], false));
    }

    #[test]
    fn kept_parameter_sets_are_bounded() {
        let mut sets = ParameterSets::new(Coding::H264, &[]);
        for byte in 1..=u8::MAX {
            sets.inspect(&starts(&[&[&[0x68], &[byte; 99][..]].concat(), IDR]), true);
            assert!(sets.in_force().is_none_or(|log| log.bytes() <= MOST));
            assert_eq!(sets.is_lost(), usize::from(byte) > MOST / 100, "{byte}");
        }
        assert_eq!(sets.in_force(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(
            head in proptest::collection::vec(any::<u8>(), 0..64),
            packets in proptest::collection::vec(proptest::collection::vec(0..0x70u8, 0..64), 0..8),
        ) {
            for coding in [Coding::H264, Coding::Hevc, Coding::Vp8, Coding::Vp9, Coding::Av1] {
                let mut sets = ParameterSets::new(coding, &head);
                for bytes in &packets {
                    sets.inspect(&bytes[..bytes.len() / 2], false);
                    prop_assert!(sets.inspect(bytes, true));
                    let framed = [&[0, 0, 0, 1], bytes.as_slice()].concat();
                    prop_assert!(sets.inspect(&framed, true));
                    prop_assert!(sets.in_force().is_none_or(|log| log.bytes() <= MOST));
                }
            }
        }
    }
}
