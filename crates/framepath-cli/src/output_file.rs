// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output files of a command, whose names come from options.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use framepath_os::process::cancel::StoppableWriter;
use framepath_os::process::standard_output;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use rustix::process::geteuid;

use crate::terminal;

/// Output of a command: a file, a device, a pipe or standard output. For a file, [`OutputFile::create`]
/// creates a temporary file in the file's folder, so that a command which creates its outputs before its
/// work finds an unwritable folder early. [`OutputFile::write`] gives the temporary file the final name
/// after the result is written, so that a failed run leaves the old file unchanged.
pub(crate) struct OutputFile {
    name: String,
    target: Target,
}

enum Target {
    Stdout,
    /// A device or a pipe, opened when the [`OutputFile`] is created, and written directly.
    Open(File),
    /// A temporary file, which [`OutputFile::write`] renames after the result is written.
    Temporary(Temporary),
}

/// A temporary file for a result. It has no name, so that it goes with this process however that ends; where the
/// file system has no such files, it has a hidden name. Dropping this value removes the file, unless the file was renamed.
struct Temporary {
    file: File,
    /// Path of the temporary file; `None` while it has no name.
    path: Option<PathBuf>,
    /// Final path of the file. A symbolic link is resolved, so that the link stays.
    target: PathBuf,
    renamed: bool,
}

impl Temporary {
    /// Creates a temporary file in the folder of `target`, without a name or under an unused hidden one. If `target` is a
    /// symbolic link, the file to which the link refers is the target. Fails if the file cannot be created,
    /// for example because the folder is missing or not writable, or if `target` has no file name.
    fn create_beside(target: &Path) -> io::Result<Temporary> {
        let target =
            fs::canonicalize(target).or_else(|_| link_target(target)).unwrap_or_else(|_| target.to_owned());
        if target.file_name().is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if let Some(file) = without_name(&target) {
            return Ok(Temporary { file, path: None, target, renamed: false });
        }
        let (file, path) =
            unused_name(&target, |path| File::options().write(true).create_new(true).open(path))?;
        Ok(Temporary { file, path: Some(path), target, renamed: false })
    }

    fn rename(mut self) -> io::Result<()> {
        if let Some(mode) = fs::symlink_metadata(&self.target).ok().and_then(|old| kept_mode(&old)) {
            // The new file has permissions by the umask.
            self.file.set_permissions(Permissions::from_mode(mode))?;
        }
        let path = match self.path.take() {
            Some(path) => path,
            None => {
                // A link fails if the name exists, and rename(2) replaces a file; so it needs a name for a moment.
                let file = descriptor_path(&self.file);
                unused_name(&self.target, |path| Ok(linkat(CWD, &file, CWD, path, AtFlags::SYMLINK_FOLLOW)?))?
                    .1
            }
        };
        let path = self.path.insert(path);
        fs::rename(path, &self.target)?;
        self.renamed = true;
        Ok(())
    }
}

/// Returns the permissions that a new file takes from `old`, the file in its place: who may read and write it. `None` if `old` is
/// no regular file of this process's user, because its permissions are then the choice of another user, or of no file. The
/// bits for execution, set-user-ID, set-group-ID and sticky are never taken: they would make the output a program.
fn kept_mode(old: &Metadata) -> Option<u32> {
    const READ_AND_WRITE: u32 = 0o666;
    let is_own = old.is_file() && old.uid() == geteuid().as_raw();
    is_own.then_some(old.mode() & READ_AND_WRITE)
}

/// Creates a file without a name in the folder of `target`; `None` if the file system or /proc is missing what that needs, or the
/// folder is not writable.
fn without_name(target: &Path) -> Option<File> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, folder, flags, Mode::from_raw_mode(0o666)).ok()?);
    // Its link in /proc gives it a name later.
    fs::metadata(descriptor_path(&file)).is_ok().then_some(file)
}

fn descriptor_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Calls `create` with hidden names beside `target` until one is unused; returns its result and the path.
fn unused_name<T>(target: &Path, create: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, PathBuf)> {
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let mut number = 0;
    loop {
        let path = target.with_file_name(format!(".{name}.{}-{number}", std::process::id()));
        match create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
            created => return Ok((created?, path)),
        }
    }
}

/// Returns the path to which the symbolic link `link` refers; the path need not exist. Fails if `link`
/// is not a symbolic link or cannot be read.
fn link_target(link: &Path) -> io::Result<PathBuf> {
    let target = fs::read_link(link)?;
    Ok(link.parent().unwrap_or(Path::new("")).join(target))
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let (Some(path), false) = (&self.path, self.renamed) {
            // An error does not matter: the folder may have been removed.
            let _ = fs::remove_file(path);
        }
    }
}

impl Target {
    fn create(name: &str) -> io::Result<Target> {
        match fs::metadata(name) {
            // Devices and pipes are opened directly; open(2) fails for a folder.
            Ok(there) if !there.is_file() => File::options().write(true).open(name).map(Target::Open),
            _ => Temporary::create_beside(Path::new(name)).map(Target::Temporary),
        }
    }
}

