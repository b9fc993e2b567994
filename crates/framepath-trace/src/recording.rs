// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording of a command, or of a running process.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use framepath_os::measure::mapping_watch::MappingWatch;
use framepath_os::measure::process_events::{ObserveError, ProcessEvents, ThreadEvent, ThreadEventKind};
use framepath_os::process::children::ResourceUsage;
use framepath_os::process::cpu_quota::CpuQuotas;
use framepath_os::process::end_watch::EndWatch;
use framepath_os::process::held_child::{HeldChild, ReleasedChild};
use framepath_os::process::running;
use framepath_os::process::signal;
use framepath_os::process::signal_relay::{KeptSignals, SignalRelay};
use framepath_os::time::now_ns;

use crate::call_log::{CallLog, FileMapping, keep};
use crate::copy_functions::{CopyFunctions, SAMPLE_NS};
use crate::error::TraceError;
use crate::finished_recording::{FinishedRecording, FinishedThreads};
use crate::own_user::OwnUser;
use crate::preload::Preload;
use crate::report::{TraceReport, Usage};
use crate::stage_limits::StageLimits;
use crate::thread_times::ThreadTimes;
use crate::trace_level::TraceLevel;

/// Longest sleep between two looks at the recorded process.
const LOOK: Duration = Duration::from_millis(20);

/// Shortest time between two looks at news of processes.
const BETWEEN_NEWS: Duration = Duration::from_millis(1);

/// Time in which a CPU certainly has written an event to its ring, nanoseconds.
const WRITTEN_NS: u64 = 1_000_000;

/// Time that a command gets to end by itself after a signal or at the end of the recording; then it gets SIGTERM, and
/// after the same time again SIGKILL.
const PATIENCE_NS: u64 = 2_000_000_000;

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// Recording that has begun, or, for a command, begins when its program is executed.
#[derive(Debug)]
pub struct Recording {
    pub(crate) log: EventLog,
    /// Calls of the libraries; `None` at level `threads`.
    pub(crate) calls: Option<CallLog>,
    target: Target,
    /// Name of the command or process in texts.
    pub(crate) what: String,
    /// Time at which the recording began, CLOCK_MONOTONIC nanoseconds.
    pub(crate) start_ns: u64,
    /// Why a higher level is not possible, if it was not demanded.
    pub(crate) no_higher: Option<String>,
}

/// FinishedRecording command or process.
#[derive(Debug)]
enum Target {
    /// A command that this process starts.
    Command(HeldChild),
    /// A running process, and its CPU time before the recording, nanoseconds.
    Process { pid: u32, cpu_ns: u64 },
}

/// Events in the order of their times.
#[derive(Debug)]
pub(crate) struct EventLog {
    events: ProcessEvents,
    /// Mappings of files that get probes, with a wake-up. Without it, they are among the events.
    mappings: Option<MappingWatch>,
    pub(crate) times: ThreadTimes,
    /// Events whose turn has not come: another CPU may still write earlier ones.
    waiting: Vec<ThreadEvent>,
    /// Files that processes have mapped since they were last given to the calls.
    mapped: Vec<FileMapping>,
    /// Processes that have ended since then.
    ended: Vec<i32>,
    /// Processes that were started since then: parent, child, and the time of the start, CLOCK_MONOTONIC nanoseconds.
    forked: Vec<(i32, i32, u64)>,
    /// Functions in which a sample is wanted.
    pub(crate) copies: CopyFunctions,
    /// All events so far, without samples elsewhere, if the calls of the libraries are recorded, too.
    pub(crate) all: Option<Vec<ThreadEvent>>,
    /// Number of events that were too many to be kept.
    dropped: u64,
}

/// Returns the highest level at which this process can record a command, and why not the next one: the error of the
/// kernel.
pub fn highest_level() -> (TraceLevel, Option<io::Error>) {
    match CallLog::new(false) {
        Ok(_) => (TraceLevel::Bpf, None),
        Err(error) => match Preload::new(now_ns()) {
            Ok(_) => (TraceLevel::Preload, Some(error)),
            Err(_) => (TraceLevel::Threads, Some(error)),
        },
    }
}

