// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes by BPF: calls of the observed functions, reasons of waits, wake-ups, and the processes that the traced
//! ones start.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use framepath_os::bpf::assembler::Assembler;
use framepath_os::bpf::btf::Btf;
use framepath_os::bpf::map::ProgramMap;
use framepath_os::bpf::program::{BpfProgram, FunctionInterface, Link, ProgramKind};
use framepath_os::bpf::ring::Ring;
use framepath_os::process::{children, running};
use framepath_os::time::now_ns;

use crate::calls::{ATTACH, CALL_SITES, Call, CallEvent, CallFilter, CallSite, NO_PTS, Phase};
use crate::device_calls::DeviceCall;
use crate::device_programs::DeviceProbes;
use crate::library::{self, MappedFile};
use crate::mark::{Mark, stage_name};
use crate::probe_programs::{
    LEAVE, Maps, NAME_BYTES, NAMED, PLACE_SHIFT, TAG_DEQUEUED, TAG_EXECUTED, TAG_FORKED, TAG_LOADED,
    TAG_MARKED, TAG_MARKED_END, TAG_PREEMPTED, TAG_QUEUED, TAG_WAITS, TAG_WOKEN,
};
use crate::probe_site::{self, ProbeSite};
use crate::static_probes::static_probes;
use crate::timed_wait::limit_ns;

/// Size of the ring, bytes: 58,000 records between two calls of [`Probes::drain`].
const RING_BYTES: usize = 4 << 20;
/// Greatest number of traced processes.
const PROCESSES: u32 = 65_536;
/// Greatest number of calls that are running at one time.
const CALLS: u32 = 65_536;

/// Greatest number of objects that are announced.
const OBJECTS: u32 = 16_384;

/// Provider of the static probes of framepath_frame.h.
const PROVIDER: &str = "framepath";

/// Environment variable with the value `events` for probes as on kernels before 6.6.
const INTERFACE: &str = "FRAMEPATH_PROBES";

/// Name of the pid namespace that the kernel starts with (PROC_PID_INIT_INO).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Longest wait for a process to stop that a probe has told to.
const STOP_LIMIT: Duration = Duration::from_millis(2);

/// Size of the ring of urgent events, bytes.
const URGENT_BYTES: usize = 256 << 10;

/// Event of a probe. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeEvent {
    /// A call began or ended.
    Call(CallEvent),
    /// A call has made an object ready: its process and address, the kind of its stream, and its name, which ends with a
    /// zero if it is shorter.
    Named { process: i32, object: u64, media: u32, name: [u8; NAME_BYTES] },
    /// A graph of filters is ready: its process and address, and the address, place and name of one of its filters.
    Filter { process: i32, graph: u64, filter: u64, place: u64, name: [u8; NAME_BYTES] },
    /// A frame that the program names itself reaches a stage, or leaves its last one.
    Marked(Mark),
    /// A program has exchanged a buffer with a V4L2 device.
    Device(DeviceCall),
    /// A thread leaves its CPU.
    Switched(SwitchOut),
    /// A waiting thread was woken up.
    Woken {
        /// The thread.
        thread: i32,
        /// Thread that did it; 0 for an interrupt while no thread ran.
        by: i32,
        at_ns: u64,
    },
    /// A traced process has started this process.
    Forked(u32),
    /// A traced process has executed a program, and is stopped.
    Executed(u32),
    /// A traced process has loaded or unloaded libraries, and is stopped.
    Loaded(u32),
}

/// Switch of a CPU away from a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SwitchOut {
    pub(crate) at_ns: u64,
    pub(crate) thread: i32,
    /// System call in which the thread began to wait; `None` if it could run on.
    pub(crate) wait: Option<SystemCall>,
    /// CPU clock of the thread, nanoseconds.
    pub(crate) clock_ns: u64,
}

/// System call in which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SystemCall {
    /// Number of the call; negative if the thread was in none, as for a page fault.
    pub(crate) number: i64,
    /// Time at which the wait ends if nothing else ends it, CLOCK_MONOTONIC nanoseconds; `None` without a limit.
    pub(crate) limit_ns: Option<u64>,
}

/// Probes of all traced processes. They end when the value is dropped.
#[derive(Debug)]
pub(crate) struct Probes {
    /// Events that can wait until this process looks at them.
    ring: Ring,
    /// Events for which this process is woken up.
    urgent: Ring,
    traced: ProgramMap,
    lost: ProgramMap,
    /// Programs of each of [`CALL_SITES`], for its begin and its return.
    calls: Vec<(BpfProgram, BpfProgram)>,
    loader: BpfProgram,
    /// Programs of the static probes `frame` and `frame_end`.
    marks: [BpfProgram; 2],
    tracepoints: Vec<Link>,
    devices: DeviceProbes,
    _maps: [ProgramMap; 2],
    attached: HashMap<u32, Attached>,
    /// Threads that remove links.
    removals: Vec<JoinHandle<()>>,
    /// Functions of the files that were looked at, by the file's identity.
    functions: HashMap<(u64, u64), Vec<Probed>>,
}

