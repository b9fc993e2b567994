// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of FFmpeg's libraries and of GStreamer, recorded by a library that is preloaded into the program and into all
//! that it starts. `crates/framepath-trace/preload` has its source.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use framepath_os::measure::call_ring::{CallRecord, CallRing};
use framepath_os::process::lent_library::LentLibrary;
use framepath_os::time::now_ns;

use crate::calls::{Call, CallEvent, NO_PTS, Phase};
use crate::names::Pad;

/// The library, compiled by the build script.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// Variable that has the path of the ring in which the library writes.
const RING_VARIABLE: &str = "FRAMEPATH_TRACE_RING";

/// Variable with the paths of libraries that the loader of programs loads first.
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Number of a record that has the first option of a filter, in place of a call.
const FILTER_OPTION: u64 = 252;

/// Number of a record that has the facts about an output of a filter, in place of a call.
const FILTER_OUTPUT: u64 = 253;

/// Number of a record that has a part of the facts about an object of FFmpeg, in place of a call.
const OBJECT: u64 = 254;

/// Number of a record that has a part of the facts about a pad, in place of a call.
const PAD: u64 = 255;

/// Number of words of a part.
const PART_WORDS: usize = 3;

/// Number of parts of an object: its kind, graph and index, then two parts of text.
const OBJECT_PARTS: usize = 3;

/// Number of parts of a pad: three addresses, then twice two parts of text.
const PAD_PARTS: usize = 5;

/// Maximum number of events of a recording, about an hour of video: 200 MB. Later ones are lost.
const MOST_EVENTS: u64 = 4 << 20;

/// Maximum number of objects and pads whose facts are not complete.
const MOST_INCOMPLETE: usize = 1024;

/// Library for a command, and the ring in which it writes.
#[derive(Debug)]
pub(crate) struct Preload {
    library: LentLibrary,
    ring: CallRing,
    parser: Parser,
    /// True if the programs have ended.
    is_over: bool,
}

/// Event of the library.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PreloadEvent {
    /// A moment of a call.
    Call(CallEvent),
    /// A codec (with its AVMediaType), a demuxer or a muxer (-1), before the end of the call that makes it ready.
    Object { process: i32, address: u64, name: String, kind: i64 },
    /// A filter, in the order of its graph.
    Filter { process: i32, address: u64, name: String, graph: u64, index: u64 },
    /// First option of a filter `setpts`, behind the filter. It ends with a zero if it is shorter.
    FilterOption { process: i32, address: u64, option: [u8; 8 * PART_WORDS] },
    /// Next output of a filter, behind the filter.
    FilterOutput { process: i32, address: u64, to: u64, words: [u64; 2] },
    /// A pad of GStreamer, before its first call.
    Pad { process: i32, address: u64, pad: Pad },
}

/// Translation of records, which any program may have written, to events.
#[derive(Debug)]
struct Parser {
    /// Time of the beginning, CLOCK_MONOTONIC nanoseconds. Earlier events are not true.
    start_ns: u64,
    /// Number of events so far.
    events: u64,
    /// Number of records that had no meaning, or were too many.
    lost: u64,
    /// Parts of incomplete facts, by the ids of process and thread, the address, and the number of the record.
    parts: HashMap<(u64, u64, u64), Vec<[u64; PART_WORDS]>>,
}

impl Preload {
    /// Makes the library and the ring. The recording begins at `start_ns`.
    ///
    /// # Errors
    /// As [`LentLibrary::new`] and [`CallRing::new`].
    pub(crate) fn new(start_ns: u64) -> io::Result<Preload> {
        let library = LentLibrary::new(LIBRARY)?;
        Ok(Preload { library, ring: CallRing::new()?, parser: Parser::new(start_ns), is_over: false })
    }

