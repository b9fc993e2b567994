// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counted trials of a sender's door: attempts without the code, with altered proofs and with overheard ones get neither a session nor a
//! frame, and every viewer with the code gets one. All on the loopback interface.
//!
//! `FRAMEPATH_TRIALS` is the number of the trials that take long: altered proofs, whose answers the sender delays, and viewers.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use framepath_model::access_unit::Coding;
use framepath_net::{
    JitterDepth, PairingCode, ReceivedItem, ReceiverOptions, SenderCounts, SenderOptions, WhepReceiver,
    WhepSender,
};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

/// Number of attempts that the sender answers at once.
const FAST: usize = 1000;
/// Number of clients that attempt at the same time: fewer than the connections that a sender has at most.
const CLIENTS: usize = 12;

/// Returns the number of trials that take long.
fn slow() -> usize {
    let asked = std::env::var("FRAMEPATH_TRIALS").ok();
    asked.map_or(50, |count| count.parse().expect("a number of trials"))
}

fn sender() -> (WhepSender, PairingCode) {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let sender =
        WhepSender::new(SenderOptions { listen, token: None, coding: Coding::H264, bit_rates: None })
            .unwrap();
    let code = sender.pairing().unwrap().clone();
    (sender, code)
}

fn open(code: &PairingCode) -> Result<WhepReceiver, framepath_net::WebrtcError> {
    let options = ReceiverOptions {
        url: code.to_string(),
        token: None,
        latency: Duration::ZERO,
        timeout: Duration::from_secs(30),
        silence: Duration::from_secs(30),
        jitter: JitterDepth::Fixed(0),
        backlog: Duration::MAX,
    };
    WhepReceiver::open(&options, || false, || ())
}

/// Returns the first picture of a clip, with its parameter sets.
fn keyframe() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clips/h264-180p8-baseline.h264");
    let clip = fs::read(path).unwrap();
    let second = clip.windows(4).position(|bytes| bytes[..3] == [0, 0, 1] && bytes[3] & 0x1f == 1);
    clip[..second.unwrap()].to_vec()
}

/// Request of a viewer.
#[derive(Clone)]
struct Overheard {
    authorization: String,
    offer: String,
}

/// Reads one HTTP message; `None` if the other end closes the connection before.
fn message(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let whole = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = whole.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(whole);
            }
        }
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        text.extend_from_slice(&buffer[..count]);
    }
}

/// Opens a session through an observer of the network. Returns the viewer and the request that the observer has seen; without `passes_on`,
/// the sender never sees it, and there is no viewer.
fn overhear(code: &PairingCode, passes_on: bool) -> (Option<WhepReceiver>, Overheard) {
    let observer = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let seen = PairingCode { address: observer.local_addr().unwrap(), ..code.clone() };
    let viewer = thread::spawn(move || open(&seen).ok());
    let (mut stream, _) = observer.accept().unwrap();
    let request = message(&mut stream).unwrap();
    if passes_on {
        let mut sender = TcpStream::connect(code.address).unwrap();
        sender.write_all(request.as_bytes()).unwrap();
        let answer = message(&mut sender).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
        stream.write_all(answer.as_bytes()).unwrap();
    }
    drop(stream);
    let (head, offer) = request.split_once("\r\n\r\n").unwrap();
    let authorization = head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap();
    let overheard = Overheard { authorization: authorization.to_owned(), offer: offer.to_owned() };
    (viewer.join().unwrap(), overheard)
}

/// Posts a request from the loopback address with the last byte `host`. Returns the status of the answer. A sender that has too many
/// connections closes the oldest, mostly with the status 503: the client tries again.
fn post(to: SocketAddr, host: u8, request: &Overheard) -> u16 {
    (0..1000).find_map(|_| try_post(to, host, request)).expect("an answer")
}

fn try_post(to: SocketAddr, host: u8, request: &Overheard) -> Option<u16> {
    let client = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&client, &SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    connect(&client, &to).unwrap();
    let mut stream = TcpStream::from(client);
    let Overheard { authorization, offer } = request;
    let authorization = match authorization.as_str() {
        "" => String::new(),
        value => format!("Authorization: {value}\r\n"),
    };
    let head = format!("POST /whep HTTP/1.1\r\nHost: x\r\nContent-Type: application/sdp\r\n{authorization}");
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{offer}", offer.len()).as_bytes()).ok()?;
    let answer = message(&mut stream)?;
    let _ = stream.shutdown(Shutdown::Both);
    Some(answer[9..12].parse().unwrap()).filter(|status| *status != 503)
}

