// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results that the hops of a run report in addition to frames: notes, losses, statistics of workers.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use crate::damage::DamageLog;
use crate::host::WorkerStats;
use crate::notes::Notes;
use crate::row_tap::RemoteEnd;

/// Counts and notes that hops write and the run's report reads. Clones share the counts and notes.
#[derive(Clone, Default)]
pub(crate) struct Outcomes {
    /// Lines that hops report to the user without an error, such as a fallback to software. They become
    /// [`Report::notes`](crate::Report::notes).
    pub(crate) notes: Notes,
    /// Damage that decoders in this process have found.
    pub(crate) damage: DamageLog,
    /// Number of frames that the source's device dropped or damaged, by the gaps in the driver's frame numbers.
    /// 0 for a source without a device, and for `v4l2` with `io=read`.
    pub(crate) missed: Arc<AtomicU64>,
    /// Number of frames that were dropped in front of an encoder, because the network is slower than the stream.
    pub(crate) congested: Arc<AtomicU64>,
    /// Counters of the `play` sink; empty if the path has none.
    pub(crate) played: Arc<OnceLock<Arc<Played>>>,
    /// True if the source's container or codec is an unusual one, for which the source chose a worker by itself.
    pub(crate) is_unusual: Arc<AtomicBool>,
    /// True if the source reads an image sequence, of which each file is a packet.
    pub(crate) is_sequence: Arc<AtomicBool>,
    /// True if the source is [live](crate::Source::is_live).
    pub(crate) is_live: Arc<AtomicBool>,
    /// Statistics of the worker that demuxes the source's file, or of the workers that receive its network stream;
    /// empty if no worker does.
    pub(crate) demuxer: Arc<OnceLock<Arc<WorkerStats>>>,
    /// Counters of the source's connections to the network; all 0 for a source that does not count them.
    pub(crate) network: Arc<NetworkStats>,
    /// Other end of the path's network stream that has a ledger of its own; empty if the path has none.
    pub(crate) remote: Arc<OnceLock<Arc<dyn RemoteEnd>>>,
}

/// Counters of a source that reads from the network. The source's thread writes them; any thread may read them,
/// and readers do not depend on the order of the writes.
#[derive(Debug, Default)]
pub(crate) struct NetworkStats {
    /// Number of packets of the network (RTP) that were lost.
    pub(crate) lost: AtomicU64,
    /// Number of frames that a source dropped because packets of them were lost, or of frames that they depend on; 0
    /// for a source that hands on damaged frames.
    pub(crate) lost_frames: AtomicU64,
    /// Number of those frames that lost no packet, and whose packets are not valid.
    pub(crate) invalid_frames: AtomicU64,
    /// Number of frames that the sender of a stream has dropped.
    pub(crate) unsent_frames: AtomicU64,
    /// Number of times that the connection was lost and made again.
    pub(crate) reconnects: AtomicU64,
    /// Total time from the loss of each connection to the next one, nanoseconds. The time after the last connection
    /// does not count.
    pub(crate) gap_ns: AtomicU64,
}

/// Counters of a `play` sink. The sink's thread writes them; any thread may read them, and readers do not
/// depend on the order of the writes.
#[derive(Debug, Default)]
pub(crate) struct Played {
    /// Number of frames that the screen has shown; with `driver=null`, of those whose time has come.
    pub(crate) shown: AtomicU64,
    /// Number of frames that were not shown: they were late, or the screen's refresh rate is too low.
    pub(crate) late: AtomicU64,
    /// 1 if the viewer, or a signal or stop request during a pause, has ended the playback; else 0.
    pub(crate) ended: AtomicU64,
}
