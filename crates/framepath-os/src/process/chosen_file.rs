// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files at paths that another process has chosen, without a wait for a file system of that process.
//!
//! Any user can mount a file system of FUSE, in a user namespace at least, and each question to it waits for its daemon. If the
//! daemon does not answer, the wait has no end, and no signal ends it: even SIGKILL does not. Therefore nothing here asks a file
//! system:
//!
//! - Links of /proc (`map_files`, `fd`, `root`) lead to a file without a look-up. Other paths are found only if the kernel has all
//!   their parts in its cache (`RESOLVE_CACHED`), as it has those of a mapped file. Kernels before 5.12 lack that: there, a look-up
//!   in such a file system may wait.
//! - Facts about a file are those that the kernel has (`AT_STATX_DONT_SYNC`).
//! - A file is opened only if its file system is none that may wait for a process of somebody else. fstatfs(2), which tells the
//!   kind, asks FUSE, so the kind and its user are those of the mount in mountinfo. The own user's mounts and root's are trusted
//!   (AppImages, sshfs), and with sudo those of its user.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

pub use rustix::fs::FileType;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxFlags, makedev, openat, openat2, statx,
};
use rustix::io::Errno;
use rustix::process::getuid;

/// Flags with which a path is found and nothing is opened.
pub(super) const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Number of tries to find a path in the kernel's cache: a change meanwhile makes one fail.
const TRIES: usize = 4;

/// Most bytes of a list of mounts that are read: a process can have any number of them.
const MOST_MOUNTS: u64 = 1 << 20;

/// Facts about a file that the kernel has without asking the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenFile {
    /// Numbers of the device and the inode.
    pub identity: (u64, u64),
    /// Kind of the file.
    pub kind: FileType,
}

/// Returns the facts about the file at `path`, which another process has chosen.
///
/// # Errors
/// There is no such file, this user may not look it up, or the kernel does not have the path in its cache.
pub fn chosen_file(path: &Path) -> io::Result<ChosenFile> {
    let data = facts(&place(path)?)?;
    let kind = FileType::from_raw_mode(data.stx_mode.into());
    Ok(ChosenFile { identity: (makedev(data.stx_dev_major, data.stx_dev_minor), data.stx_ino), kind })
}

/// Finds `path`, which another process has chosen: a link of /proc/PID, a path below `/proc/PID/root`, or another path.
///
/// # Errors
/// There is no such file, this user may not look it up, or the kernel does not have the path in its cache.
pub(super) fn place(path: &Path) -> io::Result<OwnedFd> {
    let mut parts = path.components();
    let start = [parts.next(), parts.next(), parts.next(), parts.next()];
    if let [Some(Component::RootDir), Some(Component::Normal(proc)), Some(_), Some(Component::Normal(link))] =
        start
    {
        if proc == "proc" && (link == "map_files" || link == "fd") {
            return Ok(openat(CWD, path, PLACE, Mode::empty())?);
        }
        if proc == "proc" && link == "root" {
            let root: std::path::PathBuf = start.into_iter().flatten().collect();
            let root = openat(CWD, &root, PLACE, Mode::empty())?;
            return cached(root, parts.as_path(), ResolveFlags::IN_ROOT);
        }
    }
    cached(openat(CWD, "/", PLACE, Mode::empty())?, path, ResolveFlags::empty())
}

/// Finds `path` below `folder` in the kernel's cache.
fn cached(folder: OwnedFd, path: &Path, resolve: ResolveFlags) -> io::Result<OwnedFd> {
    let mut found = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        found = openat2(&folder, path, PLACE, Mode::empty(), resolve | ResolveFlags::CACHED);
        match found {
            Err(Errno::AGAIN) => {}
            Err(Errno::INVAL) => {
                return Ok(openat2(&folder, path, PLACE, Mode::empty(), resolve)?);
            }
            _ => break,
        }
    }
    Ok(found?)
}

/// Returns what the kernel knows of the file at `place`.
fn facts(place: &OwnedFd) -> io::Result<Statx> {
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MNT_ID;
    Ok(statx(place, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, wanted)?)
}

/// Checks that the file system of the file at `place`, which `process` has chosen, is none that may wait for a process.
///
/// # Errors
/// `Unsupported` if it may be one.
pub(super) fn check_file_system(place: &OwnedFd, process: u32) -> io::Result<()> {
    let data = facts(place)?;
    let has_mount = data.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let kind_in = |process: &str| {
        let mut mounts = Vec::new();
        // The bytes read before an error count.
        let list = File::open(format!("/proc/{process}/mountinfo"));
        let _ = list.and_then(|file| file.take(MOST_MOUNTS).read_to_end(&mut mounts));
        mount(&mounts, data.stx_mnt_id).filter(|_| has_mount)
    };
    if let Some(Mount { kind, user }) = kind_in("self") {
        return refuse(is_fuse(&kind) && !is_trusted(user));
    }
    match kind_in(&process.to_string()) {
        // Users mount it in their namespaces, and it may have layers in any other file system.
        Some(Mount { kind, .. }) if kind == "overlay" => {
            refuse(user_namespace(&process.to_string()) != user_namespace("self"))
        }
        // In another namespace of users, the number of the user has another meaning.
        Some(Mount { kind, .. }) => refuse(is_fuse(&kind)),
        // The mount is removed, or in a third namespace. A user's file systems have no device.
        None => refuse(data.stx_dev_major == 0),
    }
}

