// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to an encoder in a worker, and the parts of its output.

/// Requests to the encoder in a worker, in force from the frame on that carries them. Each frame carries
/// all of them, so that another worker follows them, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncoderRequests {
    /// True if the frame's packet has to be a random access point.
    pub key: bool,
    /// Bit rate that was requested last, bits per second, at least 1; `None`: that of the hop's text.
    pub bit_rate: Option<u64>,
    /// Highest bit rate that the network carries, bits per second, at least 1; `None`: no limit.
    pub bandwidth: Option<u64>,
}

/// Meaning of bytes that an encoder's worker has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodedPart {
    /// Description of the track, which the first packet of each encoder has.
    Track,
    /// Packet that is no random access point.
    Packet,
    /// Packet that is a random access point.
    KeyPacket,
}

impl EncodedPart {
    const ALL: [EncodedPart; 3] = [EncodedPart::Track, EncodedPart::Packet, EncodedPart::KeyPacket];

    pub(super) fn number(self) -> u64 {
        self as u64
    }

    pub(super) fn from_number(number: u64) -> Option<EncodedPart> {
        EncodedPart::ALL.into_iter().find(|part| part.number() == number)
    }
}
