// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes of the kernel interfaces that the ledger and the lab use.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;

use framepath_os::machine;
use framepath_os::process::affinity;

use super::probe::{Probe, ProbeState};

const GROUP: &str = "ledger";

pub(super) fn probes() -> Vec<Probe> {
    vec![pmu(), switch_records(), run_delay(), tracepoints(), realtime()]
}

fn pmu() -> Probe {
    let (name, unlocks) = ("PMU", "cycles, instructions and cache misses of every hop");
    match machine::pmu() {
        Ok(()) => Probe::ok(GROUP, name, unlocks, "cycles, instructions and cache misses can be counted"),
        Err(error) => {
            let (state, remedy) = match ProbeState::from_error(&error) {
                ProbeState::NotPermitted => (ProbeState::NotPermitted, paranoid_remedy()),
                _ => (
                    ProbeState::Missing,
                    "bare metal, or a hypervisor with a virtual PMU (KVM: -cpu host,pmu=on)".into(),
                ),
            };
            Probe::lacking(GROUP, name, unlocks, state, format!("perf_event_open: {error}"), remedy)
        }
    }
}

fn switch_records() -> Probe {
    let (name, unlocks) = ("switch records", "exact distinction between waiting and preempted threads");
    match machine::switch_records() {
        Ok(()) => Probe::ok(GROUP, name, unlocks, format!("perf_event_paranoid is {}", paranoid())),
        Err(error) => {
            let state = ProbeState::from_error(&error);
            Probe::lacking(
                GROUP,
                name,
                unlocks,
                state,
                format!("perf_event_open: {error}"),
                paranoid_remedy(),
            )
        }
    }
}

fn paranoid() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if text.is_empty() { "unknown".to_owned() } else { text.trim().to_owned() }
}

fn paranoid_remedy() -> String {
    format!(
        "sudo sysctl kernel.perf_event_paranoid=2 (it is {}); in a container, allow perf_event_open as well",
        paranoid()
    )
}

fn run_delay() -> Probe {
    let (name, unlocks) =
        ("schedstat", "time that a thread was runnable and did not run, without switch records");
    let file = "/proc/thread-self/schedstat";
    match fs::read_to_string(file) {
        Ok(text) if text.split_whitespace().count() == 3 => Probe::ok(GROUP, name, unlocks, file),
        Ok(_) => kernel_without(name, unlocks, &format!("{file} has no run delay")),
        Err(error) => kernel_without(name, unlocks, &format!("{file}: {error}")),
    }
}

fn kernel_without(name: &'static str, unlocks: &'static str, found: &str) -> Probe {
    Probe::lacking(GROUP, name, unlocks, ProbeState::Missing, found, "a kernel with CONFIG_SCHED_INFO=y")
}

fn tracepoints() -> Probe {
    let (name, unlocks) = ("scheduler tracepoints", "names of the threads that preempted a frame (planned)");
    let roots = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let mut refusal = None;
    for root in roots {
        let file = Path::new(root).join("events/sched/sched_switch/id");
        match fs::read_to_string(&file) {
            Ok(_) => return Probe::ok(GROUP, name, unlocks, root),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refusal = Some(root),
            Err(_) => {}
        }
    }
    match refusal {
        Some(root) => {
            let found = format!("only root may read {root}");
            Probe::lacking(GROUP, name, unlocks, ProbeState::NotPermitted, found, "run as root")
        }
        None => Probe::lacking(
            GROUP,
            name,
            unlocks,
            ProbeState::Missing,
            "no sched events under /sys/kernel/tracing",
            "sudo mount -t tracefs tracefs /sys/kernel/tracing; a kernel with CONFIG_EVENT_TRACING=y",
        ),
    }
}

fn realtime() -> Probe {
    let name = "real-time scheduling";
    let unlocks = "lab `inject`: preempting a thread for a known time";
    // In a separate thread, because the priority ends with the thread.
    match thread::spawn(affinity::become_realtime).join() {
        Ok(Ok(())) => Probe::ok(GROUP, name, unlocks, "SCHED_FIFO can be set"),
        Ok(Err(error)) => {
            let found = format!("sched_setscheduler: {error}");
            let remedy = "run as root, or give this user an rtprio limit in /etc/security/limits.conf";
            Probe::lacking(GROUP, name, unlocks, ProbeState::from_error(&error), found, remedy)
        }
        Err(_) => Probe::lacking(
            GROUP,
            name,
            unlocks,
            ProbeState::Missing,
            "the thread that requested SCHED_FIFO panicked",
            "report this as a bug",
        ),
    }
}
