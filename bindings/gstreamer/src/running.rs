// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoder that runs: packets go in, frames come out.

use framepath::{Codec, Frame, Frames, Level, NextFrame, Options, Packet, Pipeline};

use crate::packets::{PacketSender, packets};

/// Packets that wait for the decoder before GStreamer has to wait.
const MOST_WAITING: usize = 8;

/// Path of framepath with a sandboxed decoder, its first end and its last one. Dropping it ends its processes.
pub(crate) struct RunningDecoder {
    // Dropped first: the path ends when its source has no sender.
    packets: PacketSender,
    frames: Frames,
}

/// Reason for which no further frame is passed on.
pub(crate) enum DecodeEnd {
    /// The elements behind take no frame.
    Flow(gst::FlowError),
    /// The decoder has failed, with this text.
    Failed(String),
}

impl RunningDecoder {
    /// Starts a decoder with these options of the stage `decode`; `size` is 0 if it is not known.
    ///
    /// # Errors
    /// Text of the reason.
    pub(crate) fn start(codec: Codec, size: (u32, u32), options: &str) -> Result<RunningDecoder, String> {
        let (mut packets, source) = packets(codec, size).map_err(|error| error.to_string())?;
        let pipeline = Pipeline::from_source(source).append(&format!("decode host=process {options}"));
        let options = Options { level: Level::Off, ..Options::default() };
        let frames = pipeline.and_then(|pipeline| pipeline.frames_with(options));
        let frames = frames.map_err(|error| error.to_string())?;
        packets.wake_when_below(MOST_WAITING, frames.waker());
        Ok(RunningDecoder { packets, frames })
    }

    /// Decodes a packet: returns when the decoder can take another one, and passes on the frames that are ready until then.
    ///
    /// # Errors
    /// See [`DecodeEnd`].
    pub(crate) fn decode(
        &mut self,
        packet: Packet,
        pass: impl FnMut(Frame) -> Result<(), gst::FlowError>,
    ) -> Result<(), DecodeEnd> {
        let packets = &self.packets;
        // A decoder that takes no packet has failed, and says why at its end.
        match packets.send(packet) {
            true => pass_on(&mut self.frames, || packets.waiting() < MOST_WAITING, pass),
            false => pass_on(&mut self.frames, || false, pass),
        }
    }

    /// Passes on the frames of all packets so far, and ends the decoder.
    ///
    /// # Errors
    /// See [`DecodeEnd`].
    pub(crate) fn drain(
        self,
        pass: impl FnMut(Frame) -> Result<(), gst::FlowError>,
    ) -> Result<(), DecodeEnd> {
        let RunningDecoder { packets, mut frames } = self;
        drop(packets);
        pass_on(&mut frames, || false, pass)
    }
}

/// Passes frames on up to the end, or until none is there and `is_enough` returns true.
fn pass_on(
    frames: &mut Frames,
    is_enough: impl Fn() -> bool,
    mut pass: impl FnMut(Frame) -> Result<(), gst::FlowError>,
) -> Result<(), DecodeEnd> {
    loop {
        match frames.next_unless(&is_enough) {
            NextFrame::Frame(Ok(frame)) => pass(frame).map_err(DecodeEnd::Flow)?,
            NextFrame::Frame(Err(error)) => return Err(DecodeEnd::Failed(error.to_string())),
            NextFrame::News | NextFrame::End => return Ok(()),
        }
    }
}
