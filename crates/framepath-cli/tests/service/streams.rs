// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams through the service have the same frames as inline streams.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::process::Command;

use framepath_testkit::service::{ServiceProcess, lives};
use framepath_testkit::until;
use framepath_testkit::{CommandOutput, ffmpeg, finish, framepath, in_checkout, run, wait};

fn inline(clip: &str, options: &str) -> String {
    let clip = in_checkout(&format!("clips/{clip}"));
    let path = format!("file '{}' {options} ! framemd5 -", clip.display());
    run(&["run", "--quiet", "--ledger", "off", &path]).ended(0).stdout
}

/// Returns the names of all small clips and of one large clip.
fn clips() -> Vec<String> {
    let names = fs::read_dir(in_checkout("clips")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let media = |name: &String| {
        [".ivf", ".h264", ".hevc", ".mp4", ".mkv", ".webm"].iter().any(|ending| name.ends_with(ending))
    };
    let mut clips: Vec<String> =
        names.filter(|name| media(name) && (!name.contains("1080") || name == "vp9-1080p8.ivf")).collect();
    clips.sort();
    clips
}

fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn every_clip_has_the_same_frames_in_the_service_and_inline() {
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    let clips = clips();
    assert!(clips.len() >= 20, "{clips:?}");
    for clip in &clips {
        let ours = finish(service.client(clip, "! decode", "framemd5 -")).ended(0).stdout;
        assert_eq!(ours, inline(clip, "! decode"), "{clip}");
    }
    assert_eq!(service.quiet(), before);
    // Each path has a worker for the demuxer and a worker for the decoder.
    assert_eq!(service.snapshot().totals.granted, 2 * clips.len() as u64);
}

#[test]
fn standard_input_begins_at_its_offset_in_the_service() {
    let service = ServiceProcess::start(&[]);
    let clip = fs::read(in_checkout("clips/h264-180p8-high.h264")).unwrap();
    let mut twice = tempfile::tempfile().unwrap();
    twice.write_all(&[&clip[..], &clip[..]].concat()).unwrap();
    let socket = service.socket();
    let on = format!("host=service socket={}", socket.display());
    for options in ["", "loop=2", "start=200ms"] {
        twice.seek(SeekFrom::Start(clip.len() as u64)).unwrap();
        let path = format!("file - {options} {on} ! decode {on} ! framemd5 -");
        let mut command = framepath(&["run", "--quiet", &path]);
        command.stdin(twice.try_clone().unwrap());
        let ours = finish(command).ended(0).stdout;
        assert_eq!(ours, inline("h264-180p8-high.h264", &format!("{options} ! decode")), "{options}");
    }
}

#[test]
fn a_repetition_in_the_service_gives_the_same_frames() {
    let folder = tempfile::tempdir().unwrap();
    let film = folder.path().join("film.ts").display().to_string();
    let source = ["-f", "lavfi", "-i", "testsrc2=s=352x288:r=25", "-frames:v", "10"];
    ffmpeg(&[&source[..], &["-c:v", "mpeg2video", "-bf", "2", "-g", "5", &film]].concat());
    // The film begins inside its second picture.
    let bytes = fs::read(&film).unwrap();
    fs::write(&film, &bytes[bytes.len() * 3 / 20 / 188 * 188..]).unwrap();
    let service = ServiceProcess::start(&[]);
    let on = format!("host=service socket={}", service.socket().display());
    let frames = |options: &str| {
        let path = format!("file {film} {options} {on} ! decode {on} ! framemd5 -");
        let hash = |line: String| line.rsplit(',').next().unwrap_or_default().to_owned();
        run(&["run", "--quiet", &path]).ended(0).frames().into_iter().map(hash).collect::<Vec<_>>()
    };
    let once = frames("");
    assert!(once.len() >= 4, "{once:?}");
    assert_eq!(frames("loop=2"), [&once[..]; 2].concat());
}

#[test]
fn a_frame_stage_runs_in_the_service() {
    let service = ServiceProcess::start(&[]);
    let stage = "test frames=60 size=64x36 format=grey ! threshold level=90";
    let path = |host: &str| format!("{stage} {host} ! framemd5 -");
    let hosted = path(&format!("host=service socket={}", service.socket().display()));
    let ours = run(&["run", "--quiet", &hosted]).ended(0).stdout;
    assert_eq!(ours, run(&["run", "--quiet", &path("host=inline")]).ended(0).stdout);
}

#[test]
fn four_concurrent_clients_receive_their_own_frames() {
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    let clips = ["vp9-180p8.ivf", "av1-180p8.ivf", "h264-180p8-high.h264", "hevc-180p8.hevc"];
    let running = clips.map(|clip| service.client(clip, "loop=10 ! decode", "framemd5 -").spawn().unwrap());
    for (clip, client) in clips.iter().zip(running) {
        assert_eq!(wait(client, clip).ended(0).stdout, inline(clip, "loop=10 ! decode"), "{clip}");
    }
    assert_eq!(service.quiet(), before);
}

#[test]
fn a_killed_client_ends_only_its_own_worker() {
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    let endless = || service.client("vp9-180p8.ivf", "loop=inf ! decode", "null").spawn().unwrap();
    let (mut victim, mut other) = (endless(), endless());
    let (of_victim, of_other) = (service.stream_of(victim.id()), service.stream_of(other.id()));
    assert!(lives(of_victim.worker_pid) && lives(of_other.worker_pid));
    victim.kill().unwrap();
    victim.wait().unwrap();
    until("the victim's worker is gone", || !lives(of_victim.worker_pid));
    let seen = service.stream_of(other.id());
    assert_eq!((seen.worker_pid, seen.crashes), (of_other.worker_pid, 0));
    until("the other goes on", || service.stream_of(other.id()).figures.frames > seen.figures.frames + 100);
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(service.quiet(), before);
    assert!(!lives(of_other.worker_pid));
}

#[test]
fn a_killed_worker_is_replaced_without_lost_or_duplicated_frames() {
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    let options = "loop=60 ! decode";
    let client = service.client("vp9-180p8.ivf", options, "framemd5 -").spawn().unwrap();
    let mut killed = Vec::new();
    while killed.len() < 3 {
        let stream = service.stream_of(client.id());
        if stream.worker_pid != 0 && !killed.contains(&stream.worker_pid) {
            kill(stream.worker_pid);
            killed.push(stream.worker_pid);
        }
    }
    let ran: CommandOutput = wait(client, "the client").ended(0);
    assert_eq!(ran.stdout, inline("vp9-180p8.ivf", options));
    assert!(ran.stderr.contains("replaced a worker"), "{}", ran.stderr);
    assert_eq!(service.quiet(), before);
    let log = service.stderr();
    for pid in killed {
        let death = format!(": worker {pid} killed by signal 9 (SIGKILL)");
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(&death)).collect();
        assert!(matches!(lines[..], [line] if line.contains("stream ")), "{log}");
    }
    // The client does not count a worker that died before its stream was open.
    assert_eq!(service.snapshot().totals.crashes, 3);
}

