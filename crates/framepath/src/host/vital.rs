// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a worker is alive and gets on with its work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use framepath_os::clock::now_ns;
use framepath_os::crossing::{Area, Bell, Look, completions};

use super::Traffic;

/// What the caller knows of its worker, for any thread. The counts order
/// nothing: they are looked at from outside (Relaxed).
pub(super) struct Vital {
    area: Arc<Area>,
    gone: AtomicBool,
    /// Cells were given and the worker's bell was not rung yet.
    pub(super) unrung: AtomicBool,
    /// Cells given to the worker and taken from it, and messages.
    pub(super) traffic: Traffic,
    /// Of the cells given, frames; each is answered by something.
    inputs: AtomicU64,
    /// Cells taken from it that answer a frame.
    answers: AtomicU64,
    /// Frames of its pools that later stages hold.
    frames_out: AtomicU64,
    /// Drained, and the end has not come yet.
    awaits_end: AtomicBool,
    /// The giving end is done, and left something to the reading end.
    left_over: AtomicBool,
    /// The reading end sleeps until the worker completes something.
    reader_sleeps: AtomicBool,
    /// The giving end sleeps until the worker makes room.
    giver_sleeps: AtomicBool,
    /// The reading end thinks about the memory that the worker waits for.
    lending: AtomicBool,
    limit_ns: u64,
    /// How far the worker ever was at a look, and since when it is no further.
    /// Only the watcher's thread uses these two.
    seen: AtomicU64,
    since_ns: AtomicU64,
}

impl Vital {
    pub(super) fn new(area: Arc<Area>, limit: Duration) -> Vital {
        Vital {
            area,
            gone: AtomicBool::new(false),
            unrung: AtomicBool::new(false),
            traffic: Traffic::default(),
            inputs: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            frames_out: AtomicU64::new(0),
            awaits_end: AtomicBool::new(false),
            left_over: AtomicBool::new(false),
            reader_sleeps: AtomicBool::new(false),
            giver_sleeps: AtomicBool::new(false),
            lending: AtomicBool::new(false),
            limit_ns: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            seen: AtomicU64::new(0),
            since_ns: AtomicU64::new(now_ns()),
        }
    }

    pub(super) fn submitted(&self) {
        self.traffic.cells_out.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn completed(&self) {
        self.traffic.cells_in.fetch_add(1, Ordering::Relaxed);
    }

    /// A frame was among what was given.
    pub(super) fn asked(&self) {
        self.inputs.fetch_add(1, Ordering::Relaxed);
    }

    /// What was taken answers a frame.
    pub(super) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// The giving end is done, and something is left to give: wakes the reading
    /// end, whose business that is from now on.
    pub(super) fn leave_over(&self) {
        // Relaxed: the fences of the bell order it with the look before a sleep.
        self.left_over.store(true, Ordering::Relaxed);
        completions(&self.area).1.bell().ring_out();
    }

    /// Whether [`Vital::leave_over`] was called.
    pub(super) fn is_left_over(&self) -> bool {
        self.left_over.load(Ordering::Relaxed)
    }

    /// The reading end has heard of it.
    pub(super) fn take_over(&self) {
        self.left_over.store(false, Ordering::Relaxed);
    }

    /// The reading end goes to sleep, or wakes.
    pub(super) fn reader_sleeps(&self, sleeps: bool) {
        self.reader_sleeps.store(sleeps, Ordering::Relaxed);
    }

    /// The giving end goes to sleep, or wakes.
    pub(super) fn giver_sleeps(&self, sleeps: bool) {
        self.giver_sleeps.store(sleeps, Ordering::Relaxed);
    }

    /// The reading end thinks about memory to lend, or has done so.
    pub(super) fn lending(&self, lending: bool) {
        self.lending.store(lending, Ordering::Relaxed);
    }

    pub(super) fn frame_out(&self) {
        self.frames_out.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn frame_back(&self) {
        self.frames_out.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn awaits_end(&self, awaits: bool) {
        self.awaits_end.store(awaits, Ordering::Relaxed);
    }

    /// Whether the worker has gone. What it completed before can still be
    /// taken.
    pub(super) fn is_gone(&self) -> bool {
        // Acquire: pairs with the Release in `end`, so that a look at the ring
        // after this one finds the worker's last words.
        self.gone.load(Ordering::Acquire)
    }

    /// The worker is gone: wakes whoever waits for it.
    pub(super) fn end(&self) {
        self.gone.store(true, Ordering::Release);
        completions(&self.area).1.bell().ring_out();
        Bell::of_room(&self.area).ring_out();
        Bell::of_packets(&self.area).ring_out();
    }

    /// The watcher's look: calls `kill` for a worker that has work, stands
    /// still for longer than the watchdog allows, and does not wait for us.
    ///
    /// Of the worker's words each is worth so much: a position counts where it
    /// is further than ever, and no further than what it was given; that it
    /// waits for us, only where we could make it wait.
    pub(super) fn look(&self, kill: impl FnOnce()) -> Look {
        let now = now_ns();
        let submitted = self.traffic.cells_out.load(Ordering::Relaxed);
        let done = self.traffic.cells_in.load(Ordering::Relaxed);
        let taken = self.area.taken();
        let progress = taken.min(submitted).wrapping_add(done);
        let further = self.seen.fetch_max(progress, Ordering::Relaxed) < progress;
        // It may have no room for what it completed, or no slot for a frame.
        let reader_sleeps = self.reader_sleeps.load(Ordering::Relaxed);
        let waits_for_us = self.lending.load(Ordering::Relaxed)
            || (!reader_sleeps && self.area.completed() != done)
            || (self.frames_out.load(Ordering::Relaxed) > 0 && self.area.worker_awaits_slot());
        if further || waits_for_us {
            self.since_ns.store(now, Ordering::Relaxed);
            return Look::Again;
        }
        let nothing_to_do = taken == submitted
            && self.answers.load(Ordering::Relaxed) >= self.inputs.load(Ordering::Relaxed)
            && !self.awaits_end.load(Ordering::Relaxed)
            && !self.giver_sleeps.load(Ordering::Relaxed)
            && self.area.worker_sleeps();
        if nothing_to_do {
            self.since_ns.store(now, Ordering::Relaxed);
            return Look::Quiet;
        }
        if now - self.since_ns.load(Ordering::Relaxed) >= self.limit_ns {
            kill();
        }
        Look::Again
    }
}
