// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of the direct path, counted by strace(1). The binary is also the program that
//! strace runs.

use std::fs;
use std::process::{Command, ExitCode};

use framepath::Level;
use framepath_testkit::harness::{self, Missing, Tested, needs_program, test};
use framepath_testkit::pipeline::{at, run};

/// First argument of this program when strace runs it; the second is the number of frames to run.
const RUN: &str = "run-direct-path";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(RUN) {
        let frames = arguments.next().expect("a number of frames");
        let path = format!("test size=64x64 format=grey frames={frames} ! threshold level=128 ! null");
        assert_eq!(run(&path, &at(Level::Times)).frames.to_string(), frames);
        return ExitCode::SUCCESS;
    }
    harness::main(vec![test("the_direct_path_makes_no_system_call_per_frame", no_call_per_frame)])
}

fn no_call_per_frame() -> Tested {
    needs_program("strace", "strace")?;
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("calls");
    let strace = || {
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-o"]).arg(&table);
        command
    };
    let traced = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    if !traced(strace().arg("true")) {
        return Err(Missing::new("strace may not trace here: run the tests where ptrace(2) is allowed"));
    }
    let calls = |frames: u64| {
        let mut command = strace();
        command.arg(std::env::current_exe().unwrap()).args([RUN, &frames.to_string()]);
        assert!(traced(&mut command), "{command:?}");
        total_calls(&fs::read_to_string(&table).unwrap())
    };
    let (few, many) = (calls(100), calls(20_100));
    // Threads that start and end make a varying number of calls.
    assert!(many < few + 100, "{few} calls for 100 frames, {many} for 20,100");
    Ok(())
}

/// Returns the total number of calls in the table of `strace -c`: the fourth column of its last line.
fn total_calls(table: &str) -> u64 {
    let line = table.lines().rev().find(|line| line.ends_with("total")).expect("strace's total");
    line.split_whitespace().nth(3).expect("calls").parse().expect("a number")
}
