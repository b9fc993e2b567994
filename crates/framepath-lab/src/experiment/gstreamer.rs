// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gstreamer`: the element `framepathdec` and GStreamer's own decoders in the same pipeline.

use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::experiment::repeated_clip::repeated_clip;
use crate::experiment::{ExperimentResult, ExperimentSettings, Size};
use crate::measure::Contender;
use crate::pairs::{self, Comparison};
use crate::process::Program;
use crate::progress::ProgressView;
use crate::temporary_folder::temporary_folder;

/// Clips, each repeated to 1,050 frames, with the parser and the decoder of GStreamer. The quick size has only the first.
const CLIPS: [(&str, &str, &str); 6] = [
    ("h264-1080p8.h264", "h264parse", "avdec_h264"),
    ("vp9-1080p8.ivf", "vp9parse", "avdec_vp9"),
    ("av1-1080p8.ivf", "av1parse", "av1dec"),
    ("hard-h264-1080p8.h264", "h264parse", "avdec_h264"),
    ("hard-vp9-1080p8.ivf", "vp9parse", "avdec_vp9"),
    ("hard-av1-1080p8.ivf", "av1parse", "av1dec"),
];
const FRAMES: u64 = 1_050;

fn case(clip: &str) -> String {
    clip.rsplit_once('.').map_or(clip, |(stem, _)| stem).to_owned()
}

/// Returns the names of all cases, those that run only with `--full` included.
pub(super) fn cases() -> Vec<String> {
    CLIPS.iter().map(|(clip, ..)| case(clip)).collect()
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let plugins = plugins(settings)?;
    let rounds = settings.rounds(3, 10);
    let is_named = !settings.cases.is_empty();
    let clips = if settings.size == Size::Quick && !is_named { &CLIPS[..1] } else { &CLIPS[..] };
    let wanted: Vec<_> = clips.iter().filter(|(clip, ..)| settings.wants(&case(clip))).collect();
    watch.begin("gstreamer", (wanted.len() * 2 * rounds) as u64);
    let folder = temporary_folder()?;
    for (clip, parser, decoder) in wanted {
        let file = repeated_clip(&settings.clip(clip)?, folder.path())?;
        let contender = |name: &str, decoder: &str| {
            let program = pipeline(&plugins, &file, parser, decoder);
            Contender::new(name, move || program.run(false).map(|finished| finished.measured(FRAMES)))
        };
        let contenders = vec![contender("framepathdec", "framepathdec"), contender("gstreamer", decoder)];
        let comparisons: [Comparison<'_>; 2] =
            [("cpu_ms", "framepathdec", "gstreamer"), ("wall_ms", "framepathdec", "gstreamer")];
        pairs::run(&case(clip), contenders, &comparisons, rounds, watch, &mut findings.summary)?;
    }
    findings.summary.notes.push(
        "gst-launch-1.0 from file to fakesink, its start and that of the worker included; gstreamer: avdec_h264, avdec_vp9 or av1dec"
            .to_owned(),
    );
    Ok(())
}

/// Returns the folder of the plug-in that `bindings/gstreamer/check` makes.
fn plugins(settings: &ExperimentSettings) -> Result<PathBuf, LabError> {
    let folder = settings.peers.join("../bindings/gstreamer");
    match folder.join("libgstframepath.so").exists() {
        true => Ok(folder),
        false => {
            Err(LabError::Missing(format!("no plug-in in {}; bindings/gstreamer/check", folder.display())))
        }
    }
}

/// Returns the command that decodes a file and drops the frames. Its workers are started as programs, so that it waits for their end
/// and the kernel counts their time as its own.
fn pipeline(plugins: &Path, file: &Path, parser: &str, decoder: &str) -> Program {
    let worker = std::env::current_exe().unwrap_or_default();
    let source = if file.extension().is_some_and(|extension| extension == "mkv") {
        "matroskademux"
    } else {
        "identity"
    };
    let text = [
        format!("GST_PLUGIN_PATH={}", plugins.display()),
        format!("FRAMEPATH_WORKER={}", worker.display()),
        "gst-launch-1.0".to_owned(),
        "-q".to_owned(),
        "filesrc".to_owned(),
        format!("location={}", file.display()),
        "!".to_owned(),
        source.to_owned(),
        "!".to_owned(),
        parser.to_owned(),
        "!".to_owned(),
        decoder.to_owned(),
        "!".to_owned(),
        "fakesink".to_owned(),
    ];
    Program::new("env", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_demuxes_only_what_has_a_container() {
        let of = |file: &str| pipeline(Path::new("/p"), Path::new(file), "vp9parse", "avdec_vp9").text();
        assert!(of("/x/a.mkv").contains("matroskademux"));
        assert!(of("/x/a.h264").contains("identity") && !of("/x/a.h264").contains("matroskademux"));
    }
}
