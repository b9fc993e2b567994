// SPDX-License-Identifier: MIT OR Apache-2.0
//! Health of one worker: counts of the work in flight, and the check that the worker makes progress.
//!
//! Both ends of the stream report to this module. The thread of the worker's
//! [`Watcher`](framepath_os::crossing::Watcher), which runs in this process, makes the check.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use framepath_os::crossing::{Bell, SharedArea, WatchResult, completions};

use super::Traffic;
use super::policy::{Watchdog, WorkerProgress};

/// Progress of a worker as its caller sees it, for any thread. Nearly all counts are Relaxed, because they
/// order no other memory.
pub(super) struct WorkerHealth {
    area: Arc<SharedArea>,
    /// Bell that wakes the collect end.
    collect_bell: Bell,
    /// True once the worker is gone, or is about to be ended ([`WorkerHealth::end`]).
    gone: AtomicBool,
    /// True if the collect end has to read the log or to check for requests.
    attention: AtomicBool,
    /// Counts of messages, of cells submitted to the worker, and of cells taken from the worker.
    pub(super) traffic: Traffic,
    /// Number of input pools that this process has announced, or is about to announce, by messages. The
    /// worker may leave such a message unread until it needs the pool.
    announced_pools: AtomicU32,
    /// Number of input frames submitted to the worker, which has to answer each of them.
    inputs: AtomicU64,
    /// Number of cells taken from the worker that stand for an emitted frame, or report that a submitted
    /// frame has no output.
    answers: AtomicU64,
    /// Number of frames of the worker's pools that this process holds. A slot of a provided buffer also
    /// counts until the provider releases it to the worker.
    frames_out: AtomicU64,
    /// Minimum of `frames_out` while an honest worker waits for a slot.
    least_out: u64,
    /// Number of cells taken from the worker that do not count as progress: late output of flushed inputs,
    /// requests to the hops in front, and reports of packets that were not decoded.
    late: AtomicU64,
    /// True while the worker has to answer a drain or flush that was submitted to it.
    answer_due: AtomicBool,
    /// True while the collect end sleeps until the worker sends a completion; false while it waits at a held
    /// end.
    collect_sleeps: AtomicBool,
    /// True while the submit end waits for room in the ring or the packet area.
    submit_sleeps: AtomicBool,
    /// True while the provider of buffers works for the worker.
    provider_busy: AtomicBool,
    watchdog: Watchdog,
}

