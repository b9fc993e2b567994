// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address of this computer for others.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Returns the address by which others reach this computer, if `listen` is all addresses. Sends nothing.
pub(crate) fn reachable(listen: IpAddr) -> IpAddr {
    // Addresses for documentation: only the kernel's choice of a route matters.
    let somewhere = match listen {
        IpAddr::V4(_) => IpAddr::from([192, 0, 2, 1]),
        IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
    };
    let route = || {
        let socket = UdpSocket::bind((listen, 0))?;
        socket.connect((somewhere, 9))?;
        socket.local_addr().map(|local| local.ip())
    };
    // Without a route to others, only this computer reaches it.
    let loopback = || if listen.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    if listen.is_unspecified() { route().unwrap_or_else(|_: io::Error| loopback()) } else { listen }
}
