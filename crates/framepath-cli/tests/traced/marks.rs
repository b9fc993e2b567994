// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that names its frames itself.

use std::process::Command;

use framepath_testkit::harness::{Missing, Tested};
use framepath_testkit::{finish, in_checkout, run};
use serde_json::Value;
use tempfile::TempDir;

use crate::{needs_bpf, stages};

/// Compiles tests/traced/marks.c with the header that the command prints.
pub(crate) fn compile(folder: &TempDir) -> Result<String, Missing> {
    let header = run(&["trace", "--header"]).ended(0).stdout;
    std::fs::write(folder.path().join("framepath_frame.h"), header).unwrap();
    let program = folder.path().join("marks").to_str().unwrap().to_owned();
    let source = in_checkout("crates/framepath-cli/tests/traced/marks.c").to_str().unwrap().to_owned();
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c99", "-D_GNU_SOURCE", "-O2", "-s", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    compiler.arg("-I").arg(folder.path()).args(["-o", &program, &source, "-pthread"]);
    match compiler.status() {
        Ok(status) => assert!(status.success()),
        Err(error) => return Err(Missing::new(format!("cc: {error}"))),
    }
    Ok(program)
}

pub(crate) fn a_program_names_its_frames_itself() -> Tested {
    needs_bpf()?;
    let folder = TempDir::new().unwrap();
    let program = compile(&folder)?;
    assert_eq!(Command::new(&program).output().unwrap().stdout, b"30 frames\n");
    for probes in ["best", "events"] {
        let json = folder.path().join("json").to_str().unwrap().to_owned();
        let arguments = ["trace", "--level", "bpf", "--json", &json, "--", &program, "60"];
        let mut framepath = framepath_testkit::framepath(&arguments);
        framepath.env("FRAMEPATH_PROBES", probes);
        let ran = finish(framepath).ended(0);
        let figures: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
        // Of 60 frames, each third one is dropped; of the others, each fifth one has a stage more.
        let rows = figures["rows"].as_array().unwrap();
        let seen: Vec<(u64, Vec<&str>)> =
            rows.iter().map(|row| (row["frames"].as_u64().unwrap(), stages(row))).collect();
        let wanted = [
            (32, vec!["capture left", "queue", "detect"]),
            (8, vec!["capture left", "queue", "detect", "log"]),
        ];
        assert_eq!(seen, wanted, "{figures}");
        let causes = |stage: usize| &rows[0]["hops"][stage]["causes_us"];
        assert!(causes(0)["compute"].as_f64() > Some(0.0) && causes(0)["paced"].as_f64() > Some(0.0));
        assert!(causes(2)["compute"].as_f64() > Some(0.0) && causes(2)["paced"].as_f64().is_none());
        ran.prints("32 frames; latency (capture left to detect)")
            .prints("; 20 more began and did not get there");
    }
    // A part of the way.
    let ran = run(&["trace", "--level", "bpf", "--from", "queue", "--to", "queue", "--", &program]).ended(0);
    ran.prints("16 frames; latency (queue to queue)");
    Ok(())
}
