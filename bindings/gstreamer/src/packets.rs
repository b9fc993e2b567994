// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source of a path: the packets that GStreamer gives the decoder.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use framepath::{
    Codec, FramesWaker, HopFailure, Item, Out, Packet, Rational, Source, StageError, StreamInfo, TrackInfo,
};

/// Sending end of a [`PacketSource`]. Dropping it ends the stream.
pub(crate) struct PacketSender {
    sender: Sender<Packet>,
    state: Arc<WaitingPackets>,
}

/// Source of the packets that a [`PacketSender`] sends.
pub(crate) struct PacketSource {
    receiver: Receiver<Packet>,
    state: Arc<WaitingPackets>,
    track: TrackInfo,
}

/// Packets that the decoder has not taken.
#[derive(Default)]
struct WaitingPackets {
    count: AtomicUsize,
    /// Number of packets below which the thread that waits for frames is woken.
    waker: OnceLock<(usize, FramesWaker)>,
}

/// Makes a source for packets of this codec; `size` is 0 if it is not known.
///
/// # Errors
/// libavcodec does not know the codec.
pub(crate) fn packets(
    codec: Codec,
    (width, height): (u32, u32),
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
    let state = Arc::<WaitingPackets>::default();
    Ok((PacketSender { sender, state: state.clone() }, PacketSource { receiver, state, track }))
}

impl PacketSender {
    /// Returns the number of packets that the decoder has not taken.
    pub(crate) fn waiting(&self) -> usize {
        self.state.count.load(Ordering::Acquire)
    }

    /// Has `waker` called whenever the number of waiting packets becomes smaller than `count`. Call it before the first packet.
    pub(crate) fn wake_when_below(&mut self, count: usize, waker: FramesWaker) {
        // It is set once.
        let _ = self.state.waker.set((count, waker));
    }

    /// Sends a packet. Returns false if the decoder has ended.
    pub(crate) fn send(&self, packet: Packet) -> bool {
        self.state.count.fetch_add(1, Ordering::AcqRel);
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
        let before = self.state.count.fetch_sub(1, Ordering::AcqRel);
        match self.state.waker.get() {
            Some((count, waker)) if before == *count => waker.wake(),
            _ => {}
        }
        out.push(Item::Packet(packet))?;
        Ok(true)
    }
}
