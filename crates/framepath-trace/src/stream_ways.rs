// SPDX-License-Identifier: MIT OR Apache-2.0
//! Division of a decoder's frames into the ways that they go: to each output of a program that makes several of one stream.

use std::collections::{HashMap, HashSet};

use crate::spans::CallSpan;
use crate::traced_frame::TracedFrame;

/// Most ends of the frames of a decoder.
const MOST_ENDS: usize = 256;

/// Encoder of a frame, and the end of the graph that it left.
type Ends = (Option<u64>, Option<u64>);

/// Frames that go one way.
#[derive(Default)]
struct Way<'a> {
    ends: Vec<Ends>,
    /// Decoded frames on this way, by [`TracedFrame::send`].
    decoded: HashSet<usize>,
    frames: Vec<&'a TracedFrame>,
}

/// Divides the frames of a decoder, which may go several ways each. A graph or encoder that replaces another one in the
/// middle of the stream is on the same way: no decoded frame went through both. Frames that were dropped on a way are on it
/// as far as that is known.
pub(crate) fn ways<'a>(frames: &[&'a TracedFrame], spans: &[CallSpan]) -> Vec<Vec<&'a TracedFrame>> {
    let mut groups: Vec<Way<'a>> = Vec::new();
    let mut known: HashMap<Ends, usize> = HashMap::new();
    for frame in frames {
        let ends = ends(frame, spans);
        // A program that makes an encoder for each frame has no ways to tell apart.
        let last = groups.len().saturating_sub(1);
        let group = *known.entry(ends).or_insert(if groups.len() < MOST_ENDS { groups.len() } else { last });
        if group == groups.len() {
            groups.push(Way { ends: vec![ends], ..Way::default() });
        }
        groups[group].add(frame);
    }
    // Frames without an end could be on any way.
    groups.sort_by_key(|group| group.ends[0] == (None, None));
    let mut ways: Vec<Way<'a>> = Vec::new();
    for group in groups {
        let (encoder, sink) = group.ends[0];
        let has_encoder = |way: &Way<'_>| encoder.is_some() && way.ends.iter().any(|ends| ends.0 == encoder);
        let has_sink = |way: &Way<'_>| sink.is_some() && way.ends.iter().any(|ends| ends.1 == sink);
        if let (None, None) = group.ends[0] {
            for frame in group.frames {
                if ways.is_empty() {
                    ways.push(Way::default());
                }
                // If it went all known ways, it was put into a graph or an encoder once more, and did not come out.
                if let Some(way) = ways.iter_mut().find(|way| !way.decoded.contains(&frame.send)) {
                    way.add(frame);
                }
            }
            continue;
        }
        let free: Vec<usize> = (0..ways.len()).filter(|way| ways[*way].is_free_of(&group)).collect();
        let same = free.iter().find(|way| has_encoder(&ways[**way]));
        let same = same.or_else(|| free.iter().find(|way| has_sink(&ways[**way])));
        let same = same.or_else(|| free.iter().find(|way| ways[**way].is_beside(&group)));
        match same.copied() {
            Some(way) => {
                ways[way].ends.extend(group.ends);
                for frame in group.frames {
                    ways[way].add(frame);
                }
            }
            None => ways.push(group),
        }
    }
    for way in &mut ways {
        way.frames.sort_by_key(|frame| frame.send);
    }
    ways.into_iter().map(|way| way.frames).collect()
}

impl<'a> Way<'a> {
    fn add(&mut self, frame: &'a TracedFrame) {
        self.decoded.insert(frame.send);
        self.frames.push(frame);
    }

    /// True if no decoded frame is on both.
    fn is_free_of(&self, other: &Way<'_>) -> bool {
        self.decoded.is_disjoint(&other.decoded)
    }

    /// True if all frames of one come before all of the other.
    fn is_beside(&self, other: &Way<'_>) -> bool {
        let range = |way: &Way<'_>| (way.decoded.iter().min().copied(), way.decoded.iter().max().copied());
        let ((first, last), (other_first, other_last)) = (range(self), range(other));
        last < other_first || other_last < first
    }
}

fn ends(frame: &TracedFrame, spans: &[CallSpan]) -> Ends {
    let encoder = frame.encode.map(|(input, _)| spans[input].object);
    let sink = frame.filter.and_then(|(_, output)| output).map(|output| spans[output].object);
    (encoder, sink)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{Call, NO_PTS};

    /// Returns the numbers of frames on each way, for frames with these packets, encoders and ends of graphs.
    fn counts(frames: &[(usize, u64, u64)]) -> Vec<usize> {
        let mut spans = Vec::new();
        let mut call = |object: u64| {
            let (call, process, thread, enter_ns, leave_ns) = (Call::SendFrame, 1, 1, 0, 0);
            spans.push(CallSpan {
                call,
                process,
                thread,
                enter_ns,
                leave_ns,
                object,
                data: 1,
                pts: NO_PTS,
                result: 0,
            });
            spans.len() - 1
        };
        let frames: Vec<TracedFrame> = frames
            .iter()
            .map(|(send, encoder, sink)| TracedFrame {
                send: *send,
                filter: (*sink > 0).then(|| (call(0), Some(call(*sink)))),
                encode: (*encoder > 0).then(|| (call(*encoder), None)),
                ..TracedFrame::default()
            })
            .collect();
        let frames: Vec<&TracedFrame> = frames.iter().collect();
        ways(&frames, &spans).iter().map(Vec::len).collect()
    }

    #[test]
    fn a_way_is_one_although_its_graph_and_its_encoder_are_replaced() {
        assert_eq!(counts(&[(1, 0, 0), (2, 0, 0)]), [2]);
        assert_eq!(counts(&[(1, 7, 5), (2, 0, 0), (3, 7, 6), (4, 8, 6), (5, 9, 9)]), [5]);
        // A frame that the graph returned, and no encoder got.
        assert_eq!(counts(&[(1, 7, 5), (2, 0, 5), (3, 7, 5)]), [3]);
    }

    #[test]
    fn two_outputs_are_two_ways() {
        let (one, two) = ((1, 7, 5), (1, 8, 6));
        assert_eq!(counts(&[one, two, (2, 8, 6), (2, 7, 5)]), [2, 2]);
        // The graph is replaced; the second output drops a frame, which its first one has.
        assert_eq!(counts(&[one, two, (2, 8, 16), (2, 7, 15), (3, 0, 0), (3, 7, 15)]), [3, 3]);
        // Each output has every second frame.
        assert_eq!(counts(&[(1, 7, 5), (2, 8, 6), (3, 7, 5), (4, 8, 6)]), [2, 2]);
    }
}
