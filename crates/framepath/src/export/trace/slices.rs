// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slices of a trace: the work of threads, decoder threads and workers on frames; and the arrows between them.

use std::collections::HashMap;

use framepath_model::ledger::{Row, SpanPlace, flag};
use serde_json::{Value, json};

use super::tracks::{Tracks, arguments, micros};
use crate::report::Report;

/// Stretch of work of one thread or helper on one frame.
struct Slice<'a> {
    place: SpanPlace,
    hop: u16,
    seq: u64,
    start_ns: u64,
    end_ns: u64,
    /// Row of the frame that ends with this slice; `None` for an earlier slice of the row.
    row: Option<&'a Row>,
}

/// All slices of a run, by track and start.
pub(super) struct Slices<'a> {
    report: &'a Report,
    slices: Vec<Slice<'a>>,
}

impl<'a> Slices<'a> {
    pub(super) fn new(report: &'a Report) -> Slices<'a> {
        let whole = report.rows.iter().filter(|row| !is_split(row) && !row.has(flag::LINK));
        let whole = whole.map(|row| Slice {
            place: SpanPlace::Thread(row.thread),
            hop: row.hop,
            seq: row.seq,
            start_ns: row.enter_ns,
            end_ns: row.leave_ns,
            row: Some(row),
        });
        let split: HashMap<(u16, u64), &Row> =
            report.rows.iter().filter(|row| is_split(row)).map(|row| ((row.hop, row.seq), row)).collect();
        let works = report.spans.iter().filter(|span| !matches!(span.place, SpanPlace::Inside(_)));
        let parts = works.map(|span| {
            let row = split.get(&(span.hop, span.seq)).copied();
            let is_last =
                |row: &&Row| span.end_ns == row.leave_ns && span.place == SpanPlace::Thread(row.thread);
            Slice {
                place: span.place,
                hop: span.hop,
                seq: span.seq,
                start_ns: span.start_ns,
                end_ns: span.end_ns,
                row: row.filter(is_last),
            }
        });
        let mut slices: Vec<Slice<'a>> = whole.chain(parts).collect();
        slices.sort_by_key(|slice| (slice.place, slice.start_ns, slice.end_ns));
        // A worker reports how long it worked on a frame, and not when it handed the frame over. So its slice may
        // reach a little into the next one.
        for at in 1..slices.len() {
            let next = (slices[at].place, slices[at].start_ns);
            let slice = &mut slices[at - 1];
            if slice.place == next.0 {
                slice.end_ns = slice.end_ns.min(next.1);
            }
        }
        Slices { report, slices }
    }

    /// Adds an event for each slice.
    pub(super) fn draw(&self, tracks: &Tracks<'_>, events: &mut Vec<Value>) {
        for slice in &self.slices {
            let Some(tid) = tracks.number(slice.place) else { continue };
            let args = slice.row.map_or_else(|| json!({"frame": slice.seq}), arguments);
            events.push(json!({
                "ph": "X", "pid": tracks.pid, "tid": tid, "cat": "stage", "name": tracks.hop(slice.hop),
                "ts": tracks.time(slice.start_ns), "dur": micros(slice.end_ns - slice.start_ns), "args": args,
            }));
        }
    }

    /// Adds the steps of each frame's arrows to each sink. `flows` is the id of the last arrow so far; this
    /// function adds 1 for each arrow. Ids are numbers, because Perfetto takes no others.
    pub(super) fn follow(&self, tracks: &Tracks<'_>, flows: &mut u64, events: &mut Vec<Value>) {
        let mut frames: HashMap<u64, Vec<&Slice<'_>>> = HashMap::new();
        for slice in &self.slices {
            frames.entry(slice.seq).or_default().push(slice);
        }
        let mut frames: Vec<_> = frames.into_iter().collect();
        frames.sort_unstable_by_key(|(seq, _)| *seq);
        let hops = self.report.hop_tree();
        let ways: Vec<Vec<bool>> = hops.leaves().into_iter().map(|end| hops.way_to(end)).collect();
        for (_, slices) in &mut frames {
            slices.sort_by_key(|slice| (slice.start_ns, slice.hop, slice.end_ns));
            for way in &ways {
                let is_on_way =
                    |slice: &&&Slice<'_>| way.get(usize::from(slice.hop)).is_some_and(|is_on_way| *is_on_way);
                let steps: Vec<_> = slices.iter().filter(is_on_way).collect();
                // An arrow needs two ends.
                if steps.len() < 2 {
                    continue;
                }
                *flows += 1;
                for (at, slice) in steps.iter().enumerate() {
                    let Some(tid) = tracks.number(slice.place) else { continue };
                    let phase = match at {
                        0 => "s",
                        at if at + 1 == steps.len() => "f",
                        _ => "t",
                    };
                    events.push(json!({
                        "ph": phase, "pid": tracks.pid, "tid": tid, "ts": tracks.time(slice.start_ns),
                        "name": "frame", "cat": "frame", "id": *flows, "bp": "e",
                    }));
                }
            }
        }
    }
}

fn is_split(row: &Row) -> bool {
    row.has(flag::SPLIT)
}
