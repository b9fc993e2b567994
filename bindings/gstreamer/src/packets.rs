// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source of a path: the packets that GStreamer gives the decoder.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use framepath::{Codec, HopFailure, Item, Out, Packet, Rational, Source, StageError, StreamInfo, TrackInfo};

/// Sending end of a [`PacketSource`]. Dropping it ends the stream.
pub(crate) struct PacketSender {
    sender: Sender<Packet>,
    waiting: Arc<AtomicUsize>,
}

/// Source of the packets that a [`PacketSender`] sends.
pub(crate) struct PacketSource {
    receiver: Receiver<Packet>,
    waiting: Arc<AtomicUsize>,
    track: TrackInfo,
}

/// Makes a source for packets of this codec.
///
/// # Errors
/// libavcodec does not know the codec.
pub(crate) fn packets(
    codec: Codec,
    width: u32,
    height: u32,
) -> Result<(PacketSender, PacketSource), StageError> {
    let unknown = Rational::new(0, 1);
    let stream = StreamInfo {
        format: None,
        width,
        height,
        time_base: Rational::new(1, 1_000_000_000),
        frame_rate: unknown,
        sample_aspect: unknown,
        orientation: Default::default(),
    };
    let track = TrackInfo::from_codec(codec, stream)?;
    let (sender, receiver) = channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    Ok((PacketSender { sender, waiting: waiting.clone() }, PacketSource { receiver, waiting, track }))
}

impl PacketSender {
    /// Returns the number of packets that the decoder has not taken.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Sends a packet. Returns false if the decoder has ended.
    pub(crate) fn send(&self, packet: Packet) -> bool {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.sender.send(packet).is_ok()
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
        // The sender is dropped before the path is stopped.
        let Ok(packet) = self.receiver.recv() else { return Ok(false) };
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        out.push(Item::Packet(packet))?;
        Ok(true)
    }
}
