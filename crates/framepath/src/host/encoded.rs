// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of an encoder in a worker, as the process that runs the path receives them.
//!
//! The worker names the bytes of a packet in one cell, and the frame in the next cell. The bytes are copied at
//! once: the hops behind read them, and the worker never waits for these hops to get its memory back. A packet has
//! the metadata of its frame, which this process knows, and the worker can only set its key flag.

use std::collections::VecDeque;
use std::sync::Arc;

use framepath_codec::{Codec, Packet, TrackInfo};
use framepath_model::format::Layout;
use framepath_model::stream::{FrameMeta, StreamInfo};
use framepath_model::wire::EncodedPart;
use framepath_os::crossing::{Breach, PooledPackets};
use framepath_os::measure::meter;

use super::HostError;

/// Maximum size of the description of a track that an encoder's worker sends, bytes.
const MOST_TRACK_BYTES: u32 = 64 << 10;

/// Maximum number of frames that an encoder in a worker may keep; a further one removes the oldest. More than any
/// encoder without lookahead keeps.
const MOST_KEPT: usize = 256;

/// Frames whose packets an encoder will output later: their numbers and layouts, in the order of the frames. The
/// encoder has copied their pixels, and this process no longer has them.
#[derive(Debug, Default)]
pub(super) struct KeptFrames(VecDeque<(u64, Layout)>);

/// Receiver of the packets of one worker.
pub(super) struct EncodedReceiver {
    packets: Arc<PooledPackets>,
    codec: Codec,
    /// Description of the frames in front of the encoder.
    stream: StreamInfo,
    /// Description of the track from the next packet on, as the worker sent it.
    track: Option<Vec<u8>>,
    /// Packet whose frame the next cell names.
    packet: Option<Packet>,
    /// True until the first packet.
    is_first: bool,
}

/// Packet of an encoder, before its frame is known.
pub(super) struct EncodedPacket {
    packet: Packet,
    track: Option<Vec<u8>>,
    codec: Codec,
    stream: StreamInfo,
}

impl KeptFrames {
    /// Adds frame `seq`.
    pub(super) fn keep(&mut self, seq: u64, layout: Layout) {
        if self.0.len() == MOST_KEPT {
            self.0.pop_front();
        }
        self.0.push_back((seq, layout));
    }

    /// Removes frame `seq`, whose packet has arrived, and returns its layout; `None` if it is not kept. Removes the
    /// earlier frames, too: packets come in the order of the frames, so the encoder has dropped them.
    pub(super) fn take(&mut self, seq: u64) -> Option<Layout> {
        while self.0.front().is_some_and(|(first, _)| *first < seq) {
            self.0.pop_front();
        }
        let (_, layout) = self.0.front().filter(|(first, _)| *first == seq)?;
        let layout = *layout;
        self.0.pop_front();
        Some(layout)
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Returns the number of the first frame; `None` if there is none.
    pub(super) fn first(&self) -> Option<u64> {
        self.0.front().map(|(seq, _)| *seq)
    }
}

impl EncodedReceiver {
    /// Makes the receiver for a worker that encodes frames of `stream` with `codec` and writes `packets`.
    pub(super) fn new(packets: Arc<PooledPackets>, codec: Codec, stream: StreamInfo) -> EncodedReceiver {
        EncodedReceiver { packets, codec, stream, track: None, packet: None, is_first: true }
    }

    /// True if the worker has to complete a packet in its next cell.
    pub(super) fn is_expecting(&self) -> bool {
        self.track.is_some() || self.packet.is_some()
    }

    /// Takes `len` bytes at `offset`, and returns their memory to the worker, under the number `id`.
    ///
    /// # Errors
    /// The bytes are outside the memory, there are none or too many, they are out of order, or this process has no
    /// memory for a copy.
    pub(super) fn part(
        &mut self,
        part: EncodedPart,
        (offset, len, id): (u64, u32, u32),
    ) -> Result<(), HostError> {
        let bytes = self.packets.packet(offset, len, id)?;
        if len == 0 {
            return Err(Breach("a packet of an encoder without bytes").into());
        }
        if self.packet.is_some() {
            return Err(Breach("a packet of an encoder without its frame").into());
        }
        if part == EncodedPart::Track && (self.track.is_some() || len > MOST_TRACK_BYTES) {
            return Err(Breach("two descriptions of a track in a row, or too large a one").into());
        }
        let no_memory = || HostError::Failed { text: "no memory for a packet".to_owned() };
        let is_key = part == EncodedPart::KeyPacket;
        let packet = Packet::shared(bytes, FrameMeta::default(), is_key).ok_or_else(no_memory)?;
        if part == EncodedPart::Track {
            self.track = Some(packet.peek(len as usize).into_owned());
            return Ok(());
        }
        // The worker's own copy, and the one of this process.
        meter::count_copied(len as usize);
        self.packet = Some(packet.private().ok_or_else(no_memory)?);
        Ok(())
    }

