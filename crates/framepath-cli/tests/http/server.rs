// SPDX-License-Identifier: MIT OR Apache-2.0
//! Web server on 127.0.0.1 whose answers the test decides.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A request, as far as the tests read it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Number of the request, from 0.
    pub number: usize,
    pub path: String,
    /// Offset of `Range: bytes=OFFSET-`.
    pub range: Option<usize>,
    pub if_range: Option<String>,
}

/// Server with a thread for each connection; each connection serves one request. Dropping it stops the server.
pub struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    ended: Arc<AtomicBool>,
}

impl Server {
    /// Starts a server that answers each request by `answer`.
    pub fn start(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            ended: Arc::default(),
        };
        let (requests, ended, answer) = (server.requests.clone(), server.ended.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(mut stream), requests, answer) = (stream, requests.clone(), answer.clone()) else {
                    continue;
                };
                thread::spawn(move || {
                    let Some(mut request) = read_request(&stream) else { return };
                    let mut all = requests.lock().unwrap();
                    request.number = all.len();
                    all.push(request.clone());
                    drop(all);
                    answer(&request, &mut stream);
                });
            }
        });
        server
    }

    /// Starts a server that answers range requests for `bytes`, whatever the path.
    pub fn of_file(bytes: Vec<u8>) -> Server {
        Server::start(move |request, stream| send_file(request, stream, &bytes, "\"v1\""))
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Ends the wait for a connection.
        let _ = TcpStream::connect(self.address);
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut request = Request::default();
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    request.path = first.split(' ').nth(1)?.to_owned();
    loop {
        let line = lines.next()?.ok()?;
        let Some((name, value)) = line.split_once(": ") else { return Some(request) };
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                request.range =
                    value.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-')?.parse().ok());
            }
            "if-range" => request.if_range = Some(value.to_owned()),
            _ => {}
        }
    }
}

/// Returns the head of an answer: status line, headers and the empty line.
pub fn head(status: &str, headers: &[(&str, String)]) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n")
}

/// Returns the head of the answer to a request for `bytes` of version `etag`, and the offset of the first byte.
pub fn head_of_file(request: &Request, bytes: &[u8], etag: &str) -> (String, usize) {
    let is_current = request.if_range.as_deref().is_none_or(|version| version == etag);
    let start = request.range.filter(|_| is_current);
    let size = bytes.len();
    let headers = |length: usize| vec![("ETag", etag.to_owned()), ("Content-Length", length.to_string())];
    match start {
        None => (head("200 OK", &headers(size)), 0),
        Some(start) if start >= size => {
            (head("416 Range Not Satisfiable", &[("Content-Range", format!("bytes */{size}"))]), size)
        }
        Some(start) => {
            let mut headers = headers(size - start);
            headers.push(("Content-Range", format!("bytes {start}-{}/{size}", size - 1)));
            (head("206 Partial Content", &headers), start)
        }
    }
}

/// Answers a request for `bytes` as an ordinary server does.
pub fn send_file(request: &Request, stream: &mut TcpStream, bytes: &[u8], etag: &str) {
    let (head, start) = head_of_file(request, bytes, etag);
    send(stream, head.as_bytes());
    send(stream, &bytes[start..]);
}

/// Sends `bytes`; a client that has enough closes the connection.
pub fn send(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}
