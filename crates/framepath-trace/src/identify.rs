// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames in the calls of FFmpeg's libraries: which call had which frame.
//!
//! A frame is followed by its descent. A packet is known by the address of its bytes from the demuxer to the decoder and from
//! the encoder to the muxer, a frame by the address of its first plane from the decoder to the filters and from them to the
//! encoder. Inside a graph of filters, a frame has the bytes of the one that was put in, or a filter has made it from another
//! one (`av_frame_copy_props`, `av_frame_copy`). A codec keeps the time of each frame or packet. Only where no such edge is seen, as behind
//! filters that draw a new picture, times decide, and then order. What cannot be told apart is counted and never guessed.
//!
//! A picture can have several parents: the inputs of `overlay` and its relatives. It then is a picture of each of them.
//!
//! A frame is shown by the first call that shows the texture into which its bytes were put; without such textures, by the
//! call that [`crate::shown_order`] finds.
//!
//! A decoded frame may go several ways: through several graphs, to several ends of one graph, to several encoders. There is
//! a [`TracedFrame`] for each way; those of one decoded frame have the same [`TracedFrame::send`].

mod filters;

use std::collections::{HashMap, HashSet};

use self::filters::{Passing, SeenGraphs};
use crate::calls::{Call, NO_PTS};
use crate::link_counts::LinkCounts;
use crate::names::{Media, ObjectNames};
use crate::shown_order::{Unmatched, show_in_order};
use crate::spans::{CallSpan, FrameCopy};
use crate::traced_frame::TracedFrame;

/// Frames of a recording, in the order in which their packets were sent to the decoder.
#[derive(Debug, Default)]
pub(crate) struct Identified {
    pub(crate) frames: Vec<TracedFrame>,
    /// Number of outputs of decoders, filters and encoders that belong to no frame or to several.
    pub(crate) ambiguous: u64,
    /// Numbers of the links between calls, by the rule that made them.
    pub(crate) links: LinkCounts,
    /// Pictures that are not matched to frames.
    pub(crate) unmatched: Vec<Unmatched>,
}

/// Greatest number of frames that wait in one decoder, graph or encoder; older ones have been dropped inside.
const WAITING: usize = 1024;

/// Greatest number of inputs of a graph, and of pictures that wait at each for a rule other than descent.
const MOST_INPUTS: usize = 64;
const GRAPH_WAITING: usize = 128;

/// Most decoders of a recording, and most pictures in textures that were not shown.
const MOST_CODECS: usize = 256;
const MOST_TEXTURES: usize = 1024;

/// Most frames of a recording, frames that a picture is made of, and pictures, ends or encoders of the bytes at one address.
const MOST_FRAMES: usize = 1 << 20;
const MOST_PARENTS: usize = 16;
const MOST_PICTURES: usize = 64;

/// Finds the frames in `spans`, which are in the order of their begins, but for those of the processes in `without`.
/// `copies` are the frames that were made from others, in the order of their times.
pub(crate) fn identify(
    spans: &[CallSpan],
    copies: &[FrameCopy],
    names: &ObjectNames,
    without: &HashSet<i32>,
) -> Identified {
    let mut state = Identification {
        spans,
        names,
        found: Identified::default(),
        read: HashMap::new(),
        holders: HashMap::new(),
        decoding: HashMap::new(),
        packet: HashMap::new(),
        waiting: HashMap::new(),
        inside: HashMap::new(),
        encoding: HashMap::new(),
        graphs: SeenGraphs::new(names),
        origins: HashMap::new(),
        sinks: HashMap::new(),
        textures: HashMap::new(),
        writes: HashMap::new(),
    };
    // A call's item is known at its begin, or only at its end.
    let mut moments: Vec<(u64, usize)> = Vec::with_capacity(spans.len());
    for (index, span) in spans.iter().enumerate().filter(|(_, span)| !without.contains(&span.process)) {
        let at_begin =
            matches!(span.call, Call::SendPacket | Call::FilterInput | Call::SendFrame | Call::WritePacket)
                || matches!(span.call, Call::Upload | Call::Present);
        moments.push((if at_begin { span.enter_ns } else { span.leave_ns }, index));
    }
    moments.sort_unstable();
    let mut copies = copies.iter().peekable();
    for (at_ns, index) in moments {
        while let Some(copy) = copies.next_if(|copy| copy.at_ns <= at_ns) {
            state.copy(copy);
        }
        state.step(index);
    }
    state.found.unmatched = show_in_order(&mut state.found.frames, spans);
    state.found
}

