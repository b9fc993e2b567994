// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listening socket with a path in the file system.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, chmod, fchmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, bind, listen, socket_with, sockopt};

use super::folder::{SocketFolder, by_descriptor};
use super::{Peer, Socket};
use crate::process::inherited;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Listening unix socket whose connections preserve record boundaries (SOCK_SEQPACKET).
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    /// Path of the socket, if this process made the path; `None` if a service manager passed the socket.
    made: Option<MadeName>,
}

/// Path of a socket that this process made, as the open folder and the name in it. Device and inode identify
/// the file, so that a later file of the same name is not removed.
#[derive(Debug)]
struct MadeName {
    folder: SocketFolder,
    name: OsString,
    device: u64,
    inode: u64,
}

impl Listener {
    /// Listens at `path`, with `mode` as its permissions. Takes over the path of a dead listener
    /// of this user, but not of a live one. Users other than this one, root and the owner of `/` can
    /// neither redirect this function to another file nor replace the path later. The process's umask stays
    /// unchanged.
    ///
    /// # Errors
    /// `PermissionDenied` if any other user owns the folder, a folder above it or a symbolic link on the
    /// way, or could replace entries of such a folder. `AddrInUse` if the path exists and is not a socket of
    /// this user, or is a socket that may have a listener, in this process or another. Other errors from the
    /// system, or if another process replaced the path right after this function made the socket.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Listener> {
        let (folder, name) = SocketFolder::of(path)?;
        let address = folder.address(&name)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mode = Mode::from_raw_mode(mode);
        // bind(2) creates the path with this mode, less the umask: never more than `mode`.
        fchmod(&socket, mode)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                folder.remove_dead(&name)?;
                bind(&socket, &address)?;
            }
            other => other?,
        }
        let (file, stat) = folder.named(&name)?;
        let own = rustix::process::geteuid().as_raw();
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || stat.st_uid != own {
            return Err(io::Error::other(
                "the path no longer refers to the new socket; another process replaced it",
            ));
        }
        let made = MadeName { folder, name, device: stat.st_dev, inode: stat.st_ino };
        let listener = Listener { socket, made: Some(made) };
        if Mode::from_raw_mode(stat.st_mode) != mode {
            // The umask removed permissions. They are set through the descriptor of the path, and
            // before listen(2), so that no client connects earlier.
            chmod(by_descriptor(file.as_fd()), mode)?;
        }
        listen(&listener.socket, BACKLOG)?;
        Ok(listener)
    }

    /// Takes the socket that a service manager passed to this process as descriptor 3 (the variables
    /// LISTEN_PID and LISTEN_FDS). Returns `None` if LISTEN_PID is not set or is not this process's id. Call
    /// this before the process opens anything; a second call fails if the first returned a socket.
    ///
    /// # Errors
    /// LISTEN_FDS is not 1, the socket is not a listening SOCK_SEQPACKET unix socket, descriptor 3 is not
    /// open or was already claimed, or a system call failed.
    pub fn passed() -> io::Result<Option<Listener>> {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        if number("LISTEN_PID") != Some(std::process::id()) {
            return Ok(None);
        }
        let count = number("LISTEN_FDS").unwrap_or(0);
        if count != 1 {
            return Err(io::Error::other(format!("{count} sockets were passed (LISTEN_FDS); expected 1")));
        }
        let socket = inherited::claim(|fd| {
            let fits = sockopt::socket_domain(fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
                && sockopt::socket_type(fd).is_ok_and(|kind| kind == SocketType::SEQPACKET)
                && sockopt::socket_acceptconn(fd).is_ok_and(|listens| listens);
            let error = "the passed socket is not a listening SOCK_SEQPACKET unix socket; use \
                          ListenSequentialPacket= in the .socket unit";
            if fits { Ok(()) } else { Err(io::Error::other(error)) }
        })?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Some(Listener { socket, made: None }))
    }

    /// Accepts a waiting connection. Returns this side's end of the connection, which is nonblocking, and the
    /// peer's credentials. Returns `None` if no connection waits, the connection has ended already, or a
    /// signal arrived. Never sleeps.
    ///
    /// # Errors
    /// From accept4(2), such as too many open descriptors, or from getsockopt(2); in the second case the
    /// connection is closed.
    pub fn accept(&self) -> io::Result<Option<(Socket, Peer)>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(&self.socket, flags) {
            Ok(socket) => {
                let peer = Peer::of(&socket)?;
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

/// Removes the path of the socket if [`Listener::bind`] made the path and the path still refers to this
/// socket.
impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(made) = &self.made {
            // Fails if the path is gone already, for example; there is nothing else to do.
            let _ = made.folder.remove(&made.name, made.device, made.inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::PathBuf;
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
        // Simulates a killed process: the socket is closed, the path stays.
        listener.made = None;
        drop(listener);
        assert!(path.exists());
        // A child that another test has just forked may still have the socket open.
        let mut tries = (0..100).map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            Listener::bind(&path, 0o600)
        });
        let again = tries.find_map(Result::ok).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a file of somebody's").unwrap();
        assert_eq!(Listener::bind(&path, 0o600).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(again);
        assert!(path.exists(), "a name that is not its own");
        fs::remove_file(&path).unwrap();
    }

    /// Makes an empty temporary folder for a test, and returns its path.
    fn folder(name: &str) -> PathBuf {
        let folder = path(name).with_extension("folder");
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn a_socket_has_the_mode_that_was_asked_for() {
        let path = path("mode");
        for mode in [0o600, 0o666, 0o660] {
            let listener = Listener::bind(&path, mode).unwrap();
            assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o7777, mode);
            drop(listener);
        }
    }

    #[test]
    fn folders_that_others_can_write_are_refused() {
        let folder = folder("open");
        let set = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        let bind = || Listener::bind(&folder.join("socket"), 0o600);
        for mode in [0o777, 0o775, 0o757] {
            set(mode);
            let error = bind().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
            assert!(error.to_string().contains(&format!("{mode:04o}")), "{error}");
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        }
        for mode in [0o700, 0o755, 0o1777] {
            set(mode);
            drop(bind().unwrap());
        }
        // A folder inside it is rejected too, whatever its own mode.
        fs::create_dir(folder.join("inner")).unwrap();
        set(0o777);
        let error = Listener::bind(&folder.join("inner/socket"), 0o600).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn names_that_are_no_dead_socket_stay() {
        let folder = folder("kept");
        let (name, victim) = (folder.join("socket"), folder.join("victim"));
        fs::write(&victim, "of somebody").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o640)).unwrap();
        let dead = folder.join("dead");
        let mut listener = Listener::bind(&dead, 0o600).unwrap();
        listener.made = None;
        drop(listener);
        for target in [&victim, &dead, &folder.join("nowhere")] {
            symlink(target, &name).unwrap();
            let error = Listener::bind(&name, 0o666).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
            assert!(fs::symlink_metadata(&name).unwrap().is_symlink());
            fs::remove_file(&name).unwrap();
        }
        assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o7777, 0o640);
        assert!(fs::symlink_metadata(&dead).is_ok() && !folder.join("nowhere").exists());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn links_and_dots_in_the_path_are_followed() {
        let folder = folder("links");
        fs::create_dir(folder.join("real")).unwrap();
        symlink("real/../real", folder.join("link")).unwrap();
        let listener = Listener::bind(&folder.join("link/./socket"), 0o600).unwrap();
        Socket::connect(&folder.join("real/socket")).unwrap();
        drop(listener);
        assert!(!folder.join("real/socket").exists());
        symlink("loop", folder.join("loop")).unwrap();
        assert!(Listener::bind(&folder.join("loop/socket"), 0o600).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
