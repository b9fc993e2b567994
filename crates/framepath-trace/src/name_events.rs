// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about objects in the events of probes and of the preloaded library.

use crate::calls::CallEvent;
use crate::names::{ObjectNames, Pad};
use crate::preload::PreloadEvent;
use crate::probe_event::ProbeEvent;

impl ObjectNames {
    /// Takes the facts of an event of the probes; another event has no effect.
    pub(crate) fn take_names(&mut self, event: ProbeEvent) {
        match event {
            ProbeEvent::Named { process, object, media, name } => self.set(process, object, media, &name),
            ProbeEvent::Filter { process, graph, filter, place, name } => {
                self.set_filter(process, filter, &name, graph, place);
            }
            ProbeEvent::FilterOption { process, filter, option } => {
                self.set_filter_option(process, filter, &option);
            }
            ProbeEvent::FilterOutput { process, filter, to, words } => {
                self.add_filter_output(process, filter, to, words);
            }
            // A pad that cannot be read has no facts.
            ProbeEvent::Pad { process, pad, parent, peer, next } if parent != 0 || peer != 0 => {
                self.add_pad(process, pad, Pad { parent, peer, next, ..Pad::default() });
            }
            ProbeEvent::PadName { process, pad, is_next, name } => {
                self.name_pad(process, pad, is_next, &name);
            }
            _ => {}
        }
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
            PreloadEvent::FilterOption { process, address, option } => {
                self.set_filter_option(process, address, &option);
            }
            PreloadEvent::FilterOutput { process, address, to, words } => {
                self.add_filter_output(process, address, to, words);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{Call, NO_PTS, Phase};

    /// A program can write the number of any process into the memory that it shares with the library.
    #[test]
    fn a_call_from_the_library_shows_no_memory_and_its_facts_show_names() {
        let process = std::process::id() as i32;
        let mut names = ObjectNames::default();
        let codec = [c"secret".as_ptr() as u64, 0];
        let context = [0, 0, codec.as_ptr() as u64];
        let object = context.as_ptr() as u64;
        for (call, phase) in [(Call::OpenCodec, Phase::Leave), (Call::SendPacket, Phase::Enter)] {
            let (data, pts) = (0, NO_PTS);
            let event = CallEvent { at_ns: 1, process, thread: 1, call, phase, object, data, pts, result: 0 };
            assert_eq!(names.take_facts(PreloadEvent::Call(event)), Some(event));
        }
        assert_eq!(names.of(process, object), None);
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
}
