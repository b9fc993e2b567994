// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of a traced program's objects: which codec, demuxer, muxer or filters.
//!
//! The names are read from the program's memory when the object has been made ready. Source of the offsets: the public
//! headers of FFmpeg (the fields are equal in versions 4 to 8) and of GStreamer 1.0. What is no name of this kind is not
//! used.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::calls::{Call, CallEvent, Phase};
use crate::preload::PreloadEvent;

/// Longest name, bytes.
const LONGEST: usize = 40;

/// Greatest number of filters in a graph that is looked at.
pub(crate) const FILTERS: usize = 64;

/// Most objects, pads and graphs that are remembered.
const MOST_OBJECTS: usize = 262_144;

/// Major number of video devices.
const VIDEO_MAJOR: u32 = 81;

/// Filters of every graph that say nothing: its ends, and changes of format.
const PLAIN: [&str; 8] =
    ["buffer", "buffersink", "abuffer", "abuffersink", "format", "aformat", "null", "anull"];

/// Kind of a codec's stream (enum AVMediaType).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    Video,
    /// Audio, subtitles or data.
    Other,
}

impl Media {
    /// Returns the kind with this number.
    fn of(number: i64) -> Media {
        if number == 0 { Media::Video } else { Media::Other }
    }
}

/// Facts about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Name as FFmpeg has it: `h264`, `mov,mp4,m4a`, `scale,eq`.
    pub(crate) name: String,
    /// Kind of a codec's stream; `Other` for what is no codec.
    pub(crate) media: Media,
}

/// Pad of GStreamer. Addresses are 0 where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pad {
    /// Element of the pad; for the inner pad of a ghost pad, the ghost pad.
    pub(crate) parent: u64,
    /// Name of the parent.
    pub(crate) name: String,
    /// Pad to which this one is linked.
    pub(crate) peer: u64,
    /// Parent of the peer, and its name.
    pub(crate) next: u64,
    pub(crate) next_name: String,
}

/// Names of objects, by the process and the object's address.
#[derive(Debug, Default)]
pub(crate) struct ObjectNames {
    objects: HashMap<(i32, u64), Named>,
    /// Pads of GStreamer, as they were linked when the first buffer passed them.
    pads: HashMap<(i32, u64), Pad>,
    /// Objects whose names were looked for.
    seen: HashSet<(i32, u64)>,
    /// Graph of each filter, by the process and the filter's address.
    graphs: HashMap<(i32, u64), u64>,
    /// Objects whose facts a preloaded library has given: their memory is not read.
    given: HashSet<(i32, u64)>,
    /// Names of video devices, by their minor numbers.
    devices: HashMap<u32, Option<String>>,
}

impl ObjectNames {
    /// Sets the name of an object that a call has made ready. `media` is the kind of a codec's stream; `name` ends with a
    /// zero if it is shorter.
    pub(crate) fn set(&mut self, process: i32, object: u64, media: u32, name: &[u8]) {
        if self.is_full() {
            return;
        }
        self.seen.insert((process, object));
        if let Some(name) = name_of(name) {
            let media = Media::of(media.into());
            self.objects.insert((process, object), Named { name, media });
        }
    }

    /// True if there are so many objects that no further one gets a name: a hostile program can make any number.
    fn is_full(&self) -> bool {
        self.objects.len() + self.pads.len() + self.seen.len() + self.graphs.len() > MOST_OBJECTS
    }

