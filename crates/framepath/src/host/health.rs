// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of the work in flight between a caller and one worker, and the check that the worker
//! makes progress. Only this module counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use framepath_os::crossing::{Area, Bell, Look, completions};

use super::Traffic;
use super::policy::{Progress, Watchdog};

/// Progress of a worker as its caller sees it, for any thread. The counts order no other memory:
/// they are only observed from outside (Relaxed).
pub(super) struct WorkerHealth {
    area: Arc<Area>,
    /// Where the collect end sleeps.
    collect_bell: Bell,
    gone: AtomicBool,
    /// The submit end has something for the collect end, which may be asleep.
    attention: AtomicBool,
    /// Cells submitted to the worker and taken from it, and messages.
    pub(super) traffic: Traffic,
    /// Frames among the cells submitted; the worker answers each of them.
    inputs: AtomicU64,
    /// Cells taken from the worker that answer a frame.
    answers: AtomicU64,
    /// Frames of its pools that later stages hold.
    frames_out: AtomicU64,
    /// Frames that the worker has to have given away before it waits for a slot.
    least_out: u64,
    /// Cells taken from it that are no progress.
    late: AtomicU64,
    /// The worker was told to drain or to flush, and has not answered.
    owes_answer: AtomicBool,
    /// The collect end sleeps until the worker completes something.
    collect_sleeps: AtomicBool,
    /// The submit end sleeps until the worker makes room.
    submit_sleeps: AtomicBool,
    /// The collect end looks for the memory that the worker waits for.
    lending: AtomicBool,
    watchdog: Watchdog,
}

