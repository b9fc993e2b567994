// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes by BPF: calls of the observed functions, reasons of waits, wake-ups, and the processes that the traced
//! ones start.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use framepath_os::bpf::assembler::Assembler;
use framepath_os::bpf::btf::Btf;
use framepath_os::bpf::link_removal::{remove, remove_all};
use framepath_os::bpf::map::ProgramMap;
use framepath_os::bpf::program::{
    BpfProgram, FunctionInterface, FunctionPlace, Link, ProgramKind, attach_to_functions,
};
use framepath_os::bpf::ring::Ring;
use framepath_os::process::regular_file::RegularFile;
use framepath_os::time::now_ns;

use crate::call_programs::CallPrograms;
use crate::calls::{CALL_SITES, CallSite};
use crate::device_calls::DeviceCall;
use crate::device_programs::DeviceProbes;
use crate::library::{self, FoundFunctions, MappedFile};
use crate::loader_cache::known_libraries;
use crate::own_user::OwnUser;
use crate::patience::Patience;
use crate::probe_event::{ProbeEvent, parse};
use crate::probe_programs::{Maps, TAG_DEQUEUED, TAG_QUEUED, TAG_SWITCHED};
use crate::probe_site::{self, ProbeSite};
use crate::static_probes::static_probes;
use crate::switch_program::TaskMembers;

/// Size of the ring, bytes: 58,000 records between two calls of [`Probes::drain`].
const RING_BYTES: usize = 4 << 20;
/// Greatest number of traced processes.
const PROCESSES: u32 = 65_536;
/// Greatest number of calls that are running at one time.
const CALLS: u32 = 65_536;

/// Greatest number of objects whose facts are sent: pads, and objects that a running program has opened before.
const OBJECTS: u32 = 65_536;

/// Greatest number of links. The kernel needs a descriptor for each, and some tens of milliseconds to remove it.
const MOST_LINKS: usize = 4096;

/// Greatest number of static programs that are named.
const MOST_UNPROBED: usize = 16;
/// Most files without functions to probe that are remembered.
const MOST_PLAIN: usize = 65_536;

/// Provider of the static probes of framepath_frame.h.
const PROVIDER: &str = "framepath";

/// Environment variable with the value `links` for probes as on kernels before 6.13, `events` for those before 6.6.
const INTERFACE: &str = "FRAMEPATH_PROBES";

/// Name of the pid namespace that the kernel starts with (PROC_PID_INIT_INO).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Beginnings of the names of libraries that get probes before a process has mapped them. Those of windows get them then: other
/// programs call them often, and a program shows its first picture long after that.
const EARLY: [&str; 7] = [
    "libavcodec",
    "libavformat",
    "libavfilter",
    "libavutil",
    "libgstreamer-1.0",
    "libgstbase-1.0",
    "libgstvideo-1.0",
];

/// Probes of all traced processes. They end when the value is dropped.
#[derive(Debug)]
pub(crate) struct Probes {
    ring: Ring,
    traced: ProgramMap,
    lost: ProgramMap,
    running: ProgramMap,
    objects: ProgramMap,
    /// True for a program that ran before.
    names_at_use: bool,
    /// User whose processes alone are recorded.
    user: Option<OwnUser>,
    calls: CallPrograms,
    /// Programs of the static probes `frame` and `frame_end`.
    marks: [BpfProgram; 2],
    tracepoints: Vec<Link>,
    task: TaskMembers,
    devices: DeviceProbes,
    scope: ProbeScope,
    /// Identities of the files with probes, for a process or for all.
    attached: HashSet<(Option<u32>, (u64, u64))>,
    /// Files with functions to probe, by their identities, which are theirs as long as they are open.
    files: HashMap<(u64, u64), Rc<ProbedFile>>,
    /// Files without such functions: identity, time of the change, and name. They are closed, so that a new file can get the
    /// identity, and the functions that are looked for depend on the name.
    plain: HashSet<((u64, u64), i128, String)>,
    /// Files of each process, if the probes are in single processes.
    of_process: HashMap<u32, Vec<Rc<ProbedFile>>>,
    /// Probes in files, for a process or for all.
    links: Vec<(Option<u32>, Link)>,
    count: ProbeCount,
    unprobed: Vec<String>,
    /// Time for looking at files, and the number of those that were not looked at.
    patience: Patience,
    skipped: u64,
}

/// Processes in which probes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeScope {
    /// In all processes on the machine, where those that are not traced pay about a microsecond for each call. No call of a
    /// process that a traced one starts is missed.
    All,
    /// In the traced process alone. Those that it starts get theirs when they map the files, so their first calls may be missed.
    Process,
}

