// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting workers, and the spares that are kept ready.
//!
//! The kernel ends a worker with the thread that started it, so all are
//! started by one thread that lives as long as the process.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use framepath_model::wire::Message;
use framepath_os::clock::cpu_ns_of;
use framepath_os::crossing::Socket;
use framepath_os::spawn::{Remote, WorkerProcess, spawn};

use super::say::hear_within;
use super::seat::{Seat, Turn};
use super::session::Spec;
use super::{HostError, nursery, program};

/// How long a worker may take to load and lock itself in.
pub(crate) const LOADING: Duration = Duration::from_secs(20);

/// A worker that is loaded and locked in, and has no stream yet.
pub(super) struct Worker {
    pub(super) socket: Arc<Socket>,
    process: Arc<Process>,
    /// What was started, for errors; empty where it is this process's own code
    /// or the service's worker.
    program: PathBuf,
}

/// A worker's process, for any thread. Dropping the last one ends it, and
/// returns when it has ended.
#[derive(Debug)]
pub(super) struct Process {
    pid: u32,
    kind: Parent,
}

#[derive(Debug)]
enum Parent {
    Us(Mutex<WorkerProcess>),
    Nursery(Remote),
    Service(Arc<Seat>, Turn),
}

impl Process {
    /// Its id, as this process sees it.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends it, whatever it is doing.
    pub(super) fn kill(&self) {
        // It fails only where there is no such process any more.
        let _ = match &self.kind {
            Parent::Us(process) => process.lock().unwrap_or_else(PoisonError::into_inner).kill(),
            Parent::Nursery(process) => process.kill(),
            Parent::Service(seat, turn) => seat.kill(*turn),
        };
    }

    /// Ends it, and returns when it has ended; one of the service's is ended
    /// without waiting.
    pub(super) fn end(&self) {
        self.kill();
        match &self.kind {
            Parent::Us(process) => {
                // Where it cannot be waited for it is gone.
                let _ = process.lock().unwrap_or_else(PoisonError::into_inner).wait();
            }
            Parent::Nursery(process) => process.wait(),
            Parent::Service(..) => {}
        }
    }

    /// CPU time it has used, nanoseconds; 0 once it is gone, or out of sight.
    pub(super) fn cpu_ns(&self) -> u64 {
        // 0 would be this process.
        if self.pid == 0 { 0 } else { cpu_ns_of(self.pid).unwrap_or(0) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One of our own ends with its `WorkerProcess`, one of the service's with
        // the stream's seat.
        if let Parent::Nursery(process) = &self.kind {
            if process.kill().is_ok() {
                process.wait();
            }
        }
    }
}

impl Worker {
    /// A worker that the service granted.
    pub(super) fn of_service(socket: Socket, pid: u32, seat: Arc<Seat>, turn: Turn) -> Worker {
        let process = Process { pid, kind: Parent::Service(seat, turn) };
        Worker { socket: Arc::new(socket), process: Arc::new(process), program: PathBuf::new() }
    }

    pub(super) fn process(&self) -> Arc<Process> {
        self.process.clone()
    }
}

/// What distinguishes one worker's start from another's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub(crate) memory_bytes: u64,
    pub(crate) task: Task,
}

/// What a worker is for, which decides what its sandbox lets it do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// To run a stage that needs no file.
    Stage,
    /// To decode by a device that it is sent.
    Device,
    /// To run the plug-in of this canonical name.
    Plugin(PathBuf),
}

enum Request {
    Worker { kind: Kind, answer: Sender<Result<Worker, HostError>> },
    Spares { kind: Kind, count: usize },
    DismissSpares { done: Sender<()> },
}

/// Who starts workers, from the first request on.
static NURSE: OnceLock<Sender<Request>> = OnceLock::new();

/// Ends the workers that are kept ready, and waits until they have ended. The
/// next stream has to wait until its worker is made.
pub fn dismiss_spares() {
    let Some(nurse) = NURSE.get() else { return };
    let (done, dismissed) = channel();
    if nurse.send(Request::DismissSpares { done }).is_ok() {
        // It fails where the thread is gone, and its spares with it.
        let _ = dismissed.recv();
    }
}

/// Has so many workers for plain stages ready soon, and again when one was
/// taken, so that streams do not wait for one to be made. Returns at once.
pub(crate) fn keep_ready(memory_bytes: u64, count: usize) {
    // Where the thread is gone, who wants a worker is told so.
    let _ = nurses().send(Request::Spares { kind: Kind { memory_bytes, task: Task::Stage }, count });
}

