// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames in graphs of filters: of which inputs an output was made.

use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

use super::{GRAPH_WAITING, Identification, MOST_INPUTS, MOST_PARENTS, MOST_PICTURES, Picture};
use crate::calls::NO_PTS;
use crate::filter_graph::{Branch, FilterGraphs, InputTimes};
use crate::link_counts::LinkCounts;
use crate::names::ObjectNames;
use crate::spans::{CallSpan, FrameCopy};

/// Picture that was put into a graph.
#[derive(Clone, Debug)]
pub(super) struct Passing {
    /// Call that put it there, and its first argument: an input of the graph.
    call: usize,
    input: u64,
    pts: i64,
    frames: Vec<usize>,
    /// Ends of the graph that have returned it.
    sinks: Vec<u64>,
}

/// Graphs of filters, as far as their calls show them.
#[derive(Debug)]
pub(super) struct SeenGraphs<'a> {
    graphs: FilterGraphs<'a>,
    /// Inputs of each graph.
    inside: HashMap<(i32, u64), HashMap<u64, SeenInput>>,
    /// Branches to each end.
    ends: HashMap<(i32, u64), Rc<[Branch]>>,
}

/// Input of a graph.
#[derive(Debug)]
struct SeenInput {
    /// Time of its first picture.
    start_pts: i64,
    /// Pictures that were put there: the last [`GRAPH_WAITING`].
    inside: VecDeque<Passing>,
}

impl SeenGraphs<'_> {
    pub(super) fn new(names: &ObjectNames) -> SeenGraphs<'_> {
        SeenGraphs { graphs: FilterGraphs::new(names), inside: HashMap::new(), ends: HashMap::new() }
    }

    /// Returns the branches to the end of a graph that `span` is about.
    fn branches(&mut self, span: &CallSpan) -> Rc<[Branch]> {
        let find = || self.graphs.branches(span.process, span.object).into();
        self.ends.entry((span.process, span.object)).or_insert_with(find).clone()
    }
}

impl Identification<'_> {
    /// Notes that a picture is put into a graph.
    pub(super) fn filter(&mut self, index: usize, span: &CallSpan) {
        let bytes = (span.process, span.data);
        let Some(pictures) = self.holders.get(&bytes) else { return };
        let graph = self.graph(span);
        let (Some(first), Some(last)) = (pictures.first(), pictures.last()) else { return };
        // One graph may be behind the other.
        let picture = if first.is_filtered { last.clone() } else { first.clone() };
        let mut frames = picture.frames;
        for frame in &mut frames {
            let before = &self.found.frames[*frame];
            let other_graph = before.filter.is_some_and(|(input, _)| self.graph(&self.spans[input]) != graph);
            if !picture.is_filtered && (other_graph || before.encode.is_some()) {
                *frame = self.another_way(*frame);
            }
            self.found.links.descent += 1;
            self.found.frames[*frame].filter = Some((index, None));
        }
        let passing = Passing { call: index, input: span.object, pts: span.pts, frames, sinks: Vec::new() };
        self.origins.insert(bytes, passing.clone());
        let inputs = self.graphs.inside.entry(graph).or_default();
        if inputs.len() < MOST_INPUTS || inputs.contains_key(&span.object) {
            let input = || SeenInput { start_pts: span.pts, inside: VecDeque::new() };
            let inside = &mut inputs.entry(span.object).or_insert_with(input).inside;
            inside.push_back(passing);
            if inside.len() > GRAPH_WAITING {
                inside.pop_front();
            }
        }
    }

    /// Notes that a filter has made a frame from another one.
    pub(super) fn copy(&mut self, copy: &FrameCopy) {
        let to = (copy.process, copy.to);
        match self.origins.get(&(copy.process, copy.from)).cloned() {
            Some(origin) => _ = self.origins.insert(to, origin),
            // The bytes at this address were those of another frame.
            None => _ = self.origins.remove(&to),
        }
    }

    /// Notes that an end of a graph returns a picture.
    pub(super) fn filtered(&mut self, index: usize, span: &CallSpan) {
        let graph = self.graph(span);
        let bytes = (span.process, span.data);
        let parents = self.parents(graph, span);
        if parents.is_empty() {
            // A graph without inputs makes pictures of its own, as in FFmpeg's demuxer `lavfi`.
            self.found.ambiguous += u64::from(self.graphs.inside.contains_key(&graph));
            // The bytes at this address are those of another picture now.
            self.holders.remove(&bytes);
            return;
        }
        let mut frames = Vec::new();
        // One frame may come by several inputs.
        let mut sends = HashSet::new();
        for passing in parents {
            let inputs = self.graphs.inside.get_mut(&graph);
            let input = inputs.and_then(|inputs| inputs.get_mut(&passing.input));
            let inside =
                input.and_then(|input| input.inside.iter_mut().find(|inside| inside.call == passing.call));
            if let Some(inside) = inside {
                if inside.sinks.len() < MOST_PICTURES && !inside.sinks.contains(&span.object) {
                    inside.sinks.push(span.object);
                }
            }
            for frame in passing.frames {
                if frames.len() >= MOST_PARENTS || !sends.insert(self.found.frames[frame].send) {
                    continue;
                }
                let way = self.found.frames[frame].filter;
                let is_new = way == Some((passing.call, None));
                let frame = if is_new { frame } else { self.another_way(frame) };
                self.found.frames[frame].filter = Some((passing.call, Some(index)));
                frames.push(frame);
            }
        }
        let decoded = |picture: &Picture| -> Vec<usize> {
            picture.frames.iter().map(|frame| self.found.frames[*frame].send).collect()
        };
        let picture = Picture { frames, is_filtered: true, encoders: Vec::new() };
        let is_same = |other: &Picture| decoded(other) == decoded(&picture);
        let has_others = self.holders.get(&bytes).is_some_and(|pictures| !pictures.iter().all(is_same));
        let pictures = self.holders.entry(bytes).or_default();
        if has_others || pictures.len() >= MOST_PICTURES {
            pictures.clear();
        }
        pictures.push(picture);
    }

    /// Finds what a picture that an end of a graph returns was made of.
    fn parents(&mut self, graph: (i32, u64), span: &CallSpan) -> Vec<Passing> {
        let branches = self.graphs.branches(span);
        let origin = self.origins.get(&(span.process, span.data)).cloned();
        let origin = origin.filter(|origin| self.graph(&self.spans[origin.call]) == graph);
        let Some(inputs) = self.graphs.inside.get(&graph) else { return Vec::new() };
        let links = &mut self.found.links;
        let Some(origin) = origin else {
            let is_joined = branches.len() > 1 && branches.iter().all(Branch::is_certain);
            let parents: Vec<Passing> = match is_joined {
                true => branches
                    .iter()
                    .filter_map(|branch| inputs.get(&branch.input)?.newest(branch, span))
                    .collect(),
                false => by_time_or_order(inputs, &branches, span, links).into_iter().collect(),
            };
            links.time += if is_joined { parents.len() as u64 } else { 0 };
            return parents;
        };
        links.descent += 1;
        let mut parents = vec![origin.clone()];
        if let Some(first) = branches.iter().find(|branch| branch.input == origin.input) {
            // Behind its end, the last picture of the first input is joined with later ones.
            let is_over = inputs.get(&origin.input).is_some_and(|input| input.is_over(first, span));
            let joined = branches.iter().filter(|other| other.is_joined_with(first));
            parents.extend(joined.filter_map(|other| {
                let input = inputs.get(&other.input)?;
                let by_end = || input.newest(other, span);
                let beside = || input.newest_beside(other, first, origin.pts);
                if is_over || other.keeps_times_behind(first) {
                    by_end().or_else(beside)
                } else {
                    beside().or_else(by_end)
                }
            }));
        }
        links.time += parents.len() as u64 - 1;
        parents
    }
}

