// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of frames in a GStreamer pipeline, from the pads through which buffers pass.
//!
//! A buffer is known by its presentation time; elements keep it. Buffers of one time that pass a pad one after the other are
//! parts of one frame, such as its RTP packets. The time between two pads of a frame's way belongs to the element between
//! them, that after the last pad to the sink, until it shows the frame.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use crate::attribution::{Part, PartUntil, TraceFacts};
use crate::calls::Call;
use crate::frame_ledger::{MOST_STREAMS, PRESENT, StreamLedger, complete};
use crate::names::Pad;
use crate::shown_order::{Unmatched, presents, shown_in_order};
use crate::spans::CallSpan;
use crate::stage_limits::cut;

/// `GST_CLOCK_TIME_NONE`.
const NO_TIME: i64 = -1;

/// Greatest number of pads on a frame's way.
const LONGEST: usize = 100;

/// Most pads of a process that are looked at.
const MOST_PADS: usize = 512;

/// Most frames of pads that are compared with those of other pads of their process.
const MOST_COMPARED: usize = 50_000_000;

/// Most places of frames at pads of all ways.
const MOST_PLACES: usize = 8 << 20;

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
pub(crate) fn pad_ledgers(facts: &TraceFacts<'_>) -> (Vec<StreamLedger>, Vec<Unmatched>) {
    let mut processes: BTreeMap<i32, BTreeMap<u64, Passage<'_>>> = BTreeMap::new();
    for span in facts.spans.iter().filter(|span| span.call == Call::PadPush) {
        let Some(pad) = facts.names.pad(span.process, span.object) else { continue };
        let passages = processes.entry(span.process).or_default();
        if passages.len() >= MOST_PADS && !passages.contains_key(&span.object) {
            continue;
        }
        let new = || Passage { pad, address: span.object, calls: HashMap::new(), last: NO_TIME };
        let passage = passages.entry(span.object).or_insert_with(new);
        if span.pts != NO_TIME {
            passage.add(span);
        }
    }
    let presents = presents(facts.spans);
    let mut shown: HashMap<i32, Vec<usize>> = HashMap::new();
    for index in &presents {
        shown.entry(facts.spans[*index].thread).or_default().push(*index);
    }
    let (mut ledgers, mut unmatched) = (Vec::new(), Vec::new());
    let mut left = MOST_PLACES;
    for passages in processes.values() {
        let passages: Vec<&Passage<'_>> =
            passages.values().filter(|passage| !passage.calls.is_empty()).collect();
        let common = Common::default();
        let is_end = |passage: &&&Passage<'_>| !passages.iter().any(|next| common.follows(passage, next));
        let mut ends: Vec<&Passage<'_>> = passages.iter().filter(is_end).copied().collect();
        ends.sort_by_key(|end| std::cmp::Reverse(end.calls.len()));
        ends.truncate(MOST_STREAMS);
        let ways = ends.iter().map(|end| way(&passages, end, &common));
        // The pads of a tree are on many ways.
        let mut fits = |way: &Vec<&Passage<'_>>| {
            let places = way.len() * way.first().map_or(0, |first| first.calls.len());
            let is_left = left.checked_sub(places);
            left = is_left.unwrap_or(left);
            is_left.is_some()
        };
        let mut routes: Vec<Route<'_>> = ways.filter(|way| fits(way)).map(|way| Route::of(&way)).collect();
        unmatched.extend(show(&mut routes, &presents, &shown, facts.spans));
        ledgers.extend(routes.into_iter().map(|route| route.ledger(facts)));
    }
    ledgers.retain(|ledger: &StreamLedger| ledger.frames > 0);
    ledgers.sort_by_key(|ledger| std::cmp::Reverse(ledger.frames));
    (ledgers, unmatched)
}

/// Numbers of frames that pass two pads: each is counted once, as long as that is not too much work.
struct Common {
    known: RefCell<HashMap<(u64, u64), usize>>,
    /// Number of frames that may still be looked at.
    left: Cell<usize>,
}

impl Default for Common {
    fn default() -> Common {
        Common { known: RefCell::default(), left: Cell::new(MOST_COMPARED) }
    }
}

impl Common {
    /// True if the buffers of `pad` go on through `next`: the same element is between them, or one of them belongs to the
    /// other as the inner side of a ghost pad; and half of the times agree.
    fn follows(&self, pad: &Passage<'_>, next: &Passage<'_>) -> bool {
        let is_linked = pad.pad.next == next.pad.parent
            || pad.pad.next == next.address
            || pad.pad.peer == next.pad.parent;
        is_linked
            && pad.address != next.address
            && 2 * self.of(pad, next) >= pad.calls.len().min(next.calls.len())
    }

    fn of(&self, pad: &Passage<'_>, next: &Passage<'_>) -> usize {
        let key = (pad.address, next.address);
        if let Some(known) = self.known.borrow().get(&key) {
            return *known;
        }
        let left = self.left.get().checked_sub(pad.calls.len());
        let common = left.map_or(0, |left| {
            self.left.set(left);
            pad.calls.keys().filter(|time| next.calls.contains_key(time)).count()
        });
        self.known.borrow_mut().insert(key, common);
        common
    }
}

/// Returns the pads up to `end`, in the order in which buffers pass them.
fn way<'a>(passages: &[&'a Passage<'a>], end: &'a Passage<'a>, common: &Common) -> Vec<&'a Passage<'a>> {
    let mut way = vec![end];
    while way.len() < LONGEST {
        let at = way[way.len() - 1];
        let before = passages
            .iter()
            .filter(|before| common.follows(before, at) && !way.iter().any(|p| p.address == before.address));
        match before.max_by_key(|before| common.of(before, at)) {
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
    /// Calls of each pad.
    calls: Vec<PadCalls>,
    /// Call that showed it.
    present: Option<&'a CallSpan>,
}

impl PadFrame<'_> {
    fn last(&self) -> PadCalls {
        self.calls[self.calls.len() - 1]
    }
}

