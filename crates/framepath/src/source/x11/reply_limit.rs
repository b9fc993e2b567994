// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits on what an X server sends, because x11rb allocates the length that the server names, and keeps all events and replies until
//! they are asked for.

use std::io;

use super::request_count::SentRequests;

/// Largest packet that no caller has asked for in this size, bytes: lists of windows, properties, pictures of the pointer. The longest
/// answer to the setup has 256 KiB.
const MOST: u64 = 16 << 20;
/// Most bytes of events between two looks at them. A mouse sends 100 KB/s, and the pipeline may be blocked for minutes.
const MOST_EVENTS: u64 = 64 << 20;
/// Size of a packet's head, bytes: an error and most events have no more.
const HEAD: usize = 32;
/// Size of the head of the answer to the setup, the first packet, bytes.
const SETUP_HEAD: usize = 8;
/// Type of an error.
const ERROR: u8 = 0;
/// Types of packets that have a length: a reply, and an event of an extension, of which the highest bit says that a client has sent it.
const REPLY: u8 = 1;
const GENERIC_EVENT: u8 = 35;
/// Type of an event without the number of a request.
const KEYMAP_NOTIFY: u8 = 11;

/// Limits on an X server's packets. Follows the bytes that the server sends.
pub(super) struct ReplyLimit {
    /// Largest packet that is admitted, bytes without its head.
    most: u64,
    /// Number of the newest request that the server has named, and of the newest one that it has answered. The first has number 1.
    named: u64,
    answered: u64,
    /// Bytes of events since the last look at them.
    events: u64,
    head: [u8; HEAD],
    /// Number of bytes in `head`.
    filled: usize,
    /// Number of bytes that follow the last head.
    left: u64,
    is_setup: bool,
}

impl ReplyLimit {
    pub(super) fn new() -> ReplyLimit {
        ReplyLimit {
            most: MOST,
            named: 0,
            answered: 0,
            events: 0,
            head: [0; HEAD],
            filled: 0,
            left: 0,
            is_setup: true,
        }
    }

    /// Admits packets of `bytes` bytes from now on, because the caller asks for so many.
    pub(super) fn admit(&mut self, bytes: usize) {
        // The protocol rounds up to four bytes.
        self.most = self.most.max(bytes as u64 + 4);
    }

    /// Records that the events so far are being looked at.
    pub(super) fn take_events(&mut self) {
        self.events = 0;
    }

