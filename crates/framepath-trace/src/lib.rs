// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of programs that were not written for framepath: touches perf events of other processes, and
//! starts and ends the traced command.
//!
//! Level `threads`, the only one yet, shows when each thread ran, when it was preempted and when it waited. It
//! needs no privilege for a program of the same user, and works with every program: also with static and stripped
//! ones. It does not show frames.
//!
//! - [`Recording`] records a command or a running process until it ends, a time has passed or a signal arrives.
//! - [`ThreadTimes`] is the arithmetic: events in, times out. It does no I/O.
//! - [`TraceReport`] has the result, as text and for JSON.
//!
//! # Example
//!
//! ```
//! use std::process::Command;
//! use framepath_trace::{Level, Recording};
//!
//! let mut sleep = Command::new("sleep");
//! sleep.arg("0.01");
//! // Fails where the kernel denies perf.
//! if let Ok(recording) = Recording::of_command(sleep, Some(Level::Threads)) {
//!     let report = recording.run(None)?;
//!     assert_eq!(report.threads.len(), 1);
//!     assert!(report.threads[0].waiting_ns >= 10_000_000);
//! }
//! # Ok::<(), framepath_trace::TraceError>(())
//! ```
#![forbid(unsafe_code)]

mod attribution;
mod call_log;
mod calls;
mod error;
mod frame_ledger;
mod frame_text;
mod identify;
mod library;
mod names;
mod pad_frames;
mod preload;
mod probe_site;
mod probes;
mod recording;
mod report;
mod spans;
mod thread_times;
mod timeline;

pub use calls::{CALL_SITES, Call, CallEvent, CallSite, Item, NO_PTS, Phase};
pub use error::TraceError;
pub use frame_ledger::StreamLedger;
pub use recording::{Level, Recording};
pub use report::{TraceReport, Usage};
pub use thread_times::{ThreadRow, ThreadTimes};
