// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of H.264 and HEVC packets to start codes, as devices require them. Files of the MP4
//! family have lengths instead, and store the parameter sets separately.
//!
//! Formats: ISO/IEC 14496-15 (avcC, hvcC); ITU-T H.264 and H.265, Annex B. The result is that of
//! libavcodec's filters `h264_mp4toannexb` and `hevc_mp4toannexb`, but as a list of parts in
//! place: the caller joins them in the same copy that moves the packet into a device's buffer.

use crate::{Codec, CodecError, TrackInfo};

const START: &[u8] = &[0, 0, 0, 1];

/// Converter of length-prefixed packets to start codes, for one track.
#[derive(Clone, Debug)]
pub struct AnnexB {
    codec: Codec,
    /// Parameter sets, each with a start code; empty if none are known.
    head: Vec<u8>,
    /// Size of a NAL unit's length prefix in bytes, 1 to 4; `None` if the packets have start codes
    /// already, or the codec is neither H.264 nor HEVC.
    length_bytes: Option<usize>,
}

impl AnnexB {
    /// Makes a converter for the packets of `track`. For codecs other than H.264 and HEVC the
    /// converter changes nothing. In streams with start codes it only adds the track's parameter
    /// sets to a decoder's first packet, if that packet has none.
    ///
    /// # Errors
    /// The track's head is damaged.
    pub fn new(track: &TrackInfo) -> Result<AnnexB, CodecError> {
        let (codec, head) = (track.codec, track.head());
        let as_they_are = |head: &[u8]| AnnexB { codec, head: head.to_vec(), length_bytes: None };
        // libavcodec's criterion: a stream with such a head, or without one, has start codes.
        let has_codes = head.is_empty() || head.starts_with(&[0, 0, 1]) || head.starts_with(START);
        let read = match codec {
            Codec::Vp8 | Codec::Vp9 | Codec::Av1 | Codec::Other(_) => return Ok(as_they_are(&[])),
            _ if has_codes => return Ok(as_they_are(head)),
            Codec::H264 => avcc(head),
            Codec::Hevc => hvcc(head),
        };
        let (bytes, head) = read.ok_or(CodecError::Track { detail: "its parameter sets are damaged" })?;
        Ok(AnnexB { codec, head, length_bytes: Some(bytes) })
    }

    /// Returns the parts that, joined in order, are the packet with start codes. Leaves out NAL
    /// units of length 0. If no parameter set precedes the first picture at which decoding can
    /// begin in a packet with lengths, the track's sets are put before this picture. `first` is
    /// true for the first packet of a decoder, which need not be the stream's first: the sets are
    /// then put before its first picture of any kind, and also in front of a packet that has start
    /// codes already but no sets.
    ///
    /// # Errors
    /// A length exceeds the rest of the packet.
    pub fn parts<'a>(&'a self, packet: &'a [u8], first: bool) -> Result<Vec<&'a [u8]>, CodecError> {
        let Some(length_bytes) = self.length_bytes else {
            let lacks = first && !self.head.is_empty() && !self.has_head(packet);
            return Ok(if lacks { vec![&self.head, packet] } else { vec![packet] });
        };
        let mut parts = Vec::with_capacity(8);
        let (mut rest, mut has_head) = (packet, false);
        while !rest.is_empty() {
            let unit = next_unit(&mut rest, length_bytes);
            let unit =
                unit.ok_or(CodecError::UnitLength { codec: self.codec.name(), bytes: packet.len() })?;
            let Some(header) = unit.first() else { continue };
            match self.codec.kind(*header) {
                Unit::Head => has_head = true,
                kind => {
                    if !has_head && (kind == Unit::Access || first && kind == Unit::Picture) {
                        parts.push(self.head.as_slice());
                        has_head = true;
                    }
                }
            }
            parts.extend([START, unit]);
        }
        Ok(parts)
    }

    /// Returns true if a packet with start codes has a parameter set.
    fn has_head(&self, packet: &[u8]) -> bool {
        packet.windows(4).any(|w| w.starts_with(&[0, 0, 1]) && self.codec.kind(w[3]) == Unit::Head)
    }
}