    /// Reads the name of the object of `event` when a call has made it ready, or when the object is seen for the first
    /// time. Without rights for the process's memory, or if it has ended, the object stays without a name.
    pub(crate) fn see(&mut self, event: &CallEvent) {
        let key = (event.process, event.object);
        let is_shown = matches!(event.call.outer(), Call::Upload | Call::Present);
        let is_inside = matches!(event.call, Call::FinishFrame | Call::PopBuffer);
        if is_shown || is_inside || !event.call.has_return() || self.given.contains(&key) || self.is_full() {
            return;
        }
        let is_ready = event.call.is_opening() && event.phase == Phase::Leave;
        let is_use = event.phase == Phase::Enter && !event.call.is_opening();
        let is_first_use = is_use && !is_ready && self.seen.insert(key);
        if !is_ready && !is_first_use {
            return;
        }
        let Ok(memory) = File::open(format!("/proc/{}/mem", event.process)) else { return };
        let memory = Memory(memory);
        let named = match event.call {
            // A program that runs already may be seen first when it takes something out.
            Call::OpenCodec
            | Call::SendPacket
            | Call::SendFrame
            | Call::ReceiveFrame
            | Call::ReceivePacket => memory.codec(event.object),
            // The AVInputFormat and the AVOutputFormat of an AVFormatContext; both begin with their names.
            Call::OpenInput | Call::ReadPacket => memory.name_at(event.object.wrapping_add(8)).map(other),
            Call::OpenOutput | Call::WritePacket => memory.name_at(event.object.wrapping_add(16)).map(other),
            Call::OpenGraph => return self.read_graph(event.process, event.object, &memory),
            // The AVFilterGraph of an AVFilterContext.
            Call::FilterInput | Call::FilterOutput => {
                let graph = memory.word(event.object.wrapping_add(80)).unwrap_or(0);
                return self.read_graph(event.process, graph, &memory);
            }
            Call::PadPush => {
                if let Some(pad) = memory.pad(event.object) {
                    self.pads.insert(key, pad);
                }
                None
            }
            // The context may be one of a decoder's thread.
            Call::GetBuffer
            | Call::ClockWait
            | Call::Upload
            | Call::Present
            | Call::Attach
            | Call::Commit
            | Call::CopyFrame
            | Call::CopyBuffer
            | Call::FinishFrame
            | Call::PopBuffer
            | Call::Mark => None,
        };
        if let Some(named) = named {
            self.objects.insert(key, named);
            self.seen.insert(key);
        }
    }

    /// Reads the name of the video device with this minor number, if it was not looked for before.
    pub(crate) fn see_device(&mut self, minor: u32) {
        self.devices.entry(minor).or_insert_with(|| {
            let facts = fs::read_to_string(format!("/sys/dev/char/{VIDEO_MAJOR}:{minor}/uevent")).ok()?;
            device_name(&facts)
        });
    }

    /// Returns the name of a video device, `video0`; `None` if it is not known.
    pub(crate) fn device(&self, minor: u32) -> Option<&str> {
        self.devices.get(&minor)?.as_deref()
    }

    /// Takes the facts of an event of the preloaded library; returns the call if it is one. No memory is read for a call: its
    /// process is a number that the traced program has written, and can be that of another program.
    pub(crate) fn take_facts(&mut self, event: PreloadEvent) -> Option<CallEvent> {
        match event {
            PreloadEvent::Call(event) => return Some(event),
            PreloadEvent::Pad { process, address, pad } => self.add_pad(process, address, pad),
            PreloadEvent::Object { process, address, name, kind } => {
                self.add_object(process, address, name, kind);
            }
            PreloadEvent::Filter { process, address, name, graph, index } => {
                self.add_filter(process, address, &name, graph, index);
            }
        }
        None
    }

    /// Adds a pad, or replaces what was known of it.
    pub(crate) fn add_pad(&mut self, process: i32, address: u64, pad: Pad) {
        if self.is_full() {
            return;
        }
        self.pads.insert((process, address), pad);
        self.given.insert((process, address));
    }

    /// Adds a codec, demuxer or muxer. `kind` is the number of a codec's AVMediaType; another number for what is no codec.
    pub(crate) fn add_object(&mut self, process: i32, address: u64, name: String, kind: i64) {
        if self.is_full() {
            return;
        }
        self.objects.insert((process, address), Named { name, media: Media::of(kind) });
        self.given.insert((process, address));
    }

    /// Adds the filter at place `index` of the graph at `graph`. Its name ends with a zero if it is shorter.
    pub(crate) fn set_filter(&mut self, process: i32, address: u64, name: &[u8], graph: u64, index: u64) {
        if let Some(name) = name_of(name) {
            self.add_filter(process, address, &name, graph, index);
        }
    }

    /// Adds the filter at place `index` of the graph at `graph`. The filters of a graph come in their order.
    pub(crate) fn add_filter(&mut self, process: i32, address: u64, name: &str, graph: u64, index: u64) {
        if self.is_full() {
            return;
        }
        self.graphs.insert((process, address), graph);
        self.given.extend([(process, address), (process, graph)]);
        let named = self.objects.entry((process, graph)).or_insert_with(|| other(String::new()));
        if index == 0 {
            named.name.clear();
        }
        if !PLAIN.contains(&name) && named.name.len() < FILTERS * LONGEST {
            let comma = if named.name.is_empty() { "" } else { "," };
            named.name.push_str(comma);
            named.name.push_str(name);
        }
    }

