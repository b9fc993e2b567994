// SPDX-License-Identifier: MIT OR Apache-2.0
//! Room for short-lived processes beside an observed program, which has the same limits of processes.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, geteuid, getrlimit};

use super::controller_groups::controller_groups;

/// Smallest limit of the user's processes (`ulimit -u`) that counts as wide. How many there are is not known.
const WIDE: u64 = 1024;

/// Part of the free numbers that short-lived processes may take together.
const PART: u64 = 64;

/// Returns true if this process may start `count` processes or threads for a short time, without taking a number that another
/// program in its cgroups (`pids.max`) or of its user will want: more than half of each limit is free, and they take 1/64
/// of that. Reads some files.
pub fn has_room_for(count: u64) -> bool {
    // Root has no such limit.
    let of_user = getrlimit(Resource::Nproc).current.filter(|_| !geteuid().is_root());
    let groups = controller_groups(std::process::id(), "pids");
    of_user.is_none_or(|most| most >= WIDE && count <= most / PART)
        && groups.iter().all(|group| has_group_room(group, count))
}

/// Returns true if the group of the folder `group` has room.
fn has_group_room(group: &Path, count: u64) -> bool {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    // Without a number, there is no limit: the root group has no file.
    let Some(most) = number("pids.max") else { return true };
    let free = most.saturating_sub(number("pids.current").unwrap_or(most));
    free > most / 2 && count <= free / PART
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_room_if_most_of_its_numbers_are_free() {
        let folder = std::env::temp_dir().join(format!("process-room-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let has_room = |most: &str, current: &str, count| {
            fs::write(folder.join("pids.max"), most).unwrap();
            fs::write(folder.join("pids.current"), current).unwrap();
            has_group_room(&folder, count)
        };
        assert!(has_room("max\n", "70000\n", 32));
        assert!(has_room("300\n", "30\n", 4) && !has_room("300\n", "30\n", 5));
        assert!(has_room("1000\n", "400\n", 9) && !has_room("1000\n", "600\n", 1));
        assert!(!has_room("8\n", "2\n", 1) && !has_room("3\n", "9\n", 1));
        fs::remove_dir_all(&folder).unwrap();
        assert!(has_group_room(&folder, 1000));
    }
}
