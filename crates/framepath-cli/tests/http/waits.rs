// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C ends every wait for a server.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use framepath_os::process::children;
use framepath_testkit::{clip, framepath, until, wait};

use super::server::{Server, head_of_file, send};
use super::url;

const SIGINT: i32 = 2;

/// Keeps a connection open until the client closes it.
fn hold(stream: &mut std::net::TcpStream) {
    use std::io::Read;
    while stream.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
}

/// Runs the path, sends SIGINT once `waits` returns true, and expects exit code 130.
fn interrupted(what: &str, path: &str, waits: impl FnMut() -> bool) {
    let mut command = framepath(&["run", path]);
    super::without_proxies(&mut command);
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    until(what, waits);
    // The wait for the answer begins after the request.
    thread::sleep(std::time::Duration::from_millis(300));
    children::signal(&child, SIGINT).unwrap();
    let ran = wait(child, what);
    assert_eq!(ran.code, Some(130), "{what}: {ran:#?}");
}

pub fn ctrl_c_ends_every_wait() {
    let bytes = fs::read(clip("h264-180p8-container.mp4")).unwrap();
    // No answer; a head and no body; a body that stops in the middle; a server that is away.
    for (what, part) in [("no answer", None), ("no body", Some(0)), ("half a body", Some(bytes.len() / 2))] {
        let bytes = bytes.clone();
        let server = Server::start(move |request, stream| {
            if let Some(part) = part {
                let (head, start) = head_of_file(request, &bytes, "\"v1\"");
                send(stream, head.as_bytes());
                send(stream, &bytes[start..part.max(start)]);
                let _ = stream.flush();
            }
            hold(stream);
        });
        interrupted(what, &format!("{} ! null", url(&server.url("a.mp4"), "")), || {
            !server.requests().is_empty()
        });
    }
    let half = bytes.len() / 2;
    let server = Server::start(move |request, stream| {
        let (head, start) = head_of_file(request, &bytes, "\"v1\"");
        send(stream, head.as_bytes());
        send(stream, &bytes[start..half.max(start)]);
    });
    let path = format!("{} ! null", url(&server.url("a.mp4"), ""));
    // The fourth request comes after a pause.
    interrupted("pause between two tries", &path, || server.requests().len() >= 4);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connected = Arc::new(AtomicBool::new(false));
    let accepted = connected.clone();
    let silent = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        accepted.store(true, Ordering::Relaxed);
        hold(&mut stream);
    });
    let path = format!("url https://{address}/a.mp4 ! decode ! null");
    interrupted("TLS greeting", &path, || connected.load(Ordering::Relaxed));
    silent.join().unwrap();
}
