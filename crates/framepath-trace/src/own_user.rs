// SPDX-License-Identifier: MIT OR Apache-2.0
//! User of this process, whose processes alone it may record unless it is root. The kernel would let it record others, too, if it has
//! CAP_PERFMON and CAP_BPF.
//!
//! Format: proc(5), "status".

use std::fs;
use std::io;

/// Effective user and group of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnUser {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

impl OwnUser {
    /// Returns the user and group of this process; `None` for root.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub(crate) fn unless_root() -> io::Result<Option<OwnUser>> {
        let status = fs::read_to_string("/proc/self/status")?;
        let effective = |name| ids(&status, name).map(|[_, effective, ..]| effective);
        match (effective("Uid:"), effective("Gid:")) {
            (Some(user), Some(group)) => Ok(Some(OwnUser { user, group }).filter(|own| own.user != 0)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Returns a user of the process `process` that is not this one; `None` if there is none.
    ///
    /// # Errors
    /// There is no such process, or /proc is not mounted.
    pub(crate) fn other_user(self, process: u32) -> io::Result<Option<u32>> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let users = ids(&status, "Uid:").ok_or(io::ErrorKind::InvalidData)?;
        Ok(users.into_iter().find(|user| *user != self.user))
    }
}

/// Returns the real, effective, saved and file system's ids of a process.
fn ids(status: &str, name: &str) -> Option<[u32; 4]> {
    let ids = status.lines().find_map(|line| line.strip_prefix(name))?;
    let ids: Vec<u32> = ids.split_whitespace().filter_map(|id| id.parse().ok()).collect();
    ids.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_another_users_by_each_of_its_ids() {
        let status = "Name:\tUid:\nUid:\t1000\t0\t1002\t4294967294\nGid:\t7\t8\t9\t10\n";
        assert_eq!(ids(status, "Uid:"), Some([1000, 0, 1002, 4_294_967_294]));
        assert_eq!(ids(status, "Gid:"), Some([7, 8, 9, 10]));
        for text in ["", "Uid:\t1\t2\t3\n", "Uid:\t1\t2\t3\tx\n"] {
            assert_eq!(ids(text, "Uid:"), None, "{text}");
        }
        let process = std::process::id();
        let own = ids(&fs::read_to_string("/proc/self/status").unwrap(), "Uid:").unwrap();
        let user = OwnUser { user: own[1], group: 0 };
        let other = OwnUser { user: own[1] ^ 1, group: 0 };
        assert_eq!(user.other_user(process).unwrap(), None);
        assert_eq!(other.other_user(process).unwrap(), Some(own[0]));
        assert!(user.other_user(u32::MAX).is_err());
        assert_eq!(OwnUser::unless_root().unwrap().is_none(), own[1] == 0);
    }
}
