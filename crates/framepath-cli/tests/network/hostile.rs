// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTSP servers that break every rule: the run ends with an error, and does not hang.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use framepath_testkit::run;

/// Session description of an H.264 stream.
const SDP: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
    m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:stream=0\r\n";

/// Behaviour of a server after a client has connected. A write fails when the client is gone, which ends it.
type Deed = fn(&mut Peer) -> std::io::Result<()>;

/// Connection of a client.
struct Peer {
    stream: TcpStream,
    requests: BufReader<TcpStream>,
}

impl Peer {
    /// Reads the next request, and returns its first line and its number.
    fn request(&mut self) -> std::io::Result<(String, String)> {
        let (mut first, mut number) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            if self.requests.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if first.is_empty() {
                first.clone_from(&line);
            } else if let Some(cseq) = line.strip_prefix("CSeq:") {
                number = cseq.trim().to_owned();
            } else if line.trim().is_empty() {
                return Ok((first, number));
            }
        }
    }

    /// Answers requests until the client wants to play, and answers this request, too.
    fn until_play(&mut self) -> std::io::Result<()> {
        loop {
            let (request, number) = self.request()?;
            let (headers, body) = match request.split(' ').next().unwrap_or_default() {
                "DESCRIBE" => ("Content-Type: application/sdp\r\n", SDP),
                "SETUP" => ("Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\nSession: 1\r\n", ""),
                "PLAY" => ("Session: 1\r\n", ""),
                _ => ("Public: DESCRIBE, SETUP, PLAY\r\n", ""),
            };
            let length = body.len();
            let answer = format!(
                "RTSP/1.0 200 OK\r\nCSeq: {number}\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
            );
            self.stream.write_all(answer.as_bytes())?;
            if request.starts_with("PLAY") {
                return Ok(());
            }
        }
    }

    /// Writes `bytes` again and again until the client is gone.
    fn endless(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        loop {
            self.stream.write_all(bytes)?;
        }
    }
}

/// Returns bytes that follow no rule, the same each time.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_u32;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..count).map(next).collect()
}

const DEEDS: &[(&str, Deed)] = &[
    ("closes at once", |_| Ok(())),
    ("never answers", |peer| {
        // Ends when the client is gone.
        while peer.request().is_ok() {}
        Ok(())
    }),
    ("answers noise", |peer| peer.endless(&noise(65_536))),
    ("sends a header without end", |peer| {
        peer.request()?;
        peer.stream.write_all(b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nX: ")?;
        peer.endless(&[b'a'; 65_536])
    }),
    ("sends headers without end", |peer| {
        peer.request()?;
        peer.stream.write_all(b"RTSP/1.0 200 OK\r\n")?;
        peer.endless(&b"X: y\r\n".repeat(1000))
    }),
    ("announces a body of 2 GiB", |peer| {
        peer.request()?;
        peer.stream.write_all(b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 2147483647\r\n\r\n")?;
        peer.endless(&[0; 65_536])
    }),
    ("announces a body of a negative length", |peer| {
        peer.request()?;
        peer.stream.write_all(b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: -1\r\n\r\n")?;
        peer.endless(b"v=0\r\n")
    }),
    ("describes a thousand streams", |peer| {
        let (_, number) = peer.request()?;
        let answer = format!("RTSP/1.0 200 OK\r\nCSeq: {number}\r\nPublic: DESCRIBE\r\n\r\n");
        peer.stream.write_all(answer.as_bytes())?;
        let (_, number) = peer.request()?;
        let body = format!("v=0\r\n{}", "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n".repeat(1000));
        let answer = format!(
            "RTSP/1.0 200 OK\r\nCSeq: {number}\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        peer.stream.write_all(answer.as_bytes())?;
        while peer.request().is_ok() {}
        Ok(())
    }),
    ("sends interleaved packets whose lengths lie", |peer| {
        peer.until_play()?;
        let mut bytes = Vec::new();
        for (channel, length) in [(0, 65_535), (1, 1), (0, 0), (7, 12), (255, 65_000), (0, 3)] {
            bytes.extend([b'$', channel, (length >> 8) as u8, length as u8]);
            bytes.extend(noise(17));
        }
        peer.endless(&bytes)
    }),
    ("sends RTP packets of noise", |peer| {
        peer.until_play()?;
        let mut packet = vec![b'$', 0, 4, 0, 0x80, 96];
        packet.extend(noise(1022));
        peer.endless(&packet)
    }),
    ("drips one byte at a time", |peer| {
        peer.request()?;
        loop {
            peer.stream.write_all(b"R")?;
            thread::sleep(std::time::Duration::from_millis(200));
        }
    }),
    ("says goodbye before the first packet", |peer| {
        peer.until_play()?;
        // An RTCP goodbye of one source.
        peer.stream.write_all(&[b'$', 1, 0, 8, 0x81, 203, 0, 1, 0, 0, 0, 1])?;
        while peer.request().is_ok() {}
        Ok(())
    }),
];

/// Serves one client after another in the way of `deed`, for as long as the test runs. Returns the port.
fn serve(deed: Deed) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let requests = BufReader::new(stream.try_clone().unwrap());
            // An error is the client's end.
            let _ = deed(&mut Peer { stream, requests });
        }
    });
    port
}