impl ProbeScope {
    /// Returns the scope for the program in the file `program`: one that is linked to the observed libraries makes the calls itself,
    /// rather than in programs that it starts.
    pub(crate) fn of(program: &Path) -> ProbeScope {
        ProbeScope::with_libraries(
            RegularFile::open(program)
                .and_then(|file| library::needed(&file))
                .unwrap_or_default()
                .iter()
                .map(String::as_str),
        )
    }

    /// Returns the scope for a program with these libraries.
    pub(crate) fn with_libraries<'a>(mut libraries: impl Iterator<Item = &'a str>) -> ProbeScope {
        match libraries.any(|library| EARLY.iter().any(|start| library.starts_with(start))) {
            true => ProbeScope::Process,
            false => ProbeScope::All,
        }
    }
}

/// Function that gets probes.
#[derive(Clone, Copy, Debug)]
enum Probed {
    /// Function of [`CALL_SITES`], by its index.
    Call(usize, u64, ProbeSite),
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
    /// Loads the programs. Nothing is observed yet. With `names_at_use`, for a program that runs already, objects are named at
    /// their first use, not only when they are opened.
    ///
    /// # Errors
    /// The capabilities are missing, or the kernel lacks BPF, its type information or a tracepoint.
    pub(crate) fn new(names_at_use: bool) -> io::Result<Probes> {
        // BPF programs see the numbers of the first namespace.
        let namespace = std::fs::read_link("/proc/self/ns/pid")
            .map_err(|error| io::Error::new(error.kind(), format!("/proc/self/ns/pid: {error}")))?;
        if namespace.as_os_str() != FIRST_PID_NAMESPACE {
            return Err(io::Error::other("this process is in a pid namespace of its own (a container)"));
        }
        let ring = Ring::new(RING_BYTES)?;
        let traced = ProgramMap::new(1, PROCESSES)?;
        let running = ProgramMap::new(2, CALLS)?;
        let objects = ProgramMap::new(1, OBJECTS)?;
        let lost = ProgramMap::new(1, 1)?;
        let user = OwnUser::unless_root()?;
        lost.set(0, &[0])?;
        let maps = Maps {
            ring: &ring,
            traced: &traced,
            running: &running,
            objects: &objects,
            lost: &lost,
            names_at_use,
            user,
        };
        let interface = interface()?;
        let function =
            |program: Assembler| BpfProgram::load(ProgramKind::Function(interface.alone()), &program);
        let marks = [function(maps.mark(false))?, function(maps.mark(true))?];
        let no_types = |error| io::Error::other(format!("{}: {error}", framepath_os::bpf::btf::KERNEL));
        let types = Btf::of_kernel().map_err(no_types)?;
        let Some(task) = TaskMembers::of(&types) else {
            return Err(io::Error::other("the kernel's type information has no task_struct"));
        };
        let ids = [task.pid, task.tgid];
        let mut tracepoints = Vec::new();
        for (name, program) in [
            ("sched_switch", maps.switch(&task)),
            ("sched_waking", maps.waking(ids, task.state)),
            ("sched_process_fork", maps.fork(ids)),
        ] {
            let program = BpfProgram::load(ProgramKind::RawTracepoint, &program)?;
            tracepoints.push(program.attach_to_tracepoint(name)?);
        }
        if let Some(user) = user {
            let program = BpfProgram::load(ProgramKind::RawTracepoint, &maps.exec(&task, user))?;
            tracepoints.push(program.attach_to_tracepoint("sched_process_exec")?);
        }
        let mut devices = DeviceProbes::new(&maps)?;
        devices.attach();
        Ok(Probes {
            ring,
            traced,
            lost,
            running,
            objects,
            names_at_use,
            user,
            calls: CallPrograms::new(interface),
            marks,
            tracepoints,
            task,
            devices,
            scope: ProbeScope::All,
            attached: HashSet::new(),
            files: HashMap::new(),
            plain: HashSet::new(),
            of_process: HashMap::new(),
            links: Vec::new(),
            count: ProbeCount::default(),
            unprobed: Vec::new(),
            patience: Patience::new(),
            skipped: 0,
        })
    }

    /// Traces process `process`: its waits, and what it starts from now on.
    ///
    /// # Errors
    /// There are too many processes.
    pub(crate) fn trace(&self, process: u32) -> io::Result<()> {
        self.traced.set(process.into(), &[1])
    }

