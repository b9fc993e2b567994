// SPDX-License-Identifier: MIT OR Apache-2.0
//! Number of a frame inside its own bytes, where it survives servers that change all other numbers: user data (SEI) of H.264 and HEVC.

use crate::access_unit::{Coding, nals};

/// Identifier of this kind of user data (ISO/IEC 11578).
const UUID: [u8; 16] =
    [0xb5, 0x1c, 0x9e, 0x47, 0x6a, 0xd2, 0x4f, 0x83, 0x9b, 0x36, 0xe1, 0x5d, 0x72, 0xc8, 0x2a, 0xf4];
/// Type of the user data: unregistered, with an identifier.
const UNREGISTERED: u8 = 5;
/// Number of bytes of a frame's number: seven bits each, and a bit that is set. So no byte is 0, and none needs an escape.
const NUMBER: usize = 10;

/// Returns the header of a NAL unit with user data; `None` if the codec has none.
fn header(coding: Coding) -> Option<&'static [u8]> {
    match coding {
        Coding::H264 => Some(&[6]),
        // Type 39, in front of the picture.
        Coding::Hevc => Some(&[39 << 1, 1]),
        _ => None,
    }
}

/// Returns true if the unit has a part of a picture.
fn is_slice(coding: Coding, nal: &[u8]) -> bool {
    match coding {
        Coding::H264 => matches!(nal[0] & 0x1f, 1..=5),
        _ => nal[0] >> 1 & 0x3f < 32,
    }
}

/// Inserts the number into a frame with start codes, in front of its first slice. Does nothing for a codec without user data.
pub fn insert_frame_number(coding: Coding, unit: &mut Vec<u8>, number: u64) {
    let Some(header) = header(coding) else { return };
    let Some(slice) = nals(unit).find(|nal| is_slice(coding, nal)) else { return };
    // The unit of a slice is a part of the frame's bytes, behind a start code of three bytes.
    let at = (slice.as_ptr() as usize - unit.as_ptr() as usize).saturating_sub(3);
    let sevens = (0..NUMBER).map(|at| 0x80 | (number >> (7 * at)) as u8 & 0x7f);
    let mut sei = vec![0, 0, 1];
    sei.extend_from_slice(header);
    sei.extend([UNREGISTERED, (UUID.len() + NUMBER) as u8]);
    sei.extend(UUID.into_iter().chain(sevens));
    // The end of the data.
    sei.push(0x80);
    unit.splice(at..at, sei);
}

/// Returns the number in a frame with start codes; `None` if it has none.
pub fn frame_number(coding: Coding, unit: &[u8]) -> Option<u64> {
    let header = header(coding)?;
    let units = nals(unit).take_while(|nal| !is_slice(coding, nal));
    units.filter_map(|nal| nal.strip_prefix(header)).find_map(number_of)
}

/// Returns true if `payload`, a unit with user data without its header, begins with a frame's number.
pub fn is_frame_number(payload: &[u8]) -> bool {
    number_of(payload).is_some()
}

fn number_of(payload: &[u8]) -> Option<u64> {
    let data = payload.strip_prefix(&[UNREGISTERED, (UUID.len() + NUMBER) as u8])?.strip_prefix(&UUID)?;
    let sevens = data.get(..NUMBER)?;
    sevens.iter().all(|byte| byte & 0x80 != 0).then(|| {
        let bits = sevens.iter().enumerate();
        bits.fold(0, |number, (at, byte)| number | u64::from(byte & 0x7f) << (7 * at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_in_front_of_the_first_slice_and_can_be_read_again() {
        let h264 =
            [&[0, 0, 0, 1, 0x67, 1, 0, 0, 1, 0x68, 2, 0, 0, 0, 1, 0x65, 9][..], &[0, 0, 1, 0x65, 8]].concat();
        let hevc = vec![0, 0, 1, 0x40, 1, 7, 0, 0, 1, 0x26, 1, 5];
        for number in [0, 1, 0x0100_0000, u64::MAX] {
            for (coding, frame, before) in [(Coding::H264, &h264, 2), (Coding::Hevc, &hevc, 1)] {
                let mut unit = frame.clone();
                assert_eq!(frame_number(coding, &unit), None);
                insert_frame_number(coding, &mut unit, number);
                assert_eq!(frame_number(coding, &unit), Some(number));
                let mut units: Vec<&[u8]> = nals(&unit).collect();
                // No byte of the number looks like a start code.
                assert!(is_frame_number(&units[before][header(coding).unwrap().len()..]), "{units:?}");
                units.remove(before);
                assert!(units.into_iter().eq(nals(frame)));
            }
        }
    }

    #[test]
    fn other_frames_have_no_number() {
        let mut vp8 = vec![1, 2, 3];
        insert_frame_number(Coding::Vp8, &mut vp8, 7);
        assert_eq!(vp8, [1, 2, 3]);
        let mut sets = vec![0, 0, 1, 0x67, 1];
        insert_frame_number(Coding::H264, &mut sets, 7);
        assert_eq!((sets.len(), frame_number(Coding::H264, &sets)), (5, None));
        // Another program's user data, and data that ends early.
        assert!(!is_frame_number(&[5, 26, 1, 2, 3]) && !is_frame_number(&[]));
        let short = [&[5, 26][..], &UUID, &[0x81; NUMBER - 1]].concat();
        assert!(!is_frame_number(&short));
    }
}
