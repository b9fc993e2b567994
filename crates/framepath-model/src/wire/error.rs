// SPDX-License-Identifier: MIT OR Apache-2.0
//! Error of decoding a cell, a message, or a request for bytes or its answer.

use crate::format::LayoutError;

/// Reason why a cell, a message, or a request for bytes or its answer cannot be decoded. Except for
/// another version, the sender is broken, hostile or not framepath: a correct sender never writes
/// such a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message does not have [`super::MESSAGE_BYTES`] bytes; the field is its size in bytes.
    #[error("message has {0} bytes and cannot be decoded; expected {size}", size = super::MESSAGE_BYTES)]
    Length(usize),
    /// The message does not begin with [`super::MAGIC`]; the field is its first four bytes.
    #[error(
        "not a framepath message: begins with {0:02x?}; expected {magic:02x?}; check that the program at the other \
         end of the socket is framepath",
        magic = super::MAGIC
    )]
    Magic([u8; 4]),
    /// The other side was built with another version of the wire format.
    #[error(
        "the other process uses version {theirs} of the wire format, this process version {ours}; use the same \
         build of framepath for both"
    )]
    Version {
        /// [`super::VERSION`] of this side.
        ours: u16,
        /// Version in the message.
        theirs: u16,
    },
    /// The record's kind is not known in its family of records.
    #[error("unknown {family} kind {kind}: this version of the wire format has no such record")]
    Kind {
        /// Family of records: submission, completion or message.
        family: &'static str,
        /// Number of the kind.
        kind: u16,
    },
    /// Bits that must be zero are set.
    #[error("{record}: reserved bits are set; expected zeros")]
    Reserved {
        /// Name of the record.
        record: &'static str,
    },
    /// A number is outside the range of its field, or contradicts another number of the record; or
    /// a request for bytes or its answer has a wrong size.
    #[error(
        "{record}: invalid {field} {value}; the number is out of range or contradicts another number of the \
         record"
    )]
    Field {
        /// Name of the record.
        record: &'static str,
        /// Name of the field.
        field: &'static str,
        /// Number found in the field, with these exceptions. `numbers` of a buffer request: the
        /// number of buffers. `time` of a frame completion: several bits of the cell, which contain
        /// the time. `mode` of a seek and `request`: word 0 without its lowest 8 bits. `size` of a
        /// request for bytes or its answer: its size in bytes.
        value: u64,
    },
    /// A text is longer than its field or not UTF-8.
    #[error("{record}: {field} is invalid text; expected at most {most} bytes of UTF-8")]
    Text {
        /// Name of the record.
        record: &'static str,
        /// Name of the field.
        field: &'static str,
        /// Capacity of the field, bytes.
        most: usize,
    },
    /// The format, size or planes of a picture are invalid.
    #[error("invalid picture layout: {0}")]
    Layout(#[from] LayoutError),
}

/// Returns `Ok` if `holds` is true, else [`WireError::Field`] with the other arguments.
pub(super) fn check(
    holds: bool,
    record: &'static str,
    field: &'static str,
    value: u64,
) -> Result<(), WireError> {
    if holds { Ok(()) } else { Err(WireError::Field { record, field, value }) }
}