fn refuse(is_refused: bool) -> io::Result<()> {
    match is_refused {
        true => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "its file system (FUSE) may wait for a process, which could keep this one from ever going on",
        )),
        false => Ok(()),
    }
}

fn is_fuse(kind: &str) -> bool {
    kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse.")
}

/// True for root, the user of this process, and the one that started it by sudo.
fn is_trusted(user: Option<u32>) -> bool {
    let sudo = || std::env::var("SUDO_UID").ok()?.parse().ok();
    user.is_some_and(|user| user == 0 || user == getuid().as_raw() || sudo() == Some(user))
}

/// Mount in a list.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// Kind of its file system.
    kind: String,
    /// User that has mounted a file system of FUSE.
    user: Option<u32>,
}

/// Finds a mount in a list (proc(5), mountinfo).
fn mount(mounts: &[u8], number: u64) -> Option<Mount> {
    let mounts = String::from_utf8_lossy(mounts);
    let line =
        mounts.lines().find(|line| line.split(' ').next().is_some_and(|word| word.parse() == Ok(number)))?;
    let (_, behind) = line.split_once(" - ")?;
    let mut words = behind.split(' ');
    let kind = words.next()?.to_owned();
    // The kernel writes the user before what the file system's own options could have.
    let mut options = words.nth(1).unwrap_or_default().split(',');
    let user = options.find_map(|option| option.strip_prefix("user_id="));
    Some(Mount { kind, user: user.and_then(|user| user.parse().ok()) })
}

/// Returns the name of the user namespace of a process; `None` if it cannot be read.
fn user_namespace(process: &str) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{process}/ns/user")).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::process::id;

    use super::*;

    #[test]
    fn a_file_has_the_same_facts_by_each_path() {
        let path = fs::canonicalize(std::env::current_exe().unwrap()).unwrap();
        let data = fs::metadata(&path).unwrap();
        let file = File::open(&path).unwrap();
        let in_root = Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap());
        let descriptor = format!("/proc/{}/fd/{}", id(), file.as_raw_fd());
        for path in [&path, &in_root, Path::new(&descriptor)] {
            let found = chosen_file(path).unwrap();
            assert_eq!(found.identity, (data.dev(), data.ino()), "{path:?}");
            assert_eq!(found.kind, FileType::RegularFile);
            check_file_system(&place(path).unwrap(), id()).unwrap();
        }
        assert_eq!(chosen_file(Path::new("/dev/null")).unwrap().kind, FileType::CharacterDevice);
        for missing in ["/proc/self/fd/99999", "/proc/self/root/no/such", "/no/such"] {
            let error = chosen_file(Path::new(missing)).unwrap_err();
            // A name that was never looked up is not in the cache.
            assert!(matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::WouldBlock), "{error}");
        }
    }

    #[test]
    fn a_mount_has_its_kind_and_its_user() {
        let mounts = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            30 27 0:40 / /mnt/a rw shared:1 master:2 - fuse.sshfs host:/ rw,user_id=1000,group_id=0,user_id=0\n\xff\n31 27";
        let found = |number| mount(mounts, number).map(|mount| (mount.kind, mount.user));
        assert_eq!(found(22), Some(("proc".to_owned(), None)));
        assert_eq!(found(30), Some(("fuse.sshfs".to_owned(), Some(1000))));
        assert_eq!((found(27), found(31)), (None, None));
        assert!(is_trusted(Some(0)) && is_trusted(Some(getuid().as_raw())));
        assert!(!is_trusted(Some(u32::MAX - 1)) && !is_trusted(None));
        let fuse: Vec<&str> = ["fuse", "fuse.a", "fuseblk", "fusectl", "ext4", "overlay"]
            .into_iter()
            .filter(|kind| is_fuse(kind))
            .collect();
        assert_eq!(fuse, ["fuse", "fuse.a", "fuseblk"]);
    }

    /// A file in memory has no mount with a name, as a file in a mount that was removed.
    #[test]
    fn a_file_without_a_known_mount_is_refused() {
        let file = rustix::fs::memfd_create("none", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let place = place(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).unwrap();
        assert_eq!(check_file_system(&place, id()).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
