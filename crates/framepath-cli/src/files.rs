// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that options name.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use framepath_os::cancel::Writer;

use crate::screen;

/// A file that is made before the work whose result it will hold, so that a
/// folder that cannot be written does not cost the result. The file has its name
/// once the result is in it: a run that fails leaves what was there before.
pub(crate) struct Output {
    name: String,
    target: Target,
}

enum Target {
    Stdout,
    /// What is written to as it is: a device, a pipe.
    Open(File),
    /// Takes the name of the target in the end.
    Temporary(Temporary),
}

/// A file that goes when it is dropped before it has got its name.
struct Temporary {
    file: File,
    path: PathBuf,
    target: PathBuf,
    renamed: bool,
}

impl Temporary {
    /// A file beside `target`, which a link to it does not hide.
    fn beside(target: &Path) -> io::Result<Temporary> {
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
            // Of a new file they are what the umask leaves.
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
            // It may be gone with its folder.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Target {
    fn create(name: &str) -> io::Result<Target> {
        match fs::metadata(name) {
            // Devices and pipes keep their names; a folder is refused by open(2).
            Ok(there) if !there.is_file() => File::options().write(true).open(name).map(Target::Open),
            _ => Temporary::beside(Path::new(name)).map(Target::Temporary),
        }
    }
}

impl Output {
    /// Makes `name`, or takes standard output for `-`.
    pub(crate) fn create(name: &str) -> anyhow::Result<Output> {
        let target = match name {
            "-" => Target::Stdout,
            _ => Target::create(name).with_context(|| format!("writing `{name}`"))?,
        };
        Ok(Output { name: name.to_owned(), target })
    }

    /// The same for an option that may not be given.
    pub(crate) fn option(name: Option<&str>) -> anyhow::Result<Option<Output>> {
        name.map(Output::create).transpose()
    }

    /// Whether it is standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout)
    }

    /// Writes all that `content` writes.
    pub(crate) fn write(self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
        let written = match self.target {
            Target::Stdout => {
                let mut bytes = Vec::new();
                content(&mut bytes).context("standard output")?;
                return screen::print(&bytes);
            }
            Target::Open(file) => fill(&file, content),
            Target::Temporary(file) => fill(&file.file, content).and_then(|()| file.rename()),
        };
        written.with_context(|| format!("writing `{}`", self.name))
    }

    /// Writes what `serde_json` made, and a line end.
    pub(crate) fn json(self, text: serde_json::Result<String>) -> anyhow::Result<()> {
        let text = text.context("JSON")?;
        self.write(|to| writeln!(to, "{text}"))
    }
}

fn fill(file: &File, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::new(Writer::new(file));
    content(&mut writer).and_then(|()| writer.flush())
}