/// Probes in one process.
#[derive(Debug, Default)]
struct Attached {
    files: HashSet<(u64, u64)>,
    links: Vec<Link>,
}

/// Function that gets probes.
#[derive(Clone, Copy, Debug)]
enum Probed {
    /// Function of [`CALL_SITES`], by its index.
    Call(usize, u64, ProbeSite),
    /// Function that the loader calls when it has changed the list of libraries.
    Loader(u64, ProbeSite),
    /// Static probe `frame`, or `frame_end` if it is true.
    Mark(bool, u64),
}

/// Numbers of probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProbeCount {
    pub(crate) all: usize,
    pub(crate) emulated: usize,
}

impl Probes {
    /// Loads the programs. Nothing is observed yet.
    ///
    /// # Errors
    /// The capabilities are missing, or the kernel lacks BPF, its type information or a tracepoint.
    pub(crate) fn new() -> io::Result<Probes> {
        // BPF programs see the numbers of the first namespace.
        let namespace = std::fs::read_link("/proc/self/ns/pid")?;
        if namespace.as_os_str() != FIRST_PID_NAMESPACE {
            return Err(io::Error::other("this process is in a pid namespace of its own (a container)"));
        }
        let (ring, urgent) = (Ring::new(RING_BYTES)?, Ring::new(URGENT_BYTES)?);
        let traced = ProgramMap::new(1, PROCESSES)?;
        let running = ProgramMap::new(2, CALLS)?;
        let objects = ProgramMap::new(1, OBJECTS)?;
        let lost = ProgramMap::new(1, 1)?;
        lost.set(0, &[0])?;
        let maps = Maps {
            ring: &ring,
            urgent: &urgent,
            traced: &traced,
            running: &running,
            objects: &objects,
            lost: &lost,
        };
        let kind = ProgramKind::Function(interface()?);
        let function = |program: Assembler| BpfProgram::load(kind, &program);
        let mut calls = Vec::new();
        for (index, site) in CALL_SITES.iter().enumerate() {
            calls.push((function(maps.enter(index, site))?, function(maps.leave(index, site))?));
        }
        let loader = function(maps.loader())?;
        let marks = [function(maps.mark(false))?, function(maps.mark(true))?];
        let no_types = |error| io::Error::other(format!("{}: {error}", framepath_os::bpf::btf::KERNEL));
        let types = Btf::of_kernel().map_err(no_types)?;
        let offsets = types.offsets("task_struct", ["pid", "tgid", "se"]);
        let clock = types.offsets("sched_entity", ["sum_exec_runtime"]);
        let (Some([pid, tgid, entity]), Some([clock])) = (offsets, clock) else {
            return Err(io::Error::other("the kernel's type information has no task_struct"));
        };
        let ids = [pid, tgid];
        let mut tracepoints = Vec::new();
        for (name, program) in [
            ("sched_switch", maps.switch(entity + clock)),
            ("sched_waking", maps.waking(ids)),
            ("sched_process_fork", maps.fork(ids)),
            ("sched_process_exec", maps.exec()),
        ] {
            let program = BpfProgram::load(ProgramKind::RawTracepoint, &program)?;
            tracepoints.push(program.attach_to_tracepoint(name)?);
        }
        let mut devices = DeviceProbes::new(&maps)?;
        devices.attach();
        Ok(Probes {
            ring,
            urgent,
            traced,
            lost,
            calls,
            loader,
            marks,
            tracepoints,
            devices,
            _maps: [running, objects],
            attached: HashMap::new(),
            removals: Vec::new(),
            functions: HashMap::new(),
        })
    }

    /// Traces process `process`: its waits, and what it starts from now on.
    ///
    /// # Errors
    /// There are too many processes.
    pub(crate) fn trace(&self, process: u32) -> io::Result<()> {
        self.traced.set(process.into(), &[1])
    }

    /// Attaches probes to the functions of libraries that process `process` has mapped and that have none yet. Returns
    /// the number of new probes of calls.
    ///
    /// # Errors
    /// The process has ended; a link cannot be made.
    pub(crate) fn attach(&mut self, process: u32) -> io::Result<ProbeCount> {
        let mut count = ProbeCount::default();
        // The first driver of a device may have come since.
        self.devices.attach();
        let attached = self.attached.entry(process).or_default();
        for file in library::mapped(process)? {
            if !attached.files.insert(file.identity) {
                continue;
            }
            let path = file.path.clone();
            for probed in self.functions.entry(file.identity).or_insert_with(|| probed(&file)) {
                let programs = (&self.calls[..], &self.loader, &self.marks);
                attached.links.extend(attach(programs, *probed, &path, process)?);
                if let Probed::Call(_, _, site) = probed {
                    count.all += 2;
                    count.emulated += site.emulated;
                }
            }
        }
        Ok(count)
    }

