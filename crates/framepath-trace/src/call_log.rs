// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collection of a recording's calls, waits and wake-ups.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use framepath_model::shown::shown;
use framepath_os::measure::process_events::{ThreadEvent, ThreadEventKind};
use framepath_os::process::chosen_file::chosen_file;
use framepath_os::time::now_ns;

use crate::attribution::TraceFacts;
use crate::call_findings::{CallFindings, LateProbes};
use crate::calls::CallEvent;
use crate::device_calls::DeviceCall;
use crate::device_frames::DeviceFrames;
use crate::frame_ledger::{MOST_STREAMS, leave_out_single, ledgers};
use crate::identify::identify;
use crate::library::{self, MappedFile};
use crate::link_counts::LinkCounts;
use crate::mark::{Mark, forget_marks};
use crate::marked_frames::{MarkedFrames, mark_spans};
use crate::names::ObjectNames;
use crate::pad_frames::pad_ledgers;
use crate::patience::Patience;
use crate::preload::Preload;
use crate::probe_event::{ProbeEvent, SwitchOut, SwitchReason};
use crate::probes::{ProbeCount, ProbeScope, Probes};
use crate::spans::{buffer_copies, frame_copies, spans};
use crate::stage_limits::StageLimits;
use crate::timeline::{WakeUp, timelines};
use crate::trace_level::TraceLevel;
use crate::wait_object::WaitObjects;

/// Greatest number of files that are named for each reason.
const MOST_NOTES: usize = 256;

/// Most records of each kind that a recording keeps, about an hour of video: later ones are lost.
const MOST_RECORDS: usize = 4 << 20;

/// Most mapped files that are remembered.
const MOST_MAPPED: usize = 65_536;

/// Time that a new process gets to execute a program, nanoseconds.
const FORKED_NS: u64 = 5_000_000;

/// Calls of a recording.
#[derive(Debug)]
pub(crate) struct CallLog {
    source: Source,
    names: ObjectNames,
    calls: Vec<CallEvent>,
    marks: Vec<Mark>,
    devices: Vec<DeviceCall>,
    switches: Vec<SwitchOut>,
    objects: WaitObjects,
    wake_ups: Vec<WakeUp>,
    /// Files that were given to [`CallLog::attach`], by the numbers of the devices and inodes, with the process if the probes
    /// are in single ones.
    mapped: HashSet<(u32, [u64; 4])>,
    /// Processes that traced ones have started and that have executed no program yet: parent, child, and the time of the start,
    /// CLOCK_MONOTONIC nanoseconds.
    forked: Vec<(u32, u32, u64)>,
    /// Files that got their probes behind the mapping.
    late: Vec<LateProbes>,
    /// Why files got no probes.
    unprobed: Vec<String>,
    /// Time for the probes of processes that were started and executed no program, and the number of those that got none for lack
    /// of it.
    patience: Patience,
    unadopted: u64,
    /// Number of records beyond [`MOST_RECORDS`].
    dropped: u64,
    /// Thread that existed before the recording, and its CPU clock then, nanoseconds.
    pub(crate) first_clock: Option<(i32, u64)>,
    /// Stages that are shown.
    pub(crate) limits: StageLimits,
}

/// Part of a file with code that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileMapping {
    pub(crate) process: i32,
    /// Time of the mapping, CLOCK_MONOTONIC nanoseconds.
    pub(crate) at_ns: u64,
    /// Addresses in the process.
    pub(crate) range: Range<u64>,
    /// Numbers of the file's device and inode, and the inode's generation.
    pub(crate) file: [u64; 4],
    /// Path of the file, as the process sees it.
    pub(crate) path: PathBuf,
}

/// Origin of the events.
#[derive(Debug)]
enum Source {
    Probes(Box<Probes>),
    /// The library in the programs: it reports neither waits nor wake-ups.
    Library(Preload),
}

/// Keeps a record, or counts it if there are too many: a hostile program can make any number.
pub(crate) fn keep<T>(records: &mut Vec<T>, record: T, dropped: &mut u64) {
    match records.len() < MOST_RECORDS {
        true => records.push(record),
        false => *dropped += 1,
    }
}

/// Notes why a file got no probes. What is no regular file has none to get.
fn note(unprobed: &mut Vec<String>, path: &Path, error: &io::Error) {
    let is_expected = matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::WouldBlock);
    if unprobed.len() < MOST_NOTES && !is_expected {
        let path = path.display().to_string();
        unprobed.push(format!("cannot attach probes to {}: {error}", shown(&path)));
    }
}

