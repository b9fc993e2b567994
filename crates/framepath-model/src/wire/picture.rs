// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encoding of a picture's properties: field order and orientation in five bits.

use super::WireError;
use crate::orientation::Orientation;
use crate::stream::{FieldOrder, PictureFlags};

/// Number of bits in which [`picture_bits`] encodes field order and orientation.
pub(super) const PICTURE_BITS: u32 = 5;

/// Encodes the field order (two bits) and the orientation (three bits).
pub(super) fn picture_bits(picture: &PictureFlags) -> u64 {
    let order = match picture.field_order {
        FieldOrder::Progressive => 0,
        FieldOrder::TopFirst => 1,
        FieldOrder::BottomFirst => 2,
    };
    order | u64::from(orientation_number(picture.orientation)) << 2
}

/// Decodes field order and orientation from the low five bits of `bits`; `is_damaged` is the other
/// property of the result.
///
/// # Errors
/// The two lowest bits are 3, which stands for no field order.
pub(super) fn picture_of(
    bits: u64,
    is_damaged: bool,
    record: &'static str,
) -> Result<PictureFlags, WireError> {
    let field_order = match bits & 3 {
        0 => FieldOrder::Progressive,
        1 => FieldOrder::TopFirst,
        2 => FieldOrder::BottomFirst,
        value => return Err(WireError::Field { record, field: "field order", value }),
    };
    Ok(PictureFlags { is_damaged, field_order, orientation: orientation_of(bits >> 2) })
}

/// Returns the number of an orientation: that of EXIF minus one.
pub(super) fn orientation_number(orientation: Orientation) -> u8 {
    orientation as u8 - 1
}

/// Returns the orientation whose number is the low three bits of `bits`.
pub(super) fn orientation_of(bits: u64) -> Orientation {
    Orientation::ALL[bits as usize & 7]
}
