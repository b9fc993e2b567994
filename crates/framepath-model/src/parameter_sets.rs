// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameter sets from a stream's packets that a decoder needs if it starts later: with
//! the codec's head alone it would decode with other sets, or not at all.
//!
//! Tables: ITU-T H.264 (7.3.2, 7.4.1), ITU-T H.265 (7.3.2, 7.3.3, 7.4.2), ISO/IEC 14496-15
//! (5.3.3, 8.3.3), the AV1 specification (5.3, 5.5). The bytes are not trusted.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::access_point::{Framing, unescaped};
use crate::access_unit::{Bits, Coding, FRAME, FRAME_HEADER, nals, obu_head};

/// Most bytes of parameter sets that are kept. Common streams have about a hundred.
const MOST: usize = 16 << 10;

/// Largest number of an H.264 picture parameter set; HEVC's numbers are smaller.
const MOST_ID: u32 = 255;

/// Kind and number of a set; a new set replaces the one with the same key. Keys are ordered
/// so that a set comes after those it refers to.
type Key = (u8, u32);

/// The parameter sets of one stream's packets, in decode order.
#[derive(Clone, Debug)]
pub struct ParameterSets {
    coding: Coding,
    framing: Framing,
    /// Sets in the codec's head.
    head: BTreeMap<Key, Vec<u8>>,
    /// Sets that came later and differ, in the form they have in a packet.
    later: BTreeMap<Key, Vec<u8>>,
    in_force: Option<Arc<[u8]>>,
    is_lost: bool,
}

impl ParameterSets {
    /// Creates the table. `head` is the codec's own head (avcC, hvcC, av1C, parameter sets or nothing).
    pub fn new(coding: Coding, head: &[u8]) -> ParameterSets {
        let sets = head_units(coding, head).into_iter();
        ParameterSets {
            coding,
            framing: Framing::new(coding, head),
            head: sets.filter_map(|unit| Some((key_of(coding, unit)?, unit.to_vec()))).collect(),
            later: BTreeMap::new(),
            in_force: None,
            is_lost: false,
        }
    }

    /// Returns the sets that a decoder with only the codec's head needs in front of the next
    /// packet; `None` if it needs none. The allocation stays the same until the sets change.
    pub fn in_force(&self) -> Option<&Arc<[u8]>> {
        self.in_force.as_ref()
    }

    /// Returns true if the sets were too large to keep: a decoder that starts later cannot get them.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Reads the sets in front of the next packet's picture. `bytes` are the packet's first;
    /// returns false if these are not all (`whole`) and more of them are needed.
    pub fn look(&mut self, bytes: &[u8], whole: bool) -> bool {
        let (sets, reached) = match self.coding {
            Coding::H264 | Coding::Hevc => self.before_slices(bytes),
            Coding::Av1 => before_frames(bytes),
            Coding::Vp8 | Coding::Vp9 => return true,
        };
        if !reached && !whole {
            return false;
        }
        let mut changed = false;
        let framing = self.framing.of(bytes);
        for unit in sets {
            let Some(key) = key_of(self.coding, unit) else { continue };
            if self.head.get(&key).is_some_and(|known| known == unit) {
                changed |= self.later.remove(&key).is_some();
                continue;
            }
            let mut framed = Vec::with_capacity(unit.len() + 4);
            match self.coding {
                Coding::Av1 => put_obu(unit, &mut framed),
                _ => framing.put(unit, &mut framed),
            }
            changed |= self.later.get(&key) != Some(&framed);
            self.later.insert(key, framed);
        }
        if changed {
            self.renew();
        }
        true
    }

    fn renew(&mut self) {
        if self.later.values().map(Vec::len).sum::<usize>() > MOST {
            self.later.clear();
            self.is_lost = true;
        }
        let all: Vec<u8> = self.later.values().flatten().copied().collect();
        self.in_force = (!all.is_empty()).then(|| all.into());
    }