struct Identification<'a> {
    spans: &'a [CallSpan],
    names: &'a ObjectNames,
    found: Identified,
    /// Read call of each packet, by process and address of its bytes.
    read: HashMap<(i32, u64), usize>,
    /// Pictures of each address of a first plane: all of one decoded frame.
    holders: HashMap<(i32, u64), Vec<Picture>>,
    /// Frame of each buffer that a thread decodes into.
    decoding: HashMap<(i32, u64), usize>,
    /// Frames of each encoded packet, by the address of its bytes.
    packet: HashMap<(i32, u64), Vec<usize>>,
    /// Frames of a process that no thread has begun to decode, by their times.
    waiting: HashMap<(i32, i64), Vec<usize>>,
    /// Frames inside a decoder, with their times there.
    inside: HashMap<(i32, u64), Vec<(i64, usize)>>,
    /// Frames inside an encoder, with their times there.
    encoding: HashMap<(i32, u64), Vec<Encoding>>,
    graphs: SeenGraphs<'a>,
    /// Input of a graph from which the bytes at an address come.
    origins: HashMap<(i32, u64), Passing>,
    /// End of a graph from which each encoder has got its last frame.
    sinks: HashMap<(i32, u64), Option<u64>>,
    /// Frame of each texture that was not shown yet, by the thread and the texture, with the call that put it there.
    textures: HashMap<(i32, u64), (usize, usize)>,
    /// Frame that each thread wrote last.
    writes: HashMap<i32, usize>,
}

/// Picture with its bytes at one address.
#[derive(Clone, Debug)]
struct Picture {
    /// Frames that it shows: several if it was made from several.
    frames: Vec<usize>,
    /// False for a picture as the decoder returned it.
    is_filtered: bool,
    /// Encoders that have got it.
    encoders: Vec<u64>,
}

/// Picture inside an encoder.
#[derive(Debug)]
struct Encoding {
    pts: i64,
    frames: Vec<usize>,
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
            Call::SendPacket if has_item && self.is_video(&span) && self.has_room_for(object) => {
                let read = self.read.get(&of_process(span.data)).copied();
                self.found.links.descent += u64::from(read.is_some());
                let frame = TracedFrame { decoder: object, read, send: index, ..TracedFrame::default() };
                self.found.frames.push(frame);
                let frame = self.found.frames.len() - 1;
                let waiting = self.waiting.entry((span.process, span.pts)).or_default();
                waiting.push(frame);
                if waiting.len() > WAITING {
                    waiting.remove(0);
                }
                self.enter(object, span.pts, frame);
            }
            Call::GetBuffer => self.begin_to_decode(index, &span),
            Call::ReceiveFrame if has_item && self.inside.contains_key(&object) => {
                // The bytes at this address are those of a new picture.
                self.origins.remove(&of_process(span.data));
                self.holders.remove(&of_process(span.data));
                if let Some(frame) = self.decoded(&span) {
                    self.found.frames[frame].receive = Some(index);
                    let picture = Picture { frames: vec![frame], is_filtered: false, encoders: Vec::new() };
                    self.holders.insert(of_process(span.data), vec![picture]);
                }
            }
            Call::FilterInput if has_item => self.filter(index, &span),
            Call::FilterOutput if has_item => self.filtered(index, &span),
            Call::SendFrame if has_item => self.encode(index, &span),
            Call::ReceivePacket if has_item && self.encoding.contains_key(&object) => {
                let frames = self.encoded(object, span.pts);
                for frame in &frames {
                    if let Some((_, output)) = &mut self.found.frames[*frame].encode {
                        *output = Some(index);
                    }
                }
                self.packet.insert(of_process(span.data), frames);
            }
            Call::WritePacket if has_item => {
                for frame in self.packet.remove(&of_process(span.data)).unwrap_or_default() {
                    self.found.links.descent += 1;
                    self.found.frames[frame].write = Some(index);
                    self.writes.insert(span.thread, frame);
                }
            }
            Call::Upload if has_item => {
                let texture = (span.thread, span.object);
                if self.textures.len() >= MOST_TEXTURES {
                    self.textures.clear();
                }
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
        let pictures = self.holders.get(&(span.process, span.data))?;
        let has_filtered = pictures.iter().any(|picture| picture.is_filtered);
        let mut fitting = pictures.iter().filter(|picture| picture.is_filtered == has_filtered);
        let found = fitting.next().filter(|_| fitting.next().is_none());
        if found.is_none() {
            self.found.ambiguous += 1;
        }
        found?.frames.first().copied()
    }

