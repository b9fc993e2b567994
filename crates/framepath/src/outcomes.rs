// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results that the hops of a run report in addition to frames: notes, losses, statistics of workers.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use crate::host::WorkerStats;
use crate::notes::Notes;

/// Counts and notes that hops write and the run's report reads. Clones share the counts and notes.
#[derive(Clone, Default)]
pub(crate) struct Outcomes {
    /// Notes for the user.
    pub(crate) notes: Notes,
    /// Frames that the source's device dropped.
    pub(crate) missed: Arc<AtomicU64>,
    /// Counters of the `play` window, where the path ends in one.
    pub(crate) played: Arc<OnceLock<Arc<Played>>>,
    /// Statistics of the worker that demuxes, where there is one.
    pub(crate) demuxer: Arc<OnceLock<Arc<WorkerStats>>>,
}

/// Counters of a run, readable from any thread. One thread writes them; readers do not depend
/// on their order.
#[derive(Debug, Default)]
pub(crate) struct Played {
    pub(crate) shown: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) ended: AtomicU64,
}
