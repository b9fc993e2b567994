// SPDX-License-Identifier: MIT OR Apache-2.0
//! Number of a frame in the header of its first RTP packet.

use str0m::rtp::{Extension, ExtensionSerializer, ExtensionValues};

/// Name of the RTP header extension in session descriptions.
const URI: &str = "urn:framepath:frame-number";

/// Number of a frame at the sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameNumber(pub(crate) u64);

/// Form of the number: eight bytes, the most significant one first.
#[derive(Debug)]
struct FrameNumberSerializer;

/// Returns the RTP header extension.
pub(crate) fn frame_number_extension() -> Extension {
    Extension::with_serializer(URI, FrameNumberSerializer)
}

impl ExtensionSerializer for FrameNumberSerializer {
    fn write_to(&self, buffer: &mut [u8], values: &ExtensionValues) -> usize {
        let number = values.user_values.get::<FrameNumber>().map(|FrameNumber(number)| number.to_be_bytes());
        match (number, buffer.first_chunk_mut()) {
            (Some(number), Some(place)) => {
                *place = number;
                number.len()
            }
            _ => 0,
        }
    }

    fn parse_value(&self, bytes: &[u8], values: &mut ExtensionValues) -> bool {
        let number = bytes.try_into().map(u64::from_be_bytes);
        number.is_ok_and(|number| {
            values.user_values.set(FrameNumber(number));
            true
        })
    }

    fn is_video(&self) -> bool {
        true
    }

    fn is_audio(&self) -> bool {
        false
    }
}
