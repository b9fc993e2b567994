// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for several descriptors at once.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::time::timespec;

/// Events of a descriptor for which [`wait`] waits. The end of a connection and an error of the descriptor
/// end the wait, too, whichever variant is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollEvents {
    /// The descriptor is readable.
    Readable,
    /// The descriptor is writable.
    Writable,
    /// Only the end of the connection, or an error.
    End,
}

/// Descriptor and the events for which [`wait`] waits.
#[derive(Debug)]
pub struct Wait<'a>(PollFd<'a>);

impl<'a> Wait<'a> {
    /// Selects `events` of `fd`; does not wait itself.
    pub fn new(fd: BorrowedFd<'a>, events: PollEvents) -> Wait<'a> {
        let flags = match events {
            PollEvents::Readable => PollFlags::IN,
            PollEvents::Writable => PollFlags::OUT,
            PollEvents::End => PollFlags::empty(),
        };
        Wait(PollFd::from_borrowed_fd(fd, flags))
    }
}

/// Sleeps until one of the selected events of a descriptor in `waits`, the end of its connection or an
/// error of the descriptor, or until a signal arrives or `limit` has passed (`None`: no limit). One system
/// call. Returns one value per descriptor, in the order of `waits`: true if such an event has occurred for
/// the descriptor. After a signal or the limit, all values are false.
///
/// # Errors
/// From poll(2), except EINTR.
pub fn wait(waits: Vec<Wait<'_>>, limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let limit = limit.map(timespec);
    let mut fds: Vec<PollFd<'_>> = waits.into_iter().map(|wait| wait.0).collect();
    match poll(&mut fds, limit.as_ref()) {
        Ok(_) => Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect()),
        Err(Errno::INTR) => Ok(vec![false; fds.len()]),
        Err(errno) => Err(errno.into()),
    }
}