/// Kind of a NAL unit, from which the converter decides where to put the parameter sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// A parameter set (SPS or PPS; in HEVC also VPS).
    Head,
    /// A slice of a picture at which decoding can begin: an IDR picture; in HEVC any IRAP picture.
    Access,
    /// A slice of any other picture.
    Picture,
    /// Any other unit, such as a delimiter or SEI.
    Other,
}

impl Codec {
    /// Returns the kind of a NAL unit by its first byte; always `Other` for codecs other than H.264
    /// and HEVC.
    fn kind(self, first: u8) -> Unit {
        match (self, first & 0x1f, first >> 1 & 0x3f) {
            (Codec::H264, 7 | 8, _) | (Codec::Hevc, _, 32..=34) => Unit::Head,
            (Codec::H264, 5, _) | (Codec::Hevc, _, 16..=23) => Unit::Access,
            (Codec::H264, 1..=4, _) | (Codec::Hevc, _, 0..=31) => Unit::Picture,
            _ => Unit::Other,
        }
    }
}

/// Takes a length field of `bytes` bytes, and the unit of this length, from the front of `rest`.
/// Returns the unit; `None`, with `rest` unchanged, if `rest` is too short.
fn next_unit<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_at_checked(bytes)?;
    let length = length.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
    let (unit, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    Some(unit)
}

/// Takes `count` parameter sets from the front of `rest`, each after a length of two bytes, and
/// adds them to `head`, each after a start code. Returns `None` if `rest` is too short; `head` may
/// then have some of the sets.
fn take_sets(rest: &mut &[u8], count: usize, head: &mut Vec<u8>) -> Option<()> {
    for _ in 0..count {
        let set = next_unit(rest, 2)?;
        head.extend(START);
        head.extend(set);
    }
    Some(())
}

fn avcc(bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    let length_bytes = usize::from(bytes.get(4)? & 3) + 1;
    let (count, mut rest) = bytes.get(5..)?.split_first()?;
    let mut head = Vec::new();
    take_sets(&mut rest, usize::from(count & 0x1f), &mut head)?;
    let (count, mut rest) = rest.split_first()?;
    take_sets(&mut rest, usize::from(*count), &mut head)?;
    Some((length_bytes, head))
}

