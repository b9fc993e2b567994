// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of sessions: two peers of one process.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::thread::sleep;

use str0m::change::SdpOffer;
use str0m::channel::ChannelConfig;

use super::missing_chunk::MOST_AHEAD;
use super::*;
use crate::ledger_channel::LEDGER_ATTRIBUTE;
use crate::media_socket::ReceiveBuffer;

impl WebrtcPeer {
    /// Passes on the datagrams that have arrived at `socket`, lets the session work, and sleeps for a millisecond.
    pub(crate) fn step(&mut self, socket: &MediaSocket, take: impl FnMut(PeerEvent)) {
        let mut received = ReceiveBuffer::new();
        while let Some(datagram) = socket.recv(&mut received).unwrap() {
            self.recv(&datagram, Instant::now()).unwrap();
        }
        self.drive(Instant::now(), socket, take).unwrap();
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn data_channels_are_opened_only_if_both_ends_know_them() {
    let (viewer, sender) = (Identity::new().unwrap(), Identity::new().unwrap());
    let local = (Ipv4Addr::LOCALHOST, 9).into();
    for (in_offer, in_answer) in [(true, true), (false, true), (true, false)] {
        let text = |text: String, is_kept: bool| {
            if is_kept { text } else { text.replace(LEDGER_ATTRIBUTE, "a=unknown:1") }
        };
        let mut accepted = 0;
        let peer = WebrtcPeer::offer(None, &viewer, local, |offer| {
            let coding = (Coding::H264, None);
            let (peer, answer) = WebrtcPeer::accept(&text(offer, in_offer), None, coding, &sender, local)?;
            accepted = peer.ledger.len();
            Ok(text(answer, in_answer))
        });
        let expected = if in_offer { (2, if in_answer { 2 } else { 0 }) } else { (0, 0) };
        assert_eq!((accepted, peer.unwrap().ledger.len()), expected);
    }
}

/// Returns whether each end of a [`session`] was connected.
fn connected(identities: [&Identity; 2], pinned: [Option<[u8; FINGERPRINT]>; 2]) -> [bool; 2] {
    session(identities, pinned).1
}

/// Runs a session on the loopback interface. The offer and the answer reach the other end unchanged; the ends accept only
/// certificates with these SHA-256. Returns both ends, the viewer first, whether each was connected within two seconds, and the
/// error that has ended the session.
pub(super) fn session(
    identities: [&Identity; 2],
    pinned: [Option<[u8; FINGERPRINT]>; 2],
) -> ([(WebrtcPeer, MediaSocket); 2], [bool; 2], Option<WebrtcError>) {
    session_with_loss(identities, pinned, Duration::from_secs(2), |_, _| false)
}

/// Runs a [`session`] with another time limit. The end with the given index does not get the datagrams for which `is_lost` returns
/// true.
fn session_with_loss(
    [viewer, sender]: [&Identity; 2],
    [pinned_sender, pinned_viewer]: [Option<[u8; FINGERPRINT]>; 2],
    limit: Duration,
    mut is_lost: impl FnMut(usize, &[u8]) -> bool,
) -> ([(WebrtcPeer, MediaSocket); 2], [bool; 2], Option<WebrtcError>) {
    let sockets = [(); 2].map(|()| MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap());
    let mut accepted = None;
    let local = sockets[0].local_addr().unwrap();
    let viewer = WebrtcPeer::offer(pinned_sender, viewer, local, |offer| {
        let local = sockets[1].local_addr()?;
        let (peer, answer) = WebrtcPeer::accept(&offer, pinned_viewer, (Coding::H264, None), sender, local)?;
        accepted = Some(peer);
        Ok(answer)
    });
    let [of_viewer, of_sender] = sockets;
    let mut ends = [(viewer.unwrap(), of_viewer), (accepted.unwrap(), of_sender)];
    let mut connected = [false; 2];
    let until = Instant::now() + limit;
    while Instant::now() < until && connected != [true; 2] {
        for (index, (peer, socket)) in ends.iter_mut().enumerate() {
            let mut buffer = ReceiveBuffer::new();
            while let Some(datagram) = socket.recv(&mut buffer).unwrap() {
                if is_lost(index, datagram.bytes) {
                    continue;
                }
                if let Err(error) = peer.recv(&datagram, Instant::now()) {
                    return (ends, connected, Some(error));
                }
            }
            let driven = peer.drive(Instant::now(), socket, |event| {
                connected[index] |= matches!(event, PeerEvent::Connected);
            });
            if let Err(error) = driven {
                return (ends, connected, Some(error));
            }
        }
        sleep(Duration::from_millis(1));
    }
    (ends, connected, None)
}

#[test]
fn a_lost_datagram_of_the_handshake_is_sent_again() {
    let identities = [(); 2].map(|()| Identity::new().unwrap());
    let [viewer, sender] = &identities;
    // Each datagram of DTLS that each end gets: at least two flights, of one datagram or more.
    let lost = |to: usize, number: usize| {
        let mut count = [0; 2];
        let is_lost = |index: usize, bytes: &[u8]| {
            let is_dtls = (20..64).contains(&bytes[0]);
            count[index] += usize::from(is_dtls);
            is_dtls && index == to && count[index] == number
        };
        let (_, connected, error) =
            session_with_loss([viewer, sender], [None; 2], Duration::from_secs(20), is_lost);
        assert!(error.is_none() && connected == [true; 2], "{to}, {number}: {connected:?}, {error:?}");
        assert!(count[to] > number, "{to}, {number}: {count:?}");
    };
    std::thread::scope(|scope| {
        for (to, number) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
            scope.spawn(move || lost(to, number));
        }
    });
}

#[test]
fn a_session_that_ends_before_its_data_channels_are_open_says_so() {
    let [viewer, sender] = [(); 2].map(|()| Identity::new().unwrap());
    for leaving in [0, 1] {
        let (mut ends, connected, _) = session([&viewer, &sender], [None, None]);
        assert_eq!(connected, [true; 2]);
        ends[leaving].0.close();
        let mut is_told = false;
        let until = Instant::now() + Duration::from_secs(20);
        while !is_told || ends[leaving].0.is_alive() {
            assert!(Instant::now() < until, "{leaving}: told: {is_told}");
            for (index, (peer, socket)) in ends.iter_mut().enumerate() {
                peer.step(socket, |event| {
                    is_told |= index != leaving && matches!(event, PeerEvent::Closed);
                });
            }
        }
    }
}

#[test]
fn both_ends_agree_on_feedback_about_arrivals_and_on_the_playout_delay() {
    let [viewer, sender] = [(); 2].map(|()| Identity::new().unwrap());
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let mut texts = Vec::new();
    let offered = WebrtcPeer::offer(None, &viewer, local, |offer| {
        let rates = (Coding::H264, Some(8_000_000));
        let (_, answer) = WebrtcPeer::accept(&offer, None, rates, &sender, local)?;
        texts = vec![offer, answer.clone()];
        Ok(answer)
    });
    assert!(offered.is_ok());
    for text in texts {
        for part in ["playout-delay", "transport-wide-cc-extensions", " transport-cc"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn a_session_needs_the_certificates_that_both_ends_expect() {
    let [viewer, sender, other] = [(); 3].map(|()| Identity::new().unwrap());
    let ends = [&viewer, &sender];
    let [of_viewer, of_sender] = ends.map(|identity| Some(identity.fingerprint));
    assert_eq!(connected(ends, [None, None]), [true; 2]);
    assert_eq!(connected(ends, [of_sender, of_viewer]), [true; 2]);
    // The end that expects another certificate is never connected, and says why.
    let (_, _, error) = session(ends, [Some(other.fingerprint), None]);
    assert!(matches!(error, Some(WebrtcError::ForeignCertificate)), "{error:?}");
    assert!(!connected(ends, [Some(other.fingerprint), None])[0]);
    assert!(!connected(ends, [None, Some(other.fingerprint)])[1]);
}

#[test]
fn forged_datagrams_end_no_session() {
    let [viewer, sender] = [(); 2].map(|()| Identity::new().unwrap());
    // A record of DTLS 1.2 whose length is 10, and far more bytes: OpenSSL leaves them in its buffer, and str0m panics over 30,000.
    let head = [23, 254, 253, 0, 1, 0, 0, 0, 0, 1, 0, 0, 10];
    let mut forged = vec![[&head[..], &[0xaa; 800]].concat()];
    // Whole records of each type, without encryption and with a wrong code of authentication; a fatal alert, and its warning.
    for (kind, epoch) in (20..=23).flat_map(|kind| [(kind, 0), (kind, 1), (kind, 2)]) {
        let head = [kind, 254, 253, 0, epoch, 0, 0, 0, 0, 9, 9, 0];
        forged.push([&head[..], &[48], &[kind; 48]].concat());
        forged.push([&head[..], &[2, 2, 40]].concat());
        forged.push([&head[..], &[2, 1, 0]].concat());
        forged.push([&head[..], &[0]].concat());
    }
    // STUN without integrity, RTP and RTCP.
    for first in [&[0, 1][..], &[1, 1], &[128, 96], &[128, 200], &[144, 205], &[129, 203]] {
        forged.extend([20, 40, 200].map(|size| [first, &vec![0; size - first.len()]].concat()));
    }
    for attacked in [0, 1] {
        let (mut ends, connected, _) = session([&viewer, &sender], [None, None]);
        assert_eq!(connected, [true; 2]);
        let source = ends[1 - attacked].1.local_addr().unwrap();
        let (peer, socket) = &mut ends[attacked];
        for bytes in (0..100).flat_map(|_| &forged) {
            let now = Instant::now();
            let taken = peer.recv(&Datagram { source, bytes, arrived_ns: 0 }, now);
            taken.unwrap_or_else(|error| panic!("{error}: {bytes:?}"));
            peer.drive(now, socket, |event| assert!(!matches!(event, PeerEvent::Closed), "{bytes:?}"))
                .unwrap();
        }
        assert!(peer.is_alive());
    }
}

/// Returns a STUN request (RFC 8445, section 7.2.5) that makes the sender of `answer` use the address from which it comes, as the viewer
/// of `offer` could send it.
fn nomination(offer: &str, answer: &str) -> Vec<u8> {
    let value = |text: &str, name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)).expect("an attribute").to_owned()
    };
    let user = format!("{}:{}", value(answer, "a=ice-ufrag:"), value(offer, "a=ice-ufrag:"));
    let mut request = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[7; 12]].concat();
    let mut push = |kind: u16, value: &[u8], finish: &dyn Fn(&[u8]) -> Vec<u8>| {
        let value = if value.is_empty() { vec![0; finish(&[]).len()] } else { value.to_vec() };
        request.extend(kind.to_be_bytes());
        request.extend((value.len() as u16).to_be_bytes());
        let at = request.len();
        request.extend(&value);
        request.resize(request.len().next_multiple_of(4), 0);
        // The length covers the attribute, and its value what is in front of it.
        let length = (request.len() - 20) as u16;
        request[2..4].copy_from_slice(&length.to_be_bytes());
        let finished = finish(&request[..at - 4]);
        request[at..at + finished.len()].copy_from_slice(&finished);
    };
    let none: &dyn Fn(&[u8]) -> Vec<u8> = &|_| Vec::new();
    push(0x0006, user.as_bytes(), none);
    push(0x0024, &[0x6e, 0, 1, 0xff], none);
    push(0x802a, &[9; 8], none);
    push(0x0025, &[], none);
    let key = openssl::pkey::PKey::hmac(value(answer, "a=ice-pwd:").as_bytes()).unwrap();
    push(0x0008, &[], &|bytes| {
        let sha1 = openssl::hash::MessageDigest::sha1();
        openssl::sign::Signer::new(sha1, &key).unwrap().sign_oneshot_to_vec(bytes).unwrap()
    });
    push(0x8028, &[], &|bytes| {
        let shifted = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        let crc =
            bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shifted(crc)));
        (!crc ^ 0x5354_554e).to_be_bytes().to_vec()
    });
    request
}

