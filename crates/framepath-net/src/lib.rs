// SPDX-License-Identifier: MIT OR Apache-2.0
//! Video over WebRTC: encoded frames from one process to others, encrypted by DTLS and SRTP.
//!
//! This crate touches sockets: TCP for HTTP, UDP for the video. It starts threads.
//!
//! A [`WhepSender`] is a WHEP server (WebRTC-HTTP Egress Protocol): a viewer posts an offer with a token, and gets
//! an answer. A [`WhepReceiver`] is a WHEP client. The crate `str0m` implements SDP, ICE, DTLS, SRTP and RTCP, without
//! sockets and clocks; `hyper` implements HTTP. This crate packetises frames, paces the packets, reassembles
//! frames, and keeps them for moments if the network delivers them unevenly. A frame with a lost packet is never
//! handed on, and neither are the frames that depend on it.
//!
//! Both ends have to reach each other directly: there is no STUN, TURN or other relay.
#![forbid(unsafe_code)]

mod bandwidth;
mod clock;
mod congestion;
mod datagram_batch;
mod dtls_record;
mod error;
mod frame_number;
mod http_io;
mod https;
mod ice_fragment;
mod ice_patch;
mod jitter;
mod ledger_channel;
mod ledger_exchange;
mod ledger_message;
mod lock;
mod media_socket;
mod missing_requests;
mod opened_session;
mod pacer;
mod packetizer;
mod page;
mod pairing;
mod payload;
mod peer;
mod publication;
mod random;
mod reachable;
mod reassembly;
mod receiver;
mod rtcp;
mod rtp_header;
mod rtp_sender;
mod rtp_time;
mod sender;
mod sender_control;
mod sender_metrics;
mod sender_sessions;
mod sender_shared;
mod sent_frame;
mod server_session;
mod srtp;
mod viewer;
mod viewer_figures;
mod wake_event;
mod whep_client;
mod whep_names;
mod whep_server;
mod wrong_tokens;

pub use clock::{ClockEstimator, ConvertedTime, PingStamps};
pub use congestion::SenderRequest;
pub use error::WebrtcError;
pub use jitter::{JitterBuffer, JitterDepth};
pub use ledger_exchange::{LedgerExchange, RemoteFrame, RemoteLedger};
pub use ledger_message::{FrameRows, RemoteHop, RemotePath, ledger_rows};
pub use packetizer::{PacketizedFrame, Packetizer};
pub use pairing::{PairingCode, PairingError};
pub use publication::PublishOptions;
pub use reassembly::{ReassembledFrame, Reassembly, ReassemblyCounts, RtpArrival};
pub use receiver::{ReceivedFrame, ReceivedItem, ReceiverOptions, WhepReceiver};
pub use rtp_sender::{RefusedPackets, RtpOptions, RtpSender};
pub use sender::{SenderOptions, WhepSender};
pub use sender_control::SenderControl;
pub use sender_shared::SenderCounts;
pub use sent_frame::SentFrame;
pub use srtp::SrtpKey;
pub use viewer_figures::ViewerFigures;
pub use whep_client::read_sender_metrics;
