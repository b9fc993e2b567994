// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of frames in a GStreamer pipeline, from the pads through which buffers pass.
//!
//! A buffer is known by its presentation time; elements keep it. The time between two pads of a frame's way belongs to the
//! element between them, that after the last pad to the sink, until it shows the frame.

use std::collections::{BTreeMap, HashMap};

use crate::attribution::{Part, PartUntil, TraceFacts};
use crate::calls::Call;
use crate::frame_ledger::{PRESENT, StreamLedger, mean_blocked};
use crate::names::Pad;
use crate::shown_order::{Unmatched, shown_in_order};
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
pub(crate) fn pad_ledgers(facts: &TraceFacts<'_>) -> (Vec<StreamLedger>, Vec<Unmatched>) {
    let mut processes: BTreeMap<i32, BTreeMap<u64, Passage<'_>>> = BTreeMap::new();
    for (index, span) in facts.spans.iter().enumerate().filter(|(_, span)| span.call == Call::PadPush) {
        let Some(pad) = facts.names.pad(span.process, span.object) else { continue };
        let new = || Passage { pad, address: span.object, calls: HashMap::new() };
        let passage = processes.entry(span.process).or_default().entry(span.object).or_insert_with(new);
        if span.pts != NO_TIME {
            passage.calls.entry(span.pts).and_modify(|call| *call = None).or_insert(Some(index));
        }
    }
    let mut shown: HashMap<i32, Vec<usize>> = HashMap::new();
    for (index, span) in facts.spans.iter().enumerate().filter(|(_, span)| span.call == Call::Present) {
        shown.entry(span.thread).or_default().push(index);
    }
    let (mut ledgers, mut unmatched) = (Vec::new(), Vec::new());
    for passages in processes.values() {
        let passages: Vec<&Passage<'_>> =
            passages.values().filter(|passage| !passage.calls.is_empty()).collect();
        let is_end = |passage: &&&Passage<'_>| !passages.iter().any(|next| follows(passage, next));
        let mut routes: Vec<Route<'_>> =
            passages.iter().filter(is_end).map(|end| Route::of(&way(&passages, end), facts)).collect();
        unmatched.extend(show(&mut routes, &shown, facts.spans));
        ledgers.extend(routes.into_iter().map(|route| route.ledger(facts)));
    }
    ledgers.retain(|ledger: &StreamLedger| ledger.frames > 0);
    ledgers.sort_by_key(|ledger| std::cmp::Reverse(ledger.frames));
    (ledgers, unmatched)
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

/// Way to a sink, with the buffers that passed it.
struct Route<'a> {
    process: i32,
    /// Element from which the buffers come.
    from: String,
    /// Elements that they pass.
    names: Vec<String>,
    /// Buffers that passed all pads, in the order in which they came to the first one.
    frames: Vec<PadFrame<'a>>,
    /// Number of buffers that did not.
    others: u64,
}

/// Buffer that passed all pads of a way.
struct PadFrame<'a> {
    /// Number among the buffers that came to the first pad.
    number: u64,
    birth_ns: u64,
    /// Call of each pad.
    calls: Vec<&'a CallSpan>,
    /// Call that showed it.
    present: Option<&'a CallSpan>,
}

impl PadFrame<'_> {
    fn last(&self) -> &CallSpan {
        self.calls[self.calls.len() - 1]
    }
}

impl<'a> Route<'a> {
    fn of(way: &[&Passage<'_>], facts: &TraceFacts<'a>) -> Route<'a> {
        // The sides of ghost pads are no elements: buffers pass them at once.
        let is_real = |at: usize| !is_ghost(way[at], way);
        let pads: Vec<&Passage<'_>> = (0..way.len()).filter(|at| is_real(*at)).map(|at| way[at]).collect();
        let mut route =
            Route { process: 0, from: String::new(), names: Vec::new(), frames: Vec::new(), others: 0 };
        let (Some(first), Some(last)) = (pads.first(), way.last()) else { return route };
        route.names = pads[1..].iter().map(|pad| pad.pad.name.clone()).collect();
        route.names.push(last.pad.next_name.clone());
        route.from = first.pad.name.clone();
        let process = facts.spans.iter().find(|span| span.object == first.address);
        route.process = process.map_or(0, |span| span.process);
        let mut times: Vec<(u64, i64)> = first
            .calls
            .iter()
            .filter_map(|(time, call)| call.map(|call| (facts.spans[call].enter_ns, *time)))
            .collect();
        times.sort_unstable();
        for (number, (birth_ns, time)) in (0..).zip(times) {
            let calls: Option<Vec<&CallSpan>> = pads
                .iter()
                .map(|pad| pad.calls.get(&time).copied().flatten().map(|call| &facts.spans[call]))
                .collect();
            match calls.filter(|calls| calls.is_sorted_by_key(|call| call.enter_ns)) {
                Some(calls) => route.frames.push(PadFrame { number, birth_ns, calls, present: None }),
                None => route.others += 1,
            }
        }
        route
    }

