// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sandboxed worker under an attacker's control, against the other workers of its user:
//! the kernel limits the descriptors in flight of all of them together.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use framepath_os::crossing::Socket;
use framepath_os::process::sandbox::{self, ResourceLimits, SandboxRole};

use super::hashes_of;
use super::peer::{memory, sealed, stay};

pub const ACT: &str = "sends-descriptors-that-nobody-reads";

/// Number of descriptors that the attack tries to send.
const DESCRIPTORS: usize = 80;

/// Id of an unprivileged user and group, because the kernel's limit does not apply to root.
const NOBODY: u32 = 65_534;

/// Enters the sandbox, tries to send [`DESCRIPTORS`] descriptors, and prints the number of sent ones on
/// standard error.
pub fn play(socket: &Socket) -> ! {
    let own = memory(4096, sealed());
    sandbox::enter(SandboxRole::Decode, &ResourceLimits::default()).unwrap();
    let sent = (0..DESCRIPTORS).filter(|_| socket.try_send(b"x", Some(own.as_fd())).unwrap_or(false));
    eprintln!("sent {}", sent.count());
    stay()
}

/// Runs the attack beside an honest stream of the same unprivileged user. Checks that the attack sends
/// no descriptor, and that the honest stream loses no frame.
pub fn beside_an_honest_stream() {
    let folder = tempfile::tempdir().unwrap();
    let all_may_enter = fs::Permissions::from_mode(0o777);
    fs::set_permissions(folder.path(), all_may_enter).unwrap();
    let copied = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        fs::copy(from, &to).unwrap();
        to
    };
    let framepath = copied(Path::new(env!("CARGO_BIN_EXE_framepath")), "framepath");
    let hostile = copied(&std::env::current_exe().unwrap(), ACT);
    let clip = copied(&framepath_testkit::in_checkout("clips/h264-180p8-high.h264"), "clip.h264");
    let run = |path: &str| {
        let mut command = Command::new(&framepath);
        command.args(["run", "--quiet", path]).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).current_dir(folder.path());
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    };
    let decode = |options: &str, hashes: &str| {
        // The hostile worker is the decoder's.
        format!("file {} host=inline ! decode threads=1 {options} ! framemd5 {hashes}", clip.display())
    };
    let mut taken_over = run(&decode("host=process watchdog=60s", "none"));
    taken_over.env("FRAMEPATH_WORKER", hostile).env("FRAMEPATH_WORKER_STDERR", "1");
    let mut taken_over = taken_over.spawn().unwrap();
    let mut lines = BufReader::new(taken_over.stderr.take().unwrap()).lines();
    let sent = lines.find_map(|line| line.unwrap().strip_prefix("sent ").map(str::to_owned));

    let honest = framepath_testkit::finish(run(&decode("host=process", "hosted")));
    taken_over.kill().unwrap();
    taken_over.wait().unwrap();
    assert_eq!(honest.code, Some(0), "{honest:#?}");
    framepath_testkit::finish(run(&decode("", "inline"))).ended(0);
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let (hosted, inline) = (read("hosted"), read("inline"));
    assert!(!hashes_of(&inline).is_empty());
    assert_eq!(hashes_of(&hosted), hashes_of(&inline));
    assert_eq!(sent.as_deref(), Some("0"), "descriptors that went");
}
