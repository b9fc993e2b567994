// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of frames in a GStreamer pipeline, from the pads through which buffers pass.
//!
//! A buffer is known by its presentation time; elements keep it. Buffers of one time that pass a pad one after the other are
//! parts of one frame, such as its RTP packets. The time between two pads of a frame's way belongs to the element between
//! them, that after the last pad to the sink.

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
    /// Calls of each time; `None` for a time that passed the pad again after another one.
    calls: HashMap<i64, Option<PadCalls>>,
    /// Time of the last call.
    last: i64,
}

/// Calls with which all buffers of a frame pass a pad, one after the other.
#[derive(Clone, Copy, Debug)]
struct PadCalls {
    /// The first one.
    first: CallSpan,
    /// End of the last one, CLOCK_MONOTONIC nanoseconds.
    end_ns: u64,
}

impl Passage<'_> {
    /// Adds a call, which begins after those before.
    fn add(&mut self, call: &CallSpan) {
        let is_next = std::mem::replace(&mut self.last, call.pts) == call.pts;
        let calls = self.calls.entry(call.pts);
        calls
            .and_modify(|calls| match calls {
                Some(calls) if is_next => calls.end_ns = calls.end_ns.max(call.leave_ns),
                _ => *calls = None,
            })
            .or_insert(Some(PadCalls { first: *call, end_ns: call.leave_ns }));
    }
}

