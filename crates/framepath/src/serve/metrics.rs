// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures over HTTP: whatever is asked, the answer is the one page there is.
//! Enough of HTTP/1.0 for a scraper, and no more.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

/// Readers at a time; who comes beyond is not let in.
const READERS: usize = 16;
/// How long one may take to ask and to read.
const PATIENCE_NS: u64 = 5_000_000_000;
/// Longest request.
const REQUEST_BYTES: usize = 8192;

/// The listening socket and its readers.
#[derive(Debug)]
pub(super) struct Metrics {
    listener: TcpListener,
    readers: Vec<Reader>,
}

#[derive(Debug)]
struct Reader {
    stream: TcpStream,
    request: Vec<u8>,
    /// What is left of the answer, once it is asked for.
    answer: Option<Vec<u8>>,
    until_ns: u64,
}

impl Metrics {
    pub(super) fn new(listener: TcpListener) -> Metrics {
        Metrics { listener, readers: Vec::new() }
    }

    /// The listening socket, while there is room for a reader.
    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        (self.readers.len() < READERS).then(|| self.listener.as_fd())
    }

    /// Every reader's socket, and whether it is to be written to.
    pub(super) fn readers(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        self.readers.iter().map(|reader| (reader.stream.as_fd(), reader.answer.is_some()))
    }

    /// Somebody wants to read.
    pub(super) fn accept(&mut self, now_ns: u64) {
        let Ok((stream, _)) = self.listener.accept() else { return };
        if stream.set_nonblocking(true).is_ok() {
            let until_ns = now_ns + PATIENCE_NS;
            self.readers.push(Reader { stream, request: Vec::new(), answer: None, until_ns });
        }
    }

    /// Goes on with every reader that can; `page` makes the answer.
    pub(super) fn turn(&mut self, now_ns: u64, page: impl Fn() -> String) {
        self.readers.retain_mut(|reader| reader.until_ns > now_ns && reader.turn(&page));
    }

    /// When the next reader has taken too long.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.readers.iter().map(|reader| reader.until_ns).min()
    }
}

impl Reader {
    /// Whether there is more to do.
    fn turn(&mut self, page: &impl Fn() -> String) -> bool {
        if self.answer.is_none() {
            let mut bytes = [0; 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(len) => self.request.extend_from_slice(&bytes[..len]),
                Err(error) => return is_later(&error),
            }
            let whole = self.request.windows(4).any(|four| four == b"\r\n\r\n");
            if !whole {
                return self.request.len() <= REQUEST_BYTES;
            }
            self.answer = Some(answer(&self.request, page).into_bytes());
        }
        let Some(answer) = &mut self.answer else { return false };
        match self.stream.write(answer) {
            Ok(written) => {
                answer.drain(..written);
                !answer.is_empty()
            }
            Err(error) => is_later(&error),
        }
    }
}

fn is_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn answer(request: &[u8], page: &impl Fn() -> String) -> String {
    let (status, body) = match request {
        [b'G', b'E', b'T', b' ', ..] => ("200 OK", page()),
        _ => ("405 Method Not Allowed", "GET is all there is\n".to_owned()),
    };
    format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
