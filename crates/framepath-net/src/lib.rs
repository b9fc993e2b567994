// SPDX-License-Identifier: MIT OR Apache-2.0
//! Video over WebRTC: encoded frames from one process to others, encrypted by DTLS and SRTP.
//!
//! This crate touches sockets: TCP for HTTP, UDP for the video. It starts threads.
//!
//! A [`WhepSender`] is a WHEP server (WebRTC-HTTP Egress Protocol): a viewer posts an offer with a token, and gets
//! an answer. A [`WhepReceiver`] is a WHEP client. The crate `str0m` implements SDP, ICE, DTLS, SRTP and RTCP, without
//! sockets and clocks; `hyper` implements HTTP. This crate packetises frames, paces the packets, and reassembles
//! frames. A frame with a lost packet is never handed on, and neither are the frames that depend on it.
//!
//! Both ends have to reach each other directly: there is no STUN, TURN or other relay.
#![forbid(unsafe_code)]

mod dtls_record;
mod error;
mod http_io;
mod lock;
mod media_socket;
mod packetizer;
mod pairing;
mod peer;
mod random;
mod reassembly;
mod receiver;
mod sender;
mod sender_control;
mod sender_metrics;
mod sender_sessions;
mod sender_shared;
mod viewer;
mod viewer_figures;
mod wake_event;
mod whep_client;
mod whep_server;
mod wrong_tokens;

pub use error::WebrtcError;
pub use packetizer::{PacketizedFrame, Packetizer};
pub use pairing::{PairingCode, PairingError};
pub use reassembly::{ReassembledFrame, Reassembly, ReassemblyCounts, RtpArrival};
pub use receiver::{ReceivedItem, ReceiverOptions, WhepReceiver};
pub use sender::{SenderOptions, WhepSender};
pub use sender_control::SenderControl;
pub use sender_shared::SenderCounts;
pub use viewer_figures::ViewerFigures;
pub use whep_client::read_sender_metrics;
