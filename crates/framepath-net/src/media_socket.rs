// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP socket of the video. All datagrams of this crate pass through it.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use framepath_os::net::{ReceivedBatch, ReceivedDatagram, set_arrival_times, set_receive_buffer};

use crate::error::WebrtcError;

/// Requested size of the receive buffer, bytes. Holds the datagrams of a large keyframe while the thread waits for
/// the CPU.
const RECEIVE_BUFFER: i32 = 4 << 20;
/// Largest datagram that is received whole, bytes. WebRTC sends at most about 1,500.
const LARGEST: usize = 2048;

/// Datagram that was received.
pub(crate) struct Datagram<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) bytes: &'a [u8],
    /// CLOCK_MONOTONIC time of the arrival in the kernel, nanoseconds.
    pub(crate) arrived_ns: u64,
}

/// Datagrams that were received with one system call, some of which were not returned yet.
pub(crate) struct ReceiveBuffer {
    batch: ReceivedBatch,
    /// Index of the next datagram to return.
    next: usize,
}

impl ReceiveBuffer {
    pub(crate) fn new() -> ReceiveBuffer {
        ReceiveBuffer { batch: ReceivedBatch::new(LARGEST), next: 0 }
    }

    /// Returns true if all datagrams were returned.
    pub(crate) fn is_empty(&self) -> bool {
        self.next >= self.batch.len()
    }
}

/// UDP socket that never blocks.
pub(crate) struct MediaSocket(UdpSocket);

impl MediaSocket {
    /// Binds `address`; port 0 is a free port.
    ///
    /// # Errors
    /// From bind(2).
    pub(crate) fn bind(address: SocketAddr) -> Result<MediaSocket, WebrtcError> {
        let bound = UdpSocket::bind(address).and_then(|socket| {
            socket.set_nonblocking(true)?;
            // The kernel's default remains if it refuses.
            let _ = set_receive_buffer(&socket, RECEIVE_BUFFER);
            // Without it, datagrams have the time of their reception in this process.
            let _ = set_arrival_times(&socket);
            Ok(socket)
        });
        bound.map(MediaSocket).map_err(WebrtcError::io(format!("bind UDP {address}")))
    }

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    /// From getsockname(2).
    pub(crate) fn local_addr(&self) -> Result<SocketAddr, WebrtcError> {
        self.0.local_addr().map_err(WebrtcError::io("getsockname"))
    }

    /// Sends one datagram. A datagram that the kernel does not take is lost, as if the network had lost it: the
    /// receiver asks for it again.
    pub(crate) fn send(&self, to: SocketAddr, bytes: &[u8]) {
        if let Err(error) = self.0.send_to(bytes, to) {
            log::trace!("send to {to}: {error}");
        }
    }

    /// Receives the next datagram; `None` if none is there. One system call receives several, which `buffer` keeps.
    ///
    /// # Errors
    /// From recvmmsg(2).
    pub(crate) fn recv<'a>(
        &self,
        buffer: &'a mut ReceiveBuffer,
    ) -> Result<Option<Datagram<'a>>, WebrtcError> {
        let ReceiveBuffer { batch, next } = buffer;
        while *next >= batch.len() {
            let has_more = batch.is_empty() || batch.is_full();
            *next = 0;
            batch.clear();
            if !has_more {
                return Ok(None);
            }
            match batch.recv(&self.0) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // Answers of hosts that an earlier datagram did not reach.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(WebrtcError::io("recvmmsg")(error)),
            }
        }
        *next += 1;
        let datagram = batch.get(*next - 1);
        Ok(datagram.map(|ReceivedDatagram { source, bytes, arrived_ns }| Datagram {
            source,
            bytes,
            arrived_ns,
        }))
    }
}

impl AsFd for MediaSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
