// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a decoder in a process of its own can be locked into.

use std::fs;

use framepath_os::machine::landlock_abi;

use super::probe::{Probe, State};
use crate::process::Program;

const GROUP: &str = "sandbox";

pub(super) fn probes() -> Vec<Probe> {
    vec![seccomp(), landlock(), user_namespaces()]
}

fn seccomp() -> Probe {
    let (name, unlocks) =
        ("seccomp filters", "a worker that may make only the system calls it needs (planned)");
    match fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) if actions.contains("errno") => {
            Probe::ok(GROUP, name, unlocks, format!("actions: {}", actions.trim()))
        }
        _ => Probe::lacking(
            GROUP,
            name,
            unlocks,
            State::Missing,
            "no /proc/sys/kernel/seccomp/actions_avail",
            "a kernel with CONFIG_SECCOMP_FILTER=y",
        ),
    }
}

fn landlock() -> Probe {
    let (name, unlocks) = ("Landlock", "a worker that can open no file, without root (planned)");
    match landlock_abi() {
        Ok(abi) => Probe::ok(GROUP, name, unlocks, format!("version {abi} of its interface")),
        Err(error) => {
            let found = format!("landlock_create_ruleset: {error}");
            let remedy =
                "a kernel from 5.13 on with CONFIG_SECURITY_LANDLOCK=y, and landlock in lsm= at boot";
            Probe::lacking(GROUP, name, unlocks, State::Missing, found, remedy)
        }
    }
}

fn user_namespaces() -> Probe {
    let (name, unlocks) =
        ("user namespaces", "a worker without a network or other processes in sight (planned)");
    let most = fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap_or_default();
    if most.is_empty() {
        let remedy = "a kernel with CONFIG_USER_NS=y";
        return Probe::lacking(GROUP, name, unlocks, State::Missing, "not in this kernel", remedy);
    }
    match Program::new("unshare", ["--user", "--map-root-user", "true"]).run(false) {
        Ok(_) => Probe::ok(GROUP, name, unlocks, format!("up to {}", most.trim())),
        Err(error) => {
            let remedy = "sudo sysctl user.max_user_namespaces=10000; on Debian also \
                          kernel.unprivileged_userns_clone=1, on Ubuntu \
                          kernel.apparmor_restrict_unprivileged_userns=0";
            Probe::lacking(GROUP, name, unlocks, State::NotPermitted, error.to_string(), remedy)
        }
    }
}
