// SPDX-License-Identifier: MIT OR Apache-2.0
//! Proxy between a viewer and a sender: passes on the WHEP request with another port for the video, and the datagrams
//! of that port without some of them, late, or at a limited rate. Keeps their order.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Interval of looks at the end of the test.
const INTERVAL: Duration = Duration::from_millis(50);

/// Packets that a proxy drops of those that the sender sends.
#[derive(Clone, Copy)]
pub enum Dropped {
    /// The first packet of the frame with this number, from 0, but not the packet that is sent again.
    FirstOf(usize),
    /// One of so many packets, those that are sent again included; but none of the frames from this number on.
    OneOf(usize, usize),
    /// All of the frames from this number on, those that are sent again included.
    AllFrom(usize),
    /// All of the frames before this number, those that are sent again included.
    AllBefore(usize),
    /// None.
    Nothing,
    /// All, and those of the viewer; only requests pass.
    All,
}

/// State that a proxy shares with its threads.
#[derive(Default)]
struct ProxySwitch {
    done: AtomicBool,
    /// True while nothing passes.
    is_cut: AtomicBool,
    /// Number of frames of which a packet has passed.
    frames: AtomicUsize,
    /// Number of dropped packets, without those of a cut.
    dropped: AtomicU64,
}

/// Running proxy. Each request gets a port of its own for the video, as behind a router.
pub struct Proxy {
    /// Endpoint for the viewer.
    pub url: String,
    switch: Arc<ProxySwitch>,
}

impl Proxy {
    /// Starts the proxy of the sender at `port`.
    pub fn start(port: u16, drops: Dropped) -> Proxy {
        Proxy::with(port, move |socket, switch| pass_datagrams(socket, port, drops, switch))
    }

    /// Starts the proxy of the sender at `port`; the way to the viewer carries `bits` per second, and its queue `queue_ms` milliseconds
    /// of this. Further datagrams are dropped.
    pub fn slow(port: u16, bits: u32, queue_ms: u64) -> Proxy {
        let queue = Duration::from_millis(queue_ms);
        Proxy::with(port, move |socket, switch| pass_slowly(socket, port, bits.into(), queue, switch))
    }

    /// Starts the proxy of the sender at `port`; each way takes `delay`.
    pub fn late(port: u16, delay: Duration, drops: Dropped) -> Proxy {
        Proxy::with(port, move |socket, switch| pass_late(socket, port, delay, drops, switch))
    }

    fn with(port: u16, relay: impl Fn(&UdpSocket, &ProxySwitch) + Clone + Send + 'static) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}/whep", listener.local_addr().unwrap());
        let switch = Arc::<ProxySwitch>::default();
        let shared = switch.clone();
        thread::spawn(move || {
            for viewer in listener.incoming() {
                if shared.is_cut.load(Ordering::Relaxed) {
                    continue;
                }
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                let own = socket.local_addr().unwrap().port();
                let (relay, switch) = (relay.clone(), shared.clone());
                thread::spawn(move || relay(&socket, &switch));
                pass_request(viewer.unwrap(), port, own);
            }
        });
        Proxy { url, switch }
    }

    /// Returns the number of frames of which a packet has passed.
    pub fn frames(&self) -> usize {
        self.switch.frames.load(Ordering::Relaxed)
    }

    /// Lets nothing pass from now on, or everything again.
    pub fn cut(&self, is_cut: bool) {
        self.switch.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// Ends the proxy, and returns the number of dropped packets, without those of a cut.
    pub fn end(self) -> u64 {
        self.switch.done.store(true, Ordering::Relaxed);
        self.switch.dropped.load(Ordering::Relaxed)
    }
}

/// Passes on one request to `port`; the answer names the port `own` for the video. Closes the connection if the sender does not
/// listen.
fn pass_request(mut viewer: TcpStream, port: u16, own: u16) {
    let Ok(mut sender) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
    let (mut request, mut bytes) = (Vec::new(), [0; 4096]);
    // The viewer leaves its side open.
    let is_whole = |request: &[u8]| {
        let text = String::from_utf8_lossy(request).to_ascii_lowercase();
        let (head, body) = text.split_once("\r\n\r\n")?;
        let size: usize = head.split_once("content-length: ")?.1.split("\r\n").next()?.parse().ok()?;
        (body.len() >= size).then_some(())
    };
    while is_whole(&request).is_none() {
        let len = viewer.read(&mut bytes).unwrap_or(0);
        if len == 0 {
            // The viewer has ended.
            return;
        }
        request.extend_from_slice(&bytes[..len]);
    }
    sender.write_all(&request).unwrap();
    let mut answer = String::new();
    let Ok(_) = sender.read_to_string(&mut answer) else { return };
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return };
    let body = body.replace(&format!(" {port} typ host"), &format!(" {own} typ host"));
    let lines = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("content-length"));
    let head = lines.collect::<Vec<_>>().join("\r\n");
    // Fails if the viewer has ended.
    let _ = write!(viewer, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
}

