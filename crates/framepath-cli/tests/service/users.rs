// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may use a service: by the kernel's word, whatever the socket's
//! permissions say.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use framepath_os::machine::effective_uid;

use crate::harness::{Ran, finish};
use crate::service::Service;

const NOBODY: u32 = 65_534;
const NOGROUP: u32 = 65_534;

/// `top`, asked for by nobody. The binary is opened here: where a home folder
/// is its owner's alone, nobody finds a checkout in it.
fn as_nobody(service: &Service) -> Ran {
    let binary = File::open(env!("CARGO_BIN_EXE_framepath")).unwrap();
    let mut top = Command::new(format!("/proc/self/fd/{}", binary.as_raw_fd()));
    top.args(["top", "--once", "--socket"]).arg(service.socket()).uid(NOBODY).gid(NOGROUP);
    top.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(top)
}

fn is_root() -> bool {
    let root = effective_uid() == 0;
    if !root {
        eprintln!("skipped: only root can become another user: run the tests as root");
    }
    root
}

#[test]
fn only_its_own_user_unless_it_says_so() {
    if !is_root() {
        return;
    }
    let service = Service::start(&[]);
    as_nobody(&service).ended(1).says("Permission denied");
    // A socket that anybody may connect to, for somebody else.
    let service = Service::start(&["--allow-uid", "12345"]);
    as_nobody(&service).ended(1).says("user 65534 may not use this service").says("--allow-uid");
    assert_eq!(service.look().totals.denied, 1);
    service.quiet();
    for allowed in [["--allow-uid", "65534"], ["--allow-gid", "65534"]] {
        let service = Service::start(&allowed);
        as_nobody(&service).ended(0).shows("no streams");
    }
}