#[test]
fn who_has_seen_both_descriptions_cannot_lead_the_stream_away() {
    let [viewer, sender] = [(); 2].map(|()| Identity::new().unwrap());
    for is_connected in [false, true] {
        let sockets = [(); 2].map(|()| MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap());
        let [of_viewer, of_sender] = [0, 1].map(|end| sockets[end].local_addr().unwrap());
        let (mut accepted, mut request) = (None, Vec::new());
        let mut viewer = WebrtcPeer::offer(None, &viewer, of_viewer, |offer| {
            let (peer, answer) = WebrtcPeer::accept(&offer, None, (Coding::H264, None), &sender, of_sender)?;
            (accepted, request) = (Some(peer), nomination(&offer, &answer));
            Ok(answer)
        })
        .unwrap();
        let mut sender = accepted.unwrap();
        let mut connected = [!is_connected; 2];
        let until = Instant::now() + Duration::from_secs(20);
        while connected != [true; 2] {
            assert!(Instant::now() < until);
            for (end, peer) in [&mut viewer, &mut sender].into_iter().enumerate() {
                peer.step(&sockets[end], |event| connected[end] |= matches!(event, PeerEvent::Connected));
            }
        }
        let observer = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        observer.set_nonblocking(true).unwrap();
        let (mut got, mut diverted) = (0, Vec::new());
        for seq in 1..=20 {
            observer.send_to(&request, of_sender).unwrap();
            sender.write(seq, (None, 0), true, [1; 100].as_slice().into(), Instant::now());
            for _ in 0..5 {
                sender.step(&sockets[1], |_| ());
                let mut bytes = [0; 2000];
                while let Ok(len) = observer.recv(&mut bytes) {
                    diverted.push(bytes[..len].to_vec());
                }
                if is_connected {
                    viewer.step(&sockets[0], |event| {
                        got += usize::from(matches!(event, PeerEvent::Packet { .. }))
                    });
                }
            }
        }
        if is_connected {
            assert_eq!((got, diverted), (20, vec![]));
        } else {
            // The request is one that a session answers while it connects.
            assert!(diverted.iter().any(|answer| answer.starts_with(&[1, 1])), "{diverted:?}");
        }
    }
}

