// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection to an X server whose waits end by a signal, a stop request or a time limit.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use std::{fs, io};

use framepath_model::shown::shown;
use framepath_os::measure::meter;
use framepath_os::process::{cancel, signal, stop};
use framepath_os::time::now_ns;
use x11rb::connection::{Connection, RequestConnection};
use x11rb::errors::{ConnectError, ConnectionError, ReplyError, ReplyOrIdError};
use x11rb::protocol::xproto::{Screen, Setup};
use x11rb::protocol::{ErrorKind, Event};
use x11rb::reexports::x11rb_protocol::{parse_display, xauth};
use x11rb::rust_connection::{DefaultStream, PollMode, RustConnection, Stream};
use x11rb::utils::RawFdContainer;

use super::reply_limit::ReplyLimit;
use super::request_count::RequestCount;
use crate::device::SLICE;
use crate::error::StageError;

/// Time limit for the server's answer to a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest file of cookies, bytes.
const LARGEST_COOKIES: u64 = 1 << 20;

/// Connection to an X server.
pub(super) struct XServer {
    connection: XConnection,
    /// Name of the display, for errors.
    name: String,
    /// Number of the screen.
    screen: usize,
    /// True if the connection is a Unix socket, which passes descriptors.
    is_local: bool,
}

/// Connection that sends requests to an X server.
pub(super) type XConnection = RustConnection<TimedStream>;

/// Error of a request to an X server.
#[derive(Debug)]
pub(super) enum XFailure {
    /// A signal or a stop request has ended the wait for the answer.
    Interrupted,
    /// The server has refused a request.
    Refused(ErrorKind, StageError),
    /// The connection has failed, or the server does not answer.
    Lost(StageError),
}

impl XFailure {
    /// Returns the error for a caller to which an interrupted wait is an error, too.
    pub(super) fn into_error(self) -> StageError {
        match self {
            XFailure::Interrupted => StageError::io("wait for the X server")(cancel::canceled()),
            XFailure::Refused(_, error) | XFailure::Lost(error) => error,
        }
    }
}

/// Checks the file with the user's cookies, which x11rb reads whole: it must have an end, and be no larger than any honest one.
fn check_cookies() -> Result<(), StageError> {
    let named = std::env::var_os("XAUTHORITY").map(PathBuf::from);
    let in_home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".Xauthority"));
    let Some(file) = named.or_else(in_home) else { return Ok(()) };
    // A file that is missing, such as /dev/null, has no cookies.
    match fs::metadata(&file) {
        Ok(found)
            if file != Path::new("/dev/null") && (!found.is_file() || found.len() > LARGEST_COOKIES) =>
        {
            let file = shown(&file.to_string_lossy()).to_string();
            Err(StageError::Screen(format!(
                "{file} is no file of X cookies; correct XAUTHORITY, or remove it"
            )))
        }
        _ => Ok(()),
    }
}

