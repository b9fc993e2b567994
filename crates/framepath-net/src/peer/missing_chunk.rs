// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limit for the chunks of data channels that are kept behind a missing one.
//!
//! SCTP keeps a chunk until all earlier ones have arrived. sctp-proto 0.10 does not count this memory against the window that it grants, so
//! that a peer which never sends one of its chunks could have 32,768 of them kept. What is kept shows in this end's own
//! acknowledgements (RFC 9260, section 3.3.4).

/// Maximum distance of a chunk that is kept from the last one without a gap. An honest peer whose network loses a chunk sends it again
/// after seconds, in which it sends some hundred others.
pub(super) const MOST_AHEAD: u16 = 2048;

/// Size of a packet's header, bytes.
const HEADER: usize = 12;
/// Type of a selective acknowledgement.
const ACKNOWLEDGEMENT: u8 = 3;
/// Bytes of an acknowledgement in front of the number of its blocks, and in front of the blocks; those of a chunk's header included.
const BLOCK_COUNT: usize = 12;
const BLOCKS: usize = 16;

/// Returns true if this packet of this end acknowledges a chunk that is too far behind a missing one.
pub(super) fn keeps_too_many(packet: &[u8]) -> bool {
    let mut rest = packet.get(HEADER..).unwrap_or_default();
    while let [kind, _, high, low, ..] = *rest {
        let length = usize::from(u16::from_be_bytes([high, low])).clamp(4, rest.len());
        let (chunk, behind) = rest.split_at(length);
        if kind == ACKNOWLEDGEMENT && block_ends(chunk).any(|end| end > MOST_AHEAD) {
            return true;
        }
        // Chunks are padded to four bytes.
        rest = behind.get(length.next_multiple_of(4) - length..).unwrap_or_default();
    }
    false
}

/// Returns the ends of an acknowledgement's blocks, as distances from the last chunk without a gap.
fn block_ends(acknowledgement: &[u8]) -> impl Iterator<Item = u16> {
    let count = acknowledgement.get(BLOCK_COUNT..BLOCK_COUNT + 2).and_then(|count| count.try_into().ok());
    let blocks = acknowledgement.get(BLOCKS..).unwrap_or_default();
    let ends = blocks.chunks_exact(4).map(|block| u16::from_be_bytes([block[2], block[3]]));
    ends.take(count.map_or(0, |count| usize::from(u16::from_be_bytes(count))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a packet with another chunk of five bytes, and an acknowledgement with these blocks.
    fn packet(blocks: &[(u16, u16)]) -> Vec<u8> {
        let mut packet = vec![0; HEADER];
        packet.extend([9, 0, 0, 5, 1, 0, 0, 0]);
        packet.extend([ACKNOWLEDGEMENT, 0, 0, (BLOCKS + 4 * blocks.len()) as u8]);
        packet.extend([0; 8]);
        packet.extend((blocks.len() as u16).to_be_bytes());
        packet.extend([0; 2]);
        blocks
            .iter()
            .for_each(|(start, end)| packet.extend([start.to_be_bytes(), end.to_be_bytes()].concat()));
        packet
    }

    #[test]
    fn the_farthest_chunk_counts() {
        assert!(!keeps_too_many(&packet(&[])));
        assert!(!keeps_too_many(&packet(&[(2, 9), (20, MOST_AHEAD)])));
        assert!(keeps_too_many(&packet(&[(2, 9), (MOST_AHEAD, MOST_AHEAD + 1)])));
        assert!(keeps_too_many(&packet(&[(2, u16::MAX), (2, 2)])));
    }

    #[test]
    fn packets_that_are_cut_do_no_harm() {
        let whole = packet(&[(2, 9), (20, MOST_AHEAD)]);
        for length in 0..whole.len() {
            assert!(!keeps_too_many(&whole[..length]));
        }
        assert!(!keeps_too_many(&[0; 40]) && !keeps_too_many(&[3; 40]));
    }
}
