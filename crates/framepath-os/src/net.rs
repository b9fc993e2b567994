// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP sockets: sending many datagrams with one system call (UDP_SEGMENT, udp(7)), receiving many with one, and the
//! size of the receive buffer.

mod received_batch;

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

pub use received_batch::{ReceivedBatch, ReceivedDatagram, set_arrival_times};

/// Maximum number of bytes to pass to one segmented send; all its datagrams together.
pub const MAX_SEND: usize = 65_000;

/// Makes the kernel cut each send on `socket` into datagrams of `segment_bytes` bytes; the last may be
/// shorter. Fails if the
/// kernel does not support this (before 4.18).
pub fn set_segment_size(socket: &UdpSocket, segment_bytes: u16) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, i32::from(segment_bytes))
}

/// Requests a receive buffer of `bytes` bytes for `socket`. The kernel silently limits the size
/// (net.core.rmem_max).
pub fn set_receive_buffer(socket: &UdpSocket, bytes: i32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
}

fn set_option(socket: &UdpSocket, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value pointer and its length describe one live i32.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
