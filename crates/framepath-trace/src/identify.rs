// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames in the calls of FFmpeg's libraries: which call had which frame.
//!
//! A packet is known by the address of its bytes from the demuxer to the decoder and from the encoder to the muxer,
//! a frame by the address of its first plane from the decoder to the filters and from them to the encoder, and by its
//! presentation time inside decoders, filters and encoders. What cannot be told apart is counted and never guessed.

use std::collections::HashMap;

use crate::calls::{Call, NO_PTS};
use crate::names::{Media, ObjectNames};
use crate::spans::CallSpan;

/// One video frame, from its packet on. Each call is an index in the list of spans.
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
}

/// Frames of a recording, in the order in which their packets were sent to the decoder.
#[derive(Debug, Default)]
pub(crate) struct Identified {
    pub(crate) frames: Vec<TracedFrame>,
    /// Number of outputs of decoders, filters and encoders that belong to no frame or to several.
    pub(crate) ambiguous: u64,
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
        frame: HashMap::new(),
        decoding: HashMap::new(),
        packet: HashMap::new(),
        inside: HashMap::new(),
    };
    // A call's item is known at its begin, or only at its end.
    let mut moments: Vec<(u64, usize)> = Vec::with_capacity(spans.len());
    for (index, span) in spans.iter().enumerate() {
        let at_begin =
            matches!(span.call, Call::SendPacket | Call::FilterInput | Call::SendFrame | Call::WritePacket);
        moments.push((if at_begin { span.enter_ns } else { span.leave_ns }, index));
    }
    moments.sort_unstable();
    for (_, index) in moments {
        state.step(index);
    }
    state.found
}

struct Identification<'a> {
    spans: &'a [CallSpan],
    names: &'a ObjectNames,
    found: Identified,
    /// Read call of each packet, by process and address of its bytes.
    read: HashMap<(i32, u64), usize>,
    /// Frame of each address of a first plane.
    frame: HashMap<(i32, u64), usize>,
    /// Frame of each buffer that a thread decodes into.
    decoding: HashMap<(i32, u64), usize>,
    /// Frame of each encoded packet, by the address of its bytes.
    packet: HashMap<(i32, u64), usize>,
    /// Frames inside a decoder, graph or encoder, with their times there.
    inside: HashMap<(i32, u64), Vec<(i64, usize)>>,
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
                    self.frame.insert(of_process(span.data), frame);
                }
            }
            Call::FilterInput if has_item => {
                if let Some(frame) = self.frame.get(&of_process(span.data)).copied() {
                    self.found.frames[frame].filter = Some((index, None));
                    self.enter(self.graph(&span), span.pts, frame);
                }
            }
            Call::FilterOutput if has_item && self.inside.contains_key(&self.graph(&span)) => {
                if let Some(frame) = self.leave(self.graph(&span), span.pts) {
                    if let Some((_, output)) = &mut self.found.frames[frame].filter {
                        *output = Some(index);
                    }
                    self.frame.insert(of_process(span.data), frame);
                }
            }
            Call::SendFrame if has_item => {
                if let Some(frame) = self.frame.get(&of_process(span.data)).copied() {
                    self.found.frames[frame].encode = Some((index, None));
                    self.enter(object, span.pts, frame);
                }
            }
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
                }
            }
            _ => {}
        }
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
        // Filters may change all times: a single frame is the one.
        let frame = match inside[..] {
            [(_, frame)] => Some(frame),
            _ if pts == NO_PTS => None,
            _ => unique(inside, |time| time == pts),
        };
        match frame {
            Some(frame) => inside.retain(|(_, other)| *other != frame),
            None => self.found.ambiguous += 1,
        }
        frame
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
