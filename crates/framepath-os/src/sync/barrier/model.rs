// SPDX-License-Identifier: MIT OR Apache-2.0
//! membarrier(2) for the model checker, between the two threads of a queue.
//!
//! The kernel guarantees (kernel/sched/membarrier.c): between entry and return of the call, every
//! other running thread of the process executes a full barrier at some point of its program. The
//! caller executes one barrier before and one after. A thread that is not running (blocked or
//! ended) executed one when it was switched out.
//!
//! The model is a rendezvous with the same guarantee. The caller executes a fence, posts a
//! request, waits until the other thread has executed a fence of its own (or has ended), and
//! executes another fence. The other thread takes requests at [`land`], each once. So the
//! checker's schedule selects where the barrier takes effect relative to the accesses of that
//! thread.
//!
//! The possible points are between a side's change of the ring and its check of the flag, after
//! the check (which is also before the next change), and wherever the thread waits. A barrier at
//! another point has the same accesses to ring positions and flags before and after it as a
//! barrier at one of these points.
//!
//! The words of the rendezvous are the standard library's, which the checker does not see. So
//! only the fences order the threads, and without a request the fast side has no fence.

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
    /// Number of barriers that the other side requested from this side.
    requested: AtomicU32,
    /// Number of requested barriers that this side has executed.
    passed: AtomicU32,
    /// True if the thread has ended.
    ended: AtomicBool,
}

/// Queues have symmetric barriers unless a model selects otherwise.
pub(super) fn register() -> bool {
    false
}

/// Runs `side` on this thread, as the first or second of the two threads.
pub(crate) fn run_as<R>(side: usize, run: impl FnOnce() -> R) -> R {
    OWN.with(|own| own.set(side));
    SIDES[side].ended.store(false, Ordering::Relaxed);
    let result = run();
    // The thread is switched out permanently.
    fence(Ordering::SeqCst);
    SIDES[side].ended.store(true, Ordering::Relaxed);
    result
}

/// Marks a point at which a requested barrier may take effect.
pub(crate) fn land() {
    let own = &SIDES[OWN.with(Cell::get)];
    let requested = own.requested.load(Ordering::Relaxed);
    if requested != own.passed.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
        own.passed.store(requested, Ordering::Relaxed);
    }
}

pub(super) fn barrier() -> bool {
    let other = &SIDES[1 - OWN.with(Cell::get)];
    fence(Ordering::SeqCst);
    let requested = other.requested.load(Ordering::Relaxed) + 1;
    other.requested.store(requested, Ordering::Relaxed);
    while other.passed.load(Ordering::Relaxed) != requested && !other.ended.load(Ordering::Relaxed) {
        // The other side may be in this call too.
        land();
        loom::thread::yield_now();
    }
    fence(Ordering::SeqCst);
    true
}
