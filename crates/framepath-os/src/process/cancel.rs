// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening, reading and writing files that may block forever (a pipe, a fifo, a terminal), until a
//! signal ends the program ([`crate::process::signal`]). A stop request ([`stop`]) interrupts no system
//! call of these functions except the wait in [`read`]; a write that begins after the request's grace period
//! fails if it would block.
//!
//! The standard library repeats a call that a signal interrupted. These functions first check
//! whether the program has to end, and if so fail with ECANCELED. The first signal ends a wait for input.
//! A wait for output lasts up to [`signal::GRACE`] after it, to write the remaining frames. A signal ends
//! only the waits of threads that are [`signal::interruptible`].

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::process::signal;
use crate::process::stop;
use crate::time::timespec;

/// Interval of the checks for a signal or a stop request in [`read_within`].
const SLICE: Duration = Duration::from_millis(100);

/// Makes the error of a call that was canceled by a signal or a stop request: ECANCELED.
pub fn canceled() -> io::Error {
    Errno::CANCELED.into()
}

/// Returns true if `error` is ECANCELED, as [`canceled`] makes it.
pub fn is_canceled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
}

/// Opens `path` for reading. Waits until a fifo has a writer.
///
/// # Errors
/// From open(2); [`canceled`] if a signal interrupts the wait. A stop request does not interrupt the wait.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    repeated(signal::interrupted, || rustix::fs::open(path, flags, Mode::empty())).map(File::from)
}

/// Creates `path`, or empties it, for writing. Waits until a fifo has a reader.
///
/// # Errors
/// From open(2); [`canceled`] if the wait lasts beyond [`signal::GRACE`] after a signal. A stop request
/// does not interrupt the wait.
pub fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    repeated(signal::overdue, || rustix::fs::open(path, flags, mode)).map(File::from)
}

/// Reads into `buffer`; waits until there are bytes or the file ends. Returns the number of bytes, 0 at the
/// end of the file.
///
/// # Errors
/// From read(2) or poll(2); [`canceled`] if a signal interrupts the wait for bytes, or if the calling
/// thread's run was requested to [`stop`], before or during the call.
pub fn read(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    repeated(signal::interrupted, || {
        stop::wait_readable(file)?;
        rustix::io::read(file, &mut *buffer)
    })
}

/// Reads `path` up to its end, or `most` bytes of it. Waits up to `limit` for a fifo's writer and for the bytes.
///
/// # Errors
/// From open(2), read(2) or poll(2); [`canceled`] if a signal or a stop request interrupts the wait;
/// [`io::ErrorKind::TimedOut`] if it lasts longer than `limit`.
pub fn read_within(path: &Path, most: usize, limit: Duration) -> io::Result<Vec<u8>> {
    // With NONBLOCK, the open of a fifo does not wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let (end, mut bytes, mut room) = (Instant::now() + limit, Vec::new(), vec![0; most]);
    while bytes.len() < most {
        if signal::interrupted() {
            return Err(canceled());
        }
        let slice = timespec(SLICE.min(end.saturating_duration_since(Instant::now())));
        match poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&slice)) {
            Ok(0) if Instant::now() >= end => return Err(io::ErrorKind::TimedOut.into()),
            Ok(0) | Err(Errno::INTR) => continue,
            ready => ready?,
        };
        match rustix::io::read(&file, &mut room[bytes.len()..]) {
            Ok(0) => break,
            Ok(count) => {
                let start = bytes.len();
                bytes.extend_from_slice(&room[start..start + count]);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

/// Returns true if a read would not block: there are bytes, the file is at its end, or poll(2)
/// does not support this kind of file. Also returns true if poll(2) fails.
pub fn is_readable(file: &impl AsFd) -> bool {
    let now = timespec(Duration::ZERO);
    !matches!(poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&now)), Ok(0))
}

/// Unbuffered writer to a file or stream. A write that would block fails when the grace period
/// ([`signal::GRACE`]) of a signal has passed, or had passed before the write for a stop request.
#[derive(Debug)]
pub struct StoppableWriter<F: AsFd>(F);

impl<F: AsFd> StoppableWriter<F> {
    /// Makes a writer to `to`.
    pub fn new(to: F) -> StoppableWriter<F> {
        StoppableWriter(to)
    }
}

impl<F: AsFd> Write for StoppableWriter<F> {
    /// Writes once and returns the number of bytes written; waits until there is room.
    ///
    /// # Errors
    /// From write(2); [`canceled`] if there is no room when the grace period of a signal has passed, before
    /// or during the call, or when the grace period of a stop request has passed before the call. A stop
    /// request does not interrupt a write that already waits.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let ends = || signal::overdue() && !has_room(&self.0);
        // Checked before the call too, because the signal may have interrupted this thread
        // earlier.
        if ends() {
            return Err(canceled());
        }
        repeated(ends, || rustix::io::write(&self.0, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: AsFd + Seek> Seek for StoppableWriter<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// Returns true if poll(2) says that a write to `to` would not block. An EINTR of write(2) does not prove the
/// opposite: a terminal also returns it for a signal that arrived before the call.
fn has_room(to: &impl AsFd) -> bool {
    let now = timespec(Duration::ZERO);
    poll(&mut [PollFd::new(to, PollFlags::OUT)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Calls `call`, again after each EINTR, and returns its first other result. Returns the error [`canceled`]
/// if `ends` returns true after an EINTR.
fn repeated<T>(ends: impl Fn() -> bool, mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) if ends() => return Err(canceled()),
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}