pub fn no_server_makes_a_run_hang_or_crash() {
    // Each run may wait for several seconds, so all run at once.
    let runs = DEEDS.iter().map(|(what, deed)| {
        let path = format!("url rtsp://127.0.0.1:{}/x timeout=1s ! decode ! null", serve(*deed));
        (*what, thread::spawn(move || run(&["run", &path])))
    });
    for (what, run) in runs.collect::<Vec<_>>() {
        let output = run.join().unwrap();
        assert_eq!(output.code, Some(1), "a server that {what}: {output:#?}");
        assert!(!output.stderr.contains("panicked"), "a server that {what}: {output:#?}");
        println!("a server that {what}: {}", output.stderr.trim());
    }
}

pub fn a_server_redirects_ten_times_at_most() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (counter, redirects) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut peer = Peer { requests: BufReader::new(stream.try_clone().unwrap()), stream };
            // An error is the client's end.
            while let Ok((_, number)) = peer.request() {
                let _ = counter.send(());
                let location = format!("Location: rtsp://127.0.0.1:{port}/x");
                let answer = format!("RTSP/1.0 302 Found\r\nCSeq: {number}\r\n{location}\r\n\r\n");
                let _ = peer.stream.write_all(answer.as_bytes());
            }
        }
    });
    let path = format!("url rtsp://127.0.0.1:{port}/x timeout=9s ! decode ! null");
    run(&["run", &path]).ended(1).prints("the server redirects more than 10 times");
    assert_eq!(redirects.try_iter().count(), 11);
}

pub fn a_server_cannot_send_the_worker_to_another_port() {
    // Without Landlock's network rules, nothing confines a worker to one port.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = other.local_addr().unwrap().port();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut peer = Peer { requests: BufReader::new(stream.try_clone().unwrap()), stream };
        let (_, number) = peer.request().unwrap();
        let answer =
            format!("RTSP/1.0 302 Found\r\nCSeq: {number}\r\nLocation: rtsp://127.0.0.1:{target}/x\r\n\r\n");
        peer.stream.write_all(answer.as_bytes()).unwrap();
        // The client may try again at the same connection.
        let _ = peer.request();
    });
    let path = format!("url rtsp://127.0.0.1:{port}/x timeout=1s ! decode ! null");
    run(&["run", &path]).ended(1);
    server.join().unwrap();
    other.set_nonblocking(true).unwrap();
    if framepath_os::machine::landlock_abi().is_ok_and(|version| version >= 4) {
        assert!(other.accept().is_err(), "the worker followed the redirection");
    }
}
