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
//! - Each file system locks a file while it is written, and some also while it is read (XFS, NFS). A write(2) from a page of a file
//!   system of FUSE holds that lock forever. So a file that somebody else may write is opened only on a file system whose reads take
//!   no lock that a write holds.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

pub use rustix::fs::FileType;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, makedev, openat, openat2,
    statx,
};
use rustix::io::Errno;
use rustix::process::getuid;

/// Flags with which a path is found and nothing is opened.
pub(super) const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Number of tries to find a path in the kernel's cache: a change meanwhile makes one fail.
const TRIES: usize = 4;

/// Most bytes of a list of mounts that are read: a process can have any number of them.
const MOST_MOUNTS: u64 = 1 << 20;

/// File systems of which a read takes no lock of the file that a write holds, but for direct access to memory (DAX), by their names in
/// mountinfo. Source: their `read_iter` in Linux 5.15 to 6.18. Left out is btrfs: before 6.9, the ioctl FIEMAP keeps the file's extents
/// locked while it writes to the caller's memory. So is overlay, whose layers are in any file systems.
const READ_WITHOUT_LOCK: [&str; 9] =
    ["ext2", "ext3", "ext4", "tmpfs", "ramfs", "rootfs", "squashfs", "erofs", "iso9660"];

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
    let wanted = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::UID | StatxFlags::INO | StatxFlags::MNT_ID;
    Ok(statx(place, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, wanted)?)
}

/// Checks that neither the file system of the file at `place`, which `process` has chosen, nor its lock of the file may wait for a
/// process.
///
/// # Errors
/// `Unsupported` if one of them may.
pub(super) fn check_file_system(place: &OwnedFd, process: u32) -> io::Result<()> {
    let data = facts(place)?;
    let has_mount = data.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let mount_in = |process: &str| {
        let mut mounts = Vec::new();
        // The bytes read before an error count.
        let list = File::open(format!("/proc/{process}/mountinfo"));
        let _ = list.and_then(|file| file.take(MOST_MOUNTS).read_to_end(&mut mounts));
        mount(&mounts, data.stx_mnt_id).filter(|_| has_mount)
    };
    let kind = match mount_in("self") {
        Some(Mount { kind, user }) if is_fuse(&kind) => return refuse_fuse(!is_trusted(user)),
        Some(Mount { kind, .. }) => Some(kind),
        None => {
            let kind = mount_in(&process.to_string()).map(|mount| mount.kind);
            refuse_fuse(match kind.as_deref() {
                // Users mount it in their namespaces, and it may have layers in any other file system.
                Some("overlay") => user_namespace(&process.to_string()) != user_namespace("self"),
                // In another namespace of users, the number of the user has another meaning.
                Some(kind) => is_fuse(kind),
                // The mount is removed, or in a third namespace. A user's file systems have no device.
                None => data.stx_dev_major == 0,
            })?;
            kind
        }
    };
    let is_dax = data.stx_attributes.contains(StatxAttributes::DAX);
    check_lock(kind.as_deref(), is_dax, data.stx_uid, data.stx_mode.into())
}

fn refuse_fuse(is_refused: bool) -> io::Result<()> {
    match is_refused {
        true => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "its file system (FUSE) may wait for a process, which could keep this one from ever going on",
        )),
        false => Ok(()),
    }
}

/// Checks that nobody else can keep the lock that a read of a file of `owner` with this mode takes on a file system of this kind.
///
/// # Errors
/// `Unsupported` if somebody may.
fn check_lock(kind: Option<&str>, is_dax: bool, owner: u32, mode: u32) -> io::Result<()> {
    /// Permissions to write for the group, which are also those of an access control list, and for all others.
    const OTHERS_WRITE: u32 = 0o022;
    if kind.is_some_and(|kind| READ_WITHOUT_LOCK.contains(&kind)) && !is_dax {
        return Ok(());
    }
    let writer = match () {
        () if !is_trusted(Some(owner)) => format!("user {owner}, its owner,"),
        () if mode & OTHERS_WRITE != 0 => format!("a user who may write it (mode {:04o})", mode & 0o7777),
        () => return Ok(()),
    };
    let kind = kind.unwrap_or("unknown");
    let text = format!(
        "its file system ({kind}) may lock a file while it is read, and {writer} could keep it locked without end"
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
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

    #[test]
    fn a_file_that_somebody_else_may_write_is_read_only_without_its_lock() {
        let own = getuid().as_raw();
        let other = u32::MAX - 1;
        let is_read = |kind, is_dax, owner, mode| match check_lock(kind, is_dax, owner, mode) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                assert!(error.to_string().contains(kind.unwrap_or("unknown")), "{error}");
                false
            }
        };
        for kind in ["ext4", "tmpfs", "squashfs"] {
            assert!(is_read(Some(kind), false, other, 0o100_777), "{kind}");
            assert!(!is_read(Some(kind), true, other, 0o100_755) && is_read(Some(kind), true, 0, 0o100_755));
        }
        for kind in [Some("xfs"), Some("nfs4"), Some("overlay"), Some("btrfs"), Some("f2fs"), None] {
            for owner in [0, own] {
                assert!(is_read(kind, false, owner, 0o104_755), "{kind:?}");
                // The group's permissions are those of an access control list, if there is one.
                for mode in [0o100_775, 0o100_757, 0o100_020, 0o100_002] {
                    assert!(!is_read(kind, false, owner, mode), "{kind:?} {mode:o}");
                }
            }
            assert!(!is_read(kind, false, other, 0o100_500), "{kind:?}");
        }
    }

    /// A file in memory has no mount with a name, as a file in a mount that was removed.
    #[test]
    fn a_file_without_a_known_mount_is_refused() {
        let file = rustix::fs::memfd_create("none", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let place = place(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).unwrap();
        assert_eq!(check_file_system(&place, id()).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