/// To the thread that starts workers.
fn nurses() -> &'static Sender<Request> {
    NURSE.get_or_init(|| {
        let (requests, heard) = channel();
        // Where no thread can be made the request's answer never comes, which
        // its receiver sees at once.
        let _ = std::thread::Builder::new().name("fp-nursery".to_owned()).spawn(|| nurse(heard));
        requests
    })
}

/// A worker for a stream: the service's; or a spare, where there is one, and
/// another is made; else a new one.
pub(super) fn worker(spec: &Spec) -> Result<Worker, HostError> {
    if let Some(seat) = &spec.seat {
        return seat.worker();
    }
    let options = &spec.options;
    let (answer, worker) = channel();
    let kind = Kind { memory_bytes: options.memory_bytes, task: options.task() };
    let unanswered = || HostError::NotOpened { what: "was not started" };
    nurses().send(Request::Worker { kind, answer }).map_err(|_| unanswered())?;
    worker.recv().map_err(|_| unanswered())?
}

/// Workers of a kind that are made ahead; they may still be loading.
struct Spares {
    count: usize,
    made: VecDeque<Worker>,
}

impl Default for Spares {
    fn default() -> Spares {
        Spares { count: 1, made: VecDeque::new() }
    }
}

impl Spares {
    /// The one that was made first, of those that live.
    fn take(&mut self) -> Option<Worker> {
        std::iter::from_fn(|| self.made.pop_front()).find_map(|spare| ready(spare).ok())
    }

    fn fill(&mut self, kind: &Kind) {
        while self.made.len() < self.count {
            match start(kind) {
                Ok(spare) => self.made.push_back(spare),
                // Who needs one is told why there is none.
                Err(_) => return,
            }
        }
    }
}

/// Starts workers on request, and some ahead.
fn nurse(requests: Receiver<Request>) {
    let mut all: HashMap<Kind, Spares> = HashMap::new();
    for request in requests {
        match request {
            Request::Worker { kind, answer } => {
                let spares = all.entry(kind.clone()).or_default();
                let worker = spares.take().map_or_else(|| start(&kind).and_then(ready), Ok);
                // Who asked is waiting; that it gave up is no harm, the worker goes.
                let _ = answer.send(worker);
                spares.fill(&kind);
            }
            Request::Spares { kind, count } => {
                let spares = all.entry(kind.clone()).or_default();
                spares.count = count;
                spares.fill(&kind);
            }
            Request::DismissSpares { done } => {
                all.values_mut().for_each(|spares| spares.made.clear());
                // Who asked may have given up.
                let _ = done.send(());
            }
        }
    }
}

fn start(kind: &Kind) -> Result<Worker, HostError> {
    // A program that was named is the one to start.
    let named = program::named().is_some();
    if let Some(raised) = (!named).then(|| nursery::raise(kind)).flatten() {
        let (pid, process, socket) = raised?;
        let process = Arc::new(Process { pid, kind: Parent::Nursery(process) });
        return Ok(Worker { socket: Arc::new(socket), process, program: PathBuf::new() });
    }
    let Started { process, socket, program } = start_program(kind)?;
    let process = Process { pid: process.pid(), kind: Parent::Us(Mutex::new(process)) };
    Ok(Worker { socket: Arc::new(socket), process: Arc::new(process), program })
}

/// A worker as a new program, which shares no address with this process.
pub(crate) struct Started {
    pub(crate) process: WorkerProcess,
    /// To the worker.
    pub(crate) socket: Socket,
    /// The program, for errors.
    pub(crate) program: PathBuf,
}

/// Starts a worker as a new program.
pub(crate) fn start_program(kind: &Kind) -> Result<Started, HostError> {
    let program = program::find()?;
    let failed = |source| HostError::Start { program: program.name.display().to_string(), source };
    let (ours, theirs) = Socket::pair().map_err(failed)?;
    let memory = kind.memory_bytes.to_string();
    let mut args = vec![OsStr::new("worker"), OsStr::new("--memory"), OsStr::new(&memory)];
    match &kind.task {
        Task::Stage => {}
        Task::Device => args.push(OsStr::new("--device")),
        Task::Plugin(plugin) => args.extend([OsStr::new("--plugin"), plugin.as_os_str()]),
    }
    let process = spawn(&program.file, &args, theirs.as_fd())?;
    Ok(Started { process, socket: ours, program: program.name })
}

/// Waits until the worker has locked itself in.
fn ready(worker: Worker) -> Result<Worker, HostError> {
    let heard = hear_within(&worker.socket, LOADING).map_err(|error| error.of_worker(&worker.program));
    match heard? {
        Some((Message::Ready { .. }, _)) => Ok(worker),
        Some((Message::Refused { text }, _)) => Err(HostError::Refused { text }),
        Some(_) => Err(HostError::NotOpened { what: "said something else" }),
        None => Err(HostError::NotOpened { what: "died" }),
    }
}
