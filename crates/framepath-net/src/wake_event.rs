// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event descriptor that wakes a thread that waits for sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::error::WebrtcError;

/// Event that one thread sets and another waits for, together with sockets.
#[derive(Debug)]
pub(crate) struct WakeEvent(OwnedFd);

impl WakeEvent {
    /// Makes an event that is not set.
    ///
    /// # Errors
    /// From eventfd(2).
    pub(crate) fn new() -> Result<WakeEvent, WebrtcError> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        event.map(WakeEvent).map_err(|error| WebrtcError::io("eventfd")(error.into()))
    }

    /// Ends the present wait, or else the next.
    pub(crate) fn set(&self) {
        // Fails only if the event is set 2^64 times without a wait.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Resets the event. A call of [`set`](WakeEvent::set) that comes later ends the next wait.
    pub(crate) fn reset(&self) {
        // Fails if the event is not set.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until `event` is set, `socket` is ready for `flags`, or `deadline` has come. May return early.
///
/// # Errors
/// From poll(2), except EINTR.
pub(crate) fn wait(
    event: &WakeEvent,
    socket: impl AsFd,
    flags: PollFlags,
    deadline: Option<Instant>,
) -> Result<(), WebrtcError> {
    let left = deadline.map(|deadline| timespec(deadline.saturating_duration_since(Instant::now())));
    let mut fds = [PollFd::new(event, PollFlags::IN), PollFd::new(&socket, flags)];
    match poll(&mut fds, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(WebrtcError::io("poll")(error.into())),
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().min(i64::MAX as u64) as i64, tv_nsec: time.subsec_nanos().into() }
}
