// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of a traced program's objects: which codec, demuxer, muxer or filters.
//!
//! The BPF programs read the names when a call has made the object ready, or uses it first; at level preload, the library
//! in the program gives them. This process reads no memory of the program, which could keep it from ever going on. What is no
//! name of this kind is not used.

use std::collections::HashMap;
use std::fs;

use crate::time_base::TimeBase;

/// Longest name, bytes.
const LONGEST: usize = 40;

/// Greatest number of filters in a graph that is looked at, and of outputs of a filter.
pub(crate) const FILTERS: usize = 64;
pub(crate) const FILTER_OUTPUTS: usize = 4;

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

/// Filter of FFmpeg, in a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GraphFilter {
    /// Address of its graph, and which of the graphs at this address it is.
    pub(crate) graph: u64,
    turn: u32,
    pub(crate) name: String,
    /// Its first option, if it is known: the expression of `setpts`.
    pub(crate) option: String,
    /// Links from its outputs to other filters.
    pub(crate) outputs: Vec<FilterLink>,
}

/// Link between two filters: the address of the other one, and the unit of the times of its frames, `None` if it is not known.
pub(crate) type FilterLink = (u64, Option<TimeBase>);

/// Names of objects, by the process and the object's address.
#[derive(Debug, Default)]
pub(crate) struct ObjectNames {
    objects: HashMap<(i32, u64), Named>,
    /// Pads of GStreamer, as they were linked when the first buffer passed them.
    pads: HashMap<(i32, u64), Pad>,
    /// Filters, by the process and the filter's address.
    filters: HashMap<(i32, u64), GraphFilter>,
    /// Numbers of graphs that have been at each address.
    turns: HashMap<(i32, u64), u32>,
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
        if let Some(name) = name_of(name) {
            let media = Media::of(media.into());
            self.objects.insert((process, object), Named { name, media });
        }
    }

    /// True if there are so many objects that no further one gets a name: a hostile program can make any number.
    fn is_full(&self) -> bool {
        self.objects.len() + self.pads.len() + self.filters.len() > MOST_OBJECTS
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

    /// Sets the name of a known pad's parent, or of the element behind it. The name ends with a zero if it is shorter.
    pub(crate) fn name_pad(&mut self, process: i32, address: u64, is_next: bool, name: &[u8]) {
        if let Some(pad) = self.pads.get_mut(&(process, address)) {
            let to = if is_next { &mut pad.next_name } else { &mut pad.name };
            *to = name_of(name).unwrap_or_default();
        }
    }

    /// Adds a pad, or replaces what was known of it.
    pub(crate) fn add_pad(&mut self, process: i32, address: u64, pad: Pad) {
        if self.is_full() {
            return;
        }
        self.pads.insert((process, address), pad);
    }

    /// Adds a codec, demuxer or muxer. `kind` is the number of a codec's AVMediaType; another number for what is no codec.
    pub(crate) fn add_object(&mut self, process: i32, address: u64, name: String, kind: i64) {
        if self.is_full() {
            return;
        }
        self.objects.insert((process, address), Named { name, media: Media::of(kind) });
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
        let turn = self.turns.entry((process, graph)).or_default();
        *turn += u32::from(index == 0);
        let filter = GraphFilter { graph, turn: *turn, name: name.to_owned(), ..GraphFilter::default() };
        self.filters.insert((process, address), filter);
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

    /// Sets the first option of a known filter. It ends with a zero if it is shorter.
    pub(crate) fn set_filter_option(&mut self, process: i32, address: u64, option: &[u8]) {
        if let Some(filter) = self.filters.get_mut(&(process, address)) {
            // One that is longer is not whole.
            let is_whole = option.contains(&0) && !option.starts_with(&[0]);
            filter.option = name_of(option).filter(|_| is_whole).unwrap_or_default();
        }
    }

    /// Adds the next output of a known filter, which leads to the filter `to`. `words` are those of the AVFilterLink at which the
    /// time base is, one for each layout of the struct.
    pub(crate) fn add_filter_output(&mut self, process: i32, address: u64, to: u64, words: [u64; 2]) {
        if let Some(filter) = self.filters.get_mut(&(process, address)) {
            if filter.outputs.len() < FILTER_OUTPUTS {
                filter.outputs.push((to, words.into_iter().find_map(TimeBase::of_word)));
            }
        }
    }

    /// Returns all filters, with the process and the address of each, but for those of graphs whose address another one has now.
    pub(crate) fn filters(&self) -> impl Iterator<Item = ((i32, u64), &GraphFilter)> {
        let is_last = |((process, _), filter): &(&(i32, u64), &GraphFilter)| {
            self.turns[&(*process, filter.graph)] == filter.turn
        };
        self.filters.iter().filter(is_last).map(|(key, filter)| (*key, filter))
    }

    pub(crate) fn of(&self, process: i32, object: u64) -> Option<&Named> {
        self.objects.get(&(process, object))
    }

    pub(crate) fn pad(&self, process: i32, pad: u64) -> Option<&Pad> {
        self.pads.get(&(process, pad))
    }

    /// Returns the graph of a filter; `None` if it is not known.
    pub(crate) fn graph(&self, process: i32, filter: u64) -> Option<u64> {
        self.filters.get(&(process, filter)).map(|filter| filter.graph)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_name_of_its_node() {
        let facts = "MAJOR=81\nMINOR=3\nDEVNAME=video2\n";
        assert_eq!(device_name(facts).as_deref(), Some("video2"));
        assert_eq!(device_name("MAJOR=81\n"), None);
        let mut names = ObjectNames::default();
        names.see_device(u32::MAX);
        assert_eq!(names.device(u32::MAX), None);
    }
}
