// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resources that a case of `faults` leaks: processes, descriptors and shared memory.

use std::fs;

use framepath::host::dismiss_spares;

use crate::descendants::descendants;

/// Numbers of this process's descendants, open descriptors, and mappings of framepath's shared memory.
/// [`Holdings::now`] ends the spare workers before it counts, because they are not a leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holdings {
    processes: u64,
    fds: u64,
    shared: u64,
}

impl Holdings {
    pub(super) fn now() -> Holdings {
        dismiss_spares();
        let fds = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Holdings {
            processes: descendants(std::process::id()).len() as u64,
            fds,
            shared: maps.lines().filter(|line| line.contains("/memfd:framepath-")).count() as u64,
        }
    }

    /// Returns the increase of each number since `before`, with the key of a row; 0 for a decrease.
    pub(super) fn more_than(&self, before: &Holdings) -> [(&'static str, f64); 3] {
        let more = |now: u64, before: u64| now.saturating_sub(before) as f64;
        [
            ("left_processes", more(self.processes, before.processes)),
            ("left_fds", more(self.fds, before.fds)),
            ("left_shared_memory", more(self.shared, before.shared)),
        ]
    }
}
