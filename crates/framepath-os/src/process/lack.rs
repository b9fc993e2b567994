// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of system calls that report a lack of descriptors, memory or buffers in this process, of
//! its user or on the machine.

#[cfg(not(loom))]
use std::io;

use rustix::io::Errno;

/// Returns true if `error` is EMFILE, ENFILE, ENOMEM, ENOBUFS or ETOOMANYREFS, which report a lack of
/// descriptors, memory or buffers on this side, or ECANCELED
/// ([`canceled`](crate::process::cancel::canceled)). In both cases the peer is not at fault, and starting
/// another peer would not help.
#[cfg(not(loom))]
pub fn is_lack(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(errno_is_lack) || crate::process::cancel::is_canceled(error)
}

/// Returns true for EMFILE, ENFILE, ENOMEM, ENOBUFS and ETOOMANYREFS.
pub(crate) fn errno_is_lack(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::TOOMANYREFS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lack_is_no_fault_of_the_peer() {
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ETOOMANYREFS, libc::ECANCELED] {
            assert!(is_lack(&io::Error::from_raw_os_error(errno)));
        }
        for errno in [libc::EPIPE, libc::ECONNRESET, libc::EINVAL, libc::EBADF] {
            assert!(!is_lack(&io::Error::from_raw_os_error(errno)));
        }
        assert!(!is_lack(&io::Error::other("no number")));
    }
}