    /// Returns the packet of the last part, because a cell with the number of its frame has arrived.
    ///
    /// # Errors
    /// There is no packet; or the first packet of the worker has no description of the track, or is no random access
    /// point, so that the stream could not go on behind the packets of an earlier worker.
    pub(super) fn take(&mut self) -> Result<EncodedPacket, Breach> {
        let packet = self.packet.take().ok_or(Breach("a packet of an encoder without bytes"))?;
        let track = self.track.take();
        if std::mem::take(&mut self.is_first) && (track.is_none() || !packet.is_key()) {
            return Err(Breach(
                "the first packet of an encoder without its track, or no random access point",
            ));
        }
        Ok(EncodedPacket { packet, track, codec: self.codec, stream: self.stream })
    }
}

impl EncodedPacket {
    /// Returns the packet of a frame with `meta` and `layout`.
    ///
    /// # Errors
    /// The description of the track is not that of such a frame.
    pub(super) fn into_packet(self, meta: FrameMeta, layout: &Layout) -> Result<Packet, Breach> {
        let EncodedPacket { mut packet, track, codec, stream } = self;
        // Damage is a property of the frame.
        *packet.meta_mut() = FrameMeta { is_damaged: false, ..meta };
        if let Some(bytes) = track {
            let track = TrackInfo::from_encoder(&bytes, codec, layout, &stream);
            packet.set_track(track.map_err(|_| Breach("a description of another track than the encoder's"))?);
        }
        Ok(packet)
    }
}

#[cfg(test)]
mod tests {
    use framepath_model::format::PixelFormat;
    use framepath_model::stream::Rational;
    use framepath_os::crossing::{PacketPool, Placed, SharedArea, Sizes};

    use super::*;

    const KEY: EncodedPart = EncodedPart::KeyPacket;

    /// Writing end of a worker, and the receiver of its packets.
    struct Ends {
        pool: PacketPool,
        receiver: EncodedReceiver,
    }

    fn layout() -> Layout {
        Layout::packed(PixelFormat::Yuv420p, 64, 48).unwrap()
    }

    fn stream() -> StreamInfo {
        StreamInfo::from_layout(&layout(), Rational::new(25, 1))
    }

    fn track(codec: Codec) -> Vec<u8> {
        TrackInfo::from_codec(codec, stream()).unwrap().to_bytes()
    }

    fn ends() -> Ends {
        let area = Arc::new(SharedArea::new(Sizes { cells: 2, packet_bytes: 1 << 20 }).unwrap());
        let pool = PacketPool::new(area.clone(), &[]).unwrap();
        Ends { pool, receiver: EncodedReceiver::new(PooledPackets::new(area), Codec::H264, stream()) }
    }

    impl Ends {
        fn send(&mut self, part: EncodedPart, bytes: &[u8]) -> Result<(), HostError> {
            let Placed { offset, id, .. } = self.pool.push(bytes).unwrap().unwrap();
            self.receiver.part(part, (offset, bytes.len() as u32, id))
        }

        /// Sends a first packet of an honest worker.
        fn first(&mut self) {
            self.send(EncodedPart::Track, &track(Codec::H264)).unwrap();
            self.send(KEY, b"first").unwrap();
            self.receiver.take().unwrap();
        }
    }

    fn is_breach<T>(result: Result<T, impl Into<HostError>>) -> bool {
        matches!(result.map_err(Into::into), Err(HostError::Breach(_)))
    }