/// Lets both ends work at the time `now` until nothing arrives any more. The viewer does not get the packet
/// with the number `lost`. Returns the numbers and times of the packets that it gets.
fn exchange(ends: &mut [(WebrtcPeer, MediaSocket); 2], now: Instant, lost: u64) -> BTreeMap<u64, u64> {
    let (mut packets, mut is_idle) = (BTreeMap::new(), false);
    while !is_idle {
        is_idle = true;
        for index in [0, 1, 0] {
            let (peer, socket) = &mut ends[index];
            let mut take = |event| {
                if let PeerEvent::Packet { seq, time, .. } = event {
                    packets.insert(seq, time);
                }
            };
            peer.drive(now, socket, &mut take).unwrap();
            let mut buffer = ReceiveBuffer::new();
            // A datagram on the loopback interface is there when it is sent.
            while let Some(datagram) = socket.recv(&mut buffer).unwrap() {
                is_idle = false;
                let head = datagram.bytes;
                let is_video = head[0] >> 6 == 2 && head[1] & 0x7f == *peer.pt;
                let number = u16::from_be_bytes([head[2], head[3]]);
                if is_video && u64::from(number) == lost {
                    continue;
                }
                peer.recv(&datagram, now).unwrap();
                peer.drive(now, socket, &mut take).unwrap();
            }
        }
    }
    packets
}

