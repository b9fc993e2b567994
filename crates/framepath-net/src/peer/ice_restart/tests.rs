// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of restarts: two peers of one process.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::*;
use crate::media_socket::MediaSocket;
use crate::peer::tests::session;
use crate::peer::{Identity, PeerEvent};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Session that is connected: the viewer, and the sender, each with its socket.
fn connected() -> [(WebrtcPeer, MediaSocket); 2] {
    let identities = [(); 2].map(|()| Identity::new().unwrap());
    let (ends, connected, error) = session([&identities[0], &identities[1]], [None; 2]);
    assert!(connected == [true; 2] && error.is_none(), "{connected:?}, {error:?}");
    ends
}

/// Sends frames until `count` of them have arrived at the viewer, and returns their sequence numbers.
fn exchange(ends: &mut [(WebrtcPeer, MediaSocket); 2], next: &mut u64, count: usize) -> Vec<u64> {
    let (mut seqs, until) = (Vec::new(), Instant::now() + Duration::from_secs(20));
    let [(viewer, of_viewer), (sender, of_sender)] = ends;
    while seqs.len() < count {
        assert!(Instant::now() < until, "{seqs:?}");
        sender.write(*next, (None, *next as u32 * 3000), true, vec![0x65, 1, 2, 3].into(), Instant::now());
        *next += 1;
        sender.step(of_sender, |_| {});
        viewer.step(of_viewer, |event| {
            if let PeerEvent::Packet { seq, .. } = event {
                seqs.push(seq);
            }
        });
    }
    seqs
}

/// Returns the sender's description of the viewer with this fragment, as text and as it is read.
fn offer_of(sender: &WebrtcPeer, fragment: &IceFragment) -> (SdpOffer, Arc<str>) {
    let description: Arc<str> = fragment.clone().without_candidates().merge_into(sender.description()).into();
    (crate::peer::read_offer(&description).unwrap(), description)
}

#[test]
fn a_stream_goes_on_at_another_socket() {
    let mut ends = connected();
    let mut next = 1;
    exchange(&mut ends, &mut next, 3);
    for _ in 0..2 {
        let socket = MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let [(viewer, of_viewer), (sender, of_sender)] = &mut ends;
        let restarted = viewer.restart(socket.local_addr().unwrap(), |fragment| {
            assert_eq!(fragment.candidates.len(), 1, "{fragment}");
            assert!(fragment.restarts(sender.description()));
            let fragment = IceFragment::read(&fragment.to_string()).unwrap();
            let offer = offer_of(sender, &fragment);
            let answer = sender.accept_restart(offer, of_sender.local_addr().unwrap(), LOOPBACK)?;
            assert!(!fragment.restarts(sender.description()));
            Ok(IceFragment::read(&answer.to_string()).unwrap())
        });
        restarted.unwrap();
        let before = std::mem::replace(of_viewer, socket);
        let first = next;
        let seqs = exchange(&mut ends, &mut next, 5);
        assert!(seqs.iter().all(|seq| *seq >= first), "{seqs:?}, {first}");
        // The sender has left the address before.
        while before.recv(&mut crate::media_socket::ReceiveBuffer::new()).unwrap().is_some() {}
        exchange(&mut ends, &mut next, 3);
        assert!(before.recv(&mut crate::media_socket::ReceiveBuffer::new()).unwrap().is_none());
    }
}

#[test]
fn a_viewer_moves_only_to_addresses_of_the_answer() {
    let mut ends = connected();
    let [(viewer, _), (sender, of_sender)] = &mut ends;
    let socket = MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let elsewhere = SocketAddr::from(([127, 0, 0, 9], 9));
    viewer
        .restart(socket.local_addr().unwrap(), |fragment| {
            let offer = offer_of(sender, &fragment);
            sender.accept_restart(offer, of_sender.local_addr()?, LOOPBACK)
        })
        .unwrap();
    assert!(!viewer.remote.may_send(elsewhere) && !viewer.remote.may_receive(elsewhere, &[0x80, 96]));
}

#[test]
fn a_restart_of_another_address_moves_nothing() {
    let mut ends = connected();
    let mut next = 1;
    exchange(&mut ends, &mut next, 3);
    let socket = MediaSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0).into()).unwrap();
    let [(viewer, _), (sender, of_sender)] = &mut ends;
    let elsewhere = IpAddr::from([192, 0, 2, 1]);
    let restarted = viewer.restart(socket.local_addr().unwrap(), |fragment| {
        let offer = offer_of(sender, &fragment);
        sender.accept_restart(offer, of_sender.local_addr()?, elsewhere)
    });
    restarted.unwrap();
    for _ in 0..300 {
        sender.step(of_sender, |_| {});
        viewer.step(&socket, |event| assert!(!matches!(event, PeerEvent::Packet { .. })));
        sender.write(next, (None, next as u32 * 3000), true, vec![0x65, 1, 2, 3].into(), Instant::now());
        next += 1;
    }
}

#[test]
fn a_restart_that_fails_leaves_the_session() {
    let mut ends = connected();
    let mut next = 1;
    exchange(&mut ends, &mut next, 3);
    let socket = MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let local = socket.local_addr().unwrap();
    let refused = ends[0].0.restart(local, |_| Err(WebrtcError::Canceled));
    assert!(matches!(refused, Err(WebrtcError::Canceled)), "{refused:?}");
    // An answer with the present credentials, and fragments that are no part of the session.
    let of_sender = IceFragment::read(&ends[0].0.description).unwrap();
    assert!(ends[0].0.restart(local, |_| Ok(of_sender)).is_err());
    assert!(ends[0].0.restart(local, |_| Ok(IceFragment::default())).is_err());
    exchange(&mut ends, &mut next, 3);
    let hostile = format!("a=ice-ufrag:abcd\r\na=ice-pwd:{}\r\na=candidate:x\r\n", "x".repeat(22));
    let hostile = IceFragment::read(&hostile).unwrap();
    let (sender, of_sender) = &mut ends[1];
    let offer = offer_of(sender, &hostile);
    assert!(sender.accept_restart(offer, of_sender.local_addr().unwrap(), LOOPBACK).is_ok());
    exchange(&mut ends, &mut next, 3);
}
