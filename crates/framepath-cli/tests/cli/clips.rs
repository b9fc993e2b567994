// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framemd5` of every committed clip equals the output of the ffmpeg tool.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use framepath_testkit::{finish, in_checkout, run};

fn clips() -> Vec<PathBuf> {
    let is_clip = |path: &PathBuf| {
        path.extension()
            .is_some_and(|e| ["ivf", "h264", "hevc", "mp4", "mkv", "webm"].iter().any(|k| e == *k))
    };
    let entries = fs::read_dir(in_checkout("clips")).unwrap();
    let mut clips: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(is_clip).collect();
    clips.sort();
    clips
}

/// Returns the lines of a framemd5 listing without the one that names the program.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with("#software")).collect()
}

/// Returns the ffmpeg tool's framemd5 listing of a clip. The option `-noautoscale`, which FFmpeg 5 and
/// 7 accept, keeps the sizes of a clip that changes its size.
fn of_ffmpeg(clip: &Path) -> String {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-v", "error", "-i"]).arg(clip);
    ffmpeg.args(["-noautoscale", "-f", "framemd5", "-"]);
    ffmpeg.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(ffmpeg).ended(0).stdout
}

#[test]
fn every_clip_has_the_frames_of_the_ffmpeg_tool() {
    let clips = clips();
    assert!(clips.len() >= 25, "{clips:?}");
    for clip in clips {
        let path = format!("file '{}' ! decode ! framemd5 -", clip.display());
        let ours = run(&["run", "--quiet", "--ledger", "off", &path]).ended(0).stdout;
        let theirs = of_ffmpeg(&clip);
        let (ours, theirs) = (lines(&ours), lines(&theirs));
        assert!(ours.iter().filter(|line| line.starts_with("0, ")).count() >= 12, "{}", clip.display());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{}", clip.display());
        }
        assert_eq!(ours.len(), theirs.len(), "{}", clip.display());
    }
}

#[test]
fn bare_decodes_the_same_number_of_frames() {
    let clip = in_checkout("clips/vp9-180p8.ivf");
    for threads in ["1", "2", "auto"] {
        let ran = run(&["bare", clip.to_str().unwrap(), "--threads", threads]).ended(0);
        assert_eq!(ran.stdout, "30\n", "{threads}");
    }
    run(&["bare", clip.to_str().unwrap(), "--threads", "0"]).ended(2).prints("from 1 to 256, or auto");
}