impl CallLog {
    /// Prepares probes: for a command, or for a program that runs already.
    ///
    /// # Errors
    /// As for [`Probes::new`].
    pub(crate) fn new(is_running: bool) -> io::Result<CallLog> {
        Ok(CallLog::of(Source::Probes(Box::new(Probes::new(is_running)?))))
    }

    /// Begins with `process`, a child that has not executed the program in the file `program`. `folders` is its LD_LIBRARY_PATH.
    ///
    /// # Errors
    /// As for [`Probes::trace`] and [`Probes::attach`].
    pub(crate) fn begin(
        &mut self,
        process: u32,
        program: Option<&Path>,
        folders: Option<&OsStr>,
    ) -> io::Result<()> {
        let Source::Probes(probes) = &mut self.source else { return Ok(()) };
        probes.set_scope(program.map_or(ProbeScope::All, ProbeScope::of));
        probes.attach_known(process, program, folders)?;
        probes.trace(process)
    }

    /// Begins with the running process `process`.
    ///
    /// # Errors
    /// The process has ended, or is another user's; as for [`Probes::trace`] and [`Probes::attach`].
    pub(crate) fn attached(mut self, process: u32) -> io::Result<CallLog> {
        let Source::Probes(probes) = &mut self.source else { return Ok(self) };
        let files = library::mapped(process)?;
        probes.set_scope(ProbeScope::with_libraries(files.iter().map(|file| file.name.as_str())));
        let mut unprobed = Vec::new();
        for file in files {
            if let Err(error) = probes.attach(&file, process) {
                note(&mut unprobed, &file.path, &error);
            }
        }
        probes.attach_known(process, None, None)?;
        probes.trace(process)?;
        // Files that the process has mapped meanwhile. The others have their probes, or a note.
        for file in library::mapped(process)? {
            let _ = probes.attach(&file, process);
        }
        self.unprobed = unprobed;
        Ok(self)
    }

    /// Begins with a library that the program will load.
    pub(crate) fn of_library(preload: Preload) -> CallLog {
        CallLog::of(Source::Library(preload))
    }

    fn of(source: Source) -> CallLog {
        let (calls, switches, wake_ups) = (Vec::new(), Vec::new(), Vec::new());
        CallLog {
            source,
            names: ObjectNames::default(),
            calls,
            marks: Vec::new(),
            devices: Vec::new(),
            objects: WaitObjects::default(),
            switches,
            wake_ups,
            mapped: HashSet::new(),
            forked: Vec::new(),
            late: Vec::new(),
            unprobed: Vec::new(),
            patience: Patience::new(),
            unadopted: 0,
            dropped: 0,
            first_clock: None,
            limits: StageLimits::default(),
        }
    }

    /// Returns true if [`CallLog::attach`] must be called soon after each mapping.
    pub(crate) fn has_probes(&self) -> bool {
        matches!(self.source, Source::Probes(_))
    }

    /// Attaches probes to files that processes have mapped and that have none yet.
    pub(crate) fn attach(&mut self, mappings: &[FileMapping]) {
        let Source::Probes(probes) = &mut self.source else { return };
        for mapping in mappings {
            let process = mapping.process.unsigned_abs();
            // It has executed a program.
            self.forked.retain(|(_, child, _)| *child != process);
            let key = (if probes.scope() == ProbeScope::All { 0 } else { process }, mapping.file);
            if self.mapped.len() >= MOST_MAPPED {
                self.mapped.clear();
            }
            if !self.mapped.insert(key) {
                continue;
            }
            // The process has ended, or the file cannot be read. The next process with this file is a new chance.
            let Ok(file) = MappedFile::of_process(process, &mapping.range, &mapping.path) else {
                self.mapped.remove(&key);
                continue;
            };
            match probes.attach(&file, process) {
                Ok(true) if self.late.len() < MOST_NOTES => {
                    let late_ns = now_ns().saturating_sub(mapping.at_ns);
                    self.late.push(LateProbes { file: file.name, process: mapping.process, late_ns });
                }
                Ok(_) => {}
                // The process has ended meanwhile, or there is no time now: the next mapping is a new chance.
                Err(error)
                    if error.raw_os_error() == Some(libc::ESRCH)
                        || error.kind() == io::ErrorKind::WouldBlock
                        || chosen_file(&file.path).is_err() =>
                {
                    self.mapped.remove(&key);
                }
                Err(error) => note(&mut self.unprobed, &mapping.path, &error),
            }
        }
        // The first driver of a device may have come since.
        if !mappings.is_empty() {
            probes.attach_devices();
        }
    }