    /// Sets the environment of `command`: the library comes last in `LD_PRELOAD`, because some libraries insist on being the
    /// first (AddressSanitizer).
    pub(crate) fn add_to(&self, command: &mut Command) {
        let of_command = command.get_envs().find(|(name, _)| *name == PRELOAD_VARIABLE);
        let before = match of_command {
            Some((_, value)) => value.map(OsString::from),
            None => std::env::var_os(PRELOAD_VARIABLE),
        };
        let mut libraries = before.unwrap_or_default();
        if !libraries.as_bytes().is_empty() {
            libraries.push(":");
        }
        libraries.push(self.library.path());
        command.env(PRELOAD_VARIABLE, libraries).env(RING_VARIABLE, self.ring.path());
    }

    /// Calls `take` with the events since the last call, nearly in the order of their times.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(PreloadEvent)) {
        let Preload { ring, parser, is_over, .. } = self;
        let parse = |record| parser.parse(record, now_ns()).into_iter().for_each(&mut take);
        if *is_over { ring.drain_last(parse) } else { ring.drain(parse) }
    }

    /// Notes that the programs have ended: the next [`Preload::drain`] is the last one.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// Returns the number of events that are missing: the ring was full, or there were too many; a process was killed
    /// while it wrote, or has overwritten them.
    pub(crate) fn lost(&self) -> u64 {
        self.ring.lost().saturating_add(self.parser.lost)
    }
}

impl Parser {
    fn new(start_ns: u64) -> Parser {
        Parser { start_ns, events: 0, lost: 0, parts: HashMap::new() }
    }

    /// Returns the event of a record that was read at `now_ns`; `None` if there is none yet, or the record has no meaning.
    fn parse(&mut self, record: CallRecord, now_ns: u64) -> Option<PreloadEvent> {
        if self.events >= MOST_EVENTS {
            self.lost += 1;
            return None;
        }
        if matches!(record[2] & 0xff, FILTER_OPTION | FILTER_OUTPUT | OBJECT | PAD) {
            return self.parse_facts(record);
        }
        let event = event(record).filter(|event| (self.start_ns..=now_ns).contains(&event.at_ns));
        match event {
            Some(_) => self.events += 1,
            None => self.lost += 1,
        }
        event.map(PreloadEvent::Call)
    }

    /// Adds a part of facts. The last part makes an event. One thread writes all parts, in their order.
    fn parse_facts(&mut self, record: CallRecord) -> Option<PreloadEvent> {
        let [_, ids, kind, address, words @ ..] = record;
        let (what, number) = (kind & 0xff, kind >> 8);
        if matches!(what, FILTER_OPTION | FILTER_OUTPUT) {
            self.events += 1;
            let [to, first, second] = words;
            let process = ids as i32;
            if what == FILTER_OPTION {
                let mut option = [0; 8 * PART_WORDS];
                for (to, word) in option.chunks_exact_mut(8).zip(words) {
                    to.copy_from_slice(&word.to_ne_bytes());
                }
                return Some(PreloadEvent::FilterOption { process, address, option });
            }
            return Some(PreloadEvent::FilterOutput { process, address, to, words: [first, second] });
        }
        let key = (ids, address, what);
        if number == 0 {
            if self.parts.len() >= MOST_INCOMPLETE {
                self.lost += self.parts.len() as u64;
                self.parts.clear();
            }
            self.parts.insert(key, Vec::with_capacity(PAD_PARTS));
        }
        let parts = self.parts.get_mut(&key).filter(|parts| parts.len() as u64 == number);
        let Some(parts) = parts else {
            self.lost += 1;
            return None;
        };
        parts.push(words);
        if parts.len() < if what == PAD { PAD_PARTS } else { OBJECT_PARTS } {
            return None;
        }
        let parts = self.parts.remove(&key)?;
        self.events += 1;
        let (process, [first, second, third], name) = (ids as i32, parts[0], text(&parts[1..3]));
        Some(if what == PAD {
            let next_name = text(&parts[3..]);
            let pad = Pad { parent: first, name, peer: second, next: third, next_name };
            PreloadEvent::Pad { process, address, pad }
        } else if second == 0 {
            PreloadEvent::Object { process, address, name, kind: first as i64 }
        } else {
            PreloadEvent::Filter { process, address, name, graph: second, index: third }
        })
    }
}

/// Returns the text of parts, up to the first zero byte; empty if it is no name.
fn text(parts: &[[u64; PART_WORDS]]) -> String {
    let bytes = parts.iter().flatten().flat_map(|word| word.to_ne_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8(bytes)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))
        .unwrap_or_default()
}

