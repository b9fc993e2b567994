// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names and numbers of a trace's tracks, and its time.

use framepath_model::ledger::{Row, SpanPlace, flag};
use serde_json::{Value, json};

use crate::helper::{HelperInfo, HelperKind};
use crate::report::Report;

/// Tracks of one run, which is a process of the trace.
pub(super) struct Tracks<'a> {
    pub(super) pid: usize,
    report: &'a Report,
    /// Name of each hop: its text, with its index if another hop has the same text.
    hops: Vec<String>,
    /// Time 0 of the trace: the earliest time of the run, CLOCK_MONOTONIC nanoseconds.
    origin_ns: u64,
}

impl<'a> Tracks<'a> {
    pub(super) fn new(pid: usize, report: &'a Report) -> Tracks<'a> {
        let name = |(at, text): (usize, &String)| {
            let is_unique = report.hops.iter().filter(|hop| hop.text == *text).count() == 1;
            if is_unique { text.clone() } else { format!("{text} (hop {at})") }
        };
        let hops = report.hops.iter().map(|hop| &hop.text).enumerate().map(name).collect();
        let starts = report.rows.iter().map(|row| row.enter_ns);
        let starts = starts.chain(report.spans.iter().map(|span| span.start_ns));
        Tracks { pid, report, hops, origin_ns: starts.min().unwrap_or(0) }
    }

    pub(super) fn hop(&self, hop: u16) -> &str {
        self.hops.get(usize::from(hop)).map_or("", |name| name)
    }

    /// Returns the name of the helper with index `at`.
    pub(super) fn helper(&self, at: u16) -> String {
        let Some(HelperInfo { kind, id, .. }) = self.report.helpers.get(usize::from(at)) else {
            return String::new();
        };
        match kind {
            HelperKind::DecoderThread => format!("decoder thread {id}"),
            HelperKind::Worker if *id == 0 => "worker".to_owned(),
            HelperKind::Worker => format!("worker {id}"),
        }
    }

    /// Returns the number of the track of a thread or helper; `None` for a wait, which is on no such track.
    /// Numbers begin with 1, because Perfetto reserves thread 0.
    pub(super) fn number(&self, place: SpanPlace) -> Option<usize> {
        match place {
            SpanPlace::Thread(thread) => Some(1 + usize::from(thread)),
            SpanPlace::Helper(helper) => Some(1 + self.report.threads.len() + usize::from(helper)),
            SpanPlace::Inside(_) => None,
        }
    }

    /// Returns the events that name the process `name` and its tracks, and put the tracks in their order.
    pub(super) fn names(&self, name: &str) -> Vec<Value> {
        let pid = self.pid;
        let threads = self.report.threads.iter().enumerate().map(|(at, name)| format!("{at} {name}"));
        let helpers = self.report.helpers.iter().enumerate();
        let helpers = helpers.map(|(at, info)| format!("{}: {}", self.hop(info.hop), self.helper(at as u16)));
        let process = json!({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}});
        let mut events = vec![process];
        for (at, name) in threads.chain(helpers).enumerate() {
            let event =
                |key: &str, args| json!({"ph": "M", "pid": pid, "tid": at + 1, "name": key, "args": args});
            events.push(event("thread_name", json!({"name": name})));
            events.push(event("thread_sort_index", json!({"sort_index": at + 1})));
        }
        events
    }

    /// Converts a time, CLOCK_MONOTONIC nanoseconds, to the trace's time.
    pub(super) fn time(&self, ns: u64) -> f64 {
        micros(ns.saturating_sub(self.origin_ns))
    }
}

/// Converts nanoseconds to microseconds. Rounded up where the nearest number, or the one below it, would lose a
/// nanosecond in a viewer that multiplies by 1000 and cuts off the fraction: slices that touch would then overlap.
/// Readers of JSON may take a number for the one beside it.
pub(super) fn micros(ns: u64) -> f64 {
    let us = ns as f64 / 1e3;
    let below = f64::from_bits(us.to_bits().saturating_sub(1));
    if ns == 0 || (below * 1e3) as u64 == ns { us } else { f64::from_bits(us.to_bits() + 2) }
}

/// Returns the arguments of the slice or bar in which the frame of `row` leaves the hop.
pub(super) fn arguments(row: &Row) -> Value {
    let mut args = json!({
        "frame": row.seq,
        "copied_bytes": row.copied_bytes,
        "copy_us": row.copy_ns as f64 / 1e3,
        "queue_us": row.queue_ns as f64 / 1e3,
        "wakeup_us": row.wakeup_ns as f64 / 1e3,
        "blocked_us": row.blocked_ns as f64 / 1e3,
    });
    for (name, ns) in [
        ("throttled_us", row.throttled_ns),
        ("stopped_us", row.stopped_ns),
        ("stolen_us", row.stolen_ns),
        ("held_us", row.held_ns),
        ("held_depth_us", row.held_depth_ns),
        ("paced_us", row.paced_ns),
        ("device_us", row.device_ns),
        ("pool_us", row.pool_ns),
    ] {
        if ns > 0 {
            args[name] = json!(ns as f64 / 1e3);
        }
    }
    if row.has(flag::COUNTED) {
        args["compute_us"] = json!(row.compute_ns as f64 / 1e3);
        args["preempted_us"] = json!(row.preempted_ns as f64 / 1e3);
        args["switches"] = json!(row.voluntary_switches + row.involuntary_switches);
        args["minor_faults"] = json!(row.minor_faults);
    }
    if row.has(flag::DROPPED) {
        args["dropped"] = json!(true);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_nanosecond_is_lost() {
        for ns in (1..100_000).chain((1..100).map(|n| n * 8_640_000_000_123)) {
            let us = micros(ns).to_bits();
            for read in [us - 1, us, us + 1].map(f64::from_bits) {
                assert_eq!((read * 1e3) as u64, ns);
            }
        }
        assert_eq!(micros(0), 0.0);
    }
}