    /// Notes that the process `parent` has started `child` at `at_ns`.
    pub(crate) fn fork(&mut self, parent: i32, child: i32, at_ns: u64) {
        self.forked.push((parent.unsigned_abs(), child.unsigned_abs(), at_ns));
    }

    /// Notes that the first thread of a process has ended, mostly with the process.
    pub(crate) fn end(&mut self, process: i32) {
        let tasks = fs::read_dir(format!("/proc/{process}/task"));
        if tasks.is_ok_and(|tasks| tasks.count() > 1) {
            return;
        }
        self.objects.forget(process);
        let process = process.unsigned_abs();
        self.mapped.retain(|(of, _)| *of != process);
        if let Source::Probes(probes) = &mut self.source {
            probes.forget(process);
        }
    }

    /// Attaches probes for the processes that were started a while ago and executed no program. One that has just been started may
    /// still have its parent's memory (vfork), in which each call would hit the probes of both.
    fn adopt_forked(&mut self) {
        let Source::Probes(probes) = &mut self.source else { return };
        let is_new = |at_ns: u64| now_ns().saturating_sub(at_ns) < FORKED_NS;
        let (new, old) = std::mem::take(&mut self.forked).into_iter().partition(|(.., at_ns)| is_new(*at_ns));
        self.forked = new;
        for (parent, child, _) in old as Vec<(u32, u32, u64)> {
            if self.patience.left().is_zero() {
                self.unadopted += 1;
                continue;
            }
            let since = Instant::now();
            // Fails if the process has ended.
            let _ = probes.adopt(parent, child);
            self.patience.spend(since);
        }
    }

    /// Takes the events that have come until now.
    pub(crate) fn read(&mut self) {
        self.adopt_forked();
        let CallLog { source, names, calls, marks, devices, switches, wake_ups, objects, dropped, .. } = self;
        objects.look_again();
        let probes = match source {
            Source::Probes(probes) => probes,
            Source::Library(preload) => {
                return preload.drain(|event| {
                    if let Some(call) = names.take_facts(event) {
                        keep(calls, call, dropped);
                    }
                });
            }
        };
        probes.drain(|event| match event {
            ProbeEvent::Call(event) => keep(calls, event, dropped),
            ProbeEvent::Named { .. }
            | ProbeEvent::Filter { .. }
            | ProbeEvent::FilterOutput { .. }
            | ProbeEvent::FilterOption { .. }
            | ProbeEvent::Pad { .. }
            | ProbeEvent::PadName { .. } => names.take_names(event),
            ProbeEvent::Marked(mark) => keep(marks, mark, dropped),
            ProbeEvent::Device(call) => {
                call.file.minor.into_iter().for_each(|minor| names.see_device(minor));
                keep(devices, call, dropped);
            }
            ProbeEvent::Switched(mut switch) => {
                if let SwitchReason::Waits(call) = &mut switch.reason {
                    objects.resolve(switch.process, call);
                }
                keep(switches, switch, dropped);
            }
            ProbeEvent::Woken { thread, by, at_ns, is_thaw } => {
                keep(wake_ups, WakeUp { at_ns, thread, by, is_thaw }, dropped);
            }
        });
    }

    /// Ends the recording: takes the last events and removes all probes.
    pub(crate) fn stop(&mut self) {
        if let Source::Library(preload) = &mut self.source {
            preload.end();
        }
        self.read();
        if let Source::Probes(probes) = &mut self.source {
            probes.detach();
        }
    }

    /// Returns what the calls show. `events` are the threads' events in the order of their times, up to `end_ns`.
    /// `sampled` are the processes of which the events have all samples in copying functions.
    pub(crate) fn finish(
        mut self,
        events: &[ThreadEvent],
        sampled: &HashSet<i32>,
        end_ns: u64,
    ) -> CallFindings {
        let findings = self.findings(events, sampled, end_ns);
        let clocks = self.clocks(events);
        CallFindings { calls: self.calls, clocks, ..findings }
    }