impl SeenInput {
    /// Returns the newest picture of which the one in `span`, at the end of `branch`, can be made.
    fn newest(&self, branch: &Branch, span: &CallSpan) -> Option<Passing> {
        self.newest_until(branch, branch.newest(span.pts, self.times(branch)?)?)
    }

    /// Returns the newest picture that is joined with one of branch `first` with the time `pts`.
    fn newest_beside(&self, branch: &Branch, first: &Branch, pts: i64) -> Option<Passing> {
        self.newest_until(branch, branch.newest_beside(first, first.time(pts)?, self.times(branch)?)?)
    }

    /// True if the picture in `span`, at the end of `branch`, comes behind the last one here.
    fn is_over(&self, branch: &Branch, span: &CallSpan) -> bool {
        let times = self.times(branch);
        times.is_some_and(|times| branch.newest(span.pts, times).is_some_and(|ns| ns > times.end_ns))
    }

    fn times(&self, branch: &Branch) -> Option<InputTimes> {
        let mut last = self.inside.iter().rev().filter_map(|passing| branch.time(passing.pts));
        let (last_ns, before_ns) = (last.next()?, last.next());
        let duration = before_ns.map_or(0, |before_ns| last_ns.saturating_sub(before_ns));
        let end_ns = last_ns.saturating_add(duration);
        Some(InputTimes { start_ns: branch.time(self.start_pts)?, end_ns })
    }

    fn newest_until(&self, branch: &Branch, limit_ns: i64) -> Option<Passing> {
        let is_before = |passing: &&Passing| branch.time(passing.pts).is_some_and(|ns| ns <= limit_ns);
        self.inside.iter().filter(is_before).max_by_key(|passing| passing.pts).cloned()
    }
}

/// Finds the only picture that has the time of the one in `span`; if there is none, the only one that the end has not returned.
fn by_time_or_order(
    inputs: &HashMap<u64, SeenInput>,
    branches: &[Branch],
    span: &CallSpan,
    links: &mut LinkCounts,
) -> Option<Passing> {
    let inside = inputs.values().flat_map(|input| &input.inside);
    let waiting: Vec<&Passing> = inside.filter(|passing| !passing.sinks.contains(&span.object)).collect();
    let is_now = |passing: &&&Passing| {
        let branch = branches.iter().find(|branch| branch.input == passing.input);
        branch.map_or(passing.pts == span.pts && span.pts != NO_PTS, |branch| {
            let moment = branch.moment(span.pts);
            branch.time(passing.pts).zip(moment).is_some_and(|(ns, moment)| moment.contains(&ns))
        })
    };
    let mut fitting = waiting.iter().filter(is_now);
    match (fitting.next(), fitting.next(), &waiting[..]) {
        (Some(passing), None, _) => {
            links.time += 1;
            Some((*passing).clone())
        }
        (None, _, [passing]) => {
            links.order += 1;
            Some((*passing).clone())
        }
        _ => None,
    }
}