    #[test]
    fn a_packet_has_the_bytes_of_the_worker_and_the_metadata_of_the_frame() {
        let mut ends = ends();
        ends.send(EncodedPart::Track, &track(Codec::H264)).unwrap();
        assert!(ends.receiver.is_expecting());
        ends.send(KEY, b"bytes").unwrap();
        let encoded = ends.receiver.take().unwrap();
        assert!(!ends.receiver.is_expecting());
        let meta = FrameMeta { seq: 7, pts: Some(70), duration: 3, is_damaged: true, ..FrameMeta::default() };
        let packet = encoded.into_packet(meta, &layout()).unwrap();
        assert_eq!(packet.meta(), FrameMeta { is_damaged: false, ..meta });
        assert_eq!((packet.bytes(), packet.is_key()), (Some(&b"bytes"[..]), true));
        assert_eq!(packet.track().unwrap().stream.width, 64);
        // All memory is free again, so packets without end fit.
        for _ in 0..10_000 {
            ends.send(EncodedPart::Packet, &[7; 1000]).unwrap();
            assert!(!ends.receiver.take().unwrap().packet.is_key());
        }
    }

    #[test]
    fn kept_frames_have_packets_in_their_order() {
        let mut kept = KeptFrames::default();
        (0..5).for_each(|seq| kept.keep(2 * seq, layout()));
        assert_eq!(kept.take(0), Some(layout()));
        // The encoder has dropped frame 2.
        assert_eq!(
            (kept.take(4), kept.take(2), kept.take(4), kept.take(5)),
            (Some(layout()), None, None, None)
        );
        assert_eq!((kept.count(), kept.first()), (2, Some(6)));
        (0..1000).for_each(|seq| kept.keep(10 + seq, layout()));
        assert_eq!((kept.count(), kept.first()), (MOST_KEPT as u64, Some(1010 - MOST_KEPT as u64)));
    }

    #[test]
    fn bytes_outside_the_memory_are_refused() {
        let mut ends = ends();
        for place in [(1 << 20, 1, 0), (0, 1 << 20, 0), (u64::MAX, u32::MAX, 0), (0, 1, u32::MAX), (0, 0, 0)]
        {
            for part in [EncodedPart::Track, EncodedPart::Packet, KEY] {
                assert!(is_breach(ends.receiver.part(part, place)), "{part:?} {place:?}");
            }
        }
        assert!(!ends.receiver.is_expecting());
    }

    #[test]
    fn the_first_packet_is_a_keyframe_with_its_track() {
        let mut without_track = ends();
        without_track.send(KEY, b"x").unwrap();
        assert!(is_breach(without_track.receiver.take()));
        let mut no_key = ends();
        no_key.send(EncodedPart::Track, &track(Codec::H264)).unwrap();
        no_key.send(EncodedPart::Packet, b"x").unwrap();
        assert!(is_breach(no_key.receiver.take()));
    }

    #[test]
    fn parts_out_of_order_are_refused() {
        let mut ends = ends();
        assert!(is_breach(ends.receiver.take()), "no packet");
        ends.first();
        assert!(is_breach(ends.receiver.take()), "no second packet");
        ends.send(KEY, b"x").unwrap();
        assert!(is_breach(ends.send(KEY, b"x")), "two packets for one frame");
        assert!(is_breach(ends.send(EncodedPart::Track, b"x")), "a track between a packet and its frame");
        ends.receiver.take().unwrap();
        ends.send(EncodedPart::Track, b"x").unwrap();
        assert!(is_breach(ends.send(EncodedPart::Track, b"x")), "two tracks");
    }

    #[test]
    fn a_track_of_another_codec_or_size_is_refused() {
        let wider = Layout::packed(PixelFormat::Yuv420p, 66, 48).unwrap();
        for (bytes, layout) in [
            (track(Codec::Vp9), layout()),
            (track(Codec::H264), wider),
            (b"nonsense".to_vec(), layout()),
            (vec![0xff; 4096], layout()),
        ] {
            let mut ends = ends();
            ends.send(EncodedPart::Track, &bytes).unwrap();
            ends.send(KEY, b"x").unwrap();
            let encoded = ends.receiver.take().unwrap();
            assert!(encoded.into_packet(FrameMeta::default(), &layout).is_err());
        }
        let mut ends = ends();
        assert!(is_breach(ends.send(EncodedPart::Track, &vec![0; MOST_TRACK_BYTES as usize + 1])));
    }
}
