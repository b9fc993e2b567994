// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classification of the packets of MPEG-1, MPEG-2, MPEG-4 part 2 and H.263 by the type of their
//! first picture, and of those of MJPEG by their tables.
//!
//! Tables: ISO/IEC 11172-2 (2.4.2.5) and ITU-T H.262 (6.2.3) for MPEG-1 and MPEG-2, ISO/IEC 14496-2
//! (6.2.5), ITU-T H.263 (5.1), and libavcodec's decoder of FLV1, Sorenson's form of H.263; ITU-T T.81 (B.2) for MJPEG. Only the
//! heads of pictures are read. The bytes are not trusted: a head that cannot be parsed neither
//! confirms nor refutes the container's flag.

use crate::access_point::{Leading, RandomAccess};
use crate::access_unit::{Bits, Coding};

/// Type of a coded picture, as far as references matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PictureType {
    /// Picture that refers to no other.
    Intra,
    /// Picture that may refer to earlier pictures, and to which others may refer.
    Predicted,
    /// B picture, or a picture to which no other refers.
    Disposable,
}

/// Result of the search for the first picture in the first bytes of a packet.
enum FirstPicture {
    Found {
        picture: PictureType,
        /// True if a sequence header of MPEG-1 or MPEG-2, or a quantisation table of MJPEG, precedes the
        /// picture.
        has_sequence: bool,
    },
    /// The head of the picture, or what precedes it, is cut off.
    CutOff,
    /// The bytes are no packet of the codec.
    Unknown,
}

/// Classifies a packet that begins with `bytes`, as
/// [`AccessPoints::inspect`](crate::access_point::AccessPoints::inspect) describes. A random access
/// point of MPEG-1 and MPEG-2 has a sequence header and an I picture. An I picture without it, and
/// every I picture of MPEG-4 and H.263, is a claim: the decoder may need headers of earlier packets.
/// A picture of MJPEG is a point if it has a quantisation table, and else needs that of an earlier packet.
/// Any other picture is never a point. An unflagged packet is classified in the same way; the caller
/// corrects this.
pub(crate) fn inspect(coding: Coding, bytes: &[u8], whole: bool) -> Option<RandomAccess> {
    let first = match coding {
        Coding::Mpeg2 => mpeg2(bytes),
        Coding::Mpeg4 => mpeg4(bytes),
        Coding::Flv1 => flv1(bytes),
        Coding::Mjpeg => mjpeg(bytes),
        _ => h263(bytes),
    };
    Some(match first {
        FirstPicture::CutOff if !whole => return None,
        FirstPicture::CutOff | FirstPicture::Unknown => RandomAccess::Claimed { recovery: 0 },
        FirstPicture::Found { picture: PictureType::Intra, has_sequence: true } => RandomAccess::Point,
        FirstPicture::Found { picture: PictureType::Intra, .. } => RandomAccess::Claimed { recovery: 0 },
        FirstPicture::Found { picture: PictureType::Predicted, .. } => RandomAccess::PICTURE,
        FirstPicture::Found { picture: PictureType::Disposable, .. } => {
            RandomAccess::Picture { reference: false, leading: Leading::Skipped }
        }
    })
}

/// Iterates over the start codes (0, 0, 1) in `bytes`: the byte that names each, and the bytes behind.
fn start_codes(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let starts = (0..bytes.len().saturating_sub(3)).filter(|at| bytes[*at..].starts_with(&[0, 0, 1]));
    starts.map(|at| (bytes[at + 3], &bytes[at + 4..]))
}

/// Finds the first picture of an MPEG-1 or MPEG-2 packet: `picture_coding_type`.
fn mpeg2(bytes: &[u8]) -> FirstPicture {
    const PICTURE: u8 = 0x00;
    const FIRST_SLICE: u8 = 0x01;
    const LAST_SLICE: u8 = 0xaf;
    const SEQUENCE_HEADER: u8 = 0xb3;
    let mut has_sequence = false;
    for (code, body) in start_codes(bytes) {
        match code {
            SEQUENCE_HEADER => has_sequence = true,
            FIRST_SLICE..=LAST_SLICE => return FirstPicture::Unknown,
            PICTURE => {
                // After the 10 bits of `temporal_reference`.
                let Some(byte) = body.get(1) else { return FirstPicture::CutOff };
                let picture = match byte >> 3 & 7 {
                    1 => PictureType::Intra,
                    2 => PictureType::Predicted,
                    3 => PictureType::Disposable,
                    _ => return FirstPicture::Unknown,
                };
                return FirstPicture::Found { picture, has_sequence };
            }
            _ => {}
        }
    }
    FirstPicture::CutOff
}

