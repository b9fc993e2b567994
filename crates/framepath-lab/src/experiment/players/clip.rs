// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clips to play: their frames and their duration at their own rate.

use std::path::{Path, PathBuf};

use framepath::{Level, Options};
use framepath_codec::Demuxer;

use crate::error::LabError;
use crate::experiment::{ExperimentSettings, Size};
use crate::measure::complete;

/// The committed clips to play; those of `Size::Full` only with `--full` or by name. The containers of all
/// these clips have timestamps, so that all players use the same frame rate.
const COMMITTED: [(&str, Size); 6] = [
    ("vp9-1080p8.ivf", Size::Quick),
    ("hard-vp9-1080p8.ivf", Size::Quick),
    ("av1-1080p8.ivf", Size::Full),
    ("hard-av1-1080p8.ivf", Size::Full),
    ("vp9-1080p10.ivf", Size::Full),
    ("h264-180p8-container.mp4", Size::Full),
];

/// A clip to play, with its number of frames and its duration at its own rate.
pub(super) struct Clip {
    pub(super) file: PathBuf,
    /// Name of the clip's case: the file's name without its extension.
    pub(super) case: String,
    /// Codec as libavcodec names it, such as `vp9`.
    pub(super) codec: &'static str,
    pub(super) frames: u64,
    pub(super) seconds: f64,
    /// True if framepath, with one decoder thread, decodes the clip in less than half of the clip's
    /// duration on this machine.
    pub(super) easy: bool,
}

impl Clip {
    /// Opens the clip in `file`: reads all packets for the duration, and decodes all frames with one thread
    /// to count them and to time the decoding. The duration is the span of the packets' timestamps plus one
    /// frame interval; without usable timestamps, the number of frames times the interval. The interval is
    /// that of the clip's frame rate; without a frame rate, 40 ms.
    ///
    /// # Errors
    /// The file cannot be read, decoded or decoded without loss, or the decoding was interrupted.
    pub(super) fn open(file: &Path) -> Result<Clip, LabError> {
        // The demuxer's errors begin with the name of the file.
        let unreadable = |error: &dyn std::fmt::Display| LabError::Unknown(error.to_string());
        let mut demuxer = Demuxer::open(file).map_err(|error| unreadable(&error))?;
        let (codec, stream) = (demuxer.info().codec.name(), demuxer.info().stream);
        let (mut first, mut last) = (None, None);
        while let Some(packet) = demuxer.read().map_err(|error| unreadable(&error))? {
            if let Some(pts) = packet.meta().pts {
                first = Some(first.map_or(pts, |first: i64| first.min(pts)));
                last = Some(last.map_or(pts, |last: i64| last.max(pts)));
            }
        }
        let name = framepath_model::path::quote(&file.to_string_lossy());
        let path = framepath::path::parse(&format!("file {name} ! decode threads=1 ! null"))?;
        let report = complete(framepath::run(&path, &Options { level: Level::Off, ..Options::default() })?)?;
        let interval = stream.frame_rate.value().map_or(0.04, |rate| 1.0 / rate);
        let told = first
            .zip(last)
            .zip(stream.time_base.value())
            .map(|((first, last), tick)| (last - first) as f64 * tick);
        let seconds = match told {
            Some(seconds) if seconds > 0.0 => seconds + interval,
            _ => report.frames as f64 * interval,
        };
        let stem = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy();
        let case = framepath_model::shown::shown(&stem).into_owned();
        let easy = report.wall_ns as f64 / 1e9 < seconds / 2.0;
        Ok(Clip { file: file.to_owned(), case, codec, frames: report.frames, seconds, easy })
    }
}

/// Returns the names of the committed clips' cases.
pub(super) fn cases() -> Vec<String> {
    COMMITTED.iter().map(|(file, _)| case_of(file).to_owned()).collect()
}

/// Returns the case of a committed clip: the file's name without its extension.
fn case_of(file: &str) -> &str {
    file.rsplit_once('.').map_or(file, |(stem, _)| stem)
}

/// Returns the files to play. With files in the settings, returns all of them, whatever cases are named.
/// Without files, returns the committed clips of the named cases; without named cases, those of the size.
///
/// # Errors
/// A committed clip is missing.
pub(super) fn files(settings: &ExperimentSettings) -> Result<Vec<PathBuf>, LabError> {
    if !settings.files.is_empty() {
        return Ok(settings.files.clone());
    }
    let named = !settings.cases.is_empty();
    let wanted = COMMITTED.iter().filter(|(file, size)| {
        settings.wants(case_of(file)) && (named || settings.size == Size::Full || *size == Size::Quick)
    });
    wanted.map(|(file, _)| settings.clip(file)).collect()
}
