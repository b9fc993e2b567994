// SPDX-License-Identifier: MIT OR Apache-2.0
//! What passes from hop to hop.

use framepath_codec::Packet;
use framepath_model::stream::FrameMeta;
use framepath_os::pool::Frame;

/// A frame or a packet.
#[derive(Debug)]
pub enum Item {
    /// Pixels in pool memory.
    Frame(Frame),
    /// Compressed bytes.
    Packet(Packet),
}

impl Item {
    /// Number, birth and presentation time.
    #[inline]
    pub fn meta(&self) -> FrameMeta {
        match self {
            Item::Frame(frame) => frame.meta(),
            Item::Packet(packet) => packet.meta(),
        }
    }
}
