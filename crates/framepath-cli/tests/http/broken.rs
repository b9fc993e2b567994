// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers that refuse, break connections or change the file.

use std::fs;
use std::net::TcpListener;

use framepath_testkit::clip;

use super::server::{Server, head, head_of_file, send, send_file};
use super::{hashes, run, url};

const CLIP: &str = "h264-180p8-container.mp4";

fn film() -> Vec<u8> {
    fs::read(clip(CLIP)).unwrap()
}

pub fn each_refusal_has_its_reason() {
    let refusing = |status: &'static str| {
        Server::start(move |_, stream| {
            send(stream, head(status, &[("Content-Length", "0".to_owned())]).as_bytes())
        })
    };
    for (status, reason) in [
        ("404 Not Found", "the server answers 404 Not Found"),
        ("403 Forbidden", "403 Forbidden"),
        ("401 Unauthorized", "USER:PASSWORD@HOST"),
        ("500 Internal Server Error", "500 Internal Server Error"),
        ("416 Range Not Satisfiable", "the file is empty"),
        ("200 OK", "the file is empty"),
    ] {
        let server = refusing(status);
        let ran = run(&format!("{} ! null", url(&server.url("a.mp4"), ""))).ended(1);
        ran.prints(reason);
        assert_eq!(server.requests().len(), 1, "{status}: a refusal at the start is final");
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    run(&format!("url http://{free}/a.mp4 ! decode ! null")).ended(1).prints("Connection refused");
    run("url http://no-such-host.invalid/a.mp4 ! decode ! null").ended(1).prints("lookup address");
    for (address, reason) in [
        ("clip.mp4", "no scheme"),
        ("ftp://127.0.0.1/a.mp4", "ftp:// is not supported"),
        ("'http://127.0.0.1/a b.mp4'", "not valid"),
        ("http://", "not valid"),
    ] {
        run(&format!("url {address} ! decode ! null")).ended(1).prints(reason);
    }
}

pub fn answers_that_are_no_http_are_refused() {
    for answer in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "",
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\r\nabcde",
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 7-11/99\r\nContent-Length: 5\r\n\r\nabcde",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde",
    ] {
        let server = Server::start(move |_, stream| send(stream, answer.as_bytes()));
        run(&format!("{} ! null", url(&server.url("a.mp4"), ""))).ended(1).prints("url http");
    }
}

pub fn a_playlist_is_refused_by_name() {
    let server = Server::of_file(b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n".to_vec());
    let ran = run(&format!("{} ! null", url(&server.url("list.m3u8"), ""))).ended(1);
    assert!(!ran.stderr.contains("root:"), "{ran:#?}");
    assert_eq!(server.requests().iter().filter(|request| request.path != "/list.m3u8").count(), 0);
}

pub fn a_broken_connection_continues_at_its_place() {
    let bytes = film();
    let expected = hashes(&format!("file {} ! decode", clip(CLIP)));
    let piece = bytes.len() / 5;
    let server = Server::start(move |request, stream| {
        let (head, start) = head_of_file(request, &bytes, "\"v1\"");
        send(stream, head.as_bytes());
        // The first request for a place gets a part only.
        let end = (start + piece).min(bytes.len());
        send(stream, &bytes[start..end]);
    });
    let ran = run(&format!("{} ! framemd5 -", url(&server.url("a.mp4"), ""))).ended(0);
    assert_eq!(ran.frames(), expected);
    let notes = ran.stderr.lines().filter(|line| line.contains("continued with a new connection")).count();
    assert_eq!(notes, 1, "{ran:#?}");
    let requests = server.requests();
    assert!(requests.len() >= 4, "{requests:?}");
    assert!(requests.iter().skip(1).all(|request| request.if_range.is_some()), "{requests:?}");
}

pub fn a_server_that_is_away_for_a_while_is_asked_again() {
    let bytes = film();
    let half = bytes.len() / 2;
    let server = Server::start(move |request, stream| match request.number {
        0 => {
            send(stream, head_of_file(request, &bytes, "\"v1\"").0.as_bytes());
            send(stream, &bytes[..half]);
        }
        1 => send(stream, head("503 Service Unavailable", &[]).as_bytes()),
        2 => {}
        _ => send_file(request, stream, &bytes, "\"v1\""),
    });
    let ran = run(&format!("{} ! framemd5 -", url(&server.url("a.mp4"), ""))).ended(0);
    assert_eq!(ran.frames(), hashes(&format!("file {} ! decode", clip(CLIP))));
}

pub fn a_broken_connection_ends_the_run_after_five_tries() {
    let bytes = film();
    let half = bytes.len() / 2;
    let server = Server::start(move |request, stream| {
        let (head, start) = head_of_file(request, &bytes, "\"v1\"");
        send(stream, head.as_bytes());
        send(stream, &bytes[start..half.max(start)]);
    });
    let ran = run(&format!("{} ! framemd5 -", url(&server.url("a.mp4"), ""))).ended(1);
    let ran = ran.prints("gave up after 5 tries");
    let frames = ran.frames().len();
    let all = hashes(&format!("file {} ! decode", clip(CLIP)));
    assert_eq!(ran.frames(), all[..frames], "the frames before the break are delivered");
}

pub fn without_ranges_a_broken_connection_ends_the_run() {
    let bytes = film();
    for chunked in [false, true] {
        let bytes = bytes.clone();
        let server = Server::start(move |_, stream| {
            let length = match chunked {
                true => ("Transfer-Encoding", "chunked".to_owned()),
                false => ("Content-Length", bytes.len().to_string()),
            };
            send(stream, head("200 OK", &[length]).as_bytes());
            let half = &bytes[..bytes.len() / 2];
            if chunked {
                send(stream, format!("{:x}\r\n", bytes.len()).as_bytes());
            }
            send(stream, half);
        });
        let ran = run(&format!("{} ! framemd5 -", url(&server.url("a.mp4"), ""))).ended(1);
        ran.prints("does not answer range requests");
        assert_eq!(server.requests().len(), 1);
    }
}

pub fn a_file_that_changes_is_not_mixed() {
    let bytes = film();
    let half = bytes.len() / 2;
    // With and without support of If-Range.
    for knows_versions in [true, false] {
        let bytes = bytes.clone();
        let server = Server::start(move |request, stream| {
            let mut request = request.clone();
            if !knows_versions {
                request.if_range = None;
            }
            if request.number == 0 {
                send(stream, head_of_file(&request, &bytes, "\"v1\"").0.as_bytes());
                send(stream, &bytes[..half]);
            } else {
                send_file(&request, stream, &bytes, "\"v2\"");
            }
        });
        let ran = run(&format!("{} ! framemd5 -", url(&server.url("a.mp4"), ""))).ended(1);
        ran.prints("has changed");
        assert_eq!(server.requests().len(), 2);
    }
}
