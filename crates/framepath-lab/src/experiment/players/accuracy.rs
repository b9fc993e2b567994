// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of the pixels that framepath decodes by a hardware API with those of software.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::api::PlayerApi;
use super::clip::Clip;
use super::player::CAME_TO_SOFTWARE;
use super::watched::listen;
use crate::error::LabError;

/// Formats of hardware decoders: for pictures of 8 bits, and for deeper ones.
const FORMATS: [&str; 2] = ["nv12", "p010"];

/// Hashes of a clip's frames, decoded in software by framepath.
pub(super) struct Reference<'a> {
    framepath: &'a Path,
    clip: &'a Clip,
    format: &'static str,
    hashes: Vec<String>,
}

impl<'a> Reference<'a> {
    /// Decodes the clip in software, to NV12 or, if that fails, to P010.
    ///
    /// # Errors
    /// [`LabError::Missing`] with the reason if software decodes the clip to neither;
    /// [`LabError::Interrupted`] after SIGINT or SIGTERM; [`LabError::Io`] if a system call fails.
    pub(super) fn of(framepath: &'a Path, clip: &'a Clip) -> Result<Reference<'a>, LabError> {
        let [shallow, deep] = FORMATS;
        let (format, hashes) = match hashes(framepath, clip, PlayerApi::Software, shallow) {
            Err(LabError::Missing(_)) => (deep, hashes(framepath, clip, PlayerApi::Software, deep)?),
            outcome => (shallow, outcome?),
        };
        Ok(Reference { framepath, clip, format, hashes })
    }

    /// Decodes the clip by `api`; returns true if every frame has the time and the pixels of software's.
    ///
    /// # Errors
    /// [`LabError::Missing`] with the reason if framepath does not decode the clip by the API within the
    /// time limit, or falls back to software; [`LabError::Interrupted`] after SIGINT or SIGTERM;
    /// [`LabError::Io`] if a system call fails.
    pub(super) fn equals(&self, api: PlayerApi) -> Result<bool, LabError> {
        Ok(hashes(self.framepath, self.clip, api, self.format)? == self.hashes)
    }
}

/// Decodes the clip by `api` to `format` in a process `framepath run`, within 60 s plus ten times the clip's
/// duration. Returns the line of `framemd5` for each frame, with the frame's times and the MD5 of its
/// pixels. Fails like [`Reference::equals`].
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
