// SPDX-License-Identifier: MIT OR Apache-2.0
//! A full memory barrier whose cost lies on the side that is about to sleep.
//!
//! The handshake of a queue needs a full barrier on both sides. The side that
//! passes frames would pay for it with every frame (it waits until its last
//! stores have travelled to the other core), the side that sleeps only before
//! it sleeps. membarrier(2) lets the sleeper make every running thread of the
//! process pass a barrier; then the other side needs none of its own.

use crate::sync::atomics::{Ordering, fence};

/// Which barrier both sides use. One choice per queue: they must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// Both sides pass a fence.
    Symmetric,
    /// The sleeper calls membarrier(2), the other side does nothing.
    Asymmetric,
}

impl Barrier {
    /// Chooses the asymmetric barrier, where the kernel offers it (4.14 does).
    pub(crate) fn choose() -> Barrier {
        if system::register() { Barrier::Asymmetric } else { Barrier::Symmetric }
    }

    /// Passes the barrier between this side's change and its look at the sleeper's flag.
    #[inline]
    pub(crate) fn before_look(self) {
        match self {
            Barrier::Symmetric => fence(Ordering::SeqCst),
            // Orders the compiler only: the sleeper's call is the processor's barrier.
            Barrier::Asymmetric => {
                std::sync::atomic::compiler_fence(Ordering::SeqCst);
                self.may_land();
            }
        }
    }

    /// Marks a point at which the barrier of a sleeping side may take place in this
    /// thread. In a real run every point is one; the model checker needs only those that
    /// differ.
    #[inline(always)]
    pub(crate) fn may_land(self) {
        #[cfg(loom)]
        if self == Barrier::Asymmetric {
            system::land();
        }
    }

    /// Passes the barrier between the sleeper's flag and its last look at the ring.
    /// `false` where the kernel now refuses a call that it offered before (a sandbox was
    /// entered since): then the sleeper must not rely on being woken.
    pub(crate) fn before_sleep(self) -> bool {
        match self {
            Barrier::Symmetric => {
                fence(Ordering::SeqCst);
                true
            }
            Barrier::Asymmetric => system::barrier(),
        }
    }
}

#[cfg(not(any(loom, miri)))]
mod system {
    use std::sync::OnceLock;

    /// linux/membarrier.h.
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    /// True if this process may call [`barrier`]; asked once.
    pub(super) fn register() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| call(REGISTER_PRIVATE_EXPEDITED))
    }

    pub(super) fn barrier() -> bool {
        call(PRIVATE_EXPEDITED)
    }

    fn call(command: libc::c_int) -> bool {
        // SAFETY: takes two integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

/// Miri knows fences, not this system call.
#[cfg(miri)]
mod system {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn barrier() -> bool {
        unreachable!("never registered")
    }
}

#[cfg(loom)]
pub(crate) mod model;
#[cfg(loom)]
pub(crate) use model as system;
