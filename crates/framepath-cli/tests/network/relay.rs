// SPDX-License-Identifier: MIT OR Apache-2.0
//! Relay of RTP datagrams that drops some of them.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Interval of looks at the end of the test.
const INTERVAL: Duration = Duration::from_millis(50);

/// Returns two free UDP ports in a row, the first even, as RTP and RTCP need them.
pub fn free_ports() -> (UdpSocket, UdpSocket) {
    for _ in 0..1000 {
        let first = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        if port % 2 == 0 {
            if let Ok(second) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port + 1)) {
                return (first, second);
            }
        }
    }
    panic!("no two free ports in a row");
}

/// Number of datagrams after which none is dropped: the goodbye of the sender must not overtake a gap.
const LAST_DROPPED: u64 = 300;

/// Running relay: passes the datagrams of two ports to two others. Drops every nth of the first port, up to
/// number [`LAST_DROPPED`].
pub struct Relay {
    /// Port of RTP; RTCP has the next one.
    pub port: u16,
    done: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Relay {
    /// Starts a relay to `port` and the next one; drops every datagram whose number, from 1, `every` divides.
    pub fn start(port: u16, every: u64) -> Relay {
        let (rtp, rtcp) = free_ports();
        let own = rtp.local_addr().unwrap().port();
        let done = Arc::new(AtomicBool::new(false));
        let pass = |from: UdpSocket, to: u16, every: Option<u64>| {
            let done = done.clone();
            from.set_read_timeout(Some(INTERVAL)).unwrap();
            thread::spawn(move || pass(&from, to, every, &done))
        };
        let threads = vec![pass(rtp, port, Some(every)), pass(rtcp, port + 1, None)];
        Relay { port: own, done, threads }
    }

    /// Ends the relay, and returns the number of dropped datagrams.
    pub fn end(self) -> u64 {
        self.done.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    }
}

/// Passes datagrams until `done`; returns the number of dropped ones.
fn pass(from: &UdpSocket, to: u16, every: Option<u64>, done: &AtomicBool) -> u64 {
    let (mut bytes, mut number, mut dropped) = (vec![0; 65_536], 0, 0);
    while !done.load(Ordering::Relaxed) {
        let len = match from.recv(&mut bytes) {
            Ok(len) => len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) => panic!("{error}"),
        };
        number += 1;
        if every.is_some_and(|every| number % every == 0 && number <= LAST_DROPPED) {
            dropped += 1;
            continue;
        }
        // Fails while nobody receives.
        let _ = from.send_to(&bytes[..len], (Ipv4Addr::LOCALHOST, to));
    }
    dropped
}
