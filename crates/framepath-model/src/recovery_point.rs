// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recovery point messages of H.264 and HEVC: SEI messages that announce when pictures are right (ITU-T
//! H.264, D.1.8; ITU-T H.265, D.2.8).

use crate::access_unit::Bits;

/// Returns `bytes` without the emulation prevention bytes (0, 0, 3).
pub(crate) fn unescaped(bytes: &[u8]) -> Vec<u8> {
    let mut zeros = 0;
    let kept = bytes.iter().copied().filter(|byte| {
        let is_escape = zeros >= 2 && *byte == 3;
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
        !is_escape
    });
    kept.collect()
}

/// Returns the payload of the first recovery point message in the SEI unit's body `sei`, without
/// emulation prevention bytes; `None` if there is no such message, or a message up to it is cut
/// off.
pub(crate) fn recovery_point(sei: &[u8]) -> Option<Vec<u8>> {
    const RECOVERY_POINT: usize = 6;
    let sei = unescaped(sei);
    let mut rest = sei.as_slice();
    // A message has at least two bytes; a shorter rest is the trailing bits.
    while rest.len() > 2 {
        let mut number = || {
            let mut sum = 0;
            loop {
                let (byte, behind) = rest.split_first()?;
                rest = behind;
                sum += usize::from(*byte);
                if *byte != 0xff {
                    return Some(sum);
                }
            }
        };
        let (kind, size) = (number()?, number()?);
        let (payload, behind) = rest.split_at_checked(size)?;
        if kind == RECOVERY_POINT {
            return Some(payload.to_vec());
        }
        rest = behind;
    }
    None
}

/// Returns true if the message with this payload, of H.264 or HEVC, has `exact_match_flag` 1: pictures are
/// right from the recovery point on, and not only approximately.
pub(crate) fn is_exact(payload: &[u8]) -> bool {
    let mut bits = Bits::new(payload);
    // The number of pictures up to the recovery point.
    bits.exp_golomb().and_then(|_| bits.take(1)) == Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_tells_whether_recovery_is_exact() {
        // Nine pictures, 0001010, and then the flag.
        for (byte, exact) in [(0x14, false), (0x15, true)] {
            let payload = recovery_point(&[6, 1, byte, 0x80]).unwrap();
            assert_eq!(is_exact(&payload), exact);
        }
        assert!(!is_exact(&[]) && recovery_point(&[5, 1, 0x15, 0x80]).is_none());
    }
}
