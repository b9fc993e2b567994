// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of senders and receivers.

use std::io;
use std::net::SocketAddr;

use str0m::RtcError;

use crate::payload::SUPPORTED;

/// Reason why a sender or receiver could not start, or why it stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebrtcError {
    /// A system call failed.
    #[error("{what}: {error}")]
    Io {
        /// The operation and its object.
        what: String,
        /// Error that the system returned.
        #[source]
        error: io::Error,
    },
    /// The URL is not one of a WHEP endpoint that this crate can reach.
    #[error("{url}: {wrong}; expected http://HOST:PORT/PATH or https://HOST/PATH")]
    Url {
        /// The URL.
        url: String,
        /// Description of the mistake.
        wrong: &'static str,
    },
    /// The other end does not speak HTTP, or did not answer in time.
    #[error("{0}")]
    Http(String),
    /// The server refused the request.
    #[error("the server refuses the request: HTTP status {status}{advice}")]
    Refused {
        /// HTTP status code.
        status: u16,
        /// Advice for the user, after a semicolon; may be empty.
        advice: &'static str,
    },
    /// The server sends the client to another one. Opening a session follows it.
    #[error("the server sends the client to {url}")]
    Moved {
        /// Endpoint of the other server.
        url: String,
    },
    /// The session description of the other end is invalid, or describes no video that can be received.
    #[error("session description: {0}")]
    Description(String),
    /// The WebRTC session failed.
    #[error("WebRTC: {0}")]
    Session(#[from] RtcError),
    /// No datagram of the other end arrived for the whole timeout.
    #[error(
        "no datagram from {peer} for {seconds} s; the sender has disappeared, or a firewall drops its datagrams (UDP)"
    )]
    Silent {
        /// Address of the HTTP server.
        peer: SocketAddr,
        /// The timeout.
        seconds: f64,
    },
    /// Datagrams arrived, and the encrypted session was not established for the whole timeout.
    #[error(
        "no encrypted session with {peer} within {seconds} s; datagrams are lost on the way, or another program on the network disturbs the \
         handshake"
    )]
    NotConnected {
        /// Address of the HTTP server.
        peer: SocketAddr,
        /// The timeout.
        seconds: f64,
    },
    /// The codec cannot be sent over WebRTC.
    #[error("codec {0} is not supported over WebRTC; supported: {SUPPORTED}")]
    Codec(String),
    /// The other end has sent bytes that no honest peer sends.
    #[error("WebRTC: the other end has sent bytes that are not possible")]
    Panicked,
    /// The other end has opened more data channels than any honest peer needs.
    #[error("WebRTC: the other end opens too many data channels")]
    Channels,
    /// The other end has another certificate than the offer, the answer or the pairing code says.
    #[error(
        "the other end has not the certificate of the pairing code or session description: another program may have taken its \
         place on the network"
    )]
    ForeignCertificate,
    /// The answer to the offer is not that of the pairing code's sender.
    #[error(
        "the answer to the offer is not that of the pairing code's sender: another program may have changed it on the network, or the \
         sender is of another version"
    )]
    ForeignAnswer,
    /// OpenSSL cannot make a certificate.
    #[error("OpenSSL cannot make a certificate")]
    Certificate,
    /// OpenSSL fails.
    #[error("OpenSSL: {0}")]
    OpenSsl(#[from] openssl::error::ErrorStack),
    /// The text looks like a pairing code, and is none.
    #[error(transparent)]
    Pairing(#[from] crate::pairing::PairingError),
    /// A frame cannot be split into packets.
    #[error("packetise a frame: {0}")]
    Packetize(String),
    /// The user of the sender has ended this viewer's session, or another program that has the token; the stream goes on.
    #[error("the sender has ended this viewer's session; its stream may go on for others")]
    EndedBySender,
    /// The sender's stream could not go on.
    #[error("the sender's stream has failed; frames may be missing")]
    SenderFailed,
    /// The session has ended, and the sender's message about the way did not arrive.
    #[error("the sender has ended this viewer's session, and does not say why; frames may be missing")]
    EndedWithoutReason,
    /// The sender's thread has ended: the log has the error of its socket.
    #[error("the socket has failed; -v shows its error")]
    Stopped,
    /// A signal or a stop request ended the wait.
    #[error("canceled")]
    Canceled,
}

impl WebrtcError {
    /// Returns a function that makes the error of a failed system call from the operation `what`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> WebrtcError {
        let what = what.into();
        move |error| WebrtcError::Io { what, error }
    }
}
