// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of an input that another process reads: the demuxer's side of the requests.

use std::io::{self, Seek, SeekFrom};

use framepath_model::wire::{BYTE_ANSWER_BYTES, ByteAnswer, ByteRequest, MOST_REQUESTED_BYTES};
use framepath_os::crossing::Socket;

/// Reader of an input by requests. One request is outstanding at a time.
pub(crate) struct ByteClient {
    socket: Socket,
    /// Size of the input in bytes; `None` if it is not known.
    size: Option<u64>,
    /// Offset of the next byte to read.
    position: u64,
    /// Room for one answer, and one byte more, so that an answer that is too long is refused.
    answer: Vec<u8>,
}

impl ByteClient {
    pub(crate) fn new(socket: Socket, size: Option<u64>) -> ByteClient {
        let answer = vec![0; BYTE_ANSWER_BYTES + MOST_REQUESTED_BYTES as usize + 1];
        ByteClient { socket, size, position: 0, answer }
    }

    /// Reads at most [`MOST_REQUESTED_BYTES`] into `buffer` from the present position on; waits for
    /// the answer. Returns the number of bytes; 0 at the end of the input, or if `buffer` is empty.
    ///
    /// # Errors
    /// EIO if the other process could not read the input (only that process knows the reason), has
    /// sent an invalid answer, or is gone; another error of the socket if the process is gone.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(MOST_REQUESTED_BYTES as usize);
        if len == 0 || self.size.is_some_and(|size| self.position >= size) {
            return Ok(0);
        }
        self.socket.send(&ByteRequest { offset: self.position, len: len as u32 }.encode(), None)?;
        let (received, _) = self.socket.receive(&mut self.answer)?;
        match ByteAnswer::decode(&self.answer[..received]) {
            Ok((ByteAnswer::Bytes(_), bytes)) if bytes.len() <= len => {
                buffer[..bytes.len()].copy_from_slice(bytes);
                self.position += bytes.len() as u64;
                Ok(bytes.len())
            }
            _ => Err(io::Error::from_raw_os_error(libc::EIO)),
        }
    }
}

impl Seek for ByteClient {
    /// Sets the position of the next read; sends no request. Fails for a place before the first
    /// byte or beyond 2^63 - 1, and, if the size is not known, for a place relative to the end.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
            SeekFrom::End(offset) => self.size.and_then(|size| size.checked_add_signed(offset)),
        };
        let place = place.filter(|place| i64::try_from(*place).is_ok());
        self.position = place.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of bytes of a read whose answer is `answer`.
    fn read(answer: &[u8], at_most: usize) -> io::Result<usize> {
        let (ours, theirs) = Socket::pair().unwrap();
        ours.send(answer, None).unwrap();
        let mut client = ByteClient::new(theirs, Some(100));
        client.seek(SeekFrom::End(-40)).unwrap();
        let read = client.read(&mut vec![0; at_most]);
        let mut request = [0; 64];
        let (len, _) = ours.receive(&mut request).unwrap();
        let expected = ByteRequest { offset: 60, len: at_most as u32 };
        assert_eq!(ByteRequest::decode(&request[..len]), Ok(expected));
        assert_eq!(client.position, 60 + *read.as_ref().unwrap_or(&0) as u64);
        read
    }

    #[test]
    fn an_answer_is_taken_only_if_it_fits_the_request() {
        let answer = |len: u32| [&ByteAnswer::Bytes(len).encode()[..], &vec![7; len as usize]].concat();
        assert_eq!(read(&answer(16), 16).unwrap(), 16);
        assert_eq!(read(&answer(3), 16).unwrap(), 3);
        assert_eq!(read(&answer(0), 16).unwrap(), 0);
        assert_eq!(read(&answer(17), 16).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(read(&answer(16)[..20], 16).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(read(&ByteAnswer::Failed.encode(), 16).unwrap_err().raw_os_error(), Some(libc::EIO));
    }

    #[test]
    fn the_end_is_known_without_a_request() {
        let (_ours, theirs) = Socket::pair().unwrap();
        let mut client = ByteClient::new(theirs, Some(100));
        assert_eq!(client.seek(SeekFrom::Start(100)).unwrap(), 100);
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
        assert!(client.seek(SeekFrom::Current(-101)).is_err());
        client.size = None;
        assert!(client.seek(SeekFrom::End(0)).is_err());
    }
}
