// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where files are demuxed, and what a file can make of it.

#[path = "../cli/harness.rs"]
#[allow(dead_code, reason = "the other tests need the rest")]
mod harness;

mod deaths;
mod memory;
mod mutated;
mod playlists;
mod seccomp;
mod track;

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the ffmpeg tool, which makes the files of these tests.
fn ffmpeg(arguments: &[&str]) {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-y"]).args(arguments).stdin(Stdio::null());
    let status = command.status().unwrap_or_else(|error| panic!("ffmpeg (apt install ffmpeg): {error}"));
    assert!(status.success(), "{command:?}");
}

/// Frames of a framemd5 listing, without its head.
fn frames_of(listing: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(listing).unwrap_or_default();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}