    /// Returns the CPU clocks of the threads whose clocks at the begin of the recording are known.
    fn clocks(&self, events: &[ThreadEvent]) -> HashMap<i32, u64> {
        let started = events.iter().filter_map(|event| match event.kind {
            ThreadEventKind::Started { thread, .. } => Some((thread, 0)),
            _ => None,
        });
        let mut first: HashMap<i32, Option<u64>> = HashMap::new();
        for (thread, clock_ns) in self.first_clock.into_iter().chain(started) {
            // Two threads with one number cannot be told apart.
            first.entry(thread).and_modify(|clock| *clock = None).or_insert(Some(clock_ns));
        }
        let last: HashMap<i32, u64> =
            self.switches.iter().map(|switch| (switch.thread, switch.clock_ns)).collect();
        let known = first
            .into_iter()
            .filter_map(|(thread, clock_ns)| Some((thread, last.get(&thread)?.checked_sub(clock_ns?)?)));
        known.collect()
    }

    /// Returns what the calls so far show, without the calls themselves. The recording goes on; what has not ended at
    /// `end_ns` is left out. `events` and `sampled` as for [`CallLog::finish`].
    pub(crate) fn findings(
        &mut self,
        events: &[ThreadEvent],
        sampled: &HashSet<i32>,
        end_ns: u64,
    ) -> CallFindings {
        let (level, lost, probes, unprobed, knows_quotas) = match &self.source {
            Source::Probes(probes) => {
                let of_static = |name: &String| {
                    format!(
                        "{} is a static program without symbols, so its calls are not seen; a build with symbols or with \
                         shared libraries would show them",
                        shown(name)
                    )
                };
                let skipped = Some(probes.skipped()).filter(|files| *files > 0);
                let skipped =
                    skipped.map(|files| format!("{files} mapped files were not looked at for lack of time"));
                let unprobed = probes.unprobed().iter().map(of_static);
                let unadopted = Some(self.unadopted).filter(|processes| *processes > 0);
                let unadopted = unadopted
                    .map(|processes| format!("{processes} processes got no probes for lack of time"));
                let unprobed = unprobed.chain(self.unprobed.iter().cloned()).chain(skipped).chain(unadopted);
                (TraceLevel::Bpf, probes.lost(), probes.count(), unprobed.collect(), probes.knows_quotas())
            }
            Source::Library(preload) => {
                (TraceLevel::Preload, preload.lost(), ProbeCount::default(), Vec::new(), false)
            }
        };
        self.sort();
        // A program that names its frames itself is shown by its own stages.
        let is_marked = !self.marks.is_empty();
        let spans = if is_marked { mark_spans(&self.marks) } else { spans(&self.calls) };
        let timelines = timelines(events, &self.switches, &self.objects, &self.wake_ups, end_ns);
        let mut facts = TraceFacts::new(&spans, &timelines, &self.names, events);
        let is_limited = self.limits != StageLimits::default();
        facts.limits = self.limits.clone();
        facts.sampled.clone_from(sampled);
        let mut links = LinkCounts::default();
        let (mut streams, mut ambiguous, unmatched) = if is_marked {
            (MarkedFrames::of(&self.marks).ledgers(&facts), 0, Vec::new())
        } else {
            let (mut streams, mut unmatched, pad_links) = pad_ledgers(&facts, &buffer_copies(&self.calls));
            // In a pipeline, the calls of FFmpeg's libraries are parts of its elements.
            let pipelines = streams.iter().map(|stream| stream.process).collect();
            let found = identify(&spans, &frame_copies(&self.calls), &self.names, &pipelines);
            streams.extend(ledgers(&found, &facts));
            unmatched.extend(found.unmatched);
            links = pad_links + found.links;
            (streams, found.ambiguous, unmatched)
        };
        let codecs = facts.codecs();
        // A program whose frames are known by its calls or marks is shown by these.
        let known: HashSet<i32> = streams.iter().map(|stream| stream.process).collect();
        let of_others = self.devices.iter().filter(|call| !known.contains(&call.file.process));
        let of_others: Vec<DeviceCall> = of_others.copied().collect();
        // Most programs call no device.
        if !of_others.is_empty() {
            let found = DeviceFrames::of(&of_others);
            let spans = found.spans();
            let mut facts = TraceFacts::new(&spans, &timelines, &self.names, events);
            facts.limits = self.limits.clone();
            facts.sampled.clone_from(sampled);
            streams.extend(found.ledgers(&facts));
            ambiguous += found.ambiguous;
        }
        let single_pictures = leave_out_single(&mut streams);
        let more_streams = streams.len().saturating_sub(MOST_STREAMS);
        streams.truncate(MOST_STREAMS);
        CallFindings {
            level: Some(level),
            more_streams,
            single_pictures,
            links,
            is_limited,
            codecs,
            streams,
            ambiguous,
            unmatched,
            clocks: HashMap::new(),
            lost: lost + self.dropped,
            probes,
            objects: self.objects.found(),
            late: self.late.clone(),
            unprobed,
            knows_quotas,
            marks: self.marks.len(),
            device_calls: self.devices.len(),
            calls: Vec::new(),
        }
    }

