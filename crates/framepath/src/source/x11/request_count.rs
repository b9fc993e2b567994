// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of requests to an X server, by which its answers are checked.

/// Size of the head of a request, bytes. Its last two are the length of the request in words.
const HEAD: usize = 4;
/// Size of the head of the request for the setup, the first bytes, which is not counted.
const SETUP_HEAD: usize = 12;

/// First byte of the request QueryExtension.
const QUERY_EXTENSION: u8 = 98;

/// Requests that were sent, for the check of their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SentRequests {
    /// Number of requests, which is that of the last one.
    pub(super) all: u64,
    /// Number of the last request QueryExtension; 0 before the first.
    pub(super) extension_query: u64,
}

/// Number of the requests that were sent. Follows the bytes that the server is sent.
pub(super) struct RequestCount {
    requests: SentRequests,
    head: [u8; SETUP_HEAD],
    /// Number of bytes in `head`.
    filled: usize,
    /// Number of bytes that follow the last head.
    left: usize,
    is_setup: bool,
}

impl RequestCount {
    pub(super) fn new() -> RequestCount {
        RequestCount {
            requests: SentRequests::default(),
            head: [0; SETUP_HEAD],
            filled: 0,
            left: 0,
            is_setup: true,
        }
    }

    /// Returns the requests of which the head was sent.
    pub(super) fn requests(&self) -> SentRequests {
        self.requests
    }

    /// Takes the next bytes for the server. No request is so long that its length has the form of the extension BIG-REQUESTS.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            bytes = &bytes[skipped..];
            let size = if self.is_setup { SETUP_HEAD } else { HEAD };
            let taken = bytes.len().min(size - self.filled);
            self.head[self.filled..][..taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == size {
                let number = |at: usize| usize::from(u16::from_ne_bytes([self.head[at], self.head[at + 1]]));
                self.left = match self.is_setup {
                    // The name and the cookie of the authorization.
                    true => number(6).next_multiple_of(4) + number(8).next_multiple_of(4),
                    false => (4 * number(2)).saturating_sub(HEAD),
                };
                self.requests.all += u64::from(!self.is_setup);
                if !self.is_setup && self.head[0] == QUERY_EXTENSION {
                    self.requests.extension_query = self.requests.all;
                }
                (self.filled, self.is_setup) = (0, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_however_they_are_sent() {
        let request = |words: u16| {
            let mut request = vec![0xff; 4 * usize::from(words)];
            request[2..4].copy_from_slice(&words.to_ne_bytes());
            request
        };
        let query = [&[QUERY_EXTENSION][..], &request(3)[1..]].concat();
        let mut setup = vec![0xff; 12 + 20 + 16];
        setup[6..10].copy_from_slice(&[18_u16, 16].map(u16::to_ne_bytes).concat());
        let bytes = [setup, request(1), request(3), query, request(u16::MAX), request(1)].concat();
        for pieces in [1, 3, 7, 4096, bytes.len()] {
            let mut count = RequestCount::new();
            bytes.chunks(pieces).for_each(|piece| count.push(piece));
            let requests = SentRequests { all: 5, extension_query: 3 };
            assert_eq!((count.requests(), count.left, count.filled), (requests, 0, 0), "{pieces}");
        }
    }
}
