// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this machine is, and whether single features of its kernel answer.

use std::fs;

/// The first `model name` of /proc/cpuinfo, or the architecture.
pub fn cpu_name() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines()
        .find_map(|l| l.strip_prefix("model name").and_then(|rest| rest.split_once(':')))
        .map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// CPUs the scheduler may use for this process.
pub fn cores() -> usize {
    crate::affinity::allowed_cpus().map_or(1, |cpus| cpus.len().max(1))
}

/// Kernel release, as `uname -r`.
pub fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Distribution name, as in /etc/os-release.
pub fn distribution() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    text.lines()
        .find_map(|l| l.strip_prefix("PRETTY_NAME="))
        .map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

/// Whether cycles, instructions and cache misses can be counted; the kernel's
/// error where not.
pub fn pmu() -> std::io::Result<()> {
    crate::pmu::Pmu::open().map(drop)
}

/// Whether the kernel gives this thread its switch records.
pub fn switch_records() -> std::io::Result<()> {
    crate::switches::SwitchLog::open().map(drop)
}
