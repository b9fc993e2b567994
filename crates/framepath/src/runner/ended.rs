// SPDX-License-Identifier: MIT OR Apache-2.0
//! End of one thread of a run, and its result.

use framepath_os::time::thread_cpu_ns;

use crate::error::RunError;
use crate::out::{HopFailure, HopStage, ThreadContext};
use crate::pipeline::ThreadSegment;
use crate::recorder::{Recorded, Recorder};
use crate::report::SinkReport;
use crate::stage::HopRole;

/// Result of one thread.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) recorded: Recorded,
    /// CPU time on no frame in particular: hop index and nanoseconds.
    pub(super) cpu_without_frame: Vec<(u16, u64)>,
    /// Number of items that the thread's sink took; 0 without a sink.
    pub(super) delivered: u64,
    /// First failure in the thread; also one that only reports that a hop takes no more items. Failures after
    /// a signal or stop request do not count. `None` if there is none.
    pub(super) failure: Option<HopFailure>,
}

impl Ended {
    /// Drops the hops of the calling thread, and returns the thread's result.
    pub(super) fn new(
        chain: Vec<HopStage>,
        mut recorder: Recorder,
        delivery: &ThreadContext,
        failure: Option<HopFailure>,
    ) -> Ended {
        for hop in chain {
            let (index, before_ns) = (hop.index, thread_cpu_ns());
            // A stage with large pools takes milliseconds to return their memory.
            drop(hop);
            recorder.cpu_without_frame(index, thread_cpu_ns() - before_ns);
        }
        let cpu_without_frame = recorder.take_cpu_without_frame();
        let recorded = recorder.finish();
        Ended { recorded, cpu_without_frame, delivered: delivery.delivered(), failure }
    }
}

/// Returns the index in the path of the sink in `segment`; `None` if the segment ends in a queue or worker.
pub(super) fn sink_of(segment: &ThreadSegment) -> Option<u16> {
    segment.chain.iter().find(|hop| hop.role == HopRole::Sink).map(|hop| hop.index)
}

/// Returns the number of frames that each sink of the threads took, in path order; 0 for a thread that could
/// not be started or panicked.
pub(super) fn sinks_of(sinks: &[Option<u16>], ended: &[Result<Ended, RunError>]) -> Vec<SinkReport> {
    let taken = |ended: &Result<Ended, RunError>| ended.as_ref().map_or(0, |ended| ended.delivered);
    let with_sink = sinks.iter().zip(ended).filter_map(|(sink, ended)| Some(((*sink)?, taken(ended))));
    let mut sinks: Vec<_> = with_sink.map(|(hop, frames)| SinkReport { hop, frames }).collect();
    sinks.sort_unstable_by_key(|sink| sink.hop);
    sinks
}