    fn read_graph(&mut self, process: i32, graph: u64, memory: &Memory) {
        let Some(filters) = memory.filters(graph) else { return };
        for filter in &filters {
            self.graphs.insert((process, filter.0), graph);
            self.seen.insert((process, filter.0));
        }
        let mut names: Vec<&str> = filters.iter().map(|(_, name)| name.as_str()).collect();
        names.retain(|name| !PLAIN.contains(name));
        self.objects.insert((process, graph), other(names.join(",")));
    }

    pub(crate) fn of(&self, process: i32, object: u64) -> Option<&Named> {
        self.objects.get(&(process, object))
    }

    pub(crate) fn pad(&self, process: i32, pad: u64) -> Option<&Pad> {
        self.pads.get(&(process, pad))
    }

    /// Returns the graph of a filter; `None` if it is not known.
    pub(crate) fn graph(&self, process: i32, filter: u64) -> Option<u64> {
        self.graphs.get(&(process, filter)).copied()
    }
}

/// Returns the name in the kernel's facts about a device.
fn device_name(facts: &str) -> Option<String> {
    let name = facts.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    name_of(name.as_bytes())
}

fn other(name: String) -> Named {
    Named { name, media: Media::Other }
}

/// Returns the text up to the first zero, if it is a name of printable characters.
fn name_of(bytes: &[u8]) -> Option<String> {
    let text = bytes.split(|byte| *byte == 0).next()?;
    let is_name = !text.is_empty() && text.iter().all(u8::is_ascii_graphic);
    is_name.then(|| String::from_utf8_lossy(text).into_owned())
}

/// Memory of a process.
struct Memory(File);

