// SPDX-License-Identifier: MIT OR Apache-2.0
//! End of one thread of a run, and its result.

use framepath_os::time::thread_cpu_ns;

use crate::out::{HopFailure, HopStage, ThreadContext};
use crate::recorder::{Recorded, Recorder};

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