/// Largest part of SRTP behind the payload, bytes.
const TAG: usize = 16;

/// RTP timestamp and synchronisation source of a datagram; `None` if it is not RTP, or has no payload. The header is not encrypted.
fn rtp(bytes: &[u8]) -> Option<(u32, u32)> {
    let is_rtp = bytes.len() > 16 && (128..192).contains(&bytes[0]) && !(192..224).contains(&bytes[1]);
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    // With the header extension, whose length is in words.
    let header = || 16 + 4 * (word(12) as usize & 0xffff);
    (is_rtp && bytes.len() > header() + TAG).then(|| (word(4), word(8)))
}

fn pass_datagrams(socket: &UdpSocket, port: u16, drops: Dropped, switch: &ProxySwitch) {
    socket.set_read_timeout(Some(INTERVAL)).unwrap();
    let sender = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let (mut viewer, mut stream, mut packets) = (None, None, 0);
    let (mut times, mut bytes) = (Vec::new(), vec![0; 65_536]);
    while !switch.done.load(Ordering::Relaxed) {
        let (len, source) = match socket.recv_from(&mut bytes) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) => panic!("{error}"),
        };
        let bytes = &bytes[..len];
        if switch.is_cut.load(Ordering::Relaxed) || matches!(drops, Dropped::All) {
            continue;
        }
        if source != sender {
            viewer = Some(source);
            socket.send_to(bytes, sender).unwrap();
            continue;
        }
        if let Some((time, source)) = rtp(bytes) {
            packets += 1;
            // Packets that are sent again have a source of their own.
            let is_new = *stream.get_or_insert(source) == source && !times.contains(&time);
            if is_new {
                times.push(time);
                switch.frames.fetch_add(1, Ordering::Relaxed);
            }
            let drop = match drops {
                Dropped::FirstOf(frame) => is_new && times.len() == frame + 1,
                Dropped::OneOf(packet, end) => packets % packet == packet / 2 && times.len() <= end,
                Dropped::AllFrom(frame) => times.len() > frame,
                Dropped::AllBefore(frame) => times.iter().take(frame).any(|early| *early == time),
                Dropped::Nothing | Dropped::All => false,
            };
            if drop {
                switch.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
        }
        // Fails once the viewer has ended.
        let _ = socket.send_to(bytes, viewer.unwrap());
    }
}

fn pass_late(socket: &UdpSocket, port: u16, delay: Duration, drops: Dropped, switch: &ProxySwitch) {
    let sender = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let (mut viewer, mut bytes, mut times) = (None, vec![0; 65_536], Vec::new());
    // Datagrams on their way, each with its destination and the time of its arrival.
    let mut waiting = VecDeque::<(Instant, SocketAddr, Vec<u8>)>::new();
    while !switch.done.load(Ordering::Relaxed) {
        let now = Instant::now();
        let due = waiting.iter().take_while(|(at, ..)| *at <= now).count();
        for (_, destination, datagram) in waiting.drain(..due) {
            // Fails once the viewer has ended.
            let _ = socket.send_to(&datagram, destination);
        }
        let next = waiting.front().map_or(INTERVAL, |(at, ..)| at.duration_since(now).min(INTERVAL));
        socket.set_read_timeout(Some(next.max(Duration::from_micros(1)))).unwrap();
        let (len, source) = match socket.recv_from(&mut bytes) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) => panic!("{error}"),
        };
        let destination = if source == sender { viewer.unwrap() } else { sender };
        if source != sender {
            viewer = Some(source);
        } else if let Some((time, _)) = rtp(&bytes[..len]) {
            let is_new = !times.contains(&time);
            if is_new {
                times.push(time);
            }
            if is_new && matches!(drops, Dropped::FirstOf(frame) if times.len() == frame + 1) {
                switch.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
        }
        waiting.push_back((Instant::now() + delay, destination, bytes[..len].to_vec()));
    }
}

fn pass_slowly(socket: &UdpSocket, port: u16, bits: f64, queue: Duration, switch: &ProxySwitch) {
    let sender = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let (mut viewer, mut bytes) = (None, vec![0; 65_536]);
    // Datagrams on their way, each with the time of its arrival.
    let mut waiting = VecDeque::<(Instant, Vec<u8>)>::new();
    let mut idle_from = Instant::now();
    while !switch.done.load(Ordering::Relaxed) {
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
            switch.dropped.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        idle_from = begin + Duration::from_secs_f64(len as f64 * 8.0 / bits);
        waiting.push_back((idle_from, bytes[..len].to_vec()));
    }
}
