// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath trace`: the command is not changed, its threads are seen, and the kernel counts the same CPU time.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use framepath_testkit::{finish, framepath, in_checkout, run, until};
use serde_json::Value;

/// Path that needs about half a second of CPU time in several threads.
fn decode() -> String {
    format!("file {} ! decode threads=3 ! null", in_checkout("clips/hard-h264-1080p8.h264").display())
}

fn program() -> String {
    framepath(&[]).get_program().to_str().unwrap().to_owned()
}

#[test]
fn the_output_and_the_exit_code_are_those_of_the_command() {
    let ran = run(&["trace", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]).ended(7);
    assert_eq!(ran.stdout, "out\n");
    ran.prints("err\n").prints("sh, level ").prints("thread ");
    let killed = run(&["trace", "--quiet", "--", "sh", "-c", "kill -SEGV $$"]).ended_by(11);
    assert_eq!((killed.stdout.as_str(), killed.stderr.as_str()), ("", ""));
}

#[test]
fn the_threads_of_all_processes_are_recorded_with_the_kernels_cpu_time() {
    let script = format!("'{0}' run --quiet '{1}'; '{0}' run --quiet '{1}'", program(), decode());
    let ran = run(&["trace", "--level", "threads", "--json", "-", "--", "sh", "-c", &script]).ended(0);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    let report = &summary["trace"];
    assert_eq!((&report["level"], &report["lost_events"]), (&"threads".into(), &0.into()));
    let threads = report["threads"].as_array().unwrap();
    let of = |key: &'static str| threads.iter().map(move |row| row[key].as_u64().unwrap());
    assert_eq!(of("gaps").sum::<u64>(), 0, "{threads:?}");
    let mut processes: Vec<u64> = of("process").collect();
    processes.sort_unstable();
    processes.dedup();
    assert_eq!(processes.len(), 3, "the shell and two commands");
    // Each command has its main thread and three of the decoder.
    assert!(threads.len() > 2 * 4 && threads.iter().any(|row| row["name"] == "framepath"), "{threads:?}");
    assert!(threads.iter().all(|row| row["has_ended"] == true));
    // Two counts of the same time, so that load does not matter.
    let (running, kernel) =
        (of("running_ns").sum::<u64>() as f64, report["usage"]["cpu_ns"].as_f64().unwrap());
    assert!((running / kernel - 1.0).abs() < 0.05, "{running} and {kernel}");
}

#[test]
fn a_running_process_goes_on_after_the_recording() {
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let ran = run(&["trace", "-p", &pid, "--seconds", "1"]).ended(0);
    assert!(ran.stdout.starts_with(&format!("process {pid} (sleep), level ")), "{}", ran.stdout);
    assert_eq!(sleeper.try_wait().unwrap(), None);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    run(&["trace", "-p", &pid]).ended(1).prints(&format!("there is no process {pid}"));
}

#[test]
fn a_command_that_does_not_end_is_ended_with_the_recording() {
    run(&["trace", "--seconds", "1", "--", "sleep", "600"]).ended_by(15).prints("sleep ");
}

#[test]
fn wrong_arguments_and_programs_are_errors() {
    run(&["trace"]).ended(2).prints("what to trace");
    run(&["trace", "-p", "1", "--", "true"]).ended(2).prints("exclude each other");
    run(&["trace", "--", "/nonexistent/program"]).ended(1).prints("cannot start /nonexistent/program");
}

#[test]
fn an_output_can_be_a_fifo_or_an_open_pipe_and_one_without_a_reader_is_an_error_before_the_command_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (fifo, ran) = (path("fifo"), path("ran"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let trace = |output: &str| run(&["trace", "--quiet", "--json", output, "--", "touch", &ran]);
    trace(&fifo).ended(1).prints("no program has opened this FIFO for reading");
    assert!(!Path::new(&ran).exists());
    let reader = Command::new("cat").arg(&fifo).stdout(Stdio::piped()).spawn().unwrap();
    trace(&fifo).ended(0);
    let read = reader.wait_with_output().unwrap().stdout;
    for text in [&read[..], trace("/dev/fd/1").ended(0).stdout.as_bytes()] {
        let summary: Value = serde_json::from_slice(text).unwrap();
        assert_eq!(summary["trace"]["program"], "touch");
    }
}

#[test]
fn each_output_is_written_whatever_becomes_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (page, json) = (file("page"), file("json"));
    let trace = |more: &[&str], script: &str| {
        let arguments = [&["trace", "--quiet", "--json", json.to_str().unwrap()], more];
        let ran = run(&[&arguments.concat()[..], &["--", "sh", "-c", script]].concat());
        let summary: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(summary["trace"]["program"], "sh");
        std::fs::remove_file(&json).unwrap();
        ran
    };
    // A program without frames has no page.
    for code in [0, 5] {
        let ran = trace(&["--report", page.to_str().unwrap()], &format!("exit {code}")).ended(code);
        ran.prints("framepath: trace: --report: nothing to report: ");
        assert!(!page.exists());
    }
    // The command's own failure is the exit code.
    let full = ["--csv", "/dev/full", "--perfetto", "/dev/full"];
    for (script, code) in [("true", 1), ("exit 5", 5)] {
        let ran = trace(&full, script).ended(code);
        assert_eq!(ran.stderr.matches("writing `/dev/full`").count(), 2, "{}", ran.stderr);
    }
    let killed = trace(&full, "kill -KILL $$").ended_by(9);
    assert_eq!(killed.stderr.matches("writing `/dev/full`").count(), 2, "{}", killed.stderr);
}

#[test]
fn the_version_of_ffmpeg_comes_only_from_a_program_that_no_other_user_can_replace() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let tool = path("ffmpeg");
    std::fs::write(
        &tool,
        format!("#!/bin/sh\n: > '{}'\necho ffmpeg version 4711 x\n", path("ran").display()),
    )
    .unwrap();
    let mode = |file: &Path, mode| std::fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
    mode(&tool, 0o755);
    let system = std::env::var("PATH").unwrap();
    let version = |folder: &str| {
        let mut trace = framepath(&["trace", "--quiet", "--json", "-", "--", "true"]);
        trace.current_dir(path("")).env("PATH", format!("{folder}:{system}"));
        let ran = finish(trace).ended(0);
        let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
        (summary["machine"]["versions"]["ffmpeg"] == "4711", std::fs::remove_file(path("ran")).is_ok())
    };
    let absolute = path("");
    // A child of another test may still have the file open to write it, and then it cannot be executed.
    until("the tool is asked", || version(absolute.to_str().unwrap()) == (true, true));
    assert_eq!(version("."), (false, false));
    assert_eq!(version(""), (false, false));
    mode(&absolute, 0o777);
    assert_eq!(version(absolute.to_str().unwrap()), (false, false));
}