impl XServer {
    /// Connects to the display `display`, or to the one in `DISPLAY`.
    ///
    /// # Errors
    /// No display is named, or the server cannot be reached or denies the connection.
    pub(super) fn connect(display: Option<&str>) -> Result<XServer, StageError> {
        let from_environment = || std::env::var("DISPLAY").ok().filter(|name| !name.is_empty());
        let Some(name) = display.map(str::to_owned).or_else(from_environment) else {
            let what = "no X server is named; name it, such as `x11 :0`, or set DISPLAY";
            return Err(StageError::Screen(what.to_owned()));
        };
        let cannot = |what: &dyn std::fmt::Display| {
            StageError::Screen(format!("cannot connect to the X server {name}: {what}"))
        };
        let parsed = parse_display::parse_display(Some(&name)).map_err(|_| {
            StageError::Screen(format!("{name} is no name of an X server; expected one such as `:0`"))
        })?;
        let screen = usize::from(parsed.screen);
        check_cookies()?;
        let mut failure = None;
        for address in parsed.connect_instruction() {
            let is_local = matches!(address, parse_display::ConnectAddress::Socket(_));
            match DefaultStream::connect(&address) {
                Ok((stream, (family, address))) => {
                    // Without a cookie, the server decides whether it lets this user in.
                    let auth = xauth::get_auth(family, &address, parsed.display).ok().flatten();
                    let (kind, cookie) = auth.unwrap_or_default();
                    let stream = TimedStream::new(stream);
                    stream.limit();
                    let connected =
                        RustConnection::connect_to_stream_with_auth_info(stream, screen, kind, cookie);
                    let connection = connected.map_err(|error| match &error {
                        ConnectError::SetupFailed(setup) => {
                            let reason = String::from_utf8_lossy(&setup.reason);
                            cannot(&format!("it denies the connection: {}", reason.trim()))
                        }
                        ConnectError::InvalidScreen => cannot(&format!("it has no screen {screen}")),
                        ConnectError::IoError(_) if signal::interrupted() => {
                            XFailure::Interrupted.into_error()
                        }
                        ConnectError::IoError(error) => cannot(&lost(error)),
                        error => cannot(error),
                    })?;
                    connection.stream().no_limit();
                    return Ok(XServer { connection, name, screen, is_local });
                }
                // The first address is the likeliest.
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
        Err(cannot(&failure.unwrap_or(io::ErrorKind::NotFound.into())))
    }

    pub(super) fn is_local(&self) -> bool {
        self.is_local
    }

    pub(super) fn setup(&self) -> &Setup {
        self.connection.setup()
    }

    /// Returns the description of the connection's screen.
    ///
    /// # Errors
    /// Does not happen: connecting has checked the screen's number.
    pub(super) fn screen(&self) -> Result<&Screen, StageError> {
        let screen = self.setup().roots.get(self.screen);
        screen.ok_or_else(|| self.error("it has no such screen"))
    }

    /// Makes an error with the server's name.
    pub(super) fn error(&self, what: impl std::fmt::Display) -> StageError {
        StageError::Screen(format!("X server {}: {what}", self.name))
    }

    /// Fails with the name of the first of `extensions` that the server lacks.
    pub(super) fn must_have(&self, extensions: &[&'static str]) -> Result<(), StageError> {
        for extension in extensions {
            if !self.has(extension).map_err(XFailure::into_error)? {
                return Err(
                    self.error(format!("it lacks the extension {extension}, which the capture needs"))
                );
            }
        }
        Ok(())
    }

    /// Returns true if the server has the extension.
    pub(super) fn has(&self, extension: &'static str) -> Result<bool, XFailure> {
        self.ask(|connection| Ok(connection.extension_information(extension)?.is_some()))
    }

    /// Sends requests and waits for their replies, all together for at most [`PATIENCE`]. The ledger counts the
    /// waits as blocked.
    pub(super) fn ask<T>(
        &self,
        requests: impl FnOnce(&XConnection) -> Result<T, ReplyOrIdError>,
    ) -> Result<T, XFailure> {
        self.connection.stream().limit();
        let reply = requests(&self.connection);
        self.connection.stream().no_limit();
        reply.map_err(|error| match error {
            ReplyOrIdError::X11Error(error) => {
                let request = error.request_name.unwrap_or("a request");
                let text = self.error(format!("it refuses {request}: {:?}", error.error_kind));
                XFailure::Refused(error.error_kind, text)
            }
            ReplyOrIdError::ConnectionError(error) => self.failed(&error),
            ReplyOrIdError::IdsExhausted => XFailure::Lost(self.error("it has no numbers left")),
        })
    }

    /// Admits replies of `bytes` bytes, because the next request asks for so many.
    pub(super) fn admit_reply(&self, bytes: usize) {
        self.connection.stream().reply_limit().admit(bytes);
    }

    /// Calls `handle` for each event that has arrived; does not wait.
    pub(super) fn events(&self, mut handle: impl FnMut(Event)) -> Result<(), XFailure> {
        // Limited, because a server could send events without end.
        self.connection.stream().limit();
        self.connection.stream().reply_limit().take_events();
        let result = loop {
            match self.connection.poll_for_event() {
                Ok(Some(event)) => handle(event),
                Ok(None) => break Ok(()),
                Err(error) => break Err(self.failed(&error)),
            }
        };
        self.connection.stream().no_limit();
        result
    }

    /// Waits until the server sends something, at most `limit`, or until a signal, a stop request or a wake-up of
    /// the thread. Does not wait if `awake` is true. Returns true if the server has sent something.
    pub(super) fn wait(&self, limit: Duration, awake: impl Fn() -> bool) -> Result<bool, XFailure> {
        self.connection.flush().map_err(|error| self.failed(&error))?;
        let stream = self.connection.stream().stream.as_fd();
        let waited = stop::wait_for_socket(stream, false, limit, awake);
        waited.map_err(|error| self.failed(&ConnectionError::IoError(error)))
    }

    fn failed(&self, error: &ConnectionError) -> XFailure {
        match error {
            ConnectionError::IoError(_) if signal::interrupted() => XFailure::Interrupted,
            ConnectionError::IoError(error) => XFailure::Lost(self.error(lost(error))),
            error => XFailure::Lost(self.error(error)),
        }
    }
}

/// Converts the error of a request without an id to the error type of [`XServer::ask`].
pub(super) fn reply(error: ReplyError) -> ReplyOrIdError {
    error.into()
}

/// Describes an error of the connection.
fn lost(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => format!("it has not answered for {} s", PATIENCE.as_secs()),
        io::ErrorKind::InvalidData => error.to_string(),
        _ => format!("the connection is lost: {error}"),
    }
}

/// Socket to an X server. While a time limit is set, reads and waits fail after it, and waits fail after a signal or
/// a stop request. A read fails if it begins a packet that is too large, or that no request has asked for.
pub(super) struct TimedStream {
    stream: DefaultStream,
    /// End of the time limit, CLOCK_MONOTONIC nanoseconds; 0 without a limit.
    deadline_ns: AtomicU64,
    reply_limit: Mutex<ReplyLimit>,
    sent: Mutex<RequestCount>,
}

impl TimedStream {
    fn new(stream: DefaultStream) -> TimedStream {
        let (reply_limit, sent) = (Mutex::new(ReplyLimit::new()), Mutex::new(RequestCount::new()));
        TimedStream { stream, deadline_ns: AtomicU64::new(0), reply_limit, sent }
    }

    fn sent(&self) -> MutexGuard<'_, RequestCount> {
        self.sent.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn reply_limit(&self) -> MutexGuard<'_, ReplyLimit> {
        self.reply_limit.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Sets the time limit [`PATIENCE`] from now on.
    fn limit(&self) {
        self.deadline_ns.store(now_ns() + PATIENCE.as_nanos() as u64, Ordering::Relaxed);
    }

    fn no_limit(&self) {
        self.deadline_ns.store(0, Ordering::Relaxed);
    }

    /// Returns the time that is left, at most [`SLICE`].
    fn left(&self) -> io::Result<Duration> {
        let deadline_ns = self.deadline_ns.load(Ordering::Relaxed);
        if deadline_ns == 0 {
            return Ok(SLICE);
        }
        let left = Duration::from_nanos(deadline_ns.saturating_sub(now_ns()));
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left.min(SLICE)) }
    }
}