    /// Makes the ledger. If a buffer was shown, those that were not did not get to the end.
    fn ledger(self, facts: &TraceFacts<'_>) -> StreamLedger {
        let Route { process, from, mut names, frames, others } = self;
        let mut ledger = StreamLedger { process, from, others, ..StreamLedger::default() };
        let is_shown = frames.iter().any(|frame| frame.present.is_some());
        if is_shown {
            names.push(PRESENT.to_owned());
        }
        let Some(range) = facts.limits.of(&names) else { return ledger };
        ledger.limit(names, &range);
        for frame in frames {
            if is_shown && frame.present.is_none() {
                ledger.others += 1;
                continue;
            }
            let mut stages: Vec<(Vec<PartUntil>, i32)> = frame
                .calls
                .windows(2)
                .map(|pair| (element(pair[0], pair[1], facts), pair[1].thread))
                .collect();
            stages.extend(sink(frame.last(), frame.present));
            let (birth_ns, stages) = cut(stages, range.clone(), frame.birth_ns);
            facts.add_frame(&mut ledger, frame.number, birth_ns, stages);
        }
        mean_blocked(&mut ledger);
        ledger
    }
}

/// Returns the parts of a frame's time in the sink to which `last` gives it, and, if it was shown, in the stage behind that.
fn sink(last: &CallSpan, present: Option<&CallSpan>) -> Vec<(Vec<PartUntil>, i32)> {
    let own = |thread| Part::Thread { thread, pool: false };
    let Some(present) = present else { return vec![(vec![(own(last.thread), last.leave_ns)], last.thread)] };
    // Some sinks show the picture in a thread of their own.
    let way = Part::WayToWindow { from: last.thread, to: present.thread };
    let end_ns = last.leave_ns.min(present.enter_ns);
    vec![
        (vec![(own(last.thread), end_ns)], last.thread),
        (vec![(way, present.enter_ns), (own(present.thread), present.leave_ns)], present.thread),
    ]
}

/// Finds the calls that showed the buffers of a process: inside the sink's call, or in the order of the buffers if a sink has
/// another thread for that. `shown` has the indices of each thread's calls that show pictures.
fn show<'a>(
    routes: &mut [Route<'a>],
    shown: &HashMap<i32, Vec<usize>>,
    spans: &'a [CallSpan],
) -> Option<Unmatched> {
    for frame in routes.iter_mut().flat_map(|route| &mut route.frames) {
        let last = frame.last();
        let calls = shown.get(&last.thread).map_or(&[][..], Vec::as_slice);
        // The first one: a sink shows a buffer when the pipeline is paused, and once more when it plays.
        let next = calls.partition_point(|call| spans[*call].enter_ns < last.enter_ns);
        let call = calls.get(next).map(|call| &spans[*call]);
        frame.present = call.filter(|call| call.leave_ns <= last.leave_ns);
    }
    if routes.iter().flat_map(|route| &route.frames).any(|frame| frame.present.is_some()) {
        return None;
    }
    let mut unmatched: Option<Unmatched> = None;
    let mut fitting = Vec::new();
    for (index, route) in routes.iter_mut().enumerate() {
        route.frames.sort_by_key(|frame| frame.last().enter_ns);
        let ready_ns: Vec<u64> = route.frames.iter().map(|frame| frame.last().enter_ns).collect();
        match shown_in_order(spans, route.process, &ready_ns) {
            Some(Ok(calls)) => fitting.push((index, calls)),
            Some(Err(other)) if unmatched.is_none_or(|most| most.frames < other.frames) => {
                unmatched = Some(other);
            }
            _ => {}
        }
    }
    // Sound has sinks, too.
    let [(index, calls)] = &fitting[..] else { return unmatched };
    for (frame, call) in routes[*index].frames.iter_mut().zip(calls) {
        frame.present = Some(&spans[*call]);
    }
    None
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
