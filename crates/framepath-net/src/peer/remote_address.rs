// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address of a session's other end. Without sockets.
//!
//! ICE lets the other end change its address at any time, by a message that anyone can make who has seen the offer and the answer, and
//! these cross the network in plain HTTP. So a session stays at the address at which it has connected: nobody else can lead the stream
//! away. An end whose address changes has to connect again.

use std::net::{IpAddr, SocketAddr};

/// Maximum number of addresses that a session hears while it connects. str0m keeps all of them.
const MOST_CONNECTING: usize = 16;

/// Address without an IPv6 scope, which not every source of addresses has.
type Address = (IpAddr, u16);

fn address(of: SocketAddr) -> Address {
    (of.ip(), of.port())
}

/// Address of the other end, which is open while the session connects.
#[derive(Default)]
pub(super) struct RemoteAddress {
    /// Addresses that have sent datagrams of the session.
    heard: Vec<Address>,
    /// Address to which the last datagram of DTLS or RTP was sent.
    used: Option<Address>,
    is_connected: bool,
}

impl RemoteAddress {
    /// Returns true if a datagram from `source` may be for the session.
    pub(super) fn may_send(&self, source: SocketAddr) -> bool {
        let source = address(source);
        if self.is_connected {
            return self.used == Some(source);
        }
        self.heard.len() < MOST_CONNECTING || self.heard.contains(&source)
    }

    /// Records that a datagram from `source` was for the session.
    pub(super) fn heard(&mut self, source: SocketAddr) {
        if !self.heard.contains(&address(source)) {
            self.heard.push(address(source));
        }
    }

    /// Returns true if the session may send this datagram to `destination`.
    pub(super) fn may_receive(&mut self, destination: SocketAddr, datagram: &[u8]) -> bool {
        // RFC 7983: the first byte of STUN is 0 to 3. Its answers go to any address that asks.
        let is_stun = datagram.first().is_some_and(|first| *first < 4);
        if !is_stun && !self.is_connected {
            self.used = Some(address(destination));
        }
        is_stun || self.used == Some(address(destination))
    }

    /// Records that the other end has proved its certificate: its address stays from now on.
    pub(super) fn connected(&mut self) {
        self.is_connected = true;
        self.heard.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    const STUN: &[u8] = &[0, 1, 0, 0];
    const DTLS: &[u8] = &[22, 254, 253];
    const RTP: &[u8] = &[0x80, 96];

    #[test]
    fn a_connected_session_stays_at_its_address() {
        let mut remote = RemoteAddress::default();
        for port in [1, 2] {
            assert!(remote.may_send(at(port)));
            remote.heard(at(port));
            assert!(remote.may_receive(at(port), STUN) && remote.may_receive(at(port), DTLS));
        }
        remote.connected();
        let allowed = [1, 2, 3].map(|port| (remote.may_send(at(port)), remote.may_receive(at(port), RTP)));
        assert_eq!(allowed, [(false, false), (true, true), (false, false)]);
        let same_host = SocketAddr::from(([192, 0, 2, 2], 2));
        assert!(!remote.may_send(same_host) && !remote.may_receive(same_host, DTLS));
    }

    #[test]
    fn a_session_hears_a_limited_number_of_addresses_while_it_connects() {
        let mut remote = RemoteAddress::default();
        for port in 0..MOST_CONNECTING as u16 {
            remote.heard(at(port));
            remote.heard(at(port));
        }
        assert!(remote.may_send(at(0)) && !remote.may_send(at(MOST_CONNECTING as u16)));
    }
}
