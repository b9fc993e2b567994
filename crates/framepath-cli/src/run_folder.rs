// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creation of the lab's run folder, and reading of summaries and timelines from run folders and files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use framepath_lab::date::utc;
use framepath_lab::report::FrameTimeline;
use framepath_model::summary::Summary;

/// Creates the run folder `given`, which may exist already. Without `given`, creates a new folder
/// under `runs/` in the current folder, named after the time in UTC, with a number if that name
/// exists. Returns the folder's path; fails if a folder cannot be created.
pub(crate) fn create(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(folder) = given {
        fs::create_dir_all(folder).with_context(|| format!("making the folder `{}`", folder.display()))?;
        return Ok(folder.to_owned());
    }
    let runs = Path::new("runs");
    fs::create_dir_all(runs).context("making the folder `runs`; --out DIR names another run folder")?;
    // The names sort by time.
    let name = utc(unix_seconds().unwrap_or(0), "%Y-%m-%dT%H-%M-%SZ");
    let mut folder = runs.join(&name);
    for second in 2.. {
        match fs::create_dir(&folder) {
            // Another run began in the same second.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                folder = runs.join(format!("{name}-{second}"));
            }
            outcome => {
                outcome.with_context(|| format!("making the folder `{}`", folder.display()))?;
                break;
            }
        }
    }
    Ok(folder)
}

/// Returns the present time in seconds since 1970-01-01 UTC; `None` if the clock is before 1970.
pub(crate) fn unix_seconds() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs())
}

/// Reads the lab's summaries in `path`, at least one. A file has one summary or an array; a run folder
/// has such a file named `run.json`. An unreadable file, other content, and an empty array are errors.
pub(crate) fn summaries(path: &Path) -> anyhow::Result<Vec<Summary>> {
    let file = if path.is_dir() { path.join("run.json") } else { path.to_owned() };
    let text = fs::read_to_string(&file).with_context(|| format!("reading `{}`", file.display()))?;
    let of_file =
        || format!("`{}` is not a summary of the lab; expected a file of `lab --json`", file.display());
    let value: serde_json::Value = serde_json::from_str(&text).with_context(of_file)?;
    let summaries = if value.is_array() {
        serde_json::from_value::<Vec<Summary>>(value).with_context(of_file)?
    } else {
        vec![serde_json::from_value::<Summary>(value).with_context(of_file)?]
    };
    if summaries.is_empty() {
        bail!("`{}` contains no summary; create one with `framepath lab --json FILE`", file.display());
    }
    Ok(summaries)
}

/// Reads the slowest frames of a run folder from its `timeline.json`; `path` is the folder or its
/// `run.json`. Returns an empty list if the folder has no `timeline.json`, or if `path` is another file.
/// An unreadable `timeline.json`, and one with other content, are errors.
pub(crate) fn slow_frames(path: &Path) -> anyhow::Result<Vec<FrameTimeline>> {
    let folder = if path.is_dir() { Some(path) } else { path.parent().filter(|_| is_run_json(path)) };
    let file = folder.map(|folder| folder.join("timeline.json")).filter(|file| file.exists());
    let Some(file) = file else { return Ok(Vec::new()) };
    let text = fs::read_to_string(&file).with_context(|| format!("reading `{}`", file.display()))?;
    serde_json::from_str(&text).with_context(|| {
        format!("`{}` is not a timeline of the lab; remove the file or run the lab again", file.display())
    })
}

/// Returns true if the file name of `path` is `run.json`.
pub(crate) fn is_run_json(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "run.json")
}
