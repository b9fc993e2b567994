// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that flag packets as random access points which are none.

use std::fs;
use std::path::Path;
use std::process::Command;

use framepath_testkit::{in_checkout, run};

fn ffmpeg(arguments: &[&str]) {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-y"]).args(arguments);
    let status = command.status().unwrap_or_else(|error| panic!("ffmpeg (apt install ffmpeg): {error}"));
    assert!(status.success(), "{command:?}");
}

/// Lines of `framemd5`, and the exit code.
fn decoded(file: &Path, options: &str) -> (Vec<String>, Option<i32>) {
    let hashes = file.with_extension("framemd5");
    let path = format!("file '{}' ! decode {options} ! framemd5 '{}'", file.display(), hashes.display());
    let code = run(&["run", &path]).code;
    let text = fs::read_to_string(&hashes).unwrap();
    (text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect(), code)
}

/// A copy in MP4 whose packets are all said to be random access points: without the box
/// that lists them.
fn all_flagged(clip: &str, folder: &Path) -> std::path::PathBuf {
    let file = folder.join("flagged.mp4");
    let clip = in_checkout(clip);
    ffmpeg(&["-i", clip.to_str().unwrap(), "-c", "copy", file.to_str().unwrap()]);
    let mut bytes = fs::read(&file).unwrap();
    let boxes: Vec<usize> = (0..bytes.len() - 4).filter(|at| &bytes[*at..at + 4] == b"stss").collect();
    assert_eq!(boxes.len(), 1);
    bytes[boxes[0]..boxes[0] + 4].copy_from_slice(b"free");
    fs::write(&file, bytes).unwrap();
    file
}

/// A copy with a recovery point SEI in each access unit, of 0 frames: "all is right from
/// here on".
fn all_recovery_points(clip: &str, folder: &Path) -> std::path::PathBuf {
    let bytes = fs::read(in_checkout(clip)).unwrap();
    let mut changed = Vec::new();
    for at in 0..bytes.len() {
        // A slice that begins a picture: `first_mb_in_slice` is 0.
        let is_first = bytes[at..].starts_with(&[0, 0, 1])
            && bytes
                .get(at + 3..at + 5)
                .is_some_and(|head| matches!(head[0] & 0x1f, 1 | 5) && head[1] >= 0x80);
        if is_first {
            changed.extend([0, 0, 1, 6, 6, 1, 0xc4, 0x80, 0]);
        }
        changed.push(bytes[at]);
    }
    assert!(changed.len() >= bytes.len() + 30 * 9);
    let file = folder.join("recovery.h264");
    fs::write(&file, changed).unwrap();
    file
}

#[test]
fn false_flags_cost_no_frame() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        all_flagged("clips/hevc-180p8-container.mkv", folder.path()),
        all_recovery_points("clips/h264-180p8-high.h264", folder.path()),
    ];
    for file in files {
        let inline = decoded(&file, "threads=1");
        assert_eq!((inline.0.len(), inline.1), (30, Some(0)), "{}", file.display());
        for options in ["host=process", "host=process threads=1", "host=process threads=1 fault=crash@20"] {
            assert_eq!(decoded(&file, options), inline, "{} {options}", file.display());
        }
    }
}

#[test]
fn a_gradual_refresh_is_replayed_whole_and_resumed_at_when_it_must() {
    let folder = tempfile::tempdir().unwrap();
    for reordered in ["0", "2"] {
        let file = folder.path().join("gradual.mkv");
        let x264 = format!("intra-refresh=1:keyint=20:bframes={reordered}:threads=1");
        ffmpeg(&[
            "-f",
            "lavfi",
            "-i",
            "testsrc2=s=160x96:r=25:d=4",
            "-pix_fmt",
            "yuv420p",
            "-c:v",
            "libx264",
            "-x264-params",
            &x264,
            file.to_str().unwrap(),
        ]);
        let inline = decoded(&file, "threads=1");
        assert_eq!((inline.0.len(), inline.1), (100, Some(0)));
        for options in ["host=process", "host=process fault=crash@50", "host=process fault=crash@35,crash@70"]
        {
            assert_eq!(decoded(&file, options), inline, "{reordered} {options}");
        }
        // What is lost is counted, what is delivered is right, and the stream goes on.
        let (frames, code) = decoded(&file, "host=process fault=poison@30");
        assert_eq!(code, Some(3));
        let wrong: Vec<_> = frames.iter().filter(|frame| !inline.0.contains(frame)).collect();
        assert!(wrong.is_empty(), "{reordered}: {wrong:?} of {}", frames.len());
        assert!((50..90).contains(&frames.len()) && frames.last() == inline.0.last(), "{}", frames.len());
    }
}
