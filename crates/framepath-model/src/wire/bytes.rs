// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for an input's bytes, and the beginnings of their answers.

use super::WireError;
use super::error::check;

/// Size of a [`ByteRequest`], bytes.
pub const BYTE_REQUEST_BYTES: usize = 16;

/// Size of the beginning of an answer, bytes; the requested bytes follow.
pub const BYTE_ANSWER_BYTES: usize = 8;

/// Largest number of bytes that one request may ask for.
pub const MOST_REQUESTED_BYTES: u32 = 64 << 10;

const RECORD: &str = "byte request";
const ANSWER: &str = "byte answer";

/// A demuxer's request for a part of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRequest {
    /// Offset of the first requested byte in the input, at most `i64::MAX`.
    pub offset: u64,
    /// Largest number of bytes that the answer may have, 1 to [`MOST_REQUESTED_BYTES`].
    pub len: u32,
}

impl ByteRequest {
    /// Encodes the request.
    pub fn encode(&self) -> [u8; BYTE_REQUEST_BYTES] {
        let mut bytes = [0; BYTE_REQUEST_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Decodes a whole request.
    ///
    /// # Errors
    /// Another length, a number of bytes out of range, an offset beyond `i64::MAX`, or reserved bits: the
    /// sender is broken or hostile.
    pub fn decode(bytes: &[u8]) -> Result<ByteRequest, WireError> {
        let bytes: &[u8; BYTE_REQUEST_BYTES] = bytes.try_into().map_err(|_| WireError::Field {
            record: RECORD,
            field: "size",
            value: bytes.len() as u64,
        })?;
        let offset = u64_at(bytes, 0);
        let len = u32_at(bytes, 8);
        check(i64::try_from(offset).is_ok(), RECORD, "offset", offset)?;
        check((1..=MOST_REQUESTED_BYTES).contains(&len), RECORD, "length", len.into())?;
        if u32_at(bytes, 12) != 0 {
            return Err(WireError::Reserved { record: RECORD });
        }
        Ok(ByteRequest { offset, len })
    }
}

/// Beginning of the answer to a [`ByteRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteAnswer {
    /// The answer has this number of bytes, at most as many as requested; 0 at the end of the input.
    Bytes(u32),
    /// The input could not be read; the caller knows the reason.
    Failed,
}

impl ByteAnswer {
    /// Encodes the beginning of the answer.
    pub fn encode(self) -> [u8; BYTE_ANSWER_BYTES] {
        let (status, len) = match self {
            ByteAnswer::Bytes(len) => (0_u32, len),
            ByteAnswer::Failed => (1, 0),
        };
        let mut bytes = [0; BYTE_ANSWER_BYTES];
        bytes[..4].copy_from_slice(&status.to_le_bytes());
        bytes[4..].copy_from_slice(&len.to_le_bytes());
        bytes
    }

    /// Decodes a whole answer. Returns its beginning and its bytes.
    ///
    /// # Errors
    /// The answer is shorter or longer than its beginning states, its status is unknown, or it
    /// states more bytes than a request may ask for, or bytes with a failure.
    pub fn decode(bytes: &[u8]) -> Result<(ByteAnswer, &[u8]), WireError> {
        let size = WireError::Field { record: ANSWER, field: "size", value: bytes.len() as u64 };
        let Some((head, rest)) = bytes.split_first_chunk::<BYTE_ANSWER_BYTES>() else { return Err(size) };
        let (status, len) = (u32_at(head, 0), u32_at(head, 4));
        check(status <= 1, ANSWER, "status", status.into())?;
        let most = if status == 0 { MOST_REQUESTED_BYTES } else { 0 };
        check(len <= most, ANSWER, "length", len.into())?;
        if rest.len() != len as usize {
            return Err(size);
        }
        Ok((if status == 0 { ByteAnswer::Bytes(len) } else { ByteAnswer::Failed }, rest))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