impl WorkerHealth {
    /// The worker of `area`, which is ended after `watchdog` without progress. It waits for a
    /// slot of its pool with `least_out` of its frames here or more; 0 means 1.
    pub(super) fn new(area: Arc<Area>, watchdog: Duration, least_out: u32) -> WorkerHealth {
        WorkerHealth {
            collect_bell: completions(&area).1.bell().clone(),
            area,
            gone: AtomicBool::new(false),
            attention: AtomicBool::new(false),
            traffic: Traffic::default(),
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

    /// A cell was submitted; `is_frame` where the worker has to answer it.
    pub(super) fn submitted(&self, is_frame: bool) {
        self.traffic.cells_out.fetch_add(1, Ordering::Relaxed);
        if is_frame {
            self.inputs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A cell was taken from the worker; `is_answer` where it answers a frame.
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

    /// Cells that the worker says it has taken, no more than it was given.
    pub(super) fn taken(&self) -> u64 {
        self.area.taken().min(self.traffic.cells_out.load(Ordering::Relaxed))
    }

    /// A frame of the worker's pools went to the later stages.
    pub(super) fn frame_out(&self) {
        self.frames_out.fetch_add(1, Ordering::Relaxed);
    }

    /// It came back.
    pub(super) fn frame_back(&self) {
        self.frames_out.fetch_sub(1, Ordering::Relaxed);
    }

    /// The worker was told to drain or to flush, or has answered all of that.
    pub(super) fn owes_answer(&self, owes: bool) {
        self.owes_answer.store(owes, Ordering::Relaxed);
    }

    /// The last cell that was taken is no progress.
    pub(super) fn came_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    /// The collect end goes to sleep, or wakes.
    pub(super) fn collect_sleeps(&self, sleeps: bool) {
        self.collect_sleeps.store(sleeps, Ordering::Relaxed);
    }

    /// The submit end goes to sleep, or wakes.
    pub(super) fn submit_sleeps(&self, sleeps: bool) {
        self.submit_sleeps.store(sleeps, Ordering::Relaxed);
    }

    /// The collect end looks for memory to lend, or has done so.
    pub(super) fn lending(&self, lending: bool) {
        self.lending.store(lending, Ordering::Relaxed);
    }

    /// Wakes the collect end, so that it looks into the log.
    pub(super) fn call_attention(&self) {
        // Release: pairs with the Acquire in `pays_attention`; the log's entry is there
        // before the call. The fences of the bell order it with the look before a sleep.
        self.attention.store(true, Ordering::Release);
        self.collect_bell.ring_out();
    }

    /// True after [`WorkerHealth::call_attention`].
    pub(super) fn wants_attention(&self) -> bool {
        self.attention.load(Ordering::Relaxed)
    }

    /// The collect end is going to look into the log.
    pub(super) fn pays_attention(&self) {
        // Acquire: pairs with the Release in `call_attention`. A swap, so that no call
        // is lost between a look and the store.
        self.attention.swap(false, Ordering::Acquire);
    }

    /// True once the worker has gone. What it completed before can still be taken.
    pub(super) fn is_gone(&self) -> bool {
        // Acquire: pairs with the Release in `end`, so that a look at the ring
        // after this one finds the worker's last cells.
        self.gone.load(Ordering::Acquire)
    }

    /// The worker is gone: wakes both ends.
    pub(super) fn end(&self) {
        // Release: pairs with the Acquire in `is_gone`.
        self.gone.store(true, Ordering::Release);
        // Its fence comes between this store and the collect end's next look into the
        // log; that of `call_attention` or `Bell::ring` between an entry of the log
        // and the submit end's next look at `gone`. One of the two sees the other's.
        self.collect_bell.ring_out();
        Bell::of_room(&self.area).ring_out();
        Bell::of_packets(&self.area).ring_out();
    }

    /// The watcher's look: calls `kill` for a worker that has work, stands
    /// still for longer than the watchdog allows, and does not wait for us.
    ///
    /// How far each value reported by the worker is trusted: a position counts where
    /// it is further than ever, and no further than what was submitted; that it
    /// waits for us, only where we could make it wait: with so many of its frames here that
    /// an honest one could lack a slot.
    pub(super) fn look(&self, kill: impl FnOnce()) -> Look {
        let submitted = self.traffic.cells_out.load(Ordering::Relaxed);
        let done = self.traffic.cells_in.load(Ordering::Relaxed);
        let taken = self.area.taken();
        // It may have no room for what it completed, or no slot for a frame.
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
        self.watchdog.judge(&Progress { cells, waits_for_us, has_no_work }, kill)
    }
}

#[cfg(test)]
mod tests {
    use framepath_os::crossing::{Sizes, submissions};

    use super::*;

    /// A worker that has taken none of one packet, and claims to wait for a slot.
    fn waiting(least_out: u32) -> WorkerHealth {
        let area = Arc::new(Area::new(Sizes { cells: 8, packet_bytes: 0 }).unwrap());
        submissions(&area).0.push_quietly(&[0; 8]).unwrap();
        area.slot_bell().store(1, Ordering::Relaxed);
        let health = WorkerHealth::new(area, Duration::ZERO, least_out);
        health.submitted(false);
        health.collect_sleeps(true);
        health
    }

    fn is_killed(health: &WorkerHealth) -> bool {
        let mut is_killed = false;
        health.look(|| is_killed = true);
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
        let area = Arc::new(Area::new(Sizes { cells: 8, packet_bytes: 0 }).unwrap());
        let health = WorkerHealth::new(area.clone(), Duration::ZERO, 1);
        let (writer, mut reader) = submissions(&area);
        std::thread::scope(|scope| {
            let worker = scope.spawn(move || reader.sleep(|| false, None));
            while !area.worker_sleeps() {
                std::thread::yield_now();
            }
            assert!(!is_killed(&health));
            health.owes_answer(true);
            assert!(is_killed(&health));
            health.owes_answer(false);
            assert!(!is_killed(&health));
            while !worker.is_finished() {
                writer.bell().ring();
            }
        });
    }

    #[test]
    fn what_comes_late_is_no_progress() {
        let health = waiting(8);
        assert!(is_killed(&health));
        health.completed(false);
        assert!(!is_killed(&health));
        health.completed(false);
        health.came_late();
        assert!(is_killed(&health));
    }
}
