// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptor that this process inherited at its start; it is claimed once.
//!
//! A process cannot prove that a descriptor number has no owner. Two facts are sufficient in
//! practice: the environment says that this process inherited the descriptor (a spawner names the socket's
//! device and inode, a service manager this process's id), and no code has claimed the number before.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::fstat;
use rustix::net::{AddressFamily, SocketType, sockopt};

/// First inherited file descriptor, after standard input, output and error.
pub(crate) const FIRST: RawFd = 3;

/// Environment variable that identifies the socket at [`FIRST`], in the form of [`identity`].
pub(crate) const SOCKET_VARIABLE: &str = "FRAMEPATH_SOCKET";

static CLAIMED: AtomicBool = AtomicBool::new(false);

/// Returns the identity of an open socket: device and inode of sockfs, unique among the open
/// sockets of the machine.
pub(crate) fn identity(socket: BorrowedFd<'_>) -> io::Result<String> {
    let stat = fstat(socket)?;
    Ok(format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Takes ownership of the descriptor [`FIRST`], once, if `expected` accepts the descriptor.
///
/// # Errors
/// The descriptor was claimed before, is not open, or was rejected by `expected`; or fcntl(2) fails. A
/// rejected descriptor stays open and can be claimed later.
pub(crate) fn claim(expected: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<OwnedFd> {
    // SAFETY: fcntl(2) on any number is harmless.
    if unsafe { libc::fcntl(FIRST, libc::F_GETFD) } < 0 {
        return Err(io::Error::other(
            "descriptor 3 is not open; framepath (for a worker) or a service manager has to pass it",
        ));
    }
    // SAFETY: open (checked above), and not kept beyond this call.
    expected(unsafe { BorrowedFd::borrow_raw(FIRST) })?;
    // Relaxed: one of two callers gets the descriptor; the flag orders nothing else.
    if CLAIMED.swap(true, Ordering::Relaxed) {
        return Err(io::Error::other("descriptor 3 was already claimed"));
    }
    // SAFETY: `expected` guarantees that this is the inherited file at this number; it is claimed
    // once.
    let fd = unsafe { OwnedFd::from_raw_fd(FIRST) };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// Returns an error unless `fd` is a SOCK_SEQPACKET unix socket with the identity `named`, the value of
/// [`SOCKET_VARIABLE`]. Without `named`, every descriptor is an error.
pub(crate) fn is_workers_socket(fd: BorrowedFd<'_>, named: Option<&str>) -> io::Result<()> {
    let refused = || {
        io::Error::other(
            "descriptor 3 is not the socket of FRAMEPATH_SOCKET; only framepath itself starts workers",
        )
    };
    let named = named.ok_or_else(refused)?;
    let is_ours = identity(fd)? == named
        && sockopt::socket_domain(fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
        && sockopt::socket_type(fd).is_ok_and(|kind| kind == SocketType::SEQPACKET);
    if is_ours { Ok(()) } else { Err(refused()) }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::crossing::Socket;

    #[test]
    fn only_the_socket_that_was_named_is_a_workers() {
        let (ours, other) = Socket::pair().unwrap();
        let named = identity(ours.as_fd()).unwrap();
        is_workers_socket(ours.as_fd(), Some(&named)).unwrap();
        assert!(is_workers_socket(other.as_fd(), Some(&named)).is_err());
        assert!(is_workers_socket(ours.as_fd(), None).is_err());
        assert!(is_workers_socket(ours.as_fd(), Some("")).is_err());
        // The identity is right, but the file is of another kind.
        let file = crate::memory::memory_file("no socket").unwrap();
        assert!(is_workers_socket(file.as_fd(), Some(&identity(file.as_fd()).unwrap())).is_err());
        let (stream, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let stream_named = identity(stream.as_fd()).unwrap();
        assert!(is_workers_socket(stream.as_fd(), Some(&stream_named)).is_err());
    }

    /// This process was not started as a worker, so it claims no descriptor 3.
    #[test]
    fn a_process_that_is_no_worker_keeps_its_descriptor_3() {
        // Makes sure that some file is open at 3.
        let _file = crate::memory::memory_file("third").unwrap();
        assert!(crate::process::spawn::take_socket().is_err());
        assert!(crate::process::spawn::take_socket().is_err());
    }
}
