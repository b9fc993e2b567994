// SPDX-License-Identifier: MIT OR Apache-2.0
//! Regular file behind a path that another process controls: opened once, and never something else than a file.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use super::chosen_file::{self, PLACE};

/// Open regular file. As long as it is open, its identity belongs to no other file.
#[derive(Debug)]
pub struct RegularFile {
    file: File,
    identity: (u64, u64),
    changed_ns: i128,
}

impl RegularFile {
    /// Opens the file at `path`, which a user has chosen, for reading. Neither waits for the other end of a FIFO nor opens a
    /// device, whatever is at the path by then.
    ///
    /// # Errors
    /// `InvalidInput` if it is no regular file; there is no such file, this user may not read it, or /proc is not mounted.
    pub fn open(path: &Path) -> io::Result<RegularFile> {
        RegularFile::at(&openat(CWD, path, PLACE, Mode::empty())?)
    }

    /// Opens the file at `path`, which process `process` has chosen, as [`RegularFile::open`] does. Neither this call nor a read of the
    /// file waits for a file system of that process, or for a lock that its user holds. [`chosen_file`] says which paths are found.
    ///
    /// # Errors
    /// `Unsupported` for a file that such a file system may have, or whose lock such a user could hold; as for [`RegularFile::open`] and [`chosen_file`](crate::process::chosen_file::chosen_file).
    pub fn open_chosen(path: &Path, process: u32) -> io::Result<RegularFile> {
        let place = chosen_file::place(path)?;
        chosen_file::check_file_system(&place, process)?;
        RegularFile::at(&place)
    }

    fn at(place: &OwnedFd) -> io::Result<RegularFile> {
        if FileType::from_raw_mode(fstat(place)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, descriptor_path(place.as_raw_fd()), flags, Mode::empty())?);
        let data = file.metadata()?;
        let changed_ns = i128::from(data.ctime()) * 1_000_000_000 + i128::from(data.ctime_nsec());
        Ok(RegularFile { identity: (data.dev(), data.ino()), changed_ns, file })
    }

    /// Returns the open file. Its position may be anywhere.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns a path by which this process and its kernel reach this file and no other one.
    pub fn path(&self) -> PathBuf {
        descriptor_path(self.file.as_raw_fd())
    }

    /// Returns the numbers of the device and the inode.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Returns the time of the last change of the file or of its inode, nanoseconds since 1970: a new file that has got the
    /// numbers of a removed one has another.
    pub fn changed_ns(&self) -> i128 {
        self.changed_ns
    }
}

fn descriptor_path(descriptor: i32) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{descriptor}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_they_stay_the_same() {
        let folder = std::env::temp_dir().join(format!("framepath-regular-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (name, fifo) = (folder.join("name"), folder.join("fifo"));
        fs::write(&name, b"first").unwrap();
        let file = RegularFile::open(&name).unwrap();
        fs::rename(&name, folder.join("other")).unwrap();
        fs::write(&name, b"second").unwrap();
        assert_eq!(fs::read(file.path()).unwrap(), b"first");
        let other = RegularFile::open(&name).unwrap();
        assert_ne!(file.identity(), other.identity());
        assert!(other.changed_ns() >= file.changed_ns() && file.changed_ns() > 0);
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for path in [&fifo, Path::new("/dev/null"), &folder] {
            assert_eq!(RegularFile::open(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
