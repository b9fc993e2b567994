// SPDX-License-Identifier: MIT OR Apache-2.0
//! Process at the other end of a socket, as reported by the kernel.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

/// Credentials of the process at the other end of a connection. The kernel recorded them when that process
/// called connect(2), listen(2) or socketpair(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id; 0 if the process is not visible in this process's pid namespace.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id, followed by the supplementary group ids.
    pub gids: Vec<u32>,
}

impl Peer {
    /// Returns the credentials of the process at the other end of `socket`: for the side that connected, of
    /// the process that called listen(2); for the side that accepted, of the process that called
    /// connect(2).
    pub(super) fn of(socket: &OwnedFd) -> io::Result<Peer> {
        // Uses libc's structure, because the process id in rustix's cannot be 0. The kernel
        // reports 0 for a process that this process cannot see.
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        // SAFETY: a ucred of that size is what SO_PEERCRED writes.
        unsafe { option(socket, libc::SO_PEERCRED, (&raw mut peer).cast(), size_of::<libc::ucred>()) }
            .map_err(|(error, _)| error)?;
        let mut gids = vec![peer.gid];
        gids.extend(groups_of(socket)?);
        Ok(Peer { pid: u32::try_from(peer.pid).unwrap_or(0), uid: peer.uid, gids })
    }
}

/// Returns the supplementary group ids of the process at the other end of `socket`.
fn groups_of(socket: &OwnedFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let room = mem::size_of_val(groups.as_slice());
        // SAFETY: `groups` has room for so many bytes, of any bit pattern.
        match unsafe { option(socket, libc::SO_PEERGROUPS, groups.as_mut_ptr().cast(), room) } {
            Ok(bytes) => {
                groups.truncate(bytes / size_of::<u32>());
                return Ok(groups);
            }
            // The kernel reports the needed length.
            Err((error, needed)) if error.raw_os_error() == Some(libc::ERANGE) && needed > room => {
                groups.resize(needed / size_of::<u32>(), 0);
            }
            Err((error, _)) => return Err(error),
        }
    }
}

/// Calls getsockopt(2) for option `name` at level SOL_SOCKET. Returns the number of bytes written to
/// `value`, or the error and the length that the kernel reported with it.
///
/// # Safety
/// `value` points to `room` bytes that may hold everything that the option writes.
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