#[test]
fn the_service_kills_a_hung_worker() {
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    let options = "! decode watchdog=300ms fault=hang@12";
    let ran = finish(service.client("h264-180p8-high.h264", options, "framemd5 -")).ended(0);
    assert_eq!(ran.stdout, inline("h264-180p8-high.h264", "! decode"));
    assert!(ran.stderr.contains("replaced a worker once"), "{}", ran.stderr);
    assert_eq!(service.quiet(), before);
}

#[test]
fn a_dead_spare_worker_is_replaced() {
    let service = ServiceProcess::start(&[]);
    let before = service.quiet();
    let spare = service.workers()[0];
    kill(spare);
    until("the spare is gone", || !lives(spare));
    let clip = "vp9-180p8.ivf";
    let ours = finish(service.client(clip, "! decode", "framemd5 -")).ended(0).stdout;
    assert_eq!(ours, inline(clip, "! decode"));
    assert_eq!(service.quiet(), before);
}

#[test]
fn the_error_without_a_service_names_the_remedy() {
    let clip = in_checkout("clips/vp9-180p8.ivf");
    let path = format!("file '{}' ! decode host=service socket=/nowhere/fp.sock ! null", clip.display());
    run(&["run", &path])
        .ended(1)
        .prints("no service at /nowhere/fp.sock")
        .prints("start one with `framepath serve`");
    run(&["top", "--once", "--socket", "/nowhere/fp.sock"]).ended(1).prints("no service at /nowhere/fp.sock");
    let path = "test ! plugin invert0r host=service ! null";
    run(&["run", path]).ended(2).prints("service");
}
