// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTP payloads by codec: how frames are split into payloads and joined again, and which payloads begin a frame.
//!
//! H.264 by RFC 6184, packetisation mode 1; HEVC by RFC 7798, without decoding order numbers; VP8 by RFC 7741; VP9 by
//! RFC 9628, one spatial layer; AV1 by the specification of the Alliance for Open Media. str0m does H.264 and VP8; its
//! code for the other codecs is private.

mod av1;
mod h264;
mod hevc;
mod vp9;

use std::sync::Arc;

use framepath_model::access_unit::{Coding, nals};
use str0m::format::CodecExtra;
use str0m::unversioned::{
    Depacketizer, H264Depacketizer, H264Packetizer, Packetizer, Vp8Depacketizer, Vp8Packetizer,
};

use crate::error::WebrtcError;

/// Largest RTP payload, bytes. With the headers of RTP and its extensions, SRTP, UDP and IPv6, a datagram stays below
/// 1,280 bytes, which every IPv6 network carries.
pub(crate) const LARGEST_PAYLOAD: usize = 1120;

/// Codecs that WebRTC carries, which a viewer offers all.
pub(crate) const CODINGS: [Coding; 5] = [Coding::H264, Coding::Vp8, Coding::Hevc, Coding::Vp9, Coding::Av1];

/// Their names in messages.
pub(crate) const SUPPORTED: &str = "h264, hevc, vp8, vp9, av1";

/// Splitter of the frames of one stream.
#[derive(Debug)]
pub(crate) enum PayloadSplitter {
    H264(H264Packetizer),
    Hevc,
    Vp8(Vp8Packetizer),
    Vp9(vp9::Vp9Splitter),
    Av1,
}

impl PayloadSplitter {
    /// Makes the splitter.
    ///
    /// # Errors
    /// WebRTC cannot carry the codec.
    pub(crate) fn new(coding: Coding) -> Result<PayloadSplitter, WebrtcError> {
        Ok(match coding {
            Coding::H264 => PayloadSplitter::H264(H264Packetizer::default()),
            Coding::Hevc => PayloadSplitter::Hevc,
            Coding::Vp8 => PayloadSplitter::Vp8(Vp8Packetizer::default()),
            Coding::Vp9 => PayloadSplitter::Vp9(vp9::Vp9Splitter::default()),
            Coding::Av1 => PayloadSplitter::Av1,
            other => return Err(unsupported(other)),
        })
    }

    /// Splits `frame`; `key` is true if decoding can start at it. H.264 and HEVC have start codes.
    ///
    /// # Errors
    /// The frame's bytes are not those of the codec.
    pub(crate) fn split(&mut self, frame: &[u8], key: bool) -> Result<Vec<Arc<[u8]>>, WebrtcError> {
        match self {
            PayloadSplitter::H264(packetizer) => h264::split(packetizer, frame),
            PayloadSplitter::Hevc => hevc::split(frame),
            PayloadSplitter::Vp8(packetizer) => {
                let split = packetizer.packetize(LARGEST_PAYLOAD, frame);
                let split = split.map_err(|error| WebrtcError::Packetize(error.to_string()))?;
                Ok(split.into_iter().map(Arc::from).collect())
            }
            PayloadSplitter::Vp9(splitter) => Ok(splitter.split(frame, key)),
            PayloadSplitter::Av1 => av1::split(frame, key),
        }
    }
}

/// Joiner of the payloads of one frame, which are pushed in order.
pub(crate) trait PayloadJoiner: Send {
    /// Adds a payload's part to the frame. Returns `None` if the payload is not valid at this place; nothing may be pushed
    /// afterwards.
    fn push(&mut self, payload: &[u8], frame: &mut Vec<u8>) -> Option<()>;

    /// Returns true if the frame may end behind the last payload.
    fn is_complete(&self) -> bool;
}

/// str0m's depacketizer as a joiner.
struct Str0mJoiner<T>(T);

impl<T: Depacketizer + Send> PayloadJoiner for Str0mJoiner<T> {
    fn push(&mut self, payload: &[u8], frame: &mut Vec<u8>) -> Option<()> {
        self.0.depacketize(payload, frame, &mut CodecExtra::None).ok()
    }

    fn is_complete(&self) -> bool {
        true
    }
}

/// Returns the function that makes the joiner of a frame.
///
/// # Errors
/// WebRTC cannot carry the codec.
pub(crate) fn joiners(coding: Coding) -> Result<fn() -> Box<dyn PayloadJoiner>, WebrtcError> {
    Ok(match coding {
        Coding::H264 => || Box::new(Str0mJoiner(H264Depacketizer::default())),
        Coding::Hevc => || Box::<hevc::HevcJoiner>::default(),
        Coding::Vp8 => || Box::new(Str0mJoiner(Vp8Depacketizer::default())),
        Coding::Vp9 => || Box::<vp9::Vp9Joiner>::default(),
        Coding::Av1 => || Box::<av1::Av1Joiner>::default(),
        other => return Err(unsupported(other)),
    })
}

/// Returns true if a payload begins a frame, by the payload alone. `behind_loss` is true if packets in front of it were
/// lost: then it is false in doubt, because parameter sets may be among them.
pub(crate) fn begins_frame(coding: Coding, payload: &[u8], behind_loss: bool) -> bool {
    match coding {
        Coding::H264 => h264::begins_frame(payload, behind_loss),
        Coding::Hevc => hevc::begins_frame(payload, behind_loss),
        Coding::Vp9 => vp9::begins_frame(payload),
        Coding::Av1 => av1::begins_frame(payload, behind_loss),
        // VP8's bit S with partition 0.
        _ => payload.first().is_some_and(|first| first & 0x17 == 0x10),
    }
}

/// Returns true if a frame has all parameter sets that a decoder needs at its start.
pub(crate) fn has_parameter_sets(coding: Coding, frame: &[u8]) -> bool {
    match coding {
        Coding::H264 => nals(frame).any(|nal| nal[0] & 0x1f == 7),
        Coding::Hevc => hevc::has_parameter_sets(frame),
        Coding::Av1 => av1::has_sequence_header(frame),
        _ => true,
    }
}

/// Makes the error for a codec that WebRTC cannot carry.
fn unsupported(coding: Coding) -> WebrtcError {
    WebrtcError::Codec(coding.to_string())
}