    /// Brings the events into the order of their times: each CPU takes a time before it takes a place in the ring.
    fn sort(&mut self) {
        self.calls.sort_by_key(|event| event.at_ns);
        self.switches.sort_by_key(|switch| switch.at_ns);
        self.wake_ups.sort_by_key(|wake_up| wake_up.at_ns);
        self.marks.sort_by_key(|mark| mark.at_ns);
        self.devices.sort_by_key(|call| call.at_ns);
    }

    /// Forgets what was before `from_ns`, CLOCK_MONOTONIC, except what threads wait for since then, which codecs are open, and
    /// which names objects have. Frames that began before are not seen any more.
    pub(crate) fn forget_before(&mut self, from_ns: u64) {
        self.sort();
        self.calls.retain(|event| event.at_ns >= from_ns || event.call.is_opening());
        self.wake_ups.retain(|wake_up| wake_up.at_ns >= from_ns);
        let mut last: HashMap<i32, SwitchOut> = HashMap::new();
        let first = self.switches.partition_point(|switch| switch.at_ns < from_ns);
        last.extend(
            self.switches
                .drain(..first)
                .map(|switch| (switch.thread, SwitchOut { at_ns: from_ns, ..switch })),
        );
        self.switches.splice(..0, last.into_values());
        forget_marks(&mut self.marks, from_ns);
        self.devices.retain(|call| call.at_ns >= from_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{Call, NO_PTS, Phase};

    /// A program can write any events to the memory that it shares with the library.
    #[test]
    fn random_calls_do_no_harm() {
        const CALLS: [Call; 21] = [
            Call::OpenCodec,
            Call::ReadPacket,
            Call::SendPacket,
            Call::ReceiveFrame,
            Call::FilterInput,
            Call::FilterOutput,
            Call::SendFrame,
            Call::ReceivePacket,
            Call::WritePacket,
            Call::OpenInput,
            Call::OpenOutput,
            Call::OpenGraph,
            Call::PadPush,
            Call::CopyBuffer,
            Call::FinishFrame,
            Call::PopBuffer,
            Call::ClockWait,
            Call::Upload,
            Call::Present,
            Call::Attach,
            Call::Commit,
        ];
        let mut random = 1u64;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % limit
        };
        for round in 0..300 {
            let mut names = ObjectNames::default();
            for pad in 0..4 {
                let name = "element".to_owned();
                let (parent, peer, next) = (below(6), below(6), below(6));
                let pad_facts =
                    crate::names::Pad { parent, name: name.clone(), peer, next, next_name: name.clone() };
                names.add_pad(1, pad, pad_facts);
                names.add_filter(1, pad, "scale", below(4), below(2));
                names.add_object(1, below(4), name, below(3) as i64 - 1);
            }
            let mut calls: Vec<CallEvent> = (0..400)
                .map(|_| {
                    let data = below(6);
                    let pts = [NO_PTS, i64::MAX, -1, 0, 1, 2, 3, 4][below(8) as usize];
                    CallEvent {
                        at_ns: if round % 2 == 0 { below(50) } else { u64::MAX - below(1 << 30) },
                        process: 1 + below(2) as i32,
                        thread: 1 + below(3) as i32,
                        call: CALLS[below(if round % 3 == 0 { 21 } else { 9 }) as usize],
                        phase: if below(2) == 0 { Phase::Enter } else { Phase::Leave },
                        object: [0, 1, 2, 3, u64::MAX][below(5) as usize],
                        data,
                        pts: if data == 0 { NO_PTS } else { pts },
                        result: below(3) as i32 - 1,
                    }
                })
                .collect();
            calls.sort_by_key(|event| event.at_ns);
            let spans = spans(&calls);
            let timelines = timelines(&[], &[], &WaitObjects::default(), &[], u64::MAX);
            let found = identify(&spans, &[], &names, &HashSet::new());
            let facts = TraceFacts::new(&spans, &timelines, &names, &[]);
            let frames: u64 = ledgers(&found, &facts).iter().map(|ledger| ledger.frames).sum();
            assert!(frames <= calls.len() as u64);
            pad_ledgers(&facts, &buffer_copies(&calls));
        }
    }
}
