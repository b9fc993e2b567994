// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heads of RTP packets (RFC 3550, 5.1).

/// Size of a head without extensions, bytes.
pub(crate) const HEADER: usize = 12;

/// Head of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RtpHeader {
    /// True for the last packet of a frame.
    pub(crate) marker: bool,
    pub(crate) payload_type: u8,
    pub(crate) seq: u16,
    /// Timestamp, 90 kHz for video.
    pub(crate) time: u32,
    /// Identifier of the source.
    pub(crate) ssrc: u32,
}

impl RtpHeader {
    /// Returns the head's bytes, without extensions.
    pub(crate) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = 2 << 6;
        bytes[1] = u8::from(self.marker) << 7 | self.payload_type;
        bytes[2..4].copy_from_slice(&self.seq.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.time.to_be_bytes());
        bytes[8..].copy_from_slice(&self.ssrc.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_have_their_fields_in_network_order() {
        let head =
            RtpHeader { marker: true, payload_type: 96, seq: 0xfffe, time: 0x0102_0304, ssrc: 0xfefd_fcfb };
        assert_eq!(head.to_bytes(), [0x80, 0xe0, 0xff, 0xfe, 1, 2, 3, 4, 0xfe, 0xfd, 0xfc, 0xfb]);
    }
}
