// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clip that is long enough for figures of whole programs.

use std::path::{Path, PathBuf};

use framepath::{Level, Options, Pipeline};

use crate::error::LabError;
use crate::measure::complete;

/// Number of times that a clip is repeated; the clips of 1080 lines have 150 frames.
pub(super) const REPEATS: u32 = 7;

/// Writes the clip [`REPEATS`] times into one file of the folder, and returns the file.
///
/// # Errors
/// The clip cannot be read, or the file cannot be written.
pub(super) fn repeated_clip(clip: &Path, folder: &Path) -> Result<PathBuf, LabError> {
    let stem = folder.join(clip.file_stem().unwrap_or(clip.as_os_str()));
    if clip.extension().is_some_and(|extension| extension == "h264") {
        // A bare stream, which has no times for a container.
        let file = stem.with_extension("h264");
        let once = std::fs::read(clip).map_err(LabError::io(clip.display().to_string()))?;
        std::fs::write(&file, once.repeat(REPEATS as usize)).map_err(LabError::io("writing a clip"))?;
        return Ok(file);
    }
    let file = stem.with_extension("mkv");
    if !file.exists() {
        let [from, to] = [clip, &file].map(|file| framepath::path::quote(&file.to_string_lossy()));
        let pipeline = Pipeline::parse(&format!("file {from} loop={REPEATS} ! mux {to}"))?;
        complete(pipeline.run(&Options { level: Level::Off, ..Options::default() })?)?;
    }
    Ok(file)
}
