// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for several descriptors at once.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::time::timespec;

/// Events to wait for. The end of a connection and errors are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollEvents {
    /// The descriptor is readable.
    Readable,
    /// The descriptor is writable.
    Writable,
    /// No event except the end and errors.
    End,
}

/// Descriptor to wait for.
#[derive(Debug)]
pub struct Wait<'a>(PollFd<'a>);

impl<'a> Wait<'a> {
    /// Waits for `events` of `fd`.
    pub fn new(fd: BorrowedFd<'a>, events: PollEvents) -> Wait<'a> {
        let flags = match events {
            PollEvents::Readable => PollFlags::IN,
            PollEvents::Writable => PollFlags::OUT,
            PollEvents::End => PollFlags::empty(),
        };
        Wait(PollFd::from_borrowed_fd(fd, flags))
    }
}

/// Sleeps until a descriptor of `waits` is ready, a signal arrives or `limit` has passed. One
/// system call. Returns one value per descriptor, in order: true if it is ready.
///
/// # Errors
/// From poll(2).
pub fn wait(waits: Vec<Wait<'_>>, limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let limit = limit.map(timespec);
    let mut fds: Vec<PollFd<'_>> = waits.into_iter().map(|wait| wait.0).collect();
    match poll(&mut fds, limit.as_ref()) {
        Ok(_) => Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect()),
        Err(Errno::INTR) => Ok(vec![false; fds.len()]),
        Err(errno) => Err(errno.into()),
    }
}
