// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU time and deaths of workers.

use framepath_lab::process::Program;
use serde_json::Value;

use framepath_testkit::{in_checkout, run};

/// Number of frames of the path.
const FRAMES: u64 = 50;
/// CPU time that each frame takes in the worker, nanoseconds.
const BURN_NS: u64 = 2_000_000;

#[test]
fn resources_of_workers_are_charged_to_the_path() {
    let path =
        format!("test bytes=64 frames={FRAMES} ! burn time={}ms host=process ! null", BURN_NS / 1_000_000);
    let program = Program::new(env!("CARGO_BIN_EXE_framepath"), ["run", "--count", "--quiet", &path]);
    let finished = program.run(true).unwrap();
    assert_eq!(finished.stdout.trim(), FRAMES.to_string());
    // The stage measures its burn by its own CPU clock. A lower figure would mean that the worker's
    // time is not counted.
    assert!(finished.usage.cpu_ns >= FRAMES * BURN_NS, "{:?}", finished.usage);
}

/// Runs `framepath lab faults` with these arguments. Returns the rows of its summary.
fn faults(words: &[&str]) -> Vec<Value> {
    let clips = in_checkout("clips");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let fixed =
        ["lab", "faults", "--json", "-", "--clips", clips.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let ran = run(&[&fixed, words].concat()).ended(0);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    found["rows"].as_array().unwrap().clone()
}

#[test]
fn a_frame_that_kills_every_worker_is_counted_as_a_frame() {
    let source = "test size=64x48 frames=20";
    for stage in ["threshold level=100", "convert format=rgba", "scale size=32x24"] {
        let frames = |fault: &str| format!("{source} ! {stage} host=process {fault} ! framemd5 -");
        let mut wanted = run(&["run", &frames("")]).ended(0).frames();
        let ran = run(&["run", &frames("fault=poison@7")]).ended(3);
        wanted.remove(7);
        assert_eq!(ran.frames(), wanted);
        let ran = ran.prints("skipped 1 frame, the first is frame 7: it kills every worker (");
        let ran = ran.prints("frame 7 kills every worker: 1 frame was skipped");
        assert!(!ran.stderr.contains("packet") && !ran.stderr.contains("keyframe"), "{ran:?}");
    }
}

#[test]
fn a_worker_without_memory_for_its_input_names_the_limit() {
    // The pool of `convert` is larger than the address space of the worker behind it.
    let path =
        "test frames=5 size=3840x2160 ! convert format=rgba ! filter hflip host=process memory=256MiB ! null";
    let ran = run(&["run", path]).ended(1).prints("in the worker: map the input frames: ");
    let ran = ran.prints(" bytes: Cannot allocate memory (os error 12); raise memory=");
    assert!(!ran.stderr.contains("replaced a worker"), "{ran:?}");
}

#[test]
fn killed_workers_lose_no_frame() {
    let rows = faults(&["--pairs", "6", "--case", "kill-paced", "--case", "kill-flat-out"]);
    // On a busy machine, a stream can end before its kill.
    for case in ["kill-paced", "kill-flat-out"] {
        let kills = rows.iter().find(|row| row["case"] == case && row["contender"] == "process");
        let kills = kills.and_then(|row| row["kills"].as_f64());
        assert!(kills.is_some_and(|kills| (1.0..=3.0).contains(&kills)), "{case}: {rows:?}");
    }
    for key in
        ["lost", "duplicated", "out_of_order", "wrong", "left_processes", "left_fds", "left_shared_memory"]
    {
        assert!(rows.iter().all(|row| row[key] == 0.0), "{key}: {rows:?}");
    }
}

#[test]
fn killed_clients_leave_no_worker() {
    let rows = faults(&["--case", "client"]);
    assert_eq!((rows[0]["kills"].as_f64(), rows[0]["left_processes"].as_f64()), (Some(8.0), Some(0.0)));
    assert!(rows[0]["workers"].as_f64() >= Some(8.0), "{rows:?}");
}
