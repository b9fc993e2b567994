// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of the workers of one stream.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::{Recoveries, Traffic};
use crate::damage::DamageLog;

/// Statistics of a stream's workers, or of a demuxer's worker, which is never replaced. A network source has
/// one statistic for the demuxer's workers of all its connections. Any thread may read the fields.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Process id of the newest worker; 0 before the first, and if the id is not visible to this program.
    /// For display and measurement only, because the process may be gone.
    pub pid: AtomicU32,
    /// Number of workers that died, hung, broke the rules or lost the connection to this process. The stream
    /// replaced each of them, except a last one after which the stream failed. Workers of an abandoned stream
    /// are not counted. 0 for a demuxer's worker.
    pub deaths: AtomicU64,
    /// Number of submissions of packets or frames that an earlier worker had got, too; 0 until the stream has
    /// ended.
    pub replayed: AtomicU64,
    /// Number of packets whose output is missing: packets that were given up because workers died at them,
    /// packets that depend on such packets, packets that were no longer kept for a replay, and, without any
    /// death, packets whose frames arrived after the history had forgotten the packets completely. Complete
    /// when the stream has ended.
    pub skipped: AtomicU64,
    /// Number of the first packet that was given up because workers died at it, plus one; 0 if there is no
    /// such packet. Inputs and flushes are counted together, from 0.
    pub first_poisoned: AtomicU64,
    /// True if a worker has died that takes frames instead of packets.
    pub takes_frames: AtomicBool,
    /// Number of inputs without output that were inside a worker when it died, in a stage whose inputs
    /// cannot be submitted again.
    pub lost: AtomicU64,
    /// Number of the first input that counts as `lost`, plus one; 0 if the stream keeps the number of no such
    /// input. Inputs and flushes are counted together, from 0. Inputs that the history had forgotten count in
    /// `lost` only.
    pub first_lost: AtomicU64,
    /// Number of workers that died after they took an input, in a stage whose inputs cannot be submitted again:
    /// the next worker does not know the earlier inputs.
    pub lost_states: AtomicU64,
    /// CPU time of the stream's ended workers, from the start of their processes, nanoseconds. Left out are
    /// workers whose process id is not visible to this program, and workers that had died and were reaped by
    /// the zygote before this process read their clock.
    pub cpu_ns: AtomicU64,
    /// CPU time that the workers reported for the frames of a pipeline, nanoseconds; 0 outside a pipeline. At
    /// the ledger's level `times` only the time of copies, by the clock; 0 at level `off`.
    pub reported_cpu_ns: AtomicU64,
    /// Note for the user about missing confining layers of the first worker's sandbox; empty if none is
    /// missing.
    pub sandbox_note: Mutex<String>,
    /// Reason of the last death that is counted in `deaths`, as a text; empty if there is none.
    pub last_death: Mutex<String>,
    /// Damage that the decoder in the workers has found.
    pub(crate) damage: DamageLog,
    /// Times of the replacements of workers.
    pub recoveries: Recoveries,
    /// Messages and cells exchanged with the workers that have ended. For a demuxer's worker only the cells
    /// received so far; the other counts are 0.
    pub traffic: Traffic,
}
