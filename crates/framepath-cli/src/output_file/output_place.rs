// SPDX-License-Identifier: MIT OR Apache-2.0
//! Place of an output: a folder and a name in it. The folder stays open, so that nobody can put another one in its place
//! until the output has its name.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, openat, readlinkat, statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Most symbolic links that are followed, as in path_resolution(7).
const MOST_LINKS: usize = 40;

/// Folder and name of an output, behind all symbolic links.
pub(super) struct OutputPlace {
    pub(super) folder: OwnedFd,
    pub(super) name: OsString,
}

/// Content of an [`OutputPlace`].
pub(super) enum PlaceContent {
    /// Nothing, or a regular file: an output replaces it.
    Replaceable,
    /// A device, a pipe, a socket or a folder.
    Special,
    /// A link in /proc to an open device, pipe or socket, which only the kernel can follow.
    Descriptor,
}

impl OutputPlace {
    /// Finds the place to which `path` leads, and what is there. Follows symbolic links.
    ///
    /// # Errors
    /// A folder cannot be opened, `path` names no file, or a link may not be followed ([`check_owner`]).
    pub(super) fn find(path: &Path) -> io::Result<(OutputPlace, PlaceContent)> {
        let mut path = path.to_owned();
        let mut folder = None;
        for _ in 0..=MOST_LINKS {
            let place = OutputPlace::open(folder.as_ref(), &path)?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            // The descriptor keeps the link, so that the link which is checked is the one that is read.
            let found = match openat(&place.folder, &place.name, flags, Mode::empty()) {
                Err(Errno::NOENT) => return Ok((place, PlaceContent::Replaceable)),
                found => found?,
            };
            let entry = fstat(&found)?;
            match FileType::from_raw_mode(entry.st_mode) {
                FileType::RegularFile => return Ok((place, PlaceContent::Replaceable)),
                FileType::Symlink if place.is_open_special()? => {
                    return Ok((place, PlaceContent::Descriptor));
                }
                FileType::Symlink => {
                    place.check_owner(&entry)?;
                    let target = readlinkat(&found, "", Vec::new())?;
                    path = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    folder = Some(place.folder);
                }
                _ => return Ok((place, PlaceContent::Special)),
            }
        }
        Err(Errno::LOOP.into())
    }

    /// Opens the folder of `path`, which begins in `start`, or in the current folder.
    fn open(start: Option<&OwnedFd>, path: &Path) -> io::Result<OutputPlace> {
        let name = path.file_name().ok_or(match path.as_os_str().is_empty() {
            true => io::ErrorKind::InvalidInput,
            false => io::ErrorKind::IsADirectory,
        })?;
        let folder = path.parent().map(Path::as_os_str).filter(|folder| !folder.is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let start = start.map_or(CWD, AsFd::as_fd);
        let folder = openat(start, folder.unwrap_or(OsStr::new(".")), flags, Mode::empty())?;
        Ok(OutputPlace { folder, name: name.to_owned() })
    }

    /// Returns true if the link at this place is one of /proc that stands for an open file without a path of its own. For an
    /// open regular file, the link has the path.
    fn is_open_special(&self) -> io::Result<bool> {
        if fstatfs(&self.folder)?.f_type != PROC_SUPER_MAGIC {
            return Ok(false);
        }
        let open = statat(&self.folder, &self.name, AtFlags::empty())?;
        Ok(FileType::from_raw_mode(open.st_mode) != FileType::RegularFile)
    }

    /// Checks that `entry`, a symbolic link at this place, may be used.
    ///
    /// # Errors
    /// Another user may have put it there ([`is_strange`]).
    pub(super) fn check_owner(&self, entry: &Stat) -> io::Result<()> {
        let folder = fstat(&self.folder)?;
        if !is_strange(&folder, entry, geteuid().as_raw()) {
            return Ok(());
        }
        let (kind, user) = (if is_link(entry) { "symbolic link" } else { "FIFO" }, entry.st_uid);
        let text = format!(
            "the {kind} belongs to user {user}, in a folder where every user may create files; use another path"
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }
}

fn is_link(entry: &Stat) -> bool {
    FileType::from_raw_mode(entry.st_mode) == FileType::Symlink
}

/// Returns true if `entry` of `folder` may be a trap for `user`: the folder is sticky and every user may write it, and `entry`
/// belongs neither to `user` nor to the folder's owner.
///
/// This is the rule of the kernel's settings `fs.protected_symlinks` and `fs.protected_fifos` (proc_sys_fs(5), and
/// Documentation/admin-guide/sysctl/fs.rst of Linux). It holds here also where they are off. They would not be enough: the
/// kernel sees no link that this program reads and follows, and no FIFO that is opened without O_CREAT.
fn is_strange(folder: &Stat, entry: &Stat, user: u32) -> bool {
    const STICKY_AND_OTHERS_WRITE: u32 = 0o1002;
    let is_public = folder.st_mode & STICKY_AND_OTHERS_WRITE == STICKY_AND_OTHERS_WRITE;
    is_public && entry.st_uid != user && entry.st_uid != folder.st_uid
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Finds the place of `path`; returns the name, and whether the folder is `folder`.
    fn found(path: &Path, folder: &Path) -> (OsString, bool) {
        let (place, content) = OutputPlace::find(path).unwrap();
        assert!(matches!(content, PlaceContent::Replaceable));
        let (opened, wanted) = (fstat(&place.folder).unwrap(), rustix::fs::stat(folder).unwrap());
        (place.name, (opened.st_dev, opened.st_ino) == (wanted.st_dev, wanted.st_ino))
    }

    #[test]
    fn links_are_followed_to_the_folder_of_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("a")).unwrap();
        fs::create_dir(path("b")).unwrap();
        fs::write(path("b/file"), "").unwrap();
        symlink("../b/to-file", path("a/link")).unwrap();
        symlink(path("b/file"), path("b/to-file")).unwrap();
        symlink("a", path("c")).unwrap();
        symlink("../b/gone", path("a/dangling")).unwrap();
        for (from, folder, name) in [
            ("a/new", "a", "new"),
            ("c/new", "a", "new"),
            ("c/link", "b", "file"),
            ("a/dangling", "b", "gone"),
            ("b/./file", "b", "file"),
        ] {
            assert_eq!(found(&path(from), &path(folder)), (name.into(), true), "{from}");
        }
        symlink("loop", path("loop")).unwrap();
        let error = |name: &Path| OutputPlace::find(name).err().unwrap();
        assert_eq!(error(&path("loop")).raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        assert_eq!(error(&path("gone/new")).kind(), io::ErrorKind::NotFound);
        assert_eq!(error(&path("b/file/new")).kind(), io::ErrorKind::NotADirectory);
        assert_eq!(error(Path::new("/")).kind(), io::ErrorKind::IsADirectory);
        assert_eq!(error(Path::new("")).kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn links_and_pipes_of_strangers_are_known_by_the_folder() {
        let (own, folders, other) = (1000, 7, 2000);
        let of = |mode, uid| {
            // The kernel's struct has fields that differ between architectures.
            let mut stat = rustix::fs::stat("/").unwrap();
            (stat.st_mode, stat.st_uid) = (mode, uid);
            stat
        };
        for (mode, entry, expected) in [
            (0o041777, other, true),
            (0o041777, 0, true),
            (0o041777, own, false),
            (0o041777, folders, false),
            (0o040777, other, false),
            (0o041755, other, false),
            (0o041775, other, false),
        ] {
            assert_eq!(
                is_strange(&of(mode, folders), &of(0o120777, entry), own),
                expected,
                "{mode:o} {entry}"
            );
        }
    }
}