    /// Returns the index of a new frame that goes another way than `frame` from the next call on, at its encoder at the latest;
    /// `frame` itself if there are too many.
    fn another_way(&mut self, frame: usize) -> usize {
        if self.found.frames.len() >= MOST_FRAMES {
            return frame;
        }
        let way =
            TracedFrame { encode: None, write: None, present: None, ..self.found.frames[frame].clone() };
        self.found.frames.push(way);
        self.found.frames.len() - 1
    }

    /// Notes that a picture is given to an encoder.
    fn encode(&mut self, index: usize, span: &CallSpan) {
        let encoder = (span.process, span.object);
        let bytes = (span.process, span.data);
        if !self.is_video(span) {
            return;
        }
        let found = self.picture_for(encoder, bytes);
        let mut frames = Vec::new();
        if let Some((at, sink, picture)) = found {
            self.sinks.insert(encoder, sink);
            frames = picture.frames;
            if let Some(picture) = self.holders.get_mut(&bytes).and_then(|pictures| pictures.get_mut(at)) {
                if picture.encoders.len() < MOST_PICTURES {
                    picture.encoders.push(span.object);
                }
            }
        }
        for frame in &mut frames {
            if self.found.frames[*frame].encode.is_some() {
                *frame = self.another_way(*frame);
            }
            self.found.links.descent += 1;
            self.found.frames[*frame].encode = Some((index, None));
        }
        // Without a known frame, too: its packet is not another one's.
        let inside = self.encoding.entry(encoder).or_default();
        inside.push(Encoding { pts: span.pts, frames });
        if inside.len() > WAITING {
            inside.remove(0);
        }
    }

    /// Finds which of the pictures with the bytes at `bytes` an encoder gets: the first one that it has not got from its end of a graph.
    /// Returns the picture with its place, and the end. Graphs that change nothing return the same bytes at several ends.
    fn picture_for(
        &mut self,
        encoder: (i32, u64),
        bytes: (i32, u64),
    ) -> Option<(usize, Option<u64>, Picture)> {
        let pictures = self.holders.get(&bytes)?;
        let has_filtered = pictures.iter().any(|picture| picture.is_filtered);
        let sink = |picture: &Picture| {
            let (_, output) = self.found.frames[*picture.frames.first()?].filter?;
            Some(self.spans[output?].object)
        };
        let fitting: Vec<(usize, Option<u64>, &Picture)> = pictures
            .iter()
            .enumerate()
            .filter(|(_, picture)| picture.is_filtered == has_filtered)
            .map(|(at, picture)| (at, sink(picture), picture))
            .collect();
        let known = self.sinks.get(&encoder);
        let is_of_sink =
            |(_, sink, _): &&(usize, Option<u64>, &Picture)| known.is_none_or(|known| known == sink);
        let is_new =
            |(_, _, picture): &&(usize, Option<u64>, &Picture)| !picture.encoders.contains(&encoder.1);
        // Another encoder has begun with another end.
        let is_free = |(_, sink, _): &&(usize, Option<u64>, &Picture)| {
            known.is_some() || !self.sinks.iter().any(|(other, of)| other.0 == encoder.0 && of == sink)
        };
        let found = match fitting[..] {
            [only] => Some(only),
            _ => {
                let mut of_sink = fitting.iter().filter(is_of_sink);
                let free = of_sink.clone().filter(is_free).find(is_new);
                // The same picture again is the last one again.
                free.or(of_sink.clone().find(is_new)).or(of_sink.next_back()).copied()
            }
        };
        self.found.ambiguous += u64::from(found.is_none());
        found.map(|(at, sink, picture)| (at, sink, picture.clone()))
    }

