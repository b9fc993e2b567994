// SPDX-License-Identifier: MIT OR Apache-2.0
//! File in memory that other programs of the same user open by a path.
//!
//! The path is `/proc/PID/fd/N` of this process. Therefore the file needs no folder, other processes inherit no
//! descriptor, and nothing is left when this process has ended, however it ended. The kernel lets a process open
//! the path that could also read this process's memory: of the same user, without fewer capabilities, in the same
//! pid namespace. The rules of Yama (`ptrace_scope`) do not apply, because opening is no attachment.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec, retry_on_intr};
use rustix::process::{DumpableBehavior, dumpable_behavior};

/// Smallest descriptor number of the file. When this process has ended, another one can get its process id, and, if it wants
/// to, this descriptor: a program of root must not trust what it finds at the path (see [`super::lent_library`]).
const FIRST_NUMBER: i32 = 700;

/// File in memory, of fixed size. The file is gone when the value is dropped and no process has opened it.
#[derive(Debug)]
pub struct LentFile {
    file: OwnedFd,
}

impl LentFile {
    /// Makes a file with this content, which no process can change.
    ///
    /// # Errors
    /// `Unsupported` if other processes of the user cannot open files of this process, `NotFound` without /proc. A system
    /// call failed.
    pub fn with_content(name: &str, content: &[u8]) -> io::Result<LentFile> {
        let file = LentFile::create(name)?;
        std::fs::File::from(file.file.try_clone()?).write_all(content)?;
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        Ok(file)
    }

    /// Makes a file of `bytes` zeroed bytes, which every process that opens it can change. The memory is taken from
    /// the system at once, so that a later access never fails.
    ///
    /// # Errors
    /// As for [`LentFile::with_content`].
    pub fn zeroed(name: &str, bytes: u64) -> io::Result<LentFile> {
        let file = LentFile::create(name)?;
        ftruncate(&file, bytes)?;
        retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, bytes))?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    }

    fn create(name: &str) -> io::Result<LentFile> {
        // A program that got capabilities or another user at its start belongs to root in /proc.
        if dumpable_behavior()? != DumpableBehavior::Dumpable {
            let text = "this program got capabilities or another user at its start, so that the kernel hides its files";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let file = match fcntl_dupfd_cloexec(&file, FIRST_NUMBER) {
            // The limit of open files is lower.
            Err(Errno::INVAL | Errno::MFILE) => file,
            moved => moved?,
        };
        let file = LentFile { file };
        let path = file.path();
        if !path.exists() {
            let path = path.display();
            let text = format!(
                "{path}: no such file; /proc of this pid namespace is not mounted: mount -t proc proc /proc"
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Ok(file)
    }

    /// Returns the path by which other processes open the file.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}

impl AsFd for LentFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn another_process_reads_the_file_and_cannot_change_it() {
        let file = LentFile::with_content("lent", b"content").unwrap();
        let read = Command::new("cat").arg(file.path()).output().unwrap();
        assert_eq!(read.stdout, b"content");
        assert!(fs::write(file.path(), b"other").is_err());
        let path = file.path();
        drop(file);
        assert_eq!(fs::read(path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_size_of_a_changeable_file_is_fixed() {
        let file = LentFile::zeroed("lent", 5000).unwrap();
        assert!(fs::OpenOptions::new().write(true).open(file.path()).unwrap().set_len(1).is_err());
        assert_eq!(fs::read(file.path()).unwrap(), [0; 5000]);
    }
}
