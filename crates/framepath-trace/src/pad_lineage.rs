// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descent of the buffers in a GStreamer pipeline: of which ones that came into an element it has made one that leaves it.
//!
//! The rules, the surest first: the codec says it (`finish_frame`); it is the same buffer; the element has copied it; it was pushed
//! inside the call that brought a buffer of its time; the element has just taken it from an input's queue. Only then do times
//! decide, and at last the call around the push. A buffer without a time and without an origin, such as a block of a file, is
//! not followed.
//!
//! Buffers of one time that pass a pad one after the other are parts of one frame, such as its RTP packets.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::calls::Call;
use crate::link_counts::LinkCounts;
use crate::names::{ObjectNames, Pad};
use crate::spans::{BufferCopy, CallSpan};

/// `GST_CLOCK_TIME_NONE`.
pub(crate) const NO_TIME: i64 = -1;

/// Most pads that are looked at.
const MOST_PADS: usize = 4096;

/// Buffers of an element in which the one before a time is looked for.
const RECENT: usize = 32;

/// Most buffers from which one is made.
const MOST_PARENTS: usize = 16;

/// Tenths of a source's frames that must have come to the end of another way, and the fewest of them.
const MOST_ARE: u64 = 9;
const FEWEST_PAIRS: usize = 4;

/// Most frames that a thread has taken from inputs.
const MOST_TAKEN: usize = 64;

/// Most copies that a call of an element keeps before it pushes one of them.
const MOST_COPIES: usize = 64;

/// Pad of which pushes were seen.
#[derive(Debug)]
pub(crate) struct SeenPad<'a> {
    pub(crate) process: i32,
    pub(crate) pad: &'a Pad,
    /// True for a side of a ghost pad, which is no element: buffers pass it at once.
    pub(crate) is_border: bool,
    /// Where its buffers come from and go to: elements, or sides of ghost pads.
    from: Place,
    to: Place,
    /// Last frame that passed it.
    last: Option<usize>,
    /// Number of frames that passed it.
    pub(crate) frames: u64,
    /// True if another frame was made of one of these.
    pub(crate) goes_on: bool,
    /// Frames of a source, and those that came to the end of another way in the same buffer.
    handed_over: Vec<(usize, usize)>,
}

/// Process and address of an element or of a side of a ghost pad.
type Place = (i32, u64);

/// Calls with which all buffers of a frame pass a pad, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PadCalls {
    /// The first one.
    pub(crate) first: CallSpan,
    /// End of the last one, CLOCK_MONOTONIC nanoseconds.
    pub(crate) end_ns: u64,
}

/// Frame at a pad.
#[derive(Debug)]
pub(crate) struct PadPassage {
    /// Index of the pad.
    pub(crate) pad: usize,
    pub(crate) calls: PadCalls,
    /// Indices of the passages at the pads before of which it was made.
    pub(crate) parents: Vec<usize>,
    /// True if it is none after all: a muxer's own bytes, such as the header of a fragment.
    pub(crate) is_extra: bool,
    /// True if a buffer with a time was made of it.
    has_children: bool,
    /// True if the bytes may be a muxer's own, because the buffer is not a parent itself.
    is_weak: bool,
}

/// All frames at all pads.
#[derive(Debug, Default)]
pub(crate) struct PadLineage<'a> {
    pub(crate) pads: Vec<SeenPad<'a>>,
    pub(crate) passages: Vec<PadPassage>,
    pub(crate) links: LinkCounts,
    /// Elements that are video codecs.
    codecs: HashSet<Place>,
}

/// Rule by which a frame's origin was found.
#[derive(Clone, Copy)]
enum Rule {
    Descent,
    /// The element has just taken the frames from its inputs.
    Taken,
    /// The call around the push has brought a frame of the same time.
    Call,
    Time,
    Order,
}

