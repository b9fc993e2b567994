// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of programs that were not written for framepath: touches perf events and memory of other processes, and
//! starts and ends the traced command.
//!
//! A recording has one of three [`TraceLevel`]s:
//!
//! - `bpf`: frames, stages and causes of programs that use FFmpeg's shared libraries or GStreamer, by probes (uprobes)
//!   and the scheduler's tracepoints. Root, or CAP_BPF and CAP_PERFMON.
//! - `preload`: frames and stages of a command, by a library that it loads. No privilege.
//! - `threads`: when each thread ran, was preempted and waited, of every program, also of static and stripped ones.
//!
//! | module | contents |
//! | --- | --- |
//! | `recording` | [`Recording`]: a command or a running process, until it ends, a time has passed or a signal arrives |
//! | `live` | [`LiveRecording`]: a running process, of which the last seconds are kept |
//! | `calls` | [`CALL_SITES`]: the observed functions, and the events of their calls |
//! | `probes`, `probe_event`, `probe_programs`, `library`, `elf_file`, `probe_site` | calls by BPF: attachment, programs, symbols, choice of the probed instruction |
//! | `loader_cache` | libraries that programs will find |
//! | `copy_functions` | functions in which samples of the threads are copies |
//! | `preload` | calls by a library in the program |
//! | `call_log`, `names` | collection of the calls, and names of the objects |
//! | `switch_program` | why a thread leaves its CPU: the program at the scheduler's switches, and its records |
//! | `wait_reason`, `wait_object`, `socket_names` | what threads wait for: by system call, and by the object behind its descriptor |
//! | `spans`, `timeline`, `switch_records`, `timed_wait`, `thread_times` | arithmetic: calls with begin and end; what each thread did when |
//! | `stage_limits` | [`StageLimits`]: selection of stages |
//! | `identify`, `stream_ways`, `pad_frames` | frames in the calls of FFmpeg, and of GStreamer |
//! | `shown_order` | frames in the pictures of a window, by their order |
//! | `mark`, `marked_frames`, `static_probes` | frames that a program names itself, by the static probes of framepath_frame.h |
//! | `device_calls`, `device_programs`, `device_frames`, `device_ledger` | buffers of V4L2 devices, by the kernel's tracepoints |
//! | `frame_ledger`, `attribution`, `kept_time`, `stage_wait` | [`StreamLedger`]: the rows of each frame, their causes, and what they waited for |
//! | `report`, `frame_text` | [`TraceReport`]: the result, as text and for JSON |
//!
//! # Example
//!
//! ```
//! use std::process::Command;
//! use framepath_trace::{TraceLevel, Recording};
//!
//! let mut sleep = Command::new("sleep");
//! sleep.arg("0.01");
//! // Fails where the kernel denies perf.
//! if let Ok(recording) = Recording::of_command(sleep, Some(TraceLevel::Threads)) {
//!     let report = recording.run(None)?;
//!     assert_eq!(report.threads.len(), 1);
//!     assert!(report.threads[0].waiting_ns >= 10_000_000);
//! }
//! # Ok::<(), framepath_trace::TraceError>(())
//! ```
#![forbid(unsafe_code)]

mod attribution;
mod call_findings;
mod call_log;
mod call_programs;
mod calls;
mod copy_functions;
mod device_calls;
mod device_frames;
mod device_ledger;
mod device_programs;
mod elf_file;
mod error;
mod filter_graph;
mod finished_recording;
mod frame_ledger;
mod frame_text;
mod identify;
mod kept_time;
mod library;
mod link_counts;
mod live;
mod loader_cache;
mod mark;
mod marked_frames;
mod name_events;
mod names;
mod own_user;
mod pad_frames;
mod pad_lineage;
mod patience;
mod preload;
mod probe_event;
mod probe_programs;
mod probe_site;
mod probes;
mod process_programs;

mod pts_expression;
mod recording;
mod report;
mod shown_order;
mod socket_names;
mod spans;
mod stage_limits;
mod stage_wait;
mod static_probes;
mod stream_ways;
mod switch_program;
mod switch_records;
mod thread_times;
mod time_base;
mod timed_wait;
mod timeline;
mod trace_level;
mod traced_frame;
mod wait_object;
mod wait_reason;

/// C header with which a program names its frames itself: `framepath_frame` and `framepath_frame_end`.
pub const FRAME_HEADER: &str = include_str!("../include/framepath_frame.h");

pub use call_findings::LateProbes;
pub use calls::{CALL_SITES, Call, CallEvent, CallItem, CallSite, NO_PTS, Phase};
pub use error::TraceError;
pub use finished_recording::FinishedRecording;
pub use frame_ledger::StreamLedger;
pub use link_counts::LinkCounts;
pub use live::LiveRecording;
pub use recording::{Recording, highest_level};
pub use report::{LeftOut, LeftOutReason, QuotaCount, TraceReport, Usage};
pub use stage_limits::StageLimits;
pub use stage_wait::StageWait;
pub use thread_times::{ThreadRow, ThreadTimes};
pub use trace_level::TraceLevel;
