// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of FFmpeg's libraries, recorded by a library that is preloaded into the program and into all that it
//! starts. `crates/framepath-trace/preload` has its source.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use framepath_os::measure::call_ring::{CallRecord, CallRing};
use framepath_os::process::lent_file::LentFile;
use framepath_os::time::now_ns;

use crate::calls::{Call, CallEvent, Phase};

/// The library, compiled by the build script.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// Variable that has the path of the ring in which the library writes.
const RING_VARIABLE: &str = "FRAMEPATH_TRACE_RING";

/// Variable with the paths of libraries that the loader of programs loads first.
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Maximum number of events of a recording, about an hour of video: 200 MB. Later ones are lost.
const MOST_EVENTS: usize = 4 << 20;

/// Calls of a recorded command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallLog {
    /// Events in the order of their times.
    pub events: Vec<CallEvent>,
    /// Number of events that are missing: the ring or the log was full, a process was killed while it wrote, or the
    /// program has overwritten them.
    pub lost: u64,
}

/// Library for a command, and the ring in which it writes.
#[derive(Debug)]
pub(crate) struct Preload {
    library: LentFile,
    ring: CallRing,
    log: CallLog,
    /// Time of the beginning, CLOCK_MONOTONIC nanoseconds. Earlier events are not true.
    start_ns: u64,
}

impl Preload {
    /// Makes the library and the ring. The recording begins at `start_ns`.
    pub(crate) fn new(start_ns: u64) -> io::Result<Preload> {
        let library = LentFile::with_content("framepath-preload", LIBRARY)?;
        Ok(Preload { library, ring: CallRing::new()?, log: CallLog::default(), start_ns })
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

    /// Reads the events since the last call.
    pub(crate) fn read(&mut self) {
        let Preload { ring, log, start_ns, .. } = self;
        ring.drain(|record| log.add(record, *start_ns, now_ns()));
    }

    /// Reads the last events. Returns all events.
    pub(crate) fn finish(mut self) -> CallLog {
        let Preload { ring, log, start_ns, .. } = &mut self;
        ring.drain_last(|record| log.add(record, *start_ns, now_ns()));
        let mut log = self.log;
        log.lost = log.lost.saturating_add(self.ring.lost());
        // Stable: a thread's events with one time keep their order.
        log.events.sort_by_key(|event| event.at_ns);
        log
    }
}

impl CallLog {
    /// Adds a record. Counts it as lost if it has no meaning or there are too many.
    fn add(&mut self, record: CallRecord, start_ns: u64, now_ns: u64) {
        match event(record).filter(|event| (start_ns..=now_ns).contains(&event.at_ns)) {
            Some(event) if self.events.len() < MOST_EVENTS => self.events.push(event),
            _ => self.lost += 1,
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
        _ => return None,
    };
    let phase = match kind >> 8 & 0xff_ffff {
        0 => Phase::Enter,
        1 => Phase::Leave,
        _ => return None,
    };
    let result = (kind >> 32) as i32;
    let is_true = process > 0 && thread > 0 && (phase == Phase::Leave || result == 0);
    is_true.then_some(CallEvent {
        at_ns,
        process,
        thread,
        call,
        phase,
        object,
        data,
        pts: pts as i64,
        result,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::CALL_SITES;

    #[test]
    fn a_record_becomes_an_event_and_one_without_meaning_is_lost() {
        let record = |kind| [50, 7 | 8 << 32, kind, 9, 10, -5i64 as u64, 0];
        let mut log = CallLog::default();
        log.add(record(2), 10, 100);
        log.add(record(4 | 1 << 8 | (-11i32 as u32 as u64) << 32), 10, 100);
        assert_eq!(log.lost, 0);
        let [sent, received] = log.events[..] else { panic!("{log:?}") };
        let (call, phase) = (Call::SendPacket, Phase::Enter);
        let wanted =
            CallEvent { at_ns: 50, process: 7, thread: 8, call, phase, object: 9, data: 10, pts: -5, result: 0 };
        assert_eq!(sent, wanted);
        assert_eq!(received, CallEvent { call: Call::ReceiveFrame, phase: Phase::Leave, result: -11, ..wanted });
        // GetBuffer, an unknown call, an unknown phase, a result at the beginning.
        [3, 200, 2 << 8, 1 << 24, 2 | 5 << 32].into_iter().for_each(|kind| log.add(record(kind), 10, 100));
        // A time outside of the recording, and no process.
        log.add(record(2), 51, 100);
        log.add(record(2), 10, 49);
        log.add([50, 8 << 32, 2, 9, 10, 0, 0], 10, 100);
        assert_eq!((log.events.len(), log.lost), (2, 8));
    }

    #[test]
    fn random_records_do_no_harm() {
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> (random >> 58)
        };
        let mut log = CallLog::default();
        for _ in 0..100_000 {
            log.add(std::array::from_fn(|_| next()), 0, u64::MAX);
        }
        assert_eq!(log.events.len() as u64 + log.lost, 100_000);
        assert!(!log.events.is_empty());
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