    /// Returns the sets in front of the first slice, and true if there is a slice.
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
            _ => Unit::Other,
        },
        // Other layers are not decoded.
        (_, first) if first & 1 != 0 || unit.get(1).is_none_or(|second| second >> 3 != 0) => Unit::Other,
        (_, first) => match first >> 1 & 0x3f {
            0..=31 => Unit::Slice,
            32..=34 => Unit::Set,
            _ => Unit::Other,
        },
    }
}

/// Returns kind and number of a set; `None` if it is malformed.
fn key_of(coding: Coding, unit: &[u8]) -> Option<Key> {
    // Except in HEVC's sequence sets, the number is in the first bytes. HEVC's sequence sets have
    // a table of layers before it, of 13 bytes and 11 for each of 7 more.
    let start = unescaped(&unit[..unit.len().min(160)]);
    let rank = match (coding, unit.first()?) {
        (Coding::H264, first) => match first & 0x1f {
            7 => 0,
            13 => 1,
            15 => 2,
            8 => 3,
            _ => return None,
        },
        (Coding::Hevc, first) => match first >> 1 & 0x3f {
            kind @ 32..=34 => kind - 32,
            _ => return None,
        },
        (Coding::Av1, _) => return Some((0, 0)),
        (Coding::Vp8 | Coding::Vp9, _) => return None,
    };
    let mut bits = Bits::new(start.get(if coding == Coding::H264 { 1.. } else { 2.. })?);
    let id = match (coding, rank) {
        (Coding::H264, 0 | 2) => {
            bits.take(24)?;
            bits.exp_golomb()?
        }
        (Coding::Hevc, 0) => bits.take(4)?,
        (Coding::Hevc, 1) => hevc_sequence_id(&mut bits)?,
        _ => bits.exp_golomb()?,
    };
    (id <= MOST_ID).then_some((rank, id))
}

/// Reads `sps_seq_parameter_set_id`, which follows the profiles and levels of all sub-layers.
fn hevc_sequence_id(bits: &mut Bits<'_>) -> Option<u32> {
    bits.take(4)?;
    let more_layers = bits.take(3)? as usize;
    bits.take(1)?;
    bits.take(96)?;
    let mut skipped = 0;
    for _ in 0..more_layers {
        skipped += 88 * bits.take(1)? as usize + 8 * bits.take(1)? as usize;
    }
    if more_layers > 0 {
        bits.take(2 * (8 - more_layers))?;
    }
    bits.take(skipped)?;
    bits.exp_golomb()
}

const SEQUENCE_HEADER: u8 = 1;

/// Returns bodies of the sequence headers in front of the first frame, and true if there is a frame.
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

/// Appends a sequence header with its size.
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

/// Returns the parameter sets in the codec's own head.
fn head_units(coding: Coding, head: &[u8]) -> Vec<&[u8]> {
    let is_record = head.first().is_some_and(|first| *first != 0);
    match coding {
        Coding::H264 if is_record => avcc_units(head).unwrap_or_default(),
        Coding::Hevc if is_record => hvcc_units(head).unwrap_or_default(),
        Coding::H264 | Coding::Hevc => nals(head).collect(),
        // Either a record of four bytes, whose first byte has the highest bit set, or only units.
        Coding::Av1 => {
            let with_record = head.first().is_some_and(|first| first & 0x80 != 0);
            before_frames(if with_record { head.get(4..).unwrap_or_default() } else { head }).0
        }
        Coding::Vp8 | Coding::Vp9 => Vec::new(),
    }
}

/// Takes a unit with a 16-bit length prefix from `rest`.
fn take_unit<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_at_checked(2)?;
    let (unit, next) = behind.split_at_checked(usize::from(u16::from_be_bytes([length[0], length[1]])))?;
    *rest = next;
    Some(unit)
}

/// Parses avcC: sequence sets, then picture sets, each list after its count.
fn avcc_units(head: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut rest, mut units) = (head.get(5..)?, Vec::new());
    for mask in [0x1f, 0xff] {
        let (count, behind) = rest.split_first()?;
        rest = behind;
        for _ in 0..count & mask {
            units.push(take_unit(&mut rest)?);
        }
    }
    Some(units)
}