impl Recording {
    /// Prepares the recording of `command`, and of all that it starts. The program runs from
    /// [`Recording::run`] on. Records at `level`; without one, at the highest level that this process has the rights for and
    /// that its limits allow. In place of [`TraceLevel::Preload`], too, the level is [`TraceLevel::Threads`] if the library cannot
    /// be made; a note of the report has the reason.
    ///
    /// [`TraceLevel::Preload`] changes the environment of the program: `LD_PRELOAD` gets one more entry, and
    /// `FRAMEPATH_TRACE_RING` is new. Both have paths in `/proc` of this process, so that nothing is left when it ends; for root,
    /// the library is a file in a folder of root's. The library does not reach static programs, calls by addresses from dlsym(3), and programs that run as another user
    /// than this process.
    ///
    /// # Errors
    /// [`TraceError::Start`] if the command cannot be started, [`TraceError::Denied`] if the kernel denies perf,
    /// [`TraceError::NoProbes`] if the demanded level is not possible. The command's program is not executed then.
    pub fn of_command(mut command: Command, level: Option<TraceLevel>) -> Result<Recording, TraceError> {
        let mut reasons: Vec<String> = Vec::new();
        if matches!(level, None | Some(TraceLevel::Bpf)) {
            let calls = CallLog::new(false).map_err(|error| TraceError::NoProbes { error });
            match calls.and_then(|calls| Recording::hold(&mut command, Some(calls))) {
                Err(TraceError::NoProbes { error }) if level.is_none() => reasons.push(error.to_string()),
                Err(error @ TraceError::TooManyThreads { .. }) if level.is_none() => {
                    reasons.push(error.to_string());
                }
                recording => return recording,
            }
        }
        let mut calls = None;
        if level != Some(TraceLevel::Threads) {
            match preloaded(&mut command) {
                Ok(log) => calls = Some(log),
                Err(error) => reasons.push(format!("level `preload`: {error}")),
            }
        }
        let recording = Recording::hold(&mut command, calls)?;
        Ok(Recording { no_higher: (!reasons.is_empty()).then(|| reasons.join("; ")), ..recording })
    }

    /// Starts `command`, which is held until [`Recording::record`], and observes it.
    fn hold(command: &mut Command, mut calls: Option<CallLog>) -> Result<Recording, TraceError> {
        let what = command.get_program().to_string_lossy().into_owned();
        let program = program_file(command);
        let folders = variable(command, "LD_LIBRARY_PATH");
        let failed = |error| TraceError::Start { program: what.clone(), error };
        let child = HeldChild::start(command).map_err(failed)?;
        let has_probes = calls.as_ref().is_some_and(CallLog::has_probes);
        let mappings = has_probes.then(|| MappingWatch::of_threads(&[child.pid()], true).ok()).flatten();
        let maps = has_probes && mappings.is_none();
        let events = ProcessEvents::of_threads(&[child.pid()], true, sample_every(calls.is_some()), maps);
        let events = events.map_err(|error| cannot_observe(&what, 1, error))?;
        if let Some(calls) = &mut calls {
            let begun = calls.begin(child.pid().unsigned_abs(), program.as_deref(), folders.as_deref());
            begun.map_err(|error| TraceError::NoProbes { error })?;
        }
        let log = EventLog { mappings, ..EventLog::new(events, ThreadTimes::default(), calls.is_some()) };
        let target = Target::Command(child);
        Ok(Recording { log, calls, target, what, start_ns: now_ns(), no_higher: None })
    }

