// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of a path as frames for RTP: with start codes, parameter sets in front of each keyframe, and their numbers.

use framepath_codec::{AnnexB, Codec, Packet, TrackInfo};
use framepath_model::access_unit::{Coding, Sequences};
use framepath_model::frame_number::insert_frame_number;
use framepath_model::path::Hop;
use framepath_model::stream::Rational;
use framepath_os::measure::meter;
use framepath_os::time::now_ns;

use super::rtp_clock::RtpClock;
use crate::element::HopPlace;
use crate::error::StageError;
use crate::source::recv::net_error;

/// Frame for RTP.
pub(super) struct OutgoingFrame {
    pub(super) bytes: Vec<u8>,
    /// Number of the frame.
    pub(super) number: u64,
    /// RTP timestamp, 90 kHz.
    pub(super) time: u32,
}

/// Converter of the packets of one stream.
pub(super) struct OutgoingFrames {
    pub(super) coding: Coding,
    /// True if frames get their number as user data.
    numbers: bool,
    starts: AnnexB,
    sequences: Sequences,
    clock: RtpClock,
    /// True after the first packet, whose number is not 0 if a hop in front has dropped packets.
    pub(super) has_begun: bool,
}

/// Returns the track that the path brings to `send`.
///
/// # Errors
/// The path brings frames, or RTP cannot carry the codec.
pub(super) fn track_of<'a>(place: &'a HopPlace<'_>) -> Result<&'a TrackInfo, StageError> {
    let track = place.track.as_ref().ok_or(StageError::WrongInput {
        takes: "packets of h264, hevc, vp8, vp9 or av1",
        gets: "frames",
        advice: "put it behind `file`, without `decode`",
    })?;
    match track.codec {
        Codec::Other(_) => Err(net_error(framepath_net::WebrtcError::Codec(track.codec.to_string()))),
        _ => Ok(track),
    }
}

impl OutgoingFrames {
    /// Makes the converter of a track for the hop's options.
    pub(super) fn new(hop: &Hop, track: &TrackInfo) -> Result<OutgoingFrames, StageError> {
        Ok(OutgoingFrames {
            coding: track.coding(),
            numbers: hop.flag("numbers"),
            starts: AnnexB::new(track)?,
            sequences: Sequences::new(track.coding()),
            clock: RtpClock::new(Rational::new(0, 1)),
            has_begun: false,
        })
    }

    /// Begins a stream with this time base.
    pub(super) fn start(&mut self, time_base: Rational) {
        self.clock = RtpClock::new(time_base);
    }

    /// Converts a packet.
    ///
    /// # Errors
    /// There is no memory, or the packet is not one of the track's codec.
    pub(super) fn convert(&mut self, packet: Packet) -> Result<OutgoingFrame, StageError> {
        let no_memory = || StageError::Option("no memory for a packet".to_owned());
        let packet = packet.private().ok_or_else(no_memory)?;
        let meta = packet.meta();
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let parts = self.starts.parts(packet.bytes().unwrap_or_default(), is_first)?;
        let size = parts.iter().map(|part| part.len()).sum();
        let mut bytes = meter::copy(size, || parts.concat());
        let mut before = self.sequences.inspect(&bytes).before;
        if !before.is_empty() {
            // The sets are in front of an earlier keyframe, which a new viewer has not seen.
            before.append(&mut bytes);
            bytes = before;
        }
        if self.numbers {
            insert_frame_number(self.coding, &mut bytes, meta.seq);
        }
        let birth_ns = if meta.birth_ns > 0 { meta.birth_ns } else { now_ns() };
        Ok(OutgoingFrame { bytes, number: meta.seq, time: self.clock.timestamp(&meta, birth_ns) })
    }
}
