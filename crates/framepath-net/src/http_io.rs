// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection for `hyper` without an asynchronous runtime: one thread drives one connection.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use hyper::body::{Body, Bytes, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use openssl::ssl::SslStream;
use rustix::event::PollFlags;

use crate::error::WebrtcError;
use crate::wake_event::{WakeEvent, wait};

/// Readiness of the socket that a connection waits for.
#[derive(Default)]
struct Interest {
    /// Bits [`READ`] and [`WRITE`].
    flags: AtomicU8,
    /// True if the connection can go on without the socket.
    woken: AtomicBool,
    /// Bytes that were read since [`drive`] has looked at its deadline.
    read_bytes: AtomicUsize,
}

/// Bytes after which [`drive`] looks at its deadline again.
const MOST_READ: usize = 64 << 10;

const READ: u8 = 1;
const WRITE: u8 = 2;

impl Wake for Interest {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
    }
}

/// Bytes of HTTP, plain or encrypted.
pub(crate) enum HttpChannel {
    Plain(TcpStream),
    Tls(Box<SslStream<TcpStream>>),
}

impl HttpChannel {
    fn socket(&self) -> &TcpStream {
        match self {
            HttpChannel::Plain(stream) => stream,
            HttpChannel::Tls(stream) => stream.get_ref(),
        }
    }
}

impl io::Read for HttpChannel {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            HttpChannel::Plain(stream) => stream.read(bytes),
            HttpChannel::Tls(stream) => stream.read(bytes),
        }
    }
}

impl io::Write for HttpChannel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            HttpChannel::Plain(stream) => stream.write(bytes),
            HttpChannel::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Non-blocking connection, and the interest that [`drive`] waits for.
pub(crate) struct HttpStream {
    channel: HttpChannel,
    interest: Arc<Interest>,
}

/// Handle by which [`drive`] waits for the socket of an [`HttpStream`].
pub(crate) struct HttpWait {
    stream: TcpStream,
    interest: Arc<Interest>,
}

/// Makes the socket of `channel` non-blocking, for `hyper` and for [`drive`].
///
/// # Errors
/// From fcntl(2).
pub(crate) fn split(channel: HttpChannel) -> io::Result<(HttpStream, HttpWait)> {
    channel.socket().set_nonblocking(true)?;
    let interest = Arc::<Interest>::default();
    let wait = HttpWait { stream: channel.socket().try_clone()?, interest: interest.clone() };
    Ok((HttpStream { channel, interest }, wait))
}

impl HttpStream {
    fn poll<T>(&self, flag: u8, done: io::Result<T>) -> Poll<io::Result<T>> {
        match done {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.interest.flags.fetch_or(flag, Ordering::Relaxed);
                Poll::Pending
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.interest.woken.store(true, Ordering::Release);
                Poll::Pending
            }
            done => Poll::Ready(done),
        }
    }
}

impl Read for HttpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // A flood of bytes, such as informational answers without end, would keep the reader inside one call.
        if self.interest.read_bytes.load(Ordering::Relaxed) >= MOST_READ {
            self.interest.woken.store(true, Ordering::Release);
            return Poll::Pending;
        }
        let mut bytes = [0; 4096];
        let most = bytes.len().min(buffer.remaining());
        let read = self.channel.read(&mut bytes[..most]);
        if let Ok(len) = &read {
            self.interest.read_bytes.fetch_add(*len, Ordering::Relaxed);
        }
        self.poll(READ, read).map_ok(|len| buffer.put_slice(&bytes[..len]))
    }
}

impl Write for HttpStream {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.channel.write(bytes);
        self.poll(WRITE, written)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.channel.socket().shutdown(std::net::Shutdown::Write))
    }
}

/// Runs `future`, which uses the connection of `http`, to its end. Returns `None` if `deadline` passes or `stopped`
/// returns true first; it is checked when `stop` is set, and every time that the connection gets further.
///
/// # Errors
/// From poll(2).
pub(crate) fn drive<F: Future>(
    future: F,
    http: &HttpWait,
    deadline: Instant,
    stop: &WakeEvent,
    stopped: impl Fn() -> bool,
) -> Result<Option<F::Output>, WebrtcError> {
    let mut future = pin!(future);
    let waker = Waker::from(http.interest.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        http.interest.flags.store(0, Ordering::Relaxed);
        http.interest.woken.store(false, Ordering::Relaxed);
        http.interest.read_bytes.store(0, Ordering::Relaxed);
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(Some(output));
        }
        if stopped() || Instant::now() >= deadline {
            return Ok(None);
        }
        if http.interest.woken.load(Ordering::Acquire) {
            continue;
        }
        let interest = http.interest.flags.load(Ordering::Relaxed);
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, interest & READ != 0);
        flags.set(PollFlags::OUT, interest & WRITE != 0);
        wait(stop, &http.stream, flags, Some(deadline))?;
    }
}

/// Reads a body as text, at most `most` bytes. Returns `None` if it is longer or not UTF-8.
///
/// # Errors
/// The connection ended, or the other end violated HTTP.
pub(crate) async fn text_of(mut body: Incoming, most: usize) -> Result<Option<String>, hyper::Error> {
    let mut text = Vec::new();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let data: Bytes = frame?.into_data().unwrap_or_default();
        if text.len() + data.len() > most {
            return Ok(None);
        }
        text.extend_from_slice(&data);
    }
    Ok(String::from_utf8(text).ok())
}
