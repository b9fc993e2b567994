// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of framepath: touches the kernel, and has all unsafe code of the project's crates except that
//! of the codecs and of tests.
//!
//! The other crates, except `framepath-codec`, are safe code. Programs that move frames use the crate
//! `framepath`, which re-exports [`Frame`](memory::pool::Frame), [`Pool`](memory::pool::Pool) and the other
//! types that these programs need. Linux only.
//!
//! | module | contents |
//! | --- | --- |
//! | [`memory`] | pools of frames in sealed memfds, mappings |
//! | [`sync`] | queue and rings between threads, futexes, barriers |
//! | [`process`] | child processes, the sandbox of workers, signals, stop requests |
//! | [`crossing`] | memory, rings and sockets that a worker and its caller share |
//! | [`v4l2`] | cameras, decoders and other devices; the interface of the kernel module |
//! | [`measure`] | meters and counters of threads |
//! | [`bpf`] | programs, probes and tracepoints that observe other processes |
//! | [`time`] | clocks and sleeps |
//! | [`net`] | options of UDP sockets: segmentation offload, receive buffer |
//! | [`tun`] | virtual network devices |
//! | [`display`] | memory and textures that a window shows; the terminal |
//! | [`machine`] | facts about this computer: CPU, kernel, device nodes; the limit of open files |
//!
//! # Example
//!
//! A frame goes through a queue to another thread. Its slot returns to the pool when the last handle is
//! dropped, on any thread.
//!
//! ```
//! use framepath_model::format::{Layout, PixelFormat};
//! use framepath_model::stream::FrameMeta;
//! use framepath_os::memory::pool::Pool;
//! use framepath_os::sync::queue::{Leaky, queue};
//!
//! let layout = Layout::packed(PixelFormat::Grey, 64, 48)?;
//! let mut pool = Pool::new(layout.size, 4)?;
//! let (mut sender, mut receiver) = queue(2, Leaky::No);
//!
//! let reader = std::thread::spawn(move || {
//!     let mut sum = 0;
//!     while let Some(frame) = receiver.recv() {
//!         let frame: framepath_os::memory::pool::Frame = frame;
//!         sum += u64::from(frame.row(0, 0).to_vec()[0]);
//!     }
//!     sum
//! });
//! for seq in 0..10 {
//!     // Waits while all four slots are in use.
//!     let mut frame = pool.acquire()?;
//!     frame.set_layout(&layout)?;
//!     frame.plane_mut(0).fill(seq as u8);
//!     let frame = frame.freeze(FrameMeta { seq, ..FrameMeta::default() });
//!     sender.send_waiting(frame).map_err(|_| "the reader is gone")?;
//! }
//! drop(sender);
//! assert_eq!(reader.join().unwrap(), 45);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With `--cfg loom`, only the lock-free parts are built, so that the model checker loom can test them.

#[cfg(not(any(loom, miri)))]
pub mod bpf;
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
pub mod tun;
#[cfg(not(any(loom, miri)))]
pub mod v4l2;
