// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares framepath's decoded frames with ffmpeg's, frame by frame;
//! `framemd5` writes them in the same lines.

use std::fs;

use framepath::Level;
use framepath_testkit::pipeline::{at, run};
use framepath_testkit::{clip, clips, ffmpeg, md5_lines};

fn clip_names() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(clips())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".md") && !name.ends_with(".sh"))
        .collect();
    names.sort_unstable();
    assert!(names.len() > 25, "{names:?}");
    names
}

fn ours(name: &str, options: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("frames.md5");
    let text = format!("file {} ! decode {options} ! framemd5 {}", clip(name), file.display());
    let report = run(&text, &at(Level::Off));
    let written = fs::read_to_string(&file).unwrap();
    assert_eq!(md5_lines(&written).len() as u64, report.frames, "{text}");
    written
}

fn theirs(name: &str, options: &[&str]) -> String {
    let file = clip(name);
    let mut words = vec!["-i", &file, "-fps_mode", "passthrough", "-noautoscale"];
    words.extend(options);
    words.extend(["-f", "framemd5", "-"]);
    String::from_utf8(ffmpeg(&words)).expect("framemd5 is text")
}

/// Returns all lines except the one that names the program.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with("#software:")).collect()
}

#[track_caller]
fn assert_same(what: &str, ours: &str, theirs: &str) {
    let (ours, theirs) = (lines(ours), lines(theirs));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{what}");
    }
    assert_eq!(ours.len(), theirs.len(), "{what}");
}

fn assert_all_same(names: impl Fn(&str) -> bool) {
    for name in clip_names().iter().filter(|name| names(name)) {
        let theirs = theirs(name, &[]);
        for threads in ["1", "auto"] {
            let ours = ours(name, &format!("threads={threads}"));
            assert_same(&format!("{name}, threads={threads}"), &ours, &theirs);
        }
    }
}

#[test]
fn small_clips_equal_ffmpeg() {
    assert_all_same(|name| !name.contains("1080p"));
}

#[test]
fn main_set_equals_ffmpeg() {
    assert_all_same(|name| name.contains("1080p") && !name.starts_with("hard-"));
}

#[test]
fn hard_set_equals_ffmpeg() {
    assert_all_same(|name| name.starts_with("hard-"));
}

/// Compares the frames with ffmpeg's behind queues and copies, and with the clip played three times.
#[test]
fn links_and_loops_change_nothing() {
    for name in ["h264-180p8-high.h264", "vp9-180p8.ivf", "av1-180p8-grain.ivf"] {
        let theirs = theirs(name, &[]);
        let over_queues = ours(name, "! queue depth=1 ! encode raw copy=1 ! queue depth=3");
        assert_same(name, &over_queues, &theirs);

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("frames.md5");
        let text = format!("file {} loop=3 ! decode ! framemd5 {}", clip(name), file.display());
        run(&text, &at(Level::Off));
        let hashes = |text: &str| -> Vec<String> {
            md5_lines(text).iter().map(|l| l.rsplit(' ').next().unwrap().to_owned()).collect()
        };
        let (once, thrice) = (hashes(&theirs), hashes(&fs::read_to_string(&file).unwrap()));
        assert_eq!(thrice, [once.clone(), once.clone(), once].concat(), "{name}");
    }
}

#[test]
fn converted_frames_equal_ffmpeg() {
    let mut compared = 0;
    for name in clip_names() {
        // The resized clips are included: each frame in its own size.
        let small = !name.contains("1080p");
        let grey = name.contains("grey");
        if !small || grey {
            continue;
        }
        let (format, pix_fmt) = if name.contains("p10") { ("p010", "p010le") } else { ("nv12", "nv12") };
        let theirs = theirs(&name, &["-pix_fmt", pix_fmt]);
        for threads in ["1", "auto"] {
            let ours = ours(&name, &format!("format={format} threads={threads}"));
            assert_same(&format!("{name} as {format}, threads={threads}"), &ours, &theirs);
        }
        compared += 1;
    }
    assert!(compared >= 18, "{compared} clips");
}
