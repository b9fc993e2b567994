// SPDX-License-Identifier: MIT OR Apache-2.0
//! Palettes of packets, as part of the packet's bytes.
//!
//! libavformat passes a palette beside the packet's bytes (AV_PKT_DATA_PALETTE), often with the
//! first packet only. Only bytes reach a decoder in another process, and that decoder may start at
//! any packet. So the demuxer puts a marker and the palette in front of the bytes of each packet,
//! and the decoder takes both off again. A packet of a file may itself begin with the same marker:
//! the bytes after the marker then become its palette.

use std::ptr;

use ffmpeg_sys_next as ff;
use framepath_model::format::PixelFormat;

use crate::Packet;

/// Marker in front of a palette in the bytes of a packet.
const MARKER: [u8; 16] = *b"framepath\0palett";

/// Number of bytes of a palette.
const BYTES: usize = PixelFormat::PALETTE_BYTES;

/// Returns the marker and then the palette that is beside the packet; `None` if there is no palette
/// of [`BYTES`] bytes.
pub(crate) fn of_packet(packet: &Packet) -> Option<Vec<u8>> {
    let mut size = 0;
    let kind = ff::AVPacketSideDataType::AV_PKT_DATA_PALETTE;
    // SAFETY: a valid packet, whose side data the packet keeps; a result that is not null has `size` bytes.
    let palette = unsafe {
        let data = ff::av_packet_get_side_data(packet.as_ptr(), kind, &mut size);
        if data.is_null() || size != BYTES {
            return None;
        }
        std::slice::from_raw_parts(data, BYTES)
    };
    Some([&MARKER[..], palette].concat())
}

/// Moves the palette that is in front of the packet's bytes, if there is one, back beside them, and
/// removes the marker. Without memory, leaves the packet unchanged: the decoder keeps its palette,
/// and reads marker and palette as picture data.
pub(crate) fn detach(packet: &mut Packet) {
    const FRONT: usize = MARKER.len() + BYTES;
    let (data, len) = packet.data();
    // The first bytes are copied, because another process may be able to change them.
    if len < FRONT || packet.peek(MARKER.len())[..] != MARKER {
        return;
    }
    // SAFETY: a valid packet of at least `FRONT` bytes, which only this call uses; the new side data has the
    // bytes of a palette. The buffer stays, and the packet's bytes begin later in it.
    unsafe {
        let raw = packet.as_ptr();
        let kind = ff::AVPacketSideDataType::AV_PKT_DATA_PALETTE;
        let palette = ff::av_packet_new_side_data(raw, kind, BYTES);
        if palette.is_null() {
            return;
        }
        ptr::copy_nonoverlapping(data.add(MARKER.len()), palette, BYTES);
        (*raw).data = (*raw).data.add(FRONT);
        (*raw).size -= FRONT as std::ffi::c_int;
    }
}

#[cfg(test)]
mod tests {
    use framepath_model::stream::FrameMeta;

    use super::*;

    #[test]
    fn a_palette_is_put_in_front_and_taken_off() {
        let palette: Vec<u8> = (0..BYTES).map(|at| at as u8).collect();
        let plain = Packet::copied(b"pixels", FrameMeta::default(), true).unwrap();
        assert_eq!(of_packet(&plain), None);
        let mut packet = plain.prefixed(&[&MARKER[..], &palette].concat()).unwrap();
        detach(&mut packet);
        assert_eq!(packet.bytes().unwrap(), b"pixels");
        assert_eq!(of_packet(&packet).unwrap()[MARKER.len()..], palette);
        // A packet that is too short for a palette stays as it is.
        let mut short = Packet::copied(&MARKER, FrameMeta::default(), true).unwrap();
        detach(&mut short);
        assert_eq!(short.bytes().unwrap(), MARKER);
    }
}
