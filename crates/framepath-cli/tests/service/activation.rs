// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socket passed in by a service manager.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use framepath_os::crossing::Listener;
use framepath_os::process::children;
use framepath_serve::Viewer;

use framepath_testkit::until;
use framepath_testkit::wait;

/// Shell script that acts as the service manager: passes its standard input as descriptor 3, and
/// announces as many sockets as its first argument says.
const MANAGER: &str =
    "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=$1; export LISTEN_PID LISTEN_FDS; shift; exec \"$@\"";

fn manager(stdin: Stdio, count: &str, options: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", MANAGER, "sh", count, env!("CARGO_BIN_EXE_framepath"), "serve"]).args(options);
    shell.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

#[test]
fn a_passed_socket_is_served_and_keeps_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("passed");
    let listener = Listener::bind(&path, 0o600).unwrap();
    let stdin = || Stdio::from(listener.as_fd().try_clone_to_owned().unwrap());
    let child = manager(stdin(), "1", &[]).spawn().unwrap();
    // A client that connects early waits in the socket's backlog.
    until("the service answers", || Viewer::connect(&path).unwrap().snapshot().is_ok());
    children::signal(&child, 15).unwrap();
    wait(child, "the service").ended(0).prints("passed by the service manager");
    assert!(path.exists());

    let refused = |count: &str, options: &[&str], code: i32, words: &str| {
        let child = manager(stdin(), count, options).spawn().unwrap();
        wait(child, "the service").ended(code).prints(words);
    };
    refused("2", &[], 1, "2 sockets were passed");
    refused("1", &["--socket", "/elsewhere"], 2, "--socket names another");
}

#[test]
fn only_listening_seqpacket_sockets_are_accepted() {
    let child = manager(Stdio::null(), "1", &[]).spawn().unwrap();
    assert_ne!(wait(child, "the service").code, Some(0));
    let stream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stdin = Stdio::from(std::os::fd::OwnedFd::from(stream));
    let child = manager(stdin, "1", &[]).spawn().unwrap();
    wait(child, "the service").ended(1).prints("ListenSequentialPacket=");
}