fn hvcc(bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    let length_bytes = usize::from(bytes.get(21)? & 3) + 1;
    let (arrays, mut rest) = bytes.get(22..)?.split_first()?;
    let mut head = Vec::new();
    for _ in 0..*arrays {
        let (array, behind) = rest.split_at_checked(3)?;
        rest = behind;
        take_sets(&mut rest, usize::from(array[1]) << 8 | usize::from(array[2]), &mut head)?;
    }
    Some((length_bytes, head))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Demuxer;
    use crate::track::tests::track;

    fn open(clip: &str) -> (Demuxer, AnnexB) {
        let clip = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clips").join(clip);
        let demuxer = Demuxer::open(&clip).unwrap();
        let annexb = AnnexB::new(demuxer.info()).unwrap();
        (demuxer, annexb)
    }

    #[test]
    fn lengths_become_start_codes_and_the_head_comes_before_key_frames() {
        for (clip, codec) in
            [("h264-180p8-container.mp4", Codec::H264), ("hevc-180p8-container.mkv", Codec::Hevc)]
        {
            let (mut demuxer, annexb) = open(clip);
            let mut count = 0;
            while let Some(packet) = demuxer.read().unwrap() {
                let parts = annexb.parts(packet.bytes().unwrap(), false).unwrap();
                let bytes = parts.concat();
                assert!(bytes.starts_with(START), "{clip} {count}");
                let heads = bytes.windows(5).filter(|w| w.starts_with(START));
                let has_head = heads.into_iter().any(|w| matches!(codec.kind(w[4]), Unit::Head));
                assert_eq!(has_head, packet.is_key(), "{clip} {count}");
                count += 1;
            }
            assert!(count > 5, "{clip}");
        }
    }

    #[test]
    fn packets_with_start_codes_pass_unchanged() {
        for clip in ["h264-180p8-high.h264", "hevc-180p8.hevc", "vp9-180p8.ivf", "av1-180p8-container.mp4"] {
            let (mut demuxer, annexb) = open(clip);
            let packet = demuxer.read().unwrap().unwrap();
            let bytes = packet.bytes().unwrap();
            let parts = annexb.parts(bytes, true).unwrap();
            assert!(parts.len() == 1 && std::ptr::eq(parts[0], bytes), "{clip}");
        }
    }

    #[test]
    fn a_head_in_the_packet_is_not_doubled() {
        // Lengths of two bytes; one SPS `67 aa`, one PPS `68 bb`.
        let head = [1, 66, 0, 30, 0xfd, 0xe1, 0, 2, 0x67, 0xaa, 1, 0, 2, 0x68, 0xbb];
        let annexb = AnnexB::new(&track(Codec::H264, &head)).unwrap();
        let sets = [START, &[0x67, 0xaa], START, &[0x68, 0xbb]].concat();
        let convert = |packet: &[u8]| annexb.parts(packet, false).unwrap().concat();
        assert_eq!(convert(&[0, 2, 0x65, 9]), [&sets, START, &[0x65, 9]].concat());
        assert_eq!(convert(&[0, 1, 0x41]), [START, &[0x41]].concat());
        let with_own = [0, 2, 0x67, 0xcc, 0, 2, 0x65, 9];
        assert_eq!(convert(&with_own), [START, &[0x67, 0xcc], START, &[0x65, 9]].concat());
        // Two slices of one picture get the sets once.
        assert_eq!(convert(&[0, 1, 0x65, 0, 1, 0x65]), [&sets, START, &[0x65], START, &[0x65]].concat());
    }

    #[test]
    fn a_decoder_that_begins_anywhere_has_the_head_first() {
        let sets = [START, &[0x67, 0xaa], START, &[0x68, 0xbb]].concat();
        let lengths = [1, 66, 0, 30, 0xfd, 0xe1, 0, 2, 0x67, 0xaa, 1, 0, 2, 0x68, 0xbb];
        let annexb = AnnexB::new(&track(Codec::H264, &lengths)).unwrap();
        // An I picture that is not an IDR picture, after a delimiter.
        let packet = [0, 1, 9, 0, 2, 0x41, 5];
        let expected = [START, &[9], &sets, START, &[0x41, 5]].concat();
        assert_eq!(annexb.parts(&packet, true).unwrap().concat(), expected);
        assert_eq!(annexb.parts(&packet, false).unwrap().concat(), [START, &[9], START, &[0x41, 5]].concat());

        let annexb = AnnexB::new(&track(Codec::H264, &sets)).unwrap();
        let picture = [START, &[0x41, 5]].concat();
        assert_eq!(annexb.parts(&picture, true).unwrap().concat(), [&sets[..], &picture].concat());
        assert_eq!(annexb.parts(&picture, false).unwrap().concat(), picture);
        let with_own = [START, &[0x67, 0xcc], START, &[0x41, 5]].concat();
        assert_eq!(annexb.parts(&with_own, true).unwrap().concat(), with_own);
    }

    #[test]
    fn damaged_heads_and_packets_are_errors() {
        let whole = [1, 66, 0, 30, 0xff, 0xe1, 0, 2, 0x67, 0xaa, 1, 0, 2, 0x68, 0xbb];
        for length in 1..whole.len() {
            assert!(AnnexB::new(&track(Codec::H264, &whole[..length])).is_err(), "{length}");
        }
        for length in 1..23 {
            assert!(AnnexB::new(&track(Codec::Hevc, &[1; 23][..length])).is_err(), "{length}");
        }
        let annexb = AnnexB::new(&track(Codec::H264, &whole)).unwrap();
        for packet in [&[0, 0, 0][..], &[0, 0, 0, 2, 0x65], &[0xff; 9]] {
            assert!(matches!(annexb.parts(packet, false), Err(CodecError::UnitLength { .. })));
        }
    }
}
