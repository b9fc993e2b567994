// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demuxers in workers, and files that attack them.

mod deaths;
mod memory;
mod mutated;
mod playlists;
mod seccomp;
mod track;

use std::path::Path;

/// Creates a file with the ffmpeg tool.
fn ffmpeg(arguments: &[&str]) {
    framepath_testkit::ffmpeg(arguments);
}

/// Returns the lines of a framemd5 listing, one per frame, without its head; none if the file is
/// missing.
fn frames_of(listing: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(listing).unwrap_or_default();
    framepath_testkit::md5_lines(&text)
}
