// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running programs, the end of a trace, and programs that have no frames.

use std::fs;
use std::process::{Child, Command, Stdio};

use framepath_os::process::children;
use framepath_testkit::harness::Tested;
use framepath_testkit::{clip, ffmpeg, framepath, md5_lines, run, until};
use serde_json::Value;
use tempfile::TempDir;

use crate::needs_bpf;

/// Decodes a clip in real time, five times: in 5 s.
fn player(output: &str) -> Command {
    let file = clip("h264-180p8-container.mp4");
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-y", "-re", "-stream_loop", "4", "-i", &file, "-f", "framemd5", output]);
    command.stdin(Stdio::null());
    command
}

fn wanted() -> Vec<String> {
    let file = clip("h264-180p8-container.mp4");
    let output = ffmpeg(&["-stream_loop", "4", "-i", &file, "-f", "framemd5", "-"]);
    md5_lines(&String::from_utf8(output).unwrap())
}

/// Starts a player that has opened its file. Returns the folder and path of its output, and the player.
fn playing() -> (TempDir, String, Child) {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("md5").to_str().unwrap().to_owned();
    let child = player(&output).spawn().unwrap();
    until("the file is opened", || fs::exists(&output).unwrap());
    (folder, output, child)
}

/// Waits for the child, and checks that it has written all frames.
fn ends_well(mut child: Child, output: &str) {
    assert!(child.wait().unwrap().success());
    assert_eq!(md5_lines(&fs::read_to_string(output).unwrap()), wanted());
}

pub(crate) fn a_running_program_is_traced_and_goes_on() -> Tested {
    needs_bpf()?;
    let (_folder, output, child) = playing();
    let pid = child.id().to_string();
    let ran =
        run(&["trace", "-p", &pid, "--level", "bpf", "--seconds", "1", "--quiet", "--json", "-"]).ended(0);
    let figures: Value = serde_json::from_str(&ran.stdout).unwrap();
    // A second of 30 frames a second; the machine may be slow.
    let row = &figures["rows"][0];
    assert!(row["frames"].as_u64().unwrap() > 5, "{figures}");
    assert_eq!(row["hops"][1]["hop"], "decode h264", "{figures}");
    ends_well(child, &output);
    Ok(())
}

pub(crate) fn the_last_seconds_of_a_running_program_are_shown() -> Tested {
    needs_bpf()?;
    let (_folder, output, child) = playing();
    let pid = child.id().to_string();
    let ran = run(&["top", "-p", &pid, "--once", "--over", "2"]).ended(0);
    let ran = ran.shows("(ffmpeg), level bpf: the last 2.").shows(" frames/s; latency (demux to mux) p50 ");
    let ran = ran.shows("\ndecode h264  ").shows("\nmux framemd5  ").shows("\nthread  ");
    assert!(!ran.stdout.contains("note: "), "{}", ran.stdout);
    ends_well(child, &output);
    // It has ended.
    run(&["top", "-p", &pid, "--once"]).ended(1).prints(&format!("there is no process {pid}"));
    Ok(())
}

pub(crate) fn the_last_seconds_are_a_line_of_json_for_each_update() -> Tested {
    needs_bpf()?;
    let (_folder, output, child) = playing();
    let pid = child.id().to_string();
    let figures = |line: &str| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let once = run(&["top", "-p", &pid, "--json-lines", "--once", "--over", "1"]).ended(0);
    assert_eq!(once.stdout.matches('\n').count(), 1, "{}", once.stdout);
    let once = figures(&once.stdout);
    assert_eq!((&once["experiment"], &once["trace"]["level"]), (&"trace".into(), &"bpf".into()), "{once}");
    // Until the process ends. Each line is a whole object.
    let ran = run(&["top", "-p", &pid, "--json-lines", "--over", "2"]).ended(0);
    assert_eq!(ran.stderr, "");
    let lines: Vec<Value> = ran.stdout.lines().map(figures).collect();
    assert!(lines.len() >= 2, "{}", ran.stdout);
    let program = format!("process {pid} (ffmpeg)");
    assert!(lines.iter().all(|line| line["trace"]["program"] == program), "{}", ran.stdout);
    let has_decoder = |line: &Value| line["rows"][0]["hops"][1]["hop"] == "decode h264";
    assert!(lines.iter().any(has_decoder), "{}", ran.stdout);
    ends_well(child, &output);
    run(&["top", "-p", &pid, "--json-lines"]).ended(1).prints(&format!("there is no process {pid}"));
    Ok(())
}

