// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address of this computer for others.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Returns the address by which others reach this computer, if `listen` is all addresses. Sends nothing.
pub(crate) fn reachable(listen: IpAddr) -> IpAddr {
    if !listen.is_unspecified() {
        return listen;
    }
    // Those of IPv6 are those of IPv4, too. Without a route to others, only this computer reaches it.
    let (any_ipv4, loopback) = (
        Ipv4Addr::UNSPECIFIED.into(),
        match listen {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        },
    );
    outgoing(listen).or_else(|_| outgoing(any_ipv4)).unwrap_or(loopback)
}

/// Returns the address by which this computer would reach others, of the kind of `unspecified`.
fn outgoing(unspecified: IpAddr) -> io::Result<IpAddr> {
    // Addresses for documentation: only the kernel's choice of a route matters.
    let somewhere = match unspecified {
        IpAddr::V4(_) => IpAddr::from([192, 0, 2, 1]),
        IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
    };
    let socket = UdpSocket::bind((unspecified, 0))?;
    socket.connect((somewhere, 9))?;
    socket.local_addr().map(|local| local.ip())
}