#[test]
fn missing_packets_are_requested_at_once_and_not_too_often() {
    let [viewer, sender] = [(); 2].map(|()| Identity::new().unwrap());
    let (mut ends, connected, _) = session([&viewer, &sender], [None, None]);
    assert_eq!(connected, [true; 2]);
    // The clock stands still, so that no tick of str0m is due.
    let now = Instant::now() + Duration::from_secs(1);
    exchange(&mut ends, now, 0);
    let mut requested = Vec::new();
    for first in (0..10).map(|number| 10 * number + 1) {
        let payload: Arc<[u8]> = [0x41; 30].into();
        for seq in first..first + 10 {
            ends[1].0.write(seq, (None, first as u32), seq == first + 9, payload.clone(), now);
        }
        let lost = first + 5;
        let got = exchange(&mut ends, now, lost);
        assert!(!got.contains_key(&lost) && got.contains_key(&(first + 9)), "{got:?}");
        ends[0].0.request_missing(now).unwrap();
        requested.push(exchange(&mut ends, now, 0).contains_key(&lost));
    }
    // The last ones have to wait for the tick.
    assert_eq!(requested, [true, true, true, true, true, true, true, true, false, false]);
    let later = exchange(&mut ends, now + Duration::from_millis(300), 0);
    assert!(later.contains_key(&86) && later.contains_key(&96), "{later:?}");
}

