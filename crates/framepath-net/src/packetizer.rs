// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packetiser: frames into RTP payloads.
//!
//! H.264 by RFC 6184, packetisation mode 1; VP8 by RFC 7741. str0m's packetisers do the work, except for parameter
//! sets of H.264: str0m keeps only the last one of each kind, and a stream may have several.

use std::sync::Arc;

use framepath_model::access_point::{AccessPoints, RandomAccess};
use framepath_model::access_unit::{Coding, nals};
use framepath_os::measure::meter;
use framepath_os::time::now_ns;
use str0m::unversioned::{H264Packetizer, Packetizer as PacketizePayload, Vp8Packetizer};

use crate::error::WebrtcError;

/// Largest RTP payload, bytes. With the headers of RTP and its extensions, SRTP, UDP and IPv6, a datagram stays below
/// 1,280 bytes, which every IPv6 network carries.
pub(crate) const LARGEST_PAYLOAD: usize = 1120;

/// Frame as RTP payloads, which all viewers share.
#[derive(Debug)]
pub struct PacketizedFrame {
    /// RTP timestamp, 90 kHz.
    pub time: u32,
    /// True if decoding can start here.
    pub key: bool,
    /// RTP payloads, in order. The last one gets the marker bit.
    pub payloads: Vec<Arc<[u8]>>,
    /// Sum of the payloads' sizes, bytes.
    pub bytes: usize,
    /// CLOCK_MONOTONIC time of the end of packetising, nanoseconds.
    pub packetized_ns: u64,
}

/// Packetiser for the frames of one stream.
#[derive(Debug)]
pub struct Packetizer {
    coding: Coding,
    payloads: Box<dyn PacketizePayload + Send>,
    points: AccessPoints,
}

impl Packetizer {
    /// Makes the packetiser.
    ///
    /// # Errors
    /// WebRTC cannot carry the codec.
    pub fn new(coding: Coding) -> Result<Packetizer, WebrtcError> {
        let payloads: Box<dyn PacketizePayload + Send> = match coding {
            Coding::H264 => Box::<H264Packetizer>::default(),
            Coding::Vp8 => Box::<Vp8Packetizer>::default(),
            other => return Err(WebrtcError::Codec(format!("{other:?}").to_lowercase())),
        };
        Ok(Packetizer { coding, payloads, points: AccessPoints::new(coding, &[]) })
    }

    /// Splits the frame `bytes` with the RTP timestamp `time`. H.264 has start codes. The meter counts the copy.
    ///
    /// # Errors
    /// The packetiser rejects the bytes.
    pub fn packetize(&mut self, bytes: &[u8], time: u32) -> Result<PacketizedFrame, WebrtcError> {
        let key = self.points.inspect(bytes, true, true) == Some(RandomAccess::Point);
        let rejected = |error: &dyn std::fmt::Display| WebrtcError::Packetize(error.to_string());
        let payloads = meter::copy(bytes.len(), || -> Result<Vec<Arc<[u8]>>, WebrtcError> {
            let mut payloads = Vec::new();
            if self.coding != Coding::H264 {
                let split =
                    self.payloads.packetize(LARGEST_PAYLOAD, bytes).map_err(|error| rejected(&error))?;
                payloads.extend(split.into_iter().map(Arc::from));
                return Ok(payloads);
            }
            let is_set = |nal: &&[u8]| matches!(nal.first().map(|first| first & 0x1f), Some(7 | 8));
            // In front of the rest, so that a receiver sees that a keyframe is whole. Each in a packet of its own.
            for set in nals(bytes).filter(is_set) {
                if set.len() > LARGEST_PAYLOAD {
                    let wrong =
                        format!("a parameter set has {} bytes, at most {LARGEST_PAYLOAD} fit", set.len());
                    return Err(WebrtcError::Packetize(wrong));
                }
                payloads.push(Arc::from(set));
            }
            for nal in nals(bytes).filter(|nal| !is_set(nal)) {
                let split =
                    self.payloads.packetize(LARGEST_PAYLOAD, nal).map_err(|error| rejected(&error))?;
                payloads.extend(split.into_iter().map(Arc::from));
            }
            Ok(payloads)
        })?;
        let bytes = payloads.iter().map(|payload| payload.len()).sum();
        Ok(PacketizedFrame { time, key, payloads, bytes, packetized_ns: now_ns() })
    }
}