impl<'a> Route<'a> {
    fn of(way: &[&Passage<'_>]) -> Route<'a> {
        // The sides of ghost pads are no elements: buffers pass them at once.
        let is_real = |at: usize| !is_ghost(way[at], way);
        let pads: Vec<&Passage<'_>> = (0..way.len()).filter(|at| is_real(*at)).map(|at| way[at]).collect();
        let mut route =
            Route { process: 0, from: String::new(), names: Vec::new(), frames: Vec::new(), others: 0 };
        let (Some(first), Some(last)) = (pads.first(), way.last()) else { return route };
        route.names = pads[1..].iter().map(|pad| pad.pad.name.clone()).collect();
        route.names.push(last.pad.next_name.clone());
        route.from = first.pad.name.clone();
        let span = first.calls.values().flatten().next();
        route.process = span.map_or(0, |calls| calls.first.process);
        let mut times: Vec<(u64, i64)> = first
            .calls
            .iter()
            .filter_map(|(time, calls)| calls.map(|calls| (calls.first.enter_ns, *time)))
            .collect();
        times.sort_unstable();
        for (number, (birth_ns, time)) in (0..).zip(times) {
            let calls: Option<Vec<PadCalls>> =
                pads.iter().map(|pad| pad.calls.get(&time).copied().flatten()).collect();
            match calls.filter(|calls| calls.is_sorted_by_key(|calls| calls.first.enter_ns)) {
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
                .map(|pair| (element(&pair[0], &pair[1], facts), pair[1].first.thread))
                .collect();
            stages.extend(sink(&frame.last(), frame.present));
            let (birth_ns, stages) = cut(stages, range.clone(), frame.birth_ns);
            facts.add_frame(&mut ledger, frame.number, birth_ns, stages);
        }
        complete(&mut ledger, facts);
        ledger
    }
}

/// Returns the parts of a frame's time in the sink to which `last` gives it, and, if it was shown, in the stage behind that.
fn sink(last: &PadCalls, present: Option<&CallSpan>) -> Vec<(Vec<PartUntil>, i32)> {
    let thread = last.first.thread;
    let own = |thread| Part::Thread { thread, pool: None };
    let Some(present) = present else { return vec![(vec![(own(thread), last.end_ns)], thread)] };
    // Some sinks show the picture in a thread of their own.
    let way = Part::WayToWindow { from: thread, to: present.thread };
    let end_ns = last.end_ns.min(present.enter_ns);
    vec![
        (vec![(own(thread), end_ns)], thread),
        (vec![(way, present.enter_ns), (own(present.thread), present.leave_ns)], present.thread),
    ]
}

/// Finds the calls that showed the buffers of a process: inside the sink's call, or in the order of the buffers if a sink has
/// another thread for that. `shown` has the indices of each thread's calls that show pictures.
fn show<'a>(
    routes: &mut [Route<'a>],
    presents: &[usize],
    shown: &HashMap<i32, Vec<usize>>,
    spans: &'a [CallSpan],
) -> Option<Unmatched> {
    for frame in routes.iter_mut().flat_map(|route| &mut route.frames) {
        let last = frame.last();
        let calls = shown.get(&last.first.thread).map_or(&[][..], Vec::as_slice);
        // The first one: a sink shows a buffer when the pipeline is paused, and once more when it plays.
        let next = calls.partition_point(|call| spans[*call].enter_ns < last.first.enter_ns);
        let call = calls.get(next).map(|call| &spans[*call]);
        frame.present = call.filter(|call| call.leave_ns <= last.end_ns);
    }
    if routes.iter().flat_map(|route| &route.frames).any(|frame| frame.present.is_some()) {
        return None;
    }
    let mut unmatched: Option<Unmatched> = None;
    let mut fitting = Vec::new();
    for (index, route) in routes.iter_mut().enumerate() {
        route.frames.sort_by_key(|frame| frame.last().first.enter_ns);
        let ready_ns: Vec<u64> = route.frames.iter().map(|frame| frame.last().first.enter_ns).collect();
        match shown_in_order(spans, presents, route.process, &ready_ns) {
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
fn element(from: &PadCalls, to: &PadCalls, facts: &TraceFacts<'_>) -> Vec<PartUntil> {
    let (thread, next, enter_ns, until_ns) =
        (from.first.thread, to.first.thread, from.first.enter_ns, to.first.enter_ns);
    // Another thread may have the frame's first buffer while this one goes on with its second one.
    let end_ns = if thread == next { from.end_ns } else { from.first.leave_ns };
    let pool = facts.pool(thread, enter_ns, end_ns).filter(|_| thread == next);
    let worker = Part::Thread { thread, pool };
    if until_ns <= end_ns {
        return vec![(worker, until_ns)];
    }
    // The element kept the frame, or gave it to another thread.
    let kept = match pool {
        Some(codec) => Part::Pool { caller: thread, codec },
        None if thread == next => Part::Held { caller: thread },
        None => Part::Way { from: thread, to: next },
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
        let running = ThreadStretch {
            from_ns: 0,
            to_ns: 10_000,
            doing: Doing::Running,
            by: 0,
            stolen_ns: 0,
            faults: 0,
        };
        let timelines = HashMap::from([1, 2].map(|thread| (thread, Timeline::of(vec![running]))));
        pad_ledgers(&TraceFacts::new(&spans, &timelines, &names, &[])).0.remove(0)
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