/// Buffers in an element, as far as they are known.
#[derive(Debug, Default)]
struct Inside {
    by_buffer: HashMap<u64, usize>,
    /// Frames of copies that it has made, with the begin of the call in which it did.
    copies: HashMap<u64, (usize, u64)>,
    by_time: HashMap<i64, usize>,
    recent: VecDeque<usize>,
    /// Number of its inputs.
    inputs: u64,
    /// True if it makes one picture of those of all its inputs.
    joins: bool,
}

impl Inside {
    /// Notes a copy that the element has made in the call that began at `call_ns`.
    fn copy(&mut self, copy: &BufferCopy, call_ns: u64) {
        let origin = self.origin(copy.from);
        // The buffer that had this address before has been freed.
        self.by_buffer.remove(&copy.to);
        match origin {
            Some(passage) => self.copies.insert(copy.to, (passage, call_ns)),
            None => self.copies.remove(&copy.to),
        };
    }

    /// Returns the passage of a buffer that has come, or of a copy.
    fn origin(&self, buffer: u64) -> Option<usize> {
        let of_copy = || self.copies.get(&buffer).map(|(passage, _)| *passage);
        self.by_buffer.get(&buffer).copied().or_else(of_copy)
    }

    /// Notes that a buffer comes, which belongs to this passage.
    fn come(&mut self, passage: Option<usize>, span: &CallSpan) {
        let Some(passage) = passage else {
            // The buffer with this address is another one now.
            self.by_buffer.remove(&span.data);
            return;
        };
        self.copies.remove(&span.data);
        self.by_buffer.insert(span.data, passage);
        self.by_time.insert(span.pts, passage);
        if self.recent.back() != Some(&passage) {
            self.recent.push_back(passage);
        }
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }
}

/// Call of a thread that has not ended.
#[derive(Debug)]
struct Open {
    enter_ns: u64,
    leave_ns: u64,
    /// Element that works in it.
    place: Place,
    /// Frame that it works on.
    passage: Option<usize>,
    is_codec: bool,
}

impl Open {
    fn of(span: &CallSpan, place: Place, passage: Option<usize>, is_codec: bool) -> Open {
        Open { enter_ns: span.enter_ns, leave_ns: span.leave_ns, place, passage, is_codec }
    }
}

/// Running calls of a thread, and what it has in its hands.
#[derive(Debug, Default)]
struct ThreadState {
    open: Vec<Open>,
    /// Copies outside of all calls: the copy, and the buffer that it is one of.
    copies: Vec<(u64, u64)>,
    /// Frames that it has taken from inputs: all since its last push, and before that the last one of each input.
    taken: Vec<Taken>,
}

/// Frame that a thread has taken from an input.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Pad of the input.
    input: u64,
    passage: usize,
    /// False if the thread has pushed a buffer since.
    is_new: bool,
}

impl ThreadState {
    /// Notes a copy. Inside the call that has brought a buffer to an element, it is this element's.
    fn copy(&mut self, copy: &BufferCopy, inside: &mut HashMap<Place, Inside>) {
        if let Some(open) = self.open.last() {
            if let Some(inside) = inside.get_mut(&open.place) {
                inside.copy(copy, open.enter_ns);
            }
            return;
        }
        let origin = self.copied(copy.from).unwrap_or(copy.from);
        if self.copies.len() >= MOST_COPIES {
            self.copies.remove(0);
        }
        self.copies.push((copy.to, origin));
    }

    /// Returns the buffer of which this one was copied outside of all calls.
    fn copied(&self, buffer: u64) -> Option<u64> {
        self.copies.iter().rev().find(|(to, _)| *to == buffer).map(|(_, origin)| *origin)
    }

    /// Notes what has ended before `at_ns`.
    fn end_before(&mut self, at_ns: u64) {
        while self.open.last().is_some_and(|open| open.leave_ns <= at_ns) {
            self.open.pop();
        }
    }
}

