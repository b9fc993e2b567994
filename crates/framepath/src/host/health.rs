// SPDX-License-Identifier: MIT OR Apache-2.0
//! Health of one worker: counts of the work in flight, and the check that the worker makes progress.
//!
//! No other module counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use framepath_os::crossing::{Bell, SharedArea, WatchResult, completions};

use super::Traffic;
use super::policy::{Watchdog, WorkerProgress};

/// Progress of a worker as its caller sees it, for any thread. The counts order no other memory:
/// they are only observed from outside (Relaxed).
pub(super) struct WorkerHealth {
    area: Arc<SharedArea>,
    /// Where the collect end sleeps.
    collect_bell: Bell,
    gone: AtomicBool,
    /// The submit end has an entry for the collect end, which may be asleep.
    attention: AtomicBool,
    /// Cells submitted to the worker and taken from it, and messages.
    pub(super) traffic: Traffic,
    /// Input pools announced by messages, which the worker reads when it needs them.
    announced_pools: AtomicU32,
    /// Frames among the cells submitted; the worker answers each of them.
    inputs: AtomicU64,
    /// Cells taken from the worker that answer a frame.
    answers: AtomicU64,
    /// Frames of its pools that later stages hold.
    frames_out: AtomicU64,
    /// Frames that are out, at the least, when the worker waits for a slot.
    least_out: u64,
    /// Cells taken from the worker that are no progress.
    late: AtomicU64,
    /// The worker was told to drain or to flush, and has not answered.
    owes_answer: AtomicBool,
    /// The collect end sleeps until the worker completes something.
    collect_sleeps: AtomicBool,
    /// The submit end sleeps until the worker makes room.
    submit_sleeps: AtomicBool,
    /// The collect end is getting the memory that the worker waits for.
    lending: AtomicBool,
    watchdog: Watchdog,
}

impl WorkerHealth {
    /// Counts an input pool that is announced to the worker; called before its message is sent.
    pub(super) fn announce_pool(&self) {
        // Release: pairs with the load in `announced_pools`.
        self.announced_pools.fetch_add(1, Ordering::Release);
    }

    /// Returns how many input pools were announced.
    pub(super) fn announced_pools(&self) -> u32 {
        // Acquire: pairs with the addition in `announce_pool`.
        self.announced_pools.load(Ordering::Acquire)
    }

    /// Makes the counts of the worker of `area`. The worker is ended after `watchdog` without progress.
    /// It waits for a slot of its pool only while `least_out` or more of its frames are out; 0 means 1.
    pub(super) fn new(area: Arc<SharedArea>, watchdog: Duration, least_out: u32) -> WorkerHealth {
        WorkerHealth {
            collect_bell: completions(&area).1.bell().clone(),
            area,
            gone: AtomicBool::new(false),
            attention: AtomicBool::new(false),
            traffic: Traffic::default(),
            announced_pools: AtomicU32::new(0),
            inputs: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            frames_out: AtomicU64::new(0),
            least_out: u64::from(least_out.max(1)),
            late: AtomicU64::new(0),
            owes_answer: AtomicBool::new(false),
            collect_sleeps: AtomicBool::new(false),
            submit_sleeps: AtomicBool::new(false),
            lending: AtomicBool::new(false),
            watchdog: Watchdog::new(watchdog),
        }
    }

