// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collection of a recording's calls, waits and wake-ups, and the care for the processes that stop for it.

use std::io;
use std::time::Duration;

use framepath_os::measure::process_events::ThreadEvent;
use framepath_os::process::children;

use crate::attribution::Facts;
use crate::calls::CallEvent;
use crate::frame_ledger::{StreamLedger, ledgers};
use crate::identify::identify;
use crate::names::Names;
use crate::pad_frames::pad_ledgers;
use crate::probes::{ProbeCount, ProbeEvent, Probes, SystemCall};
use crate::spans::spans;
use crate::timeline::{WakeUp, timelines};

const SIGCONT: i32 = libc::SIGCONT;

/// Calls of a recording.
#[derive(Debug)]
pub(crate) struct CallLog {
    probes: Probes,
    names: Names,
    calls: Vec<CallEvent>,
    waits: Vec<SystemCall>,
    wake_ups: Vec<WakeUp>,
    count: ProbeCount,
}

/// What a recording's calls show.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pub(crate) streams: Vec<StreamLedger>,
    pub(crate) ambiguous: u64,
    pub(crate) lost: u64,
    pub(crate) probes: ProbeCount,
}

impl CallLog {
    /// Begins with `process`: a child that has not executed its program, or a running process.
    ///
    /// # Errors
    /// As for [`Probes::new`] and [`Probes::attach`].
    pub(crate) fn new(process: u32, is_running: bool) -> io::Result<CallLog> {
        let probes = Probes::new()?;
        probes.trace(process)?;
        let count = ProbeCount::default();
        let (calls, waits, wake_ups) = (Vec::new(), Vec::new(), Vec::new());
        let mut log = CallLog { probes, names: Names::default(), calls, waits, wake_ups, count };
        if is_running {
            log.attach(process)?;
        }
        Ok(log)
    }

    /// Waits for an urgent event, at most for `limit`, and attaches the probes that it asks for.
    pub(crate) fn wait(&mut self, limit: Duration) {
        if !self.probes.wait(limit) {
            return;
        }
        for event in self.probes.urgent() {
            match event {
                ProbeEvent::Call(event) => self.names.see(&event),
                ProbeEvent::Executed(process) => {
                    self.probes.forget(process);
                    self.attach_stopped(process);
                }
                ProbeEvent::Loaded(process) => self.attach_stopped(process),
                // The program goes on meanwhile: its first calls can be missing.
                ProbeEvent::Forked(process) => drop(self.attach(process)),
                ProbeEvent::Named { .. } | ProbeEvent::Waits(_) | ProbeEvent::Woken { .. } => {}
            }
        }
    }

    /// Takes the events that have come until now.
    pub(crate) fn read(&mut self) {
        let CallLog { probes, names, calls, waits, wake_ups, .. } = self;
        probes.drain(|event| match event {
            ProbeEvent::Call(event) => {
                names.see(&event);
                calls.push(event);
            }
            ProbeEvent::Named { process, object, media, name } => names.set(process, object, media, &name),
            ProbeEvent::Waits(call) => waits.push(call),
            ProbeEvent::Woken { thread, by, at_ns } => wake_ups.push(WakeUp { at_ns, thread, by }),
            ProbeEvent::Forked(_) | ProbeEvent::Executed(_) | ProbeEvent::Loaded(_) => {}
        });
    }

    /// Attaches probes in a stopped process, and lets it go on. It has been stopped by a probe: the signal is on its way
    /// at least, and SIGCONT also takes back one that has not stopped it yet.
    fn attach_stopped(&mut self, process: u32) {
        // Fails if the process has just ended, or has executed another program and will stop again.
        let _ = self.attach(process);
        let _ = children::signal_process(process, SIGCONT);
    }

    fn attach(&mut self, process: u32) -> io::Result<()> {
        let count = self.probes.attach(process)?;
        self.count.all += count.all;
        self.count.emulated += count.emulated;
        Ok(())
    }

    /// Ends the recording at `end_ns`. `events` are the threads' events in the order of their times.
    pub(crate) fn finish(mut self, events: &[ThreadEvent], end_ns: u64) -> Frames {
        self.read();
        // Each CPU takes a time before it takes a place in the ring.
        self.calls.sort_by_key(|event| event.at_ns);
        self.waits.sort_by_key(|call| call.at_ns);
        self.wake_ups.sort_by_key(|wake_up| wake_up.at_ns);
        let spans = spans(&self.calls);
        let timelines = timelines(events, &self.waits, &self.wake_ups, end_ns);
        let found = identify(&spans, &self.names);
        let facts = Facts::new(&spans, &timelines, &self.names, events);
        // In a pipeline, the calls of FFmpeg's libraries are parts of its elements.
        let pads = pad_ledgers(&facts);
        let (streams, ambiguous) =
            if pads.is_empty() { (ledgers(&found, &facts), found.ambiguous) } else { (pads, 0) };
        Frames { streams, ambiguous, lost: self.probes.lost(), probes: self.count }
    }
}