/// Parses hvcC: arrays of units of one kind.
fn hvcc_units(head: &[u8]) -> Option<Vec<&[u8]>> {
    let (arrays, mut rest) = head.get(22..)?.split_first()?;
    let mut units = Vec::new();
    for _ in 0..*arrays {
        let (array, behind) = rest.split_at_checked(3)?;
        rest = behind;
        for _ in 0..u16::from_be_bytes([array[1], array[2]]) {
            units.push(take_unit(&mut rest)?);
        }
    }
    Some(units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // seq_parameter_set_id 0 and 1 after three bytes; pic_parameter_set_id 0 and 1.
    const SPS_0: &[u8] = &[0x67, 66, 0, 30, 0x80, 1];
    const SPS_0_NEW: &[u8] = &[0x67, 66, 0, 30, 0x80, 2];
    const SPS_1: &[u8] = &[0x67, 66, 0, 30, 0x40, 1];
    const PPS_0: &[u8] = &[0x68, 0x80, 1];
    const PPS_0_NEW: &[u8] = &[0x68, 0x80, 2];
    const IDR: &[u8] = &[0x65, 0x88, 0x80];
    const SLICE: &[u8] = &[0x41, 0x9a, 0x80];

    fn starts(units: &[&[u8]]) -> Vec<u8> {
        units.iter().flat_map(|unit| [&[0, 0, 0, 1], *unit].concat()).collect()
    }

    fn in_force(sets: &ParameterSets) -> Vec<u8> {
        sets.in_force().map_or(Vec::new(), |all| all.to_vec())
    }

    #[test]
    fn sets_that_the_head_has_are_not_repeated() {
        for (head, framing) in [
            (starts(&[SPS_0, PPS_0]), None),
            ([&[1, 66, 0, 30, 0xff, 0xe1, 0, 6], SPS_0, &[1, 0, 3], PPS_0].concat(), Some(4)),
        ] {
            let packet = |units: &[&[u8]]| match framing {
                None => starts(units),
                Some(_) => {
                    units.iter().flat_map(|unit| [&[0, 0, 0, unit.len() as u8], *unit].concat()).collect()
                }
            };
            let mut sets = ParameterSets::new(Coding::H264, &head);
            assert!(sets.look(&packet(&[SPS_0, PPS_0, IDR]), true));
            assert_eq!(sets.in_force(), None);
            assert!(sets.look(&packet(&[SPS_0_NEW, PPS_0, IDR]), true));
            assert_eq!(in_force(&sets), packet(&[SPS_0_NEW]));
            // The allocation is the same while nothing changes.
            let before = sets.in_force().cloned();
            sets.look(&packet(&[SPS_0_NEW, PPS_0, IDR]), true);
            sets.look(&packet(&[SLICE]), true);
            assert!(before.zip(sets.in_force()).is_some_and(|(before, now)| Arc::ptr_eq(&before, now)));
            // A set comes after those it refers to.
            sets.look(&packet(&[PPS_0_NEW, SLICE]), true);
            sets.look(&packet(&[SPS_1, SLICE]), true);
            assert_eq!(in_force(&sets), packet(&[SPS_0_NEW, SPS_1, PPS_0_NEW]));
            // The head's sets again.
            sets.look(&packet(&[SPS_0, PPS_0, IDR]), true);
            assert_eq!(in_force(&sets), packet(&[SPS_1]));
        }
    }

    #[test]
    fn only_whole_sets_in_front_of_the_picture_count() {
        let mut sets = ParameterSets::new(Coding::H264, &[]);
        let packet = starts(&[SPS_0, PPS_0, IDR]);
        assert!(!sets.look(&packet[..8], false), "a set that may go on");
        assert_eq!(sets.in_force(), None);
        assert!(sets.look(&packet[..packet.len() - 1], false));
        assert_eq!(in_force(&sets), starts(&[SPS_0, PPS_0]));
        let mut sets = ParameterSets::new(Coding::H264, &[]);
        assert!(sets.look(&starts(&[IDR, SPS_0]), true));
        assert_eq!(sets.in_force(), None);
    }

    #[test]
    fn hevc_sets_are_told_by_their_numbers() {
        let vps = |id: u8, byte: u8| vec![32 << 1, 1, id << 4, byte];
        let pps = |id: u8, byte: u8| vec![34 << 1, 1, [0x80, 0x40][usize::from(id)], byte];
        // One more sub-layer, with a profile and a level; then 14 bits, 96, and the id.
        let sps = |id: u8, byte: u8| {
            let mut unit = vec![33 << 1, 1, 0x02];
            unit.extend([9; 12]);
            unit.extend([0xc0, 0]);
            unit.extend([9; 12]);
            unit.extend([[0x80, 0x40][usize::from(id)], byte]);
            unit
        };
        let slice: &[u8] = &[19 << 1, 1, 9];
        let mut sets = ParameterSets::new(Coding::Hevc, &[]);
        sets.look(&starts(&[&pps(0, 1), &sps(0, 1), &vps(0, 1), slice]), true);
        sets.look(&starts(&[&sps(1, 2), &pps(1, 2), slice]), true);
        sets.look(&starts(&[&sps(0, 3), slice]), true);
        let expected = [vps(0, 1), sps(0, 3), sps(1, 2), pps(0, 1), pps(1, 2)];
        let expected: Vec<&[u8]> = expected.iter().map(Vec::as_slice).collect();
        assert_eq!(in_force(&sets), starts(&expected));
        // A set of another layer.
        let mut other = sps(0, 9);
        other[1] = 9;
        sets.look(&starts(&[&other, slice]), true);
        assert_eq!(in_force(&sets), starts(&expected));
        // A head with arrays.
        let record = |unit: &[u8]| [&[33, 0, 1, 0, unit.len() as u8], unit].concat();
        let head = [&[1; 21][..], &[0xff, 1], &record(&sps(0, 1))].concat();
        let mut sets = ParameterSets::new(Coding::Hevc, &head);
        sets.look(&starts(&[&sps(0, 1), &sps(1, 1), slice]), true);
        assert_eq!(in_force(&sets), starts(&[&sps(1, 1)]));
    }

    #[test]
    fn av1_has_one_sequence_header() {
        let [first, second] = [1u8, 2].map(|byte| vec![0x0a, 2, 7, byte]);
        let frame = [0x32, 2, 0x10, 1];
        for head in [first.clone(), [&[0x81, 0, 0, 0], first.as_slice()].concat()] {
            let mut sets = ParameterSets::new(Coding::Av1, &head);
            assert!(sets.look(&[&[0x12, 0], first.as_slice(), &frame].concat(), true));
            assert_eq!(sets.in_force(), None);
            assert!(sets.look(&[&[0x12, 0], second.as_slice(), &[0x32, 200]].concat(), false));
            assert_eq!(in_force(&sets), second);
            assert!(!sets.look(&[0x12, 0, 0x0a, 90, 7], false));
        }
        let mut long = Vec::new();
        put_obu(&[5; 300], &mut long);
        assert_eq!(long[..3], [0x0a, 0xac, 2]);
        assert_eq!(before_frames(&long), (vec![&[5; 300][..]], false));
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let mut sets = ParameterSets::new(Coding::H264, &[]);
        let large = [PPS_0, &vec![7; MOST / 2 - 20]].concat();
        sets.look(&starts(&[&large, IDR]), true);
        assert!(!sets.is_lost());
        let more = [&[0x68, 0x40], large.as_slice()].concat();
        sets.look(&starts(&[&more, &[&[0x68, 0x60], large.as_slice()].concat(), IDR]), true);
        assert!(sets.is_lost());
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
                    sets.look(&bytes[..bytes.len() / 2], false);
                    prop_assert!(sets.look(bytes, true));
                    let framed = [&[0, 0, 0, 1], bytes.as_slice()].concat();
                    prop_assert!(sets.look(&framed, true));
                    prop_assert!(in_force(&sets).len() <= MOST);
                }
            }
        }
    }
}
