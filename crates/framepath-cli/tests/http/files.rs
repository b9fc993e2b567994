// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of ordinary servers: the frames are those of the local file.

use std::fs;
use std::process::{Child, Command, Stdio};

use framepath_testkit::harness::{Tested, needs_program};
use framepath_testkit::{clip, ffmpeg, until};

use super::server::{Server, head, send, send_file};
use super::{hashes, run, url};

/// A folder with clips of several containers, each with a name of its own.
pub fn made_clips() -> (tempfile::TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let (h264, vp9) = (clip("h264-180p8-container.mp4"), clip("vp9-180p8.ivf"));
    let mut names = Vec::new();
    for (source, name, options) in [
        (&h264, "index-behind.mp4", &[][..]),
        (&h264, "index-first.mp4", &["-movflags", "+faststart"]),
        (&h264, "fragments.mp4", &["-movflags", "+frag_keyframe+empty_moov"]),
        (&h264, "clip.mkv", &[]),
        (&h264, "clip.ts", &[]),
        (&vp9, "clip.webm", &[]),
    ] {
        let to = folder.path().join(name);
        let arguments = [&["-i", source, "-c", "copy"], options, &[to.to_str().unwrap()]].concat();
        ffmpeg(&arguments);
        names.push(to.to_str().unwrap().to_owned());
    }
    (folder, names)
}

pub fn frames_equal_those_of_the_file() {
    let (_folder, names) = made_clips();
    for name in names {
        let server = Server::of_file(fs::read(&name).unwrap());
        let address = server.url(&format!("films/{}", name.rsplit('/').next().unwrap()));
        for options in ["", "start=500ms", "loop=2"] {
            let expected = hashes(&format!("file {name} {options} ! decode"));
            assert!(expected.len() > 10, "{name} {options}: {} frames", expected.len());
            assert_eq!(hashes(&url(&address, options)), expected, "{name} {options}");
        }
        let hosted = run(&format!("{} host=process ! framemd5 -", url(&address, ""))).ended(0);
        assert_eq!(hosted.frames(), hashes(&format!("file {name} ! decode")), "{name}");
        let requests = server.requests();
        assert!(requests.iter().all(|request| request.range.is_some()), "{requests:?}");
    }
}

pub fn an_index_behind_the_pictures_takes_few_requests() {
    let (_folder, names) = made_clips();
    let server = Server::of_file(fs::read(&names[0]).unwrap());
    hashes(&url(&server.url("a.mp4"), ""));
    let requests = server.requests();
    assert!((1..=4).contains(&requests.len()), "{requests:?}");
    assert!(
        requests.iter().skip(1).all(|request| request.if_range.as_deref() == Some("\"v1\"")),
        "{requests:?}"
    );
}

pub fn a_server_without_ranges_sends_a_stream() {
    let (folder, mut names) = made_clips();
    // Larger than the demuxer's buffer, in which it can seek anyway.
    let large = folder.path().join("large-index-behind.mp4").to_str().unwrap().to_owned();
    ffmpeg(&["-stream_loop", "49", "-i", &clip("h264-180p8-container.mp4"), "-c", "copy", &large]);
    names.push(large);
    for name in &names {
        let bytes = fs::read(name).unwrap();
        let whole = bytes.clone();
        let plain = Server::start(move |_, stream| {
            send(stream, head("200 OK", &[("Content-Length", whole.len().to_string())]).as_bytes());
            send(stream, &whole);
        });
        let chunked = Server::start(move |_, stream| {
            send(stream, head("200 OK", &[("Transfer-Encoding", "chunked".to_owned())]).as_bytes());
            for chunk in bytes.chunks(10_007) {
                send(stream, format!("{:x}\r\n", chunk.len()).as_bytes());
                send(stream, chunk);
                send(stream, b"\r\n");
            }
            send(stream, b"0\r\n\r\n");
        });
        for server in [plain, chunked] {
            let path = url(&server.url("clip"), "");
            if name.ends_with("large-index-behind.mp4") {
                run(&format!("{path} ! null")).ended(1).prints("range requests");
            } else {
                assert_eq!(hashes(&path), hashes(&format!("file {name} ! decode")), "{name}");
            }
            assert_eq!(server.requests().len(), 1);
        }
    }
}

