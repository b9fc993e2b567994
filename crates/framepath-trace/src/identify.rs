// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames in the calls of FFmpeg's libraries: which call had which frame.
//!
//! A packet is known by the address of its bytes from the demuxer to the decoder and from the encoder to the muxer,
//! a frame by the address of its first plane from the decoder to the filters and from them to the encoder, and by its
//! presentation time inside decoders, filters and encoders. What cannot be told apart is counted and never guessed.
//!
//! A frame is shown by the first call that shows the texture into which its bytes were put; without such textures, by the
//! call that [`crate::shown_order`] finds.
//!
//! A decoded frame may go several ways: through several graphs, to several ends of one graph, to several encoders. There is
//! a [`TracedFrame`] for each way; those of one decoded frame have the same [`TracedFrame::send`].

use std::collections::HashMap;

use crate::calls::{Call, NO_PTS};
use crate::names::{Media, ObjectNames};
use crate::shown_order::{Unmatched, show_in_order};
use crate::spans::CallSpan;

/// One video frame on one way, from its packet on. Each call is an index in the list of spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TracedFrame {
    /// Process and decoder.
    pub(crate) decoder: (i32, u64),
    /// Call that read the packet; `None` if it is not known.
    pub(crate) read: Option<usize>,
    /// Call that gave the packet to the decoder.
    pub(crate) send: usize,
    /// Call with which a thread began to decode the frame; `None` if the decoder has buffers of its own.
    pub(crate) buffer: Option<usize>,
    /// Call that got the frame from the decoder.
    pub(crate) receive: Option<usize>,
    /// Calls that gave the frame to a graph of filters, and got it from there.
    pub(crate) filter: Option<(usize, Option<usize>)>,
    /// Calls that gave the frame to an encoder, and got its packet from there.
    pub(crate) encode: Option<(usize, Option<usize>)>,
    /// Call that wrote the packet.
    pub(crate) write: Option<usize>,
    /// Calls that put the frame into a texture, if there is one, and that showed it first.
    pub(crate) present: Option<(Option<usize>, usize)>,
}

/// Frames of a recording, in the order in which their packets were sent to the decoder.
#[derive(Debug, Default)]
pub(crate) struct Identified {
    pub(crate) frames: Vec<TracedFrame>,
    /// Number of outputs of decoders, filters and encoders that belong to no frame or to several.
    pub(crate) ambiguous: u64,
    /// Pictures that are not matched to frames.
    pub(crate) unmatched: Vec<Unmatched>,
}

/// Greatest number of frames that wait in one decoder, graph or encoder; older ones have been dropped inside.
const WAITING: usize = 1024;

/// Finds the frames in `spans`, which are in the order of their begins.
pub(crate) fn identify(spans: &[CallSpan], names: &ObjectNames) -> Identified {
    let mut state = Identification {
        spans,
        names,
        found: Identified::default(),
        read: HashMap::new(),
        holders: HashMap::new(),
        decoding: HashMap::new(),
        packet: HashMap::new(),
        inside: HashMap::new(),
        graphs: HashMap::new(),
        sinks: HashMap::new(),
        textures: HashMap::new(),
        writes: HashMap::new(),
    };
    // A call's item is known at its begin, or only at its end.
    let mut moments: Vec<(u64, usize)> = Vec::with_capacity(spans.len());
    for (index, span) in spans.iter().enumerate() {
        let at_begin =
            matches!(span.call, Call::SendPacket | Call::FilterInput | Call::SendFrame | Call::WritePacket)
                || matches!(span.call, Call::Upload | Call::Present);
        moments.push((if at_begin { span.enter_ns } else { span.leave_ns }, index));
    }
    moments.sort_unstable();
    for (_, index) in moments {
        state.step(index);
    }
    show_in_order(&mut state.found, spans);
    state.found
}

struct Identification<'a> {
    spans: &'a [CallSpan],
    names: &'a ObjectNames,
    found: Identified,
    /// Read call of each packet, by process and address of its bytes.
    read: HashMap<(i32, u64), usize>,
    /// Frames of each address of a first plane: all of one decoded frame.
    holders: HashMap<(i32, u64), Vec<Holder>>,
    /// Frame of each buffer that a thread decodes into.
    decoding: HashMap<(i32, u64), usize>,
    /// Frame of each encoded packet, by the address of its bytes.
    packet: HashMap<(i32, u64), usize>,
    /// Frames inside a decoder or encoder, with their times there.
    inside: HashMap<(i32, u64), Vec<(i64, usize)>>,
    /// Frames that were put into a graph.
    graphs: HashMap<(i32, u64), Vec<Passing>>,
    /// End of a graph from which each encoder has got its last frame.
    sinks: HashMap<(i32, u64), Option<u64>>,
    /// Frame of each texture that was not shown yet, by the thread and the texture, with the call that put it there.
    textures: HashMap<(i32, u64), (usize, usize)>,
    /// Frame that each thread wrote last.
    writes: HashMap<i32, usize>,
}

