// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bars of a trace: frames that wait in a queue or inside a hop; and the number of frames in each queue.

use std::collections::{BTreeMap, HashMap};

use framepath_model::ledger::{Cause, Row, SpanPlace, flag};
use serde_json::{Value, json};

use super::tracks::{Tracks, arguments};
use crate::report::Report;

/// Part of a bar: its name, start and end, CLOCK_MONOTONIC nanoseconds.
type Part = (String, u64, u64);

/// Adds a bar for each frame in each queue, and for each frame that waited inside another hop or in a worker.
/// Asynchronous events, because the waits of frames overlap; a viewer puts them below each other.
pub(super) fn draw(report: &Report, tracks: &Tracks<'_>, events: &mut Vec<Value>) {
    let mut inside: HashMap<(u16, u64), Vec<Part>> = HashMap::new();
    for span in &report.spans {
        let name = match span.place {
            SpanPlace::Inside(cause) => cause.name().to_owned(),
            SpanPlace::Helper(at) => tracks.helper(at),
            SpanPlace::Thread(_) => continue,
        };
        inside.entry((span.hop, span.seq)).or_default().push((name, span.start_ns, span.end_ns));
    }
    for row in &report.rows {
        let mut parts = match (row.has(flag::LINK), row.has(flag::SPLIT)) {
            (true, _) => queued(row),
            (_, true) => inside.remove(&(row.hop, row.seq)).unwrap_or_default(),
            _ => continue,
        };
        parts.sort_by_key(|(_, start_ns, end_ns)| (*start_ns, *end_ns));
        let ends =
            parts.iter().map(|(_, start_ns, _)| *start_ns).min().zip(parts.iter().map(|part| part.2).max());
        let Some((start_ns, end_ns)) = ends else { continue };
        let bar = Bar { tracks, hop: row.hop, seq: row.seq };
        let mut args = arguments(row);
        if let [(cause, ..)] = &parts[..] {
            args["cause"] = json!(cause);
        }
        events.push(bar.begin(tracks.hop(row.hop), start_ns, args));
        if parts.len() > 1 {
            for (name, start_ns, end_ns) in &parts {
                events.push(bar.begin(name, *start_ns, json!({"frame": row.seq})));
                events.push(bar.end(name, *end_ns));
            }
        }
        events.push(bar.end(tracks.hop(row.hop), end_ns));
    }
}

/// Returns the parts of a frame's time in the queue of `row`.
fn queued(row: &Row) -> Vec<Part> {
    let woken_ns = (row.enter_ns + row.wakeup_ns).min(row.leave_ns);
    let part = |cause: Cause, start_ns, end_ns| (cause.name().to_owned(), start_ns, end_ns);
    let wakeup = part(Cause::Wakeup, row.enter_ns, woken_ns);
    let queue = part(Cause::Queue, woken_ns, row.leave_ns);
    match (row.wakeup_ns > 0, woken_ns < row.leave_ns) {
        (true, true) => vec![wakeup, queue],
        (true, false) => vec![wakeup],
        (false, _) => vec![queue],
    }
}

/// Maker of the events of one bar.
struct Bar<'a> {
    tracks: &'a Tracks<'a>,
    hop: u16,
    seq: u64,
}

impl Bar<'_> {
    fn begin(&self, name: &str, ns: u64, args: Value) -> Value {
        let mut event = self.end(name, ns);
        event["ph"] = json!("b");
        event["args"] = args;
        event
    }

    fn end(&self, name: &str, ns: u64) -> Value {
        json!({
            "ph": "e", "pid": self.tracks.pid, "tid": 1, "cat": "wait", "name": name,
            "id2": {"local": format!("{:x}.{:x}", self.hop, self.seq)}, "ts": self.tracks.time(ns),
        })
    }
}

/// Adds a counter for each queue: the number of frames that were handed to it and not yet taken or dropped. The
/// number may exceed the depth of the queue by two: a producer that waits for room has handed its frame over, and
/// a consumer stamps its frame a moment after it has taken it.
pub(super) fn count(report: &Report, tracks: &Tracks<'_>, events: &mut Vec<Value>) {
    let mut changes: BTreeMap<(u16, u64), i64> = BTreeMap::new();
    for row in report.rows.iter().filter(|row| row.has(flag::LINK)) {
        *changes.entry((row.hop, row.enter_ns)).or_default() += 1;
        *changes.entry((row.hop, row.leave_ns)).or_default() -= 1;
    }
    let (mut of, mut frames) = (None, 0);
    for ((hop, ns), change) in changes {
        if of.replace(hop) != Some(hop) {
            frames = 0;
        }
        frames += change;
        events.push(json!({
            "ph": "C", "pid": tracks.pid, "name": tracks.hop(hop), "ts": tracks.time(ns),
            "args": {"frames waiting": frames},
        }));
    }
}
