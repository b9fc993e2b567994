// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames in graphs of filters: of which inputs an output was made.

use std::collections::{HashSet, VecDeque};

use super::{GRAPH_WAITING, Identification, MOST_PARENTS, MOST_PICTURES, Picture};
use crate::calls::NO_PTS;
use crate::spans::{CallSpan, FrameCopy};

/// Filters that make one picture from those of all their inputs: with each frame of the first input, the newest ones of the
/// others (libavfilter's framesync).
const JOINING: [&str; 22] = [
    "overlay",
    "hstack",
    "vstack",
    "xstack",
    "blend",
    "alphamerge",
    "maskedmerge",
    "mergeplanes",
    "paletteuse",
    "premultiply",
    "unpremultiply",
    "displace",
    "lut2",
    "psnr",
    "ssim",
    "libvmaf",
    "xfade",
    "mix",
    "midequalizer",
    "threshold",
    "guided",
    "identity",
];

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

/// Graph of filters, as far as its calls show it.
#[derive(Debug)]
pub(super) struct SeenGraph {
    /// Pictures that were put into it: the last [`GRAPH_WAITING`].
    inside: VecDeque<Passing>,
    /// Ends that have returned pictures.
    ends: HashSet<u64>,
    /// True if it makes one picture from those of its inputs.
    joins: bool,
}

impl SeenGraph {
    /// Makes a graph of these filters, `scale,overlay`.
    fn of(filters: &str) -> SeenGraph {
        let joins = filters.split(',').any(|filter| JOINING.contains(&filter));
        SeenGraph { inside: VecDeque::new(), ends: HashSet::new(), joins }
    }
}

impl Identification<'_> {
    /// Returns what is known of a graph.
    fn graph_at(&mut self, key: (i32, u64)) -> &mut SeenGraph {
        let filters = || self.names.of(key.0, key.1).map_or("", |named| &named.name);
        self.graphs.entry(key).or_insert_with(|| SeenGraph::of(filters()))
    }

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
        let inside = &mut self.graph_at(graph).inside;
        inside.push_back(passing);
        if inside.len() > GRAPH_WAITING {
            inside.pop_front();
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
        let ends = &mut self.graph_at(graph).ends;
        if ends.len() < MOST_PICTURES {
            ends.insert(span.object);
        }
        let parents = self.parents(graph, span);
        if parents.is_empty() {
            self.found.ambiguous += 1;
            // The bytes at this address are those of another picture now.
            self.holders.remove(&bytes);
            return;
        }
        let mut frames = Vec::new();
        // One frame may come by several inputs.
        let mut sends = HashSet::new();
        for passing in parents {
            let inside = &mut self.graph_at(graph).inside;
            if let Some(inside) = inside.iter_mut().find(|inside| inside.call == passing.call) {
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
        let origin = self.origins.get(&(span.process, span.data));
        let origin = origin.filter(|origin| self.graph(&self.spans[origin.call]) == graph);
        let Some(SeenGraph { inside, ends, joins }) = self.graphs.get(&graph) else { return Vec::new() };
        let mut parents: Vec<Passing> = Vec::new();
        if let Some(origin) = origin {
            self.found.links.descent += 1;
            parents.push(origin.clone());
        } else {
            let waiting: Vec<&Passing> =
                inside.iter().filter(|passing| !passing.sinks.contains(&span.object)).collect();
            let times: Vec<(i64, usize)> =
                waiting.iter().enumerate().map(|(place, passing)| (passing.pts, place)).collect();
            let mut fitting = times.iter().filter(|(pts, _)| *pts == span.pts && *pts != NO_PTS);
            // Inputs that are joined have pictures of one time.
            let by_time = fitting.next().filter(|_| *joins || fitting.next().is_none());
            let found = match (by_time, &times[..]) {
                (Some((_, place)), _) => {
                    self.found.links.time += 1;
                    Some(*place)
                }
                // Inputs that are joined may have other times than the output, and other rates.
                (None, [(_, place)]) if !*joins => {
                    self.found.links.order += 1;
                    Some(*place)
                }
                _ => None,
            };
            parents.extend(found.map(|place| waiting[place].clone()));
        }
        // With several ends, an input may lead to another one alone.
        let Some(first) = parents.first().filter(|_| *joins && ends.len() == 1).cloned() else {
            return parents;
        };
        let mut inputs: Vec<u64> = inside.iter().map(|passing| passing.input).collect();
        inputs.sort_unstable();
        inputs.dedup();
        inputs.truncate(MOST_PARENTS);
        for input in inputs.into_iter().filter(|input| *input != first.input) {
            let of_input = inside.iter().filter(|passing| passing.input == input);
            let before = of_input.filter(|passing| passing.pts <= first.pts);
            if let Some(newest) = before.max_by_key(|passing| passing.pts) {
                self.found.links.time += 1;
                parents.push(newest.clone());
            }
        }
        parents
    }
}
