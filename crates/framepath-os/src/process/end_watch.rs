// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watch for the end of a process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Watch for the end of one process, also if its number is used again afterwards.
#[derive(Debug)]
pub struct EndWatch(OwnedFd);

impl EndWatch {
    /// Begins the watch of process `pid`, a child of this process or not.
    ///
    /// # Errors
    /// There is no such process, or too many files are open.
    pub fn new(pid: u32) -> io::Result<EndWatch> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        Ok(EndWatch(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Waits until the process, with all its threads, has ended, at most for `limit`. Returns true if it has ended.
    /// May return early after a signal to the calling thread.
    pub fn wait(&self, limit: Duration) -> bool {
        let mut events = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        // Fails only with EINTR, or for want of memory.
        poll(&mut events, Some(&limit)).is_ok_and(|ready| ready > 0)
    }

    /// True if the process, with all its threads, has ended.
    pub fn has_ended(&self) -> bool {
        self.wait(Duration::ZERO)
    }
}

/// Descriptor of the process (pidfd_open(2)).
impl AsFd for EndWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_end_of_a_child_is_seen_before_it_is_waited_for() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let watch = EndWatch::new(child.id()).unwrap();
        assert!(!watch.has_ended());
        drop(child.stdin.take());
        while !watch.wait(Duration::from_secs(60)) {}
        assert!(child.wait().unwrap().success() && watch.has_ended());
        assert!(EndWatch::new(0).is_err());
    }
}
