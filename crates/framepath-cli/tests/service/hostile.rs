// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that send invalid messages, too many messages, or none.

use framepath_model::wire::{MAGIC, MESSAGE_BYTES, Message, VERSION};
use framepath_os::crossing::Socket;

use framepath_testkit::finish;
use framepath_testkit::service::{RawClient, ServiceProcess};
use framepath_testkit::until;

fn record(message: &Message) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    message.encode(&mut bytes);
    bytes
}

#[test]
fn an_invalid_message_ends_only_its_connection_with_a_reason() {
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    let hello = record(&Message::Hello { version: VERSION });
    let mut newer = hello;
    newer[4..6].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let version = format!("version {}", VERSION + 1);
    let mut unknown = [0; MESSAGE_BYTES];
    unknown[..4].copy_from_slice(&MAGIC);
    unknown[4..6].copy_from_slice(&VERSION.to_le_bytes());
    unknown[6] = 0xee;
    let long = [hello.as_slice(), &[0]].concat();
    let cases: [(&[u8], &str); 9] = [
        (&[0xa5; MESSAGE_BYTES], "not a framepath message"),
        (&hello[..MESSAGE_BYTES / 2], "message has 512 bytes"),
        (&hello[..1], "message has 1 bytes"),
        (&long, "message has 1025 bytes"),
        (&newer, &version),
        (&unknown, "unknown message kind"),
        (&record(&Message::Grant { stream: 1, pid: 1, layers: 0 }), "a client does not send this message"),
        (&record(&Message::Release { stream: 1 }), "stream 1 is not a stream of this connection"),
        (&record(&Message::Replace { stream: u32::MAX, kill: true }), "is not a stream of this connection"),
    ];
    for (bytes, words) in cases {
        let talker = RawClient::connect(&service.socket());
        talker.0.send(bytes, None).unwrap();
        let text = talker.denied();
        assert!(text.contains(words), "{text}");
        assert!(talker.recv().is_none(), "{words}");
    }
    assert_eq!(service.snapshot().totals.denied, cases.len() as u64);
    assert_eq!(service.quiet(), before);
    finish(service.client("vp9-180p8.ivf", "! decode", "null")).ended(0);
}

/// Checks that descriptors sent with a message are closed, not kept.
#[test]
fn unexpected_descriptors_are_closed() {
    use std::os::fd::AsFd;
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    let talker = RawClient::connect(&service.socket());
    let file = std::fs::File::open("/dev/null").unwrap();
    for _ in 0..200 {
        talker.0.send(&record(&Message::Watch { from: 0 }), Some(file.as_fd())).unwrap();
        assert!(matches!(talker.recv(), Some((Message::Totals(_), None))));
    }
    assert_eq!(service.fds(), before + 1);
    drop(talker);
    assert_eq!(service.quiet(), before);
}

#[test]
fn a_thousand_short_connections_leak_no_resource() {
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    for turn in 0..1000 {
        let Ok(socket) = Socket::connect(&service.socket()) else { panic!("turn {turn}") };
        match turn % 3 {
            0 => {}
            // Half of a message, then closes.
            1 => socket.send(&[0; 100], None).unwrap_or_default(),
            // Requests a stream, and disconnects before the grant.
            _ if turn % 50 == 2 => {
                socket.send(&record(&Message::Hello { version: VERSION }), None).unwrap_or_default();
            }
            _ => socket.send(&record(&Message::Watch { from: 0 }), None).unwrap_or_default(),
        }
    }
    assert_eq!(service.quiet(), before);
    assert_eq!(service.snapshot().totals.streams, 0);
}

#[test]
fn excess_idle_clients_are_denied_without_harm_to_others() {
    let service = ServiceProcess::start(&["--connections", "20"]);
    let before = service.quiet();
    let mut client = service.client("vp9-180p8.ivf", "loop=inf ! decode", "null").spawn().unwrap();
    let frames = service.stream_of(client.id()).figures.frames;
    let crowd: Vec<RawClient> = (0..1000).map(|_| RawClient::connect(&service.socket())).collect();
    // The service disconnects accepted clients that send nothing, and denies the others.
    let text = crowd[999].denied();
    assert!(text.contains("20 connections") && text.contains("--connections"), "{text}");
    assert!(crowd[999].recv().is_none());
    assert!(service.fds() < before + 200, "{}", service.fds());
    drop(crowd);
    until("the crowd has gone", || service.has_room());
    until("the stream went on", || service.stream_of(client.id()).figures.frames > frames + 100);
    client.kill().unwrap();
    client.wait().unwrap();
    assert_eq!(service.quiet(), before);
}

#[test]
fn a_flooding_client_is_disconnected_without_harm_to_others() {
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    let mut client = service.client("vp9-180p8.ivf", "loop=inf ! decode", "null").spawn().unwrap();
    let frames = service.stream_of(client.id()).figures.frames;

    // A client that sends requests and reads no answer: the service stops reading from the client
    // when the client's socket is full.
    let deaf = RawClient::connect(&service.socket());
    let watch = record(&Message::Watch { from: 0 });
    let mut sent = 0;
    while deaf.0.try_send(&watch, None).unwrap() || service.snapshot().totals.connections < 2 {
        sent += 1;
        assert!(sent < 100_000, "nothing holds it up");
    }
    // A client that sends too many requests and reads the answers.
    let loud = RawClient::connect(&service.socket());
    let mut answers = 0;
    let denied = loop {
        loud.send(&Message::Watch { from: u32::MAX });
        match loud.recv() {
            Some((Message::Totals(_), _)) => answers += 1,
            Some((Message::Denied { text }, _)) => break Some(text),
            other => panic!("{other:?}"),
        }
        if answers == 100_000 {
            // This machine is too slow to flood the service.
            break None;
        }
    };
    assert!(denied.is_none_or(|text| text.contains("messages in a second")));
    until("the stream went on", || service.stream_of(client.id()).figures.frames > frames + 100);
    drop((deaf, loud));
    client.kill().unwrap();
    client.wait().unwrap();
    assert_eq!(service.quiet(), before);
}

