// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of the workers of one stream.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::{Recoveries, Traffic};

/// Statistics of a stream's workers. Any thread may read the fields.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Process id of the present worker; 0 before the first. For display and measurement only, because
    /// the process may be gone.
    pub pid: AtomicU32,
    /// Number of workers that died, hung or broke the rules, and were replaced.
    pub deaths: AtomicU64,
    /// Number of packets or frames that were submitted again.
    pub replayed: AtomicU64,
    /// Number of skipped packets: packets that kill every worker, and packets that depend on such packets.
    pub skipped: AtomicU64,
    /// Number of the first packet that was skipped because it kills every worker, plus one; 0 if there is
    /// none.
    pub first_poisoned: AtomicU64,
    /// Number of frames that were inside a worker when the worker died, and that the stage cannot repeat.
    pub lost: AtomicU64,
    /// Number of the first lost frame, plus one; 0 if there is none.
    pub first_lost: AtomicU64,
    /// CPU time of the ended workers since their start, nanoseconds.
    pub cpu_ns: AtomicU64,
    /// Note for the user about missing layers of the first worker's sandbox; empty if no layer is
    /// missing.
    pub sandbox_note: Mutex<String>,
    /// Reason why the last worker was replaced; empty if none was.
    pub last_death: Mutex<String>,
    /// Durations of the replacements.
    pub recoveries: Recoveries,
    /// Messages and cells exchanged with workers that have ended.
    pub traffic: Traffic,
}
