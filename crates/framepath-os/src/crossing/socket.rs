// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket that complements the shared area: records, each with at most one file descriptor. On the socket
//! between a caller and its worker, records are rare: one for a stream, pool or failure, for example, but
//! none for each frame. (A demuxer whose caller reads the input has a second socket, with two records for
//! each read.)

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::ioctl;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    recvmsg, send, sendmsg, shutdown, socket_with, socketpair,
};

use super::Peer;
use crate::process::cancel::canceled;
use crate::process::signal;
use crate::time::timespec;

/// Maximum time that [`Socket::send`] waits, while too many descriptors of this user are unread, before it
/// fails with ETOOMANYREFS; milliseconds, approximately.
const CROWDED: u32 = 10_000;

/// Returns true for ETOOMANYREFS: too many descriptors of this user are in unread sockets, so
/// another cannot be sent.
pub fn is_crowded(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error())
}

/// One end of a connection that preserves record boundaries (SOCK_SEQPACKET). Threads may share it. An end
/// from [`Listener::accept`](super::Listener::accept) is nonblocking: [`Socket::send`] and
/// [`Socket::receive`] fail with `WouldBlock` where they would wait on another end.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Makes two connected ends that are closed on exec.
    ///
    /// # Errors
    /// From socketpair(2).
    pub fn pair() -> io::Result<(Socket, Socket)> {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Socket(a), Socket(b)))
    }

    /// Connects to the listener at `path`. Waits while the listener's backlog is full.
    ///
    /// # Errors
    /// `path` is too long for a socket's address. From socket(2) and connect(2): `NotFound` if the path does
    /// not exist, `ConnectionRefused` if no process listens on it, for example. ECANCELED if the grace period
    /// of a signal ends during the wait; a stop request does not interrupt the wait.
    pub fn connect(path: &Path) -> io::Result<Socket> {
        let address = SocketAddrUnix::new(path)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        loop {
            // Waits while the listener's backlog is full.
            match connect(&socket, &address) {
                Err(Errno::INTR) if signal::overdue() => return Err(canceled()),
                Err(Errno::INTR) => {}
                other => break other?,
            }
        }
        Ok(Socket(socket))
    }

    /// Returns the credentials of the peer, as they were when the peer connected (for the side that accepted),
    /// when the peer called listen(2) (for the side that connected), or when [`Socket::pair`] was called (the
    /// calling process's own).
    ///
    /// # Errors
    /// From getsockopt(2).
    pub fn peer(&self) -> io::Result<Peer> {
        Peer::of(&self.0)
    }

    /// Sends a record, with the descriptor `fd` if there is one. Waits while the socket has no room.
    ///
    /// # Errors
    /// `BrokenPipe` if the peer is gone (the first time `ConnectionReset` if the peer had not received all records
    /// sent to it), this side has [finished](Socket::finish), or one side has [shut](Socket::shut) the
    /// connection; ETOOMANYREFS ([`is_crowded`]) if the descriptor could not be
    /// sent for about 10 s; ECANCELED if the grace period of a signal ends during the wait (a stop request
    /// does not interrupt it); other errors from send(2) or sendmsg(2).
    pub fn send(&self, record: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.send_with(record, fd, SendFlags::NOSIGNAL)
    }

    /// Returns the memory of sent records that the peer has not received yet, bytes (SIOCOUTQ).
    /// It exceeds the sum of their lengths, because the kernel includes its own bookkeeping.
    ///
    /// # Errors
    /// From ioctl(2).
    pub fn unread_bytes(&self) -> io::Result<u32> {
        // SAFETY: the request writes one int.
        let unread =
            unsafe { ioctl::ioctl(&self.0, ioctl::Getter::<{ libc::TIOCOUTQ as _ }, libc::c_int>::new()) }?;
        Ok(u32::try_from(unread).unwrap_or(0))
    }

    /// Sends a record as [`Socket::send`] does, without waiting. Returns false, and sends nothing, if
    /// the socket has no room.
    ///
    /// # Errors
    /// As [`Socket::send`], but ETOOMANYREFS immediately.
    pub fn try_send(&self, record: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        match self.send_with(record, fd, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            other => other.map(|()| true),
        }
    }

    fn send_with(&self, record: &[u8], fd: Option<BorrowedFd<'_>>, flags: SendFlags) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = fd.map(|fd| [fd]);
        if let Some(fds) = &fds {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let mut patience = CROWDED;
        loop {
            let sent = match fd {
                Some(_) => sendmsg(&self.0, &[IoSlice::new(record)], &mut control, flags),
                // Avoids sendmsg(2), because the sandbox forbids it to a worker.
                None => send(&self.0, record, flags),
            };
            match sent {
                Err(Errno::INTR) if signal::overdue() => return Err(canceled()),
                Err(Errno::INTR) => {}
                // The kernel counts unread descriptors per user, not per process: another process
                // may have filled a socket with them.
                Err(Errno::TOOMANYREFS) if patience > 0 && !flags.contains(SendFlags::DONTWAIT) => {
                    patience -= 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(errno) => return Err(errno.into()),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Receives a record into `buffer`. Returns the number of bytes stored there, and the descriptor that was
    /// sent with the record, if any. Sleeps until there is a record. Length 0 means an empty record, or that
    /// the peer is gone or has [finished](Socket::finish). A record longer than `buffer` is cut, without an
    /// error. Descriptors after the first are closed.
    ///
    /// # Errors
    /// From recvmsg(2); EMFILE if a descriptor was sent and this process has reached its limit of
    /// descriptors; ECANCELED if the grace period of a signal ends during the wait (a stop request does
    /// not interrupt it).
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
                Err(Errno::INTR) if signal::overdue() => return Err(canceled()),
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        let mut fds = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let fd = fds.next().and_then(|mut fds| fds.next());
        if fd.is_none() && received.flags.contains(ReturnFlags::CTRUNC) {
            // A descriptor was sent, but this process has reached its limit: not an error of the
            // sender.
            return Err(Errno::MFILE.into());
        }
        Ok((received.bytes, fd))
    }

    /// Receives a record as [`Socket::receive`] does, but does not wait, and closes descriptors that were sent
    /// with the record. Returns the number of bytes stored in `buffer` (0 also if the peer is gone or has
    /// [finished](Socket::finish)), or `None` if there is no record now or a signal arrived.
    ///
    /// # Errors
    /// From recvfrom(2).
    pub fn try_receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(&self.0, buffer, RecvFlags::DONTWAIT) {
            Ok((_, len)) => Ok(Some(len)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits for at most `limit`, and returns true as soon as there is a record, the peer has
    /// [finished](Socket::finish), or the connection has ended. Returns false if `limit` has passed.
    ///
    /// # Errors
    /// From poll(2); ECANCELED if the grace period of a signal ends during the wait.
    pub fn readable_within(&self, limit: Duration) -> io::Result<bool> {
        let begun = Instant::now();
        loop {
            let left = timespec(limit.saturating_sub(begun.elapsed()));
            match poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&left)) {
                Err(Errno::INTR) if signal::overdue() => return Err(canceled()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(count) => return Ok(count > 0),
            }
        }
    }

    /// Ends the direction from this side to the peer. The peer can still receive earlier records, and this
    /// side can still receive.
    pub fn finish(&self) {
        // Fails only if the peer is gone.
        let _ = shutdown(&self.0, Shutdown::Write);
    }

    /// Returns true if the connection has ended: both sides have finished, one side has
    /// [shut](Socket::shut) it, or the peer is gone. Returns false if poll(2) fails. Does not wait.
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(self, PollFlags::empty())];
        poll(&mut fds, Some(&timespec(Duration::ZERO))).is_ok_and(|ended| ended > 0)
    }

    /// Ends the connection for both sides, even if other processes still have the socket open.
    pub fn shut(&self) {
        // Fails only if the peer has already ended the connection.
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Socket {
        Socket(fd)
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> OwnedFd {
        socket.0
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn records_keep_their_bounds_and_bring_a_descriptor() {
        let (a, b) = Socket::pair().unwrap();
        let file = crate::memory::memory_file("passed").unwrap();
        file.set_len(77).unwrap();
        a.send(b"first", Some(file.as_fd())).unwrap();
        a.send(b"second", None).unwrap();
        let mut buffer = [0; 16];
        let (len, fd) = b.receive(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"first");
        assert_eq!(std::fs::File::from(fd.unwrap()).metadata().unwrap().len(), 77);
        assert!(b.readable_within(Duration::from_secs(9)).unwrap());
        let (len, fd) = b.receive(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], fd.is_none()), (b"second".as_slice(), true));
        assert!(!b.readable_within(Duration::ZERO).unwrap());
        drop(a);
        assert_eq!(b.receive(&mut buffer).unwrap().0, 0);
        assert_eq!(b.send(b"late", None).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    /// A signal every millisecond does not prolong the wait: it ends long before the signals do.
    #[test]
    fn signals_do_not_prolong_a_wait() {
        extern "C" fn nothing(_: libc::c_int) {}
        let (socket, _peer) = Socket::pair().unwrap();
        // SAFETY: the handler does nothing, and no other test uses this signal.
        unsafe { libc::signal(libc::SIGUSR2, nothing as extern "C" fn(libc::c_int) as libc::sighandler_t) };
        // SAFETY: returns the calling thread's own number.
        let waiter = unsafe { libc::pthread_self() };
        let has_ended = AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let signals = scope.spawn(|| {
                let send = |_: &u32| {
                    // SAFETY: the thread waits for this one at the end of the scope, so it lives.
                    unsafe { libc::pthread_kill(waiter, libc::SIGUSR2) };
                    std::thread::sleep(Duration::from_millis(1));
                    !has_ended.load(Ordering::Relaxed)
                };
                (0..20_000).take_while(send).count()
            });
            assert!(!socket.readable_within(Duration::from_millis(20)).unwrap());
            has_ended.store(true, Ordering::Relaxed);
            signals.join().unwrap()
        });
        assert!(sent < 19_999, "the wait lasted as long as the signals");
    }
}
