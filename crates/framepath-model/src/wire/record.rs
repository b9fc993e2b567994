// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reader and writer for the fields of a message. All fields have a fixed size, and those of each
//! kind of message fit into a message, so neither the reader nor the writer runs past the end.

use super::WireError;
use super::error::check;
use super::layout::{format_number, format_of};
use super::picture::{orientation_number, orientation_of};
use crate::stream::{Rational, StreamInfo};

/// Writer of a message's fields, one after the other. Bytes that no field fills are zero.
pub(super) struct RecordWriter<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> RecordWriter<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> RecordWriter<'a> {
        bytes.fill(0);
        RecordWriter { bytes, at: 0 }
    }

    pub(super) fn write(&mut self, value: &[u8]) {
        self.bytes[self.at..self.at + value.len()].copy_from_slice(value);
        self.at += value.len();
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.write(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.write(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.write(&value.to_le_bytes());
    }

    /// Writes `text`, cut between two characters to at most `most` bytes, as a length and `most`
    /// bytes.
    pub(super) fn text(&mut self, text: &str, most: usize) {
        let mut len = text.len().min(most);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        self.u16(len as u16);
        let end = self.at + most;
        self.write(&text.as_bytes()[..len]);
        self.at = end;
    }

    pub(super) fn stream(&mut self, stream: &StreamInfo) {
        self.write(&[stream.format.map_or(0, format_number), orientation_number(stream.orientation), 0, 0]);
        self.u32(stream.width);
        self.u32(stream.height);
        for fraction in [stream.time_base, stream.frame_rate, stream.sample_aspect] {
            self.write(&fraction.num.to_le_bytes());
            self.write(&fraction.den.to_le_bytes());
        }
    }
}

/// Reader of a message's fields, one after the other.
pub(super) struct RecordReader<'a> {
    bytes: &'a [u8],
    /// Name of the message, for errors.
    pub(super) record: &'static str,
}

impl<'a> RecordReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> RecordReader<'a> {
        RecordReader { bytes, record: "message" }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(WireError::Length(count))?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(WireError::Length(self.bytes.len()))?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads `count` bytes. Fails with [`WireError::Reserved`] if one of them is not zero.
    pub(super) fn zeros(&mut self, count: usize) -> Result<(), WireError> {
        let zero = self.take(count)?.iter().all(|byte| *byte == 0);
        if zero { Ok(()) } else { Err(WireError::Reserved { record: self.record }) }
    }

    /// Ends the reading. Fails with [`WireError::Reserved`] if one of the unread bytes is not zero.
    pub(super) fn end(mut self) -> Result<(), WireError> {
        self.zeros(self.bytes.len())
    }

    /// Returns `value`. Fails with [`WireError::Reserved`] if `value` has bits other than those of
    /// `known`.
    pub(super) fn flags(&mut self, value: u64, known: u64) -> Result<u64, WireError> {
        if value & !known == 0 { Ok(value) } else { Err(WireError::Reserved { record: self.record }) }
    }

    pub(super) fn text(&mut self, most: usize, field: &'static str) -> Result<String, WireError> {
        let len = usize::from(self.u16()?);
        let wrong = WireError::Text { record: self.record, field, most };
        if len > most {
            return Err(wrong);
        }
        let text = std::str::from_utf8(self.take(len)?).map_err(|_| wrong)?;
        self.zeros(most - len)?;
        Ok(text.to_owned())
    }

    pub(super) fn stream(&mut self) -> Result<StreamInfo, WireError> {
        let format = match self.u8()? {
            0 => None,
            number => Some(format_of(number, self.record)?),
        };
        let orientation = self.u8()?;
        check(orientation < 8, self.record, "orientation", orientation.into())?;
        self.zeros(2)?;
        Ok(StreamInfo {
            format,
            width: self.u32()?,
            height: self.u32()?,
            time_base: self.fraction()?,
            frame_rate: self.fraction()?,
            sample_aspect: self.fraction()?,
            orientation: orientation_of(orientation.into()),
        })
    }

    fn fraction(&mut self) -> Result<Rational, WireError> {
        let num = self.array().map(i32::from_le_bytes)?;
        Ok(Rational::new(num, self.array().map(i32::from_le_bytes)?))
    }
}