/// Finds the first picture of an MPEG-4 packet: `vop_coding_type`. A sprite counts as a P picture.
fn mpeg4(bytes: &[u8]) -> FirstPicture {
    const VOP: u8 = 0xb6;
    match start_codes(bytes).find(|(code, _)| *code == VOP) {
        Some((_, [byte, ..])) => found(
            [PictureType::Intra, PictureType::Predicted, PictureType::Disposable, PictureType::Predicted]
                [usize::from(byte >> 6)],
        ),
        _ => FirstPicture::CutOff,
    }
}

fn found(picture: PictureType) -> FirstPicture {
    FirstPicture::Found { picture, has_sequence: false }
}

/// Looks for a quantisation table in front of the first scan of an MJPEG picture.
fn mjpeg(bytes: &[u8]) -> FirstPicture {
    const START: [u8; 2] = [0xff, 0xd8];
    const TABLE: u8 = 0xdb;
    const SCAN: u8 = 0xda;
    const END: u8 = 0xd9;
    if bytes.len() >= 2 && !bytes.starts_with(&START) {
        return FirstPicture::Unknown;
    }
    let mut rest = bytes.get(2..).unwrap_or_default();
    loop {
        rest = match rest {
            // A byte that fills the space in front of a marker.
            [0xff, 0xff, ..] => &rest[1..],
            [0xff, TABLE, ..] => {
                return FirstPicture::Found { picture: PictureType::Intra, has_sequence: true };
            }
            [0xff, SCAN, ..] => return found(PictureType::Predicted),
            [0xff, END, ..] => return FirstPicture::Unknown,
            [0xff, _, high, low, ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                match rest.get(2 + length..) {
                    Some(behind) if length >= 2 => behind,
                    Some(_) => return FirstPicture::Unknown,
                    None => return FirstPicture::CutOff,
                }
            }
            [] | [0xff, ..] => return FirstPicture::CutOff,
            _ => return FirstPicture::Unknown,
        };
    }
}

/// Reads the picture type from the head of an H.263 picture, with and without PLUSPTYPE.
fn h263(bytes: &[u8]) -> FirstPicture {
    let mut bits = Bits::new(bytes);
    let mut read = || {
        let start = bits.take(22)?;
        // The temporal reference, a bit that is always 1, one that is always 0, and the requests to split,
        // to show a document and to end a freeze.
        let (_, marks, _) = (bits.take(8)?, bits.take(2)?, bits.take(3)?);
        if start != 0x20 || marks != 2 {
            return Some(FirstPicture::Unknown);
        }
        if bits.take(3)? != 7 {
            let is_predicted = bits.take(1)? == 1;
            return Some(found(if is_predicted { PictureType::Predicted } else { PictureType::Intra }));
        }
        match bits.take(3)? {
            0 => {}
            // OPPTYPE.
            1 => _ = bits.take(18)?,
            _ => return Some(FirstPicture::Unknown),
        }
        Some(match bits.take(3)? {
            0 => found(PictureType::Intra),
            3 => found(PictureType::Disposable),
            1 | 2 | 4 | 5 => found(PictureType::Predicted),
            _ => FirstPicture::Unknown,
        })
    };
    read().unwrap_or(FirstPicture::CutOff)
}