impl WorkerHealth {
    /// Counts an input pool that is announced to the worker; called before the announcement is sent.
    pub(super) fn announce_pool(&self) {
        // Release: pairs with the load in `announced_pools`.
        self.announced_pools.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of input pools that were announced to the worker.
    pub(super) fn announced_pools(&self) -> u32 {
        // Acquire: pairs with the addition in `announce_pool`.
        self.announced_pools.load(Ordering::Acquire)
    }

    /// Makes the health of the worker that shares `area`, with all counts 0. A worker that has work and does
    /// not wait for this process is killed after `watchdog` without progress. An honest worker waits for a
    /// slot only while this process holds at least `least_out` of the worker's frames; 0 means 1.
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
            answer_due: AtomicBool::new(false),
            collect_sleeps: AtomicBool::new(false),
            submit_sleeps: AtomicBool::new(false),
            provider_busy: AtomicBool::new(false),
            watchdog: Watchdog::new(watchdog),
        }
    }

    /// Counts a submitted cell. `is_frame` is true for a cell with an input frame; the worker has to answer
    /// each of these.
    pub(super) fn submitted(&self, is_frame: bool) {
        self.traffic.cells_out.fetch_add(1, Ordering::Relaxed);
        if is_frame {
            self.inputs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a cell taken from the worker. `is_answer` is true if the cell stands for an emitted frame, or
    /// reports that a submitted frame has no output.
    pub(super) fn completed(&self, is_answer: bool) {
        self.traffic.cells_in.fetch_add(1, Ordering::Relaxed);
        if is_answer {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of cells submitted to the worker.
    pub(super) fn submissions(&self) -> u64 {
        self.traffic.cells_out.load(Ordering::Relaxed)
    }

    /// Returns the number of submitted cells that the worker has taken, by the worker's own report; at most
    /// the number of submitted cells.
    pub(super) fn taken(&self) -> u64 {
        self.area.taken().min(self.traffic.cells_out.load(Ordering::Relaxed))
    }

    /// Counts a frame of the worker's pools that this process now holds.
    pub(super) fn frame_out(&self) {
        self.frames_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a frame of the worker's pools that this process has returned to the worker.
    pub(super) fn frame_back(&self) {
        self.frames_out.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records whether the worker has to answer a drain or flush.
    pub(super) fn set_answer_due(&self, due: bool) {
        self.answer_due.store(due, Ordering::Relaxed);
    }

    /// Excludes the last received cell from the worker's progress, because a stuck worker can send such cells
    /// too: late output of a flushed input, a request to the hops in front, or a report of a packet that was
    /// not decoded.
    pub(super) fn exclude_from_progress(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    /// Records whether the collect end sleeps until the worker sends a completion.
    pub(super) fn collect_sleeps(&self, sleeps: bool) {
        self.collect_sleeps.store(sleeps, Ordering::Relaxed);
    }

    /// Records whether the submit end sleeps until the worker makes room.
    pub(super) fn submit_sleeps(&self, sleeps: bool) {
        self.submit_sleeps.store(sleeps, Ordering::Relaxed);
    }

    /// Records whether the worker waits for the provider of buffers.
    pub(super) fn set_provider_busy(&self, busy: bool) {
        self.provider_busy.store(busy, Ordering::Relaxed);
    }

    /// Wakes the collect end to read the log and to check for requests. Any thread may call it.
    pub(super) fn request_attention(&self) {
        // Release: pairs with the Acquire in `clear_attention`; the caller has written the entry of the
        // log before. The bell's fences order this store with the check before a sleep.
        self.attention.store(true, Ordering::Release);
        self.collect_bell.ring_out();
    }

    /// True after [`WorkerHealth::request_attention`], until [`WorkerHealth::clear_attention`].
    pub(super) fn is_attention_requested(&self) -> bool {
        self.attention.load(Ordering::Relaxed)
    }

    /// Clears the request for attention. The collect end calls this function just before it reads the log.
    pub(super) fn clear_attention(&self) {
        // Acquire: pairs with the Release in `request_attention`. A swap, so that no request is lost
        // between a read and a store.
        self.attention.swap(false, Ordering::Acquire);
    }

    /// True after [`WorkerHealth::end`]: the worker is gone, or is about to be ended. Its completed cells can
    /// still be taken.
    pub(super) fn is_gone(&self) -> bool {
        // Acquire: pairs with the Release in `end`. A later read of the ring then finds the worker's
        // last cells.
        self.gone.load(Ordering::Acquire)
    }

    /// Records that the worker is gone, or is about to be ended, and wakes both ends of the stream.
    pub(super) fn end(&self) {
        // Release: pairs with the Acquire in `is_gone`.
        self.gone.store(true, Ordering::Release);
        // Two fences exclude a lost wake-up. The bell's fence is between this store and the collect
        // end's next read of the log. The fence of `request_attention` or `Bell::ring` is between an
        // entry of the log and the submit end's next read of `gone`. So at least one end sees the
        // other's store.
        self.collect_bell.ring_out();
        Bell::for_room(&self.area).ring_out();
        Bell::for_packets(&self.area).ring_out();
    }

    /// Checks the worker's progress, in the thread of the worker's watcher. Calls `kill` for a worker that
    /// has work, does not wait for this process, and made no progress for the watchdog's time. Returns
    /// [`WatchResult::Quiet`] if the worker has no work, does not wait for this process, and made no progress
    /// since the last check, so no check is needed until an end of the stream notifies the watcher.
    ///
    /// The worker's reports are trusted only in part. The reported number of taken cells counts only if it is
    /// higher than before, and at most as the number of submitted cells. A report that the worker waits for a
    /// slot counts only while `least_out` of its frames are out, because an honest worker lacks no slot
    /// before.
    pub(super) fn check(&self, kill: impl FnOnce()) -> WatchResult {
        let submitted = self.traffic.cells_out.load(Ordering::Relaxed);
        let done = self.traffic.cells_in.load(Ordering::Relaxed);
        let taken = self.area.taken();
        // The worker counts as waiting for the caller while the provider of buffers works; while there are
        // completions that the collect end has not taken, and the collect end does not sleep; and while the
        // worker reports that it has no slot, and this process holds at least `least_out` frames.
        let collect_sleeps = self.collect_sleeps.load(Ordering::Relaxed);
        let waits_for_caller = self.provider_busy.load(Ordering::Relaxed)
            || (!collect_sleeps && self.area.completed() != done)
            || (self.frames_out.load(Ordering::Relaxed) >= self.least_out && self.area.worker_awaits_slot());
        let has_no_work = taken == submitted
            && self.answers.load(Ordering::Relaxed) >= self.inputs.load(Ordering::Relaxed)
            && !self.answer_due.load(Ordering::Relaxed)
            && !self.submit_sleeps.load(Ordering::Relaxed)
            && self.area.worker_sleeps();
        let cells = taken.min(submitted) + done.saturating_sub(self.late.load(Ordering::Relaxed));
        self.watchdog.check(&WorkerProgress { cells, waits_for_caller, has_no_work }, kill)
    }
}

#[cfg(test)]
mod tests {
    use framepath_os::crossing::{Sizes, submissions};

    use super::*;

    /// Makes the counts of a worker that has not taken its one packet, and reports that it waits for a
    /// slot.
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
    fn a_worker_may_wait_for_a_slot_only_if_its_pool_can_be_empty() {
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
    fn a_sleeping_worker_that_has_to_answer_has_work() {
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
        health.exclude_from_progress();
        assert!(is_killed(&health));
    }
}
