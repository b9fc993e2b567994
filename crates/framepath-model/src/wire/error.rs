// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of decoding a record.

use crate::format::LayoutError;

/// Reason for which a cell or message cannot be decoded. The sender is then either broken
/// or hostile: no correct sender writes such a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A message has another number of bytes than [`super::MESSAGE_BYTES`].
    #[error("a message of {0} bytes; messages have {size}", size = super::MESSAGE_BYTES)]
    Length(usize),
    /// A message does not begin with [`super::MAGIC`].
    #[error("not a framepath message: it begins with {0:02x?}")]
    Magic([u8; 4]),
    /// The other side was built with another version of the format.
    #[error("the other side speaks version {theirs} of the wire format, this side version {ours}")]
    Version {
        /// [`super::VERSION`] of this side.
        ours: u16,
        /// The version in the message.
        theirs: u16,
    },
    /// No record of this family has this kind.
    #[error("no {family} has kind {kind}")]
    Kind {
        /// Submission, completion or message.
        family: &'static str,
        /// The number found.
        kind: u16,
    },
    /// Bits that must be zero are not.
    #[error("{record}: bits that must be zero are not")]
    Reserved {
        /// Name of the record.
        record: &'static str,
    },
    /// A number is outside what the field may hold.
    #[error("{record}: {field} cannot be {value}")]
    Field {
        /// Name of the record.
        record: &'static str,
        /// Name of the field.
        field: &'static str,
        /// The number found.
        value: u64,
    },
    /// A text is longer than its field or not UTF-8.
    #[error("{record}: {field} is not a text of at most {most} bytes of UTF-8")]
    Text {
        /// Name of the record.
        record: &'static str,
        /// Name of the field.
        field: &'static str,
        /// Bytes the field has room for.
        most: usize,
    },
    /// The planes hold no picture.
    #[error("layout: {0}")]
    Layout(#[from] LayoutError),
}

/// Returns `Ok` if `holds`, else an error about the field.
pub(super) fn check(
    holds: bool,
    record: &'static str,
    field: &'static str,
    value: u64,
) -> Result<(), WireError> {
    if holds { Ok(()) } else { Err(WireError::Field { record, field, value }) }
}
