// SPDX-License-Identifier: MIT OR Apache-2.0
//! No demuxer, parser or decoder function runs outside a seccomp filter if a
//! path uses workers. A preloaded library checks this in every process.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use framepath_os::process::children;

use crate::ffmpeg;
use framepath_testkit::{CommandOutput, finish, framepath, in_checkout};

/// One file name per container, with the ffmpeg tool's options to make the file.
const CONTAINERS: [(&str, &str); 21] = [
    ("a.mp4", "-c:v libx264 -bf 2"),
    ("b.mov", "-c:v libx264"),
    ("c.m4v", "-c:v libx264"),
    ("d.3gp", "-c:v libx264"),
    ("e.3g2", "-c:v libx264"),
    ("f.f4v", "-c:v libx264"),
    ("g.ismv", "-c:v libx264"),
    ("h.mkv", "-c:v libx265 -x265-params log-level=none"),
    ("i.webm", "-c:v libvpx-vp9 -deadline realtime"),
    ("j.avi", "-c:v libx264"),
    ("k.ts", "-c:v libx264 -bf 2"),
    ("l.m2ts", "-c:v libx265 -x265-params log-level=none"),
    ("m.flv", "-c:v libx264"),
    ("n.ivf", "-c:v libvpx"),
    ("o.obu", "-c:v libsvtav1 -preset 12"),
    ("p.h264", "-c:v libx264"),
    ("q.hevc", "-c:v libx265 -x265-params log-level=none"),
    ("r.nut", "-c:v libx264"),
    ("s.mxf", "-c:v libx264"),
    ("t.ogg", "-c:v libvpx"),
    ("u.asf", "-c:v libx264"),
];

/// A folder with the shim (a preloaded library that logs calls of codec functions), a worker program
/// that preloads it, and the test's files.
struct Stage {
    folder: tempfile::TempDir,
    shim: PathBuf,
    worker: PathBuf,
}

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let (shim, worker) = (folder.path().join("shim.so"), folder.path().join("worker"));
        let source = in_checkout("crates/framepath-cli/tests/demuxer/shim.c");
        let gcc = Command::new("gcc")
            .args(["-shared", "-fPIC", "-O1", "-fno-builtin", "-o"])
            .args([&shim, &source])
            .arg("-ldl")
            .status();
        assert!(gcc.expect("gcc").success());
        let program = env!("CARGO_BIN_EXE_framepath");
        // Workers have a clean environment, so this script sets the shim's variable for them.
        let script = format!("#!/bin/sh\nLD_PRELOAD={} exec {program} \"$@\"\n", shim.display());
        fs::write(&worker, script).unwrap();
        fs::set_permissions(&worker, fs::Permissions::from_mode(0o755)).unwrap();
        Stage { folder, shim, worker }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = framepath(arguments);
        command.env("LD_PRELOAD", &self.shim);
        command.env("FRAMEPATH_WORKER", &self.worker).env("FRAMEPATH_WORKER_STDERR", "1");
        command
    }

    /// Returns the clips of the checkout, and one file of each container.
    fn files(&self) -> Vec<PathBuf> {
        let clips = fs::read_dir(in_checkout("clips")).unwrap().map(|entry| entry.unwrap().path());
        let is_clip = |file: &PathBuf| {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            !name.starts_with("make") && !name.starts_with("README")
        };
        let mut files: Vec<PathBuf> = clips.filter(is_clip).collect();
        assert!(files.len() > 25);
        for (name, encoder) in CONTAINERS {
            let file = self.folder.path().join(name);
            let source = "testsrc2=size=160x96:rate=25:duration=1,format=yuv420p";
            let mut arguments = vec!["-f", "lavfi", "-i", source];
            arguments.extend(encoder.split(' '));
            let word = file.to_str().unwrap().to_owned();
            arguments.push(&word);
            ffmpeg(&arguments);
            files.push(file);
        }
        files
    }
}

/// Returns the value of `--frames`: few frames for large files, all frames for others.
fn frames_of(file: &Path) -> &'static str {
    if file.to_string_lossy().contains("1080p") { "20" } else { "1000000" }
}

/// Returns the codec functions that the shim logged inside a seccomp filter, and those outside.
fn calls(stderr: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let of = |place: &str| {
        let prefix = format!("shim: {place} ");
        stderr.lines().filter_map(|line| line.strip_prefix(prefix.as_str())).collect()
    };
    (of("inside"), of("outside"))
}

#[track_caller]
fn assert_all_inside(file: &Path, ran: CommandOutput) {
    let ran = ran.ended(0);
    let (inside, outside) = calls(&ran.stderr);
    assert!(outside.is_empty(), "{}: {outside:?}", file.display());
    let decodes = inside.contains("avcodec_send_packet") || inside.contains("dav1d_send_data");
    assert!(inside.contains("av_read_frame") && decodes, "{}: {inside:?}", file.display());
}

#[test]
fn workers_run_all_codec_functions_inside_the_filter() {
    let stage = Stage::new();
    for file in stage.files() {
        let path = format!("file {} ! decode host=process ! null", file.display());
        assert_all_inside(&file, finish(stage.command(&["run", "--frames", frames_of(&file), &path])));
    }
}

#[test]
fn inline_stages_run_codec_functions_outside_the_filter() {
    let stage = Stage::new();
    let file = in_checkout("clips/h264-180p8-container.mp4");
    let path = format!("file {} ! decode ! null", file.display());
    let ran = finish(stage.command(&["run", &path])).ended(0);
    let (inside, outside) = calls(&ran.stderr);
    assert!(inside.is_empty(), "{inside:?}");
    for function in
        ["avformat_open_input", "avformat_find_stream_info", "av_read_frame", "avcodec_send_packet"]
    {
        assert!(outside.contains(function), "{function} is not in {outside:?}");
    }
}

#[test]
fn a_service_runs_all_codec_functions_inside_the_filter() {
    let stage = Stage::new();
    let (socket, log) = (stage.folder.path().join("socket"), stage.folder.path().join("log"));
    let mut serve = stage.command(&["serve", "--socket", socket.to_str().unwrap()]);
    serve.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let mut service = serve.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !socket.exists() {
        assert!(Instant::now() < deadline, "no service: {}", fs::read_to_string(&log).unwrap());
        sleep(Duration::from_millis(5));
    }
    for file in stage.files() {
        let frames = frames_of(&file);
        let (file, socket) = (file.display(), socket.display());
        let path = format!("file {file} ! decode host=service socket={socket} ! null");
        let ran = finish(stage.command(&["run", "--frames", frames, &path])).ended(0);
        let (inside, outside) = calls(&ran.stderr);
        assert!(inside.is_empty() && outside.is_empty(), "{file}: {inside:?} {outside:?}");
    }
    children::signal(&service, 15).unwrap();
    service.wait().unwrap();
    let log = fs::read_to_string(&log).unwrap();
    let (inside, outside) = calls(&log);
    assert!(outside.is_empty(), "{outside:?}");
    for function in ["avformat_find_stream_info", "av_read_frame", "avcodec_send_packet", "dav1d_send_data"] {
        assert!(inside.contains(function), "{function} is not in {inside:?}");
    }
}
