// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders of the cgroups of a process, version 1 and 2.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folder of the group in which the process `pid` is for `controller`, and those of the groups above, as far as the
/// hierarchy is mounted here. Reads two files.
pub(crate) fn controller_groups(pid: u32, controller: &str) -> Vec<PathBuf> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let group = group_of(&read(&format!("/proc/{pid}/cgroup")), controller);
    let mount =
        group.as_ref().and_then(|(version, _)| mount_of(&read("/proc/self/mountinfo"), *version, controller));
    let (Some((_, group)), Some(mount)) = (group, mount) else { return Vec::new() };
    // In a cgroup namespace, the paths begin at its root.
    let inside =
        Path::new(&group).strip_prefix(&mount.root).unwrap_or(Path::new(group.trim_start_matches('/')));
    let folder = mount.folder.join(inside.strip_prefix("/").unwrap_or(inside));
    folder.ancestors().take_while(|folder| folder.starts_with(&mount.folder)).map(Path::to_owned).collect()
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

/// Returns the group of a controller in a /proc/PID/cgroup: that of version 1 if it has the controller.
fn group_of(text: &str, controller: &str) -> Option<(Version, String)> {
    let mut lines = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        Some((parts.next()?, parts.next()?, parts.next()?))
    });
    let is_named = |controllers: &str| controllers.split(',').any(|name| name == controller);
    let of_two = lines.clone().find(|(number, controllers, _)| *number == "0" && controllers.is_empty());
    let of_one = lines.find(|(_, controllers, _)| is_named(controllers));
    let of_one = of_one.map(|(.., group)| (Version::One, group.to_owned()));
    of_one.or_else(|| of_two.map(|(.., group)| (Version::Two, group.to_owned())))
}

/// Returns where the hierarchy is mounted, by a /proc/PID/mountinfo.
fn mount_of(text: &str, version: Version, controller: &str) -> Option<Mount> {
    text.lines().find_map(|line| {
        let (before, behind) = line.split_once(" - ")?;
        let mut behind = behind.split(' ');
        let (kind, options) = (behind.next()?, behind.nth(1)?);
        let is_wanted = match version {
            Version::One => kind == "cgroup" && options.split(',').any(|option| option == controller),
            Version::Two => kind == "cgroup2",
        };
        let mut before = before.split(' ').skip(3);
        let (root, folder) = (before.next()?.to_owned(), PathBuf::from(before.next()?));
        is_wanted.then_some(Mount { root, folder })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_have_their_group_and_mount() {
        let one = "5:cpuset:/other\n4:cpu,cpuacct:/a/b\n0::/unified\n";
        assert_eq!(group_of(one, "cpu"), Some((Version::One, "/a/b".to_owned())));
        assert_eq!(group_of("0::/user.slice\n", "cpu"), Some((Version::Two, "/user.slice".to_owned())));
        assert_eq!(group_of("0::\n1:\nnothing", "cpu"), Some((Version::Two, String::new())));
        assert_eq!(group_of("", "cpu"), None);
        let mounts = "30 23 0:26 / /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                      31 23 0:27 /box /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let mount = |root: &str, folder: &str| Some(Mount { root: root.to_owned(), folder: folder.into() });
        assert_eq!(mount_of(mounts, Version::One, "cpu"), mount("/", "/sys/fs/cgroup/cpu"));
        assert_eq!(mount_of(mounts, Version::Two, "cpu"), mount("/box", "/sys/fs/cgroup/unified"));
    }
}
