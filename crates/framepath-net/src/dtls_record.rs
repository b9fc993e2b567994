// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of DTLS 1.2 in a datagram (RFC 6347, 4.1), as far as they can be checked without keys.

/// Bytes in front of a record's content: type, version, epoch, sequence number, length.
const HEAD: usize = 13;
/// Types of records: change_cipher_spec, alert, handshake, application_data.
const TYPES: std::ops::RangeInclusive<u8> = 20..=23;
/// Versions in records: DTLS 1.0, which the first message of a handshake has, and DTLS 1.2.
const VERSIONS: [[u8; 2]; 2] = [[254, 255], [254, 253]];

/// Smallest content of an encrypted record: 8 bytes of nonce and 16 of authentication (AES-GCM, RFC 5288).
const LEAST_ENCRYPTED: usize = 24;

/// Returns true if another protocol than DTLS begins with the byte `first` (RFC 7983).
pub(crate) fn is_other_protocol(first: u8) -> bool {
    !(20..64).contains(&first)
}

/// Returns true if the datagram consists of whole records, and the encrypted ones are as long as their cipher makes them. Of any other,
/// OpenSSL keeps the rest as the begin of the next datagram; and it never reads again after an encrypted record that is too short.
pub(crate) fn are_whole(mut datagram: &[u8]) -> bool {
    while let Some((head, rest)) = datagram.split_first_chunk::<HEAD>() {
        let [kind, major, minor, epoch @ .., high, low] = *head;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let least = if epoch[..2] == [0, 0] { 0 } else { LEAST_ENCRYPTED };
        let is_known = TYPES.contains(&kind) && VERSIONS.contains(&[major, minor]);
        if !is_known || length < least || length > rest.len() {
            return false;
        }
        datagram = &rest[length..];
    }
    datagram.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, length: u8, content: usize) -> Vec<u8> {
        record_of_epoch(0, kind, length, content)
    }

    fn record_of_epoch(epoch: u8, kind: u8, length: u8, content: usize) -> Vec<u8> {
        let head = [kind, 254, 253, 0, epoch, 0, 0, 0, 0, 0, 1, 0, length];
        [&head[..], &vec![7; content]].concat()
    }

    #[test]
    fn whole_records_are_told_from_others() {
        let whole = record(22, 5, 5);
        assert!(are_whole(&whole) && are_whole(&[&whole[..], &record(23, 0, 0)].concat()));
        assert!(are_whole(&record_of_epoch(1, 21, 24, 24)));
        for wrong in [
            record(23, 10, 800),
            record(23, 10, 9),
            record(24, 5, 5),
            [&whole[..], &[22]].concat(),
            whole[..12].to_vec(),
            [&[22, 3, 3], &whole[3..]].concat(),
            record_of_epoch(1, 21, 23, 23),
        ] {
            assert!(!are_whole(&wrong), "{wrong:?}");
        }
    }
}