impl OutputFile {
    /// Creates the temporary file for the output `name`; opens `name` instead if it is a device or a
    /// pipe. `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be created or opened, for example because `name` is a folder.
    pub(crate) fn create(name: &str) -> anyhow::Result<OutputFile> {
        let target = match name {
            "-" => Target::Stdout,
            _ if standard_output::check_path(name.as_ref()).is_err() => Target::Stdout,
            _ => Target::create(name).with_context(|| format!("writing `{name}`"))?,
        };
        Ok(OutputFile { name: name.to_owned(), target })
    }

    /// Creates the output named by an option's value, as [`OutputFile::create`] does, with the same errors.
    /// Returns `None` if `name` is `None`, because the option is absent.
    pub(crate) fn option(name: Option<&str>) -> anyhow::Result<Option<OutputFile>> {
        name.map(OutputFile::create).transpose()
    }

    /// Returns true if the output is standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout)
    }

    /// Calls `content` to write the output, then gives a temporary file the final name. If `content`
    /// fails, standard output has no bytes, a temporary file is removed, and a device or pipe may have a
    /// part of the output.
    ///
    /// # Errors
    /// The error of `content`, of the write or of the renaming; ECANCELED if a signal ended the wait for a
    /// slow reader; [`OutputClosed`](crate::exit_status::OutputClosed) if the reader of standard output is
    /// gone.
    pub(crate) fn write(self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
        let written = match self.target {
            Target::Stdout => {
                let mut bytes = Vec::new();
                content(&mut bytes).context("standard output")?;
                return terminal::print(&bytes);
            }
            Target::Open(file) => fill(&file, content),
            Target::Temporary(file) => fill(&file.file, content).and_then(|()| file.rename()),
        };
        written.with_context(|| format!("writing `{}`", self.name))
    }

    /// Writes `text`, a result of `serde_json`, and a line end. Returns the error in `text`, or the errors
    /// of [`OutputFile::write`].
    pub(crate) fn json(self, text: serde_json::Result<String>) -> anyhow::Result<()> {
        let text = text.context("formatting the result as JSON")?;
        self.write(|to| writeln!(to, "{text}"))
    }
}

fn fill(file: &File, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::new(StoppableWriter::new(file));
    content(&mut writer).and_then(|()| writer.flush())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(file: &Path) -> u32 {
        fs::symlink_metadata(file).unwrap().mode() & 0o7777
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_output_has_a_name_only_when_it_is_written_and_replaces_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out.json");
        let output = || OutputFile::create(target.to_str().unwrap()).unwrap();
        let without_names = without_name(&target).is_some();
        let first = output();
        assert!(!without_names || names(folder.path()).is_empty());
        first.write(|to| to.write_all(b"first")).unwrap();
        assert_eq!(names(folder.path()), ["out.json"]);
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
        // Another file has the hidden name.
        fs::write(target.with_file_name(format!(".out.json.{}-0", std::process::id())), b"").unwrap();
        output().write(|to| to.write_all(b"second")).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"second");
        assert_eq!(mode(&target), 0o640);
        assert_eq!(names(folder.path()).len(), 2);
        let failed = output().write(|_| Err(io::ErrorKind::Other.into()));
        assert!(failed.is_err() && fs::read(&target).unwrap() == b"second");
        drop(output());
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn an_output_takes_no_permissions_but_those_to_read_and_write_its_users_own_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str| {
            let output = OutputFile::create(path(name).to_str().unwrap()).unwrap();
            output.write(|to| to.write_all(b"new")).unwrap();
            assert_eq!(fs::read(path(name)).unwrap(), b"new");
            mode(&path(name))
        };
        let usual = write("usual");
        for (old, new) in [(0o600, 0o600), (0o4777, 0o666), (0o7511, 0o400), (0o2640, 0o640)] {
            fs::write(path("out"), "").unwrap();
            fs::set_permissions(path("out"), Permissions::from_mode(old)).unwrap();
            assert_eq!(write("out"), new, "{old:o}");
            fs::remove_file(path("out")).unwrap();
        }
        // A link that is made after the output is replaced, and its file's permissions do not count.
        fs::write(path("other"), "other").unwrap();
        fs::set_permissions(path("other"), Permissions::from_mode(0o6777)).unwrap();
        let output = OutputFile::create(path("late").to_str().unwrap()).unwrap();
        symlink("other", path("late")).unwrap();
        output.write(|to| to.write_all(b"new")).unwrap();
        assert_eq!(mode(&path("late")), usual);
        assert_eq!(fs::read(path("other")).unwrap(), b"other");
    }

    #[test]
    fn a_temporary_file_with_a_name_does_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out");
        let named = || {
            let create = |path: &Path| File::options().write(true).create_new(true).open(path);
            let (file, path) = unused_name(&target, create).unwrap();
            Temporary { file, path: Some(path), target: target.clone(), renamed: false }
        };
        drop(named());
        assert!(names(folder.path()).is_empty());
        let mut file = named();
        file.file.write_all(b"text").unwrap();
        file.rename().unwrap();
        assert_eq!(
            (names(folder.path()), fs::read(&target).unwrap()),
            (vec!["out".to_owned()], b"text".to_vec())
        );
    }
}
