// SPDX-License-Identifier: MIT OR Apache-2.0
//! This process and its children: signals and stop requests, CPUs, resource usage and limits, and the
//! start and the sandbox of workers.

#[cfg(not(loom))]
pub mod affinity;
#[cfg(not(loom))]
pub mod cancel;
#[cfg(not(any(loom, miri)))]
pub mod cgroup;
#[cfg(not(loom))]
pub mod children;
#[cfg(not(any(loom, miri)))]
pub mod chosen_file;
#[cfg(not(any(loom, miri)))]
pub(crate) mod controller_groups;
#[cfg(not(any(loom, miri)))]
pub mod cpu_quota;
#[cfg(not(loom))]
pub mod crash;
#[cfg(not(any(loom, miri)))]
pub mod end_watch;
#[cfg(not(any(loom, miri)))]
pub mod held_child;
#[cfg(not(loom))]
pub(crate) mod inherited;
pub mod lack;
#[cfg(not(loom))]
pub mod lent_file;
#[cfg(not(any(loom, miri)))]
pub mod lent_library;
#[cfg(not(any(loom, miri)))]
pub mod limited_reader;
#[cfg(not(any(loom, miri)))]
pub mod memory_words;
#[cfg(not(any(loom, miri)))]
pub mod owners;
#[cfg(not(any(loom, miri)))]
pub mod priority;
#[cfg(not(any(loom, miri)))]
pub mod process_room;
#[cfg(not(any(loom, miri)))]
pub mod regular_file;
#[cfg(not(loom))]
pub mod running;
#[cfg(not(any(loom, miri)))]
pub mod sandbox;
#[cfg(not(loom))]
pub mod signal;
#[cfg(not(any(loom, miri)))]
pub mod signal_relay;
#[cfg(not(any(loom, miri)))]
pub mod spawn;
#[cfg(not(any(loom, miri)))]
pub mod standard_output;
#[cfg(not(loom))]
pub(crate) mod start_state;
#[cfg(not(loom))]
pub mod stop;
