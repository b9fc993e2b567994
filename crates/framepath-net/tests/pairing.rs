// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairing codes with a real sender: who has the code gets a session, and nobody else. All on the loopback interface.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use framepath_model::access_unit::Coding;
use framepath_net::{PairingCode, ReceiverOptions, SenderOptions, WebrtcError, WhepReceiver, WhepSender};

fn sender() -> (WhepSender, PairingCode) {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let sender =
        WhepSender::new(SenderOptions { listen, token: None, coding: Coding::H264, bit_rates: None })
            .unwrap();
    let code = sender.pairing().unwrap().clone();
    (sender, code)
}

fn open(url: &str, token: Option<&str>) -> Result<WhepReceiver, WebrtcError> {
    let options = ReceiverOptions {
        url: url.to_owned(),
        token: token.map(str::to_owned),
        latency: Duration::ZERO,
        timeout: Duration::from_secs(10),
        silence: Duration::from_secs(10),
        jitter: framepath_net::JitterDepth::Adaptive,
        backlog: Duration::MAX,
    };
    WhepReceiver::open(&options, || false, || ())
}

/// Waits until `count` viewers watch.
fn until_watching(sender: &WhepSender, count: usize) {
    let until = Instant::now() + Duration::from_secs(20);
    while sender.watching() != count {
        assert!(Instant::now() < until, "{} viewers, not {count}", sender.watching());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_code_opens_a_session_as_often_as_it_is_used() {
    let (sender, code) = sender();
    assert_eq!(code.address, sender.address());
    let first = open(&code.to_string(), None).unwrap();
    until_watching(&sender, 1);
    drop(first);
    until_watching(&sender, 0);
    let _second = open(&code.to_string(), None).unwrap();
    until_watching(&sender, 1);
}

#[test]
fn who_has_another_code_gets_no_session() {
    let (sender, code) = sender();
    let (other, other_code) = self::sender();
    let wrong = [
        PairingCode { token: other_code.token, ..code.clone() },
        PairingCode { fingerprint: other_code.fingerprint, ..code.clone() },
        PairingCode { address: code.address, ..other_code },
    ];
    for wrong in wrong {
        let refused = open(&wrong.to_string(), None).err();
        assert!(matches!(refused, Some(WebrtcError::Refused { status: 401, .. })), "{refused:?}");
        let text = refused.unwrap().to_string();
        assert!(
            text.contains("the pairing code is not valid, or no longer") && !text.contains("token="),
            "{text}"
        );
    }
    assert_eq!((sender.counts().viewers, other.counts().viewers), (0, 0));
}

#[test]
fn wrong_tokens_keep_nobody_out_who_has_the_code() {
    let (sender, code) = sender();
    let post = || {
        let mut stream = TcpStream::connect(sender.address()).unwrap();
        write!(
            stream,
            "POST /whep HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nContent-Length: 0\r\n\r\n"
        )
        .unwrap();
        stream
    };
    let status = |stream: &mut TcpStream| {
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[9..]).into_owned()
    };
    // Four of five wait for their answers, and one of them is refused at once, whichever comes last. On a busy computer the first
    // may have waited its time before the last one comes; then again.
    let one_is_refused = (0..20).any(|_| {
        let five = [(); 5].map(|()| post());
        let (answers, first_answer) = channel();
        for mut stream in five {
            let answers = answers.clone();
            std::thread::spawn(move || answers.send(status(&mut stream)));
        }
        first_answer.recv().unwrap() == "429"
    });
    assert!(one_is_refused);
    let _viewer = open(&code.to_string(), None).unwrap();
    until_watching(&sender, 1);
}

#[test]
fn the_user_of_a_sender_sees_and_ends_viewers() {
    let (sender, code) = sender();
    let control = sender.control();
    assert!(control.viewers().is_empty() && !control.end(1));
    let [first, second] = [(); 2].map(|()| open(&code.to_string(), None).unwrap());
    until_watching(&sender, 2);
    let viewers = control.viewers();
    let shown: Vec<_> = viewers.iter().map(|viewer| (viewer.number, viewer.address, viewer.sent)).collect();
    let loopback = Ipv4Addr::LOCALHOST.into();
    assert_eq!(shown, [(1, loopback, 0), (2, loopback, 0)]);
    let ended = |viewer: &WhepReceiver| {
        let until = Instant::now() + Duration::from_secs(20);
        while !viewer.has_news() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
        viewer.recv().unwrap_err()
    };
    assert!(control.end(1));
    assert!(matches!(ended(&first), WebrtcError::EndedBySender));
    until_watching(&sender, 1);
    assert_eq!(control.viewers()[0].number, 2);
    // The code admits viewers again.
    let third = open(&code.to_string(), None).unwrap();
    until_watching(&sender, 2);
    assert_eq!(control.end_all(), 2);
    assert!([&second, &third].iter().all(|viewer| matches!(ended(viewer), WebrtcError::EndedBySender)));
    until_watching(&sender, 0);
}

#[test]
fn the_end_of_the_stream_is_no_error() {
    let (mut sender, code) = sender();
    let viewer = open(&code.to_string(), None).unwrap();
    until_watching(&sender, 1);
    sender.end(|| true);
    let until = Instant::now() + Duration::from_secs(20);
    while !viewer.has_news() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(matches!(viewer.recv(), Ok(framepath_net::ReceivedItem::End)));
}

#[test]
fn a_mistyped_code_is_no_url() {
    let text = sender().1.to_string();
    let error = open(&text[..text.len() - 1], None).err().unwrap();
    assert_eq!(error.to_string(), "the pairing code is incomplete or has a wrong character");
}

#[test]
fn an_answer_that_was_changed_on_the_way_is_refused() {
    let (sender, code) = sender();
    // The number of a header extension, an added candidate, a cut line; and without a change.
    let changes: [(&str, &str); 4] = [
        ("a=extmap:6 ", "a=extmap:7 "),
        ("a=mid:", "a=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\na=mid:"),
        ("a=framepath-ledger:4\r\n", ""),
        ("\u{0}", "\u{0}"),
    ];
    for (part, changed) in changes {
        let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let seen = PairingCode { address: proxy.local_addr().unwrap(), ..code.clone() };
        let viewer = std::thread::spawn(move || open(&seen.to_string(), None));
        let (mut client, _) = proxy.accept().unwrap();
        let mut server = TcpStream::connect(sender.address()).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let mut answer = String::new();
        server.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let body_sent = body.replacen(part, changed, 1);
        assert_eq!(body_sent == body, part == changed, "{body}");
        let length = |body: &str| format!("content-length: {}", body.len());
        let head = head.replace(&length(body), &length(&body_sent));
        client.write_all(format!("{head}\r\n\r\n{body_sent}").as_bytes()).unwrap();
        drop(client);
        let opened = viewer.join().unwrap().map(|_| ());
        if part == changed {
            opened.unwrap();
        } else {
            assert!(matches!(opened, Err(WebrtcError::ForeignAnswer)), "{opened:?}");
        }
    }
}

#[test]
fn a_sender_on_all_addresses_has_viewers_of_both_kinds() {
    let listen = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let token = Some("secret".to_owned());
    let sender =
        WhepSender::new(SenderOptions { listen, token, coding: Coding::H264, bit_rates: None }).unwrap();
    let port = sender.address().port();
    let viewers =
        ["127.0.0.1", "[::1]"].map(|host| open(&format!("http://{host}:{port}/whep"), Some("secret")));
    assert!(viewers.iter().all(Result::is_ok));
    until_watching(&sender, 2);
}

#[test]
fn a_sender_with_a_token_of_the_caller_has_no_code() {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let options =
        SenderOptions { listen, token: Some("secret".to_owned()), coding: Coding::H264, bit_rates: None };
    let sender = WhepSender::new(options).unwrap();
    assert_eq!(sender.pairing(), None);
    let url = format!("http://{}/whep", sender.address());
    let _viewer = open(&url, Some("secret")).unwrap();
    until_watching(&sender, 1);
}

/// Accepts a connection, and reads the offer. Returns both.
fn read_offer(server: &TcpListener) -> (TcpStream, Vec<u8>) {
    let (mut stream, _) = server.accept().unwrap();
    let mut request = Vec::new();
    // The offer ends with a line of its own; what comes behind does not matter here.
    let mut buffer = [0; 65536];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") || !request.ends_with(b"\r\n") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0);
        request.extend_from_slice(&buffer[..count]);
    }
    (stream, request)
}

