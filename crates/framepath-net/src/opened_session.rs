// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a session at a server, by WHEP or WHIP.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::error::WebrtcError;
use crate::media_socket::MediaSocket;
use crate::peer::WebrtcPeer;
use crate::server_session::ServerSession;
use crate::whep_client::{Credential, MOST_REDIRECTS, WhepClient};

/// Longest time for the request that ends a session at its server.
pub(crate) const DELETE: Duration = Duration::from_millis(500);

/// Function that sends an offer and returns the answer.
pub(crate) type Exchange<'a> = dyn FnMut(String) -> Result<String, WebrtcError> + 'a;

/// Session that has been opened, and is not established.
pub(crate) struct OpenedSession {
    pub(crate) server: ServerSession,
    pub(crate) socket: MediaSocket,
    pub(crate) peer: WebrtcPeer,
}

impl OpenedSession {
    /// Opens a session at the server of `url`, or at the one to which that server sends the client; the credential is for the first one.
    /// `offer` makes this end for the socket with this address. The wait for the server ends early if `canceled` returns true.
    ///
    /// # Errors
    /// The URL is not valid; the server cannot be reached, refuses the offer, or does not answer before `deadline`; that of `offer`; or the
    /// wait was canceled.
    pub(crate) fn open(
        (url, credential): (&str, Credential),
        deadline: Instant,
        canceled: impl Fn() -> bool,
        offer: impl Fn(SocketAddr, &mut Exchange<'_>) -> Result<WebrtcPeer, WebrtcError>,
    ) -> Result<OpenedSession, WebrtcError> {
        let mut client = WhepClient::connect(url, credential, deadline)?;
        let mut servers = 0;
        loop {
            // The address by which this server is reached.
            let socket = MediaSocket::bind(SocketAddr::new(client.local.ip(), 0))?;
            let (mut resource, mut takes_restarts) = (None, false);
            let peer = offer(socket.local_addr()?, &mut |text| {
                let answer = client.offer(text, deadline, &canceled)?;
                (resource, takes_restarts) = (answer.resource, answer.takes_restarts);
                Ok(answer.answer)
            });
            match peer {
                Ok(peer) => {
                    let server = ServerSession::new(client, resource, takes_restarts);
                    return Ok(OpenedSession { server, socket, peer });
                }
                Err(WebrtcError::Moved { url }) if servers < MOST_REDIRECTS => {
                    servers += 1;
                    client = WhepClient::connect(&url, Credential::None, deadline)?;
                }
                Err(error) => {
                    if let Some(resource) = resource {
                        // The server has a session, whose answer cannot be used.
                        let _ = client.delete(&resource, Instant::now() + DELETE);
                    }
                    return Err(error);
                }
            }
        }
    }
}
