// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends of sessions, as a viewer learns them. All on the loopback interface.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use framepath_model::access_unit::Coding;
use framepath_net::{
    JitterDepth, ReceivedItem, ReceiverOptions, SenderOptions, WebrtcError, WhepReceiver, WhepSender,
};

const TOKEN: &str = "secret";

fn sender() -> WhepSender {
    sender_of(None)
}

fn sender_of(bit_rates: Option<RangeInclusive<u64>>) -> WhepSender {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let token = Some(TOKEN.to_owned());
    WhepSender::new(SenderOptions { listen, token, coding: Coding::H264, bit_rates }).unwrap()
}

/// Opens a session through a proxy that passes one HTTP request; the video goes the direct way. Returns the viewer, the session's path,
/// and the further requests of the viewer, which get no answer.
fn open(sender: &WhepSender) -> (WhepReceiver, String, Receiver<Vec<u8>>) {
    let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (url, server) = (format!("http://{}/whep", proxy.local_addr().unwrap()), sender.address());
    let ((answers, taken), (requests, further)) = (channel(), channel());
    thread::spawn(move || {
        let mut clients = proxy.incoming();
        answers.send(pass(clients.next().unwrap().unwrap(), server)).unwrap();
        for client in clients {
            let mut request = vec![0; 4096];
            let len = client.unwrap().read(&mut request).unwrap();
            request.truncate(len);
            let _ = requests.send(request);
        }
    });
    let options = ReceiverOptions {
        url,
        token: Some(TOKEN.to_owned()),
        latency: Duration::ZERO,
        timeout: Duration::from_secs(10),
        silence: Duration::from_secs(30),
        jitter: JitterDepth::Adaptive,
        backlog: Duration::MAX,
    };
    let viewer = WhepReceiver::open(&options, || false, || ()).unwrap();
    until(|| sender.watching() == 1);
    let answer = taken.recv().unwrap();
    let path = answer.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned();
    (viewer, path, further)
}

/// Passes a request to the server, and its answer to the client. Returns the answer.
fn pass(mut client: TcpStream, server: SocketAddr) -> String {
    let mut server = TcpStream::connect(server).unwrap();
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || std::io::copy(&mut from, &mut to));
    let mut answer = String::new();
    server.read_to_string(&mut answer).unwrap();
    client.write_all(answer.as_bytes()).unwrap();
    let _ = client.shutdown(Shutdown::Both);
    answer
}

fn until(is_reached: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_reached() {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(5));
    }
}

fn end(viewer: &WhepReceiver) -> Result<ReceivedItem, WebrtcError> {
    until(|| viewer.has_news());
    viewer.recv()
}

#[test]
fn a_viewer_whose_session_another_program_ends_learns_it() {
    let sender = sender();
    let (viewer, path, _) = open(&sender);
    let mut other = TcpStream::connect(sender.address()).unwrap();
    let request = format!("DELETE {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    other.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    other.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let end = end(&viewer);
    assert!(matches!(end, Err(WebrtcError::EndedBySender)), "{end:?}");
}

#[test]
fn the_end_is_told_in_the_session_and_not_over_http() {
    type Act = fn(&mut WhepSender);
    let by_user: Act = |sender| assert!(sender.control().end(1));
    let (complete, failed): (Act, Act) = (|sender| sender.end(|| true), |sender| sender.fail(|| true));
    let ends = [by_user, complete, failed].map(|act| {
        let mut sender = sender();
        let (viewer, _, further) = open(&sender);
        act(&mut sender);
        let end = end(&viewer);
        drop(viewer);
        assert!(further.try_recv().is_err());
        end
    });
    let [by_user, complete, failed] = ends;
    assert!(matches!(by_user, Err(WebrtcError::EndedBySender)), "{by_user:?}");
    assert!(matches!(complete, Ok(ReceivedItem::End)), "{complete:?}");
    assert!(matches!(failed, Err(WebrtcError::SenderFailed)), "{failed:?}");
}

#[test]
fn a_sender_that_is_dropped_has_failed() {
    let sender = sender();
    let (viewer, ..) = open(&sender);
    drop(sender);
    let end = end(&viewer);
    assert!(matches!(end, Err(WebrtcError::SenderFailed)), "{end:?}");
}

/// Returns a keyframe of H.264 of about this size, bytes.
fn keyframe(size: usize) -> Vec<u8> {
    let starts: [&[u8]; 3] = [
        &[
            0, 0, 0, 1, 0x67, 66, 0xc0, 10, 0xd9, 0x1e, 0x84, 0, 0, 3, 0, 4, 0, 0, 3, 0, 0xc8, 0x3c, 0x48,
            0x99, 0x20,
        ],
        &[0, 0, 0, 1, 0x68, 0xcb, 0x83, 0xcb, 0x20],
        &[0, 0, 0, 1, 0x65, 0x88, 0x84],
    ];
    [starts.concat(), vec![0x55; size]].concat()
}

#[test]
fn a_stream_ends_behind_its_last_frame_on_any_network() {
    // Packets of a stream that follows the network wait for the pace that the network is known to carry: at the beginning, this frame takes
    // longer than the goodbyes.
    let mut sender = sender_of(Some(100_000..=1_000_000));
    let (viewer, ..) = open(&sender);
    let bytes = keyframe(1_000_000);
    sender.send(&bytes, 0, 0).unwrap();
    sender.end(|| true);
    let mut frames = 0;
    let ended = loop {
        match end(&viewer) {
            Ok(ReceivedItem::Frame(frame)) => {
                assert_eq!(frame.frame.bytes, bytes);
                frames += 1;
            }
            Ok(ReceivedItem::Nothing) => {}
            ended => break ended,
        }
    };
    assert!(matches!(ended, Ok(ReceivedItem::End)), "{ended:?}");
    assert_eq!((frames, viewer.counts().lost_frames, sender.counts().sent), (1, 0, 1));
}