/// State of the pipelines at one time, while the calls are gone through.
struct Walk<'a> {
    lineage: PadLineage<'a>,
    /// Indices of the pads.
    places: HashMap<Place, usize>,
    /// Elements that get buffers.
    inside: HashMap<Place, Inside>,
    threads: HashMap<i32, ThreadState>,
    /// Last passage of each buffer.
    last: HashMap<(i32, u64), usize>,
}

impl Walk<'_> {
    /// Notes a copy.
    fn copy(&mut self, copy: &BufferCopy) {
        let thread = self.threads.entry(copy.thread).or_default();
        thread.end_before(copy.at_ns);
        thread.copy(copy, &mut self.inside);
    }

    /// Notes that a codec passes on what it has made of a frame: in its call, it pushes that.
    fn finish(&mut self, span: &CallSpan) {
        let place = (span.process, span.object);
        self.lineage.codecs.insert(place);
        let passage = self.inside.get(&place).and_then(|inside| inside.by_buffer.get(&span.data)).copied();
        let thread = self.threads.entry(span.thread).or_default();
        thread.end_before(span.enter_ns);
        thread.open.push(Open::of(span, place, passage, true));
    }

    /// Notes that an element takes a buffer that waited at one of its inputs.
    fn take(&mut self, span: &CallSpan) {
        let Some(passage) = self.last.get(&(span.process, span.data)).copied() else { return };
        let joins = self.inside.get(&self.lineage.place_of(passage)).is_some_and(|inside| inside.joins);
        let is_over = |taken: &Taken| taken.input == span.object && (joins || !taken.is_new);
        let taken = &mut self.threads.entry(span.thread).or_default().taken;
        taken.retain(|taken| !is_over(taken));
        if taken.len() >= MOST_TAKEN {
            taken.remove(0);
        }
        taken.push(Taken { input: span.object, passage, is_new: true });
    }

    /// Notes that a pad pushes a buffer.
    fn push(&mut self, span: &CallSpan) {
        let Walk { lineage, places, inside, threads, last } = self;
        let Some(pad) = places.get(&(span.process, span.object)).copied() else { return };
        let thread = threads.entry(span.thread).or_default();
        thread.end_before(span.enter_ns);
        let origin = thread.copied(span.data).unwrap_or(span.data);
        let before = last.get(&(span.process, origin)).copied();
        let passage = lineage.push(pad, span, thread, inside);
        let place = lineage.pads[pad].to;
        if let Some(inside) = inside.get_mut(&place) {
            inside.come(passage, span);
        }
        let is_source = !inside.contains_key(&lineage.pads[pad].from);
        if let (true, Some(passage), Some(before)) = (is_source, passage, before) {
            let before_it = &lineage.passages[before];
            if before_it.calls.first.pts == span.pts && before_it.pad != pad {
                lineage.pads[pad].handed_over.push((passage, before));
            }
        }
        match passage {
            Some(passage) => last.insert((span.process, span.data), passage),
            None => last.remove(&(span.process, span.data)),
        };
        thread.open.push(Open::of(span, place, passage, false));
    }
}

