// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures over HTTP: the answer to every GET request is the page of metrics, whatever the path.
//! Implements as much of HTTP/1.0 as a scraper needs.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

/// Maximum number of metrics readers at a time. One more replaces the oldest reader that has not sent its
/// whole request, or else the oldest reader.
const READERS: usize = 32;
/// Time limit for a reader to send its request and to read the answer, from its connection on, nanoseconds.
const PATIENCE_NS: u64 = 5_000_000_000;
/// Pause after accepting has failed, nanoseconds. Most likely the process lacks descriptors; without a
/// pause the waiting connection would keep the loop busy.
const PAUSE_NS: u64 = 100_000_000;
/// Maximum size of an incomplete request, bytes; a larger one closes the connection.
const REQUEST_BYTES: usize = 8192;

/// The listening socket for metrics, and the connected readers.
#[derive(Debug)]
pub(super) struct Metrics {
    listener: TcpListener,
    /// Readers, oldest first.
    readers: Vec<Reader>,
    /// CLOCK_MONOTONIC time, nanoseconds, before which no connection is accepted; `None` without a
    /// pause.
    paused_until_ns: Option<u64>,
}

#[derive(Debug)]
struct Reader {
    stream: TcpStream,
    /// Received part of the request.
    request: Vec<u8>,
    /// Rest of the answer that must still be written; `None` until the request is complete.
    answer: Option<Vec<u8>>,
    /// CLOCK_MONOTONIC time, nanoseconds, when the connection is closed at the latest.
    until_ns: u64,
}

impl Metrics {
    pub(super) fn new(listener: TcpListener) -> Metrics {
        Metrics { listener, readers: Vec::new(), paused_until_ns: None }
    }

    /// Returns the listening socket; `None` while accepting is paused.
    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.paused_until_ns.is_none().then(|| self.listener.as_fd())
    }

    /// Returns every reader's socket. Each comes with true if the service waits until the socket is
    /// writable, or false if the service waits until the socket is readable.
    pub(super) fn readers(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        self.readers.iter().map(|reader| (reader.stream.as_fd(), reader.answer.is_some()))
    }

    /// Accepts one waiting connection, and removes a reader if there are [`READERS`] already. Pauses
    /// accepting for [`PAUSE_NS`] if accept(2) fails, unless no connection waits, the connection is gone or
    /// a signal has interrupted the call.
    pub(super) fn accept(&mut self, now_ns: u64) {
        let accepted = self.listener.accept();
        self.add_connection(accepted.map(|(stream, _)| stream), now_ns);
    }

    fn add_connection(&mut self, accepted: io::Result<TcpStream>, now_ns: u64) {
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) if is_later(&error) || error.kind() == ErrorKind::ConnectionAborted => return,
            Err(_) => {
                self.paused_until_ns = Some(now_ns + PAUSE_NS);
                return;
            }
        };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        if self.readers.len() >= READERS {
            // Removes the oldest reader that has not sent its whole request; if there is none, the
            // oldest reader.
            let silent = self.readers.iter().position(|reader| reader.answer.is_none());
            self.readers.remove(silent.unwrap_or(0));
        }
        let until_ns = now_ns + PATIENCE_NS;
        self.readers.push(Reader { stream, request: Vec::new(), answer: None, until_ns });
    }

    /// Reads from and writes to every reader, without waiting; removes readers that are finished, have
    /// failed or are late. Ends a pause that is over. `page` returns the page of metrics, and is called for
    /// each GET request.
    pub(super) fn serve(&mut self, now_ns: u64, page: impl Fn() -> String) {
        self.paused_until_ns = self.paused_until_ns.filter(|until_ns| *until_ns > now_ns);
        self.readers.retain_mut(|reader| reader.until_ns > now_ns && reader.serve(&page));
    }

    /// Returns the next deadline of a reader or of the pause, CLOCK_MONOTONIC nanoseconds; `None` if there is
    /// none.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.readers.iter().map(|reader| reader.until_ns).chain(self.paused_until_ns).min()
    }
}

impl Reader {
    /// Reads a part of the request; if the request is complete, writes a part of the answer. Does
    /// not wait. Returns `true` if there is more to do; `false` if the connection is finished, has
    /// failed, or has sent more than [`REQUEST_BYTES`] of an incomplete request.
    fn serve(&mut self, page: &impl Fn() -> String) -> bool {
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

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn answer(request: &[u8], page: &impl Fn() -> String) -> String {
    let (status, body) = match request {
        [b'G', b'E', b'T', b' ', ..] => ("200 OK", page()),
        _ => ("405 Method Not Allowed", "only GET is supported\n".to_owned()),
    };
    format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepting_pauses_after_a_failure() {
        let mut metrics = Metrics::new(TcpListener::bind("127.0.0.1:0").unwrap());
        metrics.add_connection(Err(ErrorKind::WouldBlock.into()), 7);
        assert!(metrics.listener().is_some());
        // EMFILE.
        metrics.add_connection(Err(io::Error::from_raw_os_error(24)), 7);
        assert!(metrics.listener().is_none());
        assert_eq!(metrics.deadline_ns(), Some(7 + PAUSE_NS));
        metrics.serve(6 + PAUSE_NS, String::new);
        assert!(metrics.listener().is_none());
        metrics.serve(7 + PAUSE_NS, String::new);
        assert!(metrics.listener().is_some() && metrics.deadline_ns().is_none());
    }

    #[test]
    fn a_new_reader_replaces_the_oldest_reader_without_a_request() {
        let mut metrics = Metrics::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let address = metrics.listener.local_addr().unwrap();
        let mut clients = Vec::new();
        for number in 0..READERS {
            clients.push(TcpStream::connect(address).unwrap());
            metrics.accept(number as u64);
        }
        // The first reader has sent its request, and has not yet read the whole answer.
        metrics.readers[0].answer = Some(Vec::new());
        for _ in 0..2 {
            clients.push(TcpStream::connect(address).unwrap());
            metrics.accept(99);
        }
        let since: Vec<u64> = metrics.readers.iter().map(|reader| reader.until_ns - PATIENCE_NS).collect();
        let expected: Vec<u64> = [0].into_iter().chain(3..READERS as u64).chain([99, 99]).collect();
        assert_eq!(since, expected);
    }
}
