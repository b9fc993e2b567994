// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a worker of the service.
//!
//! The worker writes the counters to a page that the service created. A write makes no system call and wakes
//! no process.

use framepath_model::format::Layout;
use framepath_model::wire::WorkerTime;
use framepath_model::wire::figures::{self, Figures, Histogram};
use framepath_os::crossing::Page;
use framepath_os::time::now_ns;

/// Number of newest inputs whose time is kept. It exceeds the reorder delay of any decoder.
const REMEMBERED: usize = 1024;

/// Counters of the one stream of a worker of the service. The worker writes the counters, the service reads
/// them.
pub(super) struct Tally {
    page: Page,
    /// For each of the last inputs: its number plus one (0 in an unused entry), and the CLOCK_MONOTONIC time,
    /// nanoseconds, when the stage took it.
    taken: Box<[(u64, u64); REMEMBERED]>,
}

impl Tally {
    pub(super) fn new(page: Page, stage: &str) -> Tally {
        for (at, word) in Figures::label_words(stage).into_iter().enumerate() {
            page.set(figures::LABEL + at, word);
        }
        Tally { page, taken: Box::new([(0, 0); REMEMBERED]) }
    }

    /// Counts input `seq` as taken by the stage, and records the time. In a demuxer's worker: counts packet
    /// `seq` as read.
    pub(super) fn count_input(&mut self, seq: u64) {
        self.page.add(figures::INPUTS, 1);
        self.taken[seq as usize % REMEMBERED] = (seq.wrapping_add(1), now_ns());
    }

    /// Counts a frame of input `seq` as emitted by the stage, and adds its latency, from the time when the
    /// stage took the input, and the times by cause in `work` to the counters. Sets the counter of the frame
    /// size to the size of this frame; `layout` is `None` for a packet. The latency is left out if the time of the input is no longer kept.
    pub(super) fn count_output(&mut self, seq: u64, work: &WorkerTime, layout: Option<&Layout>) {
        let page = &self.page;
        let (number, since) = self.taken[seq as usize % REMEMBERED];
        if number == seq.wrapping_add(1) {
            let latency = now_ns().saturating_sub(since);
            page.add(figures::LATENCY_SUM, latency);
            page.add(figures::LATENCY + Histogram::bucket(latency), 1);
        }
        let (held_ns, pool_ns) = if work.is_pool { (0, work.inside_ns) } else { (work.inside_ns, 0) };
        let causes = [work.compute_ns, work.copy_ns, held_ns, work.preempted_ns, work.blocked_ns, pool_ns];
        for (at, ns) in causes.into_iter().enumerate() {
            page.add(figures::CAUSE + at, ns.into());
        }
        if let Some(layout) = layout {
            page.set(figures::SIZE, u64::from(layout.height) << 32 | u64::from(layout.width));
        }
        page.add(figures::FRAMES, 1);
    }
}
