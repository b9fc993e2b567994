// SPDX-License-Identifier: MIT OR Apache-2.0
//! A caller without enough descriptors fails; it blames no packet and skips none.

use std::process::Command;

use crate::harness::{Ran, finish, in_checkout};

/// Runs the path with at most `files` descriptors.
fn with_files(files: u32, path: &str) -> Ran {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {files} && exec \"$@\"");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_framepath"), "run", "--quiet", path]);
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    finish(command)
}

#[test]
fn too_few_descriptors_fail_the_run_and_skip_no_packet() {
    let clip = in_checkout("clips/vp9-180p8.ivf");
    let path = format!("file {} ! decode host=process ! framemd5 -", clip.display());
    let mut codes = Vec::new();
    // From too few to load the program up to enough.
    for files in 4..40 {
        let ran = with_files(files, &path);
        assert!(!ran.stderr.contains("skipped"), "{files} descriptors: {ran:#?}");
        // 127: not even the libraries could be loaded.
        assert!(matches!(ran.code, Some(0 | 1 | 127)), "{files} descriptors: {ran:#?}");
        codes.push(ran.code);
    }
    assert!(codes.contains(&Some(0)) && codes.contains(&Some(1)), "{codes:?}");
}
