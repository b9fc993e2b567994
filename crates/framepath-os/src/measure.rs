// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resources that threads use: copies and waits, kernel counters, hardware counters, context switches, and
//! the work of a library's threads.

#[cfg(not(loom))]
pub mod call_ring;
#[cfg(not(loom))]
pub mod counters;
#[cfg(not(loom))]
pub mod frame_threads;
#[cfg(not(any(loom, miri)))]
pub(crate) mod function_event;
#[cfg(not(loom))]
pub mod inherited_switches;
#[cfg(not(loom))]
pub mod library_threads;
#[cfg(not(loom))]
pub mod meter;
#[cfg(loom)]
pub(crate) mod meter {
    pub(crate) fn blocked<R>(f: impl FnOnce() -> R) -> R {
        f()
    }

    pub(crate) fn count_once(_: usize) {}
}
#[cfg(not(loom))]
pub mod mapping_watch;
#[cfg(not(loom))]
mod perf_ring;
#[cfg(not(loom))]
pub mod pmu;
#[cfg(not(loom))]
pub mod process_events;
#[cfg(not(loom))]
pub mod switches;
