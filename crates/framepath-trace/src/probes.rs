// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes by BPF: calls of the observed functions, reasons of waits, wake-ups, and the processes that the traced
//! ones start.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use framepath_os::bpf::assembler::Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use framepath_os::bpf::assembler::{Assembler, Condition, Helper, Label, Register};
use framepath_os::bpf::btf::Btf;
use framepath_os::bpf::map::ProgramMap;
use framepath_os::bpf::program::{Link, Program, ProgramKind};
use framepath_os::bpf::ring::Ring;

use crate::calls::{CALL_SITES, Call, CallEvent, CallSite, Item, NO_PTS, Phase};
use crate::library::{self, MappedFile};
use crate::probe_site::{self, ProbeSite};

/// Size of the ring, bytes: 58,000 records between two calls of [`Probes::drain`].
const RING_BYTES: usize = 4 << 20;
/// Greatest number of traced processes.
const PROCESSES: u32 = 65_536;
/// Greatest number of calls that are running at one time.
const CALLS: u32 = 65_536;

/// Longest name of an object that a record has, bytes.
pub(crate) const NAME_BYTES: usize = 24;

/// Greatest number of objects that are announced.
const OBJECTS: u32 = 16_384;

/// Name of the pid namespace that the kernel starts with (PROC_PID_INIT_INO).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

const SIGSTOP: i32 = libc::SIGSTOP;

/// Size of the ring of urgent events, bytes.
const URGENT_BYTES: usize = 256 << 10;

/// Flag of `bpf_ringbuf_output`: this process is not woken up, because it looks at the ring anyway.
const NO_WAKEUP: i32 = 1;
/// Flag of `bpf_ringbuf_output`: this process is woken up in any case.
const FORCE_WAKEUP: i32 = 2;

// Record: eight words below the end of the stack.
const RECORD: i16 = -64;
const AT: i16 = RECORD;
const IDS: i16 = RECORD + 8;
const TAG: i16 = RECORD + 16;
const FIELDS: [i16; 5] = [RECORD + 24, RECORD + 32, RECORD + 40, RECORD + 48, RECORD + 56];
const RECORD_BYTES: i32 = 64;
const KEY: i16 = RECORD - 8;
/// Two words: the object and the item of a call.
const STASH: i16 = RECORD - 24;
const SCRATCH: i16 = RECORD - 32;

/// Tags of the records that are no calls. Calls have the index of their site, and the phase in bit 8.
const TAG_WAITS: i32 = 0x1000;
const TAG_WOKEN: i32 = 0x1001;
const TAG_FORKED: i32 = 0x1002;
const TAG_EXECUTED: i32 = 0x1003;
const TAG_LOADED: i32 = 0x1004;
const LEAVE: i32 = 0x100;
/// Bit of the tag of a record with the name of a site's object.
const NAMED: i32 = 0x200;

/// Offsets in the registers of user mode (struct pt_regs).
#[cfg(target_arch = "x86_64")]
mod registers {
    pub(super) const ARGUMENTS: [i16; 2] = [112, 104];
    pub(super) const RESULT: i16 = 80;
    /// Number of the system call, and its first two arguments.
    pub(super) const SYSTEM_CALL: [i16; 3] = [120, 112, 104];
}
#[cfg(target_arch = "aarch64")]
mod registers {
    pub(super) const ARGUMENTS: [i16; 2] = [0, 8];
    pub(super) const RESULT: i16 = 0;
    pub(super) const SYSTEM_CALL: [i16; 3] = [280, 272, 8];
}

/// Event of a probe. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeEvent {
    /// A call began or ended.
    Call(CallEvent),
    /// A call has made an object ready: its process and address, the kind of its stream, and its name, which ends with a
    /// zero if it is shorter.
    Named { process: i32, object: u64, media: u32, name: [u8; NAME_BYTES] },
    /// A thread begins to wait in a system call.
    Waits(SystemCall),
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

