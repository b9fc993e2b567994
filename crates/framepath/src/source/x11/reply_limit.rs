// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limit on the size of an X server's packets, because x11rb allocates the length that the server names.

use std::io;

/// Largest packet that no caller has asked for in this size, bytes: lists of windows, properties, pictures of the pointer. The longest
/// answer to the setup has 256 KiB.
const MOST: u64 = 16 << 20;
/// Size of a packet's head, bytes: an error and most events have no more.
const HEAD: usize = 32;
/// Size of the head of the answer to the setup, the first packet, bytes.
const SETUP_HEAD: usize = 8;
/// Types of packets that have a length: a reply, and an event of an extension, of which the highest bit says that a client has sent it.
const REPLY: u8 = 1;
const GENERIC_EVENT: u8 = 35;

/// Limit on the size of an X server's packets. Follows the bytes that the server sends.
pub(super) struct ReplyLimit {
    /// Largest packet that is admitted, bytes without its head.
    most: u64,
    head: [u8; HEAD],
    /// Number of bytes in `head`.
    filled: usize,
    /// Number of bytes that follow the last head.
    left: u64,
    is_setup: bool,
}

impl ReplyLimit {
    pub(super) fn new() -> ReplyLimit {
        ReplyLimit { most: MOST, head: [0; HEAD], filled: 0, left: 0, is_setup: true }
    }

    /// Admits packets of `bytes` bytes from now on, because the caller asks for so many.
    pub(super) fn admit(&mut self, bytes: usize) {
        // The protocol rounds up to four bytes.
        self.most = self.most.max(bytes as u64 + 4);
    }

    /// Takes the next bytes of the server.
    ///
    /// # Errors
    /// They begin a packet that is too large.
    pub(super) fn check(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len() as u64);
            self.left -= skipped;
            bytes = &bytes[skipped as usize..];
            let size = if self.is_setup { SETUP_HEAD } else { HEAD };
            let taken = bytes.len().min(size - self.filled);
            self.head[self.filled..][..taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == size {
                (self.left, self.filled) = (self.length(), 0);
                self.is_setup = false;
            }
            if self.left > self.most {
                let (left, most) = (self.left, self.most);
                let what = format!("it sends a reply of {left} bytes; expected at most {most}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that follow the head.
    fn length(&self) -> u64 {
        let [kind, _, _, _, a, b, c, d, ..] = self.head;
        match kind {
            _ if self.is_setup => 4 * u64::from(u16::from_ne_bytes([c, d])),
            kind if kind == REPLY || kind & 0x7f == GENERIC_EVENT => {
                4 * u64::from(u32::from_ne_bytes([a, b, c, d]))
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a packet of this type with `words` words behind its head.
    fn packet(kind: u8, words: u32) -> Vec<u8> {
        let mut packet = vec![0xff; HEAD + 4 * words as usize];
        packet[0] = kind;
        packet[4..8].copy_from_slice(&words.to_ne_bytes());
        packet
    }

    /// Returns a packet of this type that names `words` words, and has none.
    fn head(kind: u8, words: u32) -> Vec<u8> {
        let mut head = packet(kind, 0);
        head[4..8].copy_from_slice(&words.to_ne_bytes());
        head
    }

    #[test]
    fn only_a_packet_with_a_length_can_be_too_large() {
        let most = MOST as u32 / 4;
        let mut setup = vec![1, 0, 11, 0, 0, 0];
        setup.extend(300_u16.to_ne_bytes());
        setup.extend([1; 1200]);
        let honest =
            [setup, packet(REPLY, 3), head(2, u32::MAX), packet(GENERIC_EVENT, 1), packet(REPLY, most)];
        let honest = honest.concat();
        let after_honest = |pieces: usize| {
            let mut limit = ReplyLimit::new();
            honest.chunks(pieces).for_each(|piece| limit.check(piece).unwrap());
            limit
        };
        for pieces in [1, 7, 4096, honest.len()] {
            for kind in [REPLY, GENERIC_EVENT, GENERIC_EVENT | 0x80] {
                for words in [most + 1, 1 << 30, u32::MAX] {
                    let error = after_honest(pieces).check(&head(kind, words)).unwrap_err();
                    let bytes = 4 * u64::from(words);
                    assert_eq!(
                        error.to_string(),
                        format!("it sends a reply of {bytes} bytes; expected at most 16777216")
                    );
                }
            }
        }
        let mut limit = after_honest(4096);
        limit.admit(4 * most as usize + 1);
        assert!(limit.check(&head(REPLY, most + 1)).is_ok());
        limit.left = 0;
        assert!(limit.check(&head(REPLY, most + 2)).is_err());
    }
}
