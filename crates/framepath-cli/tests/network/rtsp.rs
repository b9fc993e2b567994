// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of a real RTSP server.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout};

use framepath_testkit::harness::Tested;
use framepath_testkit::{CommandOutput, framepath, md5_lines, run, wait};

use crate::server::{RtspServer, needs_server};
use crate::{FRAME_BYTES, FRAMES, clip, hashes, hashes_of};

pub fn all_frames_of_a_server_arrive_over_tcp() -> Tested {
    needs_server()?;
    let folder = tempfile::tempdir().unwrap();
    let clip = clip(folder.path());
    let server = RtspServer::start(&clip, 0);
    for (options, decode) in [("", "decode"), ("host=process", "decode host=process")] {
        let path = format!("url {} {options} ! {decode} ! framemd5 -", server.url());
        let output = run(&["run", "--quiet", &path]).ended(0);
        assert_eq!(hashes(&output.frames()), hashes_of(&clip), "{decode}: {}", output.stderr);
    }
    // A name that this process looks up; it may have two addresses, of which the server has one.
    let path = format!("url rtsp://localhost:{}/clip ! decode ! framemd5 -", server.port);
    let output = run(&["run", "--quiet", "--frames", "5", &path]).ended(0);
    assert_eq!(hashes(&output.frames()), hashes_of(&clip)[..5]);
    Ok(())
}

pub fn frames_of_a_server_arrive_over_udp() -> Tested {
    needs_server()?;
    let folder = tempfile::tempdir().unwrap();
    let clip = clip(folder.path());
    let server = RtspServer::start(&clip, 0);
    for latency in ["100ms", "0s"] {
        let path = format!("url {} transport=udp latency={latency} ! decode ! framemd5 -", server.url());
        let output = run(&["run", "--quiet", &path]);
        // A busy machine may drop datagrams, and the goodbye may overtake the last ones.
        assert!(matches!(output.code, Some(0 | 3)), "{output:#?}");
        let (got, expected) = (hashes(&output.frames()), hashes_of(&clip));
        let right = got.iter().zip(&expected).filter(|(got, expected)| got == expected).count();
        assert!(right >= FRAMES / 4, "{right} frames are right: {}", output.stderr);
    }
    Ok(())
}

/// Checks that `got` are the first of the frames `expected`. The last group of B pictures may be missing, because
/// they follow a later picture in the stream.
fn assert_begins(got: &[String], expected: &[String]) {
    let places: Vec<usize> =
        got.iter().map(|hash| expected.iter().position(|e| e == hash).unwrap()).collect();
    assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
    let missing = places.last().map_or(0, |last| last + 1 - places.len());
    assert!(missing <= 3, "{missing} of {places:?}");
}

/// Checks that the presentation times of framemd5 lines increase.
fn assert_times_increase(lines: &[String]) {
    let time = |line: &String| line.split(',').nth(2).unwrap().trim().parse::<i64>().unwrap();
    for pair in lines.windows(2) {
        assert!(time(&pair[0]) < time(&pair[1]), "{pair:?}");
    }
}

/// Running path that writes its frames' hashes to a file. Its standard output has the pixels, which show its
/// progress, because framemd5's lines are buffered.
struct Playing {
    child: Child,
    pixels: ChildStdout,
    listing: PathBuf,
}

impl Playing {
    fn start(source: &str, decode: &str, arguments: &[&str], folder: &Path) -> Playing {
        let listing = folder.join("frames.md5");
        let sinks = format!("tee ( queue ! framemd5 {} ) ( raw - )", listing.display());
        let path = format!("{source} ! {decode} ! {sinks}");
        let mut child = framepath(&[&["run", "--quiet"], arguments, &[&path]].concat()).spawn().unwrap();
        let pixels = child.stdout.take().unwrap();
        Playing { child, pixels, listing }
    }

    /// Waits until `frames` more frames have passed.
    fn pass(&mut self, frames: usize) {
        self.pixels.read_exact(&mut vec![0; frames * FRAME_BYTES]).unwrap();
    }

    /// Waits for the end of the run. Returns its output, and the framemd5 lines.
    fn end(mut self) -> (CommandOutput, Vec<String>) {
        std::io::copy(&mut self.pixels, &mut std::io::sink()).unwrap();
        let output = wait(self.child, "a run");
        (output, md5_lines(&std::fs::read_to_string(self.listing).unwrap()))
    }
}