    /// Takes the frames of the packet with time `pts` out of an encoder.
    fn encoded(&mut self, encoder: (i32, u64), pts: i64) -> Vec<usize> {
        let Some(inside) = self.encoding.get_mut(&encoder) else { return Vec::new() };
        let mut fitting = (0..inside.len()).filter(|at| inside[*at].pts == pts && pts != NO_PTS);
        let by_time = fitting.next().filter(|_| fitting.next().is_none());
        let found = match (by_time, inside.len()) {
            (Some(at), _) => {
                self.found.links.descent += 1;
                Some(at)
            }
            // An encoder may change all times.
            (None, 1) => {
                self.found.links.order += 1;
                Some(0)
            }
            _ => None,
        };
        match found {
            Some(at) => inside.remove(at).frames,
            None => {
                self.found.ambiguous += 1;
                Vec::new()
            }
        }
    }

    /// True for a known decoder, and while there are not too many: the frames of each are looked through for each new buffer.
    fn has_room_for(&self, decoder: (i32, u64)) -> bool {
        self.inside.len() < MOST_CODECS || self.inside.contains_key(&decoder)
    }

    /// True unless the codec is known to be none of video.
    fn is_video(&self, span: &CallSpan) -> bool {
        self.names.of(span.process, span.object).is_none_or(|named| named.media == Media::Video)
    }

    /// Returns the graph of a filter, or the filter itself: one with a graph that is not known is alone.
    fn graph(&self, span: &CallSpan) -> (i32, u64) {
        (span.process, self.names.graph(span.process, span.object).unwrap_or(span.object))
    }

    /// Notes that a thread has begun to decode a frame: by its time; if that is not enough, because the packet is just being
    /// sent by this thread, or because the threads of a decoder begin with the frames in the order of their packets.
    fn begin_to_decode(&mut self, index: usize, span: &CallSpan) {
        let Some(waiting) = self.waiting.get_mut(&(span.process, span.pts)) else { return };
        let frames = &self.found.frames;
        waiting.retain(|frame| frames[*frame].buffer.is_none() && frames[*frame].receive.is_none());
        let fitting = &waiting[..];
        // With two decoders that have a frame of this time, the thread could be either's.
        let Some(first) = fitting.first().map(|frame| frames[*frame].decoder) else { return };
        if fitting.iter().any(|frame| frames[*frame].decoder != first) {
            return;
        }
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
            Some(frame) => {
                let links = &mut self.found.links;
                *(if by_address.or(by_time).is_some() { &mut links.descent } else { &mut links.order }) += 1;
                self.inside.get_mut(&decoder)?.retain(|(_, other)| *other != frame);
            }
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
}

/// Returns the frame whose time `fits`, if there is exactly one.
fn unique(inside: &[(i64, usize)], fits: impl Fn(i64) -> bool) -> Option<usize> {
    let mut fitting = inside.iter().filter(|(pts, _)| fits(*pts));
    match (fitting.next(), fitting.next()) {
        (Some((_, frame)), None) => Some(*frame),
        _ => None,
    }
}
