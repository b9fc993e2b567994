// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of FFmpeg's libraries and of GStreamer, recorded by a library that is preloaded into the program and into all
//! that it starts. `crates/framepath-trace/preload` has its source.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use framepath_os::measure::call_ring::{CallRecord, CallRing};
use framepath_os::process::lent_file::LentFile;
use framepath_os::time::now_ns;

use crate::calls::{Call, CallEvent, NO_PTS, Phase};

/// The library, compiled by the build script.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// Variable that has the path of the ring in which the library writes.
const RING_VARIABLE: &str = "FRAMEPATH_TRACE_RING";

/// Variable with the paths of libraries that the loader of programs loads first.
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Number of a record that has a part of a pad's name, in place of a call.
const PAD_NAME: u64 = 255;

/// Size of a part of a name, bytes.
const PART_BYTES: usize = 24;

/// Maximum size of a name, bytes.
const NAME_BYTES: usize = 72;

/// Maximum number of events of a recording, about an hour of video: 200 MB. Later ones are lost.
const MOST_EVENTS: u64 = 4 << 20;

/// Maximum number of pads whose names are kept.
const MOST_PADS: usize = 16_384;

/// Library for a command, and the ring in which it writes.
#[derive(Debug)]
pub(crate) struct Preload {
    library: LentFile,
    ring: CallRing,
    parser: Parser,
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
    /// Name of each pad, by the process and the pad's address.
    pads: BTreeMap<(i32, u64), Vec<u8>>,
}

impl Preload {
    /// Makes the library and the ring. The recording begins at `start_ns`.
    ///
    /// # Errors
    /// As [`LentFile::with_content`] and [`CallRing::new`].
    pub(crate) fn new(start_ns: u64) -> io::Result<Preload> {
        let library = LentFile::with_content("framepath-preload", LIBRARY)?;
        Ok(Preload { library, ring: CallRing::new()?, parser: Parser::new(start_ns) })
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
    pub(crate) fn drain(&mut self, mut take: impl FnMut(CallEvent)) {
        let Preload { ring, parser, .. } = self;
        ring.drain(|record| parser.parse(record, now_ns()).into_iter().for_each(&mut take));
    }

    /// Does the same as [`Preload::drain`] when the programs have ended.
    pub(crate) fn drain_last(&mut self, mut take: impl FnMut(CallEvent)) {
        let Preload { ring, parser, .. } = self;
        ring.drain_last(|record| parser.parse(record, now_ns()).into_iter().for_each(&mut take));
    }

    /// Returns the number of events that are missing: the ring was full, or there were too many; a process was killed
    /// while it wrote, or has overwritten them.
    pub(crate) fn lost(&self) -> u64 {
        self.ring.lost().saturating_add(self.parser.lost)
    }

    /// Takes the names of the pads, `element:pad`, by the process and the pad's address.
    pub(crate) fn take_pads(&mut self) -> BTreeMap<(i32, u64), String> {
        let pads = std::mem::take(&mut self.parser.pads).into_iter();
        pads.map(|(pad, name)| (pad, String::from_utf8_lossy(&name).into_owned())).collect()
    }
}

impl Parser {
    fn new(start_ns: u64) -> Parser {
        Parser { start_ns, events: 0, lost: 0, pads: BTreeMap::new() }
    }

    /// Returns the event of a record that was read at `now_ns`; `None` for a name, and if the record has no meaning.
    fn parse(&mut self, record: CallRecord, now_ns: u64) -> Option<CallEvent> {
        if record[2] & 0xff == PAD_NAME {
            self.add_name(record);
            return None;
        }
        let is_possible = |event: &CallEvent| (self.start_ns..=now_ns).contains(&event.at_ns);
        let event = event(record).filter(is_possible).filter(|_| self.events < MOST_EVENTS);
        match event {
            Some(_) => self.events += 1,
            None => self.lost += 1,
        }
        event
    }

    /// Adds a part of a pad's name. The first part replaces an earlier name.
    fn add_name(&mut self, record: CallRecord) {
        let [_, ids, kind, pad, words @ ..] = record;
        let (key, part) = ((ids as i32, pad), kind >> 8);
        let bytes: [u8; PART_BYTES] = std::array::from_fn(|n| words[n / 8].to_ne_bytes()[n % 8]);
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        if part == 0 && (self.pads.len() < MOST_PADS || self.pads.contains_key(&key)) {
            self.pads.insert(key, text.to_vec());
        } else if let Some(name) =
            self.pads.get_mut(&key).filter(|name| name.len() + text.len() <= NAME_BYTES)
        {
            name.extend_from_slice(text);
        } else {
            self.lost += 1;
        }
    }
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
        14 => Call::PadPull,
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
    use crate::calls::CALL_SITES;

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
        assert_eq!(parser.parse(record(2), 100), Some(wanted));
        let received = record(4 | 1 << 8 | (-11i32 as u32 as u64) << 32);
        let wanted = CallEvent { call: Call::ReceiveFrame, phase: Phase::Leave, result: -11, ..wanted };
        assert_eq!(parser.parse(received, 100), Some(wanted));
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
    fn the_parts_of_a_name_belong_together() {
        let mut parser = Parser::new(0);
        let name = |part: u64, text: &[u8; PART_BYTES]| {
            let word = |n: usize| u64::from_ne_bytes(text[8 * n..8 * n + 8].try_into().unwrap());
            [50, 7 | 8 << 32, PAD_NAME | part << 8, 9, word(0), word(1), word(2)]
        };
        for _ in 0..2 {
            parser.parse(name(0, b"videoconvertscale0:source"[..24].try_into().unwrap()), 100);
            parser.parse(name(1, b"_1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), 100);
        }
        assert_eq!(parser.pads[&(7, 9)], b"videoconvertscale0:sourc_1");
        assert_eq!(parser.lost, 0);
        // Parts without end.
        for _ in 0..10 {
            parser.parse(name(1, &[b'x'; 24]), 100);
        }
        assert!(parser.pads[&(7, 9)].len() <= NAME_BYTES && parser.lost > 0);
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
            let pad = std::array::from_fn(|n| if n == 2 { PAD_NAME } else { next() });
            parser.parse(pad, u64::MAX);
        }
        assert!(events > 0 && events == parser.events && parser.lost > 0 && parser.pads.len() <= MOST_PADS);
    }

    #[test]
    fn the_library_defines_all_observed_functions_but_one() {
        let defines = |name: &str| {
            let name = [b"\0", name.as_bytes(), b"\0"].concat();
            LIBRARY.windows(name.len()).any(|window| window == name)
        };
        let missing: Vec<&str> =
            CALL_SITES.iter().map(|site| site.symbol).filter(|name| !defines(name)).collect();
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
