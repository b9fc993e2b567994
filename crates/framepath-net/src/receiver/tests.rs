// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of receivers, with senders that behave badly. All on the loopback interface.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};

use super::*;
use crate::pairing::{ANSWER_PROOF, PairingClaim, TOKEN};

/// Answers a viewer's offer. Without `has_ledger`, the sender exchanges no ledger.
fn answered(
    listener: &TcpListener,
    identity: &Identity,
    code: &PairingCode,
    has_ledger: bool,
) -> (WebrtcPeer, MediaSocket) {
    let (mut viewer, _) = listener.accept().unwrap();
    let (mut request, mut bytes) = (String::new(), [0; 16 << 10]);
    let has_all = |request: &str| {
        let length = request.to_lowercase().lines().find_map(|line| {
            line.strip_prefix("content-length: ").and_then(|length| length.parse::<usize>().ok())
        });
        let body = request.split_once("\r\n\r\n").map(|(_, body)| body.len());
        body.is_some() && body == length
    };
    while !has_all(&request) {
        let len = viewer.read(&mut bytes).unwrap();
        request.push_str(std::str::from_utf8(&bytes[..len]).unwrap());
    }
    let mut offer = request.split_once("\r\n\r\n").unwrap().1.to_owned();
    if !has_ledger {
        offer = offer.replace(crate::ledger_channel::LEDGER_ATTRIBUTE, "a=other");
    }
    let socket = MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let local = socket.local_addr().unwrap();
    let (peer, answer) = WebrtcPeer::accept(&offer, None, (Coding::H264, None), identity, local).unwrap();
    let header = request.lines().find_map(|line| line.strip_prefix("authorization: "));
    let claim = header.and_then(|header| PairingClaim::from_header(header.as_bytes()));
    let proof = claim.map(|claim| code.answer_header(&claim.proof, &answer).unwrap()).unwrap_or_default();
    let (length, head) = (answer.len(), "HTTP/1.1 201 Created\r\nContent-Type: application/sdp");
    write!(viewer, "{head}\r\n{ANSWER_PROOF}: {proof}\r\nContent-Length: {length}\r\n\r\n{answer}").unwrap();
    (peer, socket)
}

/// Sender that closes the session once it is open, without a message about the end.
fn close_without_message((mut peer, socket): (WebrtcPeer, MediaSocket)) {
    let channels = if peer.has_ledger() { 2 } else { 0 };
    let (mut open, mut is_connected) = (0, false);
    let until = Instant::now() + Duration::from_secs(20);
    while peer.is_alive() {
        assert!(Instant::now() < until);
        peer.step(&socket, |event| {
            open += usize::from(matches!(event, PeerEvent::LedgerOpen(_)));
            is_connected |= matches!(event, PeerEvent::Connected);
        });
        if is_connected && open == channels {
            peer.close();
        }
    }
}

/// Sender that answers the viewer's requests of ICE for longer than the viewer waits, and does not take part in the handshake.
fn answer_only_ice((mut peer, socket): (WebrtcPeer, MediaSocket)) {
    let until = Instant::now() + 3 * SILENCE;
    while Instant::now() < until {
        let mut received = ReceiveBuffer::new();
        while let Some(datagram) = socket.recv(&mut received).unwrap() {
            if datagram.bytes[0] < 4 {
                peer.recv(&datagram, Instant::now()).unwrap();
            }
        }
        peer.drive(Instant::now(), &socket, |_| ()).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
}

/// Longest time without a datagram that the viewer of [`end`] waits.
const SILENCE: Duration = Duration::from_secs(2);

/// Returns how a viewer's stream ends whose sender acts in this way.
fn end(
    has_code: bool,
    has_ledger: bool,
    act: fn((WebrtcPeer, MediaSocket)),
) -> Result<ReceivedItem, WebrtcError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let identity = Identity::new().unwrap();
    let code = PairingCode { address, fingerprint: identity.fingerprint, token: [1; TOKEN] };
    let options = ReceiverOptions {
        url: if has_code { code.to_string() } else { format!("http://{address}{ENDPOINT}") },
        token: None,
        latency: Duration::ZERO,
        timeout: Duration::from_secs(10),
        silence: SILENCE,
        jitter: JitterDepth::Adaptive,
        backlog: Duration::MAX,
    };
    thread::scope(|scope| {
        scope.spawn(|| act(answered(&listener, &identity, &code, has_ledger)));
        let viewer = WhepReceiver::open(&options, || false, || ()).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while !viewer.has_news() {
            assert!(Instant::now() < until);
            thread::sleep(Duration::from_millis(1));
        }
        viewer.recv()
    })
}

#[test]
fn a_session_that_is_not_established_ends() {
    let end = end(false, true, answer_only_ice);
    assert!(matches!(end, Err(WebrtcError::NotConnected { .. })), "{end:?}");
}

#[test]
fn a_sender_with_a_ledger_or_a_code_must_say_how_the_stream_ends() {
    for (has_code, has_ledger) in [(false, true), (true, true), (true, false)] {
        let end = end(has_code, has_ledger, close_without_message);
        assert!(matches!(end, Err(WebrtcError::EndedWithoutReason)), "{has_code} {has_ledger} {end:?}");
    }
    let end = end(false, false, close_without_message);
    assert!(matches!(end, Ok(ReceivedItem::End)), "{end:?}");
}

#[test]
fn a_frame_needs_more_memory_than_its_bytes() {
    let mut bytes = Vec::with_capacity(1000);
    bytes.extend([0, 0, 1, 0x41]);
    let frame =
        ReassembledFrame { bytes, time: 0, key: false, arrived_ns: 0, last_arrived_ns: 0, number: None };
    let frame = ReceivedFrame { frame, taken_ns: 0, whole_ns: 0, cpu_ns: 0, released_ns: 0 };
    assert!(frame.memory() >= 1000 + 5 * size_of::<u64>(), "{}", frame.memory());
}
