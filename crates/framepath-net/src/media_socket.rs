// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP socket of the video. All datagrams of this crate pass through it.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use framepath_os::net::{
    ReceivedBatch, ReceivedDatagram, set_arrival_times, set_receive_buffer, set_segment_size,
};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg_addr};

use crate::error::WebrtcError;

/// Requested size of the receive buffer, bytes. Holds the datagrams of a large keyframe while the thread waits for
/// the CPU.
const RECEIVE_BUFFER: i32 = 4 << 20;
/// Largest datagram that is received whole, bytes. WebRTC sends at most about 1,500.
const LARGEST: usize = 2048;

/// Datagram that was received.
pub(crate) struct Datagram<'a> {
    /// Address from which it came: that of IPv4 also where the socket has the IPv6 address that stands for it.
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
pub(crate) struct MediaSocket {
    socket: UdpSocket,
    is_ipv6: bool,
    /// Size into which the kernel cuts a longer send, bytes; 0: not at all.
    segment: Cell<usize>,
    /// False once the kernel has refused to cut a send.
    takes_runs: Cell<bool>,
    /// Number of system calls that sent something.
    sends: Cell<u64>,
    /// Number of datagrams that the kernel has refused, and its last error.
    refused: Cell<(u64, Option<Errno>)>,
}

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
        let socket = bound.map_err(WebrtcError::io(format!("bind UDP {address}")))?;
        let (segment, takes_runs, sends) = (Cell::new(0), Cell::new(true), Cell::new(0));
        let refused = Cell::new((0, None));
        Ok(MediaSocket { socket, is_ipv6: address.is_ipv6(), segment, takes_runs, sends, refused })
    }

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    /// From getsockname(2).
    pub(crate) fn local_addr(&self) -> Result<SocketAddr, WebrtcError> {
        self.socket.local_addr().map_err(WebrtcError::io("getsockname"))
    }

    /// Sends datagrams of `segment` bytes, of which the last may be shorter, by one system call if the kernel can cut them
    /// (UDP_SEGMENT). A datagram that the kernel does not take is lost, as if the network had lost it: the receiver asks for it again.
    pub(crate) fn send_run(&self, to: SocketAddr, datagrams: &[Vec<u8>], segment: usize) {
        // A shorter datagram passes whole. A longer one would be cut, also without company.
        let is_ready = || {
            let fits = if datagrams.len() == 1 {
                segment <= self.segment.get()
            } else {
                segment == self.segment.get()
            };
            fits || self.cut(segment).is_ok()
        };
        if self.takes_runs.get() && is_ready() {
            match self.send(to, datagrams) {
                // A route or device that cannot do this, or whose datagrams are shorter: for example behind a VPN.
                Err(error) if cannot_cut(&error) => {}
                sent => return self.count_refused(to, sent, datagrams.len()),
            }
        }
        self.takes_runs.set(false);
        self.count_refused(to, self.cut(0), 0);
        for datagram in datagrams.chunks(1) {
            self.count_refused(to, self.send(to, datagram), 1);
        }
    }

    /// Counts datagrams that the kernel has refused.
    fn count_refused(&self, to: SocketAddr, sent: io::Result<()>, datagrams: usize) {
        if let Err(error) = sent {
            log::trace!("send to {to}: {error}");
            let (before, _) = self.refused.get();
            self.refused.set((before + datagrams as u64, Errno::from_io_error(&error)));
        }
    }

    /// Returns the number of datagrams that the kernel has refused, and its last error.
    pub(crate) fn refused(&self) -> (u64, Option<Errno>) {
        self.refused.get()
    }

    /// Sends the datagrams by one system call.
    fn send(&self, to: SocketAddr, datagrams: &[Vec<u8>]) -> io::Result<()> {
        let slices: Vec<IoSlice<'_>> = datagrams.iter().map(|datagram| IoSlice::new(datagram)).collect();
        self.sends.set(self.sends.get() + 1);
        let to = match to {
            // A socket for all addresses of both kinds, `[::]`.
            SocketAddr::V4(v4) if self.is_ipv6 => SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())),
            to => to,
        };
        let sent =
            sendmsg_addr(&self.socket, &to, &slices, &mut SendAncillaryBuffer::default(), SendFlags::empty());
        Ok(sent.map(|_| ())?)
    }

    /// Makes the kernel cut longer sends into datagrams of `segment` bytes.
    fn cut(&self, segment: usize) -> io::Result<()> {
        if self.segment.get() != segment {
            set_segment_size(&self.socket, u16::try_from(segment).map_err(io::Error::other)?)?;
            self.segment.set(segment);
        }
        Ok(())
    }

    /// Returns the number of system calls that sent something.
    #[cfg(test)]
    pub(crate) fn sends(&self) -> u64 {
        self.sends.get()
    }

    /// Behaves from now on as if the kernel could not cut sends.
    #[cfg(test)]
    pub(crate) fn refuse_runs(&self) {
        self.takes_runs.set(false);
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
            match batch.recv(&self.socket) {
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
        Ok(datagram.map(|ReceivedDatagram { mut source, bytes, arrived_ns }| {
            source.set_ip(source.ip().to_canonical());
            Datagram { source, bytes, arrived_ns }
        }))
    }
}

/// Returns true if the kernel refused a send because it cannot cut it on this route.
fn cannot_cut(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INVAL | Errno::IO | Errno::MSGSIZE | Errno::OPNOTSUPP))
}

impl AsFd for MediaSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
