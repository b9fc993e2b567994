// SPDX-License-Identifier: MIT OR Apache-2.0
//! Search for the worker program by a program without `worker::init`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use framepath::{Options, Pipeline};

use framepath_testkit::{CommandOutput, finish, in_checkout};

/// Environment variable with the path that [`runs_a_path`] runs.
const TEXT: &str = "PLAYER_TEXT";

#[test]
fn a_program_in_the_parent_folder_is_not_the_worker() {
    let folder = tempfile::tempdir().unwrap();
    let (outer, inner) = (folder.path().join("outer"), folder.path().join("outer/inner"));
    fs::create_dir_all(&inner).unwrap();
    let program = inner.join("player");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    // An attacker with write access to the parent folder could place this program.
    let (planted, started) = (outer.join("framepath"), outer.join("started"));
    fs::write(&planted, format!("#!/bin/sh\n: >{}\n", started.display())).unwrap();
    fs::set_permissions(&planted, Permissions::from_mode(0o755)).unwrap();
    let clip = in_checkout("clips/vp9-180p8.ivf");
    let play = || -> CommandOutput {
        let mut player = Command::new(&program);
        player.args(["worker_program::runs_a_path", "--exact", "--ignored", "--nocapture"]);
        player.env(TEXT, format!("file '{}' ! decode host=process ! null", clip.display()));
        player.env("PATH", "/nowhere/bin:relative").env_remove("FRAMEPATH_WORKER");
        player.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(player).ended(1)
    };
    let places = format!("{}, /usr/libexec/framepath, /nowhere/bin;", inner.display());
    let ran = play().prints("FRAMEPATH_WORKER").prints(&places);
    assert!(!ran.stderr.contains("relative") && !started.exists(), "{ran:#?}");
    // The search finds a worker program in the program's own folder.
    fs::rename(&planted, inner.join("framepath")).unwrap();
    play();
    assert!(started.exists());
}

/// Program that [`a_program_in_the_parent_folder_is_not_the_worker`] copies. The program does not call
/// `worker::init`.
#[test]
#[ignore = "a program for the test of the worker program, not a test"]
fn runs_a_path() {
    let text = std::env::var(TEXT).expect("the path to run");
    let error = match Pipeline::parse(&text).and_then(|pipeline| pipeline.run(&Options::default())) {
        Ok(report) => report.error,
        Err(error) => Some(error),
    };
    if let Some(error) = error {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
