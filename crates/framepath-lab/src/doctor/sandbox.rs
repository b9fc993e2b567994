// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes of the sandbox layers available to workers. Each layer is applied to a thread or a child
//! process that ends immediately afterwards. The probe `cgroup` opens this process's cgroup for changes, and
//! enables the controllers memory and pids.

use framepath_os::machine::landlock_abi;
use framepath_os::process::cgroup::{CgroupError, Delegated};
use framepath_os::process::sandbox::{self, Layer, LayerState, Layers, SandboxError};
use framepath_os::process::spawn::{Namespaces, namespaces_given};

use super::probe::{Probe, ProbeState};

const GROUP: &str = "sandbox";

pub(super) fn probes() -> Vec<Probe> {
    let (layers, refusal) = match sandbox::try_on_a_thread() {
        Ok(layers) => (layers, None),
        Err(SandboxError::NoSeccomp { layers, reason }) => (layers, Some(reason)),
        Err(error @ SandboxError::Refused { .. }) => (Layers::default(), Some(error.to_string())),
    };
    vec![no_new_privileges(layers), seccomp(layers, refusal), landlock(layers), namespaces(), cgroup()]
}

fn state(layers: Layers, layer: Layer) -> ProbeState {
    match layers.state(layer) {
        LayerState::Given => ProbeState::Ok,
        LayerState::Refused => ProbeState::NotPermitted,
        LayerState::NotInKernel | LayerState::Untried => ProbeState::Missing,
    }
}

fn no_new_privileges(layers: Layers) -> Probe {
    let (name, unlocks) = ("no_new_privs", "a worker that cannot gain privileges, and all following layers");
    match state(layers, Layer::NoNewPrivileges) {
        ProbeState::Ok => {
            let capabilities = if layers.has(Layer::Capabilities) { "; capabilities dropped" } else { "" };
            Probe::ok(GROUP, name, unlocks, format!("set on a thread{capabilities}"))
        }
        state => Probe::lacking(GROUP, name, unlocks, state, "prctl fails", "a kernel 3.5 or newer"),
    }
}

fn seccomp(layers: Layers, refusal: Option<String>) -> Probe {
    let (name, unlocks) =
        ("seccomp filters", "host=process: a worker restricted to the system calls it needs");
    match state(layers, Layer::Seccomp) {
        ProbeState::Ok => Probe::ok(GROUP, name, unlocks, "the decoder's filter was applied to a thread"),
        state => {
            let found = refusal.unwrap_or_else(|| "not tried".to_owned());
            let remedy = "a kernel with CONFIG_SECCOMP_FILTER=y; in a container, allow seccomp";
            Probe::lacking(GROUP, name, unlocks, state, found, remedy)
        }
    }
}

fn landlock(layers: Layers) -> Probe {
    let (name, unlocks) = ("Landlock", "a worker that can open no file, without root");
    let missing = "a kernel 5.13 or newer with CONFIG_SECURITY_LANDLOCK=y, and landlock in lsm= at boot";
    match (state(layers, Layer::LandlockFiles), landlock_abi()) {
        (ProbeState::Ok, abi) => {
            let parts: Vec<&str> = [
                (Layer::LandlockFiles, "files"),
                (Layer::LandlockNet, "TCP ports"),
                (Layer::LandlockScope, "signals and abstract sockets"),
            ]
            .into_iter()
            .filter_map(|(layer, part)| layers.has(layer).then_some(part))
            .collect();
            let found = format!("interface version {}: {}", abi.unwrap_or(0), parts.join(", "));
            Probe::ok(GROUP, name, unlocks, found)
        }
        (state, Err(error)) => {
            let found = format!("landlock_create_ruleset: {error}");
            Probe::lacking(GROUP, name, unlocks, state, found, missing)
        }
        (state, Ok(abi)) => {
            let found = format!("interface version {abi}, but threads may not restrict themselves");
            Probe::lacking(GROUP, name, unlocks, state, found, "in a container, allow the landlock calls")
        }
    }
}

fn cgroup() -> Probe {
    let (name, unlocks) = ("cgroup", "a worker with a hard limit on all memory and on threads");
    let remedy = "start the program by systemd with Delegate=yes and DelegateSubgroup=main \
                  (systemd 254 or later)";
    match Delegated::find() {
        Ok(_) => Probe::ok(GROUP, name, unlocks, "delegated, with the controllers memory and pids"),
        Err(error) => {
            let state = match error {
                CgroupError::NotMounted | CgroupError::NoParent => ProbeState::Missing,
                CgroupError::NotDelegated { .. } => ProbeState::NotPermitted,
            };
            Probe::lacking(GROUP, name, unlocks, state, error.to_string(), remedy)
        }
    }
}

fn namespaces() -> Probe {
    let (name, unlocks) = ("namespaces", "a worker that sees no network and no other processes");
    let remedy = "sudo sysctl user.max_user_namespaces=10000; on Debian also \
                  kernel.unprivileged_userns_clone=1, on Ubuntu \
                  kernel.apparmor_restrict_unprivileged_userns=0";
    let given = match namespaces_given() {
        Ok(given) => given,
        Err(error) => {
            let state = ProbeState::from_error(&error);
            return Probe::lacking(GROUP, name, unlocks, state, format!("clone: {error}"), remedy);
        }
    };
    let Namespaces { user, pid, net, ipc, uts } = given;
    let all = [("user", user), ("pid", pid), ("network", net), ("IPC", ipc), ("UTS", uts)];
    let of = |own: bool| -> Vec<&str> {
        all.into_iter().filter_map(|(name, has)| (has == own).then_some(name)).collect()
    };
    let (own, shared) = (of(true).join(", "), of(false).join(", "));
    // Root needs no user namespace for the others.
    if pid && net {
        Probe::ok(GROUP, name, unlocks, if shared.is_empty() { own } else { format!("{own}; not {shared}") })
    } else {
        Probe::lacking(
            GROUP,
            name,
            unlocks,
            ProbeState::NotPermitted,
            format!("not available: {shared}"),
            remedy,
        )
    }
}
