// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz target of a sender's HTTP server and UDP port, as a hostile peer uses them: requests with and without the token, offers, and
//! datagrams. Nobody who cannot finish the handshake watches, and the sender still answers behind each input.
#![no_main]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use framepath_model::access_unit::Coding;
use framepath_net::{SenderOptions, WhepSender};
use libfuzzer_sys::fuzz_target;

/// Token of the sender: with a wrong one, every answer would come a second late.
const TOKEN: &str = "fuzz";

fn sender() -> MutexGuard<'static, WhepSender> {
    static SENDER: OnceLock<Mutex<WhepSender>> = OnceLock::new();
    let sender = SENDER.get_or_init(|| {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options =
            SenderOptions { listen, token: Some(TOKEN.to_owned()), coding: Coding::H264, bit_rates: None };
        Mutex::new(WhepSender::new(options).expect("a free port"))
    });
    sender.lock().expect("no thread panicked")
}

/// Sends `bytes` and returns the answer, which may be empty.
fn ask(bytes: &[u8]) -> Vec<u8> {
    let address = sender().address();
    let mut stream = TcpStream::connect(address).expect("the server accepts connections");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let mut answer = Vec::new();
    // The server may have closed the connection.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let _ = stream.read_to_end(&mut answer);
    answer
}

fuzz_target!(|input: (u8, &[u8])| {
    let (kind, bytes) = input;
    let address = sender().address();
    match kind % 3 {
        0 => drop(ask(bytes)),
        1 => {
            let head =
                "POST /whep HTTP/1.1\r\nHost: x\r\nContent-Type: application/sdp\r\nAuthorization: Bearer";
            let head = format!("{head} {TOKEN}\r\nContent-Length: {}\r\n\r\n", bytes.len());
            drop(ask(&[head.as_bytes(), bytes].concat()));
        }
        _ => {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            // A datagram has a maximum size.
            let _ = socket.send_to(bytes, address);
        }
    }
    assert!(ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").starts_with(b"HTTP/1.1 404 "));
    assert_eq!(sender().watching(), 0);
});
