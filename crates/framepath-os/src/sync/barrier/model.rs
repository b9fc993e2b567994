// SPDX-License-Identifier: MIT OR Apache-2.0
//! Model of membarrier(2) for the model checker, between the two threads of a queue.
//!
//! The kernel guarantees (kernel/sched/membarrier.c): between entry and return of the call, every
//! other running thread of the process executes a full barrier at some point of its program. The
//! caller executes one full barrier before that point and one after it. A thread that is not
//! running (blocked or ended) has executed a full barrier when the kernel switched it out.
//!
//! The model is a rendezvous with the same guarantee. The caller executes a fence, posts a
//! request, waits until the other thread has executed a fence of its own (or has ended), and
//! executes another fence. The other thread answers each request once, in [`land`]. So the
//! checker's schedule selects where the barrier takes effect among the accesses of the other
//! thread.
//!
//! The other thread calls [`land`] at three kinds of points: between a change of the ring and the
//! check of the flag, after that check (which is also before the next change), and wherever the
//! thread waits. These points are sufficient. A barrier anywhere else lies between the same two
//! accesses to ring positions and flags as a barrier at one of these points.
//!
//! The rendezvous uses atomics of the standard library, which the checker does not see. So only the
//! fences order the threads, and without a request the side that does not sleep has no fence.

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
/// One of the two threads of a queue.
struct Side {
    /// Number of barriers that the other side requested from this side.
    requested: AtomicU32,
    /// Number of requested barriers that this side has executed.
    passed: AtomicU32,
    /// True if the thread has ended.
    ended: AtomicBool,
}

/// Returns false, so that [`Barrier::choose`](super::Barrier::choose) returns the symmetric barrier. A
/// test selects the asymmetric barrier itself.
pub(super) fn register() -> bool {
    false
}

/// Calls `run` on this thread, as thread `side` (0 or 1) of the queue, and returns its result. Records
/// the end of the thread afterwards, so that the other thread does not wait for its barriers.
pub(crate) fn run_as<R>(side: usize, run: impl FnOnce() -> R) -> R {
    OWN.with(|own| own.set(side));
    SIDES[side].ended.store(false, Ordering::Relaxed);
    let result = run();
    // A thread that ends is switched out, so it executes a barrier.
    fence(Ordering::SeqCst);
    SIDES[side].ended.store(true, Ordering::Relaxed);
    result
}

/// Executes the barrier that the other thread requested from this thread, if there is one. Each call
/// marks a point of this thread at which such a barrier may take effect.
pub(crate) fn land() {
    let own = &SIDES[OWN.with(Cell::get)];
    let requested = own.requested.load(Ordering::Relaxed);
    if requested != own.passed.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
        own.passed.store(requested, Ordering::Relaxed);
    }
}

/// Executes a barrier in this thread and waits until the other thread has executed one, too, or has
/// ended. Always returns true.
pub(super) fn barrier() -> bool {
    let other = &SIDES[1 - OWN.with(Cell::get)];
    fence(Ordering::SeqCst);
    let requested = other.requested.load(Ordering::Relaxed) + 1;
    other.requested.store(requested, Ordering::Relaxed);
    while other.passed.load(Ordering::Relaxed) != requested && !other.ended.load(Ordering::Relaxed) {
        // Answers requests meanwhile: the other side may wait in this function, too.
        land();
        loom::thread::yield_now();
    }
    fence(Ordering::SeqCst);
    true
}
