// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extent of a recording.

use serde::Serialize;

/// Extent of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TraceLevel {
    /// Times of threads: of one's own programs, without a privilege.
    Threads,
    /// Frames and stages of a command, by a preloaded library: without a privilege. See
    /// [`crate::Recording::of_command`].
    Preload,
    /// Frames, stages and causes, by BPF: root, or CAP_BPF and CAP_PERFMON.
    Bpf,
}

impl TraceLevel {
    /// Returns the name of the level, as options and reports have it.
    pub fn name(self) -> &'static str {
        match self {
            TraceLevel::Threads => "threads",
            TraceLevel::Preload => "preload",
            TraceLevel::Bpf => "bpf",
        }
    }
}
