// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workers that attack the requests for bytes. The run ends by itself with an error, and the server gets requests
//! for the one file only.

use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use framepath_model::wire::{ByteRequest, InputBytes, MESSAGE_BYTES, MOST_REQUESTED_BYTES, Message};
use framepath_os::crossing::Socket;
use framepath_os::process::sandbox::{Layer, LayerState, Layers};
use framepath_os::process::spawn::take_socket;
use framepath_testkit::{clip, finish, framepath};

use super::server::{Server, head, send};
use super::url;

/// Attack: a name, the expected error, and the worker's part, which gets the socket for requests and the size
/// of the file.
type Attack = (&'static str, &'static str, fn(&Socket, u64));

const ATTACKS: &[Attack] = &[
    ("outside", "outside the input", |bytes, size| ask(bytes, size + 1, 1)),
    ("far-outside", "outside the input", |bytes, _| ask(bytes, i64::MAX as u64, 1)),
    ("too-much", "length", |bytes, _| ask(bytes, 0, MOST_REQUESTED_BYTES + 1)),
    ("nothing", "length", |bytes, _| ask(bytes, 0, 0)),
    ("negative", "offset", |bytes, _| ask(bytes, u64::MAX, 1)),
    ("another-address", "size", |bytes, _| {
        let _ = bytes.send(b"GET http://127.0.0.1/secret HTTP/1.1\r\n\r\n", None);
    }),
    ("all-at-once", "before", |bytes, _| {
        while bytes.send(&ByteRequest { offset: 0, len: 65_536 }.encode(), None).is_ok() {}
    }),
];

fn ask(bytes: &Socket, offset: u64, len: u32) {
    let _ = bytes.send(&ByteRequest { offset, len }.encode(), None);
}

fn receive(socket: &Socket) -> (Message, OwnedFd) {
    let mut bytes = [0; MESSAGE_BYTES];
    match socket.receive(&mut bytes) {
        Ok((MESSAGE_BYTES, Some(fd))) => (Message::decode(&bytes).unwrap(), fd),
        _ => std::process::exit(0),
    }
}

fn say(socket: &Socket, message: &Message) {
    let mut bytes = [0; MESSAGE_BYTES];
    message.encode(&mut bytes);
    if socket.send(&bytes, None).is_err() {
        std::process::exit(0);
    }
}

/// Plays the attack named by the file name of `own`, as a worker. Refuses the file once the service of bytes
/// has ended.
pub fn run(own: &Path) -> ! {
    let name = own.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (_, _, attack) = ATTACKS.iter().find(|attack| attack.0 == name).expect("a known attack");
    let socket = Socket::from(take_socket().unwrap());
    // Claims that every layer is in force, as a hostile worker would.
    let all = Layer::ALL.into_iter().fold(Layers::default(), |all, layer| all.with(layer, LayerState::Given));
    say(&socket, &Message::Ready { layers: all.bits() });
    let (Message::File { .. }, bytes) = receive(&socket) else { std::process::exit(1) };
    let (Message::Demux(demux), _memory) = receive(&socket) else { std::process::exit(1) };
    let InputBytes::Requested { size: Some(size) } = demux.bytes else { std::process::exit(1) };
    let bytes = Socket::from(bytes);
    attack(&bytes, size);
    // The caller shuts the socket; answers from before may be unread.
    let mut answer = vec![0; 100_000];
    while matches!(bytes.receive(&mut answer), Ok((1.., _))) {}
    say(&socket, &Message::Refused { text: "the worker's own words".to_owned() });
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

pub fn hostile_workers_reach_nothing_else() {
    let file = std::fs::read(clip("h264-180p8-container.mp4")).unwrap();
    for (name, reason, _) in ATTACKS {
        let folder = tempfile::tempdir().unwrap();
        let worker = folder.path().join(name);
        symlink(std::env::current_exe().unwrap(), &worker).unwrap();
        let bytes = file.clone();
        let server = Server::start(move |request, stream| {
            if request.path == "/a.mp4" {
                super::server::send_file(request, stream, &bytes, "\"v1\"");
            } else {
                send(stream, head("404 Not Found", &[]).as_bytes());
            }
        });
        let mut command = framepath(&["run", &format!("{} ! null", url(&server.url("a.mp4"), ""))]);
        super::without_proxies(&mut command).env("FRAMEPATH_WORKER", &worker);
        let ran = finish(command).ended(1);
        assert!(ran.stderr.contains("broke the rules of byte requests"), "{name}: {ran:#?}");
        assert!(ran.stderr.contains(reason), "{name}: {ran:#?}");
        let requests = server.requests();
        assert!(requests.len() <= 33, "{name}: {requests:?}");
        assert!(requests.iter().all(|request| request.path == "/a.mp4"), "{name}: {requests:?}");
    }
}
