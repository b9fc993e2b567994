// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the hops of a run report besides their frames.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use crate::host::WorkerStats;
use crate::notes::Notes;

/// Counts and remarks that hops write and the run's report reads; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Outcomes {
    /// What users should know.
    pub(crate) notes: Notes,
    /// Frames that the source's device dropped.
    pub(crate) missed: Arc<AtomicU64>,
    /// What a window has shown, where the path ends in one.
    pub(crate) played: Arc<OnceLock<Arc<Played>>>,
    /// The worker that demuxes, where there is one.
    pub(crate) demuxer: Arc<OnceLock<Arc<WorkerStats>>>,
}

/// Counts of a run, for whoever looks; one thread writes, and the order does
/// not matter to those who read.
#[derive(Debug, Default)]
pub(crate) struct Played {
    pub(crate) shown: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) ended: AtomicU64,
}
