// SPDX-License-Identifier: MIT OR Apache-2.0
//! Separation of packets into NAL units, by length prefixes or start codes (ISO/IEC 14496-15, 5.3.3
//! and 8.3.3; ITU-T H.264 and H.265, annex B). The bytes are not trusted.

use crate::access_unit::{Coding, nals};

/// Form of the NAL units in the packets of a stream: length prefixes or start codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framing {
    /// Size of the length prefix of a NAL unit, bytes, 1 to 4; `None` for start codes and for other
    /// codecs.
    length_bytes: Option<usize>,
}

impl Framing {
    /// Returns the framing of a stream with the codec's own `head`: length prefixes if `head` is an
    /// avcC or hvcC record, else start codes.
    pub(crate) fn new(coding: Coding, head: &[u8]) -> Framing {
        let with_lengths = head.first().is_some_and(|first| *first != 0);
        let length_at = match coding {
            Coding::H264 if with_lengths => head.get(4),
            Coding::Hevc if with_lengths => head.get(21),
            _ => None,
        };
        Framing { length_bytes: length_at.map(|byte| usize::from(byte & 3) + 1) }
    }

    /// Returns the framing of a packet: the stream's, or start codes if a packet of a stream with
    /// 4-byte lengths begins with one. `bytes` are the first bytes of the packet.
    pub(crate) fn of(self, bytes: &[u8]) -> Framing {
        match self.length_bytes {
            // Some files have start codes although their head announces lengths, and decoders
            // accept them. Read as a length, this start code means one byte, and no access unit
            // begins with such a unit.
            Some(4) if bytes.starts_with(&[0, 0, 0, 1]) => Framing { length_bytes: None },
            _ => self,
        }
    }

    /// Returns true if a packet of an H.264 stream with length prefixes looks like a configuration
    /// record (avcC), which libavcodec accepts there. Always false in a stream with start codes.
    pub(crate) fn is_record(self, bytes: &[u8]) -> bool {
        let is_like_one = |head: &[u8]| head[0] == 1 && head[2] == 0 && head[4] & 0xfc == 0xfc;
        self.length_bytes.is_some() && bytes.get(..9).is_some_and(is_like_one)
    }

    /// Iterates over the NAL units of a packet that begins with `bytes`, without prefixes and start
    /// codes. The last unit may be cut off.
    pub(crate) fn units(self, bytes: &[u8]) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        match self.of(bytes).length_bytes {
            Some(length_bytes) => Box::new(lengths(bytes, length_bytes)),
            None => Box::new(nals(bytes)),
        }
    }

    /// Appends a NAL unit to a packet, after its length or a start code.
    pub(crate) fn put(self, unit: &[u8], packet: &mut Vec<u8>) {
        match self.length_bytes {
            Some(length_bytes) => {
                packet.extend_from_slice(&(unit.len() as u32).to_be_bytes()[4 - length_bytes..]);
            }
            None => packet.extend_from_slice(&[0, 0, 0, 1]),
        }
        packet.extend_from_slice(unit);
    }
}

/// Iterates over the NAL units of `bytes`, each after a length of `length_bytes` bytes. Skips empty
/// units. The last unit may be cut off.
fn lengths(bytes: &[u8], length_bytes: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        loop {
            let (length, behind) = rest.split_at_checked(length_bytes)?;
            let length = length.iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte));
            let (unit, next) = behind.split_at(length.min(behind.len()));
            rest = next;
            if !unit.is_empty() {
                return Some(unit);
            }
        }
    })
}
