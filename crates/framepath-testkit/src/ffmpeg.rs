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

/// Returns the lines of the framemd5 file `text` without its header lines.
pub fn md5_lines(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}
