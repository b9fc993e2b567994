// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of frames in a GStreamer pipeline, from the pads through which buffers pass.
//!
//! A buffer is known by its presentation time; elements keep it. The time between two pads of a frame's way belongs to the
//! element between them, that after the last pad to the sink.

use std::collections::{BTreeMap, HashMap};

use crate::attribution::{Part, PartUntil, TraceFacts};
use crate::calls::Call;
use crate::frame_ledger::{StreamLedger, complete};
use crate::names::Pad;
use crate::spans::CallSpan;
use crate::stage_limits::cut;

/// `GST_CLOCK_TIME_NONE`.
const NO_TIME: i64 = -1;

/// Greatest number of pads on a frame's way.
const LONGEST: usize = 100;

/// Pad, with its calls.
#[derive(Debug)]
struct Passage<'a> {
    pad: &'a Pad,
    address: u64,
    /// Index of the call of each time that passed the pad once; `None` for a time that passed it several times.
    calls: HashMap<i64, Option<usize>>,
}

/// Makes the ledger of the way to each sink, the one with the most frames first.
pub(crate) fn pad_ledgers(facts: &TraceFacts<'_>) -> Vec<StreamLedger> {
    let mut processes: BTreeMap<i32, BTreeMap<u64, Passage<'_>>> = BTreeMap::new();
    for (index, span) in facts.spans.iter().enumerate().filter(|(_, span)| span.call == Call::PadPush) {
        let Some(pad) = facts.names.pad(span.process, span.object) else { continue };
        let new = || Passage { pad, address: span.object, calls: HashMap::new() };
        let passage = processes.entry(span.process).or_default().entry(span.object).or_insert_with(new);
        if span.pts != NO_TIME {
            passage.calls.entry(span.pts).and_modify(|call| *call = None).or_insert(Some(index));
        }
    }
    let mut ledgers: Vec<StreamLedger> = Vec::new();
    for passages in processes.values() {
        let passages: Vec<&Passage<'_>> =
            passages.values().filter(|passage| !passage.calls.is_empty()).collect();
        let is_end = |passage: &&&Passage<'_>| !passages.iter().any(|next| follows(passage, next));
        for end in passages.iter().filter(is_end) {
            ledgers.push(ledger(&way(&passages, end), facts));
        }
    }
    ledgers.retain(|ledger| ledger.frames > 0);
    ledgers.sort_by_key(|ledger| std::cmp::Reverse(ledger.frames));
    ledgers
}

/// True if the buffers of `pad` go on through `next`: the same element is between them, or one of them belongs to the
/// other as the inner side of a ghost pad; and half of the times agree.
fn follows(pad: &Passage<'_>, next: &Passage<'_>) -> bool {
    let is_linked =
        pad.pad.next == next.pad.parent || pad.pad.next == next.address || pad.pad.peer == next.pad.parent;
    is_linked && pad.address != next.address && 2 * common(pad, next) >= pad.calls.len().min(next.calls.len())
}

fn common(pad: &Passage<'_>, next: &Passage<'_>) -> usize {
    pad.calls.keys().filter(|time| next.calls.contains_key(time)).count()
}

/// Returns the pads up to `end`, in the order in which buffers pass them.
fn way<'a>(passages: &[&'a Passage<'a>], end: &'a Passage<'a>) -> Vec<&'a Passage<'a>> {
    let mut way = vec![end];
    while way.len() < LONGEST {
        let at = way[way.len() - 1];
        let before = passages
            .iter()
            .filter(|before| follows(before, at) && !way.iter().any(|p| p.address == before.address));
        match before.max_by_key(|before| common(before, at)) {
            Some(before) => way.push(before),
            None => break,
        }
    }
    way.reverse();
    way
}

fn ledger(way: &[&Passage<'_>], facts: &TraceFacts<'_>) -> StreamLedger {
    // The sides of ghost pads are no elements: buffers pass them at once.
    let is_real = |at: usize| !is_ghost(way[at], way);
    let pads: Vec<&Passage<'_>> = (0..way.len()).filter(|at| is_real(*at)).map(|at| way[at]).collect();
    let (Some(first), Some(last)) = (pads.first(), way.last()) else { return StreamLedger::default() };
    let mut names: Vec<String> = pads[1..].iter().map(|pad| pad.pad.name.clone()).collect();
    names.push(last.pad.next_name.clone());
    let process = facts.spans.iter().find(|span| span.object == first.address).map_or(0, |span| span.process);
    let mut ledger = StreamLedger { process, from: first.pad.name.clone(), ..StreamLedger::default() };
    let Some(range) = facts.limits.of(&names) else { return ledger };
    ledger.limit(names, &range);
    let mut times: Vec<(u64, i64)> = first
        .calls
        .iter()
        .filter_map(|(time, call)| call.map(|call| (facts.spans[call].enter_ns, *time)))
        .collect();
    times.sort_unstable();
    for (number, (birth_ns, time)) in times.into_iter().enumerate() {
        let calls: Option<Vec<&CallSpan>> = pads
            .iter()
            .map(|pad| pad.calls.get(&time).copied().flatten().map(|call| &facts.spans[call]))
            .collect();
        let Some(calls) = calls.filter(|calls| calls.is_sorted_by_key(|call| call.enter_ns)) else {
            ledger.others += 1;
            continue;
        };
        let mut stages: Vec<(Vec<PartUntil>, i32)> =
            calls.windows(2).map(|pair| (element(pair[0], pair[1], facts), pair[1].thread)).collect();
        let last = calls[calls.len() - 1];
        stages.push((vec![(Part::Thread { thread: last.thread, pool: false }, last.leave_ns)], last.thread));
        let (birth_ns, stages) = cut(stages, range.clone(), birth_ns);
        facts.add_frame(&mut ledger, number as u64, birth_ns, stages);
    }
    complete(&mut ledger, facts);
    ledger
}

/// True if the pad is a side of a ghost pad: its parent is the pad's other side, or it is the parent's.
fn is_ghost(pad: &Passage<'_>, way: &[&Passage<'_>]) -> bool {
    way.iter().any(|other| {
        let is_inner = other.pad.peer == pad.pad.parent && other.address != pad.address;
        is_inner || other.pad.next == pad.address
    })
}

/// Returns the parts of the time that a frame spends in the element between two pads.
fn element(from: &CallSpan, to: &CallSpan, facts: &TraceFacts<'_>) -> Vec<PartUntil> {
    let pool = from.thread == to.thread && facts.has_pool(from.thread, from.enter_ns, from.leave_ns);
    let worker = Part::Thread { thread: from.thread, pool };
    if to.enter_ns <= from.leave_ns {
        return vec![(worker, to.enter_ns)];
    }
    // The element kept the frame, or gave it to another thread.
    let kept = match from.thread == to.thread {
        _ if pool => Part::Pool,
        true => Part::Held,
        false => Part::Way { from: from.thread, to: to.thread },
    };
    vec![(worker, from.leave_ns), (kept, to.enter_ns)]
}
