// SPDX-License-Identifier: MIT OR Apache-2.0
//! Proxy between a viewer and a sender: passes on the WHEP request with another port for the video, and the datagrams
//! of that port without some of them, or at a limited rate. Keeps their order.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Interval of looks at the end of the test.
const INTERVAL: Duration = Duration::from_millis(50);

/// Running proxy of one viewer.
pub struct Proxy {
    /// Endpoint for the viewer.
    pub url: String,
    done: Arc<AtomicBool>,
    relay: JoinHandle<u64>,
}

impl Proxy {
    /// Starts the proxy of the sender at `port`; it drops the first packet of the frame with number `frame`, from 0,
    /// but not the packet that is sent again.
    pub fn start(port: u16, frame: usize) -> Proxy {
        Proxy::with(port, move |socket, stop| pass_datagrams(&socket, port, frame, &stop))
    }

    /// Starts the proxy of the sender at `port`; the way to the viewer carries `bits` per second, and its queue `queue_ms` milliseconds
    /// of this. Further datagrams are dropped.
    pub fn slow(port: u16, bits: u32, queue_ms: u64) -> Proxy {
        let queue = Duration::from_millis(queue_ms);
        Proxy::with(port, move |socket, stop| pass_slowly(&socket, port, bits.into(), queue, &stop))
    }

    fn with(port: u16, relay: impl FnOnce(UdpSocket, Arc<AtomicBool>) -> u64 + Send + 'static) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let own = socket.local_addr().unwrap().port();
        let url = format!("http://{}/whep", listener.local_addr().unwrap());
        thread::spawn(move || pass_request(&listener, port, own));
        let done = Arc::<AtomicBool>::default();
        let stop = done.clone();
        let relay = thread::spawn(move || relay(socket, stop));
        Proxy { url, done, relay }
    }

    /// Ends the proxy, and returns the number of dropped packets.
    pub fn end(self) -> u64 {
        self.done.store(true, Ordering::Relaxed);
        self.relay.join().unwrap()
    }
}

/// Passes on one request to `port`; the answer names the port `own` for the video.
fn pass_request(listener: &TcpListener, port: u16, own: u16) {
    let (mut viewer, _) = listener.accept().unwrap();
    let mut sender = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let (mut request, mut bytes) = (Vec::new(), [0; 4096]);
    // The viewer leaves its side open.
    let is_whole = |request: &[u8]| {
        let text = String::from_utf8_lossy(request).to_ascii_lowercase();
        let (head, body) = text.split_once("\r\n\r\n")?;
        let size: usize = head.split_once("content-length: ")?.1.split("\r\n").next()?.parse().ok()?;
        (body.len() >= size).then_some(())
    };
    while is_whole(&request).is_none() {
        let len = viewer.read(&mut bytes).unwrap();
        assert!(len > 0, "the request is cut off");
        request.extend_from_slice(&bytes[..len]);
    }
    sender.write_all(&request).unwrap();
    let mut answer = String::new();
    sender.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let body = body.replace(&format!(" {port} typ host"), &format!(" {own} typ host"));
    let lines = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("content-length"));
    let head = lines.collect::<Vec<_>>().join("\r\n");
    write!(viewer, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
}

/// RTP timestamp and synchronisation source of a datagram; `None` if it is not RTP. The header is not encrypted.
fn rtp(bytes: &[u8]) -> Option<(u32, u32)> {
    let is_rtp = bytes.len() > 12 && (128..192).contains(&bytes[0]) && !(192..224).contains(&bytes[1]);
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    is_rtp.then(|| (word(4), word(8)))
}

fn pass_datagrams(socket: &UdpSocket, port: u16, frame: usize, done: &AtomicBool) -> u64 {
    socket.set_read_timeout(Some(INTERVAL)).unwrap();
    let sender = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let (mut viewer, mut stream, mut dropped) = (None, None, 0);
    let (mut times, mut bytes) = (Vec::new(), vec![0; 65_536]);
    while !done.load(Ordering::Relaxed) {
        let (len, source) = match socket.recv_from(&mut bytes) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) => panic!("{error}"),
        };
        let bytes = &bytes[..len];
        if source != sender {
            viewer = Some(source);
            socket.send_to(bytes, sender).unwrap();
            continue;
        }
        // Packets that are sent again have a source of their own.
        if let Some((time, _)) = rtp(bytes).filter(|(_, source)| *stream.get_or_insert(*source) == *source) {
            if !times.contains(&time) {
                times.push(time);
                if times.len() == frame + 1 {
                    dropped += 1;
                    continue;
                }
            }
        }
        // Fails once the viewer has ended.
        let _ = socket.send_to(bytes, viewer.unwrap());
    }
    dropped
}

fn pass_slowly(socket: &UdpSocket, port: u16, bits: f64, queue: Duration, done: &AtomicBool) -> u64 {
    let sender = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let (mut viewer, mut dropped, mut bytes) = (None, 0, vec![0; 65_536]);
    // Datagrams on their way, each with the time of its arrival.
    let mut waiting = VecDeque::<(Instant, Vec<u8>)>::new();
    let mut idle_from = Instant::now();
    while !done.load(Ordering::Relaxed) {
        let now = Instant::now();
        let due = waiting.iter().take_while(|(at, _)| *at <= now).count();
        for (_, datagram) in waiting.drain(..due) {
            // Fails once the viewer has ended.
            let _ = socket.send_to(&datagram, viewer.unwrap());
        }
        let next = waiting.front().map_or(INTERVAL, |(at, _)| at.duration_since(now).min(INTERVAL));
        socket.set_read_timeout(Some(next.max(Duration::from_micros(1)))).unwrap();
        let (len, source) = match socket.recv_from(&mut bytes) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) => panic!("{error}"),
        };
        if source != sender {
            viewer = Some(source);
            socket.send_to(&bytes[..len], sender).unwrap();
            continue;
        }
        let begin = idle_from.max(Instant::now());
        if begin.duration_since(now) > queue {
            dropped += 1;
            continue;
        }
        idle_from = begin + Duration::from_secs_f64(len as f64 * 8.0 / bits);
        waiting.push_back((idle_from, bytes[..len].to_vec()));
    }
    dropped
}
