// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source of a path: the packets that GStreamer gives the decoder.

use std::sync::Arc;

use framepath::{Codec, HopFailure, Item, Out, Rational, Source, StageError, StreamInfo, TrackInfo};

use crate::format::NANOSECONDS;
use crate::handover::{LOOK, Taken};
use crate::running::Packets;

/// Source of packets.
pub(crate) struct PacketSource {
    packets: Arc<Packets>,
    track: TrackInfo,
}

impl PacketSource {
    /// Makes a source for packets of this codec; `size` is 0 if it is not known.
    ///
    /// # Errors
    /// libavcodec does not know the codec.
    pub(crate) fn new(
        packets: Arc<Packets>,
        codec: Codec,
        (width, height): (u32, u32),
    ) -> Result<PacketSource, StageError> {
        let unknown = Rational::new(0, 1);
        let stream = StreamInfo {
            format: None,
            width,
            height,
            time_base: NANOSECONDS,
            frame_rate: unknown,
            sample_aspect: unknown,
            orientation: Default::default(),
        };
        Ok(PacketSource { packets, track: TrackInfo::from_codec(codec, stream)? })
    }
}

impl Source for PacketSource {
    fn name(&self) -> &str {
        "gstreamer"
    }

    fn info(&self) -> StreamInfo {
        self.track.stream
    }

    fn track_info(&self) -> Option<TrackInfo> {
        Some(self.track.clone())
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        match self.packets.take(LOOK) {
            Taken::Value(packet) => out.push(Item::Packet(packet))?,
            Taken::Nothing => {}
            Taken::AtEnd => return Ok(false),
        }
        Ok(true)
    }
}
