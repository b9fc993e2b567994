// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output files of a command, whose names come from options.

mod output_place;
mod temporary_output;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use framepath_os::process::cancel::StoppableWriter;
use framepath_os::process::standard_output;

use self::output_place::{OutputPlace, PlaceContent};
use self::temporary_output::TemporaryOutput;
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
    Temporary(TemporaryOutput),
}

impl Target {
    fn create(name: &str) -> io::Result<Target> {
        let (place, content) = OutputPlace::find(Path::new(name))?;
        match content {
            PlaceContent::Replaceable => TemporaryOutput::create(place).map(Target::Temporary),
            PlaceContent::Special => place.open_special(false).map(Target::Open),
            PlaceContent::Descriptor => place.open_special(true).map(Target::Open),
        }
    }
}

impl OutputFile {
    /// Creates the temporary file for the output `name`; opens `name` instead if it is a device or a
    /// pipe. `-` is standard output. The reader of a FIFO must come within about two seconds.
    ///
    /// # Errors
    /// The file cannot be created or opened, for example because `name` is a folder, or a FIFO that no program reads.
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
            Target::Temporary(file) => fill(file.file(), content).and_then(|()| file.rename()),
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
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

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
        let first = output();
        first.write(|to| to.write_all(b"first")).unwrap();
        assert_eq!(names(folder.path()), ["out.json"]);
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
        output().write(|to| to.write_all(b"second")).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"second");
        assert_eq!(mode(&target), 0o640);
        assert_eq!(names(folder.path()), ["out.json"]);
        let failed = output().write(|_| Err(io::ErrorKind::Other.into()));
        assert!(failed.is_err() && fs::read(&target).unwrap() == b"second");
        drop(output());
        assert_eq!(names(folder.path()), ["out.json"]);
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
}