/// A client that sends invalid data to its worker harms only that worker.
#[test]
fn invalid_data_for_a_worker_ends_only_that_worker() {
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    let talker = RawClient::connect(&service.socket());
    talker.hello();
    let (stream, worker) = talker.granted();
    worker.send(&[0x5a; MESSAGE_BYTES], None).unwrap();
    let mut bytes = [0; MESSAGE_BYTES];
    // The worker ends. The socket then reads the end of stream, or an error because the worker
    // never read the data.
    assert!(matches!(worker.receive(&mut bytes), Ok((0, _)) | Err(_)));
    talker.send(&Message::Replace { stream, kill: false });
    let (again, _worker) = talker.granted();
    assert_eq!(again, stream);
    assert_eq!(service.snapshot().streams[0].crashes, 1);
    drop(talker);
    assert_eq!(service.quiet(), before);
}

/// Lets the service send `client` a grant that the client does not read. Returns the stream's number.
fn unread_grant(service: &ServiceProcess, client: &RawClient) -> u32 {
    client.hello();
    let mut granted = None;
    until("the service has sent the grant", || {
        let streams = service.snapshot().streams;
        granted = streams.iter().find(|stream| stream.worker_pid != 0).map(|stream| stream.stream);
        granted.is_some()
    });
    granted.unwrap()
}

/// The descriptor in an unread grant counts for the service's user. So the second unread grant ends the connection.
#[test]
fn a_client_that_reads_no_grant_gets_no_other() {
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    for replaces in [false, true] {
        let hoarder = RawClient::connect(&service.socket());
        let stream = unread_grant(&service, &hoarder);
        if replaces {
            hoarder.send(&Message::Replace { stream, kill: true });
        } else {
            hoarder.send(&Message::Release { stream });
            hoarder.hello();
        }
        // The client must not read before the service decides.
        until("the service has decided", || service.snapshot().totals.denied == 1 + u64::from(replaces));
        assert_eq!(hoarder.granted().0, stream);
        let text = hoarder.denied();
        assert!(text.contains("read each answer"), "{text}");
        assert!(hoarder.recv().is_none());
        // All is received, so the connection no longer counts, though the client's end is open.
        assert_eq!(service.quiet(), before);
    }
    let totals = service.snapshot().totals;
    assert_eq!((totals.granted, totals.denied), (2, 2));
}

/// A connection that the service has ended counts for `--connections` while its grant is unread: whatever clients
/// send, at most so many descriptors of the service's user are in flight.
#[test]
fn ended_connections_with_unread_grants_count() {
    let service = ServiceProcess::start(&["--connections", "12"]);
    let before = service.quiet();
    let mut hoard = Vec::new();
    // Leaves room for the viewer's connection, and for the two connections of a path.
    for turn in 0..9 {
        let hoarder = RawClient::connect(&service.socket());
        let stream = unread_grant(&service, &hoarder);
        match turn % 4 {
            // The service ends the connection after an invalid message.
            0 => hoarder.0.send(b"x", None).unwrap(),
            1 => hoarder.send(&Message::Release { stream: u32::MAX }),
            // To the service, an empty record and the end of the client's direction look like the client's end.
            2 => hoarder.0.send(b"", None).unwrap(),
            _ => hoarder.0.finish(),
        }
        until("its stream has ended", || service.snapshot().streams.is_empty());
        hoard.push((hoarder, stream));
        assert_eq!(service.snapshot().totals.connections as usize, hoard.len() + 1);
    }
    // The service serves an honest client while all ends of the hoarder are open.
    finish(service.client("vp9-180p8.ivf", "! decode", "null")).ended(0);
    let others: Vec<RawClient> = (0..3).map(|_| RawClient::connect(&service.socket())).collect();
    let denied = RawClient::connect(&service.socket());
    assert!(denied.denied().contains("12 connections"));
    drop((others, denied));

    // Reading everything ends a connection, as closing the client's end does.
    until("the others have gone", || service.has_room());
    for (hoarder, stream) in hoard.drain(..4) {
        assert_eq!(hoarder.granted().0, stream);
        while hoarder.recv().is_some() {}
        std::mem::forget(hoarder);
    }
    until("four connections have ended", || service.snapshot().totals.connections == 6);
    drop(hoard);
    assert_eq!(service.quiet(), before);
}

/// A client that sends the service its own end of the connection, and leaves, does not keep the connection open.
#[test]
fn an_ended_connection_keeps_no_descriptor_of_the_client() {
    use std::os::fd::AsFd;
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    let hoarder = RawClient::connect(&service.socket());
    unread_grant(&service, &hoarder);
    hoarder.send(&Message::Release { stream: u32::MAX });
    // These follow the message that ends the connection, so the service does not receive them as messages.
    for _ in 0..20 {
        if hoarder.0.send(b"", Some(hoarder.0.as_fd())).is_err() {
            break;
        }
    }
    drop(hoarder);
    assert_eq!(service.quiet(), before);
}
