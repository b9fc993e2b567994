// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of the pixels of the machine's decoder with those of software.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::api::PlayerApi;
use super::clip::Clip;
use super::player::CAME_TO_SOFTWARE;
use super::watched::listen;
use crate::error::LabError;

/// Formats of hardware decoders: 8-bit pictures, and deeper ones.
const FORMATS: [&str; 2] = ["nv12", "p010"];

/// Software's decoded frames of a clip, as hashes.
pub(super) struct Reference<'a> {
    framepath: &'a Path,
    clip: &'a Clip,
    format: &'static str,
    hashes: Vec<String>,
}

impl<'a> Reference<'a> {
    /// Decodes the clip in software.
    ///
    /// # Errors
    /// [`LabError::Missing`] with the reason if software does not decode the clip.
    pub(super) fn of(framepath: &'a Path, clip: &'a Clip) -> Result<Reference<'a>, LabError> {
        let [shallow, deep] = FORMATS;
        let (format, hashes) = match hashes(framepath, clip, PlayerApi::Software, shallow) {
            Err(LabError::Missing(_)) => (deep, hashes(framepath, clip, PlayerApi::Software, deep)?),
            outcome => (shallow, outcome?),
        };
        Ok(Reference { framepath, clip, format, hashes })
    }

    /// Decodes the clip by `api`, and compares every frame.
    ///
    /// # Errors
    /// Like [`Reference::of`].
    pub(super) fn equals(&self, api: PlayerApi) -> Result<bool, LabError> {
        Ok(hashes(self.framepath, self.clip, api, self.format)? == self.hashes)
    }
}

/// Returns a line per frame, of its time and its pixels.
fn hashes(framepath: &Path, clip: &Clip, api: PlayerApi, format: &str) -> Result<Vec<String>, LabError> {
    let file = framepath_model::path::quote(&clip.file.to_string_lossy());
    let path = format!("file {file} ! decode api={} format={format} ! framemd5 -", api.name());
    let mut command = Command::new(framepath);
    command.args(["run", "--ledger", "off", "--quiet", &path]);
    let text = listen(&mut command, Duration::from_secs_f64(60.0 + 10.0 * clip.seconds))?;
    match text.lines().find(|line| line.contains(CAME_TO_SOFTWARE)) {
        Some(note) => Err(LabError::Missing(note.to_owned())),
        None => Ok(text.lines().filter(|line| line.starts_with("0,")).map(str::to_owned).collect()),
    }
}
