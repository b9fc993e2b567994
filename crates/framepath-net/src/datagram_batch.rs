// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams that leave together.

use std::net::SocketAddr;

use framepath_os::net::MAX_SEND;

use crate::media_socket::MediaSocket;

/// Maximum number of datagrams of one send: the kernel's limit (UDP_MAX_SEGMENTS) before 6.9.
const MOST_SEGMENTS: usize = 64;

/// Datagrams to one address that wait for a common system call. The kernel cuts a send into parts of equal size (GSO), so a run
/// ends behind a datagram that is shorter than the first, and in front of one that is longer.
#[derive(Default)]
pub(crate) struct DatagramBatch {
    to: Option<SocketAddr>,
    datagrams: Vec<Vec<u8>>,
    bytes: usize,
}

impl DatagramBatch {
    /// Adds a datagram. Sends the run in front of it if the datagram does not belong to that.
    pub(crate) fn push(&mut self, socket: &MediaSocket, to: SocketAddr, datagram: Vec<u8>) {
        let belongs = self.to == Some(to)
            && self.datagrams.len() < MOST_SEGMENTS
            && self.bytes + datagram.len() <= MAX_SEND
            && self.segment().is_none_or(|segment| {
                datagram.len() <= segment && self.bytes == self.datagrams.len() * segment
            });
        if !belongs {
            self.flush(socket);
        }
        self.to = Some(to);
        self.bytes += datagram.len();
        self.datagrams.push(datagram);
    }

    /// Sends all datagrams that wait.
    pub(crate) fn flush(&mut self, socket: &MediaSocket) {
        if let (Some(to), Some(segment)) = (self.to, self.segment()) {
            socket.send_run(to, &self.datagrams, segment);
        }
        self.datagrams.clear();
        self.bytes = 0;
    }

    /// Returns the size of the first datagram.
    fn segment(&self) -> Option<usize> {
        self.datagrams.first().map(Vec::len)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::media_socket::ReceiveBuffer;

    /// Sends datagrams of these sizes, receives them, and returns their sizes and the number of system calls.
    fn sent(sender: &MediaSocket, sizes: &[usize]) -> (Vec<usize>, u64) {
        let receiver = MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let to = receiver.local_addr().unwrap();
        let (before, mut batch) = (sender.sends(), DatagramBatch::default());
        for (number, size) in sizes.iter().enumerate() {
            batch.push(sender, to, vec![number as u8; *size]);
        }
        batch.flush(sender);
        let mut received = Vec::new();
        let mut buffer = ReceiveBuffer::new();
        while let Some(datagram) = receiver.recv(&mut buffer).unwrap() {
            assert!(datagram.bytes.iter().all(|byte| usize::from(*byte) == received.len()));
            received.push(datagram.bytes.len());
        }
        (received, sender.sends() - before)
    }

    #[test]
    fn a_run_of_equal_datagrams_costs_one_system_call() {
        let sender = MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let cases: [(&[usize], u64); 6] = [
            (&[1200; 40], 1),
            (&[1200, 1200, 1200, 300], 1),
            // Parameter sets in front of a keyframe, then two frames.
            (&[60, 40, 1200, 1200, 700, 1200, 90], 3),
            (&[100], 1),
            // More than one system call takes: 54 of them are 64,800 bytes; and 64 datagrams.
            (&[1200; 60], 2),
            (&[100; 65], 2),
        ];
        for (sizes, calls) in cases {
            assert_eq!(sent(&sender, sizes), (sizes.to_vec(), calls));
        }
    }

    #[test]
    fn datagrams_leave_one_by_one_where_the_kernel_cuts_none() {
        let sender = MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        sender.refuse_runs();
        assert_eq!(sent(&sender, &[1200; 5]), (vec![1200; 5], 5));
    }
}
