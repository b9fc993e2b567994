// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients and services of different releases.

use std::thread;

use framepath_model::wire::{MESSAGE_BYTES, Message, VERSION};
use framepath_os::crossing::{Listener, Socket};

use framepath_testkit::service::{RawClient, ServiceProcess};
use framepath_testkit::{in_checkout, run};

/// Encodes `message` as a release with version `version` of the wire format sends it.
fn of_version(message: &Message, version: u16) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    message.encode(&mut bytes);
    bytes[4..6].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// Returns the texts that an error about the versions contains: the other side's, and this release's.
fn versions(theirs: u16) -> [String; 2] {
    [format!("version {theirs}"), format!("version {VERSION}")]
}

#[test]
fn a_client_refuses_a_service_of_another_version() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = Listener::bind(&socket, 0o600).unwrap();
    // Answers the two clients that connect.
    let service = thread::spawn(move || {
        let mut heard = 0;
        while heard < 2 {
            let Some((client, _)) = listener.accept().unwrap() else {
                thread::sleep(std::time::Duration::from_millis(5));
                continue;
            };
            answer(&client);
            heard += 1;
        }
    });
    let clip = in_checkout("clips/vp9-180p8.ivf");
    let at = socket.to_str().unwrap();
    let path = format!("file '{}' ! decode host=service socket={at} ! null", clip.display());
    let [theirs, ours] = versions(VERSION + 1);
    run(&["run", &path]).ended(1).prints(at).prints(&theirs).prints(&ours);
    run(&["top", "--once", "--socket", at]).ended(1).prints(at).prints(&theirs).prints(&ours);
    service.join().unwrap();
}

fn answer(client: &Socket) {
    assert!(client.readable_within(std::time::Duration::from_secs(60)).unwrap());
    let mut bytes = [0; MESSAGE_BYTES];
    client.receive(&mut bytes).unwrap();
    let no = Message::Denied { text: "a later release".to_owned() };
    client.send(&of_version(&no, VERSION + 1), None).unwrap();
}

#[test]
fn a_service_refuses_a_client_of_another_version() {
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    let newer = VERSION + 1;
    // First the version is in the head of the message, as in another release. Then it is
    // only in the hello, which no release sends.
    let head = of_version(&Message::Hello { version: newer }, newer);
    let body = of_version(&Message::Hello { version: newer }, VERSION);
    for bytes in [head, body] {
        let talker = RawClient::connect(&service.socket());
        talker.0.send(&bytes, None).unwrap();
        let text = talker.denied();
        assert!(versions(newer).iter().all(|version| text.contains(version)), "{text}");
        assert!(talker.recv().is_none());
    }
    assert_eq!(service.quiet(), before);
    assert_eq!(service.snapshot().totals.granted, 0);
}
