// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder a run of the lab leaves behind.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use framepath_lab::date::utc;

/// Makes `given`, or a new folder under `runs/` named after the time.
pub(crate) fn create(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(folder) = given {
        fs::create_dir_all(folder).with_context(|| format!("making `{}`", folder.display()))?;
        return Ok(folder.to_owned());
    }
    let runs = Path::new("runs");
    fs::create_dir_all(runs).context("making `runs`")?;
    // Sorted by name is sorted by time.
    let name = utc(unix_seconds().unwrap_or(0), "%Y-%m-%dT%H-%M-%SZ");
    let mut folder = runs.join(&name);
    for second in 2.. {
        match fs::create_dir(&folder) {
            // Two runs began in the same second.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                folder = runs.join(format!("{name}-{second}"));
            }
            outcome => {
                outcome.with_context(|| format!("making `{}`", folder.display()))?;
                break;
            }
        }
    }
    Ok(folder)
}

/// Seconds since 1970-01-01 UTC; `None` where the clock says a time before.
pub(crate) fn unix_seconds() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs())
}