/// Frame with its bytes at one address.
#[derive(Clone, Copy, Debug)]
struct Holder {
    frame: usize,
    /// False for a frame as the decoder returned it.
    is_filtered: bool,
}

/// Frame that was put into a graph.
#[derive(Debug)]
struct Passing {
    pts: i64,
    frame: usize,
    /// Ends of the graph that have returned it.
    sinks: Vec<u64>,
}

impl Identification<'_> {
    fn step(&mut self, index: usize) {
        let span = self.spans[index];
        let of_process = |address| (span.process, address);
        let object = of_process(span.object);
        let has_item = span.data != 0 && span.result >= 0;
        match span.call {
            Call::ReadPacket if has_item => {
                self.read.insert(of_process(span.data), index);
            }
            // Refused with EAGAIN, a packet or frame is sent again.
            Call::SendPacket if has_item && self.is_video(&span) => {
                let read = self.read.get(&of_process(span.data)).copied();
                let frame = TracedFrame { decoder: object, read, send: index, ..TracedFrame::default() };
                self.found.frames.push(frame);
                self.enter(object, span.pts, self.found.frames.len() - 1);
            }
            Call::GetBuffer => self.begin_to_decode(index, &span),
            Call::ReceiveFrame if has_item && self.inside.contains_key(&object) => {
                if let Some(frame) = self.decoded(&span) {
                    self.found.frames[frame].receive = Some(index);
                    self.holders.insert(of_process(span.data), vec![Holder { frame, is_filtered: false }]);
                }
            }
            Call::FilterInput if has_item => self.filter(index, &span),
            Call::FilterOutput if has_item => self.filtered(index, &span),
            Call::SendFrame if has_item => self.encode(index, &span),
            Call::ReceivePacket if has_item && self.inside.contains_key(&object) => {
                if let Some(frame) = self.leave(object, span.pts) {
                    if let Some((_, output)) = &mut self.found.frames[frame].encode {
                        *output = Some(index);
                    }
                    self.packet.insert(of_process(span.data), frame);
                }
            }
            Call::WritePacket if has_item => {
                if let Some(frame) = self.packet.remove(&of_process(span.data)) {
                    self.found.frames[frame].write = Some(index);
                    self.writes.insert(span.thread, frame);
                }
            }
            Call::Upload if has_item => {
                let texture = (span.thread, span.object);
                match self.holder(&span) {
                    Some(frame) => self.textures.insert(texture, (frame, index)),
                    None => self.textures.remove(&texture),
                };
            }
            Call::Present => self.present(index, &span),
            _ => {}
        }
    }

    /// Notes that a thread shows a picture.
    fn present(&mut self, index: usize, span: &CallSpan) {
        let frames = &mut self.found.frames;
        // A frame that is shown twice, by its texture or by a new picture of it, is shown by the first call.
        self.textures.retain(|(thread, _), (frame, upload)| {
            if *thread == span.thread {
                frames[*frame].present.get_or_insert((Some(*upload), index));
            }
            *thread != span.thread
        });
        let Some(frame) = self.writes.get(&span.thread).map(|frame| &mut frames[*frame]) else { return };
        // A muxer that is a window.
        let is_inside = frame.write.is_some_and(|write| self.spans[write].leave_ns >= span.leave_ns);
        if is_inside {
            frame.present.get_or_insert((None, index));
        }
    }

    /// Returns the frame whose bytes a call gets that shows them; `None` if there is none, or if there are several.
    fn holder(&mut self, span: &CallSpan) -> Option<usize> {
        let holders = self.holders.get(&(span.process, span.data))?;
        let has_filtered = holders.iter().any(|holder| holder.is_filtered);
        let mut fitting = holders.iter().filter(|holder| holder.is_filtered == has_filtered);
        let found = fitting.next().filter(|_| fitting.next().is_none());
        if found.is_none() {
            self.found.ambiguous += 1;
        }
        found.map(|holder| holder.frame)
    }

    /// Returns the index of a new frame that goes another way than `frame` from the next call on, at its encoder at the latest.
    fn another_way(&mut self, frame: usize) -> usize {
        let way =
            TracedFrame { encode: None, write: None, present: None, ..self.found.frames[frame].clone() };
        self.found.frames.push(way);
        self.found.frames.len() - 1
    }

    /// Notes that a frame is put into a graph.
    fn filter(&mut self, index: usize, span: &CallSpan) {
        let Some(holders) = self.holders.get(&(span.process, span.data)) else { return };
        let graph = self.graph(span);
        let (Some(mut holder), Some(last)) = (holders.first().copied(), holders.last().copied()) else {
            return;
        };
        let before = &self.found.frames[holder.frame];
        let other_graph = before.filter.is_some_and(|(input, _)| self.graph(&self.spans[input]) != graph);
        if holder.is_filtered {
            // One graph behind the other.
            holder = last;
        } else if other_graph || before.encode.is_some() {
            holder.frame = self.another_way(holder.frame);
        }
        self.found.frames[holder.frame].filter = Some((index, None));
        let passing = self.graphs.entry(graph).or_default();
        passing.push(Passing { pts: span.pts, frame: holder.frame, sinks: Vec::new() });
        if passing.len() > WAITING {
            passing.remove(0);
        }
    }

    /// Notes that an end of a graph returns a frame.
    fn filtered(&mut self, index: usize, span: &CallSpan) {
        let graph = self.graph(span);
        let Some(passing) = self.graphs.get_mut(&graph) else { return };
        let mut waiting: Vec<&mut Passing> =
            passing.iter_mut().filter(|passing| !passing.sinks.contains(&span.object)).collect();
        let times: Vec<(i64, usize)> =
            waiting.iter().enumerate().map(|(place, passing)| (passing.pts, place)).collect();
        // A graph that changes only times returns the bytes that it got.
        let holder = self.holders.get(&(span.process, span.data)).and_then(|holders| holders.first());
        let send_of = |frame: usize| self.found.frames[frame].send;
        let by_bytes = holder.and_then(|holder| {
            waiting.iter().position(|passing| send_of(passing.frame) == send_of(holder.frame))
        });
        let found = by_bytes.or_else(|| single(&times, span.pts));
        let Some(passing) = found.map(|place| waiting.swap_remove(place)) else {
            self.found.ambiguous += 1;
            return;
        };
        let is_first = passing.sinks.is_empty();
        passing.sinks.push(span.object);
        let mut frame = passing.frame;
        let input = self.found.frames[frame].filter.map_or(index, |(input, _)| input);
        if !is_first {
            frame = self.another_way(frame);
        }
        self.found.frames[frame].filter = Some((input, Some(index)));
        let send = self.found.frames[frame].send;
        let holders = self.holders.entry((span.process, span.data)).or_default();
        if holders.iter().any(|holder| self.found.frames[holder.frame].send != send) {
            holders.clear();
        }
        holders.push(Holder { frame, is_filtered: true });
    }

    /// Notes that a frame is given to an encoder.
    fn encode(&mut self, index: usize, span: &CallSpan) {
        let encoder = (span.process, span.object);
        let Some(holders) = self.holders.get(&(span.process, span.data)) else { return };
        let has_filtered = holders.iter().any(|holder| holder.is_filtered);
        let holders: Vec<usize> = (holders.iter())
            .filter(|holder| holder.is_filtered == has_filtered)
            .map(|holder| holder.frame)
            .collect();
        // Graphs that change nothing return the same bytes at several ends.
        let sink = |frame: usize| {
            let (_, output) = self.found.frames[frame].filter?;
            Some(self.spans[output?].object)
        };
        let found = match holders[..] {
            [frame] => Some(frame),
            _ => {
                let known = self.sinks.get(&encoder);
                let by_sink = known.and_then(|known| holders.iter().find(|frame| sink(**frame) == *known));
                let mut new = holders.iter().filter(|frame| self.found.frames[**frame].encode.is_none());
                by_sink.or(new.next().filter(|_| new.next().is_none())).copied()
            }
        };
        let Some(mut frame) = found else {
            self.found.ambiguous += 1;
            return;
        };
        self.sinks.insert(encoder, sink(frame));
        let is_other = |(input, _): (usize, _)| self.spans[input].object != span.object;
        if self.found.frames[frame].encode.is_some_and(is_other) {
            frame = self.another_way(frame);
        }
        self.found.frames[frame].encode = Some((index, None));
        self.enter(encoder, span.pts, frame);
    }

    /// True unless the codec is known to be none of video.
    fn is_video(&self, span: &CallSpan) -> bool {
        self.names.of(span.process, span.object).is_none_or(|named| named.media == Media::Video)
    }

    /// Returns the graph of a filter, or the filter itself: one with a graph that is not known is alone.
    fn graph(&self, span: &CallSpan) -> (i32, u64) {
        (span.process, self.names.graph(span.process, span.object).unwrap_or(0))
    }

    /// Notes that a thread has begun to decode a frame: by its time; if that is not enough, because the packet is just being
    /// sent by this thread, or because the threads of a decoder begin with the frames in the order of their packets.
    fn begin_to_decode(&mut self, index: usize, span: &CallSpan) {
        let frames = &self.found.frames;
        let is_new = |frame: &usize| frames[*frame].buffer.is_none() && frames[*frame].receive.is_none();
        let of_process = self.inside.iter().filter(|((process, _), _)| *process == span.process);
        let candidates = of_process.map(|(_, inside)| {
            let new = inside.iter().filter(|(_, frame)| is_new(frame));
            let fitting: Vec<usize> =
                new.filter(|(pts, _)| *pts == span.pts).map(|(_, frame)| *frame).collect();
            fitting
        });
        // With two decoders that have a frame of this time, the thread could be either's.
        let mut candidates = candidates.filter(|fitting| !fitting.is_empty());
        let (Some(fitting), None) = (candidates.next(), candidates.next()) else { return };
        let frame = match fitting[..] {
            [frame] => frame,
            // No times, or a hidden picture with the time of a shown one.
            _ => {
                let is_sent_here = |frame: &&usize| {
                    let send = &self.spans[frames[**frame].send];
                    send.thread == span.thread && (send.enter_ns..=send.leave_ns).contains(&span.enter_ns)
                };
                *fitting.iter().find(is_sent_here).unwrap_or(&fitting[0])
            }
        };
        self.found.frames[frame].buffer = Some(index);
        if span.data != 0 {
            self.decoding.insert((span.process, span.data), frame);
        }
    }

    /// Finds the frame that a decoder outputs: by the address of its bytes, and by its time.
    fn decoded(&mut self, span: &CallSpan) -> Option<usize> {
        let decoder = (span.process, span.object);
        let inside = self.inside.get(&decoder)?;
        let by_address = self.decoding.remove(&(span.process, span.data));
        let by_address = by_address.filter(|frame| inside.iter().any(|(_, other)| other == frame));
        let by_time = (span.pts != NO_PTS).then(|| unique(inside, |pts| pts == span.pts)).flatten();
        let frame = match (by_address, by_time) {
            (Some(one), Some(other)) if one != other => None,
            (None, None) if inside.len() == 1 && span.pts == NO_PTS => Some(inside[0].1),
            (one, other) => one.or(other),
        };
        match frame {
            Some(frame) => self.inside.get_mut(&decoder)?.retain(|(_, other)| *other != frame),
            None => self.found.ambiguous += 1,
        }
        frame
    }

    fn enter(&mut self, object: (i32, u64), pts: i64, frame: usize) {
        let inside = self.inside.entry(object).or_default();
        inside.push((pts, frame));
        if inside.len() > WAITING {
            inside.remove(0);
        }
    }

    /// Takes the frame with time `pts` out of `object`.
    fn leave(&mut self, object: (i32, u64), pts: i64) -> Option<usize> {
        let inside = self.inside.get_mut(&object)?;
        let frame = single(inside, pts);
        match frame {
            Some(frame) => inside.retain(|(_, other)| *other != frame),
            None => self.found.ambiguous += 1,
        }
        frame
    }
}

/// Returns the frame with time `pts`. Filters and encoders may change all times: a single frame is the one.
fn single(inside: &[(i64, usize)], pts: i64) -> Option<usize> {
    match inside[..] {
        [(_, frame)] => Some(frame),
        _ if pts == NO_PTS => None,
        _ => unique(inside, |time| time == pts),
    }
}

/// Returns the frame whose time `fits`, if there is exactly one.
fn unique(inside: &[(i64, usize)], fits: impl Fn(i64) -> bool) -> Option<usize> {
    let mut fitting = inside.iter().filter(|(pts, _)| fits(*pts));
    match (fitting.next(), fitting.next()) {
        (Some((_, frame)), None) => Some(*frame),
        _ => None,
    }
}
