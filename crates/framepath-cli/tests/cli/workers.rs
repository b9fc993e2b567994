// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stages in workers, seen from outside.

use framepath_lab::process::Program;

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
