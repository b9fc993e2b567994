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
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
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

/// Age below which a library may not be locked yet.
const NEW: Duration = Duration::from_secs(10);

/// Bits of a file's mode: the group's and others' right to change it.
const OTHERS_CHANGE: u32 = 0o022;

/// Library that other programs load. Dropping the value removes the file.
#[derive(Debug)]
pub struct LentLibrary(Place);

#[derive(Debug)]
enum Place {
    Memory(LentFile),
    /// The file is locked as long as it is open: nobody removes it.
    Folder {
        path: PathBuf,
        _file: File,
    },
}

impl LentLibrary {
    /// Makes the library from its content.
    ///
    /// # Errors
    /// As for [`LentFile::with_content`]; for root `Unsupported` if no folder is safe and allows code.
    pub fn new(content: &[u8]) -> io::Result<LentLibrary> {
        if !geteuid().is_root() {
            return LentLibrary::in_memory(content);
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
                    Ok(file) => return Ok(LentLibrary(Place::Folder { path, _file: file })),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    // Limits of this process (`ulimit -f` and `-n`), the same in every folder.
                    Err(error) if matches!(error.raw_os_error(), Some(libc::EFBIG | libc::EMFILE)) => {
                        return Err(error);
                    }
                    Err(_) => break,
                }
            }
        }
        // In a user namespace of this user alone, there is nobody else.
        if is_alone() {
            return LentLibrary::in_memory(content);
        }
        let text = format!(
            "root's library needs a folder that only root can change and that allows code: {} do not",
            FOLDERS.join(", ")
        );
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    fn in_memory(content: &[u8]) -> io::Result<LentLibrary> {
        Ok(LentLibrary(Place::Memory(LentFile::with_content("framepath-library", content)?)))
    }

    /// Returns the path by which other programs load the library.
    pub fn path(&self) -> PathBuf {
        match &self.0 {
            Place::Memory(file) => file.path(),
            Place::Folder { path, .. } => path.clone(),
        }
    }
}

impl Drop for LentLibrary {
    fn drop(&mut self) {
        if let Place::Folder { path, .. } = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// True if this process is in a user namespace that has one user.
fn is_alone() -> bool {
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    users.split_whitespace().collect::<Vec<&str>>().get(2..) == Some(&["1"])
}

/// True for a folder of root's that nobody else can change.
fn is_roots(folder: &Path) -> bool {
    let data = fs::symlink_metadata(folder);
    data.is_ok_and(|data| data.is_dir() && data.uid() == 0 && data.mode() & OTHERS_CHANGE == 0)
}

/// Writes a new file that every user can read, and checks that code in it can run. Returns the locked file, and leaves none
/// behind an error.
fn write(path: &Path, content: &[u8]) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    fill(file, path, content).inspect_err(|_| _ = fs::remove_file(path))
}

/// Fills the new file at `path`.
fn fill(mut file: File, path: &Path, content: &[u8]) -> io::Result<File> {
    flock(&file, FlockOperation::LockShared)?;
    file.write_all(content)?;
    fchmod(&file, Mode::from_raw_mode(0o755))?;
    // A file that is open for writing cannot be executed.
    let reader = File::open(path)?;
    flock(&reader, FlockOperation::LockShared)?;
    can_run(&reader, content.len())?;
    Ok(reader)
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

/// Removes the libraries that no process lends any more: those of killed ones.
fn remove_left(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_library = name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        // A file of the last seconds may not be locked yet.
        let is_old = || entry.metadata().ok()?.modified().ok()?.elapsed().ok().map(|age| age > NEW);
        if is_library && is_old() == Some(true) {
            let is_free = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
            if File::open(entry.path()).is_ok_and(|file| is_free(&file)) {
                let _ = fs::remove_file(entry.path());
            }
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
            let file = File::create(&left).unwrap();
            file.set_modified(std::time::SystemTime::now() - 2 * NEW).unwrap();
            flock(&file, FlockOperation::LockShared).unwrap();
            remove_left(path.parent().unwrap());
            assert!(left.exists());
            drop(file);
            remove_left(path.parent().unwrap());
            assert!(!left.exists() && path.exists());
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
