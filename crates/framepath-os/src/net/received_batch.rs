// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reception of several UDP datagrams with one system call (recvmmsg(2)), with the kernel's times of arrival
//! (SO_TIMESTAMPNS, socket(7)).
//!
//! UDP_GRO is not used: the kernel would join the datagrams of a train, and all of them would have one time.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::SystemTime;

use super::set_option;
use crate::time::now_ns;

/// Maximum number of datagrams that one call receives.
const MOST: usize = 32;
/// Size of the buffer for an address, bytes: that of `sockaddr_in6`, the larger one of the two kinds.
const ADDRESS: usize = 28;
/// Size of the buffer for control messages, bytes. The kernel sends one with a `timespec`, which takes 32.
const CONTROL: usize = 64;
/// Maximum age of a datagram whose time is believed, nanoseconds. An older time is that of a clock that was set.
const OLDEST_NS: u64 = 10_000_000_000;
/// Distance of two readings of CLOCK_MONOTONIC from which on the reading of CLOCK_REALTIME between them is repeated.
const FAR_NS: u64 = 10_000;

/// Memory of one datagram.
#[repr(C, align(8))]
struct DatagramMemory {
    /// Address of the sender, as the kernel writes it (`sockaddr_in` or `sockaddr_in6`).
    address: [u8; ADDRESS],
    len: u32,
    control: [u8; CONTROL],
    arrived_ns: u64,
}

/// Datagrams that one call has received.
pub struct ReceivedBatch {
    memory: Box<[DatagramMemory]>,
    /// Contents: `largest` bytes for each datagram.
    bytes: Box<[u8]>,
    largest: usize,
    len: usize,
}

/// Datagram of a [`ReceivedBatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDatagram<'a> {
    /// Address of the sender.
    pub source: SocketAddr,
    /// Contents. A larger datagram is cut off.
    pub bytes: &'a [u8],
    /// CLOCK_MONOTONIC time at which the kernel received the datagram, nanoseconds; the time of the call for a socket without
    /// [`set_arrival_times`].
    ///
    /// The kernel stamps it with CLOCK_REALTIME. The conversion is wrong by at most half the time between two clock reads
    /// (5 µs, mostly below 0.1 µs), plus the amount by which the system's clock was set since the arrival.
    pub arrived_ns: u64,
}

/// Makes the kernel stamp each datagram that arrives at `socket`.
///
/// # Errors
/// From setsockopt(2).
pub fn set_arrival_times(socket: &UdpSocket) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

impl ReceivedBatch {
    /// Makes an empty batch for datagrams of up to `largest` bytes.
    pub fn new(largest: usize) -> ReceivedBatch {
        let empty = || DatagramMemory { address: [0; ADDRESS], len: 0, control: [0; CONTROL], arrived_ns: 0 };
        ReceivedBatch {
            memory: (0..MOST).map(|_| empty()).collect(),
            bytes: vec![0; MOST * largest].into(),
            largest,
            len: 0,
        }
    }

    /// Returns the number of datagrams.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no datagrams.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if the last call received as many datagrams as it can, so that there may be more.
    pub fn is_full(&self) -> bool {
        self.len == MOST
    }

    /// Forgets the datagrams.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Replaces the datagrams by those that wait at `socket`. Does not wait for one.
    ///
    /// # Errors
    /// From recvmmsg(2): [`io::ErrorKind::WouldBlock`] if there are none. The batch is empty afterwards.
    pub fn recv(&mut self, socket: &UdpSocket) -> io::Result<()> {
        self.clear();
        // SAFETY: zeros are a valid value of both types, which consist of numbers and pointers.
        let (mut vectors, mut headers): ([libc::iovec; MOST], [libc::mmsghdr; MOST]) =
            unsafe { std::mem::zeroed() };
        let buffers = self.bytes.chunks_exact_mut(self.largest.max(1));
        for (((header, vector), memory), bytes) in
            headers.iter_mut().zip(&mut vectors).zip(&mut self.memory).zip(buffers)
        {
            vector.iov_base = bytes.as_mut_ptr().cast();
            vector.iov_len = bytes.len();
            header.msg_hdr.msg_name = memory.address.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = ADDRESS as libc::socklen_t;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = memory.control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL as _;
        }
        // SAFETY: each header describes an address, one vector and control memory that live until the end of this function
        // and that nothing else uses meanwhile; each vector describes its own part of `bytes`.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                MOST as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let clocks = ClockPair::now();
        for (header, memory) in headers[..received].iter().zip(&mut self.memory) {
            memory.len = header.msg_len.min(self.largest as u32);
            let stamp_ns = arrival(&header.msg_hdr);
            memory.arrived_ns = stamp_ns.map_or(clocks.monotonic_ns, |ns| clocks.monotonic_of(ns));
        }
        self.len = received;
        Ok(())
    }

    /// Returns the datagram with this index; `None` if there are fewer.
    pub fn get(&self, index: usize) -> Option<ReceivedDatagram<'_>> {
        let memory = self.memory[..self.len].get(index)?;
        let bytes = &self.bytes[index * self.largest..][..memory.len as usize];
        let source = source_of(&memory.address)?;
        Some(ReceivedDatagram { source, bytes, arrived_ns: memory.arrived_ns })
    }
}

