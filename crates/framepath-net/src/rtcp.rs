// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTCP of a sender of RTP (RFC 3550): reports to receivers, and requests of receivers (RFC 4585, RFC 5104).

use std::time::{SystemTime, UNIX_EPOCH};

/// Types of packets.
const SENDER_REPORT: u8 = 200;
const DESCRIPTION: u8 = 202;
const GOODBYE: u8 = 203;
const PAYLOAD_FEEDBACK: u8 = 206;
/// Formats of payload feedback that ask for a keyframe: Picture Loss Indication and Full Intra Request.
const PICTURE_LOSS: u8 = 1;
const FULL_INTRA: u8 = 4;
/// Item of a description: the name of the source.
const CNAME: u8 = 1;
/// Seconds from the beginning of NTP's times, 1900, to that of Unix.
const NTP_TO_UNIX: u64 = 2_208_988_800;

/// Report of a sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SenderReport<'a> {
    pub(crate) ssrc: u32,
    /// Wall-clock time, and the RTP timestamp of the same moment.
    pub(crate) at: SystemTime,
    pub(crate) time: u32,
    /// Numbers of packets and of payload bytes so far; both wrap.
    pub(crate) packets: u32,
    pub(crate) bytes: u32,
    /// Name of the source, the same over restarts of RTP; at most 255 bytes.
    pub(crate) name: &'a str,
}

impl SenderReport<'_> {
    /// Returns the report and the description of the source, a datagram.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let since = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
        // Both wrap in 2036.
        let seconds = (since.as_secs() + NTP_TO_UNIX) as u32;
        let words = [self.ssrc, seconds, fraction as u32, self.time, self.packets, self.bytes];
        let mut bytes = packet(SENDER_REPORT, 0, &words.map(u32::to_be_bytes).concat());
        let mut described = self.ssrc.to_be_bytes().to_vec();
        described.extend([CNAME, self.name.len() as u8]);
        described.extend(self.name.as_bytes());
        // The list of items ends with a zero, and at a multiple of four bytes.
        described.resize((described.len() + 1).next_multiple_of(4), 0);
        bytes.extend(packet(DESCRIPTION, 1, &described));
        bytes
    }
}

/// Returns the goodbye of a source, which goes behind a report.
pub(crate) fn goodbye(ssrc: u32) -> Vec<u8> {
    packet(GOODBYE, 1, &ssrc.to_be_bytes())
}

/// Returns true if a datagram asks for a keyframe of the source `ssrc`.
pub(crate) fn asks_for_keyframe(mut datagram: &[u8], ssrc: u32) -> bool {
    while let [first, kind, high, low, rest @ ..] = datagram {
        let size = 4 * usize::from(u16::from_be_bytes([*high, *low]));
        let (Some(body), true) = (rest.get(..size), first >> 6 == 2) else { return false };
        // Behind the packet's own source: the media source, or the first entry of a Full Intra Request.
        let at = match (*kind, first & 31) {
            (PAYLOAD_FEEDBACK, PICTURE_LOSS) => Some(4),
            (PAYLOAD_FEEDBACK, FULL_INTRA) => Some(8),
            _ => None,
        };
        if at.and_then(|at| body.get(at..at + 4)) == Some(&ssrc.to_be_bytes()) {
            return true;
        }
        datagram = &rest[size..];
    }
    false
}

/// Returns a packet; `count` is the number in its first byte.
fn packet(kind: u8, count: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() / 4) as u16;
    [&[2 << 6 | count, kind][..], &length.to_be_bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_report_has_the_times_and_the_name() {
        let at = UNIX_EPOCH + Duration::from_millis(1500);
        let report = SenderReport { ssrc: 7, at, time: 90, packets: 2, bytes: 3, name: "abcde" };
        let bytes = report.to_bytes();
        let ntp = (NTP_TO_UNIX as u32 + 1).to_be_bytes();
        assert_eq!(bytes[..8], [0x80, 200, 0, 6, 0, 0, 0, 7]);
        assert_eq!(bytes[8..16], [ntp, 0x8000_0000_u32.to_be_bytes()].concat());
        assert_eq!(bytes[16..28], [0, 0, 0, 90, 0, 0, 0, 2, 0, 0, 0, 3]);
        assert_eq!(bytes[28..], [&[0x81, 202, 0, 3, 0, 0, 0, 7, 1, 5][..], b"abcde", &[0]].concat());
        assert_eq!(goodbye(7), [0x81, 203, 0, 1, 0, 0, 0, 7]);
    }

    #[test]
    fn requests_are_found_behind_reports_and_only_for_the_source() {
        let receiver_report = [0x80, 201, 0, 1, 0, 0, 0, 9];
        let loss = [0x81, 206, 0, 2, 0, 0, 0, 9, 0, 0, 0, 7];
        let intra = [0x84, 206, 0, 4, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 0, 0];
        assert!(asks_for_keyframe(&[&receiver_report[..], &loss].concat(), 7));
        assert!(asks_for_keyframe(&intra, 7));
        assert!(!asks_for_keyframe(&loss, 9) && !asks_for_keyframe(&receiver_report, 9));
        // Every cut, and a length that goes beyond the end.
        for size in 0..loss.len() {
            assert!(!asks_for_keyframe(&loss[..size], 7));
        }
        assert!(!asks_for_keyframe(&[0x81, 206, 255, 255, 0, 0, 0, 9, 0, 0, 0, 7], 7));
    }
}
