// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the machine's decoder gives the pixels that software gives.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::api::Api;
use super::clip::Clip;
use super::player::{CAME_TO_SOFTWARE, line_with};
use super::watched::listen;
use crate::error::LabError;

/// What devices have: 8-bit pictures, and deeper ones.
const FORMATS: [&str; 2] = ["nv12", "p010"];

/// Decodes the clip by `api` and in software, and compares every frame.
///
/// # Errors
/// [`LabError::Missing`]: one of the two does not decode it, and why.
pub(super) fn equal(framepath: &Path, clip: &Clip, api: Api) -> Result<bool, LabError> {
    let [shallow, deep] = FORMATS;
    let (format, wanted) = match hashes(framepath, clip, Api::Software, shallow) {
        Ok(hashes) => (shallow, hashes),
        Err(LabError::Missing(_)) => (deep, hashes(framepath, clip, Api::Software, deep)?),
        Err(error) => return Err(error),
    };
    Ok(hashes(framepath, clip, api, format)? == wanted)
}

/// A line per frame, of its time and its pixels.
fn hashes(framepath: &Path, clip: &Clip, api: Api, format: &str) -> Result<Vec<String>, LabError> {
    let file = framepath_model::path::quote(&clip.file.to_string_lossy());
    let path = format!("file {file} ! decode api={} format={format} ! framemd5 -", api.name());
    let mut command = Command::new(framepath);
    command.args(["run", "--ledger", "off", "--quiet", &path]);
    let said = listen(&mut command, Duration::from_secs_f64(60.0 + 10.0 * clip.seconds))?;
    match line_with(&said, CAME_TO_SOFTWARE) {
        Some(note) => Err(LabError::Missing(note.to_owned())),
        None => Ok(said.lines().filter(|line| line.starts_with("0,")).map(str::to_owned).collect()),
    }
}