    /// Begins the recording of the process `pid`, and of all that it starts from now on. Its children so far are
    /// not recorded. Records at `level`; without one, at the highest level that this process has the rights for.
    ///
    /// # Errors
    /// [`TraceError::NoProcess`], [`TraceError::OtherUser`], [`TraceError::TooManyThreads`], [`TraceError::Denied`] if the kernel
    /// denies perf for the process, or [`TraceError::NoProbes`] or [`TraceError::NoPreload`] if the demanded level is not possible.
    pub fn of_process(pid: u32, level: Option<TraceLevel>) -> Result<Recording, TraceError> {
        let no_process = |_| TraceError::no_process(pid);
        let threads = threads_of(pid).map_err(no_process)?;
        let main = threads.iter().find(|thread| thread.number.unsigned_abs() == pid);
        let what = format!("process {pid} ({})", main.map(|main| main.name.as_str()).unwrap_or_default());
        let own_user = OwnUser::unless_root().map_err(no_process)?;
        let check_user = || match own_user.map(|own| own.other_user(pid)).transpose().map_err(no_process)? {
            Some(Some(user)) => Err(TraceError::OtherUser { what: what.clone(), user }),
            _ => Ok(()),
        };
        check_user()?;
        let cpu_ns = running::of(pid).map_err(no_process)?.cpu_ns;
        let start_ns = now_ns();
        let numbers: Vec<i32> = threads.iter().map(|thread| thread.number).collect();
        let samples = sample_every(level != Some(TraceLevel::Threads));
        let mappings = samples.and_then(|_| MappingWatch::of_threads(&numbers, false).ok());
        let maps = samples.is_some() && mappings.is_none();
        let events =
            ProcessEvents::of_threads(&numbers, false, samples, maps).map_err(|error| match error {
                ObserveError::NoThread => TraceError::NoProcess { pid },
                error => cannot_observe(&what, numbers.len(), error),
            })?;
        // Without the threads that have ended before they were observed.
        let mut times = ThreadTimes::default();
        for RunningThread { number, name, waits } in threads_of(pid).map_err(no_process)? {
            if numbers.contains(&number) {
                times.add(pid as i32, number, &name, waits.then_some(start_ns));
            }
        }
        let mut no_higher = None;
        let calls = match level {
            Some(TraceLevel::Threads) => None,
            Some(TraceLevel::Preload) => {
                let error = io::Error::new(io::ErrorKind::Unsupported, "a running program loads no library");
                return Err(TraceError::NoPreload { error });
            }
            Some(TraceLevel::Bpf) | None => match CallLog::new(true).and_then(|log| log.attached(pid)) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(no_process(error)),
                Err(error) if level.is_some() => return Err(TraceError::NoProbes { error }),
                log => log.map_err(|error| no_higher = Some(error.to_string())).ok(),
            },
        };
        // It may have executed a set-user-ID program before it was traced. From then on, such a process leaves the recording.
        check_user()?;
        let log = EventLog { mappings, ..EventLog::new(events, times, calls.is_some()) };
        Ok(Recording { log, calls, target: Target::Process { pid, cpu_ns }, what, start_ns, no_higher })
    }

    /// Returns the recording with only the stages within `limits`. Without effect at level `threads`.
    pub fn within(mut self, limits: StageLimits) -> Recording {
        if let Some(calls) = &mut self.calls {
            calls.limits = limits;
        }
        self
    }

    /// Records until the command or process ends, `limit` has passed, or SIGINT or SIGTERM has arrived (in a program
    /// that installed its handlers). A command that does not end within 2 s then gets SIGTERM, at the end of
    /// `limit` at once; a running process goes on.
    ///
    /// # Errors
    /// The command's program cannot be executed, or a system call failed.
    pub fn run(self, limit: Option<Duration>) -> Result<TraceReport, TraceError> {
        Ok(self.record(limit, None)?.report())
    }

    /// Records as [`Recording::run`], without the analysis.
    ///
    /// With `kept`, the recorded command has this program in front of it: signals to this process are passed on to the
    /// command, and this process stops and goes on with it. `kept` was opened before the recording, and has prepared the
    /// command; the signals are this process's own again when the command has ended. A second signal that asks for the end, if a
    /// process has sent it, ends the recording; the command goes on then, and the report has no exit code.
    ///
    /// # Errors
    /// As for [`Recording::run`].
    pub fn record(
        self,
        limit: Option<Duration>,
        kept: Option<&KeptSignals>,
    ) -> Result<FinishedRecording, TraceError> {
        let Recording { mut log, mut calls, target, what, mut start_ns, no_higher } = self;
        let own = running::own_usage();
        let _interruptible = signal::interruptible();
        let pid = match &target {
            Target::Command(held) => held.pid().unsigned_abs(),
            Target::Process { pid, .. } => *pid,
        };
        let quotas = CpuQuotas::of(pid);
        let quota_before = quotas.used();
        // All that can fail comes before the release: an error then ends the held child, and the command never runs alone.
        let watch = watch(pid)?;
        let relay = match (kept, &target) {
            (Some(kept), Target::Command(_)) => {
                Some(SignalRelay::start(kept, pid, &watch).map_err(|error| TraceError::System {
                    operation: "pass signals on to the command",
                    error,
                })?)
            }
            _ => None,
        };
        let (child, before_ns) = match target {
            Target::Command(held) => {
                // The child has run a little before it executes the program.
                let cpu_ns = running::of(pid).map_or(0, |used| used.cpu_ns);
                if let Some(calls) = &mut calls {
                    calls.first_clock = Some((held.pid(), cpu_ns));
                }
                start_ns = now_ns();
                let start = |error| TraceError::Start { program: what.clone(), error };
                (Some(held.release().map_err(start)?), cpu_ns)
            }
            Target::Process { cpu_ns, .. } => (None, cpu_ns),
        };
        let until_ns =
            limit.map(|limit| start_ns.saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)));
        let is_left = || relay.as_ref().is_some_and(SignalRelay::is_left);
        let is_over = || signal::interrupted() || until_ns.is_some_and(|until| now_ns() >= until);
        while !look(&watch, &mut log, calls.as_mut()) && !is_over() && !is_left() {
            // Without a process that watches, only the stop of the job is not seen.
            let _ = relay.as_ref().map(SignalRelay::follow_stop);
        }
        if let (Some(child), false) = (&child, watch.has_ended() || is_left()) {
            end(child, &watch, &mut log, calls.as_mut());
        }
        let end_ns = now_ns();
        let cpu_ns = running::of(pid).map(|used| used.cpu_ns.saturating_sub(before_ns)).ok();
        let usage = match child {
            // One that cannot be killed, because it has another user or waits for a file system, goes on.
            Some(child) if !is_left() && watch.has_ended() => Usage::of_command(&wait(child)?, before_ns),
            _ => Usage { cpu_ns, ..Usage::default() },
        };
        // A signal to this process is its own from now on.
        drop(relay);
        if let Some(kept) = kept {
            kept.release();
        }
        if let Some(calls) = &mut calls {
            calls.stop();
        }
        let threads = log.finish(end_ns);
        let quota = quotas.used().since(quota_before).into();
        Ok(FinishedRecording { what, start_ns, end_ns, usage, threads, calls, no_higher, quota, own })
    }
}

