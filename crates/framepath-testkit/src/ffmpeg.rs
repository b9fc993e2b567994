// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `ffmpeg` tool, which makes clips and hashes their frames.

use std::process::{Command, Output, Stdio};

/// Runs `ffmpeg` with these arguments, replacing existing files, and returns its standard output.
/// Panics if `ffmpeg` cannot be started or fails.
pub fn ffmpeg(arguments: &[&str]) -> Vec<u8> {
    let output = ffmpeg_output(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ffmpeg {arguments:?}: {text}");
    output.stdout
}

/// Runs `ffmpeg` with these arguments, replacing existing files, and returns its output with any
/// exit code. Panics if `ffmpeg` cannot be started.
pub fn ffmpeg_output(arguments: &[&str]) -> Output {
    Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-y"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("starting `ffmpeg`: {error}; apt install ffmpeg"))
}

/// Runs `ffprobe` on the video of `file` for the entries `entries` (its `-show_entries`), and returns the values, each
/// line as its fields. Panics if `ffprobe` cannot be started or fails.
pub fn ffprobe(file: &str, entries: &str) -> Vec<Vec<String>> {
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-select_streams", "v", "-count_frames", "-show_entries", entries])
        .args(["-of", "compact=print_section=0:nokey=1", file])
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("starting `ffprobe`: {error}; apt install ffmpeg"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ffprobe {file}: {text}");
    let lines = String::from_utf8_lossy(&output.stdout);
    let fields = |line: &str| line.split('|').map(str::to_owned).collect();
    lines.lines().filter(|line| !line.is_empty()).map(fields).collect()
}

/// Returns the lines of the framemd5 file `text` without its header lines.
pub fn md5_lines(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}
