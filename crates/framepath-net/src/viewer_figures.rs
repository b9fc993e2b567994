// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of one viewer of a sender.

use std::net::IpAddr;
use std::time::Instant;

/// Figures of one viewer that watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewerFigures {
    /// Number of the viewer, from 1, in the order of the offers. A viewer that comes back has a new one.
    pub number: u64,
    /// Address from which the offer came.
    pub address: IpAddr,
    /// Time at which the viewer connected.
    pub since: Instant,
    /// Number of frames that were sent.
    pub sent: u64,
    /// Number of frames that were dropped after the first, because the network is slower than the stream.
    pub dropped: u64,
    /// Number of requests of the viewer for packets that it has missed.
    pub missed: u64,
    /// Number of payload bytes that were sent.
    pub bytes: u64,
    /// Number of keyframes that the viewer has asked for.
    pub keyframe_requests: u64,
}