impl EventLog {
    fn new(events: ProcessEvents, times: ThreadTimes, keeps_all: bool) -> EventLog {
        let (waiting, mapped, ended, forked) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let copies = CopyFunctions::new();
        EventLog {
            events,
            mappings: None,
            times,
            waiting,
            mapped,
            ended,
            forked,
            copies,
            all: keeps_all.then(Vec::new),
            dropped: 0,
        }
    }

    /// Gives the news of processes to `calls`.
    fn give_news(&mut self, calls: &mut CallLog) {
        for (parent, child, at_ns) in self.forked.drain(..) {
            calls.fork(parent, child, at_ns);
        }
        calls.attach(&std::mem::take(&mut self.mapped));
        self.ended.drain(..).for_each(|process| calls.end(process));
    }

    /// Forgets the news of processes: without probes, nobody wants them.
    fn forget_news(&mut self) {
        self.mapped.clear();
        self.ended.clear();
        self.forked.clear();
    }

    /// Reads the events, and passes on those that no earlier one can follow.
    fn read(&mut self) {
        let written_ns = now_ns().saturating_sub(WRITTEN_NS);
        let EventLog { events, mappings, waiting, mapped, ended, forked, .. } = self;
        let mut take = |event: ThreadEvent| match event.kind {
            ThreadEventKind::Mapped { range, file, path } => {
                let ThreadEvent { process, at_ns, .. } = event;
                mapped.push(FileMapping { process, at_ns, range, file, path });
            }
            ThreadEventKind::Ended if event.thread == event.process => {
                ended.push(event.process);
                waiting.push(event);
            }
            ThreadEventKind::Started { process, .. } if process != event.process => {
                forked.push((event.process, process, event.at_ns));
                waiting.push(event);
            }
            kind => waiting.push(ThreadEvent { kind, ..event }),
        };
        events.drain(&mut take);
        mappings.iter_mut().for_each(|mappings| mappings.drain(&mut take));
        self.pass_on(written_ns);
    }

    fn pass_on(&mut self, before_ns: u64) {
        // Stable: events of one CPU with one time keep their order.
        self.waiting.sort_by_key(|event| event.at_ns);
        let ready = self.waiting.partition_point(|event| event.at_ns < before_ns);
        for event in self.waiting.drain(..ready) {
            self.times.record(&event);
            if let Some(all) = &mut self.all {
                if self.copies.is_wanted(&event) {
                    keep(all, event, &mut self.dropped);
                }
            }
        }
    }

    /// Reads the events up to now.
    pub(crate) fn read_all(&mut self) {
        std::thread::sleep(Duration::from_nanos(WRITTEN_NS));
        self.read();
        self.pass_on(u64::MAX);
    }

    /// Reads the last events.
    fn finish(mut self, end_ns: u64) -> FinishedThreads {
        self.read_all();
        let (rows, lost) = self.times.finish(end_ns);
        let (events, sampled) = (self.all.unwrap_or_default(), self.copies.known());
        FinishedThreads { rows, lost: lost + self.dropped, events, sampled }
    }
}

/// Returns the value of an environment variable of `command`.
fn variable(command: &Command, name: &str) -> Option<OsString> {
    match command.get_envs().find(|(of_command, _)| *of_command == name) {
        Some((_, value)) => value.map(OsStr::to_owned),
        None => env::var_os(name),
    }
}

