// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the summaries say of the machine.

use std::collections::BTreeMap;
use std::fs;

use framepath_model::summary::Machine;
use framepath_os::machine as os;

use crate::process::Program;

/// This machine, with the versions of the programs and libraries that take part.
pub fn machine() -> Machine {
    let mut versions = BTreeMap::new();
    versions.insert("framepath".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    versions.extend(framepath_codec::versions().into_iter().map(|(n, v)| (n.to_owned(), v)));
    if let Ok(finished) = Program::new("ffmpeg", ["-version"]).run(true) {
        let version = finished.stdout.split_whitespace().nth(2).map(str::to_owned);
        versions.extend(version.map(|v| ("ffmpeg".to_owned(), v)));
    }
    Machine {
        cpu: os::cpu_name(),
        cores: os::cores() as u32,
        kernel: os::kernel(),
        pmu: os::pmu().is_ok(),
        os: Some(os::distribution()),
        memory_mib: memory_mib(),
        virtualisation: hypervisor(),
        governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        versions,
    }
}

fn memory_mib() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = text.lines().next()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}

fn hypervisor() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let flags = info.lines().find(|l| l.starts_with("flags"))?;
    let virtual_machine = flags.split_whitespace().any(|f| f == "hypervisor");
    virtual_machine
        .then(|| first_line("/sys/class/dmi/id/sys_vendor").unwrap_or_else(|| "virtual machine".into()))
}

fn first_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned()).filter(|l| !l.is_empty())
}
