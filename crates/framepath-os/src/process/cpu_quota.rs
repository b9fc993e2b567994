// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU quotas of the cgroups of a process, and how often they were used up: the kernel's own count.
//!
//! Format: `cpu.stat` of cgroup version 1 (Documentation/scheduler/sched-bwc.rst) and 2 (Documentation/admin-guide/cgroup-v2.rst).

use std::fs;
use std::path::{Path, PathBuf};

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
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let group = group_of(&read(&format!("/proc/{pid}/cgroup")));
        let mount = group.as_ref().and_then(|(version, _)| mount_of(&read("/proc/self/mountinfo"), *version));
        let (Some((_, group)), Some(mount)) = (group, mount) else { return CpuQuotas::default() };
        // In a cgroup namespace, the paths begin at its root.
        let inside =
            Path::new(&group).strip_prefix(&mount.root).unwrap_or(Path::new(group.trim_start_matches('/')));
        let folder = mount.folder.join(inside.strip_prefix("/").unwrap_or(inside));
        let groups = folder.ancestors().take_while(|folder| folder.starts_with(&mount.folder));
        CpuQuotas {
            files: groups.map(|folder| folder.join("cpu.stat")).filter(|file| file.exists()).collect(),
        }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// Group that is at `folder`.
    root: String,
    folder: PathBuf,
}

/// Returns the group of the controller cpu in a /proc/PID/cgroup: that of version 1 if it has the controller.
fn group_of(text: &str) -> Option<(Version, String)> {
    let mut lines = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        Some((parts.next()?, parts.next()?, parts.next()?))
    });
    let is_cpu = |controllers: &str| controllers.split(',').any(|name| name == "cpu");
    let of_two = lines.clone().find(|(number, controllers, _)| *number == "0" && controllers.is_empty());
    let of_one = lines.find(|(_, controllers, _)| is_cpu(controllers));
    let of_one = of_one.map(|(.., group)| (Version::One, group.to_owned()));
    of_one.or_else(|| of_two.map(|(.., group)| (Version::Two, group.to_owned())))
}

/// Returns where the hierarchy is mounted, by a /proc/PID/mountinfo.
fn mount_of(text: &str, version: Version) -> Option<Mount> {
    text.lines().find_map(|line| {
        let (before, behind) = line.split_once(" - ")?;
        let mut behind = behind.split(' ');
        let (kind, options) = (behind.next()?, behind.nth(1)?);
        let is_wanted = match version {
            Version::One => kind == "cgroup" && options.split(',').any(|option| option == "cpu"),
            Version::Two => kind == "cgroup2",
        };
        let mut before = before.split(' ').skip(3);
        let (root, folder) = (before.next()?.to_owned(), PathBuf::from(before.next()?));
        is_wanted.then_some(Mount { root, folder })
    })
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
    fn both_versions_have_their_group_mount_and_count() {
        let one = "5:cpuset:/other\n4:cpu,cpuacct:/a/b\n0::/unified\n";
        assert_eq!(group_of(one), Some((Version::One, "/a/b".to_owned())));
        assert_eq!(group_of("0::/user.slice\n"), Some((Version::Two, "/user.slice".to_owned())));
        assert_eq!(group_of("0::\n1:\nnothing"), Some((Version::Two, String::new())));
        assert_eq!(group_of(""), None);
        let mounts = "30 23 0:26 / /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                      31 23 0:27 /box /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let mount = |root: &str, folder: &str| Some(Mount { root: root.to_owned(), folder: folder.into() });
        assert_eq!(mount_of(mounts, Version::One), mount("/", "/sys/fs/cgroup/cpu"));
        assert_eq!(mount_of(mounts, Version::Two), mount("/box", "/sys/fs/cgroup/unified"));
        let count = QuotaUse { periods: 3, throttled_ns: 45_000 };
        assert_eq!(parse("nr_periods 9\nnr_throttled 3\nthrottled_time 45000\n"), count);
        assert_eq!(parse("usage_usec 7\nnr_throttled 3\nthrottled_usec 45\n"), count);
        assert_eq!(parse("nr_throttled x\n"), QuotaUse::default());
        // This process has groups, or none are mounted: no error either way.
        let _ = CpuQuotas::of(std::process::id()).used();
    }
}
