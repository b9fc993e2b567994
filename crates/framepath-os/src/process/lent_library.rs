// SPDX-License-Identifier: MIT OR Apache-2.0
//! Library that programs of this user load by a path while this process lives, and maybe a little longer.
//!
//! A user's own path is that of a [`LentFile`]: nothing is left when this process has ended, however it ended, and the kernel
//! lets nobody else's process stand in for it. Root's programs would open the files of any process that gets the number of this
//! one later. So root's library is a file in a folder that nobody else can change; if this process is killed, the next one
//! that lends a library removes it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::geteuid;

use super::lent_file::LentFile;

/// Folders that only root can change on most systems. Some do not allow code in the first ones.
const FOLDERS: [&str; 4] = ["/run", "/var/lib", "/usr/local/lib", "/root"];

/// Beginning and end of the file's name; the id of the process and a number are between them.
const PREFIX: &str = ".framepath-";
const SUFFIX: &str = ".so";

/// Most libraries of one process.
const MOST: u32 = 256;

/// Bits of a file's mode: the group's and others' right to change it.
const OTHERS_CHANGE: u32 = 0o022;

/// Library that other programs load. Dropping the value removes the file.
#[derive(Debug)]
pub struct LentLibrary(Place);

#[derive(Debug)]
enum Place {
    Memory(LentFile),
    Folder(PathBuf),
}

impl LentLibrary {
    /// Makes the library from its content.
    ///
    /// # Errors
    /// As for [`LentFile::with_content`]; for root `Unsupported` if no folder is safe and allows code.
    pub fn new(content: &[u8]) -> io::Result<LentLibrary> {
        if !geteuid().is_root() {
            return Ok(LentLibrary(Place::Memory(LentFile::with_content("framepath-library", content)?)));
        }
        for folder in FOLDERS.map(Path::new) {
            if !is_roots(folder) {
                continue;
            }
            remove_left(folder);
            // This process may have several; one with the same number may have been killed.
            for number in 0..MOST {
                let path = folder.join(format!("{PREFIX}{}-{number}{SUFFIX}", std::process::id()));
                match write(&path, content) {
                    Ok(()) => return Ok(LentLibrary(Place::Folder(path))),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(_) => break,
                }
            }
        }
        let text = format!(
            "root's library needs a folder that only root can change and that allows code: {} do not",
            FOLDERS.join(", ")
        );
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// Returns the path by which other programs load the library.
    pub fn path(&self) -> PathBuf {
        match &self.0 {
            Place::Memory(file) => file.path(),
            Place::Folder(path) => path.clone(),
        }
    }
}

impl Drop for LentLibrary {
    fn drop(&mut self) {
        if let Place::Folder(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// True for a folder of root's that nobody else can change.
fn is_roots(folder: &Path) -> bool {
    let data = fs::symlink_metadata(folder);
    data.is_ok_and(|data| data.is_dir() && data.uid() == 0 && data.mode() & OTHERS_CHANGE == 0)
}

/// Writes a new file, and checks that code in it can run. Leaves no file behind an error.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(path)?;
    let written = file.write_all(content).and_then(|()| can_run(&File::open(path)?, content.len()));
    written.inspect_err(|_| _ = fs::remove_file(path))
}

/// Checks that code in a file of `bytes` bytes can run: some folders do not allow it.
fn can_run(file: &File, bytes: usize) -> io::Result<()> {
    let access = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: a new private mapping of an open file, which is removed again and never read.
    unsafe {
        let mapped = mmap(ptr::null_mut(), bytes, access, MapFlags::PRIVATE, file, 0)?;
        munmap(mapped, bytes)?;
    }
    Ok(())
}

/// Removes the libraries of processes that were killed.
fn remove_left(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process: Option<u32> = name.to_str().and_then(|name| {
            let (process, _) = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split_once('-')?;
            process.parse().ok()
        });
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn nobody_else_can_change_what_the_path_means_and_nothing_is_left() {
        let library = LentLibrary::new(b"content").unwrap();
        let path = library.path();
        assert_eq!(Command::new("cat").arg(&path).output().unwrap().stdout, b"content");
        if geteuid().is_root() {
            assert!(path.ancestors().skip(1).all(is_roots), "{path:?}");
            let left = path.with_file_name(format!("{PREFIX}{}-0{SUFFIX}", i32::MAX));
            fs::write(&left, b"left").unwrap();
            remove_left(path.parent().unwrap());
            assert!(!left.exists());
        }
        let other = LentLibrary::new(b"other").unwrap();
        assert_ne!(other.path(), path);
        drop((library, other));
        assert!(!path.exists());
    }

    #[test]
    fn folders_that_others_can_change_are_not_roots() {
        assert!(!is_roots(Path::new("/tmp")) && !is_roots(Path::new("/no/such")));
    }
}
