// SPDX-License-Identifier: MIT OR Apache-2.0
//! Temporary file of an output, which gets its name when the output is whole.

use std::fs::{self, File, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, linkat, openat, renameat, statat, unlinkat};
use rustix::process::geteuid;

use super::output_place::OutputPlace;

/// Number of hidden names that are tried.
const ATTEMPTS: usize = 16;

/// Mode of a new file, of which the umask takes some permissions.
const NEW: Mode = Mode::from_raw_mode(0o666);

/// A temporary file for a result. It has no name, so that it goes with this process however that ends; where the
/// file system has no such files, it has a hidden name. Dropping this value removes the file, unless the file was renamed.
pub(super) struct TemporaryOutput {
    file: File,
    /// Hidden name of the file in the folder of `place`; `None` if it has none.
    hidden: Option<String>,
    /// Final place of the file.
    place: OutputPlace,
}

impl TemporaryOutput {
    /// Creates a temporary file in the folder of `place`, without a name or under an unused hidden one. Fails if the file
    /// cannot be created, for example because the folder is not writable.
    pub(super) fn create(place: OutputPlace) -> io::Result<TemporaryOutput> {
        match without_name(&place.folder) {
            Some(file) => Ok(TemporaryOutput { file, hidden: None, place }),
            None => TemporaryOutput::create_hidden(place),
        }
    }

    fn create_hidden(place: OutputPlace) -> io::Result<TemporaryOutput> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let (file, hidden) = with_hidden_name(|name| Ok(openat(&place.folder, name, flags, NEW)?.into()))?;
        Ok(TemporaryOutput { file, hidden: Some(hidden), place })
    }

    /// Returns the file, to write the result.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its final name, in place of an old file.
    pub(super) fn rename(mut self) -> io::Result<()> {
        let (folder, name) = (&self.place.folder, &self.place.name);
        let old = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        if let Some(mode) = old.ok().and_then(|old| kept_mode(&old)) {
            // The new file has permissions by the umask.
            self.file.set_permissions(Permissions::from_mode(mode))?;
        }
        if self.hidden.is_none() {
            // A link fails if the name exists, and rename(2) replaces a file; so it needs a name for a moment.
            let file = descriptor_path(&self.file);
            let link = |name: &str| Ok(linkat(CWD, &file, folder, name, AtFlags::SYMLINK_FOLLOW)?);
            self.hidden = Some(with_hidden_name(link)?.1);
        }
        if let Some(hidden) = &self.hidden {
            renameat(folder, hidden, folder, name)?;
        }
        self.hidden = None;
        Ok(())
    }
}

impl Drop for TemporaryOutput {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            // An error does not matter: the folder may have been removed.
            let _ = unlinkat(&self.place.folder, hidden, AtFlags::empty());
        }
    }
}

/// Returns the permissions that a new file takes from `old`, the file in its place: who may read and write it. `None` if `old` is
/// no regular file of this process's user, because its permissions are then the choice of another user, or of no file. The
/// bits for execution, set-user-ID, set-group-ID and sticky are never taken: they would make the output a program.
fn kept_mode(old: &Stat) -> Option<u32> {
    const READ_AND_WRITE: u32 = 0o666;
    let is_file = FileType::from_raw_mode(old.st_mode) == FileType::RegularFile;
    (is_file && old.st_uid == geteuid().as_raw()).then_some(old.st_mode & READ_AND_WRITE)
}

/// Creates a file without a name in `folder`; `None` if the file system or /proc is missing what that needs, or the folder is
/// not writable.
fn without_name(folder: impl AsFd) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = File::from(openat(folder, ".", flags, NEW).ok()?);
    // Its link in /proc gives it a name later.
    fs::metadata(descriptor_path(&file)).is_ok().then_some(file)
}

fn descriptor_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Calls `create` with hidden names until one is unused; returns its result and the name. Another user of the folder cannot
/// guess the names, and so cannot take them.
fn with_hidden_name<T>(create: impl Fn(&str) -> io::Result<T>) -> io::Result<(T, String)> {
    let mut attempts = 1;
    loop {
        // The standard library has the keys of the hash from the kernel's random numbers.
        let name = format!(".framepath-{:016x}", RandomState::new().build_hasher().finish());
        match create(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts < ATTEMPTS => {
                attempts += 1
            }
            created => return Ok((created?, name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::io::Write;
    use std::path::Path;

    use super::*;

    fn place(path: &Path) -> OutputPlace {
        OutputPlace::find(path).unwrap().0
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_without_or_with_a_hidden_name_gets_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out");
        for create in [TemporaryOutput::create, TemporaryOutput::create_hidden] {
            drop(create(place(&target)).unwrap());
            assert!(names(folder.path()).is_empty());
            for text in ["first", "second"] {
                let temporary = create(place(&target)).unwrap();
                let named = usize::from(temporary.hidden.is_some()) + usize::from(target.exists());
                assert_eq!(names(folder.path()).len(), named);
                temporary.file().write_all(text.as_bytes()).unwrap();
                temporary.rename().unwrap();
                assert_eq!(names(folder.path()), ["out"]);
                assert_eq!(fs::read_to_string(&target).unwrap(), text);
            }
            fs::remove_file(&target).unwrap();
        }
    }

    #[test]
    fn a_folder_that_takes_the_place_of_the_outputs_folder_gets_nothing() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        for create in [TemporaryOutput::create, TemporaryOutput::create_hidden] {
            fs::create_dir(path("folder")).unwrap();
            fs::create_dir(path("other")).unwrap();
            let temporary = create(place(&path("folder/out"))).unwrap();
            fs::rename(path("folder"), path("moved")).unwrap();
            std::os::unix::fs::symlink("other", path("folder")).unwrap();
            temporary.file().write_all(b"text").unwrap();
            temporary.rename().unwrap();
            assert_eq!((names(&path("moved")), names(&path("other"))), (vec!["out".to_owned()], vec![]));
            fs::remove_file(path("folder")).unwrap();
            fs::remove_dir_all(path("moved")).unwrap();
            fs::remove_dir(path("other")).unwrap();
        }
    }

    #[test]
    fn hidden_names_are_random_and_used_ones_are_left_out() {
        let tried = RefCell::new(BTreeSet::new());
        let taken = |most: usize| {
            with_hidden_name(|name| {
                tried.borrow_mut().insert(name.to_owned());
                if tried.borrow().len() > most { Ok(()) } else { Err(io::ErrorKind::AlreadyExists.into()) }
            })
        };
        let (_, name) = taken(3).unwrap();
        assert_eq!(tried.take().len(), 4);
        assert!(name.starts_with(".framepath-") && name.len() == ".framepath-".len() + 16, "{name}");
        assert_eq!(taken(usize::MAX).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(tried.take().len(), ATTEMPTS);
        let denied = with_hidden_name::<()>(|_| Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(denied.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