#[test]
fn times_may_go_back_behind_a_pause() {
    let [viewer, sender] = [(); 2].map(|()| Identity::new().unwrap());
    let (mut ends, connected, _) = session([&viewer, &sender], [None, None]);
    assert_eq!(connected, [true; 2]);
    let payload: Arc<[u8]> = [0x41; 30].into();
    let now = Instant::now() + Duration::from_secs(1);
    ends[1].0.write(1, (None, 360_000), true, payload.clone(), now);
    let first = exchange(&mut ends, now, 0)[&1];
    // Longer than the time without packets after which str0m says that the stream has paused.
    let later = now + Duration::from_secs(2);
    exchange(&mut ends, later, 0);
    // A frame of two packets: the file begins again.
    ends[1].0.write(2, (None, 3600), false, payload.clone(), later);
    ends[1].0.write(3, (None, 3600), true, payload, later);
    let restarted = exchange(&mut ends, later, 0);
    assert_eq!(restarted, [2, 3].map(|seq| (seq, first - 356_400)).into());
}

#[test]
fn a_packet_is_encrypted_when_it_leaves_and_the_time_is_known() {
    let [viewer, plain] = [(); 2].map(|()| Identity::new().unwrap());
    let sender = Identity { crypto: slow_cipher::provider(), ..plain };
    let (mut ends, connected, _) = session([&viewer, &sender], [None, None]);
    assert_eq!(connected, [true; 2]);
    let payload: Arc<[u8]> = [0x41; 30].into();
    let wait_ns = slow_cipher::WAIT.as_nanos() as u64;
    // Two frames of packets; between both, the thread does something else.
    for first in [1, 11] {
        let written_ns = now_ns();
        for seq in first..first + 10 {
            ends[1].0.write(seq, (None, first as u32), seq == first + 9, payload.clone(), Instant::now());
        }
        let (peer, socket) = &mut ends[1];
        let mut sent = Vec::new();
        while sent.len() < 10 {
            let mut take = |event| {
                if let PeerEvent::Sent(packet) = event {
                    sent.push(packet);
                }
            };
            peer.drive(Instant::now(), socket, &mut take).unwrap();
        }
        let mut before_ns = written_ns;
        for packet in sent {
            let SentPacket { handed_ns, encrypt_ns, encrypt_cpu_ns, .. } = packet;
            // The whole wait of this packet, and no time of another one.
            assert!(encrypt_ns >= wait_ns && handed_ns - encrypt_ns >= before_ns, "{packet:?}");
            // The wait is no work.
            assert!(encrypt_cpu_ns < encrypt_ns, "{packet:?}");
            before_ns = handed_ns;
        }
    }
}

#[test]
fn a_viewer_gets_three_times_what_was_sent_at_most() {
    let [viewer, sender] = [(); 2].map(|()| Identity::new().unwrap());
    let (mut ends, connected, _) = session([&viewer, &sender], [None, None]);
    assert_eq!(connected, [true; 2]);
    let payload: Arc<[u8]> = [0x41; 900].into();
    let start = Instant::now() + Duration::from_secs(1);
    exchange(&mut ends, start, 0);
    let (first, last) = (1, 100);
    for seq in first..=last {
        ends[1].0.write(seq, (None, 3600), seq == last, payload.clone(), start);
    }
    // The viewer gets the first packet and the last, asks for the others five times, and loses all that are sent again.
    let mut again = 0;
    for round in 0..10 {
        let now = start + round * Duration::from_millis(60);
        for index in [1, 0, 1] {
            let (peer, socket) = &mut ends[index];
            peer.drive(now, socket, |_| ()).unwrap();
            let (other, socket) = &mut ends[1 - index];
            let mut buffer = ReceiveBuffer::new();
            while let Some(datagram) = socket.recv(&mut buffer).unwrap() {
                let bytes = datagram.bytes;
                let is_media = index == 1 && bytes[0] >> 6 == 2 && !(64..96).contains(&(bytes[1] & 0x7f));
                let is_video = is_media && bytes[1] & 0x7f == *other.pt;
                again += usize::from(is_media && !is_video);
                let number = u64::from(u16::from_be_bytes([bytes[2], bytes[3]]));
                if is_video && (number == first || number == last) || !is_media {
                    other.recv(&datagram, now).unwrap();
                }
            }
        }
    }
    assert!((200..=400).contains(&again), "{again} packets were sent again");
}