/// System call in which a thread began to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SystemCall {
    pub(crate) at_ns: u64,
    pub(crate) thread: i32,
    /// Number of the call; negative if the thread was in none, as for a page fault.
    pub(crate) number: i64,
    /// Its first two arguments.
    pub(crate) arguments: [u64; 2],
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
    calls: Vec<(Program, Program)>,
    loader: Program,
    _tracepoints: Vec<Link>,
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
        let function = |program: Assembler| Program::load(ProgramKind::Function, &program);
        let mut calls = Vec::new();
        for (index, site) in CALL_SITES.iter().enumerate() {
            calls.push((function(maps.enter(index, site))?, function(maps.leave(index, site))?));
        }
        let loader = function(maps.loader())?;
        let ids = Btf::of_kernel()?.offsets("task_struct", ["pid", "tgid"]);
        let ids = ids.ok_or_else(|| io::Error::other("the kernel's type information has no task_struct"))?;
        let mut tracepoints = Vec::new();
        for (name, program) in [
            ("sched_switch", maps.switch()),
            ("sched_waking", maps.waking(ids)),
            ("sched_process_fork", maps.fork(ids)),
            ("sched_process_exec", maps.exec()),
        ] {
            let program = Program::load(ProgramKind::RawTracepoint, &program)?;
            tracepoints.push(program.attach_to_tracepoint(name)?);
        }
        Ok(Probes {
            ring,
            urgent,
            traced,
            lost,
            calls,
            loader,
            _tracepoints: tracepoints,
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
        let attached = self.attached.entry(process).or_default();
        for file in library::mapped(process)? {
            if !attached.files.insert(file.identity) {
                continue;
            }
            let path = file.path.clone();
            for probed in self.functions.entry(file.identity).or_insert_with(|| probed(&file)) {
                attached.links.extend(attach(&self.calls, &self.loader, *probed, &path, process)?);
                if let Probed::Call(_, _, site) = probed {
                    count.all += 2;
                    count.emulated += if site.is_emulated { 2 } else { 0 };
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
        self.urgent.drain(|words| events.extend(words.first_chunk().and_then(parse)));
        events
    }

    /// Calls `take` with each other event since the last call.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(ProbeEvent)) {
        self.ring.drain(|words| {
            if let Some(event) = words.first_chunk().and_then(parse) {
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
    fn drop(&mut self) {
        for process in self.attached.keys().copied().collect::<Vec<u32>>() {
            self.forget(process);
        }
        for removal in self.removals.drain(..) {
            // It does not panic.
            let _ = removal.join();
        }
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
    if names.is_empty() {
        return Vec::new();
    }
    // A file that cannot be read has no functions to probe.
    let functions = library::functions(&file.path, &names).unwrap_or_default();
    let site = |name: &str| functions.get(name).map(|function| (function.offset, choose(&function.code)));
    let calls = CALL_SITES.iter().enumerate().filter(|(_, site)| of_file(site));
    let calls = calls.filter_map(|(index, call)| {
        let (offset, site) = site(call.symbol)?;
        Some(Probed::Call(index, offset, site))
    });
    let loader = is_loader.then(|| site(LOADER)).flatten();
    calls.chain(loader.map(|(offset, site)| Probed::Loader(offset, site))).collect()
}

fn choose(code: &[u8]) -> ProbeSite {
    if cfg!(target_arch = "x86_64") { probe_site::choose(code) } else { ProbeSite::default() }
}

fn attach(
    calls: &[(Program, Program)],
    loader: &Program,
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
    })
}

fn parse(words: &[u64; 8]) -> Option<ProbeEvent> {
    let [at_ns, ids, tag, object, data, pts, result, _] = *words;
    let (process, thread) = ((ids >> 32) as i32, ids as i32);
    let tag = tag as i32;
    Some(match tag {
        TAG_WAITS => {
            let (number, arguments) = (object as i64, [data, pts]);
            ProbeEvent::Waits(SystemCall { at_ns, thread, number, arguments })
        }
        TAG_WOKEN => ProbeEvent::Woken { thread: object as i32, by: thread, at_ns },
        TAG_FORKED => ProbeEvent::Forked(object as u32),
        TAG_EXECUTED => ProbeEvent::Executed(process as u32),
        TAG_LOADED => ProbeEvent::Loaded(process as u32),
        _ if tag & NAMED != 0 => {
            let mut name = [0; NAME_BYTES];
            for (to, word) in name.chunks_exact_mut(8).zip(&words[5..]) {
                to.copy_from_slice(&word.to_ne_bytes());
            }
            ProbeEvent::Named { process, object, media: (data >> 32) as u32, name }
        }
        _ => {
            let site = CALL_SITES.get((tag & 0xff) as usize)?;
            let phase = if tag & LEAVE == 0 { Phase::Enter } else { Phase::Leave };
            let result = if phase == Phase::Leave { result as i32 } else { 0 };
            // Without an item, and for one without bytes, the time means nothing.
            let pts = if data == 0 { NO_PTS } else { pts as i64 };
            let call = site.call;
            ProbeEvent::Call(CallEvent { at_ns, process, thread, call, phase, object, data, pts, result })
        }
    })
}

/// Maps that the programs use.
struct Maps<'a> {
    ring: &'a Ring,
    urgent: &'a Ring,
    traced: &'a ProgramMap,
    running: &'a ProgramMap,
    objects: &'a ProgramMap,
    lost: &'a ProgramMap,
}

impl Maps<'_> {
    /// Program at the begin of a function: keeps the arguments for the return, and writes a record.
    fn enter(&self, index: usize, site: &CallSite) -> Assembler {
        let mut program = Assembler::new();
        program.copy(R6, R1);
        begin(&mut program, index as i32);
        program.load(R8, R6, registers::ARGUMENTS[0]).load(R9, R6, registers::ARGUMENTS[1]);
        program.store(R10, FIELDS[0], R8);
        program.store(R10, STASH, R8).store(R10, STASH + 8, R9);
        key(&mut program, index as i32);
        program.map(R1, self.running.as_fd());
        address(&mut program, R2, KEY);
        address(&mut program, R3, STASH);
        program.set(R4, 0).call(Helper::MapUpdate);
        if site.read_at == Phase::Enter {
            read_item(&mut program, site.item);
        }
        self.send(&mut program, self.ring, NO_WAKEUP);
        if site.call.is_nested() {
            self.announce(&mut program);
        }
        program.exit(0);
        program
    }

    /// Sends the record also as an urgent one if the object, whose address is in R8, is new: its name must be read before
    /// the program is done with it.
    fn announce(&self, program: &mut Assembler) {
        let known = program.label();
        program.store(R10, KEY, R8).map(R1, self.objects.as_fd());
        address(program, R2, KEY);
        program.call(Helper::MapLookup).jump_if(R0, Condition::NotEqual, 0, &known);
        program.map(R1, self.objects.as_fd());
        address(program, R2, KEY);
        address(program, R3, KEY);
        program.set(R4, 0).call(Helper::MapUpdate);
        self.send(program, self.urgent, FORCE_WAKEUP);
        program.place(known);
    }

    /// Program at the return of a function.
    fn leave(&self, index: usize, site: &CallSite) -> Assembler {
        let mut program = Assembler::new();
        let end = program.label();
        program.copy(R6, R1);
        begin(&mut program, index as i32 | LEAVE);
        key(&mut program, index as i32);
        program.map(R1, self.running.as_fd());
        address(&mut program, R2, KEY);
        program.call(Helper::MapLookup);
        // The function began before the probes.
        program.jump_if(R0, Condition::Equal, 0, &end);
        program.load(R8, R0, 0).load(R9, R0, 8);
        program.load(R1, R6, registers::RESULT).store(R10, FIELDS[3], R1);
        program.store(R10, FIELDS[0], R8);
        if site.read_at == Phase::Leave {
            read_item(&mut program, site.item);
        }
        self.send(&mut program, self.ring, NO_WAKEUP);
        match site.call {
            // The name of an AVCodec, an AVInputFormat or an AVOutputFormat.
            Call::OpenCodec | Call::OpenInput | Call::OpenOutput => {
                let format = if site.call == Call::OpenInput { 8 } else { 16 };
                read_name(&mut program, index as i32, format);
                self.send(&mut program, self.ring, NO_WAKEUP);
            }
            // Filters are several objects, which are read from outside, while the graph is new.
            Call::OpenGraph => self.send(&mut program, self.urgent, FORCE_WAKEUP),
            _ => {}
        }
        program.place(end).exit(0);
        program
    }

    /// Program at the function that the loader calls for debuggers: stops the process.
    fn loader(&self) -> Assembler {
        let mut program = Assembler::new();
        begin(&mut program, TAG_LOADED);
        self.send(&mut program, self.urgent, FORCE_WAKEUP);
        program.set(R1, SIGSTOP).call(Helper::SendSignal).exit(0);
        program
    }

    /// Program at a switch of threads: why the thread waits that leaves its CPU.
    fn switch(&self) -> Assembler {
        let mut program = Assembler::new();
        let end = program.label();
        // Arguments: preempt, prev, next, and since Linux 5.18 the state of prev; 0 is runnable.
        program.load(R8, R1, 24).jump_if(R8, Condition::Equal, 0, &end);
        begin(&mut program, TAG_WAITS);
        self.unless_traced(&mut program, &end);
        program.call(Helper::CurrentTask).copy(R1, R0).call(Helper::TaskRegisters).copy(R8, R0);
        for (field, register) in FIELDS.into_iter().zip(registers::SYSTEM_CALL) {
            program.load(R1, R8, register).store(R10, field, R1);
        }
        self.send(&mut program, self.ring, NO_WAKEUP);
        program.place(end).exit(0);
        program
    }

    /// Program at the wake-up of a thread.
    fn waking(&self, [pid, tgid]: [u32; 2]) -> Assembler {
        let mut program = Assembler::new();
        let end = program.label();
        program.load(R9, R1, 0);
        read_kernel(&mut program, R8, R9, tgid);
        begin(&mut program, TAG_WOKEN);
        lookup(&mut program, self.traced, R8, &end);
        read_kernel(&mut program, R8, R9, pid);
        program.store(R10, FIELDS[0], R8);
        self.send(&mut program, self.ring, NO_WAKEUP);
        program.place(end).exit(0);
        program
    }

    /// Program at the start of a thread or process: the children of a traced process are traced.
    fn fork(&self, [_, tgid]: [u32; 2]) -> Assembler {
        let mut program = Assembler::new();
        let (end, other) = (program.label(), program.label());
        program.load(R9, R1, 8);
        begin(&mut program, TAG_FORKED);
        self.unless_traced(&mut program, &end);
        read_kernel(&mut program, R8, R9, tgid);
        program.store(R10, FIELDS[0], R8);
        program.store(R10, SCRATCH, R8);
        // A thread of the same process is no news.
        program.load(R1, R10, KEY);
        program.subtract(R1, R8);
        program.jump_if(R1, Condition::NotEqual, 0, &other).jump(&end);
        program.place(other);
        program.map(R1, self.traced.as_fd());
        address(&mut program, R2, SCRATCH);
        program.store_value(R10, STASH, 1);
        address(&mut program, R3, STASH);
        program.set(R4, 0).call(Helper::MapUpdate);
        self.send(&mut program, self.urgent, FORCE_WAKEUP);
        program.place(end).exit(0);
        program
    }

    /// Program behind exec: stops the traced process before its first instruction.
    fn exec(&self) -> Assembler {
        let mut program = Assembler::new();
        let end = program.label();
        begin(&mut program, TAG_EXECUTED);
        self.unless_traced(&mut program, &end);
        self.send(&mut program, self.urgent, FORCE_WAKEUP);
        program.set(R1, SIGSTOP).call(Helper::SendSignal);
        program.place(end).exit(0);
        program
    }

    /// Jumps to `end` if the current process, whose ids are in R7, is not traced. Leaves its number at KEY.
    fn unless_traced(&self, program: &mut Assembler, end: &Label) {
        program.copy(R8, R7).shift_right(R8, 32);
        lookup(program, self.traced, R8, end);
    }

    /// Sends the record; counts it if there is no room.
    fn send(&self, program: &mut Assembler, ring: &Ring, flags: i32) {
        let sent = program.label();
        program.map(R1, ring.as_fd());
        address(program, R2, RECORD);
        program.set(R3, RECORD_BYTES).set(R4, flags).call(Helper::RingOutput);
        program.jump_if(R0, Condition::Equal, 0, &sent);
        program.store_value(R10, KEY, 0).map(R1, self.lost.as_fd());
        address(program, R2, KEY);
        program.call(Helper::MapLookup).jump_if(R0, Condition::Equal, 0, &sent);
        // Two CPUs may count one loss together: the number is only shown.
        program.load(R1, R0, 0).add(R1, 1).store(R0, 0, R1);
        program.place(sent);
    }
}

/// Begins the record: time, ids (also in R7), tag, and empty fields. Loses R0 to R5.
fn begin(program: &mut Assembler, tag: i32) {
    program.call(Helper::Now).store(R10, AT, R0);
    program.call(Helper::CurrentIds).copy(R7, R0).store(R10, IDS, R0);
    program.store_value(R10, TAG, tag);
    for field in FIELDS {
        program.store_value(R10, field, 0);
    }
}

/// Sets `register` to an address on the stack.
fn address(program: &mut Assembler, register: Register, at: i16) {
    program.copy(register, R10).add(register, at.into());
}

/// Stores the key of the running call of this thread (R7) and site.
fn key(program: &mut Assembler, index: i32) {
    program.copy(R1, R7).shift_left(R1, 32).or(R1, index).store(R10, KEY, R1);
}

/// Reads the fields of the item whose address is in R9. What cannot be read is 0.
fn read_item(program: &mut Assembler, item: Item) {
    if item == Item::None {
        return;
    }
    program.store(R10, FIELDS[1], R9);
    for (field, offset) in [(FIELDS[1], item.data_offset()), (FIELDS[2], Some(item.pts_offset()))] {
        let Some(offset) = offset else { continue };
        address(program, R1, field);
        program.set(R2, 8).copy(R3, R9).add(R3, offset).call(Helper::ReadUser);
    }
}

/// Makes the record one with the name of the object whose address is in R8: that of the struct to which it points at
/// `offset`, whose first field is the name. Behind the object comes the word at 8, whose upper half is a codec's kind.
fn read_name(program: &mut Assembler, index: i32, offset: i32) {
    program.store_value(R10, TAG, index | NAMED);
    // Without the struct or the name, the reads fail and leave zeros.
    program.copy(R9, R8).add(R9, 8);
    read_user(program, FIELDS[1], 8);
    program.copy(R9, R8).add(R9, offset);
    for _ in 0..2 {
        read_user(program, SCRATCH, 8);
        program.load(R9, R10, SCRATCH);
    }
    read_user(program, FIELDS[2], NAME_BYTES as i32);
}

/// Reads `bytes` bytes of the process's memory at the address in R9 to the stack at `to`.
fn read_user(program: &mut Assembler, to: i16, bytes: i32) {
    address(program, R1, to);
    program.set(R2, bytes).copy(R3, R9).call(Helper::ReadUser);
}

/// Reads the 32 bits at `offset` of the kernel's struct at `from` into `to`.
fn read_kernel(program: &mut Assembler, to: Register, from: Register, offset: u32) {
    program.store_value(R10, SCRATCH, 0);
    address(program, R1, SCRATCH);
    program.set(R2, 4).copy(R3, from).add(R3, offset as i32).call(Helper::ReadKernel);
    program.load(to, R10, SCRATCH);
}

/// Jumps to `end` if `map` has no entry for the number in `register`, which is then at KEY.
fn lookup(program: &mut Assembler, map: &ProgramMap, register: Register, end: &Label) {
    program.store(R10, KEY, register).map(R1, map.as_fd());
    address(program, R2, KEY);
    program.call(Helper::MapLookup).jump_if(R0, Condition::Equal, 0, end);
}
