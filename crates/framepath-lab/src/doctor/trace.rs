// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probe of the level at which this user can trace other programs. It loads the BPF programs, and attaches none to a
//! function of another program.

use framepath_trace::{TraceLevel, highest_level};

use super::{Probe, ProbeState};

/// Runs the probe.
pub(crate) fn probe() -> Probe {
    let (group, name) = ("trace", "level");
    let unlocks = "frames, stages and causes of other programs (framepath trace): threads, preload, bpf";
    let (level, next) = highest_level();
    let Some(error) = next else { return Probe::ok(group, name, unlocks, "bpf: everything") };
    let found = match level {
        TraceLevel::Preload => format!("preload: frames and stages of commands; bpf: {error}"),
        _ => format!("threads: no frames; bpf: {error}"),
    };
    let remedy = "run it as root, or sudo setcap cap_bpf,cap_perfmon+ep \"$(command -v framepath)\"; Linux 5.18 or newer \
                  with BTF";
    Probe::lacking(group, name, unlocks, ProbeState::from_error(&error), found, remedy)
}
