// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process at the other end of a socket, as the kernel names it.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

/// Credentials of the process at the other end of a connection, recorded by the
/// kernel when the connection was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id; 0 where it lies in another pid namespace.
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
    /// Effective group, and the supplementary ones.
    pub gids: Vec<u32>,
}

impl Peer {
    /// Returns the process at the other end of `socket`. At the side that connected this
    /// is the process that called listen(2).
    pub(super) fn of(socket: &OwnedFd) -> io::Result<Peer> {
        // libc's structure, because the process id of rustix's cannot be 0. The kernel's
        // id is 0 for a process that cannot be seen from here.
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        // SAFETY: a ucred of that size is what SO_PEERCRED writes.
        unsafe { option(socket, libc::SO_PEERCRED, (&raw mut peer).cast(), size_of::<libc::ucred>()) }
            .map_err(|(error, _)| error)?;
        let mut gids = vec![peer.gid];
        gids.extend(groups_of(socket)?);
        Ok(Peer { pid: u32::try_from(peer.pid).unwrap_or(0), uid: peer.uid, gids })
    }
}

/// Returns the peer's supplementary groups.
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
            // The kernel reports the room it needs.
            Err((error, wanted)) if error.raw_os_error() == Some(libc::ERANGE) && wanted > room => {
                groups.resize(wanted / size_of::<u32>(), 0);
            }
            Err((error, _)) => return Err(error),
        }
    }
}

/// Calls getsockopt(2) at the level of sockets. Returns the number of bytes written, or
/// the error and the length that the kernel reported.
///
/// # Safety
/// `value` points at `room` bytes, for which everything that the option writes is valid.
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