impl Stream for TimedStream {
    fn poll(&self, mode: PollMode) -> io::Result<()> {
        loop {
            let left = self.left()?;
            if signal::interrupted() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let wait = || stop::wait_for_socket(self.stream.as_fd(), mode.writable(), left, || false);
            if meter::blocked(wait)? {
                return Ok(());
            }
        }
    }

    fn read(&self, buf: &mut [u8], fd_storage: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        self.left()?;
        let len = self.stream.read(buf, fd_storage)?;
        // No request asks for descriptors, and x11rb keeps them.
        fd_storage.clear();
        // Before x11rb sees the length and allocates it.
        let requests = self.sent().requests();
        self.reply_limit().check(&buf[..len], requests)?;
        Ok(len)
    }

    fn write(&self, buf: &[u8], fds: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        let len = self.stream.write(buf, fds)?;
        self.sent().push(&buf[..len]);
        Ok(len)
    }

    fn write_vectored(&self, bufs: &[io::IoSlice<'_>], fds: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        let len = self.stream.write_vectored(bufs, fds)?;
        let (mut sent, mut left) = (self.sent(), len);
        for buf in bufs {
            let written = left.min(buf.len());
            sent.push(&buf[..written]);
            left -= written;
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Returns the server's end of a connection, and the program's.
    fn connected() -> (UnixStream, TimedStream) {
        let (server, client) = UnixStream::pair().unwrap();
        let (stream, _) = DefaultStream::from_unix_stream(client).unwrap();
        (server, TimedStream::new(stream))
    }

    #[test]
    fn a_reply_that_is_too_large_is_not_read() {
        let (mut server, stream) = connected();
        let mut buffer = [0; 64];
        let mut read = |bytes: &[u8]| {
            server.write_all(bytes).unwrap();
            stream.read(&mut buffer, &mut Vec::new())
        };
        assert_eq!(read(&[1, 0, 11, 0, 0, 0, 0, 0]).unwrap(), 8);
        let mut reply = [0; 32];
        (reply[0], reply[7]) = (1, 0x10);
        let error = read(&reply).unwrap_err();
        assert!(lost(&error).starts_with("it sends a reply of "), "{error}");
    }

    #[test]
    fn a_reply_without_a_request_is_not_read() {
        let (mut server, stream) = connected();
        let setup = [io::IoSlice::new(&[0; 12]), io::IoSlice::new(&[])];
        assert_eq!(stream.write_vectored(&setup, &mut Vec::new()).unwrap(), 12);
        let [a, b] = 1_u16.to_ne_bytes();
        let request = [43, 0, a, b];
        assert_eq!(stream.write(&request[..3], &mut Vec::new()).unwrap(), 3);
        assert_eq!(stream.write(&request[3..], &mut Vec::new()).unwrap(), 1);
        let mut buffer = [0; 64];
        let mut read = |bytes: &[u8]| {
            server.write_all(bytes).unwrap();
            stream.read(&mut buffer, &mut Vec::new())
        };
        assert_eq!(read(&[1, 0, 11, 0, 0, 0, 0, 0]).unwrap(), 8);
        let mut reply = [0; 32];
        reply[0] = 1;
        reply[2..4].copy_from_slice(&1_u16.to_ne_bytes());
        assert_eq!(read(&reply).unwrap(), 32);
        let error = read(&reply).unwrap_err();
        assert_eq!(lost(&error), "it answers a request twice");
    }
}
