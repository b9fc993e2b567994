// SPDX-License-Identifier: MIT OR Apache-2.0
//! Description of this machine, and tests of single kernel features.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the sorted paths of the files in `folder`, such as `/dev`, whose names begin with
/// `prefix`. The result is empty if the folder cannot be read.
pub fn nodes(folder: impl AsRef<Path>, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let entries = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    let mut nodes: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    nodes.sort();
    nodes
}

/// Returns the first `model name` of /proc/cpuinfo, or the architecture if there is none.
pub fn cpu_name() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines()
        .find_map(|l| l.strip_prefix("model name").and_then(|rest| rest.split_once(':')))
        .map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// Returns the number of CPUs on which the calling thread may run; 1 if unknown.
pub fn cores() -> usize {
    crate::process::affinity::allowed_cpus().map_or(1, |cpus| cpus.len().max(1))
}

/// Returns the effective user id of this process.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Raises this process's soft limit of open files to the hard limit. Ignores a failure.
pub fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // On failure the process continues with the lower limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Returns the kernel release, as `uname -r`.
pub fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Returns the name and version of the distribution, PRETTY_NAME in /etc/os-release; `Linux` if there is
/// none.
pub fn distribution() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    text.lines()
        .find_map(|l| l.strip_prefix("PRETTY_NAME="))
        .map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

/// Checks that cycles, instructions and cache misses can be counted. Returns the kernel's error
/// if not.
pub fn pmu() -> std::io::Result<()> {
    crate::measure::pmu::Pmu::open().map(drop)
}

/// Checks that the kernel provides this thread's switch records. Returns the kernel's error if not.
pub fn switch_records() -> std::io::Result<()> {
    crate::measure::switches::SwitchLog::open().map(drop)
}

/// Returns this process's maximum resident set size so far, KiB (`VmHWM`, proc(5)); `None` if
/// /proc does not report the size.
pub fn own_peak_memory_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the kernel's Landlock version, at least 1 (landlock_create_ruleset(2)). The error is ENOSYS if
/// Landlock was not built in, EOPNOTSUPP if it was not enabled at boot.
pub fn landlock_abi() -> std::io::Result<u32> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with the version flag the kernel requires a null pointer and size 0, and reads no
    // attributes.
    let abi =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION) };
    u32::try_from(abi).map_err(|_| std::io::Error::last_os_error())
}
