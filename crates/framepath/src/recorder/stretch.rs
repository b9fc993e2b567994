// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stretches of a thread's time, and the causes of the time between them.

use framepath_model::ledger::{Cause, Row};
use framepath_os::measure::counters::Counts;
use framepath_os::measure::frame_threads::PictureWork;
use framepath_os::time::now_ns;

/// A stretch of the time that one thread spent on one frame: its costs in nanoseconds and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stretch {
    /// Start of the stretch, CLOCK_MONOTONIC nanoseconds.
    pub(super) start_ns: u64,
    /// End of the stretch, CLOCK_MONOTONIC nanoseconds.
    pub(super) end_ns: u64,
    pub(super) copied_bytes: u64,
    pub(super) copy_ns: u64,
    pub(super) blocked_ns: u64,
    pub(super) paced_ns: u64,
    pub(super) device_ns: u64,
    /// Time until an idle thread ran that works for this one, nanoseconds.
    pub(super) wakeup_ns: u64,
    /// Time between the parts of a joined stretch, nanoseconds; 0 for a single stretch.
    pub(super) apart_ns: u64,
    pub(super) compute_ns: u64,
    pub(super) preempted_ns: u64,
    pub(super) counts: Counts,
}

impl Stretch {
    /// Returns an empty stretch inside the time from the end of this one to now: at `ns`, CLOCK_MONOTONIC
    /// nanoseconds, or at the nearer end of that time.
    pub(crate) fn later(&self, ns: u64) -> Stretch {
        let at = ns.clamp(self.end_ns, now_ns().max(self.end_ns));
        Stretch { start_ns: at, end_ns: at, ..Stretch::default() }
    }

    /// Appends a later stretch of the same frame.
    pub(super) fn join(&mut self, later: &Stretch) {
        self.apart_ns += later.start_ns.saturating_sub(self.end_ns) + later.apart_ns;
        self.end_ns = later.end_ns;
        self.copied_bytes += later.copied_bytes;
        self.copy_ns += later.copy_ns;
        self.blocked_ns += later.blocked_ns;
        self.paced_ns += later.paced_ns;
        self.device_ns += later.device_ns;
        self.wakeup_ns += later.wakeup_ns;
        self.compute_ns += later.compute_ns;
        self.preempted_ns += later.preempted_ns;
        self.counts = self.counts + later.counts;
    }
}

/// Cause of the time between two stretches of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// The frame waited for this thread.
    Queue,
    /// Kept for presentation order: no thread worked on the frame.
    Held,
    /// Inside a device.
    Device,
    /// Inside a decoder whose threads share the frames.
    Pool,
    /// Decoded by a frame thread, and kept before its output.
    FrameThread {
        /// Work of the thread on the picture; `None` if it is not known.
        work: Option<PictureWork>,
        /// Time since which only the depth of the frame threads has delayed the frame, CLOCK_MONOTONIC
        /// nanoseconds.
        depth_since_ns: u64,
    },
}

impl Gap {
    /// Returns the cause of the whole gap; `None` if it has several.
    pub(super) fn cause(self) -> Option<Cause> {
        match self {
            Gap::Queue => Some(Cause::Queue),
            Gap::Held => Some(Cause::Held),
            Gap::Device => Some(Cause::Device),
            Gap::Pool => Some(Cause::Pool),
            Gap::FrameThread { .. } => None,
        }
    }
}

/// Adds the costs of `stretch` to `row`.
#[inline]
pub(super) fn add(row: &mut Row, stretch: &Stretch) {
    row.copied_bytes += stretch.copied_bytes;
    row.copy_ns += stretch.copy_ns;
    row.blocked_ns += stretch.blocked_ns;
    row.paced_ns += stretch.paced_ns;
    row.device_ns += stretch.device_ns;
    row.wakeup_ns += stretch.wakeup_ns;
    row.compute_ns += stretch.compute_ns;
    row.preempted_ns += stretch.preempted_ns;
    let counts = &stretch.counts;
    row.voluntary_switches += counts.voluntary_switches as u32;
    row.involuntary_switches += counts.involuntary_switches as u32;
    row.minor_faults += counts.minor_faults as u32;
    row.cycles += counts.events.cycles;
    row.instructions += counts.events.instructions;
    row.cache_misses += counts.events.cache_misses;
}