pub fn redirects_are_followed_and_bounded() {
    let bytes = fs::read(clip("h264-180p8-container.mp4")).unwrap();
    let server = Server::start(move |request, stream| {
        let to =
            |place: String| head("302 Found", &[("Location", place), ("Content-Length", "0".to_owned())]);
        match request.path.trim_start_matches('/').split_once('/') {
            Some(("hops", left)) if left != "0" => {
                let left: u32 = left.parse().unwrap();
                send(stream, to(format!("/hops/{}", left - 1)).as_bytes());
            }
            Some(("round", _)) => send(stream, to("/round/".to_owned()).as_bytes()),
            Some(("ftp", _)) => send(stream, to("ftp://127.0.0.1/a.mp4".to_owned()).as_bytes()),
            Some(("file", _)) => send(stream, to("file:///etc/passwd".to_owned()).as_bytes()),
            _ => send_file(request, stream, &bytes, "\"v1\""),
        }
    });
    let expected = hashes(&format!("file {} ! decode", clip("h264-180p8-container.mp4")));
    assert_eq!(hashes(&url(&server.url("hops/3"), "")), expected);
    let path = |place: &str| format!("{} ! null", url(&server.url(place), ""));
    run(&path("round/")).ended(1).prints("redirects more than 10 times");
    run(&path("hops/40")).ended(1).prints("redirects more than 10 times");
    for place in ["ftp/", "file/"] {
        let ran = run(&path(place)).ended(1);
        assert!(!ran.stderr.contains("root:"), "{ran:#?}");
    }
}

/// Python's web server on a free port, which sends whole files. Its end of life is that of this value.
pub struct Python {
    child: Child,
    pub port: u16,
}

impl Python {
    /// Runs `script`, which prints its port on the first line.
    pub fn run(script: &str, folder: &str) -> Python {
        use std::io::{BufRead, BufReader};
        let mut child = Command::new("python3")
            .args(["-u", "-c", script])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Python { port: line.trim().parse().unwrap(), child }
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PLAIN: &str = "
import http.server
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
print(server.server_port)
server.serve_forever()
";

pub fn a_foreign_server_works() -> Tested {
    needs_program("python3", "python3")?;
    let (folder, names) = made_clips();
    let python = Python::run(PLAIN, folder.path().to_str().unwrap());
    for name in names.iter().filter(|name| !name.ends_with("behind.mp4")) {
        let address = format!("http://127.0.0.1:{}/{}", python.port, name.rsplit('/').next().unwrap());
        assert_eq!(hashes(&url(&address, "")), hashes(&format!("file {name} ! decode")), "{name}");
    }
    let missing = format!("http://127.0.0.1:{}/none.mp4", python.port);
    run(&format!("{} ! null", url(&missing, ""))).ended(1).prints("404 Not Found");
    Ok(())
}

/// Starts busybox's web server, which answers range requests, on a free port.
pub fn a_foreign_server_with_ranges_works() -> Tested {
    needs_program("busybox", "busybox")?;
    let (folder, names) = made_clips();
    // Free until the listener is dropped; busybox cannot choose a port itself.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let folder = folder.path().to_str().unwrap().to_owned();
    let mut child =
        Command::new("busybox").args(["httpd", "-f", "-p", &address, "-h", &folder]).spawn().unwrap();
    until("busybox listens", || std::net::TcpStream::connect(&address).is_ok());
    let result = std::panic::catch_unwind(|| {
        for name in &names {
            let there = format!("http://{address}/{}", name.rsplit('/').next().unwrap());
            for options in ["", "start=500ms"] {
                let expected = hashes(&format!("file {name} {options} ! decode"));
                assert_eq!(hashes(&url(&there, options)), expected, "{name} {options}");
            }
        }
    });
    child.kill().unwrap();
    child.wait().unwrap();
    result.unwrap();
    Ok(())
}
