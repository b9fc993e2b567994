// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket that clients connect to, by its name in the file system.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
    sockopt,
};

use super::Socket;
use crate::inherited;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// A listening socket of records.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    /// The name, with device and inode, where we made it.
    made: Option<(PathBuf, u64, u64)>,
}

/// Who is at the other end of a connection, by the kernel's word: as it was
/// when the connection was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id; 0 where it lies in another pid namespace.
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
    /// Effective group, and the supplementary ones.
    pub gids: Vec<u32>,
}

impl Listener {
    /// Listens at `path`, with `mode` as its permissions. The name of a
    /// listener that is gone is taken over, one that still listens is not.
    ///
    /// # Errors
    /// `AddrInUse` where somebody listens there, or the name is not a socket's;
    /// others from the system.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Listener> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if is_dead(path) => {
                fs::remove_file(path)?;
                bind(&socket, &address)?;
            }
            other => other?,
        }
        let meta = fs::symlink_metadata(path)?;
        let listener = Listener { socket, made: Some((path.to_owned(), meta.dev(), meta.ino())) };
        // Before it listens, so that nobody comes in on other permissions.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        listen(&listener.socket, BACKLOG)?;
        Ok(listener)
    }

    /// The socket that a service manager listens on for this process (the
    /// variables LISTEN_PID and LISTEN_FDS); `None` where there is none. Call
    /// it before the process opens anything; a second call fails.
    ///
    /// # Errors
    /// Not exactly one socket, or not one of records that listens.
    pub fn passed() -> io::Result<Option<Listener>> {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        if number("LISTEN_PID") != Some(std::process::id()) {
            return Ok(None);
        }
        let count = number("LISTEN_FDS").unwrap_or(0);
        if count != 1 {
            return Err(io::Error::other(format!("{count} sockets were passed (LISTEN_FDS), one is wanted")));
        }
        let socket = inherited::claim(|fd| {
            let fits = sockopt::socket_domain(fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
                && sockopt::socket_type(fd).is_ok_and(|kind| kind == SocketType::SEQPACKET)
                && sockopt::socket_acceptconn(fd).is_ok_and(|listens| listens);
            let wanted = "the socket that was passed is not a listening unix socket of records \
                          (ListenSequentialPacket= in the .socket unit)";
            if fits { Ok(()) } else { Err(io::Error::other(wanted)) }
        })?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Some(Listener { socket, made: None }))
    }

    /// A connection that waits, and who it is; `None` where none waits any
    /// more.
    ///
    /// # Errors
    /// What accept4(2) says; no descriptor left, for one.
    pub fn accept(&self) -> io::Result<Option<(Socket, Peer)>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(&self.socket, flags) {
            Ok(socket) => {
                let peer = peer_of(&socket)?;
                Ok(Some((Socket::from(socket), peer)))
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Takes the name away, where it is still this socket's.
impl Drop for Listener {
    fn drop(&mut self) {
        let Some((path, device, inode)) = &self.made else { return };
        let same = |meta: fs::Metadata| meta.dev() == *device && meta.ino() == *inode;
        if fs::symlink_metadata(path).is_ok_and(same) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether `path` is a socket that nobody listens on.
fn is_dead(path: &Path) -> bool {
    // A connection to any other file is refused too.
    if !fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        return false;
    }
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(probe) = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None) else {
        return false;
    };
    connect(&probe, &address) == Err(Errno::CONNREFUSED)
}

fn peer_of(socket: &OwnedFd) -> io::Result<Peer> {
    // Not rustix's, whose process id cannot be 0: the kernel's is, for a
    // process that cannot be seen from here.
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    // SAFETY: a ucred of that size is what SO_PEERCRED writes.
    unsafe { option(socket, libc::SO_PEERCRED, (&raw mut peer).cast(), size_of::<libc::ucred>()) }
        .map_err(|(error, _)| error)?;
    let mut gids = vec![peer.gid];
    gids.extend(groups_of(socket)?);
    Ok(Peer { pid: u32::try_from(peer.pid).unwrap_or(0), uid: peer.uid, gids })
}

/// The peer's supplementary groups.
fn groups_of(socket: &OwnedFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let room = mem::size_of_val(groups.as_slice());
        // SAFETY: `groups` has so many bytes of room, for any bit patterns.
        match unsafe { option(socket, libc::SO_PEERGROUPS, groups.as_mut_ptr().cast(), room) } {
            Ok(bytes) => {
                groups.truncate(bytes / size_of::<u32>());
                return Ok(groups);
            }
            // It says how much room it wants.
            Err((error, wanted)) if error.raw_os_error() == Some(libc::ERANGE) && wanted > room => {
                groups.resize(wanted / size_of::<u32>(), 0);
            }
            Err((error, _)) => return Err(error),
        }
    }
}

/// getsockopt(2) at the level of sockets: how many bytes were written; or the
/// error, with the length the kernel gave.
///
/// # Safety
/// `value` has `room` bytes, for which what the option writes is valid.
unsafe fn option(
    socket: &OwnedFd,
    name: libc::c_int,
    value: *mut libc::c_void,
    room: usize,
) -> Result<usize, (io::Error, usize)> {
    let mut bytes = room as libc::socklen_t;
    // SAFETY: as the caller promises; `bytes` lives through the call.
    let got = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value, &raw mut bytes) };
    if got == 0 { Ok(bytes as usize) } else { Err((io::Error::last_os_error(), bytes as usize)) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("framepath-{name}-{}.sock", std::process::id()))
    }

    #[test]
    fn a_client_is_known_by_its_credentials() {
        let path = path("peer");
        let listener = Listener::bind(&path, 0o600).unwrap();
        assert!(listener.accept().unwrap().is_none());
        let client = Socket::connect(&path).unwrap();
        let (server, peer) = listener.accept().unwrap().unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert!(peer.gids.contains(&rustix::process::getegid().as_raw()));
        client.send(b"word", None).unwrap();
        assert!(server.readable_within(Duration::from_secs(9)).unwrap());
        let mut buffer = [0; 9];
        assert_eq!(server.receive(&mut buffer).unwrap().0, 4);
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_name_is_taken_over_from_the_dead_alone() {
        let path = path("taken");
        let mut listener = Listener::bind(&path, 0o600).unwrap();
        assert_eq!(Listener::bind(&path, 0o600).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // As a killed process leaves it: the socket is closed, the name stays.
        listener.made = None;
        drop(listener);
        assert!(path.exists());
        let again = Listener::bind(&path, 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a file of somebody's").unwrap();
        assert_eq!(Listener::bind(&path, 0o600).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(again);
        assert!(path.exists(), "a name that is not its own");
        fs::remove_file(&path).unwrap();
    }
}
