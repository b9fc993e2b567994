// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording of a running process of which only the last seconds are kept.

use std::collections::HashMap;
use std::time::Duration;

use framepath_os::measure::process_events::{ThreadEvent, ThreadEventKind};
use framepath_os::process::end_watch::EndWatch;
use framepath_os::process::signal;
use framepath_os::time::now_ns;

use crate::error::TraceError;
use crate::recording::{EventLog, Recording, look, watch};
use crate::report::{TraceReport, Usage};
use crate::trace_level::TraceLevel;

/// Recording of a running process, and of all that it starts, of which the last seconds can be looked at again and again.
/// It ends when the value is dropped; the process goes on.
#[derive(Debug)]
pub struct LiveRecording {
    recording: Recording,
    watch: EndWatch,
    window_ns: u64,
    has_ended: bool,
}

impl LiveRecording {
    /// Begins the recording of the process `pid`, of which `window` is kept.
    ///
    /// # Errors
    /// As for [`Recording::of_process`].
    pub fn of_process(
        pid: u32,
        level: Option<TraceLevel>,
        window: Duration,
    ) -> Result<LiveRecording, TraceError> {
        let mut recording = Recording::of_process(pid, level)?;
        recording.log.all.get_or_insert_default();
        let watch = watch(pid)?;
        let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        Ok(LiveRecording { recording, watch, window_ns, has_ended: false })
    }

    /// Records for `time`, or until the process ends or SIGINT or SIGTERM has arrived (in a program that installed its
    /// handlers). Must be called all the time: a process that maps other libraries has no probes in them until then.
    /// Returns false if the process has ended.
    pub fn record(&mut self, time: Duration) -> bool {
        let _interruptible = signal::interruptible();
        let until_ns = now_ns() + time.as_nanos() as u64;
        while !self.has_ended && now_ns() < until_ns && !signal::interrupted() {
            let Recording { log, calls, .. } = &mut self.recording;
            self.has_ended = look(&self.watch, log, calls.as_mut());
        }
        !self.has_ended
    }

    /// Returns the figures of the last seconds: of the frames that began and ended in this time, and of the threads. Takes
    /// some milliseconds for each second. Forgets what was before.
    pub fn report(&mut self) -> TraceReport {
        let Recording { log, calls, what, start_ns, no_higher, .. } = &mut self.recording;
        log.read_all();
        if let Some(calls) = calls {
            calls.read();
        }
        let end_ns = now_ns();
        let from_ns = end_ns.saturating_sub(self.window_ns).max(*start_ns);
        log.forget_before(from_ns);
        let events = log.all.as_deref().unwrap_or_default();
        let threads = log.times.part(events, from_ns, end_ns);
        let frames = calls.as_mut().map(|calls| {
            calls.forget_before(from_ns);
            calls.findings(events, &log.copies.known(), end_ns)
        });
        let report = TraceReport::new(what.clone(), end_ns - from_ns, Usage::default(), threads, 0, frames);
        TraceReport { no_higher: no_higher.clone(), ..report.of_part() }
    }
}

impl EventLog {
    /// Forgets the events before `from_ns`, except that the threads that still run were started, and what each did last, which
    /// counts from `from_ns` on.
    fn forget_before(&mut self, from_ns: u64) {
        let Some(all) = &mut self.all else { return };
        let first = all.partition_point(|event| event.at_ns < from_ns);
        let mut started: HashMap<i32, ThreadEvent> = HashMap::new();
        let mut last: HashMap<i32, ThreadEvent> = HashMap::new();
        for event in all.drain(..first) {
            match event.kind {
                ThreadEventKind::Started { thread, .. } => _ = started.insert(thread, event),
                ThreadEventKind::SwitchedIn | ThreadEventKind::SwitchedOut { .. } => {
                    last.insert(event.thread, ThreadEvent { at_ns: from_ns, ..event });
                }
                ThreadEventKind::Ended => {
                    started.remove(&event.thread);
                    last.remove(&event.thread);
                }
                ThreadEventKind::Named { .. }
                | ThreadEventKind::Lost { .. }
                | ThreadEventKind::Mapped { .. }
                | ThreadEventKind::Sampled { .. } => {}
            }
        }
        let mut started: Vec<ThreadEvent> = started.into_values().collect();
        started.sort_by_key(|event| event.at_ns);
        all.splice(..0, started.into_iter().chain(last.into_values()));
    }
}
