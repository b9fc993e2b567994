// SPDX-License-Identifier: MIT OR Apache-2.0
//! Touches the kernel: all system calls and all unsafe code but the codecs'.
//!
//! Everything above this crate is safe code.
//!
//! | module | contents |
//! | --- | --- |
//! | [`memory`] | pools of frames in sealed memfds, mappings |
//! | [`sync`] | queue and rings between threads, futexes, barriers |
//! | [`process`] | child processes, the sandbox of workers, signals, stop requests |
//! | [`crossing`] | memory, rings and sockets that a worker and its caller share |
//! | [`v4l2`] | cameras, decoders and other devices; the interface of the kernel module |
//! | [`measure`] | meters and counters of a thread |
//! | [`time`] | clocks and sleeps |
//! | [`net`] | UDP with segmentation offload |
//! | [`display`] | memory and textures that a window shows; the terminal |
//! | [`machine`] | description of this machine |
//!
//! Under `--cfg loom` only the lock-free cores are built, for the model checker.

#[cfg(not(any(loom, miri)))]
#[doc(hidden)]
pub mod c_layout;
pub mod crossing;
#[cfg(not(loom))]
pub mod display;
#[cfg(not(loom))]
pub mod machine;
pub mod measure;
pub mod memory;
#[cfg(not(any(loom, miri)))]
#[doc(hidden)]
pub mod mirrored;
#[cfg(not(loom))]
pub mod net;
pub mod process;
pub mod sync;
pub mod time;
#[cfg(not(any(loom, miri)))]
pub mod v4l2;
