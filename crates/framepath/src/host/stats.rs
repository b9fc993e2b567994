// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of the workers of one stream.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::{Recoveries, Traffic};

/// Statistics of a stream's workers; any thread may read them.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Process id of the worker; 0 before the first. For display and
    /// measurement only: the process may have gone.
    pub pid: AtomicU32,
    /// Workers that died, hung or broke the rules.
    pub deaths: AtomicU64,
    /// Packets or frames that were submitted again.
    pub replayed: AtomicU64,
    /// Packets skipped, because they, or packets they need, kill every worker.
    pub skipped: AtomicU64,
    /// Number of the first packet that was skipped as poisoned, plus one.
    pub first_poisoned: AtomicU64,
    /// Frames that were inside a worker that died, and cannot be made again.
    pub lost: AtomicU64,
    /// Number of the first of them, plus one.
    pub first_lost: AtomicU64,
    /// CPU time of the workers that have ended, from their start on,
    /// nanoseconds.
    pub cpu_ns: AtomicU64,
    /// Layers that the sandbox of the first worker lacks, in words for people; empty if it lacks none.
    pub sandbox_note: Mutex<String>,
    /// Reason why the last of them was replaced.
    pub last_death: Mutex<String>,
    /// How long each replacement took.
    pub recoveries: Recoveries,
    /// Messages and cells exchanged with workers that have ended.
    pub traffic: Traffic,
}