/// Returns the time in a received message, CLOCK_REALTIME nanoseconds; `None` without one.
fn arrival(header: &libc::msghdr) -> Option<u64> {
    // SAFETY: the kernel has written whole control messages into the header's control memory, whose written length the header
    // has. The macros stay inside this length.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(head) = message.as_ref() {
            if (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
                let time: libc::timespec = libc::CMSG_DATA(message).cast::<libc::timespec>().read_unaligned();
                let (seconds, ns) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
                return seconds.checked_mul(1_000_000_000)?.checked_add(ns);
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}

/// Reads an address as the kernel writes it; `None` for one of another family.
fn source_of(address: &[u8; ADDRESS]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes([address[2], address[3]]);
    match i32::from(u16::from_ne_bytes([address[0], address[1]])) {
        libc::AF_INET => {
            let [a, b, c, d] = [address[4], address[5], address[6], address[7]];
            Some((Ipv4Addr::new(a, b, c, d), port).into())
        }
        libc::AF_INET6 => {
            let word = |at: usize| [address[at], address[at + 1], address[at + 2], address[at + 3]];
            let ip: [u8; 16] = address[8..24].try_into().ok()?;
            let (flow, scope) = (u32::from_be_bytes(word(4)), u32::from_ne_bytes(word(24)));
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into())
        }
        _ => None,
    }
}

/// Readings of both clocks at one time, nanoseconds.
#[derive(Clone, Copy)]
struct ClockPair {
    monotonic_ns: u64,
    realtime_ns: u64,
}

impl ClockPair {
    fn now() -> ClockPair {
        let mut tries = 0;
        loop {
            let before_ns = now_ns();
            let realtime = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let distance_ns = now_ns() - before_ns;
            tries += 1;
            // The thread lost the CPU between the readings.
            if distance_ns > FAR_NS && tries < 4 {
                continue;
            }
            let realtime_ns = realtime.as_nanos() as u64;
            return ClockPair { monotonic_ns: before_ns + distance_ns / 2, realtime_ns };
        }
    }

    /// Converts a time before the readings to CLOCK_MONOTONIC. A time that cannot be one counts as that of the readings.
    fn monotonic_of(self, realtime_ns: u64) -> u64 {
        let age_ns = self.realtime_ns.checked_sub(realtime_ns).filter(|age_ns| *age_ns <= OLDEST_NS);
        self.monotonic_ns.saturating_sub(age_ns.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    /// Largest error of the conversion of a time, nanoseconds, on a machine that sets its clock.
    const ERROR_NS: u64 = 1_000_000;

    fn pair(ip: IpAddr) -> Option<[UdpSocket; 2]> {
        let open = || UdpSocket::bind((ip, 0));
        Some([open().ok()?, open().ok()?])
    }

    #[test]
    fn datagrams_arrive_in_order_with_their_sender_and_time() {
        // A machine may lack IPv6.
        for [from, to] in
            [IpAddr::from([127, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()].into_iter().flat_map(pair)
        {
            set_arrival_times(&to).unwrap();
            let mut batch = ReceivedBatch::new(4);
            assert_eq!(batch.recv(&to).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            let before_ns = now_ns();
            for number in 0..MOST as u8 + 1 {
                // The last one is cut off, the first is empty.
                let bytes = vec![number; usize::from(number) % 9];
                from.send_to(&bytes, to.local_addr().unwrap()).unwrap();
            }
            let after_ns = now_ns();
            batch.recv(&to).unwrap();
            assert_eq!((batch.len(), batch.is_full(), batch.is_empty()), (MOST, true, false));
            let mut last_ns = before_ns - ERROR_NS;
            for number in 0..MOST {
                let datagram = batch.get(number).unwrap();
                assert_eq!(datagram.source, from.local_addr().unwrap());
                assert_eq!(datagram.bytes, vec![number as u8; (number % 9).min(4)]);
                let range = last_ns..=after_ns + ERROR_NS;
                assert!(range.contains(&datagram.arrived_ns), "{} in {range:?}", datagram.arrived_ns);
                last_ns = datagram.arrived_ns;
            }
            assert_eq!(batch.get(MOST), None);
            batch.recv(&to).unwrap();
            assert_eq!((batch.len(), batch.is_full()), (1, false));
            assert_eq!(batch.get(0).unwrap().bytes[0], MOST as u8);
            assert!(batch.recv(&to).is_err() && batch.is_empty() && batch.get(0).is_none());
        }
    }

    #[test]
    fn a_time_that_cannot_be_is_the_time_of_the_call() {
        let clocks = ClockPair { monotonic_ns: 50 * OLDEST_NS, realtime_ns: 1000 * OLDEST_NS };
        assert_eq!(clocks.monotonic_of(1000 * OLDEST_NS - 7), 50 * OLDEST_NS - 7);
        for impossible in [0, 998 * OLDEST_NS, 1000 * OLDEST_NS + 1] {
            assert_eq!(clocks.monotonic_of(impossible), 50 * OLDEST_NS);
        }
    }
}
