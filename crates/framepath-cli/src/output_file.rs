// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output files of a command, whose names come from options.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use framepath_os::process::cancel::StoppableWriter;
use framepath_os::process::standard_output;

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

/// A temporary file for a result. Dropping this value removes the file, unless the file was renamed.
struct Temporary {
    file: File,
    /// Path of the temporary file.
    path: PathBuf,
    /// Final path of the file. A symbolic link is resolved, so that the link stays.
    target: PathBuf,
    renamed: bool,
}

impl Temporary {
    /// Creates a temporary file in the folder of `target`, under an unused hidden name. If `target` is a
    /// symbolic link, the file to which the link refers is the target. Fails if the file cannot be created,
    /// for example because the folder is missing or not writable, or if `target` has no file name.
    fn create_beside(target: &Path) -> io::Result<Temporary> {
        let target =
            fs::canonicalize(target).or_else(|_| link_target(target)).unwrap_or_else(|_| target.to_owned());
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        let mut number = 0;
        loop {
            let path = target.with_file_name(format!(".{name}.{}-{number}", std::process::id()));
            match File::options().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
                other => return Ok(Temporary { file: other?, path, target, renamed: false }),
            }
        }
    }

    fn rename(mut self) -> io::Result<()> {
        if let Ok(before) = fs::metadata(&self.target) {
            // Copies the old file's permissions to the new file, which has permissions by the umask.
            self.file.set_permissions(before.permissions())?;
        }
        fs::rename(&self.path, &self.target)?;
        self.renamed = true;
        Ok(())
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
        if !self.renamed {
            // An error does not matter: the folder may have been removed.
            let _ = fs::remove_file(&self.path);
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
