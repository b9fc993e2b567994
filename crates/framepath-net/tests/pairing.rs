// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairing codes with a real sender: who has the code gets a session, and nobody else. All on the loopback interface.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
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
    }
    assert_eq!((sender.counts().viewers, other.counts().viewers), (0, 0));
}

#[test]
fn a_mistyped_code_is_no_url() {
    let text = sender().1.to_string();
    let error = open(&text[..text.len() - 1], None).err().unwrap();
    assert_eq!(error.to_string(), "the pairing code is incomplete or has a wrong character");
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

#[test]
fn an_answer_is_whole_although_the_server_closes_behind_it() {
    for size in [100, 5_000, 60_000] {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}/whep", server.local_addr().unwrap());
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut request = Vec::new();
            // The offer ends with a line of its own; what comes behind does not matter here.
            let mut buffer = [0; 65536];
            while !request.windows(4).any(|end| end == b"\r\n\r\n") || !request.ends_with(b"\r\n") {
                let count = stream.read(&mut buffer).unwrap();
                request.extend_from_slice(&buffer[..count]);
            }
            let body = "x".repeat(size);
            let head = format!("HTTP/1.1 201 Created\r\nContent-Length: {size}\r\n\r\n");
            stream.write_all((head + &body).as_bytes()).unwrap();
        });
        let error = open(&url, None).err().unwrap().to_string();
        serving.join().unwrap();
        assert!(error.starts_with("session description: "), "{size}: {error}");
    }
}
