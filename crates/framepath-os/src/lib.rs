// SPDX-License-Identifier: MIT OR Apache-2.0
//! Touches the kernel: all system calls and all unsafe code but the codecs'.
//!
//! Clock, memfd pools, rings between threads, thread counters, scheduling,
//! signals, child processes, the sandbox of workers, the terminal. Everything above this crate is safe code.
//! Under `--cfg loom` only the lock-free cores are built, for the model checker.

#[cfg(not(loom))]
pub mod affinity;
#[cfg(not(any(loom, miri)))]
pub mod attach;
mod barrier;
#[cfg(not(any(loom, miri)))]
#[doc(hidden)]
pub mod c_layout;
#[cfg(not(loom))]
pub mod cancel;
#[cfg(not(any(loom, miri)))]
pub mod canvas;
#[cfg(not(any(loom, miri)))]
pub mod cgroup;
#[cfg(not(loom))]
pub mod children;
pub mod clock;
#[cfg(not(loom))]
pub mod commit;
#[cfg(not(loom))]
pub mod counters;
#[cfg(not(loom))]
pub mod crash;
pub mod crossing;
pub mod futex;
#[cfg(not(loom))]
mod inherited;
pub mod lack;
#[cfg(not(loom))]
pub mod machine;
mod mapping;
#[cfg(not(loom))]
pub mod meter;
#[cfg(loom)]
mod meter {
    pub(crate) fn blocked<R>(f: impl FnOnce() -> R) -> R {
        f()
    }

    pub(crate) fn count_once(_: usize) {}
}
#[cfg(not(any(loom, miri)))]
#[doc(hidden)]
pub mod mirrored;
mod patience;
#[cfg(not(loom))]
pub mod pmu;
pub mod pool;
pub mod queue;
mod return_stack;
pub mod ring;
#[cfg(not(loom))]
pub mod running;
#[cfg(not(any(loom, miri)))]
pub mod sandbox;
#[cfg(feature = "sdl")]
pub mod sdl;
#[cfg(not(loom))]
pub mod signal;
#[cfg(not(any(loom, miri)))]
pub mod spawn;
#[cfg(not(loom))]
pub mod stop;
#[cfg(not(loom))]
pub mod switches;
mod sync;
#[cfg(not(loom))]
pub mod terminal;
#[cfg(feature = "sdl")]
pub mod texture_cache;
#[cfg(not(loom))]
pub mod udp;
#[cfg(not(any(loom, miri)))]
pub mod v4l2;
#[cfg(feature = "sdl")]
pub mod yuv;

/// Makes a nameless file in memory, readable and writable, closed on exec.
#[cfg(not(loom))]
pub fn memory_file(name: &str) -> std::io::Result<std::fs::File> {
    let fd = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(std::fs::File::from(fd))
}
