// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of frames in a GStreamer pipeline, from the pads through which buffers pass.
//!
//! [`crate::pad_lineage`] knows of which buffers each one was made. The time between two pads of a frame's way belongs to the element between
//! them, that after the last pad to the sink, until it shows the frame.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::attribution::{Part, PartUntil, TraceFacts};
use crate::frame_ledger::{MOST_STREAMS, PRESENT, StreamLedger, complete};
use crate::link_counts::LinkCounts;
use crate::pad_lineage::{PadCalls, PadLineage};
use crate::shown_order::{Unmatched, presents, shown_in_order};
use crate::spans::{BufferCopy, CallSpan};
use crate::stage_limits::cut;

/// Greatest number of pads on a frame's way.
const LONGEST: usize = 100;

/// Most places of frames at pads of all ways.
const MOST_PLACES: usize = 8 << 20;

/// Most ways of a frame that several inputs have come into.
const MOST_WAYS: usize = 64;

/// A way that fewer of a sink's frames have gone than one of so many is none of its own: something was not seen, such as the begin.
const RARE: usize = 20;

/// In place of an element behind a pad that is not linked.
const NOT_LINKED: &str = "unlinked";

/// Parts of the names of elements for sound.
const SOUND: [&str; 9] = ["audio", "aac", "opus", "vorbis", "flac", "mp3", "mpg123", "ac3", "wav"];

/// Makes the ledger of the way from each source to each sink, pictures before sound, and the one with the most frames first.
pub(crate) fn pad_ledgers(
    facts: &TraceFacts<'_>,
    copies: &[BufferCopy],
) -> (Vec<StreamLedger>, Vec<Unmatched>, LinkCounts) {
    let lineage = PadLineage::of(facts.spans, copies, facts.names);
    let presents = presents(facts.spans);
    let mut shown: HashMap<i32, Vec<usize>> = HashMap::new();
    for index in &presents {
        shown.entry(facts.spans[*index].thread).or_default().push(*index);
    }
    let mut processes: BTreeMap<i32, Vec<Route<'_>>> = BTreeMap::new();
    for route in routes(&lineage) {
        processes.entry(route.process).or_default().push(route);
    }
    let (mut ledgers, mut unmatched) = (Vec::new(), Vec::new());
    for mut routes in processes.into_values() {
        unmatched.extend(show(&mut routes, &presents, &shown, facts.spans));
        ledgers.extend(routes.into_iter().map(|route| (route.kind, route.ledger(facts))));
    }
    ledgers.retain(|(_, ledger): &(WayKind, StreamLedger)| ledger.frames > 0);
    ledgers.sort_by_key(|(kind, ledger)| std::cmp::Reverse((*kind, ledger.frames, ledger.stages.len())));
    (ledgers.into_iter().map(|(_, ledger)| ledger).collect(), unmatched, lineage.links)
}

/// Kind of a way's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WayKind {
    Sound,
    Unknown,
    /// A video codec is on the way.
    Pictures,
}

/// Divides the frames that came to the sinks by their ways.
fn routes<'a>(lineage: &PadLineage<'a>) -> Vec<Route<'a>> {
    // A way is known by its elements: a pipeline may make new pads for them.
    let mut ways: HashMap<Vec<&str>, Route<'a>> = HashMap::new();
    let mut left = MOST_PLACES;
    for (end, passage) in lineage.passages.iter().enumerate() {
        if passage.is_extra || lineage.pads[passage.pad].goes_on {
            continue;
        }
        for chain in chains(lineage, end) {
            let Some(less) = left.checked_sub(chain.len()) else { break };
            left = less;
            let pads: Vec<usize> = chain.iter().map(|at| lineage.passages[*at].pad).collect();
            let is_real = |pad: &usize| !lineage.pads[*pad].is_border;
            let mut names: Vec<&str> =
                pads.iter().copied().filter(is_real).map(|pad| &*lineage.pads[pad].pad.name).collect();
            let next = lineage.pads[passage.pad].pad.next_name.as_str();
            names.push(if next.is_empty() { NOT_LINKED } else { next });
            let calls = chain.iter().map(|at| &lineage.passages[*at]);
            let calls: Vec<PadCalls> = calls.filter(|at| is_real(&at.pad)).map(|at| at.calls).collect();
            if calls.is_empty() {
                continue;
            }
            let new = || Route::of(lineage, &pads, &names);
            let route = ways.entry(names.clone()).or_insert_with(new);
            route.origins.insert(chain[0]);
            route.first.insert(pads[0]);
            let birth_ns = calls[0].first.enter_ns;
            route.frames.push(PadFrame { birth_ns, calls, present: None });
        }
    }
    let mut most: HashMap<(i32, String), usize> = HashMap::new();
    for route in ways.values() {
        let most = most.entry(route.end()).or_default();
        *most = route.frames.len().max(*most);
    }
    let mut routes: Vec<Route<'a>> = ways.into_values().collect();
    routes.retain(|route| RARE * route.frames.len() >= most[&route.end()]);
    for route in &mut routes {
        route.frames.sort_by_key(|frame| (frame.birth_ns, frame.last().first.enter_ns));
        let came: u64 = route.first.iter().map(|pad| lineage.pads[*pad].frames).sum();
        route.others = came.saturating_sub(route.origins.len() as u64);
    }
    routes.sort_by(|one, other| (other.frames.len(), &one.names).cmp(&(one.frames.len(), &other.names)));
    routes.truncate(MOST_STREAMS);
    routes
}