#[test]
fn packets_that_wait_to_be_sent_again_are_forgotten_if_there_are_too_many() {
    let [viewer, sender] = [(); 2].map(|()| Identity::new().unwrap());
    let (mut ends, connected, _) = session([&viewer, &sender], [None, None]);
    assert_eq!(connected, [true; 2]);
    let now = Instant::now() + Duration::from_secs(1);
    exchange(&mut ends, now, 0);
    for (first, asked, is_sent_again) in [(1, MOST_ASKED, true), (2001, MOST_ASKED + 1, false)] {
        let payload: Arc<[u8]> = [0x41; 30].into();
        let (lost, last) = (first + 5, first + 9);
        let write = |sender: &mut WebrtcPeer, seq| {
            sender.write(seq, (None, first as u32), seq == last, payload.clone(), now);
        };
        (first..=last).for_each(|seq| write(&mut ends[1].0, seq));
        assert!(!exchange(&mut ends, now, lost).contains_key(&lost));
        let (sender, socket) = &mut ends[1];
        (1..=asked as u64).for_each(|seq| write(sender, last + seq));
        // As if other packets waited than those that were written.
        sender.unsent = 0;
        sender.drive(now, socket, |_| ()).unwrap();
        let mut buffer = ReceiveBuffer::new();
        while ends[0].1.recv(&mut buffer).unwrap().is_some() {}
        ends[0].0.request_missing(now).unwrap();
        assert_eq!(exchange(&mut ends, now, 0).contains_key(&lost), is_sent_again, "{asked}");
    }
}

#[test]
fn many_data_channels_end_the_session() {
    let [viewer, sender] = [(); 2].map(|()| Identity::new().unwrap());
    for (channels, is_refused) in [(MOST_CHANNELS, false), (MOST_CHANNELS + 1, true)] {
        let (mut ends, connected, _) = session([&viewer, &sender], [None, None]);
        assert_eq!(connected, [true; 2]);
        for _ in 0..channels {
            ends[0].0.rtc.direct_api().create_data_channel(ChannelConfig::default());
        }
        let (mut now, mut refused) = (Instant::now(), false);
        for _ in 0..50 {
            now += Duration::from_millis(20);
            for index in [0, 1] {
                let (peer, socket) = &mut ends[index];
                let mut buffer = ReceiveBuffer::new();
                while let Some(datagram) = socket.recv(&mut buffer).unwrap() {
                    peer.recv(&datagram, now).unwrap();
                }
                refused |= matches!(peer.drive(now, socket, |_| ()), Err(WebrtcError::Channels));
            }
        }
        let opened = ends[1].0.foreign_channels;
        assert_eq!((refused, opened), (is_refused, channels), "{channels}");
    }
}

