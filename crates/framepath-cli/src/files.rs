// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that options name.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail};
use framepath_lab::report::FrameTimeline;
use framepath_model::summary::Summary;

use crate::screen;

/// A file that is made before the work whose result it will hold, so that a
/// folder that cannot be written does not cost the result.
pub(crate) struct Output {
    name: String,
    file: Option<File>,
}

impl Output {
    /// Makes `name`, or takes standard output for `-`.
    pub(crate) fn create(name: &str) -> anyhow::Result<Output> {
        let file = match name {
            "-" => None,
            _ => Some(File::create(name).with_context(|| format!("writing `{name}`"))?),
        };
        Ok(Output { name: name.to_owned(), file })
    }

    /// The same for an option that may not be given.
    pub(crate) fn option(name: Option<&str>) -> anyhow::Result<Option<Output>> {
        name.map(Output::create).transpose()
    }

    /// Whether it is standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    /// Writes all that `content` writes.
    pub(crate) fn write(self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
        let Some(file) = self.file else {
            let mut bytes = Vec::new();
            content(&mut bytes).context("standard output")?;
            return screen::print(&bytes);
        };
        let mut writer = BufWriter::new(file);
        content(&mut writer).and_then(|()| writer.flush()).with_context(|| format!("writing `{}`", self.name))
    }

    /// Writes what `serde_json` made, and a line end.
    pub(crate) fn json(self, text: serde_json::Result<String>) -> anyhow::Result<()> {
        let text = text.context("JSON")?;
        self.write(|to| writeln!(to, "{text}"))
    }
}

/// The summaries in `path`: a file with one or an array of them, or a run
/// folder with such a `run.json`.
pub(crate) fn summaries(path: &Path) -> anyhow::Result<Vec<Summary>> {
    let file = if path.is_dir() { path.join("run.json") } else { path.to_owned() };
    let text = fs::read_to_string(&file).with_context(|| format!("reading `{}`", file.display()))?;
    let of_file = || format!("`{}` is not a summary of the lab", file.display());
    let value: serde_json::Value = serde_json::from_str(&text).with_context(of_file)?;
    let summaries = if value.is_array() {
        serde_json::from_value::<Vec<Summary>>(value).with_context(of_file)?
    } else {
        vec![serde_json::from_value::<Summary>(value).with_context(of_file)?]
    };
    if summaries.is_empty() {
        bail!("`{}` has no summary in it", file.display());
    }
    Ok(summaries)
}

/// The slowest frames of the run folder that `path` is, or whose `run.json`
/// it is; none where none were kept.
pub(crate) fn slow_frames(path: &Path) -> anyhow::Result<Vec<FrameTimeline>> {
    let folder = if path.is_dir() { Some(path) } else { path.parent().filter(|_| is_run_json(path)) };
    let file = folder.map(|folder| folder.join("timeline.json")).filter(|file| file.exists());
    let Some(file) = file else { return Ok(Vec::new()) };
    let text = fs::read_to_string(&file).with_context(|| format!("reading `{}`", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("`{}` is no timeline of the lab", file.display()))
}

/// Whether `path` is the file of a run folder that holds its summaries.
pub(crate) fn is_run_json(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "run.json")
}
