// SPDX-License-Identifier: MIT OR Apache-2.0
//! Full memory barrier whose cost is paid by the side that is about to sleep.
//!
//! The handshake of a queue needs a full barrier on both sides. The side that passes frames would
//! pay for the barrier with every frame, because the processor waits until its last stores are
//! visible to the other core. The sleeping side pays only before it sleeps. With membarrier(2)
//! the sleeper makes every running thread of the process execute a barrier, so the other side needs
//! none of its own. If the kernel has no membarrier(2), both sides execute a barrier.

use crate::sync::atomics::{Ordering, fence};

/// Kind of barrier. Both sides of a queue must use the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// Both sides execute a fence.
    Symmetric,
    /// The sleeper calls membarrier(2); the other side executes no fence.
    Asymmetric,
}

impl Barrier {
    /// Returns the asymmetric barrier if the kernel accepts this process's registration for membarrier(2)
    /// (Linux 4.14 and later), and the symmetric barrier otherwise. The first call in the process decides
    /// for all later calls. Under loom and Miri the barrier is always symmetric.
    pub(crate) fn choose() -> Barrier {
        if system::register() { Barrier::Asymmetric } else { Barrier::Symmetric }
    }

    /// Executes the barrier of the waking side, which calls this function between its change of the ring
    /// and its check of the sleeper's flag: a fence if the kind is `Symmetric`, only a barrier for the
    /// compiler if the kind is `Asymmetric`.
    #[inline]
    pub(crate) fn before_look(self) {
        match self {
            Barrier::Symmetric => fence(Ordering::SeqCst),
            // Orders only the compiler: the sleeper's call is the processor's barrier.
            Barrier::Asymmetric => {
                std::sync::atomic::compiler_fence(Ordering::SeqCst);
                self.may_land();
            }
        }
    }

    /// Marks, for the model checker, a point at which the barrier of a sleeping side may take effect
    /// in this thread. Does nothing in a real run, where the barrier may take effect at any point.
    #[inline(always)]
    pub(crate) fn may_land(self) {
        #[cfg(loom)]
        if self == Barrier::Asymmetric {
            system::land();
        }
    }

    /// Executes the barrier of the sleeping side, which calls this function between the store of its flag
    /// and its last check of the ring. Returns true if the barrier was executed. Returns false if the kind
    /// is `Asymmetric` and the kernel rejects membarrier(2): it accepted the registration, but the process
    /// has entered a sandbox since then. The sleeper then cannot rely on being woken.
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

    /// Command of membarrier(2), from linux/membarrier.h: every running thread of this process
    /// executes a full barrier.
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    /// Command of membarrier(2) by which a process registers, before its first [`PRIVATE_EXPEDITED`].
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    /// Registers this process for [`barrier`]. Returns true if the kernel accepts the registration. Only the
    /// first call makes a system call; later calls return the same result.
    pub(super) fn register() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| call(REGISTER_PRIVATE_EXPEDITED))
    }

    pub(super) fn barrier() -> bool {
        call(PRIVATE_EXPEDITED)
    }

    fn call(command: libc::c_int) -> bool {
        // SAFETY: takes two integers and accesses no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

/// Replacement under Miri, which supports fences but not membarrier(2): registration fails, so
/// [`Barrier::choose`] returns the symmetric barrier.
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