impl Memory {
    fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }

    /// Reads a name of printable characters.
    fn text(&self, at: u64) -> Option<String> {
        let mut bytes = [0; LONGEST];
        // The text may lie just before the end of a mapping.
        let read =
            (1..=LONGEST).rev().find(|count| self.0.read_exact_at(&mut bytes[..*count], at).is_ok())?;
        name_of(&bytes[..read])
    }

    /// Reads the name with which the struct begins whose address is at `at`.
    fn name_at(&self, at: u64) -> Option<String> {
        self.text(self.word(self.word(at)?)?)
    }

    /// Reads the codec of an AVCodecContext: its kind at 12, the AVCodec at 16.
    fn codec(&self, context: u64) -> Option<Named> {
        let kind = (self.word(context.wrapping_add(8))? >> 32) as u32;
        Some(Named { name: self.name_at(context.wrapping_add(16))?, media: Media::of(kind.into()) })
    }

    /// Reads a GstPad: a GstObject has its name at 32 and its parent at 40, a pad has its peer at 264.
    fn pad(&self, pad: u64) -> Option<Pad> {
        let parent = self.word(pad.wrapping_add(40))?;
        let peer = self.word(pad.wrapping_add(264)).unwrap_or(0);
        let next = self.word(peer.wrapping_add(40)).unwrap_or(0);
        let name = |object: u64| {
            self.word(object.wrapping_add(32)).and_then(|text| self.text(text)).unwrap_or_default()
        };
        Some(Pad { parent, name: name(parent), peer, next, next_name: name(next) })
    }

    /// Reads the filters of an AVFilterGraph, their addresses and names: the array is at 8 and its length at 16; an
    /// AVFilterContext has the AVFilter at 8.
    fn filters(&self, graph: u64) -> Option<Vec<(u64, String)>> {
        let (array, count) =
            (self.word(graph.wrapping_add(8))?, self.word(graph.wrapping_add(16))? as u32 as usize);
        (0..count.min(FILTERS) as u64)
            .map(|index| {
                let filter = self.word(array.wrapping_add(8 * index))?;
                Some((filter, self.name_at(filter.wrapping_add(8))?))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::NO_PTS;

    /// Reads the object at `object` of this process.
    fn read(names: &mut ObjectNames, call: Call, object: u64) {
        let process = std::process::id() as i32;
        let (phase, data, pts) = (Phase::Leave, 0, NO_PTS);
        names.see(&CallEvent { at_ns: 1, process, thread: 1, call, phase, object, data, pts, result: 0 });
    }

    fn address<T>(value: &T) -> u64 {
        std::ptr::from_ref(value) as u64
    }

    #[test]
    fn a_device_has_the_name_of_its_node() {
        let facts = "MAJOR=81\nMINOR=3\nDEVNAME=video2\n";
        assert_eq!(device_name(facts).as_deref(), Some("video2"));
        assert_eq!(device_name("MAJOR=81\n"), None);
        let mut names = ObjectNames::default();
        names.see_device(u32::MAX);
        assert_eq!(names.device(u32::MAX), None);
    }

    /// A program can write the number of any process into the memory that it shares with the library.
    #[test]
    fn a_call_from_the_library_shows_no_memory_and_its_facts_show_names() {
        let process = std::process::id() as i32;
        let mut names = ObjectNames::default();
        let codec = [c"secret".as_ptr() as u64, 0];
        let context = [0, 0, address(&codec)];
        let object = address(&context);
        for (call, phase) in [(Call::OpenCodec, Phase::Leave), (Call::SendPacket, Phase::Enter)] {
            let (data, pts) = (0, NO_PTS);
            let event = CallEvent { at_ns: 1, process, thread: 1, call, phase, object, data, pts, result: 0 };
            assert_eq!(names.take_facts(PreloadEvent::Call(event)), Some(event));
        }
        assert_eq!((names.of(process, object), names.seen.len()), (None, 0));
        let (name, kind) = ("h264".to_owned(), 0);
        assert_eq!(names.take_facts(PreloadEvent::Object { process, address: object, name, kind }), None);
        assert_eq!(names.of(process, object).map(|named| named.name.as_str()), Some("h264"));
        let filter =
            PreloadEvent::Filter { process, address: 2, name: "scale".to_owned(), graph: 3, index: 0 };
        assert_eq!(names.take_facts(filter), None);
        assert_eq!(names.of(process, 3).map(|named| named.name.as_str()), Some("scale"));
        let pad = Pad { parent: 5, ..Pad::default() };
        assert_eq!(names.take_facts(PreloadEvent::Pad { process, address: 4, pad: pad.clone() }), None);
        assert_eq!(names.pad(process, 4), Some(&pad));
    }

    #[test]
    fn names_are_found_where_ffmpeg_has_them_and_nothing_else_is_a_name() {
        let process = std::process::id() as i32;
        let mut names = ObjectNames::default();
        let codec = [c"h264".as_ptr() as u64, 0];
        let context = [0, 0, address(&codec)];
        read(&mut names, Call::OpenCodec, address(&context));
        let wanted = Named { name: "h264".to_owned(), media: Media::Video };
        assert_eq!(names.of(process, address(&context)), Some(&wanted));

        // A decoder of a running program whose first call takes a frame out.
        let running = [0, 0, address(&codec)];
        let (call, phase, data, pts) = (Call::ReceiveFrame, Phase::Enter, 0, NO_PTS);
        let object = address(&running);
        names.see(&CallEvent { at_ns: 1, process, thread: 1, call, phase, object, data, pts, result: 0 });
        assert_eq!(names.of(process, object), Some(&wanted));

        let kinds = [c"buffer", c"scale", c"eq"].map(|name| [name.as_ptr() as u64]);
        let filters: Vec<[u64; 2]> = kinds.iter().map(|kind| [0, address(kind)]).collect();
        let array: Vec<u64> = filters.iter().map(address).collect();
        let graph = [0, array.as_ptr() as u64, array.len() as u64];
        read(&mut names, Call::OpenGraph, address(&graph));
        assert_eq!(names.of(process, address(&graph)).unwrap().name, "scale,eq");
        assert_eq!(names.graph(process, array[1]), Some(address(&graph)));

        // An address of nothing, and bytes that are no text.
        let bad_codec = [c"\x01\x02".as_ptr() as u64];
        for context in [[0, 0, 8], [0, 0, address(&bad_codec)]] {
            read(&mut names, Call::OpenCodec, address(&context));
            assert_eq!(names.of(process, address(&context)), None);
        }
    }
}
