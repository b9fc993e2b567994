// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folder of a socket's path, held open.
//!
//! A service that runs as root may have to listen in any folder. If another user can rename
//! entries of that folder, or of a folder above it, a checked path may refer to another file when
//! it is used. So the folder is opened component by component. A component that another user
//! could replace is rejected. From then on the name is used relative to the descriptor.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, open, openat, readlinkat, statat, unlinkat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Maximum number of symbolic links in one path, the same as the kernel's; more fail with ELOOP.
const MOST_LINKS: u32 = 40;
/// Flags for opening the entry itself: does not follow a link, gives no access to the content.
const NAMED: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Open folder in which, when it was opened, no user outside of [`Trusted`] could replace this user's files.
#[derive(Debug)]
pub(super) struct SocketFolder(OwnedFd);

impl SocketFolder {
    /// Opens the folder of `path`, and follows symbolic links on the way to it. Returns the folder and the
    /// last component of `path`.
    ///
    /// # Errors
    /// `PermissionDenied` if a user not in [`Trusted`] owns the folder, a folder above it or a symbolic
    /// link on the way, or if the group or all users may write to one of these folders and it has no sticky
    /// bit. `InvalidInput` if `path` has no file name. ENOTDIR if a component is neither a folder nor a
    /// symbolic link, ELOOP after [`MOST_LINKS`] links. Other errors from the system calls.
    pub(super) fn of(path: &Path) -> io::Result<(SocketFolder, OsString)> {
        let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name");
        let path = std::path::absolute(path)?;
        let name = path.file_name().ok_or_else(no_name)?.to_owned();
        let folder = walk(path.parent().ok_or_else(no_name)?, &Trusted::new()?)?;
        Ok((SocketFolder(folder), name))
    }

    /// Returns the socket address of `name` in this folder. The address names the folder by its
    /// descriptor, so it stays correct if the folder is renamed. Fails if `name` is too long.
    pub(super) fn address(&self, name: &OsStr) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new(by_descriptor(self.0.as_fd()).join(name))?)
    }

    /// Opens the file that `name` refers to now, without access to its content, and returns its status,
    /// too. Does not follow a symbolic link.
    pub(super) fn named(&self, name: &OsStr) -> io::Result<(OwnedFd, Stat)> {
        let file = openat(&self.0, name, NAMED, Mode::empty())?;
        let stat = fstat(&file)?;
        Ok((file, stat))
    }

    /// Removes `name` if it is the file with this device and inode; leaves any other file, without an error.
    /// Fails if `name` does not exist or a system call fails.
    pub(super) fn remove(&self, name: &OsStr, device: u64, inode: u64) -> io::Result<()> {
        let now = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (now.st_dev, now.st_ino) == (device, inode) {
            unlinkat(&self.0, name, AtFlags::empty())?;
        }
        Ok(())
    }

    /// Removes `name` if it is a socket of this user on which no process listens.
    ///
    /// # Errors
    /// `AddrInUse` if the file is not a socket, belongs to another user, or cannot be shown to have no
    /// listener (connect(2) returns anything but ECONNREFUSED); other errors from the system calls.
    pub(super) fn remove_dead(&self, name: &OsStr) -> io::Result<()> {
        let in_use = |text: String| Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        let (file, stat) = self.named(name)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return in_use("a file of that name exists and is not a socket; use another path".to_owned());
        }
        let own = rustix::process::geteuid().as_raw();
        if stat.st_uid != own {
            let owner = stat.st_uid;
            return in_use(format!(
                "the socket belongs to user {owner}, not to user {own}; use another path"
            ));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let probe = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        match connect(&probe, &SocketAddrUnix::new(by_descriptor(file.as_fd()))?) {
            Err(Errno::CONNREFUSED) => self.remove(name, stat.st_dev, stat.st_ino),
            _ => in_use("another process listens on this socket; stop it or use another path".to_owned()),
        }
    }
}

/// Returns a path that the kernel resolves, in this process, to the file of `fd` and to no other file,
/// as long as `fd` is open.
pub(super) fn by_descriptor(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Users who could replace this process's files anyway: root, this process's own (effective) user, and
/// the owner of `/` (in a user namespace, the outside's root).
struct Trusted([u32; 3]);

impl Trusted {
    fn new() -> io::Result<Trusted> {
        Ok(Trusted([0, rustix::process::geteuid().as_raw(), rustix::fs::stat("/")?.st_uid]))
    }

    /// Returns true if `user` is one of these users.
    fn has(&self, user: u32) -> bool {
        self.0.contains(&user)
    }

    /// Makes the `PermissionDenied` error for the folder or symbolic link `place`; `what` says which of
    /// the two it is, and `why` names the users who could replace the socket.
    fn refusal(&self, what: &str, place: &Path, why: &str) -> io::Error {
        let (place, own) = (place.display(), self.0[1]);
        let text = format!(
            "{what} `{place}` {why}, who could replace the socket; use a folder that only root or user {own} can \
             write, such as /run"
        );
        io::Error::new(io::ErrorKind::PermissionDenied, text)
    }

    fn check_folder(&self, stat: &Stat, place: &Path) -> io::Result<()> {
        if !self.has(stat.st_uid) {
            return Err(self.refusal("folder", place, &format!("belongs to user {}", stat.st_uid)));
        }
        let mode = Mode::from_raw_mode(stat.st_mode);
        // With the sticky bit, as in /tmp, others may add files, but neither rename nor remove
        // other users' files.
        if mode.intersects(Mode::WGRP | Mode::WOTH) && !mode.contains(Mode::SVTX) {
            let why = format!("(mode {:04o}) can be written by other users", mode.bits() & 0o7777);
            return Err(self.refusal("folder", place, &why));
        }
        Ok(())
    }
}

/// Opens `folder`, an absolute path, component by component, and follows symbolic links. Fails if
/// users other than `trusted` could replace a folder or a symbolic link on the way.
fn walk(folder: &Path, trusted: &Trusted) -> io::Result<OwnedFd> {
    let root = || open("/", NAMED | OFlags::DIRECTORY, Mode::empty());
    let (mut here, mut place) = (root()?, PathBuf::from("/"));
    trusted.check_folder(&fstat(&here)?, &place)?;
    // The next component is the last element.
    let mut left = components(folder);
    let mut links = 0;
    while let Some(name) = left.pop() {
        let next = openat(&here, &name, NAMED, Mode::empty())?;
        let stat = fstat(&next)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                if name == ".." {
                    place.pop();
                } else {
                    place.push(&name);
                }
                trusted.check_folder(&stat, &place)?;
                here = next;
            }
            FileType::Symlink => {
                if !trusted.has(stat.st_uid) {
                    let why = format!("belongs to user {}", stat.st_uid);
                    return Err(trusted.refusal("symbolic link", &place.join(&name), &why));
                }
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = readlinkat(&next, "", Vec::new())?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                if target.is_absolute() {
                    (here, place) = (root()?, PathBuf::from("/"));
                }
                left.extend(components(&target));
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(here)
}

/// Returns the names of the components of `path` in reverse order, `..` included; the root and `.` are
/// left out.
fn components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}