impl<'a> PadLineage<'a> {
    /// Follows the buffers in `spans`, which are in the order of their begins. `copies` are in the order of their times.
    pub(crate) fn of(spans: &[CallSpan], copies: &[BufferCopy], names: &'a ObjectNames) -> PadLineage<'a> {
        let mut lineage = PadLineage::default();
        let places = lineage.see_pads(spans, names);
        if lineage.pads.is_empty() {
            return lineage;
        }
        let inside = lineage.elements(spans, &places);
        let (threads, last) = (HashMap::new(), HashMap::new());
        let mut walk = Walk { lineage, places, inside, threads, last };
        let mut copies = copies.iter().peekable();
        for span in spans {
            while let Some(copy) = copies.next_if(|copy| copy.at_ns <= span.enter_ns) {
                walk.copy(copy);
            }
            match span.call {
                Call::FinishFrame => walk.finish(span),
                Call::PopBuffer if span.data != 0 => walk.take(span),
                Call::PadPush if span.data != 0 => walk.push(span),
                _ => {}
            }
        }
        let mut lineage = walk.lineage;
        lineage.leave_out_extra();
        lineage.hand_over();
        lineage
    }

    /// Leaves out what a muxer has pushed of its own while it kept the frames that it had taken: those follow themselves.
    fn leave_out_extra(&mut self) {
        let known = self.passages.iter().filter(|passage| !passage.is_weak);
        let own: HashSet<(usize, usize)> =
            known.flat_map(|passage| passage.parents.iter().map(|parent| (*parent, passage.pad))).collect();
        for passage in self.passages.iter_mut().filter(|passage| passage.is_weak) {
            passage.parents.retain(|parent| !own.contains(&(*parent, passage.pad)));
            passage.is_extra = passage.parents.is_empty();
        }
    }

    /// Links the frames of sources that the program feeds with what came to the end of another way (appsink and appsrc): if nearly
    /// all are the same buffers with the same times, which is no chance.
    fn hand_over(&mut self) {
        for pad in 0..self.pads.len() {
            let pairs = std::mem::take(&mut self.pads[pad].handed_over);
            let is_end = |(_, before): &&(usize, usize)| !self.pads[self.passages[*before].pad].goes_on;
            let pairs: Vec<(usize, usize)> = pairs.iter().filter(is_end).copied().collect();
            if (pairs.len() as u64) < MOST_ARE * self.pads[pad].frames / 10 || pairs.len() < FEWEST_PAIRS {
                continue;
            }
            for (passage, before) in pairs {
                self.links.descent += 1;
                self.passages[passage].parents = vec![before];
                let end = self.passages[before].pad;
                self.pads[end].goes_on = true;
            }
        }
    }

    /// Finds the pads of the calls, and returns their indices.
    fn see_pads(&mut self, spans: &[CallSpan], names: &'a ObjectNames) -> HashMap<Place, usize> {
        let mut places: HashMap<Place, usize> = HashMap::new();
        let mut seen: Vec<(Place, &Pad)> = Vec::new();
        for span in spans.iter().filter(|span| span.call == Call::PadPush) {
            let place = (span.process, span.object);
            let Some(pad) = names.pad(span.process, span.object) else { continue };
            if seen.len() < MOST_PADS && !places.contains_key(&place) {
                places.insert(place, seen.len());
                seen.push((place, pad));
            }
        }
        let of = |address: fn(&Pad) -> u64| -> HashSet<Place> {
            seen.iter().map(|((process, _), pad)| (*process, address(pad))).collect()
        };
        let (parents, nexts, peers) = (of(|pad| pad.parent), of(|pad| pad.next), of(|pad| pad.peer));
        self.pads = seen
            .into_iter()
            .map(|((process, address), pad)| {
                let here = |address| (process, address);
                // The inner side of a ghost pad belongs to it; the outer one has the inner one's parent.
                let from = if nexts.contains(&here(address)) { address } else { pad.parent };
                let to = if parents.contains(&here(pad.peer)) { pad.peer } else { pad.next };
                let is_border = from == address || peers.contains(&here(pad.parent));
                SeenPad {
                    process,
                    pad,
                    is_border,
                    from: here(from),
                    to: here(to),
                    last: None,
                    frames: 0,
                    goes_on: false,
                    handed_over: Vec::new(),
                }
            })
            .collect();
        places
    }

    /// Returns the elements that get buffers.
    fn elements(&self, spans: &[CallSpan], places: &HashMap<Place, usize>) -> HashMap<Place, Inside> {
        let mut pushes = vec![0u64; self.pads.len()];
        for span in spans.iter().filter(|span| span.call == Call::PadPush) {
            if let Some(pad) = places.get(&(span.process, span.object)) {
                pushes[*pad] += 1;
            }
        }
        // Number of inputs, of buffers that come, and of buffers that leave.
        let mut counts: HashMap<Place, (u64, u64, u64)> = HashMap::new();
        let mut called: HashMap<Place, &str> = HashMap::new();
        for (pad, pushes) in self.pads.iter().zip(pushes) {
            let (inputs, come, _) = counts.entry(pad.to).or_default();
            *inputs += 1;
            *come += pushes;
            counts.entry(pad.from).or_default().2 += pushes;
            called.insert(pad.from, &pad.pad.name);
        }
        let gets = counts.into_iter().filter(|(_, (inputs, ..))| *inputs > 0);
        gets.map(|(place, (inputs, come, leave))| {
            let name = called.get(&place).copied().unwrap_or_default();
            let is_called = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
            // A muxer passes all buffers on; a mixer makes one of several.
            let joins = inputs > 1
                && (is_called(&["compositor", "mix"]) || !is_called(&["mux"]) && 5 * leave < 4 * come);
            (place, Inside { inputs, joins, ..Inside::default() })
        })
        .collect()
    }

    /// Adds a push of a pad. Returns the passage to which it belongs; `None` if it is not followed.
    fn push(
        &mut self,
        pad: usize,
        span: &CallSpan,
        thread: &mut ThreadState,
        inside: &HashMap<Place, Inside>,
    ) -> Option<usize> {
        let from = self.pads[pad].from;
        let found = inside.get(&from).and_then(|inside| self.origin(pad, span, thread, inside));
        thread.copies.clear();
        thread.taken.iter_mut().for_each(|taken| taken.is_new = false);
        let (parents, rule) = match found {
            Some((parents, rule)) => (parents, Some(rule)),
            None if span.pts == NO_TIME => return None,
            None => (Vec::new(), None),
        };
        let is_one = inside.get(&from).is_none_or(|inside| inside.inputs == 1);
        let is_weak = match rule {
            Some(Rule::Taken) => true,
            Some(Rule::Call | Rule::Time | Rule::Order) => !is_one,
            Some(Rule::Descent) | None => false,
        };
        if let Some(last) = self.pads[pad].last {
            let before = &self.passages[last];
            let is_same = before.parents == parents;
            // A muxer has frames of one time from several inputs. A jitter buffer gives the packets of a frame one time.
            let is_part = match (span.pts, before.calls.first.pts) {
                (NO_TIME, _) | (_, NO_TIME) => is_same,
                (time, before) => time == before && (is_same || is_one),
            };
            if is_part {
                let before = &mut self.passages[last];
                before.is_weak &= is_weak;
                before.calls.end_ns = before.calls.end_ns.max(span.leave_ns);
                parents
                    .into_iter()
                    .for_each(|parent| self.passages[parent].has_children |= span.pts != NO_TIME);
                return Some(last);
            }
        }
        for parent in &parents {
            let links = &mut self.links;
            match rule {
                Some(Rule::Descent | Rule::Taken | Rule::Call) => links.descent += 1,
                Some(Rule::Time) => links.time += 1,
                Some(Rule::Order) => links.order += 1,
                None => {}
            }
            let parent = &mut self.passages[*parent];
            parent.has_children |= span.pts != NO_TIME;
            self.pads[parent.pad].goes_on = true;
        }
        let calls = PadCalls { first: *span, end_ns: span.leave_ns };
        self.passages.push(PadPassage { pad, calls, parents, is_extra: false, has_children: false, is_weak });
        let passage = self.passages.len() - 1;
        let pad = &mut self.pads[pad];
        pad.last = Some(passage);
        pad.frames += 1;
        Some(passage)
    }

    /// Returns where the frame of a passage goes.
    fn place_of(&self, passage: usize) -> Place {
        self.pads[self.passages[passage].pad].to
    }

    /// Finds of what the element of the pad has made the buffer that it pushes.
    fn origin(
        &self,
        pad: usize,
        span: &CallSpan,
        thread: &ThreadState,
        inside: &Inside,
    ) -> Option<(Vec<usize>, Rule)> {
        let place = self.pads[pad].from;
        let time = |passage: usize| self.passages[passage].calls.first.pts;
        let call = thread.open.last().filter(|open| open.place == place);
        let of_codec = call.filter(|open| open.is_codec).and_then(|open| open.passage);
        let around = call.and_then(|open| open.passage);
        let same = inside.by_buffer.get(&span.data).copied();
        let is_same_time = |passage: &usize| span.pts != NO_TIME && time(*passage) == span.pts;
        // A freed buffer's address is soon that of another one. What has a thread or several inputs keeps buffers.
        let is_kept = |same: &usize| {
            let may_keep = call.is_none() || around == Some(*same) || inside.inputs > 1;
            may_keep && span.pts != NO_TIME && !inside.joins && !self.passages[*same].has_children
        };
        let is_made = |&&(passage, begin): &&(usize, u64)| match call {
            Some(open) => open.enter_ns == begin,
            None => !self.passages[passage].has_children,
        };
        let copied = inside.copies.get(&span.data).filter(is_made);
        let taken: Vec<&Taken> =
            thread.taken.iter().filter(|taken| self.place_of(taken.passage) == place).collect();
        let may_be_outside = call.is_none() && span.pts != NO_TIME;
        let outside = thread.copied(span.data).filter(|_| may_be_outside);
        let outside = outside.and_then(|origin| inside.origin(origin));
        // The buffer at the address may be another one, after what was taken has been freed.
        let is_left = |passage: &usize| {
            let has_taken = |passage| taken.iter().any(|taken| taken.passage == passage);
            taken.is_empty() || has_taken(*passage) || !self.passages[*passage].has_children
        };
        let outside = outside.filter(is_left);
        let copied = outside.or(copied.map(|(passage, _)| *passage));
        let by_descent = of_codec
            .or(same.filter(is_same_time))
            .or(copied)
            .or(same.filter(is_kept).filter(|_| !around.is_some_and(|around| is_same_time(&around))));
        if let Some(parent) = by_descent {
            return Some((vec![parent], Rule::Descent));
        }
        if let Some(parent) = around.filter(is_same_time) {
            return Some((vec![parent], Rule::Call));
        }
        // A mixer goes on with the last frame of an input that has no new one. A muxer that has taken none goes on with the last one.
        let is_parent = |taken: &&&Taken| inside.joins || taken.is_new;
        let mut parents: Vec<usize> = taken.iter().filter(is_parent).map(|taken| taken.passage).collect();
        if let (true, Some(last)) = (parents.is_empty() && !taken.is_empty(), self.pads[pad].last) {
            parents.clone_from(&self.passages[last].parents);
        }
        if !parents.is_empty() {
            parents.truncate(MOST_PARENTS);
            return Some((parents, if inside.joins { Rule::Descent } else { Rule::Taken }));
        }
        if span.pts == NO_TIME {
            return None;
        }
        if let Some(passage) = inside.by_time.get(&span.pts) {
            return Some((vec![*passage], Rule::Time));
        }
        // A second field, or a repeated picture, has a time behind that of its origin.
        let around = around?;
        let mut times = inside.recent.iter().rev().map(|passage| time(*passage));
        let interval = times
            .next()
            .zip(times.next())
            .map_or(0, |(last, before): (i64, i64)| last.saturating_sub(before));
        if (1..interval).contains(&span.pts.saturating_sub(time(around))) {
            return Some((vec![around], Rule::Descent));
        }
        let earlier = inside.recent.iter().copied().filter(|passage| time(*passage) <= span.pts);
        let has_later = inside.recent.iter().any(|passage| time(*passage) > span.pts);
        let found = earlier.max_by_key(|passage| time(*passage)).filter(|_| has_later);
        Some(found.map_or((vec![around], Rule::Order), |passage| (vec![passage], Rule::Time)))
    }

    /// True if the pad's element is a video codec.
    pub(crate) fn is_of_codec(&self, pad: usize) -> bool {
        self.codecs.contains(&self.pads[pad].from)
    }
}

#[cfg(test)]
mod tests;
