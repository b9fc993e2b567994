// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a program that is not called `framepath` looks for the one of its
//! workers.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use framepath_os::crossing::Socket;

use crate::harness::{in_checkout, run};
use crate::service::until;

#[test]
fn a_program_in_the_folder_above_is_not_the_worker() {
    let folder = tempfile::tempdir().unwrap();
    let (outer, inner) = (folder.path().join("outer"), folder.path().join("outer/inner"));
    fs::create_dir_all(&inner).unwrap();
    let program = inner.join("player");
    fs::copy(env!("CARGO_BIN_EXE_framepath"), &program).unwrap();
    // Whoever may write in the folder above would have it run.
    let (planted, ran) = (outer.join("framepath"), outer.join("ran"));
    fs::write(&planted, format!("#!/bin/sh\n: >{}\n", ran.display())).unwrap();
    fs::set_permissions(&planted, Permissions::from_mode(0o755)).unwrap();
    let socket = folder.path().join("socket");
    let mut serve = Command::new(&program);
    serve
        .args(["serve", "--socket"])
        .arg(&socket)
        .env("PATH", "/nowhere/bin:relative")
        .env_remove("FRAMEPATH_WORKER");
    serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut serve = serve.spawn().unwrap();
    until("the service listens", || Socket::connect(&socket).is_ok());
    let clip = in_checkout("clips/vp9-180p8.ivf");
    let path = format!("file '{}' ! decode host=service socket={} ! null", clip.display(), socket.display());
    let client = run(&["run", &path]).ended(1);
    let places = format!("{}, /usr/libexec/framepath, /nowhere/bin;", inner.display());
    let client = client.says("FRAMEPATH_WORKER").says(&places);
    assert!(!client.stderr.contains("relative") && !ran.exists(), "{client:?}");
    // Beside the program it is found.
    fs::rename(&planted, inner.join("framepath")).unwrap();
    run(&["run", &path]).ended(1);
    assert!(ran.exists());
    serve.kill().unwrap();
    serve.wait().unwrap();
}
