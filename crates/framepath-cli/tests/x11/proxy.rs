// SPDX-License-Identifier: MIT OR Apache-2.0
//! Server in front of an X server that passes all bytes on until it is told to break its answers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use framepath_testkit::display::Xvfb;

/// Length of an event, and of the head of a reply, bytes.
const HEAD: usize = 32;
/// First byte of a reply.
const REPLY: u8 = 1;

/// Change that the server in front makes to the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Break {
    /// Passes events on, and no replies.
    Replies = 1,
    /// Writes 99 as the depth of a picture.
    Depth = 2,
}

/// Server in front of an X server, for one client.
pub struct Proxy {
    broken: Arc<AtomicU8>,
    /// Number of the display at 127.0.0.1.
    pub display: u16,
}

impl Proxy {
    pub fn start(server: &Xvfb) -> Proxy {
        let bound = (800..900)
            .find_map(|number| Some((TcpListener::bind(("127.0.0.1", 6000 + number)).ok()?, number)));
        let (listener, display) = bound.expect("a free port");
        let broken = Arc::new(AtomicU8::new(0));
        let server = UnixStream::connect(format!("/tmp/.X11-unix/X{}", &server.name()[1..])).unwrap();
        let does = broken.clone();
        thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                // The client or the server has ended.
                let _ = std::io::copy(&mut from_client, &mut to_server);
                let _ = to_server.shutdown(Shutdown::Both);
            });
            pass(server, client, &does);
        });
        Proxy { broken, display }
    }

    /// Breaks the answers from now on. The client must have read all answers.
    pub fn set(&self, way: Break) {
        self.broken.store(way as u8, Ordering::SeqCst);
    }
}

/// Passes bytes of the X server on to the client until one of them ends.
fn pass(mut server: UnixStream, mut client: std::net::TcpStream, does: &AtomicU8) {
    let mut bytes = vec![0; 1 << 20];
    while let Ok(count @ 1..) = server.read(&mut bytes) {
        let way = does.load(Ordering::SeqCst);
        let is_reply = count >= HEAD && bytes[0] == REPLY;
        if way == Break::Replies as u8 && is_reply {
            continue;
        }
        if way == Break::Depth as u8 && is_reply {
            bytes[1] = 99;
        }
        if client.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}
