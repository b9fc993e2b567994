// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stages in workers, seen from outside.

use framepath_lab::process::Program;
use serde_json::Value;

use crate::harness::run;

/// Frames of the path, and what each burns in the worker.
const FRAMES: u64 = 50;
const BURN_NS: u64 = 2_000_000;

#[test]
fn what_workers_use_is_charged_to_who_started_the_path() {
    let path =
        format!("test bytes=64 frames={FRAMES} ! burn time={}ms host=process ! null", BURN_NS / 1_000_000);
    let program = Program::new(env!("CARGO_BIN_EXE_framepath"), ["run", "--count", "--quiet", &path]);
    let finished = program.run(true).unwrap();
    assert_eq!(finished.stdout.trim(), FRAMES.to_string());
    // The stage burns by its own CPU clock: less would mean that nobody counted.
    assert!(finished.usage.cpu_ns >= FRAMES * BURN_NS, "{:?}", finished.usage);
}

#[test]
fn no_frame_is_lost_to_killed_workers() {
    let ran = run(&[
        "lab",
        "faults",
        "--pairs",
        "6",
        "--case",
        "kill-paced",
        "--case",
        "kill-flat-out",
        "--json",
        "-",
    ]);
    let found: Value = serde_json::from_str(&ran.ended(0).stdout).unwrap();
    let rows = found["rows"].as_array().unwrap();
    let of = |key: &str| rows.iter().filter_map(|row| row[key].as_f64()).sum::<f64>();
    assert_eq!(of("kills"), 6.0, "{found}");
    for key in
        ["lost", "duplicated", "out_of_order", "wrong", "left_processes", "left_fds", "left_shared_memory"]
    {
        assert!(rows.iter().all(|row| row[key] == 0.0), "{key}: {found}");
    }
}

#[test]
fn clients_that_are_killed_leave_no_worker() {
    let ran = run(&["lab", "faults", "--case", "client", "--json", "-"]);
    let found: Value = serde_json::from_str(&ran.ended(0).stdout).unwrap();
    let row = &found["rows"][0];
    assert_eq!((row["kills"].as_f64(), row["left_processes"].as_f64()), (Some(8.0), Some(0.0)), "{found}");
    assert!(row["workers"].as_f64() >= Some(8.0), "{found}");
}
