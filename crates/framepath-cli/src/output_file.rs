// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files named by options.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use framepath_os::process::cancel::StoppableWriter;

use crate::terminal;

/// Output file of a command. The file is created before the work starts, so that an unwritable
/// folder is found early. It gets its final name after the result is written, so that a failed
/// run leaves the old file.
pub(crate) struct OutputFile {
    name: String,
    target: Target,
}

enum Target {
    Stdout,
    /// A device or a pipe; writes go to it directly.
    Open(File),
    /// A temporary file. [`OutputFile::write`] renames it to the target.
    Temporary(Temporary),
}

/// A temporary file. Dropping this before the rename deletes the file.
struct Temporary {
    file: File,
    path: PathBuf,
    target: PathBuf,
    renamed: bool,
}

impl Temporary {
    /// Creates a file in the folder of `target`. Follows symbolic links.
    fn create_beside(target: &Path) -> io::Result<Temporary> {
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
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
            // The new file has permissions by the umask; the old file's permissions are kept.
            self.file.set_permissions(before.permissions())?;
        }
        fs::rename(&self.path, &self.target)?;
        self.renamed = true;
        Ok(())
    }
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
    /// Creates the file `name`; `-` is standard output.
    pub(crate) fn create(name: &str) -> anyhow::Result<OutputFile> {
        let target = match name {
            "-" => Target::Stdout,
            _ => Target::create(name).with_context(|| format!("writing `{name}`"))?,
        };
        Ok(OutputFile { name: name.to_owned(), target })
    }

    /// Creates the file of an option, like [`OutputFile::create`]; `None` if the option is absent.
    pub(crate) fn option(name: Option<&str>) -> anyhow::Result<Option<OutputFile>> {
        name.map(OutputFile::create).transpose()
    }

    /// Returns true if the output is standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout)
    }

    /// Writes the file with the function `content`, then gives the file its final name.
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

    /// Writes the JSON `text` and a line end.
    pub(crate) fn json(self, text: serde_json::Result<String>) -> anyhow::Result<()> {
        let text = text.context("JSON")?;
        self.write(|to| writeln!(to, "{text}"))
    }
}

fn fill(file: &File, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::new(StoppableWriter::new(file));
    content(&mut writer).and_then(|()| writer.flush())
}