    /// Removes the probes of a process that has executed another program or has ended.
    pub(crate) fn forget(&mut self, process: u32) {
        let links = self.attached.remove(&process).unwrap_or_default().links;
        self.removals.extend(links.into_iter().map(remove));
    }

    /// Waits for an urgent event, at most for `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        self.urgent.wait(limit)
    }

    /// Returns the urgent events since the last call: of processes, and ends of calls that made an object ready
    /// (these are also among the others).
    pub(crate) fn urgent(&mut self) -> Vec<ProbeEvent> {
        let mut events = Vec::new();
        let ahead_ns = realtime_ahead_ns();
        self.urgent
            .drain(|words| events.extend(words.first_chunk().and_then(|words| parse(words, ahead_ns))));
        events
    }

    /// Calls `take` with each other event since the last call.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(ProbeEvent)) {
        let ahead_ns = realtime_ahead_ns();
        self.ring.drain(|words| {
            let tag = words.get(2).map_or(0, |tag| *tag as i32);
            let event = match tag {
                TAG_QUEUED | TAG_DEQUEUED => {
                    DeviceCall::parse(words, tag == TAG_DEQUEUED).map(ProbeEvent::Device)
                }
                _ => words.first_chunk().and_then(|words| parse(words, ahead_ns)),
            };
            if let Some(event) = event {
                take(event);
            }
        });
    }

    /// Returns the number of events for which the ring had no room, or a little less.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.get::<1>(0).map_or(0, |[count]| count)
    }
}

impl Drop for Probes {
    /// Removes the probes, and lets the processes go on that have been stopped meanwhile.
    fn drop(&mut self) {
        self.tracepoints.clear();
        self.devices.detach();
        for process in self.attached.keys().copied().collect::<Vec<u32>>() {
            self.forget(process);
        }
        for removal in self.removals.drain(..) {
            // It does not panic.
            let _ = removal.join();
        }
        for event in self.urgent() {
            if let ProbeEvent::Executed(process) | ProbeEvent::Loaded(process) = event {
                until_stopped(process);
                resume(process);
            }
        }
    }
}

/// Waits until `process`, for which a probe has sent SIGSTOP, is stopped or has ended. Newer kernels send that signal
/// by an interrupt of the same CPU, which can come after the probe's record. Ends after [`STOP_LIMIT`], because another
/// tracer may have let the process go on.
pub(crate) fn until_stopped(process: u32) {
    let begun = Instant::now();
    while begun.elapsed() < STOP_LIMIT {
        match running::state(process) {
            Ok('T' | 't' | 'Z' | 'X') | Err(_) => return,
            Ok(_) => thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// Lets a process go on that a probe has stopped.
pub(crate) fn resume(process: u32) {
    // Fails if the process has ended.
    let _ = children::signal_process(process, libc::SIGCONT);
}

/// Returns the kernel's interface for probes of functions: its best one, or the older one if the environment asks for it.
fn interface() -> io::Result<FunctionInterface> {
    match std::env::var(INTERFACE) {
        Ok(name) if name == "events" => Ok(FunctionInterface::Events),
        _ => FunctionInterface::best(),
    }
}

/// Removes a link. The kernel waits for some tens of milliseconds until no CPU uses it, and for several together only
/// once.
fn remove(link: Link) -> JoinHandle<()> {
    thread::spawn(move || drop(link))
}

/// Finds the functions of `file` that get probes.
fn probed(file: &MappedFile) -> Vec<Probed> {
    const LOADER: &str = "_dl_debug_state";
    let is_loader = file.name.starts_with("ld-linux");
    let of_file = |site: &CallSite| file.name.starts_with(site.library);
    let mut names: Vec<&str> =
        CALL_SITES.iter().filter(|site| of_file(site)).map(|site| site.symbol).collect();
    if is_loader {
        names.push(LOADER);
    }
    // A file that cannot be read has no functions to probe.
    let functions = match names.is_empty() {
        true => HashMap::new(),
        false => library::functions(&file.path, &names).unwrap_or_default(),
    };
    let site = |name: &str, arguments| {
        functions.get(name).map(|function| (function.offset, choose(&function.code, arguments)))
    };
    let calls = CALL_SITES.iter().enumerate().filter(|(_, site)| of_file(site));
    let calls = calls.filter_map(|(index, call)| {
        let (offset, site) = site(call.symbol, call.arguments())?;
        Some(Probed::Call(index, offset, site))
    });
    let loader =
        is_loader.then(|| site(LOADER, 0)).flatten().map(|(offset, site)| Probed::Loader(offset, site));
    let marks = static_probes(&file.path, PROVIDER).unwrap_or_default().into_iter();
    let marks = marks.filter_map(|probe| match probe.name.as_str() {
        "frame" => Some(Probed::Mark(false, probe.offset)),
        "frame_end" => Some(Probed::Mark(true, probe.offset)),
        _ => None,
    });
    calls.chain(loader).chain(marks).collect()
}

fn choose(code: &[u8], arguments: usize) -> ProbeSite {
    if cfg!(target_arch = "x86_64") { probe_site::choose(code, arguments) } else { ProbeSite::default() }
}

fn attach(
    (calls, loader, marks): (&[(BpfProgram, BpfProgram)], &BpfProgram, &[BpfProgram; 2]),
    probed: Probed,
    path: &Path,
    process: u32,
) -> io::Result<Vec<Link>> {
    Ok(match probed {
        Probed::Call(index, offset, site) => {
            let (enter, leave) = &calls[index];
            vec![
                enter.attach_to_function(path, offset + site.enter, false, process)?,
                leave.attach_to_function(path, offset + site.leave, true, process)?,
            ]
        }
        Probed::Loader(offset, site) => {
            vec![loader.attach_to_function(path, offset + site.enter, false, process)?]
        }
        Probed::Mark(is_end, offset) => {
            vec![marks[usize::from(is_end)].attach_to_function(path, offset, false, process)?]
        }
    })
}

/// Returns by how much CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, nanoseconds.
fn realtime_ahead_ns() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX).saturating_sub(now_ns())
}

/// Returns the name in a record.
fn name(words: &[u64; 8]) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    for (to, word) in name.chunks_exact_mut(8).zip(&words[5..]) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    name
}