    /// Counts a cell submitted; `is_frame` if the worker has to answer it.
    pub(super) fn submitted(&self, is_frame: bool) {
        self.traffic.cells_out.fetch_add(1, Ordering::Relaxed);
        if is_frame {
            self.inputs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a cell taken from the worker; `is_answer` if it answers a frame.
    pub(super) fn completed(&self, is_answer: bool) {
        self.traffic.cells_in.fetch_add(1, Ordering::Relaxed);
        if is_answer {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Cells submitted to the worker.
    pub(super) fn submissions(&self) -> u64 {
        self.traffic.cells_out.load(Ordering::Relaxed)
    }

    /// Cells that the worker reports as taken, limited to the number submitted.
    pub(super) fn taken(&self) -> u64 {
        self.area.taken().min(self.traffic.cells_out.load(Ordering::Relaxed))
    }

    /// Counts a frame of the worker's pools that went to the later stages.
    pub(super) fn frame_out(&self) {
        self.frames_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts such a frame that came back.
    pub(super) fn frame_back(&self) {
        self.frames_out.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that the worker was told to drain or to flush, or has answered all of these.
    pub(super) fn set_answer_due(&self, owes: bool) {
        self.owes_answer.store(owes, Ordering::Relaxed);
    }

    /// Counts the last cell taken as no progress.
    pub(super) fn record_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the collect end goes to sleep, or wakes.
    pub(super) fn collect_sleeps(&self, sleeps: bool) {
        self.collect_sleeps.store(sleeps, Ordering::Relaxed);
    }

    /// Notes that the submit end goes to sleep, or wakes.
    pub(super) fn submit_sleeps(&self, sleeps: bool) {
        self.submit_sleeps.store(sleeps, Ordering::Relaxed);
    }

    /// Notes that the collect end starts or stops getting memory to lend.
    pub(super) fn lending(&self, lending: bool) {
        self.lending.store(lending, Ordering::Relaxed);
    }

    /// Wakes the collect end to read the log.
    pub(super) fn request_attention(&self) {
        // Release: pairs with the Acquire in `pays_attention`; the log's entry is written
        // before the call. The fences of the bell order the store with the check before a sleep.
        self.attention.store(true, Ordering::Release);
        self.collect_bell.ring_out();
    }

    /// True after [`WorkerHealth::call_attention`].
    pub(super) fn is_attention_requested(&self) -> bool {
        self.attention.load(Ordering::Relaxed)
    }

    /// Clears the call: the collect end reads the log next.
    pub(super) fn clear_attention(&self) {
        // Acquire: pairs with the Release in `call_attention`. A swap, so that no call
        // is lost between the read and the store.
        self.attention.swap(false, Ordering::Acquire);
    }

    /// True once the worker has gone. Its completed cells can still be taken.
    pub(super) fn is_gone(&self) -> bool {
        // Acquire: pairs with the Release in `end`, so that a read of the ring
        // after this one finds the worker's last cells.
        self.gone.load(Ordering::Acquire)
    }

    /// Notes that the worker is gone, and wakes both ends.
    pub(super) fn end(&self) {
        // Release: pairs with the Acquire in `is_gone`.
        self.gone.store(true, Ordering::Release);
        // The bell's fence comes between this store and the collect end's next read of the
        // log; the fence of `call_attention` or `Bell::ring` comes between an entry of the log
        // and the submit end's next read of `gone`. So one of the two ends sees the other's store.
        self.collect_bell.ring_out();
        Bell::for_room(&self.area).ring_out();
        Bell::for_packets(&self.area).ring_out();
    }

    /// Checks progress, in the watcher's thread: calls `kill` for a worker that has work, stands
    /// still for longer than the watchdog allows, and does not wait for this process.
    ///
    /// How far each value reported by the worker is trusted: a position counts if
    /// it is higher than ever before, and up to the number of cells submitted. Its claim to wait for a
    /// slot counts only while so many of its frames are out that an honest worker could lack a slot.
    pub(super) fn check(&self, kill: impl FnOnce()) -> WatchResult {
        let submitted = self.traffic.cells_out.load(Ordering::Relaxed);
        let done = self.traffic.cells_in.load(Ordering::Relaxed);
        let taken = self.area.taken();
        // The worker may have no room in the ring for its completions, or no slot for a frame.
        let collect_sleeps = self.collect_sleeps.load(Ordering::Relaxed);
        let waits_for_us = self.lending.load(Ordering::Relaxed)
            || (!collect_sleeps && self.area.completed() != done)
            || (self.frames_out.load(Ordering::Relaxed) >= self.least_out && self.area.worker_awaits_slot());
        let has_no_work = taken == submitted
            && self.answers.load(Ordering::Relaxed) >= self.inputs.load(Ordering::Relaxed)
            && !self.owes_answer.load(Ordering::Relaxed)
            && !self.submit_sleeps.load(Ordering::Relaxed)
            && self.area.worker_sleeps();
        let cells = taken.min(submitted) + done.saturating_sub(self.late.load(Ordering::Relaxed));
        self.watchdog.check(&WorkerProgress { cells, waits_for_us, has_no_work }, kill)
    }
}

#[cfg(test)]
mod tests {
    use framepath_os::crossing::{Sizes, submissions};

    use super::*;

    /// Makes the counts of a worker that has not taken its one packet, and claims to wait for a slot.
    fn waiting(least_out: u32) -> WorkerHealth {
        let area = Arc::new(SharedArea::new(Sizes { cells: 8, packet_bytes: 0 }).unwrap());
        submissions(&area).0.push_quietly(&[0; 8]).unwrap();
        area.slot_bell().store(1, Ordering::Relaxed);
        let health = WorkerHealth::new(area, Duration::ZERO, least_out);
        health.submitted(false);
        health.collect_sleeps(true);
        health
    }

    fn is_killed(health: &WorkerHealth) -> bool {
        let mut is_killed = false;
        health.check(|| is_killed = true);
        is_killed
    }

    #[test]
    fn a_worker_waits_for_a_slot_only_where_its_pool_can_lack_one() {
        for (least_out, least) in [(0, 1), (1, 1), (8, 8)] {
            let health = waiting(least_out);
            for out in 0..least {
                assert!(is_killed(&health), "{out} of {least}");
                health.frame_out();
            }
            assert!(!is_killed(&health), "{least}");
            health.frame_back();
            assert!(is_killed(&health), "{least}");
        }
    }

    #[test]
    fn a_worker_that_owes_an_answer_has_work_though_it_sleeps() {
        let area = Arc::new(SharedArea::new(Sizes { cells: 8, packet_bytes: 0 }).unwrap());
        let health = WorkerHealth::new(area.clone(), Duration::ZERO, 1);
        let (writer, mut reader) = submissions(&area);
        std::thread::scope(|scope| {
            let worker = scope.spawn(move || reader.sleep(|| false, None));
            while !area.worker_sleeps() {
                std::thread::yield_now();
            }
            assert!(!is_killed(&health));
            health.set_answer_due(true);
            assert!(is_killed(&health));
            health.set_answer_due(false);
            assert!(!is_killed(&health));
            while !worker.is_finished() {
                writer.bell().ring();
            }
        });
    }

    #[test]
    fn late_output_is_no_progress() {
        let health = waiting(8);
        assert!(is_killed(&health));
        health.completed(false);
        assert!(!is_killed(&health));
        health.completed(false);
        health.record_late();
        assert!(is_killed(&health));
    }
}