#[test]
fn a_peer_that_never_sends_a_chunk_cannot_have_all_others_kept() {
    const MESSAGES: u16 = 2 * MOST_AHEAD;
    let [plain, sender] = [(); 2].map(|()| Identity::new().unwrap());
    for (viewer, is_ended) in
        [(Identity { crypto: losing_dtls::provider(), ..plain.clone() }, true), (plain, false)]
    {
        let (mut ends, connected, _) = session([&viewer, &sender], [None, None]);
        assert_eq!(connected, [true; 2]);
        let (mut written, mut ended) = (0, None);
        // Each step is a millisecond of the session; an honest viewer's messages arrive sooner.
        let mut now = Instant::now();
        for _ in 0..20_000 {
            now += Duration::from_millis(1);
            if written < MESSAGES && ends[0].0.write_ledger(LedgerStream::Rows, b"x") {
                written += 1;
            }
            for (index, (peer, socket)) in ends.iter_mut().enumerate() {
                let mut buffer = ReceiveBuffer::new();
                while let Some(datagram) = socket.recv(&mut buffer).unwrap() {
                    peer.recv(&datagram, now).unwrap();
                }
                let driven = peer.drive(now, socket, |_| ());
                ended = ended.or(driven.err().map(|error| (index, error.to_string())));
            }
            if ended.is_some() {
                break;
            }
        }
        assert_eq!(ended.as_ref().map(|(index, _)| *index), is_ended.then_some(1), "{written}: {ended:?}");
        assert!(ended.is_some() || written == MESSAGES, "{written}");
    }
}

#[test]
fn a_server_gets_the_packets_of_a_published_stream() {
    let [publisher, server] = [(); 2].map(|()| Identity::new().unwrap());
    let sockets = [(); 2].map(|()| MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap());
    let [local, remote] = [0, 1].map(|index| sockets[index].local_addr().unwrap());
    let coding = Coding::Vp8;
    let mut accepted = None;
    let sender = WebrtcPeer::publish((coding, None), &publisher, local, |offer| {
        assert!(offer.contains("a=sendonly\r\n") && !offer.contains("m=application"), "{offer}");
        let now = Instant::now();
        let mut rtc = new_rtc(&[coding], true, &server, remote, None, now)?;
        let answer = rtc.sdp_api().accept_offer(SdpOffer::from_sdp_string(&offer).unwrap())?.to_sdp_string();
        let mid = Mid::from(answer.lines().find_map(|line| line.strip_prefix("a=mid:")).unwrap());
        let (pt, _) = payload_type(&rtc, mid, &[coding]).unwrap();
        accepted = Some(WebrtcPeer::new(rtc, &offer, remote, (mid, pt, coding), now));
        Ok(answer)
    });
    let (mut sender, mut server) = (sender.unwrap(), accepted.unwrap());
    let (mut connected, mut next, mut seqs) = ([false; 2], 1, Vec::new());
    let until = Instant::now() + Duration::from_secs(20);
    while seqs.len() < 3 {
        assert!(Instant::now() < until, "connected: {connected:?}, {seqs:?}");
        sender.step(&sockets[0], |event| connected[0] |= matches!(event, PeerEvent::Connected));
        server.step(&sockets[1], |event| match event {
            PeerEvent::Connected => connected[1] = true,
            PeerEvent::Packet { seq, .. } => seqs.push(seq),
            _ => {}
        });
        // One at a time, because a step takes all datagrams first, and str0m keeps the last packet of a source.
        if connected == [true; 2] && seqs.len() + 1 == next {
            sender.write(next as u64, (None, 9000), true, vec![0x10, 1, 2, 3].into(), Instant::now());
            next += 1;
        }
    }
    assert_eq!(seqs, [1, 2, 3]);
    // A server that does not take the codec, or the video.
    let refused = |codings: &[Coding], change: [&str; 2]| {
        let refused = WebrtcPeer::publish((coding, None), &publisher, local, |offer| {
            let mut rtc = new_rtc(codings, true, &publisher, remote, None, Instant::now())?;
            let answer = rtc.sdp_api().accept_offer(SdpOffer::from_sdp_string(&offer).unwrap())?;
            Ok(answer.to_sdp_string().replace(change[0], change[1]))
        });
        refused.err().map(|error| error.to_string())
    };
    let reason = Some("session description: the server does not take vp8".to_owned());
    assert_eq!(refused(&[coding], ["", ""]), None);
    for change in [["a=recvonly", "a=inactive"], ["a=recvonly", "a=sendonly"], ["m=video 9", "m=video 0"]] {
        assert_eq!(refused(&[coding], change), reason, "{change:?}");
    }
    assert!(refused(&[Coding::Av1], ["", ""]).is_some());
}