    /// Takes the next bytes of the server, which was sent `requests`.
    ///
    /// # Errors
    /// They begin a packet that is too large, one event too many, an answer without a request, or an error to QueryExtension, which has
    /// none: x11rb would wait for itself for ever.
    pub(super) fn check(&mut self, mut bytes: &[u8], requests: SentRequests) -> io::Result<()> {
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
                if self.left > self.most {
                    let (left, most) = (self.left, self.most);
                    return Err(invalid(format!(
                        "it sends a reply of {left} bytes; expected at most {most}"
                    )));
                }
                if !std::mem::replace(&mut self.is_setup, false) {
                    self.check_number(requests)?;
                }
            }
        }
        Ok(())
    }

    /// Checks the request that the head names, and counts an event.
    fn check_number(&mut self, requests: SentRequests) -> io::Result<()> {
        let [kind, _, a, b, ..] = self.head;
        if kind != KEYMAP_NOTIFY {
            // The lower 16 bits of a number that never decreases.
            let step = u16::from_ne_bytes([a, b]).wrapping_sub(self.named as u16);
            self.named += u64::from(step);
        }
        if self.named > requests.all {
            return Err(invalid("it answers a request that was not sent".to_owned()));
        }
        if kind == ERROR && self.named == requests.extension_query {
            return Err(invalid("it answers QueryExtension with an error".to_owned()));
        }
        if kind > REPLY {
            self.events += HEAD as u64 + self.left;
            if self.events > MOST_EVENTS {
                return Err(invalid(format!("it sends more than {MOST_EVENTS} bytes of events at once")));
            }
        } else if self.named == std::mem::replace(&mut self.answered, self.named) {
            return Err(invalid("it answers a request twice".to_owned()));
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

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns so many requests, none of which asks for an extension.
    fn sent(requests: u64) -> SentRequests {
        SentRequests { all: requests, extension_query: 0 }
    }

    /// Returns a packet of this type, with `words` words behind its head, that names the request `number`.
    fn packet(kind: u8, number: u16, words: u32) -> Vec<u8> {
        let mut packet = head(kind, number, words);
        packet.resize(HEAD + 4 * words as usize, 0xff);
        packet
    }

    /// Returns the head of such a packet.
    fn head(kind: u8, number: u16, words: u32) -> Vec<u8> {
        let mut head = vec![0xff; HEAD];
        head[0] = kind;
        head[2..4].copy_from_slice(&number.to_ne_bytes());
        head[4..8].copy_from_slice(&words.to_ne_bytes());
        head
    }

    fn setup() -> Vec<u8> {
        let mut setup = vec![1, 0, 11, 0, 0, 0];
        setup.extend(300_u16.to_ne_bytes());
        setup.extend([1; 1200]);
        setup
    }

    /// Returns the limit behind the setup.
    fn behind_setup() -> ReplyLimit {
        let mut limit = ReplyLimit::new();
        limit.check(&setup(), sent(0)).unwrap();
        limit
    }

    #[test]
    fn only_a_packet_with_a_length_can_be_too_large() {
        let most = MOST as u32 / 4;
        let honest = [
            setup(),
            packet(REPLY, 1, 3),
            head(2, 1, u32::MAX),
            packet(GENERIC_EVENT, 2, 1),
            packet(REPLY, 2, most),
        ];
        let honest = honest.concat();
        let after_honest = |pieces: usize| {
            let mut limit = ReplyLimit::new();
            honest.chunks(pieces).for_each(|piece| limit.check(piece, sent(2)).unwrap());
            limit
        };
        for pieces in [1, 7, 4096, honest.len()] {
            for kind in [REPLY, GENERIC_EVENT, GENERIC_EVENT | 0x80] {
                for words in [most + 1, 1 << 30, u32::MAX] {
                    let error = after_honest(pieces).check(&head(kind, 3, words), sent(9)).unwrap_err();
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
        assert!(limit.check(&head(REPLY, 3, most + 1), sent(9)).is_ok());
        limit.left = 0;
        assert!(limit.check(&head(REPLY, 4, most + 2), sent(9)).is_err());
    }

    #[test]
    fn a_request_that_was_sent_is_answered_once() {
        let mut limit = behind_setup();
        // More requests than the 16 bits of a number, of which one in 60,000 has a reply.
        for request in [1, 60_001, 120_001, 180_001] {
            limit.check(&packet(2, request as u16, 0), sent(request)).unwrap();
            limit.check(&packet(REPLY, request as u16, 1), sent(request)).unwrap();
            limit.check(&packet(KEYMAP_NOTIFY, 0xffff, 0), sent(request)).unwrap();
        }
        for kind in [ERROR, REPLY] {
            let error = limit.check(&packet(kind, 180_001_u32 as u16, 0), sent(180_001)).unwrap_err();
            assert_eq!(error.to_string(), "it answers a request twice");
        }
        for (number, kind) in [(180_002, REPLY), (180_000, REPLY), (180_002, 2)] {
            let error = limit.check(&packet(kind, number as u16, 0), sent(180_001)).unwrap_err();
            assert_eq!(error.to_string(), "it answers a request that was not sent");
            limit.named = 180_001;
        }
    }

    #[test]
    fn events_that_are_not_looked_at_are_limited() {
        let mut limit = behind_setup();
        let event = packet(GENERIC_EVENT, 0, (1 << 20) / 4 - 8);
        for _ in 0..3 {
            (0..MOST_EVENTS >> 20).for_each(|_| limit.check(&event, sent(0)).unwrap());
            limit.take_events();
        }
        (0..MOST_EVENTS >> 20).for_each(|_| limit.check(&event, sent(0)).unwrap());
        let error = limit.check(&packet(2, 0, 0), sent(0)).unwrap_err();
        assert_eq!(error.to_string(), "it sends more than 67108864 bytes of events at once");
    }

    #[test]
    fn an_extension_is_there_or_not_and_no_error() {
        let requests = SentRequests { all: 3, extension_query: 2 };
        for (number, is_refused) in [(1, false), (2, true), (3, false)] {
            let checked = behind_setup().check(&packet(ERROR, number, 0), requests);
            assert_eq!(checked.is_err(), is_refused, "{number}");
        }
        assert!(behind_setup().check(&packet(REPLY, 2, 0), requests).is_ok());
    }
}