/// Makes `count` attempts by several clients at the same time, and returns how many had the status `expected`.
fn attempts(count: usize, expected: u16, attempt: impl Fn(usize, u8) -> u16 + Sync) -> usize {
    let (next, matching) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for client in 0..CLIENTS as u8 {
            let (next, matching, attempt) = (&next, &matching, &attempt);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let status = attempt(number, 2 + client);
                    matching.fetch_add(usize::from(status == expected), Ordering::Relaxed);
                }
            });
        }
    });
    matching.into_inner()
}

/// Sends frames until `is_over` returns true.
fn send_until(sender: &mut WhepSender, is_over: impl Fn() -> bool) {
    let frame = keyframe();
    for number in 0.. {
        if is_over() {
            return;
        }
        sender.send(&frame, number, number as u32 * 900).unwrap();
        thread::sleep(Duration::from_millis(10));
    }
}

/// Calls `attack` while the sender sends frames. No viewer got a session in this time, and none is left.
fn without_effect(sender: &mut WhepSender, attack: impl FnOnce() + Send) {
    let before = sender.counts();
    thread::scope(|scope| {
        let attacking = scope.spawn(attack);
        send_until(sender, || attacking.is_finished());
    });
    assert_eq!((sender.counts(), sender.watching()), (before, 0));
}

#[test]
fn attempts_without_a_code_get_no_session() {
    let (mut sender, code) = sender();
    let (_, overheard) = overhear(&code, false);
    let unpaired = Overheard { authorization: String::new(), ..overheard };
    without_effect(&mut sender, || {
        assert_eq!(attempts(FAST, 401, |_, host| post(code.address, host, &unpaired)), FAST);
    });
    assert_eq!(sender.counts(), SenderCounts::default());
}

#[test]
fn altered_proofs_get_no_session() {
    let (mut sender, code) = sender();
    let (_, overheard) = overhear(&code, false);
    let (_, other_code) = self::sender();
    let (_, of_other) = overhear(&other_code, false);
    let altered = |number: usize| {
        let mut request = overheard.clone();
        let digits = request.authorization.find(' ').unwrap() + 1;
        // The digits are 64 of the fingerprint, a space, and 64 of the proof.
        match number % 4 {
            kind @ (0 | 1) => {
                let at = digits + kind * 65 + number % 64;
                let digit = if &request.authorization[at..=at] == "0" { "1" } else { "0" };
                request.authorization.replace_range(at..=at, digit);
            }
            2 => request.offer = of_other.offer.clone(),
            _ => request.authorization = of_other.authorization.clone(),
        }
        request
    };
    let count = slow();
    without_effect(&mut sender, || {
        assert_eq!(attempts(count, 401, |number, host| post(code.address, host, &altered(number))), count);
    });
    assert_eq!(sender.counts(), SenderCounts::default());
}

#[test]
fn overheard_proofs_get_no_session() {
    let (mut sender, code) = sender();
    let (viewer, overheard) = overhear(&code, true);
    let until = Instant::now() + Duration::from_secs(30);
    while sender.watching() != 1 {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(5));
    }
    drop(viewer);
    while sender.watching() != 0 {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(5));
    }
    without_effect(&mut sender, || {
        assert_eq!(attempts(FAST, 409, |_, host| post(code.address, host, &overheard)), FAST);
    });
    assert_eq!(sender.counts().viewers, 1);
}

#[test]
fn every_viewer_with_the_code_gets_a_frame() {
    let (mut sender, code) = sender();
    let count = slow();
    let viewing = move || {
        let mut served = 0;
        for _ in 0..count {
            let viewer = open(&code).unwrap();
            let until = Instant::now() + Duration::from_secs(30);
            while Instant::now() < until {
                match viewer.recv().unwrap() {
                    ReceivedItem::Frame(frame) => {
                        served += usize::from(frame.frame.key);
                        break;
                    }
                    ReceivedItem::Nothing => thread::sleep(Duration::from_millis(1)),
                    ReceivedItem::End => break,
                }
            }
        }
        served
    };
    thread::scope(|scope| {
        let viewing = scope.spawn(viewing);
        send_until(&mut sender, || viewing.is_finished());
        assert_eq!(viewing.join().unwrap(), count);
    });
    assert_eq!(sender.counts().viewers, count as u64);
}
