// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings in the calls of a recording.

use std::collections::HashMap;

use serde::Serialize;

use crate::calls::CallEvent;
use crate::frame_ledger::StreamLedger;
use crate::link_counts::LinkCounts;
use crate::probes::ProbeCount;
use crate::shown_order::Unmatched;
use crate::trace_level::TraceLevel;
use crate::wait_object::WaitObjects;

/// Findings in a recording's calls.
#[derive(Debug, Default)]
pub(crate) struct CallFindings {
    /// Level of the recording; `None` without calls.
    pub(crate) level: Option<TraceLevel>,
    pub(crate) calls: Vec<CallEvent>,
    /// True if only some stages are shown.
    pub(crate) is_limited: bool,
    pub(crate) streams: Vec<StreamLedger>,
    /// Number of further streams, with fewer frames.
    pub(crate) more_streams: usize,
    /// Number of single pictures that were decoded beside a stream.
    pub(crate) single_pictures: u64,
    pub(crate) ambiguous: u64,
    /// Links between the calls of FFmpeg's frames.
    pub(crate) links: LinkCounts,
    pub(crate) unmatched: Vec<Unmatched>,
    /// Names of the codecs of threads that a codec has started.
    pub(crate) codecs: HashMap<i32, String>,
    /// CPU clocks of threads during the recording, nanoseconds.
    pub(crate) clocks: HashMap<i32, u64>,
    pub(crate) lost: u64,
    pub(crate) probes: ProbeCount,
    /// Objects that threads waited for.
    pub(crate) objects: WaitObjects,
    /// Files that got their probes behind the mapping.
    pub(crate) late: Vec<LateProbes>,
    /// Why programs and libraries got no probes.
    pub(crate) unprobed: Vec<String>,
    /// Number of marks of frames, and of calls of devices.
    pub(crate) marks: usize,
    pub(crate) device_calls: usize,
    /// True if the ledgers tell the time behind a used CPU quota from preemptions.
    pub(crate) knows_quotas: bool,
}

/// File that got its probes when a process had already mapped it: earlier calls are not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LateProbes {
    /// Name of the file.
    pub file: String,
    /// Id of the process.
    pub process: i32,
    /// Time from the mapping to the probes, nanoseconds.
    pub late_ns: u64,
}
