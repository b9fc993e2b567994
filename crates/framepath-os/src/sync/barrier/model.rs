// SPDX-License-Identifier: MIT OR Apache-2.0
//! membarrier(2) for the model checker, between the two threads of a queue.
//!
//! The kernel's promise (kernel/sched/membarrier.c): between entry and return
//! of the call, every other running thread of the process executes a full
//! barrier at some point of its program; the caller executes one before and
//! one after. A thread that is not running, blocked or ended, has passed one
//! when it was switched out.
//!
//! The model is a rendezvous with exactly that: the caller passes a fence,
//! posts a request, waits until the other thread has passed a fence of its own
//! (or has ended), and passes a fence. The other thread takes requests at
//! [`land`], once each. Where the barrier lands relative to the accesses of
//! that thread is therefore chosen by the checker's schedule. Landing points
//! lie between a side's change of the ring and its look at the flag, behind
//! the look (which is also before the next change), and wherever it waits. A
//! barrier that lands elsewhere has the same accesses to ring positions and
//! flags before and behind it as one that lands at a neighbouring point.
//!
//! The words of the rendezvous are the standard library's, which the checker
//! does not see: order between the threads comes from the fences alone, and
//! without a request the fast side has none.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use loom::sync::atomic::fence;

loom::lazy_static! {
    static ref SIDES: [Side; 2] = [Side::default(), Side::default()];
}

loom::thread_local! {
    static OWN: Cell<usize> = Cell::new(usize::MAX);
}

#[derive(Default)]
struct Side {
    /// Barriers that the other side has requested of this side.
    asked: AtomicU32,
    /// Barriers that this side has passed on request.
    passed: AtomicU32,
    /// The thread has ended.
    ended: AtomicBool,
}

/// Queues have symmetric barriers unless a model says otherwise.
pub(super) fn register() -> bool {
    false
}

/// Runs `side`, the first or the second of the two threads, in this one.
pub(crate) fn run_as<R>(side: usize, run: impl FnOnce() -> R) -> R {
    OWN.with(|own| own.set(side));
    SIDES[side].ended.store(false, Ordering::Relaxed);
    let result = run();
    // Switched out for good.
    fence(Ordering::SeqCst);
    SIDES[side].ended.store(true, Ordering::Relaxed);
    result
}

/// Marks a point at which a barrier that the other side asked for may take place.
pub(crate) fn land() {
    let own = &SIDES[OWN.with(Cell::get)];
    let asked = own.asked.load(Ordering::Relaxed);
    if asked != own.passed.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
        own.passed.store(asked, Ordering::Relaxed);
    }
}

pub(super) fn barrier() -> bool {
    let other = &SIDES[1 - OWN.with(Cell::get)];
    fence(Ordering::SeqCst);
    let asked = other.asked.load(Ordering::Relaxed) + 1;
    other.asked.store(asked, Ordering::Relaxed);
    while other.passed.load(Ordering::Relaxed) != asked && !other.ended.load(Ordering::Relaxed) {
        // The other side may be in this call too.
        land();
        loom::thread::yield_now();
    }
    fence(Ordering::SeqCst);
    true
}