/// Returns the path of the file that `command` executes; `None` if there is none.
fn program_file(command: &Command) -> Option<PathBuf> {
    let name = Path::new(command.get_program());
    if name.components().count() > 1 {
        return Some(command.get_current_dir().map_or_else(|| name.to_owned(), |folder| folder.join(name)));
    }
    let folders = variable(command, "PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Returns the time between samples of a thread: only for frames.
fn sample_every(has_frames: bool) -> Option<Duration> {
    has_frames.then_some(Duration::from_nanos(SAMPLE_NS))
}

/// Prepares `command` to load the library that records calls.
fn preloaded(command: &mut Command) -> io::Result<CallLog> {
    let preload = Preload::new(now_ns())?;
    preload.add_to(command);
    Ok(CallLog::of_library(preload))
}

/// Waits a while, and reads the events. Returns true if the process has ended.
pub(crate) fn look(watch: &EndWatch, log: &mut EventLog, calls: Option<&mut CallLog>) -> bool {
    let has_ended = match (calls, log.mappings.is_some()) {
        (Some(calls), true) => {
            let until_ns = now_ns() + LOOK.as_nanos() as u64;
            let mut has_ended = watch.has_ended();
            while !has_ended && now_ns() < until_ns {
                let limit = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
                if log.mappings.as_ref().is_some_and(|mappings| mappings.wait(limit)) {
                    // A program that loads many libraries does not wake up this process for each one, and a look at its mappings would
                    // be in the way of the loader, which changes them in several steps.
                    std::thread::sleep(BETWEEN_NEWS);
                    log.read();
                    log.give_news(calls);
                }
                has_ended = watch.has_ended();
            }
            log.give_news(calls);
            calls.read();
            has_ended
        }
        (Some(calls), false) => {
            let has_ended = watch.wait(LOOK);
            log.read();
            log.give_news(calls);
            calls.read();
            has_ended
        }
        (None, _) => {
            log.forget_news();
            watch.wait(LOOK)
        }
    };
    log.read();
    has_ended
}

/// Begins the watch for the end of the process `pid`.
///
/// # Errors
/// There is no such process, or too many files are open.
pub(crate) fn watch(pid: u32) -> Result<EndWatch, TraceError> {
    EndWatch::new(pid).map_err(|error| match error.raw_os_error() {
        Some(libc::ESRCH) => TraceError::NoProcess { pid },
        _ => TraceError::System { operation: "watch for the end of the program", error },
    })
}

/// Lets `child` end by itself, then by SIGTERM, then by SIGKILL; reads the events meanwhile.
fn end(child: &ReleasedChild, watch: &EndWatch, log: &mut EventLog, mut calls: Option<&mut CallLog>) {
    // A signal from the terminal has reached the child, too.
    let waits = if signal::interrupted() { &[0, SIGTERM, SIGKILL][..] } else { &[SIGTERM, SIGKILL] };
    for number in waits {
        // Fails only if the child has changed its user. Signal 0 has no effect.
        let _ = child.signal(*number);
        let since_ns = now_ns();
        while now_ns() - since_ns < PATIENCE_NS {
            if look(watch, log, calls.as_deref_mut()) {
                return;
            }
        }
    }
}

fn wait(child: ReleasedChild) -> Result<ResourceUsage, TraceError> {
    child.wait().map_err(|error| TraceError::System { operation: "wait for the command", error })
}

fn cannot_observe(what: &str, threads: usize, error: ObserveError) -> TraceError {
    let what = what.to_owned();
    match error {
        ObserveError::Denied => TraceError::Denied { what },
        ObserveError::TooManyFiles => TraceError::TooManyThreads { what, threads },
        ObserveError::System(error) => TraceError::System { operation: "observe its threads", error },
        error => TraceError::System { operation: "observe its threads", error: io::Error::other(error) },
    }
}

/// A thread of a running process.
struct RunningThread {
    number: i32,
    name: String,
    /// True if the thread waits.
    waits: bool,
}

/// Returns the threads of process `pid`.
fn threads_of(pid: u32) -> io::Result<Vec<RunningThread>> {
    // /proc also has a folder for each thread.
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    if process.and_then(|number| number.trim().parse().ok()) != Some(pid) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        // A thread may end at any time. The state is the first word behind the name, which is in parentheses.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let (head, state) = stat.rsplit_once(") ").unwrap_or_default();
        let name = head.split_once('(').map_or("", |(_, name)| name).to_owned();
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            threads.push(RunningThread { number, name, waits: !state.is_empty() && !state.starts_with('R') });
        }
    }
    Ok(threads)
}
