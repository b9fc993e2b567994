// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C ends a run and prints the results until then.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use framepath_os::process::children;

use framepath_testkit::{ffmpeg, framepath, wait};

const SIGINT: i32 = 2;

#[test]
fn an_endless_path_ends_with_its_summary() {
    let folder = tempfile::tempdir().unwrap();
    for path in ["test size=64x48 frames=0 rate=100", "test size=64x48 frames=0 rate=100 ! queue"] {
        let pictures = folder.path().join("pictures");
        let csv = folder.path().join("frames.csv");
        let path = format!("{path} ! pgm '{}'", pictures.display());
        let child = framepath(&["run", &path, "--csv", csv.to_str().unwrap()]).spawn().unwrap();
        // Frames on disk prove that the path runs.
        wait_for(&pictures.join("frame-000005.pgm"));
        children::signal(&child, SIGINT).unwrap();
        let ran = wait(child, "run").ended(130).shows("; interrupted");
        let frames: usize = ran.stdout.split(' ').next().unwrap().parse().unwrap();
        assert!(frames >= 5, "{ran:#?}");
        let written = fs::read_dir(&pictures).unwrap().count();
        assert_eq!(written, frames, "every frame that was made was delivered");
        assert!(fs::read_to_string(&csv).unwrap().lines().count() > frames);
        fs::remove_dir_all(&pictures).unwrap();
    }
}

#[test]
fn a_demuxer_that_searches_a_huge_file_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("film.mkv");
    ffmpeg(&[
        "-f",
        "lavfi",
        "-i",
        "testsrc2=s=64x48",
        "-frames:v",
        "200",
        "-c:v",
        "libx264",
        path.to_str().unwrap(),
    ]);
    // A hole behind the first bytes, in which the demuxer looks for the next part of the file.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(600).unwrap();
    file.set_len(200 << 30).unwrap();
    let mut child = framepath(&["run", &format!("file {} ! decode ! null", path.display())]).spawn().unwrap();
    let reads = || {
        let text = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap();
        text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse::<u64>().unwrap()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while reads() < 64 << 20 {
        assert!(Instant::now() < deadline, "it does not search");
        thread::sleep(Duration::from_millis(5));
    }
    children::signal(&child, SIGINT).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it goes on after SIGINT");
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(130));
}

#[test]
fn an_interrupted_comparison_ends() {
    let folder = tempfile::tempdir().unwrap();
    let pictures = folder.path().join("pictures");
    let endless = format!("test size=64x48 frames=0 rate=100 ! pgm '{}'", pictures.display());
    let child = framepath(&["compare", &endless, &endless]).process_group(0).spawn().unwrap();
    wait_for(&pictures.join("frame-000005.pgm"));
    // The whole process group gets the signal, as from a terminal.
    let group = format!("kill -s INT -- -{}", child.id());
    assert!(Command::new("sh").args(["-c", &group]).status().unwrap().success());
    wait(child, "compare").ended(130);
}

fn wait_for(file: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !file.exists() {
        assert!(Instant::now() < deadline, "no {}", file.display());
        thread::sleep(Duration::from_millis(5));
    }
}