#[test]
fn an_offer_is_sent_again_while_the_server_has_no_time() {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/whep", server.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        // The last one wants more patience than the viewer has.
        let headers = ["Retry-After: 0\r\n", "Retry-After: 1\r\n", "Retry-After: 18446744073709551615\r\n"];
        headers.map(|header| {
            let (mut stream, offer) = read_offer(&server);
            write!(stream, "HTTP/1.1 503 Service Unavailable\r\n{header}Content-Length: 0\r\n\r\n").unwrap();
            offer
        })
    });
    let refused = open(&url, None).err();
    assert!(matches!(refused, Some(WebrtcError::Refused { status: 503, .. })), "{refused:?}");
    let [first, second, third] = serving.join().unwrap();
    assert!(first == second && second == third);
}

#[test]
fn an_offer_goes_where_the_server_says_and_the_token_stays_here() {
    let [here, there] = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let url = |server: &TcpListener| format!("http://{}/whep", server.local_addr().unwrap());
    let (first, other) = (url(&here), format!("{}?x=1", url(&there)));
    let serving = std::thread::spawn(move || {
        let locations = [&["/second", other.as_str(), "/third"], &["/whep"; 5][..]].concat();
        let servers = [&[&here; 2], &[&there; 6][..]].concat();
        let requests = servers.into_iter().zip(locations).map(|(server, location)| {
            let (mut stream, offer) = read_offer(server);
            write!(
                stream,
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
            )
            .unwrap();
            let head = String::from_utf8_lossy(&offer).into_owned();
            let line = head.lines().next().unwrap().to_owned();
            (line, head.to_lowercase().contains("authorization: bearer secret"))
        });
        requests.collect::<Vec<_>>()
    });
    let refused = open(&first, Some("secret")).err();
    assert!(matches!(refused, Some(WebrtcError::Refused { status: 307, .. })), "{refused:?}");
    let expected = [
        ("/whep", true),
        ("/second", true),
        ("/whep?x=1", false),
        ("/third", false),
        ("/whep", false),
        ("/whep", false),
        ("/whep", false),
        ("/whep", false),
    ];
    let expected = expected.map(|(path, has_token)| (format!("POST {path} HTTP/1.1"), has_token));
    assert_eq!(serving.join().unwrap(), expected);
}

#[test]
fn an_answer_is_whole_although_the_server_closes_behind_it() {
    for size in [100, 5_000, 60_000] {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}/whep", server.local_addr().unwrap());
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = read_offer(&server);
            let body = "x".repeat(size);
            let head = format!("HTTP/1.1 201 Created\r\nContent-Length: {size}\r\n\r\n");
            stream.write_all((head + &body).as_bytes()).unwrap();
        });
        let error = open(&url, None).err().unwrap().to_string();
        serving.join().unwrap();
        assert!(error.starts_with("session description: "), "{size}: {error}");
    }
}