/// Returns the ways of a frame to the passage `end`, one for each of its origins: the passages from there on.
fn chains(lineage: &PadLineage<'_>, end: usize) -> Vec<Vec<usize>> {
    let mut open = vec![vec![end]];
    let mut whole = Vec::new();
    while let Some(mut chain) = open.pop() {
        let parents = &lineage.passages[chain[chain.len() - 1]].parents;
        match &parents[..] {
            [] => {
                chain.reverse();
                whole.push(chain);
            }
            _ if chain.len() >= LONGEST => {}
            parents => {
                for parent in parents.iter().take(MOST_WAYS.saturating_sub(open.len() + whole.len()).max(1)) {
                    open.push(chain.iter().copied().chain([*parent]).collect());
                }
            }
        }
    }
    whole
}

/// Way to a sink, with the buffers that passed it.
struct Route<'a> {
    process: i32,
    kind: WayKind,
    /// Element from which the buffers come.
    from: String,
    /// Elements that they pass.
    names: Vec<String>,
    /// First pads.
    first: HashSet<usize>,
    /// Frames at the first pads that passed all pads.
    origins: HashSet<usize>,
    /// Buffers that passed all pads, in the order in which they came to the first one.
    frames: Vec<PadFrame<'a>>,
    /// Number of buffers that did not.
    others: u64,
}

/// Buffer that passed all pads of a way.
struct PadFrame<'a> {
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
    /// Makes the way through these pads of elements with these names.
    fn of(lineage: &PadLineage<'_>, pads: &[usize], names: &[&str]) -> Route<'a> {
        let is_sound = |name: &&str| SOUND.iter().any(|part| name.contains(part));
        let kind = match () {
            () if pads.iter().any(|pad| lineage.is_of_codec(*pad)) => WayKind::Pictures,
            () if names.iter().any(is_sound) => WayKind::Sound,
            () => WayKind::Unknown,
        };
        Route {
            process: lineage.pads[pads[0]].process,
            kind,
            from: names[0].to_owned(),
            names: names[1..].iter().map(|name| (*name).to_owned()).collect(),
            first: HashSet::new(),
            origins: HashSet::new(),
            frames: Vec::new(),
            others: 0,
        }
    }

    /// Returns the process and the name of the last element.
    fn end(&self) -> (i32, String) {
        (self.process, self.names.last().cloned().unwrap_or_default())
    }

    /// Makes the ledger. If a buffer was shown, those that were not did not get to the end.
    fn ledger(self, facts: &TraceFacts<'_>) -> StreamLedger {
        let Route { process, from, mut names, frames, others, .. } = self;
        let mut ledger = StreamLedger { process, from, others, ..StreamLedger::default() };
        let is_shown = frames.iter().any(|frame| frame.present.is_some());
        if is_shown {
            names.push(PRESENT.to_owned());
        }
        let Some(range) = facts.limits.of(&names) else { return ledger };
        ledger.limit(names, &range);
        for (number, frame) in (0..).zip(frames) {
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
            facts.add_frame(&mut ledger, number, birth_ns, stages);
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
    use crate::calls::Call;
    use crate::names::{ObjectNames, Pad};
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
        pad_ledgers(&TraceFacts::new(&spans, &timelines, &names, &[]), &[]).0.remove(0)
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
    fn a_time_that_comes_again_is_another_frame() {
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
        assert_eq!((ledger.frames, ledger.others), (4, 0));
        let births: Vec<u64> = ledger.rows.iter().step_by(2).map(|row| row.birth_ns).collect();
        assert_eq!(births, [100, 120, 140, 180]);
        assert!(ledger.rows.chunks(2).all(|rows| rows[0].birth_ns == rows[1].birth_ns));
    }

    #[test]
    fn another_thread_may_have_the_first_buffer_before_the_last_one_is_pushed() {
        let ledger = ledger_of(&[(1, 10, 7, 100, 110), (2, 20, 7, 130, 150), (1, 10, 7, 140, 190)]);
        let thread_end = ledger.spans.iter().find(|span| span.hop == 0).unwrap().end_ns;
        assert_eq!((thread_end, stages(&ledger)), (110, vec![(100, 130, 0), (130, 150, 0)]));
    }
}
