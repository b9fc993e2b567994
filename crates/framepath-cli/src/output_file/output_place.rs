// SPDX-License-Identifier: MIT OR Apache-2.0
//! Place of an output: a folder and a name in it. The folder stays open, so that nobody can put another one in its place
//! until the output has its name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use framepath_os::process::{cancel, signal};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fcntl_getfl, fcntl_setfl, fstat, fstatfs,
    openat, readlinkat, statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Most symbolic links that are followed, as in path_resolution(7).
const MOST_LINKS: usize = 40;

/// Time that the reader of a FIFO gets to open it, and the time between two attempts.
const READER_WAIT: Duration = Duration::from_secs(2);
const READER_LOOK: Duration = Duration::from_millis(10);

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
        Ok(FileType::from_raw_mode(self.entry(true)?.st_mode) != FileType::RegularFile)
    }

    /// Opens the device or the pipe at this place for writing, without waiting for anything but for up to [`READER_WAIT`] for the
    /// reader of a FIFO. Fails for a folder and a socket. With `follow`, the place is a [`PlaceContent::Descriptor`].
    ///
    /// # Errors
    /// From open(2), among them that no program reads a FIFO; [`cancel::canceled`] if a signal interrupts the wait for the
    /// reader; a FIFO may not be used ([`OutputPlace::check_owner`]).
    pub(super) fn open_special(&self, follow: bool) -> io::Result<File> {
        let entry = self.entry(follow)?;
        self.check_special(&entry, follow)?;
        let not_followed = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        // With NONBLOCK, the open of a FIFO or of a device does not wait.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | not_followed;
        let end = Instant::now() + READER_WAIT;
        let file = loop {
            match openat(&self.folder, &self.name, flags, Mode::empty()) {
                Err(Errno::NXIO) if !is_fifo(&entry) => return Err(Errno::NXIO.into()),
                Err(Errno::NXIO) if signal::interrupted() => return Err(cancel::canceled()),
                Err(Errno::NXIO) if Instant::now() < end => thread::sleep(READER_LOOK),
                Err(Errno::NXIO) => {
                    let text = "no program has opened this FIFO for reading; start its reader first";
                    return Err(io::Error::other(text));
                }
                opened => break File::from(opened?),
            }
        };
        // Another file may have taken the place.
        self.check_special(&fstat(&file)?, follow)?;
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        Ok(file)
    }

    /// Returns what is at this place; `follow` as for [`OutputPlace::open_special`].
    fn entry(&self, follow: bool) -> io::Result<Stat> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        Ok(statat(&self.folder, &self.name, flags)?)
    }

    /// Checks that `entry` is no regular file, which an output would replace, and no FIFO that may not be used.
    fn check_special(&self, entry: &Stat, follow: bool) -> io::Result<()> {
        match FileType::from_raw_mode(entry.st_mode) {
            FileType::RegularFile => {
                Err(io::Error::other("a regular file took the place of a device or pipe"))
            }
            FileType::Fifo if !follow => self.check_owner(entry),
            _ => Ok(()),
        }
    }

    /// Checks that `entry`, a symbolic link or a FIFO at this place, may be used.
    ///
    /// # Errors
    /// Another user may have put it there ([`is_strange`]).
    pub(super) fn check_owner(&self, entry: &Stat) -> io::Result<()> {
        let folder = fstat(&self.folder)?;
        if !is_strange(&folder, entry, geteuid().as_raw()) {
            return Ok(());
        }
        let (kind, user) = (if is_fifo(entry) { "FIFO" } else { "symbolic link" }, entry.st_uid);
        let text = format!(
            "the {kind} belongs to user {user}, in a folder where every user may create files; use another path"
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }
}

fn is_fifo(entry: &Stat) -> bool {
    FileType::from_raw_mode(entry.st_mode) == FileType::Fifo
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
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixStream;

    use rustix::fs::mknodat;

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
    fn a_fifo_is_opened_if_somebody_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let (place, content) = OutputPlace::find(&path).unwrap();
        assert!(matches!(content, PlaceContent::Special));
        let error = place.open_special(false).unwrap_err();
        assert!(error.to_string().starts_with("no program has opened this FIFO"), "{error}");
        let reader = thread::spawn(move || io::read_to_string(File::open(path).unwrap()).unwrap());
        let mut file = place.open_special(false).unwrap();
        assert!(!fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK));
        file.write_all(b"text").unwrap();
        drop(file);
        assert_eq!(reader.join().unwrap(), "text");
    }

    #[test]
    fn open_pipes_devices_and_files_are_found_in_proc() {
        let find = |file: &dyn AsRawFd| {
            OutputPlace::find(Path::new(&format!("/dev/fd/{}", file.as_raw_fd()))).unwrap()
        };
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let (place, content) = find(&writer);
        assert!(matches!(content, PlaceContent::Descriptor));
        place.open_special(true).unwrap().write_all(b"text").unwrap();
        drop(writer);
        let mut text = String::new();
        File::from(reader).read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        let (socket, _other) = UnixStream::pair().unwrap();
        let error = find(&socket).0.open_special(true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NXIO.raw_os_error()));
        let null = File::options().write(true).open("/dev/null").unwrap();
        assert!(matches!(find(&null).1, PlaceContent::Descriptor));
        let file = tempfile::NamedTempFile::new().unwrap();
        let (place, content) = find(file.as_file());
        assert!(matches!(content, PlaceContent::Replaceable));
        assert_eq!(Some(place.name.as_os_str()), file.path().file_name());
        let (place, content) = OutputPlace::find(Path::new("/proc")).unwrap();
        assert!(matches!(content, PlaceContent::Special));
        assert_eq!(place.open_special(false).unwrap_err().kind(), io::ErrorKind::IsADirectory);
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