pub(crate) fn a_killed_trace_leaves_the_program_alone() -> Tested {
    needs_bpf()?;
    let (folder, output, child) = playing();
    let json = folder.path().join("json");
    let pid = child.id().to_string();
    let mut tracer = framepath(&["trace", "-p", &pid, "--level", "bpf", "--json", json.to_str().unwrap()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let has_probes =
        || fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default().contains("[uprobes]");
    until("the first probe is hit", has_probes);
    tracer.kill().unwrap();
    tracer.wait().unwrap();
    assert!(!json.exists());
    ends_well(child, &output);
    Ok(())
}

pub(crate) fn no_process_stays_stopped_behind_a_trace() -> Tested {
    needs_bpf()?;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("count");
    // Each child executes a program; the shell waits for it.
    let script = format!("n=0; while :; do /bin/true; n=$((n+1)); echo $n >'{}'; done", file.display());
    // It ends with this thread if the test fails.
    let mut shell = children::on_a_lead(Command::new("sh").args(["-c", &script])).spawn().unwrap();
    until("the shell counts", || file.exists());
    let pid = shell.id().to_string();
    for _ in 0..3 {
        run(&["trace", "-p", &pid, "--level", "bpf", "--seconds", "1", "--quiet"]).ended(0);
        let before = fs::read_to_string(&file).unwrap();
        until("the shell goes on", || fs::read_to_string(&file).unwrap() != before);
    }
    shell.kill().unwrap();
    shell.wait().unwrap();
    Ok(())
}

pub(crate) fn programs_without_frames_say_so() -> Tested {
    needs_bpf()?;
    for command in [&["true"][..], &["sh", "-c", "exit 0"], &["busybox", "true"]] {
        let ran = run(&[&["trace", "--level", "bpf", "--"], command].concat()).ended(0);
        ran.prints("note: no frame was seen: the program uses neither");
    }
    for (script, how) in
        [("exit 3", "ended with status 3"), ("kill -9 $$", "was ended by signal 9 (SIGKILL)")]
    {
        let ran = run(&["trace", "--level", "bpf", "--", "sh", "-c", script]);
        ran.prints(&format!("note: no frame was seen: the program {how} before its first frame"));
    }
    // The packets are copied, and no frame is decoded.
    let file = clip("h264-180p8-container.mp4");
    let copy = ["ffmpeg", "-v", "error", "-i", &file, "-c", "copy", "-f", "null", "-"];
    let ran = run(&[&["trace", "--level", "bpf", "--"], &copy[..]].concat()).ended(0);
    ran.prints(
        "note: no frame was seen: 30 packets were read, none was given to a decoder, 30 were written; ",
    );
    // Two traces of one program do not disturb it. The outer one has its probes in what the inner one starts when that has
    // mapped its libraries, so the first calls may be missing there.
    let inner = ["trace", "--level", "bpf", "--", "ffmpeg", "-v", "error", "-i", &file, "-f", "null", "-"];
    let program = framepath_testkit::program().to_str().unwrap().to_owned();
    let ran = run(&[&["trace", "--level", "bpf", "--", program.as_str()], &inner[..]].concat()).ended(0);
    let seen: Vec<u64> = (ran.stderr.lines())
        .filter(|line| line.contains(" frames; latency (demux to mux)"))
        .map(|line| line.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(seen.contains(&30) && seen.iter().all(|frames| *frames <= 30), "{}", ran.stderr);
    Ok(())
}
