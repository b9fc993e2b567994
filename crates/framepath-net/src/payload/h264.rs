// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloads of H.264.

use std::sync::Arc;

use framepath_model::access_unit::nals;
use framepath_model::frame_number::is_frame_number;
use str0m::unversioned::{H264Packetizer, Packetizer};

use super::LARGEST_PAYLOAD;
use crate::error::WebrtcError;

/// Splits a frame by str0m's packetiser, except for parameter sets: it keeps only the last one of each kind, and a stream may
/// have several.
///
/// # Errors
/// A parameter set is too large, or the packetiser rejects the bytes.
pub(super) fn split(packetizer: &mut H264Packetizer, frame: &[u8]) -> Result<Vec<Arc<[u8]>>, WebrtcError> {
    let is_set = |nal: &&[u8]| matches!(nal.first().map(|first| first & 0x1f), Some(7 | 8));
    let mut payloads = Vec::new();
    // In front of the rest, so that a receiver sees that a keyframe is whole. Each in a packet of its own.
    for set in nals(frame).filter(is_set) {
        if set.len() > LARGEST_PAYLOAD {
            let wrong = format!("a parameter set has {} bytes, at most {LARGEST_PAYLOAD} fit", set.len());
            return Err(WebrtcError::Packetize(wrong));
        }
        payloads.push(Arc::from(set));
    }
    for nal in nals(frame).filter(|nal| !is_set(nal)) {
        let split = packetizer.packetize(LARGEST_PAYLOAD, nal);
        let split = split.map_err(|error| WebrtcError::Packetize(error.to_string()))?;
        payloads.extend(split.into_iter().map(Arc::from));
    }
    Ok(payloads)
}

/// Returns true if a payload begins a frame, as [`super::begins_frame`].
pub(super) fn begins_frame(payload: &[u8], behind_loss: bool) -> bool {
    let begins_unit = |kind: u8, bytes: &[u8]| match kind {
        // The first bit behind the header of a slice is 1 for the first slice of a picture (`first_mb_in_slice` is 0).
        1 => bytes.first().is_some_and(|byte| byte & 0x80 != 0),
        // The sender's frame number is in front of the first slice, and only parameter sets may be in front of it.
        6 => !behind_loss || is_frame_number(bytes),
        // A sequence parameter set, which every keyframe has, or a delimiter.
        7 | 9 => true,
        _ => false,
    };
    match payload {
        // Aggregated units: the first one decides. Two bytes are its size.
        [first, _, _, header, rest @ ..] if first & 0x1f == 24 => begins_unit(header & 0x1f, rest),
        // A fragment of a unit: the first one has the bit S.
        [first, header, rest @ ..] if first & 0x1f == 28 => {
            header & 0x80 != 0 && begins_unit(header & 0x1f, rest)
        }
        [first, rest @ ..] => begins_unit(first & 0x1f, rest),
        [] => false,
    }
}