    /// Attaches probes to the libraries of FFmpeg and GStreamer that the loader finds, and to the file of
    /// `program`, all of them before `process` has mapped them. `folders` is LD_LIBRARY_PATH of the program.
    ///
    /// # Errors
    /// As for [`Probes::attach`].
    pub(crate) fn attach_known(
        &mut self,
        process: u32,
        program: Option<&Path>,
        folders: Option<&OsStr>,
    ) -> io::Result<()> {
        let is_wanted = |name: &str| EARLY.iter().any(|start| name.starts_with(start));
        let libraries = known_libraries(folders, is_wanted);
        for path in libraries.into_iter().chain(program.map(Path::to_owned)) {
            // The loader's cache may be older than the files.
            let Ok(file) = MappedFile::at(path) else { continue };
            match self.attach(&file, process) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Attaches probes to the observed functions of a file, and to its static probes, for `process` or, as the scope says, for
    /// all. Returns true if it has some and had no probes before.
    ///
    /// # Errors
    /// `WouldBlock` if there is no time for a look at the file now. A link cannot be made; the file cannot be opened.
    pub(crate) fn attach(&mut self, file: &MappedFile, process: u32) -> io::Result<bool> {
        // From here on, the file is the one that is open: a hostile program can change what its path means.
        let opened = RegularFile::open_chosen(&file.path, process)?;
        let identity = opened.identity();
        if let Some(found) = self.files.get(&identity).cloned() {
            return self.attach_found(&found, process);
        }
        let version = (identity, opened.changed_ns(), file.name.clone());
        if self.plain.contains(&version) {
            return Ok(false);
        }
        if self.patience.left().is_zero() {
            self.skipped += 1;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let since = Instant::now();
        let found = Rc::new(probed(opened, &file.name));
        if found.is_static && found.probed.is_empty() && self.unprobed.len() < MOST_UNPROBED {
            self.unprobed.push(file.name.clone());
        }
        let attached = self.attach_found(&found, process);
        match &attached {
            Ok(_) if !found.probed.is_empty() => _ = self.files.insert(identity, found),
            // The process has ended.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            _ => {
                if self.plain.len() >= MOST_PLAIN {
                    self.plain.clear();
                }
                self.plain.insert(version);
            }
        }
        // Making links takes its time, too, but a file has some at most.
        self.patience.spend(since);
        attached
    }

    /// Attaches the probes of a file for `process` or, as the scope says, for all.
    fn attach_found(&mut self, found: &Rc<ProbedFile>, process: u32) -> io::Result<bool> {
        let scope = Some(process).filter(|_| self.scope == ProbeScope::Process);
        let key = (scope, found.file.identity());
        if found.probed.is_empty() || self.attached.contains(&key) {
            return Ok(false);
        }
        self.check_room_for(found)?;
        let maps = Maps {
            ring: &self.ring,
            traced: &self.traced,
            running: &self.running,
            objects: &self.objects,
            lost: &self.lost,
            names_at_use: self.names_at_use,
            user: self.user,
        };
        for probed in &found.probed {
            if let Probed::Call(index, ..) = probed {
                self.calls.load(*index, &maps)?;
            }
        }
        let places: Vec<FunctionPlace<'_>> =
            found.probed.iter().flat_map(|probed| self.places(*probed)).collect();
        let links = attach_to_functions(&found.file.path(), &places, scope)?;
        self.attached.insert(key);
        self.links.extend(links.into_iter().map(|link| (scope, link)));
        for probed in &found.probed {
            if let Probed::Call(_, _, site) = probed {
                self.count.all += 2;
                self.count.emulated += site.emulated;
            }
        }
        if scope.is_some() {
            self.of_process.entry(process).or_default().push(found.clone());
        }
        Ok(true)
    }

    /// Checks that a file's probes are not too many.
    ///
    /// # Errors
    /// They are.
    fn check_room_for(&self, found: &ProbedFile) -> io::Result<()> {
        match self.links.len() + 2 * found.probed.len() > MOST_LINKS {
            true => Err(io::Error::other(format!("more than {MOST_LINKS} probes"))),
            false => Ok(()),
        }
    }

    /// Attaches the probes of `parent` for `child`, which it has started and which goes on in the same program.
    ///
    /// # Errors
    /// As for [`Probes::attach`].
    pub(crate) fn adopt(&mut self, parent: u32, child: u32) -> io::Result<()> {
        for found in self.of_process.get(&parent).cloned().unwrap_or_default() {
            self.attach_found(&found, child)?;
        }
        Ok(())
    }

    /// Returns the places of a probe.
    fn places(&self, probed: Probed) -> Vec<FunctionPlace<'_>> {
        let place = |program, offset, at_return| FunctionPlace { program, offset, at_return };
        match probed {
            Probed::Call(index, offset, site) => self.calls.places(index, offset, site),
            Probed::Mark(is_end, offset) => vec![place(&self.marks[usize::from(is_end)], offset, false)],
        }
    }

    /// Sets the processes in which the next probes will be.
    pub(crate) fn set_scope(&mut self, scope: ProbeScope) {
        self.scope = scope;
    }

    /// Returns the processes in which the probes are.
    pub(crate) fn scope(&self) -> ProbeScope {
        self.scope
    }

    /// Forgets a process that has ended, and removes its probes.
    pub(crate) fn forget(&mut self, process: u32) {
        if self.of_process.remove(&process).is_none() {
            return;
        }
        self.attached.retain(|(scope, _)| *scope != Some(process));
        let (ended, others) =
            std::mem::take(&mut self.links).into_iter().partition(|(scope, _)| *scope == Some(process));
        self.links = others;
        let ended: Vec<(Option<u32>, Link)> = ended;
        remove(ended.into_iter().map(|(_, link)| link).collect());
    }

    /// Attaches the programs at the tracepoints of devices that have come since: with the first driver.
    pub(crate) fn attach_devices(&mut self) {
        self.devices.attach();
    }

    /// True if the kernel tells which threads wait for the CPU quota of their group.
    pub(crate) fn knows_quotas(&self) -> bool {
        self.task.knows_quotas()
    }

    /// Returns the numbers of the probes.
    pub(crate) fn count(&self) -> ProbeCount {
        self.count
    }

    /// Returns the names of the static programs in which no observed function was found.
    pub(crate) fn unprobed(&self) -> &[String] {
        &self.unprobed
    }

    /// Returns the number of files that were not looked at, because others took too long.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Calls `take` with each event since the last call.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(ProbeEvent)) {
        let ahead_ns = realtime_ahead_ns();
        let Probes { ring, task, .. } = self;
        ring.drain(|words| {
            let tag = words.get(2).map_or(0, |tag| *tag as i32);
            let event = match tag {
                TAG_QUEUED | TAG_DEQUEUED => {
                    DeviceCall::parse(words, tag == TAG_DEQUEUED).map(ProbeEvent::Device)
                }
                TAG_SWITCHED => task.switch(words, ahead_ns).map(ProbeEvent::Switched),
                _ => words.first_chunk().and_then(parse),
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

impl Probes {
    /// Removes all probes. Events that have come are still there.
    pub(crate) fn detach(&mut self) {
        self.tracepoints.clear();
        self.devices.detach();
        remove_all(self.links.drain(..).map(|(_, link)| link).collect());
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Returns the kernel's interface for probes of functions: its best one, or the older one if the environment asks for it.
fn interface() -> io::Result<FunctionInterface> {
    match std::env::var(INTERFACE) {
        Ok(name) if name == "events" => Ok(FunctionInterface::Events),
        Ok(name) if name == "links" => Ok(FunctionInterface::Links),
        _ => FunctionInterface::best(),
    }
}

/// True for the name of a program, or of a library that may have FFmpeg's libraries inside.
fn has_libraries_inside(name: &str) -> bool {
    !name.contains(".so") || name.contains("ffmpeg")
}

/// Probes that a file gets.
#[derive(Debug)]
struct ProbedFile {
    file: RegularFile,
    probed: Vec<Probed>,
    /// True for a program without a loader.
    is_static: bool,
}

/// Finds the functions of `file` that get probes.
fn probed(file: RegularFile, file_name: &str) -> ProbedFile {
    let of_file = |site: &CallSite| has_libraries_inside(file_name) || file_name.starts_with(site.library);
    let names: Vec<&str> = CALL_SITES.iter().filter(|site| of_file(site)).map(|site| site.symbol).collect();
    // A file that cannot be read has no functions to probe.
    let found = match names.is_empty() {
        true => FoundFunctions::default(),
        false => library::functions(&file, &names).unwrap_or_default(),
    };
    let site = |name: &str, arguments| {
        let function = found.functions.get(name)?;
        Some((function.offset, choose(&function.code, arguments)))
    };
    let calls = CALL_SITES.iter().enumerate().filter(|(_, site)| of_file(site));
    let calls = calls.filter_map(|(index, call)| {
        let (offset, site) = site(call.symbol, call.arguments())?;
        Some(Probed::Call(index, offset, site))
    });
    let marks = static_probes(&file, PROVIDER).unwrap_or_default().into_iter();
    let marks = marks.filter_map(|probe| match probe.name.as_str() {
        "frame" => Some(Probed::Mark(false, probe.offset)),
        "frame_end" => Some(Probed::Mark(true, probe.offset)),
        _ => None,
    });
    let probed = calls.chain(marks).collect();
    ProbedFile { file, probed, is_static: found.is_static }
}

fn choose(code: &[u8], arguments: usize) -> ProbeSite {
    if cfg!(target_arch = "x86_64") { probe_site::choose(code, arguments) } else { ProbeSite::default() }
}

/// Returns by how much CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, nanoseconds.
fn realtime_ahead_ns() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX).saturating_sub(now_ns())
}
