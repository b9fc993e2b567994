// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU quotas of the cgroups of a process, and how often they were used up: the kernel's own count.
//!
//! Format: `cpu.stat` of cgroup version 1 (Documentation/scheduler/sched-bwc.rst) and 2 (Documentation/admin-guide/cgroup-v2.rst).

use std::fs;
use std::path::PathBuf;

use super::controller_groups::controller_groups;

/// Count of a group, and of those above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUse {
    /// Number of periods in which the quota was used up.
    pub periods: u64,
    /// Time in which threads of the group could not run for that, nanoseconds: the sum over the CPUs, whether one or several
    /// threads waited on a CPU.
    pub throttled_ns: u64,
}

/// Groups of a process that can have quotas.
#[derive(Clone, Debug, Default)]
pub struct CpuQuotas {
    files: Vec<PathBuf>,
}

impl CpuQuotas {
    /// Finds the groups of the process `pid`, as far as their hierarchy is mounted here. Reads some files.
    pub fn of(pid: u32) -> CpuQuotas {
        let files = controller_groups(pid, "cpu").into_iter().map(|folder| folder.join("cpu.stat"));
        CpuQuotas { files: files.filter(|file| file.exists()).collect() }
    }

    /// Returns the count since the groups were made. Reads a file for each group.
    pub fn used(&self) -> QuotaUse {
        let of_group = |file: &PathBuf| parse(&fs::read_to_string(file).unwrap_or_default());
        self.files.iter().map(of_group).fold(QuotaUse::default(), |sum, of_group| QuotaUse {
            periods: sum.periods + of_group.periods,
            throttled_ns: sum.throttled_ns + of_group.throttled_ns,
        })
    }
}

impl QuotaUse {
    /// Returns the count since `before`.
    pub fn since(self, before: QuotaUse) -> QuotaUse {
        QuotaUse {
            periods: self.periods.saturating_sub(before.periods),
            throttled_ns: self.throttled_ns.saturating_sub(before.throttled_ns),
        }
    }
}

fn parse(text: &str) -> QuotaUse {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let in_us = value("throttled_usec").map(|us| us.saturating_mul(1000));
    QuotaUse {
        periods: value("nr_throttled").unwrap_or(0),
        throttled_ns: value("throttled_time").or(in_us).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_have_their_count() {
        let count = QuotaUse { periods: 3, throttled_ns: 45_000 };
        assert_eq!(parse("nr_periods 9\nnr_throttled 3\nthrottled_time 45000\n"), count);
        assert_eq!(parse("usage_usec 7\nnr_throttled 3\nthrottled_usec 45\n"), count);
        assert_eq!(parse("nr_throttled x\n"), QuotaUse::default());
        // This process has groups, or none are mounted: no error either way.
        let _ = CpuQuotas::of(std::process::id()).used();
    }
}