/// Returns the event of a record. CLOCK_REALTIME is ahead of CLOCK_MONOTONIC by `ahead_ns`.
fn parse(words: &[u64; 8], ahead_ns: u64) -> Option<ProbeEvent> {
    let [at_ns, ids, tag, object, data, pts, result, _] = *words;
    let (process, thread) = ((ids >> 32) as i32, ids as i32);
    let tag = tag as i32;
    Some(match tag {
        TAG_PREEMPTED => ProbeEvent::Switched(SwitchOut { at_ns, thread, wait: None, clock_ns: data }),
        TAG_WAITS => {
            let number = i64::from(object as i32);
            let limit_ns = limit_ns(at_ns, number, [object >> 32, words[5]], [words[6], words[7]], ahead_ns);
            let wait = Some(SystemCall { number, limit_ns });
            ProbeEvent::Switched(SwitchOut { at_ns, thread, wait, clock_ns: data })
        }
        TAG_WOKEN => ProbeEvent::Woken { thread: object as i32, by: thread, at_ns },
        TAG_FORKED => ProbeEvent::Forked(object as u32),
        TAG_EXECUTED => ProbeEvent::Executed(process as u32),
        TAG_LOADED => ProbeEvent::Loaded(process as u32),
        TAG_MARKED | TAG_MARKED_END => {
            let stage = (tag == TAG_MARKED).then(|| stage_name(&name(words)));
            ProbeEvent::Marked(Mark { at_ns, process, thread, frame: object, stage })
        }
        _ if tag & NAMED != 0 => {
            let name = name(words);
            let site = CALL_SITES.get((tag & 0xff) as usize)?;
            if site.call == Call::OpenGraph {
                let place = (tag >> PLACE_SHIFT) as u64;
                return Some(ProbeEvent::Filter { process, graph: object, filter: data, place, name });
            }
            ProbeEvent::Named { process, object, media: (data >> 32) as u32, name }
        }
        _ => {
            let site = CALL_SITES.get((tag & 0xff) as usize)?;
            let phase = if tag & LEAVE == 0 { Phase::Enter } else { Phase::Leave };
            let result = if phase == Phase::Leave { result as i32 } else { 0 };
            // Without an item, and for one without bytes, the time means nothing.
            let has_time = data != 0 && site.item.pts_offset().is_some();
            let pts = if has_time { pts as i64 } else { NO_PTS };
            let call = match (site.filter, data) {
                (CallFilter::Surface, data) if data == u64::from(ATTACH) => Call::Attach,
                _ => site.call,
            };
            ProbeEvent::Call(CallEvent { at_ns, process, thread, call, phase, object, data, pts, result })
        }
    })
}
