// SPDX-License-Identifier: MIT OR Apache-2.0
//! `python`: decoding into arrays of numpy by framepath's package and by others, each in an interpreter of its own whose clocks begin
//! behind the loading of the packages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::LabError;
use crate::experiment::repeated_clip::{REPEATS, repeated_clip};
use crate::experiment::{ExperimentResult, ExperimentSettings, Size};
use crate::measure::{Contender, Measured};
use crate::pairs::{self, Comparison};
use crate::process::Program;
use crate::progress::ProgressView;
use crate::temporary_folder::temporary_folder;

/// Clips, each repeated to 1,050 frames. The quick size has only the first.
const CLIPS: [&str; 6] = [
    "h264-1080p8.h264",
    "vp9-1080p8.ivf",
    "av1-1080p8.ivf",
    "hard-h264-1080p8.h264",
    "hard-vp9-1080p8.ivf",
    "hard-av1-1080p8.ivf",
];
/// Arrays that a program wants: the planes as they are, or RGB.
const MODES: [&str; 2] = ["yuv", "rgb"];
/// Threads of every decoder.
const THREADS: &str = "2";
/// Packages; `bare` is `framepath` without a look at the frames, and `framepath-poisoned` is `framepath-process` with a packet at which
/// every decoder dies.
const PACKAGES: [&str; 8] =
    ["framepath", "framepath-process", "framepath-poisoned", "bare", "pyav", SAME_FFMPEG, "opencv", "decord"];
/// PyAV, built on the FFmpeg that framepath uses: what its wheel's newer decoders save does not count.
const SAME_FFMPEG: &str = "pyav-same-ffmpeg";

/// Figures that a run of `bench.py` prints.
#[derive(Deserialize)]
#[serde(untagged)]
enum BenchOutput {
    Figures { frames: u64, wall_ns: u64, cpu_ns: u64, copied_bytes: Option<u64>, software: String },
    Missing { missing: String },
}

fn case(clip: &str, mode: &str) -> String {
    format!("{}-{mode}", clip.rsplit_once('.').map_or(clip, |(stem, _)| stem))
}

/// Returns the names of all cases, those that run only with `--full` included.
pub(super) fn cases() -> Vec<String> {
    CLIPS.iter().flat_map(|clip| MODES.map(|mode| case(clip, mode))).collect()
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let summary = &mut findings.summary;
    let rounds = settings.rounds(3, 10);
    let is_named = !settings.cases.is_empty();
    let clips = if settings.size == Size::Quick && !is_named { &CLIPS[..1] } else { &CLIPS[..] };
    let wanted = clips.iter().flat_map(|clip| MODES.map(|mode| (*clip, mode)));
    let wanted: Vec<_> = wanted.filter(|(clip, mode)| settings.wants(&case(clip, mode))).collect();
    watch.begin("python", (wanted.len() * PACKAGES.len() * rounds) as u64);
    let folder = temporary_folder()?;
    let software = std::cell::RefCell::new(BTreeSet::new());
    for (clip, mode) in wanted {
        let file = repeated_clip(&settings.clip(clip)?, folder.path())?;
        let contenders = PACKAGES.into_iter().filter(|package| has_mode(package, mode)).map(|package| {
            let (file, software) = (&file, &software);
            Contender::new(package, move || {
                let (measured, version) = decode(settings, package, file, mode)?;
                software.borrow_mut().insert(version);
                Ok(measured)
            })
        });
        let comparisons: [Comparison<'_>; 7] = [
            ("frames_per_s", "framepath", "pyav"),
            ("frames_per_s", "framepath", SAME_FFMPEG),
            ("frames_per_s", "framepath", "opencv"),
            ("frames_per_s", "framepath", "decord"),
            ("cpu_us_per_frame", "framepath", "pyav"),
            ("cpu_ms", "framepath-process", "framepath"),
            ("cpu_ms", "framepath", "bare"),
        ];
        pairs::run(&case(clip, mode), contenders.collect(), &comparisons, rounds, watch, summary)?;
    }
    let versions: Vec<String> = software.into_inner().into_iter().collect();
    summary.notes.push(format!(
        "yuv: the planes as arrays of numpy; rgb: rows, columns and 3 samples; each clip {REPEATS} times, {THREADS} threads; \
         the clocks begin behind the loading of the packages: {}",
        versions.join("; ")
    ));
    Ok(())
}

/// Returns true if the package can give such arrays; OpenCV and decord know only RGB (BGR).
fn has_mode(package: &str, mode: &str) -> bool {
    mode == "rgb" || !matches!(package, "opencv" | "decord")
}

/// Runs one package in the interpreter that `bindings/python/lab` makes, or that FRAMEPATH_PYTHON names.
fn decode(
    settings: &ExperimentSettings,
    package: &str,
    file: &Path,
    mode: &str,
) -> Result<(Measured, String), LabError> {
    let python = std::env::var_os("FRAMEPATH_PYTHON")
        .map_or_else(|| settings.peers.join("../bindings/lab/bin/python"), PathBuf::from);
    let script = settings.peers.join("../../bindings/python/bench.py");
    if !python.exists() || !script.exists() {
        return Err(LabError::Missing(format!("no {}; bindings/python/lab", python.display())));
    }
    let words = [script.as_os_str(), package.as_ref(), file.as_os_str(), mode.as_ref(), THREADS.as_ref()];
    let program = Program::new(python, words);
    let finished = program.run(true)?;
    let output = serde_json::from_str(&finished.stdout)
        .map_err(|error| LabError::Unknown(format!("{}: {error}: {}", program.text(), finished.stdout)))?;
    match output {
        BenchOutput::Missing { missing } => Err(LabError::Missing(missing)),
        BenchOutput::Figures { frames, wall_ns, cpu_ns, copied_bytes, software } => {
            let rate = frames as f64 * 1e9 / wall_ns.max(1) as f64;
            let mut measured = Measured {
                frames,
                wall_ns,
                cpu_ns,
                copied_bytes_per_frame: copied_bytes.map(|bytes| bytes as f64 / frames.max(1) as f64),
                ..Measured::default()
            };
            measured.extra.insert("frames_per_s".to_owned(), rate);
            Ok((measured, software))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_clip_has_a_case_for_each_kind_of_array() {
        assert_eq!(cases().len(), 12);
        assert_eq!(cases()[1], "h264-1080p8-rgb");
        assert!(!has_mode("opencv", "yuv") && has_mode("pyav", "yuv") && has_mode(SAME_FFMPEG, "yuv"));
    }

    #[test]
    fn a_missing_package_is_told_apart() {
        let missing = serde_json::from_str(r#"{"missing": "av"}"#).unwrap();
        assert!(matches!(missing, BenchOutput::Missing { missing } if missing == "av"));
        let figures = r#"{"frames": 3, "wall_ns": 1, "cpu_ns": 2, "copied_bytes": null, "software": "x"}"#;
        assert!(matches!(
            serde_json::from_str(figures).unwrap(),
            BenchOutput::Figures { frames: 3, copied_bytes: None, .. }
        ));
    }
}
