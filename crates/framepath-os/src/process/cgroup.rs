// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control group (version 2) for each worker, if a part of the hierarchy is delegated to this
//! user. The group limits all memory of a worker, mapped or not, and its threads. systemd
//! delegates a group by `Delegate=yes` and `DelegateSubgroup=`.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Mount point of the cgroup version 2 hierarchy.
const MOUNT: &str = "/sys/fs/cgroup";
/// Controllers that a worker's group needs.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// Reason why no cgroups can be made for workers.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// /proc/self/cgroup names no cgroup of version 2 for this process, mostly because no hierarchy of version 2 is
    /// mounted.
    #[error("cgroup: no version 2 hierarchy; mount it at {MOUNT}")]
    NotMounted,
    /// The cgroup in which the workers' groups would be made, which is the parent of this process's group for
    /// [`Delegated::find`], does not exist, or lacks the controllers memory and pids.
    #[error(
        "cgroup: the parent of this process's group is missing or lacks the controllers memory and pids; \
         start the program by systemd with Delegate=yes and DelegateSubgroup=main"
    )]
    NoParent,
    /// This user may not change the cgroup `path`, because it is not delegated to this user, or the kernel
    /// refuses to switch on the controllers memory and pids for its child groups.
    #[error("cgroup {path}: not delegated to this user; use Delegate=yes in the unit: {source}")]
    NotDelegated {
        /// Folder of the cgroup, under /sys/fs/cgroup.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Cgroup in which this user can make a child group for each worker. The cgroup contains no process itself,
/// unless it is the root of the hierarchy.
#[derive(Clone, Debug)]
pub struct Delegated(PathBuf);

/// Cgroup of one worker. Dropping the value removes the cgroup; drop it after the worker has ended,
/// because a cgroup with a process stays.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Delegated {
    /// Finds the parent of this process's group, and prepares it as [`Delegated::at`] does. The group
    /// itself is not usable, because a group with processes cannot have child groups with limits.
    ///
    /// # Errors
    /// [`CgroupError::NotMounted`] if this process is in no cgroup of version 2; [`CgroupError::NoParent`] if
    /// its group is the root of the hierarchy; otherwise as [`Delegated::at`] for the parent.
    pub fn find() -> Result<Delegated, CgroupError> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own_group(&own).ok_or(CgroupError::NotMounted)?;
        let own = Path::new(MOUNT).join(own.trim_start_matches('/'));
        let parent = own.parent().filter(|parent| parent.starts_with(MOUNT));
        Delegated::at(parent.ok_or(CgroupError::NoParent)?)
    }

    /// Prepares the group with the folder `path` for child groups of workers: switches on the controllers
    /// memory and pids for its child groups if they are off.
    ///
    /// # Errors
    /// [`CgroupError::NoParent`] if the group does not exist or lacks the controllers memory and pids;
    /// [`CgroupError::NotDelegated`] if this user may not change it without capabilities, or the kernel refuses
    /// the controllers.
    pub fn at(path: &Path) -> Result<Delegated, CgroupError> {
        let has = |file: &str| {
            let names = fs::read_to_string(path.join(file)).unwrap_or_default();
            CONTROLLERS.iter().all(|controller| names.split_whitespace().any(|name| name == *controller))
        };
        if !has("cgroup.controllers") {
            return Err(CgroupError::NoParent);
        }
        let failed = |source| CgroupError::NotDelegated { path: path.to_owned(), source };
        // Moving a process also needs write access to this file.
        let entry = fs::File::options().write(true).open(path.join("cgroup.procs")).map_err(failed)?;
        let owner = entry.metadata().map_err(failed)?.uid();
        may_enter(owner, rustix::process::geteuid().as_raw()).map_err(failed)?;
        if !has("cgroup.subtree_control") {
            write(&path.join("cgroup.subtree_control"), "+memory +pids").map_err(failed)?;
        }
        Ok(Delegated(path.to_owned()))
    }

    /// Makes a child group whose processes together have at most `memory_bytes` bytes of memory and
    /// `threads` threads. The memory includes files in memory and the kernel's memory for the processes.
    /// The group uses no swap, and if its memory is exhausted, the kernel kills all its processes; kernels
    /// that lack these two settings do without.
    ///
    /// # Errors
    /// From the file system. In this case, no group made by this call is left.
    pub fn group(&self, memory_bytes: u64, threads: u64) -> io::Result<Group> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let path = loop {
            // Relaxed: the numbers only have to differ.
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = self.0.join(format!("framepath-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                // A process with this id has left it when it was killed, or one of another pid namespace uses it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => break made.map(|()| path)?,
            }
        };
        // Only a group made here is removed at the end.
        let group = Group(path);
        write(&group.0.join("memory.max"), &memory_bytes.to_string())?;
        write(&group.0.join("pids.max"), &threads.to_string())?;
        // Kernels without swap accounting lack the first file, kernels before 4.19 the second.
        let _ = write(&group.0.join("memory.swap.max"), "0");
        let _ = write(&group.0.join("memory.oom.group"), "1");
        Ok(group)
    }
}

