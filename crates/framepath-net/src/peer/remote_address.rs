// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address of a session's other end. Without sockets.
//!
//! ICE lets the other end change its address at any time, by a message that anyone can make who has seen the offer and the answer, and
//! these cross the network in plain HTTP. So a session stays at the address at which it has connected: nobody else can lead the stream
//! away. An end whose address changes restarts ICE, for which it needs the right to the session, or connects again.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Maximum number of addresses that a session hears while it connects. str0m keeps all of them.
const MOST_CONNECTING: usize = 16;

/// Time that a restart has to find an address.
const RESTARTING: Duration = Duration::from_secs(5);

/// Address without an IPv6 scope, which not every source of addresses has.
type Address = (IpAddr, u16);

fn address(of: SocketAddr) -> Address {
    (of.ip(), of.port())
}

/// Progress of a session in finding the address of its other end.
#[derive(Debug, Default, PartialEq, Eq)]
enum Settlement {
    /// The session connects, and the address may be any.
    #[default]
    Open,
    /// ICE restarts, up to the given time. The session is at its address until there is another one, which has one of the IP addresses: no
    /// certificate is proved again, and a forged source address could otherwise lead the stream to an end that has not asked for it.
    Restarting(Vec<IpAddr>, Instant),
    /// The address stays.
    Settled,
}

/// Address of the other end, which is open while the session connects, and while it restarts ICE.
#[derive(Default)]
pub(super) struct RemoteAddress {
    /// Addresses that have sent datagrams of the session.
    heard: Vec<Address>,
    /// Address to which the last datagram of DTLS or RTP was sent.
    used: Option<Address>,
    settlement: Settlement,
}

impl RemoteAddress {
    /// Returns true if a datagram from `source` may be for the session.
    pub(super) fn may_send(&self, source: SocketAddr) -> bool {
        let source = address(source);
        self.used == Some(source) || self.may_become(source) && self.has_room(source)
    }

    /// Returns true if the session may move to this address.
    fn may_become(&self, (ip, _): Address) -> bool {
        match &self.settlement {
            Settlement::Open => true,
            Settlement::Restarting(only, _) => only.contains(&ip),
            Settlement::Settled => false,
        }
    }

    fn has_room(&self, source: Address) -> bool {
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
        let destination = address(destination);
        // RFC 7983: the first byte of STUN is 0 to 3. Its answers go to any address that asks.
        let is_stun = datagram.first().is_some_and(|first| *first < 4);
        if !is_stun && self.used != Some(destination) && self.may_become(destination) {
            self.used = Some(destination);
            if self.settlement != Settlement::Open {
                self.settle();
            }
        }
        is_stun || self.used == Some(destination)
    }

    /// Lets the address stay: the other end has proved its certificate, or the session has moved.
    pub(super) fn settle(&mut self) {
        self.settlement = Settlement::Settled;
        self.heard.clear();
    }

    /// Lets the session move once, before `now` and [`RESTARTING`], to one of these IP addresses or another port of the present one.
    pub(super) fn restarted(&mut self, mut only: Vec<IpAddr>, now: Instant) {
        only.extend(self.used.map(|(ip, _)| ip));
        self.settlement = Settlement::Restarting(only, now + RESTARTING);
        self.heard.clear();
    }

    /// Lets the address stay if a restart has not moved the session in time.
    pub(super) fn work(&mut self, now: Instant) {
        if matches!(self.settlement, Settlement::Restarting(_, until) if now >= until) {
            self.settle();
        }
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
        remote.settle();
        let allowed = [1, 2, 3].map(|port| (remote.may_send(at(port)), remote.may_receive(at(port), RTP)));
        assert_eq!(allowed, [(false, false), (true, true), (false, false)]);
        let same_host = SocketAddr::from(([192, 0, 2, 2], 2));
        assert!(!remote.may_send(same_host) && !remote.may_receive(same_host, DTLS));
    }

    #[test]
    fn a_restart_moves_a_session_once_and_only_to_the_address_that_has_asked_for_it() {
        let mut remote = RemoteAddress::default();
        assert!(remote.may_receive(at(1), DTLS));
        remote.settle();
        let now = Instant::now();
        remote.restarted(vec![at(2).ip()], now);
        let foreign = SocketAddr::from(([192, 0, 2, 2], 2));
        assert!(!remote.may_send(foreign) && !remote.may_receive(foreign, RTP));
        // The stream goes on at the address before until there is another one.
        assert!(remote.may_send(at(1)) && remote.may_receive(at(1), RTP));
        assert!(remote.may_send(at(2)) && remote.may_receive(at(2), STUN));
        remote.heard(at(2));
        assert!(remote.may_receive(at(2), RTP));
        let allowed = [1, 2, 3].map(|port| (remote.may_send(at(port)), remote.may_receive(at(port), RTP)));
        assert_eq!(allowed, [(false, false), (true, true), (false, false)]);
        // One that finds nothing else ends by time.
        remote.restarted(vec![foreign.ip()], now);
        remote.work(now);
        assert!(remote.may_send(foreign));
        remote.work(now + RESTARTING);
        assert!(!remote.may_send(foreign) && remote.may_send(at(2)) && remote.may_receive(at(2), RTP));
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