/// Reads the picture type from the head of an FLV1 picture.
fn flv1(bytes: &[u8]) -> FirstPicture {
    let mut bits = Bits::new(bytes);
    let mut read = || {
        let (start, version, _) = (bits.take(17)?, bits.take(5)?, bits.take(8)?);
        if start != 1 || version > 1 {
            return Some(FirstPicture::Unknown);
        }
        match bits.take(3)? {
            0 => _ = bits.take(16)?,
            1 => _ = bits.take(32)?,
            _ => {}
        }
        Some(match bits.take(2)? {
            0 => found(PictureType::Intra),
            1 => found(PictureType::Predicted),
            _ => found(PictureType::Disposable),
        })
    };
    read().unwrap_or(FirstPicture::CutOff)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLAIMED: Option<RandomAccess> = Some(RandomAccess::Claimed { recovery: 0 });
    const PICTURE: Option<RandomAccess> = Some(RandomAccess::PICTURE);
    const DISPOSABLE: Option<RandomAccess> =
        Some(RandomAccess::Picture { reference: false, leading: Leading::Skipped });

    #[test]
    fn mpeg2_begins_at_an_i_picture_with_a_sequence_header() {
        let sequence = [0, 0, 1, 0xb3, 0x0c, 0, 0x90, 0x23];
        let group = [0, 0, 1, 0xb8, 0, 8, 0, 0];
        let picture = |kind: u8| [0, 0, 1, 0, 0, kind << 3 | 7, 0xff, 0xf8];
        let of = |parts: &[&[u8]]| inspect(Coding::Mpeg2, &parts.concat(), true);
        assert_eq!(of(&[&sequence, &group, &picture(1)]), Some(RandomAccess::Point));
        assert_eq!(of(&[&group, &picture(1)]), CLAIMED);
        assert_eq!(of(&[&sequence, &picture(2)]), PICTURE);
        assert_eq!(of(&[&picture(2), &picture(1)]), PICTURE);
        assert_eq!(of(&[&picture(3)]), DISPOSABLE);
        // A forbidden type, a slice without a picture, and nothing at all.
        for parts in [&picture(0)[..], &[0, 0, 1, 1, 9], &[]] {
            assert_eq!(of(&[parts]), CLAIMED);
        }
        assert_eq!(inspect(Coding::Mpeg2, &[&sequence[..], &[0, 0, 1, 0, 0]].concat(), false), None);
        assert_eq!(inspect(Coding::Mpeg2, &picture(2), false), PICTURE);
    }

    #[test]
    fn mpeg4_refutes_the_flag_of_a_vop_that_is_not_intra() {
        let of = |bytes: &[u8]| inspect(Coding::Mpeg4, bytes, true);
        assert_eq!(of(&[0, 0, 1, 0xb3, 0, 0x10, 7, 0, 0, 1, 0xb6, 0x10]), CLAIMED);
        assert_eq!(of(&[0, 0, 1, 0xb6, 0x51]), PICTURE);
        assert_eq!(of(&[0, 0, 1, 0xb6, 0x91]), DISPOSABLE);
        assert_eq!(of(&[0, 0, 1, 0xb6, 0xd1]), PICTURE);
        assert_eq!(of(&[0, 0, 1, 0xb0, 1]), CLAIMED);
        assert_eq!(inspect(Coding::Mpeg4, &[0, 0, 1, 0xb6], false), None);
    }

    #[test]
    fn h263_and_flv1_tell_their_picture_types() {
        // Start, temporal reference 0, marks 10, three flags, format 2, type 0 or 1.
        assert_eq!(inspect(Coding::H263, &[0, 0, 0x80, 0x02, 0x08], true), CLAIMED);
        assert_eq!(inspect(Coding::H263, &[0, 0, 0x80, 0x02, 0x0a], true), PICTURE);
        // PLUSPTYPE without OPPTYPE: format 7, UFEP 0, type 0, 1 or 3.
        let plus = |kind: u8| inspect(Coding::H263, &[0, 0, 0x80, 0x02, 0x1c, kind << 4], true);
        assert_eq!([0, 1, 3, 7].map(plus), [CLAIMED, PICTURE, DISPOSABLE, CLAIMED]);
        assert_eq!(inspect(Coding::H263, &[0, 0, 0x80], false), None);
        assert_eq!(inspect(Coding::H263, &[1, 0, 0x80, 0x02, 0x0a], true), CLAIMED);
        // Start, version 0, temporal reference 0, size 2 (CIF), type.
        let flv1 = |kind: u8| inspect(Coding::Flv1, &[0, 0, 0x80, 1, kind << 5], true);
        assert_eq!([0, 1, 2].map(flv1), [CLAIMED, PICTURE, DISPOSABLE]);
    }

    #[test]
    fn a_jpeg_picture_without_its_table_needs_that_of_another() {
        let of = |parts: &[&[u8]], whole| inspect(Coding::Mjpeg, &parts.concat(), whole);
        let (start, comment, table) =
            ([0xff, 0xd8], [0xff, 0xfe, 0, 4, 0xff, 0xdb], [0xff, 0xff, 0xdb, 0, 67]);
        let scan = [0xff, 0xda, 0, 8];
        assert_eq!(of(&[&start, &comment, &table], true), Some(RandomAccess::Point));
        assert_eq!(of(&[&start, &comment, &scan], true), PICTURE);
        assert_eq!((of(&[&start, &comment], false), of(&[&start, &comment], true)), (None, CLAIMED));
        assert_eq!((of(&[], false), of(&[&start, &comment[..3]], false)), (None, None));
        for other in
            [&[0, 0, 1][..], &[0xff, 0xd8, 9], &[0xff, 0xd8, 0xff, 0xd9], &[0xff, 0xd8, 0xff, 0xfe, 0, 1]]
        {
            assert_eq!(of(&[other], true), CLAIMED);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_classified(bytes in proptest::collection::vec(prop_oneof![0..2u8, any::<u8>()], 0..48)) {
            for coding in [Coding::Mjpeg, Coding::Mpeg2, Coding::Mpeg4, Coding::H263, Coding::Flv1] {
                prop_assert!(inspect(coding, &bytes, true).is_some());
            }
        }
    }
}