impl Group {
    /// Opens the file to which a process writes `0` to enter the group (cgroup.procs), for writing.
    ///
    /// # Errors
    /// From the file system.
    pub fn entry(&self) -> io::Result<fs::File> {
        fs::File::options().write(true).open(self.0.join("cgroup.procs"))
    }

    /// Returns true if a process is in the group; false also if the group cannot be read.
    pub fn has_process(&self) -> bool {
        fs::read(self.0.join("cgroup.procs")).is_ok_and(|ids| !ids.is_empty())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Fails if a process is left, which the group's owner should have prevented. The group is
        // then removed with the delegated hierarchy.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Checks that a worker of user `own` may enter a group that belongs to `owner`: it has no capabilities, so what root
/// may open is not enough.
fn may_enter(owner: u32, own: u32) -> io::Result<()> {
    if own == 0 && owner != 0 {
        let text =
            format!("it belongs to user {owner}, and a worker of root without capabilities cannot enter it");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

/// Writes `text` to the existing file `path`.
fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::File::options().write(true).open(path)?.write_all(text.as_bytes())
}

/// Returns the path of this process's group in the hierarchy of version 2; `None` if there is none.
/// `text` is the content of /proc/self/cgroup.
fn own_group(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a temporary folder with the files of a cgroup; `controllers` is the content of
    /// cgroup.controllers.
    fn tree(name: &str, controllers: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("framepath-cgroup-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        for (file, text) in [("cgroup.controllers", controllers), ("cgroup.procs", "")] {
            fs::write(path.join(file), text).unwrap();
        }
        fs::write(path.join("cgroup.subtree_control"), "").unwrap();
        path
    }

    #[test]
    fn the_group_of_version_2_is_found_among_the_others() {
        assert_eq!(own_group("4:memory:/a\n0::/user.slice/x.scope\n"), Some("/user.slice/x.scope"));
        assert_eq!(own_group("4:memory:/a\n"), None);
    }

    #[test]
    fn the_controllers_are_switched_on_where_they_are_there() {
        let path = tree("has", "cpu memory pids\n");
        Delegated::at(&path).unwrap();
        assert_eq!(fs::read_to_string(path.join("cgroup.subtree_control")).unwrap(), "+memory +pids");
        fs::remove_dir_all(path).unwrap();
        let path = tree("lacks", "cpu pids\n");
        assert!(matches!(Delegated::at(&path), Err(CgroupError::NoParent)));
        fs::remove_dir_all(path).unwrap();
        assert!(matches!(Delegated::at(Path::new("/nowhere")), Err(CgroupError::NoParent)));
    }

    #[test]
    fn root_makes_no_groups_in_the_tree_of_another_user() {
        assert_eq!(may_enter(1000, 0).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        for (owner, own) in [(0, 0), (1000, 1000), (0, 1000)] {
            // The kernel's own check of the mode has decided for other users.
            may_enter(owner, own).unwrap();
        }
    }

    /// An ordinary folder has none of a cgroup's files, so making a group fails behind the making of its folder.
    #[test]
    fn a_group_that_a_killed_process_has_left_is_not_used() {
        let path = tree("left", "memory pids\n");
        let delegated = Delegated::at(&path).unwrap();
        for number in 0..100 {
            fs::create_dir(path.join(format!("framepath-{}-{number}", std::process::id()))).unwrap();
        }
        assert_eq!(delegated.group(1, 1).unwrap_err().kind(), io::ErrorKind::NotFound);
        let left = fs::read_dir(&path).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir());
        assert_eq!(left.count(), 100);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_group_whose_limits_cannot_be_set_is_not_left_behind() {
        let path = tree("limits", "memory pids\n");
        let delegated = Delegated::at(&path).unwrap();
        // An ordinary folder has no file memory.max.
        assert!(delegated.group(1, 1).is_err());
        let left = fs::read_dir(&path).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir());
        assert_eq!(left.count(), 0);
        fs::remove_dir_all(path).unwrap();
    }
}
