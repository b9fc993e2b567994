// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording that has ended, before its analysis.

use std::collections::HashSet;

use framepath_os::measure::process_events::ThreadEvent;
use framepath_os::process::running::{self, Used};

use crate::call_log::CallLog;
use crate::report::{QuotaCount, TraceReport, Usage};
use crate::thread_times::ThreadRow;

/// Recording that has ended: nothing is attached to the program any more.
///
/// The analysis takes milliseconds for each second of an ordinary program. A hostile program can make it take any time and
/// memory, so a caller who records strange programs should limit both.
#[derive(Debug)]
pub struct FinishedRecording {
    /// Name of the command or process in texts.
    pub(crate) what: String,
    /// Begin and end of the recording, CLOCK_MONOTONIC nanoseconds.
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) usage: Usage,
    pub(crate) threads: FinishedThreads,
    /// Calls of the libraries; `None` at level `threads`.
    pub(crate) calls: Option<CallLog>,
    /// Why a higher level was not possible, if it was not demanded.
    pub(crate) no_higher: Option<String>,
    pub(crate) quota: QuotaCount,
    /// CPU time of this process before the recording.
    pub(crate) own: Used,
}

/// Threads of a recording that has ended.
#[derive(Debug)]
pub(crate) struct FinishedThreads {
    pub(crate) rows: Vec<ThreadRow>,
    /// Number of events that were lost.
    pub(crate) lost: u64,
    /// Events that were kept, in the order of their times.
    pub(crate) events: Vec<ThreadEvent>,
    /// Processes of which `events` have the samples in copying functions.
    pub(crate) sampled: HashSet<i32>,
}

impl FinishedRecording {
    /// Returns how the command ended, and what it used.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Finds the frames and where the time of each went.
    pub fn report(self) -> TraceReport {
        let FinishedRecording { what, start_ns, end_ns, usage, threads, calls, no_higher, quota, own } = self;
        let FinishedThreads { rows, lost, events, sampled } = threads;
        let frames = calls.map(|calls| calls.finish(&events, &sampled, end_ns));
        let mut report = TraceReport::new(what, end_ns - start_ns, usage, rows, lost, frames);
        report.no_higher = no_higher;
        report.quota = quota;
        report.own_cpu_ns = Some(running::own_usage().since(own).cpu_ns);
        report
    }
}
