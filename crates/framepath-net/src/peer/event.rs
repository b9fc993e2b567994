// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of a session.

use std::sync::Arc;

use crate::bandwidth::NetworkSample;
use crate::ledger_channel::LedgerStream;
use crate::sent_frame::SentPacket;

/// Event of a session.
pub(crate) enum PeerEvent {
    /// Both ends have authenticated each other by DTLS.
    Connected,
    /// The other end has left.
    Closed,
    /// The viewer asks for a keyframe.
    KeyframeRequest,
    /// An RTP packet of the video was handed to the kernel for the first time.
    Sent(SentPacket),
    /// A data channel for the ledger is open.
    LedgerOpen(LedgerStream),
    /// A message about the ledger arrived.
    LedgerMessage(Vec<u8>),
    /// Measurement of the network; `None` if the viewer does not report arrivals.
    Network(Option<NetworkSample>),
    /// Number of requests of the viewer so far for packets that it has missed.
    Missed(u64),
    /// An RTP packet of the video arrived.
    Packet {
        /// Sequence number, extended so that it never wraps.
        seq: u64,
        /// RTP timestamp, 90 kHz, extended so that it never wraps.
        time: u64,
        marker: bool,
        /// Number of the frame at the sender; `None` if the packet has none.
        number: Option<u64>,
        payload: Arc<[u8]>,
    },
}
