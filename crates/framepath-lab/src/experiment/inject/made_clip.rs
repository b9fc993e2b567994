// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clip that the ffmpeg tool makes for one case of `inject`.

use std::ffi::OsString;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::error::LabError;
use crate::process::Program;
use crate::temporary_folder::temporary_folder;

/// Clip file in a temporary folder, which is removed when this value is dropped.
pub(super) struct MadeClip {
    path: PathBuf,
    _folder: TempDir,
}

impl MadeClip {
    /// Encodes `frames` pictures of 320x180 as H.264, 50 per second, with `b_pictures` B pictures between
    /// two others and none of them a reference.
    ///
    /// # Errors
    /// [`LabError::Missing`] without the ffmpeg tool, or if the tool fails, for example because it has no
    /// libx264; [`LabError::Interrupted`]; [`LabError::Io`].
    pub(super) fn encode(frames: u64, b_pictures: u64) -> Result<MadeClip, LabError> {
        let structure = format!("bframes={b_pictures}:b-adapt=0:b-pyramid=none:scenecut=0:keyint=1000");
        let encoder = ["libx264", "-preset", "veryfast", "-x264-params", &structure];
        MadeClip::make("320x180", frames, &encoder)
    }

    /// Writes `frames` raw pictures of 1280x720, YUV420P, 50 per second.
    ///
    /// # Errors
    /// [`LabError::Missing`] without the ffmpeg tool, or if the tool fails; [`LabError::Interrupted`];
    /// [`LabError::Io`].
    pub(super) fn raw(frames: u64) -> Result<MadeClip, LabError> {
        MadeClip::make("1280x720", frames, &["rawvideo"])
    }

    fn make(size: &str, frames: u64, encoder: &[&str]) -> Result<MadeClip, LabError> {
        let folder = temporary_folder()?;
        let path = folder.path().join("clip.nut");
        let clip = MadeClip { path, _folder: folder };
        let (source, frames) = (format!("testsrc2=s={size}:r=50"), frames.to_string());
        let input = ["-v", "error", "-y", "-f", "lavfi", "-i", &source, "-frames:v", &frames];
        let format = ["-pix_fmt", "yuv420p", "-c:v"];
        let words = input.iter().chain(&format).chain(encoder).map(OsString::from);
        match Program::new("ffmpeg", words.chain([clip.path.clone().into()])).run(false) {
            Ok(_) => Ok(clip),
            Err(error @ LabError::Command { .. }) => Err(LabError::Missing(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Returns the file's path, quoted for a path text.
    pub(super) fn quoted(&self) -> String {
        framepath_model::path::quote(&self.path.to_string_lossy())
    }
}
