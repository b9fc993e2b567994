// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening, reading and writing files that may block for ever (a pipe, a fifo, a
//! terminal), until a signal asks the program to end ([`crate::process::signal`]).
//!
//! The standard library repeats a call that a signal interrupted. These functions first
//! check if the program is to end, and then fail with ECANCELED. Input ends with the
//! first signal; output has [`signal::GRACE`] to take the frames still inside.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::process::signal;
use crate::process::stop;
use crate::time::timespec;

/// Makes the error of a call that was given up because of a signal (ECANCELED).
pub fn canceled() -> io::Error {
    Errno::CANCELED.into()
}

/// Returns true if `error` is [`canceled`].
pub fn is_canceled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
}

/// Opens `path` to read. Waits for a writer of a fifo.
///
/// # Errors
/// From open(2); [`canceled`] after a signal.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    repeated(signal::interrupted, || rustix::fs::open(path, flags, Mode::empty())).map(File::from)
}

/// Creates `path`, or empties it, to write. Waits for a reader of a fifo.
///
/// # Errors
/// From open(2); [`canceled`] after a signal.
pub fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    repeated(signal::overdue, || rustix::fs::open(path, flags, mode)).map(File::from)
}

/// Reads into `buffer`; 0 at the end.
///
/// # Errors
/// From read(2); [`canceled`] after a signal or a request to [`stop`].
pub fn read(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    repeated(signal::interrupted, || {
        stop::wait_readable(file)?;
        rustix::io::read(file, &mut *buffer)
    })
}

/// Returns true if a read would return at once: there are bytes, the file is at its end, or
/// poll(2) cannot tell for this kind of file.
pub fn is_readable(file: &impl AsFd) -> bool {
    let now = timespec(std::time::Duration::ZERO);
    !matches!(poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&now)), Ok(0))
}

/// A file or stream to write to, without a buffer.
#[derive(Debug)]
pub struct StoppableWriter<F: AsFd>(F);

impl<F: AsFd> StoppableWriter<F> {
    /// Writes to `to`.
    pub fn new(to: F) -> StoppableWriter<F> {
        StoppableWriter(to)
    }
}

impl<F: AsFd> Write for StoppableWriter<F> {
    /// # Errors
    /// From write(2); [`canceled`] if there is no room long after a signal.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let ends = || signal::overdue() && !has_room(&self.0);
        // Checked before the call too, because no signal may interrupt this thread any
        // more.
        if ends() {
            return Err(canceled());
        }
        repeated(ends, || rustix::io::write(&self.0, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns true if a write would not block. EINTR does not tell: a terminal reports it also for a
/// signal that came before the call.
fn has_room(to: &impl AsFd) -> bool {
    let now = timespec(std::time::Duration::ZERO);
    poll(&mut [PollFd::new(to, PollFlags::OUT)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Repeats an interrupted `call` unless `ends`.
fn repeated<T>(ends: impl Fn() -> bool, mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) if ends() => return Err(canceled()),
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}
