// SPDX-License-Identifier: MIT OR Apache-2.0
//! Publication of a stream on a WHIP server (RFC 9725).

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use framepath_model::access_unit::Coding;

use crate::error::WebrtcError;
use crate::lock::lock;
use crate::media_socket::MediaSocket;
use crate::opened_session::OpenedSession;
use crate::peer::{Identity, WebrtcPeer};
use crate::server_session::ServerSession;
use crate::whep_client::Credential;

/// Longest time for the request that ends the session at the server.
const DELETE: Duration = Duration::from_secs(1);

/// Settings of a sender that publishes its stream on a server.
#[derive(Clone, Debug)]
pub struct PublishOptions {
    /// Endpoint of the server, `http://HOST:PORT/PATH`.
    pub url: String,
    /// Bearer token for the server; `None` sends none.
    pub token: Option<String>,
    /// Longest wait for the answer to the offer.
    pub timeout: Duration,
    /// Codec of the frames.
    pub coding: Coding,
    /// As [`SenderOptions::bit_rates`](crate::SenderOptions::bit_rates).
    pub bit_rates: Option<RangeInclusive<u64>>,
}

/// Session at a server. The thread that has the stream restarts its ICE.
pub(crate) struct Publication {
    server: SocketAddr,
    session: Arc<Mutex<ServerSession>>,
}

impl Publication {
    /// Opens a session. Returns it with its end here and the socket. The wait for the server ends early if `canceled` returns true.
    ///
    /// # Errors
    /// The URL is not valid; the server cannot be reached, refuses the offer, or does not answer in time; it does not take the codec; or
    /// the wait was canceled.
    pub(crate) fn open(
        options: &PublishOptions,
        identity: &Identity,
        canceled: impl Fn() -> bool,
    ) -> Result<(Publication, WebrtcPeer, MediaSocket), WebrtcError> {
        let deadline = Instant::now() + options.timeout;
        let credential = options.token.clone().map_or(Credential::None, Credential::Token);
        let highest_rate = options.bit_rates.as_ref().map(|rates| *rates.end());
        let coding = (options.coding, highest_rate);
        let opened =
            OpenedSession::open((&options.url, credential), deadline, canceled, |local, exchange| {
                WebrtcPeer::publish(coding, identity, local, exchange)
            })?;
        let OpenedSession { server: session, socket, peer } = opened;
        let server = session.server();
        Ok((Publication { server, session: Arc::new(Mutex::new(session)) }, peer, socket))
    }

    /// Returns the address of the server.
    pub(crate) fn server(&self) -> SocketAddr {
        self.server
    }

    /// Returns the session at the server.
    pub(crate) fn session(&self) -> Arc<Mutex<ServerSession>> {
        self.session.clone()
    }

    /// Ends the session at the server. Returns false if the server cannot be reached: it may have disappeared before the last frames, as
    /// nothing else shows within ten seconds.
    pub(crate) fn end(self) -> bool {
        let deleted = lock(&self.session).delete(Instant::now() + DELETE);
        !matches!(deleted, Err(WebrtcError::Io { .. }))
    }
}