pub fn a_stream_goes_on_behind_a_restart_of_its_server() -> Tested {
    needs_server()?;
    let folder = tempfile::tempdir().unwrap();
    let clip = clip(folder.path());
    for decode in ["decode", "decode host=process"] {
        let server = RtspServer::start(&clip, 0);
        let (url, port) = (server.url(), server.port);
        // More frames than the first server sends before it is killed, and fewer than both send.
        let limit = (FRAMES + 10).to_string();
        let source = format!("url {url} reconnect=inf");
        let mut playing = Playing::start(&source, decode, &["--frames", &limit], folder.path());
        playing.pass(20);
        drop(server);
        let _server = RtspServer::start(&clip, port);
        let (output, frames) = playing.end();
        let output = output.ended(3).prints("connection lost after ").prints("reconnected after ");
        assert!(frames.len() > FRAMES, "{}", output.stderr);
        assert_times_increase(&frames);
        let (got, expected) = (hashes(&frames), hashes_of(&clip));
        // The first server's frames, then the second's from the clip's start.
        let second = (20..got.len()).find(|at| got[*at] == expected[0]).unwrap();
        assert_begins(&got[..second], &expected);
        assert_eq!(got[second..], expected[..got.len() - second]);
    }
    Ok(())
}

pub fn a_stream_that_ends_is_played_again_until_the_server_is_gone() -> Tested {
    needs_server()?;
    let folder = tempfile::tempdir().unwrap();
    let clip = clip(folder.path());
    let server = RtspServer::start(&clip, 0);
    let mut playing =
        Playing::start(&format!("url {} reconnect=2", server.url()), "decode", &[], folder.path());
    playing.pass(FRAMES + 10);
    drop(server);
    // The second connection is lost for good, and so is the rest of the stream.
    let (output, text) = playing.end();
    let output = output.ended(1).prints("(the server ended the stream); reconnected after ");
    let output = output.prints("lost 1 connection: ");
    assert!(output.stderr.contains("without an end of the stream"), "{}", output.stderr);
    let (got, expected) = (hashes(&text), hashes_of(&clip));
    assert_eq!(got[..FRAMES], expected);
    assert_begins(&got[FRAMES..], &expected);
    assert_times_increase(&text);
    Ok(())
}

pub fn a_lost_connection_without_reconnect_is_an_error() -> Tested {
    needs_server()?;
    let folder = tempfile::tempdir().unwrap();
    let clip = clip(folder.path());
    let server = RtspServer::start(&clip, 0);
    let mut playing = Playing::start(&format!("url {}", server.url()), "decode", &[], folder.path());
    playing.pass(10);
    drop(server);
    let (output, text) = playing.end();
    output.ended(1).prints("the server closed the connection without an end of the stream");
    // The frames before the loss are delivered.
    assert_begins(&hashes(&text), &hashes_of(&clip));
    Ok(())
}

pub fn an_unknown_path_is_an_error_of_the_server() -> Tested {
    needs_server()?;
    let folder = tempfile::tempdir().unwrap();
    let clip = clip(folder.path());
    let server = RtspServer::start(&clip, 0);
    let path = format!("url rtsp://127.0.0.1:{}/other ! null", server.port);
    run(&["run", &path]).ended(1).prints("404");
    Ok(())
}

pub fn wrong_urls_are_errors_that_say_what_is_right() {
    // A port that no server has: it was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (url, code, parts) in [
        ("clip.mp4".to_owned(), 1, &["`file PATH`"][..]),
        ("gopher://a/b".to_owned(), 1, &["gopher", "supported: rtsp"]),
        ("rtsp://".to_owned(), 1, &["no server"]),
        ("rtsp://a:0/".to_owned(), 1, &["port `0`"]),
        ("rtsp://no-such-host.invalid/x".to_owned(), 1, &["look up the server no-such-host.invalid"]),
        (format!("rtsp://127.0.0.1:{port}/x"), 1, &["Connection refused"]),
    ] {
        let output = run(&["run", &format!("url {url} ! null")]).ended(code);
        for part in parts {
            assert!(output.stderr.contains(part), "{url}: {}", output.stderr);
        }
    }
}

pub fn an_option_of_another_scheme_is_refused_by_name() {
    for (url, part) in [
        ("rtsp://a/x start=1s", "start= belongs to http:// and https://, not to rtsp://"),
        ("rtsp://a/x loop=2", "loop= belongs to http://"),
        ("rtsp://a/x rate=25", "rate= belongs to http://"),
        ("rtsp://a/x ca=a.pem", "ca= belongs to http://"),
        ("rtsp://me:secret@a/x host=service", "open rtsp://a/x: host=service is not supported for rtsp://"),
        ("rtsp://a/x socket=/run/x", "socket= belongs to host=service"),
        ("rtsp://a/x service_uid=1", "service_uid= belongs to host=service"),
        ("http://a/x transport=udp", "transport= belongs to rtsp://, not to http://"),
        ("http://a/x latency=1s", "latency= belongs to rtsp://"),
        ("https://a/x timeout=1s", "timeout= belongs to rtsp://, not to https://"),
        ("https://a/x reconnect=1", "reconnect= belongs to rtsp://"),
    ] {
        run(&["run", &format!("url {url} ! null")]).ended(1).prints(part);
    }
}
