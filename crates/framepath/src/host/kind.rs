// SPDX-License-Identifier: MIT OR Apache-2.0
//! What workers are for.

use std::path::PathBuf;
use std::time::Duration;

use framepath_os::sandbox::Limits;
use framepath_os::spawn::Bounds;

/// How long a worker may take to load and lock itself in.
pub(crate) const LOADING: Duration = Duration::from_secs(20);

/// What distinguishes one worker's start from another's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub(crate) memory_bytes: u64,
    pub(crate) task: Task,
    /// It goes on where the kernel has no seccomp.
    pub(crate) without_seccomp: bool,
}

impl Kind {
    /// Bounds of its cgroup.
    pub(super) fn bounds(&self) -> Bounds {
        Bounds { memory_bytes: self.memory_bytes, threads: Limits::default().threads }
    }
}

/// What a worker is for, which decides what its sandbox lets it do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// To run a stage that needs no file.
    Stage,
    /// To decode by a device that it is sent.
    Device,
    /// To run the plug-in of this canonical name.
    Plugin(PathBuf),
}
