// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packetiser: frames into RTP payloads.

use std::sync::Arc;

use framepath_model::access_point::{AccessPoints, RandomAccess};
use framepath_model::access_unit::Coding;
use framepath_os::measure::meter;
use framepath_os::time::now_ns;

use crate::error::WebrtcError;
use crate::payload::PayloadSplitter;

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
    splitter: PayloadSplitter,
    points: AccessPoints,
}

impl Packetizer {
    /// Makes the packetiser.
    ///
    /// # Errors
    /// WebRTC cannot carry the codec.
    pub fn new(coding: Coding) -> Result<Packetizer, WebrtcError> {
        Ok(Packetizer { splitter: PayloadSplitter::new(coding)?, points: AccessPoints::new(coding, &[]) })
    }

    /// Splits the frame `bytes` with the RTP timestamp `time`. H.264 and HEVC have start codes. The meter counts the copy.
    ///
    /// # Errors
    /// The packetiser rejects the bytes.
    pub fn packetize(&mut self, bytes: &[u8], time: u32) -> Result<PacketizedFrame, WebrtcError> {
        let key = self.points.inspect(bytes, true, true) == Some(RandomAccess::Point);
        let payloads = meter::copy(bytes.len(), || self.splitter.split(bytes, key))?;
        let bytes = payloads.iter().map(|payload| payload.len()).sum();
        Ok(PacketizedFrame { time, key, payloads, bytes, packetized_ns: now_ns() })
    }
}