/// Makes the ledger of the way to each sink, the one with the most frames first.
pub(crate) fn pad_ledgers(facts: &TraceFacts<'_>) -> Vec<StreamLedger> {
    let mut processes: BTreeMap<i32, BTreeMap<u64, Passage<'_>>> = BTreeMap::new();
    for span in facts.spans.iter().filter(|span| span.call == Call::PadPush) {
        let Some(pad) = facts.names.pad(span.process, span.object) else { continue };
        let new = || Passage { pad, address: span.object, calls: HashMap::new(), last: NO_TIME };
        let passage = processes.entry(span.process).or_default().entry(span.object).or_insert_with(new);
        if span.pts != NO_TIME {
            passage.add(span);
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
        .filter_map(|(time, calls)| calls.map(|calls| (calls.first.enter_ns, *time)))
        .collect();
    times.sort_unstable();
    for (number, (birth_ns, time)) in times.into_iter().enumerate() {
        let calls: Option<Vec<PadCalls>> =
            pads.iter().map(|pad| pad.calls.get(&time).copied().flatten()).collect();
        let Some(calls) = calls.filter(|calls| calls.is_sorted_by_key(|calls| calls.first.enter_ns)) else {
            ledger.others += 1;
            continue;
        };
        let mut stages: Vec<(Vec<PartUntil>, i32)> =
            calls.windows(2).map(|pair| (element(&pair[0], &pair[1], facts), pair[1].first.thread)).collect();
        let last = calls[calls.len() - 1];
        let thread = last.first.thread;
        stages.push((vec![(Part::Thread { thread, pool: false }, last.end_ns)], thread));
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
fn element(from: &PadCalls, to: &PadCalls, facts: &TraceFacts<'_>) -> Vec<PartUntil> {
    let (thread, next, enter_ns, until_ns) =
        (from.first.thread, to.first.thread, from.first.enter_ns, to.first.enter_ns);
    // Another thread may have the frame's first buffer while this one goes on with its second one.
    let end_ns = if thread == next { from.end_ns } else { from.first.leave_ns };
    let pool = thread == next && facts.has_pool(thread, enter_ns, end_ns);
    let worker = Part::Thread { thread, pool };
    if until_ns <= end_ns {
        return vec![(worker, until_ns)];
    }
    // The element kept the frame, or gave it to another thread.
    let kept = match thread == next {
        _ if pool => Part::Pool,
        true => Part::Held,
        false => Part::Way { from: thread, to: next },
    };
    vec![(worker, end_ns), (kept, until_ns)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ObjectNames;
    use crate::timeline::{Doing, ThreadStretch, Timeline};

    /// Call of a pad: thread, pad, time, begin and end.
    type PadCall = (i32, u64, i64, u64, u64);

    /// Returns the ledger of a pipeline `payloader ! depayloader ! end`, of which pad 10 belongs to `payloader`, and 20 to `depayloader`.
    fn ledger_of(calls: &[PadCall]) -> StreamLedger {
        let span = |&(thread, object, pts, enter_ns, leave_ns): &PadCall| CallSpan {
            call: Call::PadPush,
            process: 1,
            thread,
            enter_ns,
            leave_ns,
            object,
            data: 1,
            pts,
            result: 0,
        };
        let spans: Vec<CallSpan> = calls.iter().map(span).collect();
        let mut names = ObjectNames::default();
        let elements = ["payloader", "depayloader", "end"];
        for (parent, pair) in (1..).zip(elements.windows(2)) {
            let (name, next_name) = (pair[0].to_owned(), pair[1].to_owned());
            names.add_pad(1, 10 * parent, Pad { parent, name, peer: 99, next: parent + 1, next_name });
        }
        let running = ThreadStretch { from_ns: 0, to_ns: 10_000, doing: Doing::Running, by: 0, stolen_ns: 0 };
        let timelines = HashMap::from([1, 2].map(|thread| (thread, Timeline::of(vec![running]))));
        pad_ledgers(&TraceFacts::new(&spans, &timelines, &names, &[])).remove(0)
    }

    fn stages(ledger: &StreamLedger) -> Vec<(u64, u64, u64)> {
        ledger.rows.iter().map(|row| (row.enter_ns, row.leave_ns, row.held_ns)).collect()
    }

    #[test]
    fn buffers_of_one_time_in_succession_are_one_frame() {
        // Three packets, and the frame behind the last one.
        let ledger = ledger_of(&[
            (1, 10, 7, 100, 110),
            (1, 10, 7, 120, 130),
            (1, 10, 7, 140, 170),
            (1, 20, 7, 150, 165),
            (1, 10, 8, 200, 230),
            (1, 20, 8, 210, 220),
        ]);
        assert_eq!((ledger.frames, ledger.others), (2, 0));
        assert_eq!(stages(&ledger), [(100, 150, 0), (150, 165, 0), (200, 210, 0), (210, 220, 0)]);
        // The frame leaves the last pad in parts.
        let ledger = ledger_of(&[(1, 10, 7, 100, 190), (1, 20, 7, 110, 120), (1, 20, 7, 130, 180)]);
        assert_eq!(stages(&ledger), [(100, 110, 0), (110, 180, 0)]);
    }

    #[test]
    fn a_time_that_comes_again_is_no_frame() {
        let ledger = ledger_of(&[
            (1, 10, 7, 100, 110),
            (1, 20, 7, 105, 106),
            (1, 10, 8, 120, 130),
            (1, 20, 8, 125, 126),
            (1, 10, 7, 140, 150),
            (1, 20, 7, 145, 146),
            (1, 10, 7, 160, 170),
            (1, 20, 7, 165, 166),
            (1, 10, 9, 180, 190),
            (1, 20, 9, 185, 186),
        ]);
        assert_eq!((ledger.frames, ledger.others), (2, 0));
        assert_eq!(ledger.rows.iter().map(|row| row.birth_ns).collect::<Vec<_>>(), [120, 120, 180, 180]);
    }

    #[test]
    fn another_thread_may_have_the_first_buffer_before_the_last_one_is_pushed() {
        let ledger = ledger_of(&[(1, 10, 7, 100, 110), (2, 20, 7, 130, 150), (1, 10, 7, 140, 190)]);
        let thread_end = ledger.spans.iter().find(|span| span.hop == 0).unwrap().end_ns;
        assert_eq!((thread_end, stages(&ledger)), (110, vec![(100, 130, 0), (130, 150, 0)]));
    }
}