/// Returns the event of a record; `None` if the record has no meaning. `preload/ring.c` has the format.
fn event(record: CallRecord) -> Option<CallEvent> {
    let [at_ns, ids, kind, object, data, pts, _] = record;
    let (process, thread) = (ids as i32, (ids >> 32) as i32);
    let call = match kind & 0xff {
        0 => Call::OpenCodec,
        1 => Call::ReadPacket,
        2 => Call::SendPacket,
        4 => Call::ReceiveFrame,
        5 => Call::FilterInput,
        6 => Call::FilterOutput,
        7 => Call::SendFrame,
        8 => Call::ReceivePacket,
        9 => Call::WritePacket,
        10 => Call::OpenInput,
        11 => Call::OpenOutput,
        12 => Call::OpenGraph,
        13 => Call::PadPush,
        14 => Call::ClockWait,
        15 => Call::CopyFrame,
        16 => Call::CopyBuffer,
        17 => Call::FinishFrame,
        18 => Call::PopBuffer,
        _ => return None,
    };
    let phase = match kind >> 8 & 0xff_ffff {
        0 => Phase::Enter,
        1 => Phase::Leave,
        _ => return None,
    };
    let result = (kind >> 32) as i32;
    // A frame in a device has a time but no bytes.
    let pts = if data == 0 { NO_PTS } else { pts as i64 };
    let is_possible = process > 0 && thread > 0 && (phase == Phase::Leave || result == 0);
    is_possible.then_some(CallEvent { at_ns, process, thread, call, phase, object, data, pts, result })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{CALL_SITES, CallSite};

    /// Record of process 7 and thread 8 at 50 ns.
    fn record(kind: u64) -> CallRecord {
        [50, 7 | 8 << 32, kind, 9, 10, -5i64 as u64, 0]
    }

    #[test]
    fn a_record_becomes_an_event_and_one_without_meaning_is_lost() {
        let mut parser = Parser::new(10);
        let (call, phase) = (Call::SendPacket, Phase::Enter);
        let wanted = CallEvent {
            at_ns: 50,
            process: 7,
            thread: 8,
            call,
            phase,
            object: 9,
            data: 10,
            pts: -5,
            result: 0,
        };
        assert_eq!(parser.parse(record(2), 100), Some(PreloadEvent::Call(wanted)));
        let received = record(4 | 1 << 8 | (-11i32 as u32 as u64) << 32);
        let wanted = CallEvent { call: Call::ReceiveFrame, phase: Phase::Leave, result: -11, ..wanted };
        assert_eq!(parser.parse(received, 100), Some(PreloadEvent::Call(wanted)));
        assert_eq!((parser.events, parser.lost), (2, 0));
        // GetBuffer, an unknown call, an unknown phase, a result at the beginning.
        for kind in [3, 200, 2 << 8, 1 << 24, 2 | 5 << 32] {
            assert_eq!(parser.parse(record(kind), 100), None);
        }
        // After the time of reading, and no process.
        assert_eq!(parser.parse(record(2), 49), None);
        assert_eq!(parser.parse([50, 8 << 32, 2, 9, 10, 0, 0], 100), None);
        // Before the recording.
        parser.start_ns = 51;
        assert_eq!(parser.parse(record(2), 100), None);
        assert_eq!((parser.events, parser.lost), (2, 8));
    }

    #[test]
    fn an_item_without_bytes_has_no_time() {
        let mut without = record(2);
        without[4] = 0;
        assert_eq!(event(without).map(|event| event.pts), Some(NO_PTS));
    }

    #[test]
    fn the_parts_of_facts_belong_together() {
        let mut parser = Parser::new(0);
        let part = |number: u64, words: [u64; 3]| {
            [50, 7 | 8 << 32, PAD | number << 8, 9, words[0], words[1], words[2]]
        };
        let text = |text: &str| {
            let mut bytes = [0; 24];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            std::array::from_fn(|n| u64::from_ne_bytes(bytes[8 * n..8 * n + 8].try_into().unwrap()))
        };
        let parts = [[1, 2, 3], text("a-name-of-24-bytes-xxxxx"), text("-and-more"), text("next"), text("")];
        let mut events = Vec::new();
        for (number, words) in (0..).zip(parts) {
            events.extend(parser.parse(part(number, words), 100));
        }
        let name = "a-name-of-24-bytes-xxxxx-and-more".to_owned();
        let pad = Pad { parent: 1, name, peer: 2, next: 3, next_name: "next".to_owned() };
        assert_eq!(events, [PreloadEvent::Pad { process: 7, address: 9, pad }]);
        assert_eq!((parser.lost, parser.parts.len()), (0, 0));
        let mut events = Vec::new();
        for (number, words) in [[0, 0, 0], text("h264"), text("")].into_iter().enumerate() {
            let [a, b, c] = words;
            events.extend(parser.parse([50, 7, OBJECT | (number as u64) << 8, 9, a, b, c], 100));
        }
        let name = "h264".to_owned();
        assert_eq!(events, [PreloadEvent::Object { process: 7, address: 9, name, kind: 0 }]);
        // A part without the ones before it, and one that comes twice.
        for number in [4, 0, 0, 1, 1, 7] {
            assert_eq!(parser.parse(part(number, [0; 3]), 100), None);
        }
        assert_eq!(parser.lost, 3);
        // Pads that are never complete.
        for address in 0..5000 {
            parser.parse([50, 7 | 8 << 32, PAD, address, 0, 0, 0], 100);
        }
        assert!(parser.parts.len() <= MOST_INCOMPLETE);
    }

    #[test]
    fn random_records_do_no_harm() {
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> (random >> 58)
        };
        let mut parser = Parser::new(0);
        let mut events = 0;
        for _ in 0..200_000 {
            let record = std::array::from_fn(|_| next());
            events += u64::from(parser.parse(record, u64::MAX).is_some());
            let pad = std::array::from_fn(|n| {
                if n == 2 { (OBJECT + next() % 2) | (next() % 6) << 8 } else { next() % 3 }
            });
            events += u64::from(parser.parse(pad, u64::MAX).is_some());
        }
        assert!(
            events > 0 && events == parser.events && parser.lost > 0 && parser.parts.len() <= MOST_INCOMPLETE
        );
    }

    #[test]
    fn the_library_defines_all_observed_functions_but_one_and_those_that_show_pictures() {
        let defines = |name: &str| {
            let name = [b"\0", name.as_bytes(), b"\0"].concat();
            LIBRARY.windows(name.len()).any(|window| window == name)
        };
        let is_shown = |site: &&CallSite| matches!(site.call.outer(), Call::Upload | Call::Present);
        let (shown, others): (Vec<&CallSite>, Vec<&CallSite>) = CALL_SITES.iter().partition(is_shown);
        assert!(!shown.is_empty() && !shown.iter().any(|site| defines(site.symbol)));
        let missing: Vec<&str> =
            others.iter().map(|site| site.symbol).filter(|name| !defines(name)).collect();
        assert_eq!(missing, ["avcodec_default_get_buffer2"]);
    }

    #[test]
    fn libraries_of_the_user_come_before_the_own_one() {
        let preload = Preload::new(0).unwrap();
        let of = |command: &Command, wanted: &str| {
            let value = command.get_envs().find(|(name, _)| *name == wanted).and_then(|(_, value)| value);
            value.unwrap_or_default().to_str().unwrap().to_owned()
        };
        let mut command = Command::new("true");
        command.env(PRELOAD_VARIABLE, "libfirst.so libsecond.so");
        preload.add_to(&mut command);
        let path = preload.library.path();
        assert_eq!(of(&command, PRELOAD_VARIABLE), format!("libfirst.so libsecond.so:{}", path.display()));
        assert_eq!(of(&command, RING_VARIABLE), preload.ring.path().to_str().unwrap());
        let mut command = Command::new("true");
        command.env(PRELOAD_VARIABLE, "");
        preload.add_to(&mut command);
        assert_eq!(of(&command, PRELOAD_VARIABLE), path.to_str().unwrap());
    }
}
