// SPDX-License-Identifier: MIT OR Apache-2.0
//! Session of this program at a server, by WHEP or WHIP, as HTTP knows it: its end, and its restarts of ICE.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::error::WebrtcError;
use crate::media_socket::MediaSocket;
use crate::peer::WebrtcPeer;
use crate::whep_client::WhepClient;

/// Time without a datagram after which ICE restarts, and time between two tries. WebRTC's ends send several datagrams each second, so
/// the network has changed, or does not carry anything at all.
const RESTART: Duration = Duration::from_secs(2);
/// Longest time for a try.
const TRY: Duration = Duration::from_secs(1);
/// Time that a restart has to bring the first datagram.
const FIRST_DATAGRAM: Duration = Duration::from_millis(1500);

/// Session at a server.
pub(crate) struct ServerSession {
    client: WhepClient,
    /// Path of the session; `None` if the server named none.
    resource: Option<String>,
    /// True if the server takes restarts of ICE.
    takes_restarts: bool,
    /// Earliest time of the next try.
    next_try: Instant,
    /// Time of the last restart; `None` before the first.
    restarted: Option<Instant>,
}

impl ServerSession {
    pub(crate) fn new(client: WhepClient, resource: Option<String>, takes_restarts: bool) -> ServerSession {
        // A session without a name takes no requests.
        let takes_restarts = takes_restarts && resource.is_some();
        ServerSession { client, resource, takes_restarts, next_try: Instant::now(), restarted: None }
    }

    /// Returns the address of the HTTP server.
    pub(crate) fn server(&self) -> SocketAddr {
        self.client.server
    }

    /// Returns the time at which [`restart`](ServerSession::restart) has something to do if no datagram arrives after `heard`; `None` if
    /// the server takes no restarts.
    pub(crate) fn restarts_at(&self, heard: Instant) -> Option<Instant> {
        self.takes_restarts.then(|| self.next_try.max(heard + RESTART))
    }

    /// Restarts ICE from a new socket if it is time to, by the address of this computer from which the server is reached now. Returns the
    /// socket if the session goes on there. Otherwise all stays as it was. Takes a second at most, less if `canceled` returns true.
    pub(crate) fn restart(
        &mut self,
        peer: &mut WebrtcPeer,
        heard: Instant,
        canceled: impl Fn() -> bool,
    ) -> Option<MediaSocket> {
        let now = Instant::now();
        let path = self.resource.clone()?;
        self.restarts_at(heard).filter(|at| *at <= now)?;
        self.next_try = now + RESTART;
        let restarted = self.try_restart(&path, peer, now + TRY, canceled);
        match &restarted {
            Ok(_) => log::info!(
                "{}: no datagram for {} s; ICE restarts from {}",
                self.server(),
                RESTART.as_secs(),
                self.client.local.ip()
            ),
            // The server does not take restarts, or does not know the session. With others, such as 409 for a restart that somebody has
            // overheard and was quicker with, the next one has new credentials.
            Err(WebrtcError::Refused {
                status: status @ (401 | 403 | 404 | 405 | 415 | 422 | 501), ..
            }) => {
                log::info!("{}: HTTP status {status} for a restart of ICE", self.server());
                self.takes_restarts = false;
            }
            Err(error) => log::info!("{}: restart of ICE: {error}", self.server()),
        }
        let socket = restarted.ok()?;
        self.restarted = Some(Instant::now());
        Some(socket)
    }

    /// Returns true if a restart may still bring the first datagram.
    pub(crate) fn is_restarting(&self, now: Instant) -> bool {
        self.restarted.is_some_and(|at| now.saturating_duration_since(at) < FIRST_DATAGRAM)
    }

    fn try_restart(
        &mut self,
        path: &str,
        peer: &mut WebrtcPeer,
        deadline: Instant,
        canceled: impl Fn() -> bool,
    ) -> Result<MediaSocket, WebrtcError> {
        self.client.connect_again(deadline)?;
        let socket = MediaSocket::bind(SocketAddr::new(self.client.local.ip(), 0))?;
        peer.restart(socket.local_addr()?, |fragment| {
            self.client.restart(path, &fragment, deadline, canceled)
        })?;
        Ok(socket)
    }

    /// Ends the session at the server. Any answer will do, because servers treat this request in many ways.
    ///
    /// # Errors
    /// The server does not answer before `deadline`, or closes the connection.
    pub(crate) fn delete(&mut self, deadline: Instant) -> Result<(), WebrtcError> {
        self.client.delete(self.resource.as_deref().unwrap_or("/"), deadline)
    }

    /// Returns true if the server has named the session.
    pub(crate) fn is_named(&self) -> bool {
        self.resource.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;
    use crate::ice_fragment::IceFragment;
    use crate::whep_client::Credential;

    fn client(listener: &TcpListener) -> WhepClient {
        let url = format!("http://{}/whep", listener.local_addr().unwrap());
        WhepClient::connect(&url, Credential::None, Instant::now() + TRY).unwrap()
    }

    #[test]
    fn a_session_without_a_name_has_no_restarts() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let named = |resource: Option<&str>| {
            let session = ServerSession::new(client(&listener), resource.map(str::to_owned), true);
            session.restarts_at(Instant::now()).is_some()
        };
        assert_eq!([named(Some("/whep/1")), named(None)], [true, false]);
    }

    #[test]
    fn a_flood_of_informational_answers_ends_at_the_deadline() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = client(&listener);
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000);
            // Until the client has gone.
            while let Err(ErrorKind::WouldBlock) | Ok(()) =
                stream.write_all(hints.as_bytes()).map_err(|error| error.kind())
            {}
        });
        let answer = client.restart("/whep/1", &IceFragment::default(), Instant::now() + TRY, || false);
        assert!(matches!(answer, Err(WebrtcError::Http(_))), "{answer:?}");
        drop(client);
        server.join().unwrap();
    }
}
