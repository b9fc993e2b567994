// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and datagrams that a sender refuses, and wrong arguments.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

use framepath_testkit::{run, wait};
use rustix::process::Signal;

use crate::clip::{h264, hashes, hashes_of};
use crate::sender::{Sending, start};

/// Sends a request and returns the answer's text.
pub fn request(sending: &Sending, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, sending.port)).unwrap();
    let size = body.len();
    write!(stream, "{head}\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub fn a_viewer_without_the_token_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let sending = start(&clip, "rate=100", "wait=1");
    for (token, advice) in [("", "; pass the"), ("token=wrong", "; the token is wrong: pass the")] {
        let path = format!("recv {} {token} ! null", sending.url);
        run(&["run", &path]).ended(1).prints(&format!("HTTP status 401{advice} sender's token by token="));
    }
    for head in
        ["POST /whep HTTP/1.1", "DELETE /whep/x HTTP/1.1", "POST /whep HTTP/1.1\r\nAuthorization: Bearer "]
    {
        let answer = request(&sending, &format!("{head}\r\nContent-Type: application/sdp"), "v=0\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 401 ") && answer.contains("www-authenticate: Bearer"),
            "{answer}"
        );
    }
    // The sender still waits for its first viewer.
    let viewer = sending.watch("latency=5s");
    assert_eq!(hashes(&wait(viewer, "recv").ended(0).frames()), hashes_of(&clip));
    let output = sending.end().ended(0);
    assert_eq!(output.stderr.matches(": connected").count(), 1, "{}", output.stderr);
}

pub fn two_hundred_half_open_connections_cost_a_viewer_no_frame() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let sending = start(&clip, "rate=100", "wait=1");
    let open = |number: usize| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, sending.port)).unwrap();
        // Nothing, a part of a head, or a head without its body. The sender may have closed the connection already.
        let head =
            ["", "POST /wh", "POST /whep HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\nv=0"];
        let _ = stream.write_all(head[number % head.len()].as_bytes());
        stream
    };
    let _connections: Vec<TcpStream> = (0..200).map(open).collect();
    let viewer = sending.watch("latency=5s timeout=60s");
    assert_eq!(hashes(&wait(viewer, "recv").ended(0).frames()), hashes_of(&clip));
    sending.end().ended(0);
}

pub fn a_server_that_answers_500_or_nothing_is_an_error() {
    let answer_all = |answer: &'static str| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // The request is small enough for one read; the other end may be gone.
                let _ = stream.read(&mut [0; 65536]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        address
    };
    let failing = answer_all(
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops",
    );
    let closing = answer_all("");
    for (server, error) in
        [(failing, "HTTP status 500"), (closing, "connection closed before message completed")]
    {
        let path = format!("test frames=3 ! encode h264 ! send whip=http://{server}/whip");
        run(&["run", "--quiet", &path]).ended(1).prints(error);
        let path = format!("recv http://{server}/whip timeout=2s ! null");
        run(&["run", "--quiet", &path]).ended(1).prints(error);
    }
}

pub fn requests_that_are_not_whep_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sending = start(&h264(folder.path(), "clip.mp4", "0"), "rate=100", "wait=1");
    let token = format!("Authorization: Bearer {}", sending.token);
    let post = format!("POST /whep HTTP/1.1\r\n{token}");
    let sdp = format!("{post}\r\nContent-Type: application/sdp");
    let no_video = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n";
    let large = "a".repeat((16 << 10) + 1);
    for (head, body, status) in [
        ("GET /whep HTTP/1.1", "", 405),
        ("PUT /whep/x HTTP/1.1", "", 405),
        ("GET /page HTTP/1.1", "", 404),
        ("POST / HTTP/1.1", "", 404),
        (&format!("DELETE /whep/x HTTP/1.1\r\n{token}"), "", 404),
        (&post, "v=0\r\n", 415),
        (&sdp, "", 400),
        (&sdp, "garbage", 400),
        (&sdp, no_video, 400),
        (&sdp, &large, 413),
        ("garbage", "", 400),
    ] {
        let answer = request(&sending, head, body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head:?} {body:.20?}: {answer}");
    }
    sending.signal(Signal::INT);
    sending.end().ended(130);
}

pub fn foreign_datagrams_get_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let sending = start(&clip, "rate=50", "wait=1");
    let foreign = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    foreign.connect((Ipv4Addr::LOCALHOST, sending.port)).unwrap();
    foreign.set_nonblocking(true).unwrap();
    // The first bytes of STUN, DTLS, RTP and RTCP, and others; an empty datagram and a large one.
    let send = || {
        for first in [0, 1, 20, 22, 63, 64, 128, 200, 255] {
            for size in [0, 1, 12, 20, 28, 200, 3000] {
                let mut bytes = vec![first; size];
                // A STUN binding request without its attributes.
                if let (true, Some(head)) = (first == 0, bytes.get_mut(..8)) {
                    head.copy_from_slice(&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42]);
                }
                foreign.send(&bytes).unwrap();
            }
        }
    };
    send();
    let viewer = sending.watch("latency=5s");
    sending.until_begun();
    send();
    assert_eq!(hashes(&wait(viewer, "recv").ended(0).frames()), hashes_of(&clip));
    let answer = foreign.recv(&mut [0; 2000]).unwrap_err();
    assert_eq!(answer.kind(), ErrorKind::WouldBlock);
    sending.end().ended(0);
}

pub fn wrong_arguments_are_errors_that_say_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let clip = clip.display();
    let mjpeg = folder.path().join("clip.avi");
    let picture = ["-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25", "-frames:v", "3", "-c:v", "mjpeg"];
    framepath_testkit::ffmpeg(&[&picture[..], &[mjpeg.to_str().unwrap()]].concat());
    let mjpeg = mjpeg.display();
    for (path, part) in [
        (format!("file {clip} ! send listen=8443"), "expected an IP address and a port"),
        (format!("file {clip} ! send listen=127.0.0.1:0 token=ä"), "expected printable ASCII"),
        ("test ! send".to_owned(), "takes packets of h264, hevc, vp8, vp9 or av1, but frames arrive"),
        (
            format!("file {mjpeg} ! send"),
            "codec mjpeg is not supported over WebRTC; supported: h264, hevc, vp8, vp9, av1",
        ),
        (
            format!("file {clip} ! send whip=http://127.0.0.1:1/whip"),
            "connect to 127.0.0.1:1: Connection refused",
        ),
        (
            format!("file {clip} ! send whip=https://127.0.0.1:1/whip"),
            "connect to 127.0.0.1:1: Connection refused",
        ),
        (format!("file {clip} ! send whip=ftp://127.0.0.1/whip"), "the scheme is not supported"),
        (
            format!("file {clip} ! send whip=http://127.0.0.1:1/whip wait=1"),
            "wait= is for viewers that connect to this program; remove it, or whip=",
        ),
        ("recv 127.0.0.1 ! null".to_owned(), "expected http://HOST:PORT/PATH"),
        ("recv http://127.0.0.1:1/whep ! null".to_owned(), "connect to 127.0.0.1:1: Connection refused"),
    ] {
        let output = run(&["run", &path]).ended(1);
        assert!(output.stderr.contains(part), "{path}: {}", output.stderr);
    }
}
