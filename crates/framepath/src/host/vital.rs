// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a worker is alive and gets on with its work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use framepath_os::clock::now_ns;
use framepath_os::crossing::{Area, Bell, Look, completions};

/// What the caller knows of its worker, for any thread. The counts order
/// nothing: they are looked at from outside (Relaxed).
pub(super) struct Vital {
    area: Arc<Area>,
    gone: AtomicBool,
    /// Cells given to the worker.
    submitted: AtomicU64,
    /// Cells taken from it.
    completed: AtomicU64,
    /// Frames of its pools that later stages hold.
    frames_out: AtomicU64,
    /// Drained, and the end has not come yet.
    awaits_end: AtomicBool,
    limit_ns: u64,
    /// Sum of the worker's positions at the last look, and since when it is the
    /// same. Only the watcher's thread uses these two.
    seen: AtomicU64,
    since_ns: AtomicU64,
}

impl Vital {
    pub(super) fn new(area: Arc<Area>, limit: Duration) -> Vital {
        Vital {
            area,
            gone: AtomicBool::new(false),
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            frames_out: AtomicU64::new(0),
            awaits_end: AtomicBool::new(false),
            limit_ns: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            seen: AtomicU64::new(0),
            since_ns: AtomicU64::new(now_ns()),
        }
    }

    pub(super) fn submitted(&self) {
        self.submitted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn completed(&self) {
        self.completed.fetch_add(1, Ordering::Relaxed);
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
    pub(super) fn look(&self, kill: impl FnOnce()) -> Look {
        let now = now_ns();
        let taken = self.area.taken();
        let completed = self.area.completed();
        let progress = taken.wrapping_add(completed).wrapping_add(self.completed.load(Ordering::Relaxed));
        // Frames it gave and that are still held: it may wait for their slots.
        let waits_for_us = self.frames_out.load(Ordering::Relaxed) > 0
            || completed != self.completed.load(Ordering::Relaxed);
        if progress != self.seen.swap(progress, Ordering::Relaxed) || waits_for_us {
            self.since_ns.store(now, Ordering::Relaxed);
            return Look::Again;
        }
        let nothing_to_do = taken == self.submitted.load(Ordering::Relaxed)
            && !self.awaits_end.load(Ordering::Relaxed)
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
