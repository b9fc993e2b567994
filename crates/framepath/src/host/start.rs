// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting workers, and the spares that are kept ready.
//!
//! The kernel ends a worker with the thread that started it, so all are
//! started by one thread that lives as long as the process: the spawner.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use framepath_model::wire::Message;
use framepath_os::crossing::Socket;
use framepath_os::sandbox::Layers;
use framepath_os::signal;
use framepath_os::spawn::{WorkerProcess, spawn_bounded};

use super::kind::{Kind, LOADING, Task};
use super::process::{Parent, Process, Worker};
use super::say::hear_within;
use super::seat::Seat;
use super::zygote::ZygoteProcess;
use super::{HostError, SandboxChoice, WorkerOptions, program};

/// A spare is made when no worker was wanted for so long: a short run makes none,
/// and a stream's first frame does not wait for it.
const SETTLED: Duration = Duration::from_millis(100);

enum Request {
    Worker { kind: Kind, answer: Sender<Result<Worker, HostError>> },
    Spares { kind: Kind, count: usize },
    DismissSpares { done: Sender<()> },
}

/// To the spawner, from the first request on.
static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();

/// Ends the workers that are kept ready, and the zygote where no stream has a
/// worker of it, and waits until they have ended. The next stream has to wait
/// until its worker is made.
pub fn dismiss_spares() {
    let Some(spawner) = SPAWNER.get() else { return };
    let (done, dismissed) = channel();
    if spawner.send(Request::DismissSpares { done }).is_ok() {
        // It fails where the thread is gone, and its spares with it.
        let _ = dismissed.recv();
    }
}

/// Has so many workers for plain stages ready soon, and again when one was
/// taken, so that streams do not wait for one to be made. Returns at once.
pub(crate) fn keep_ready(memory_bytes: u64, count: usize) {
    // Where the thread is gone, who wants a worker is told so.
    let kind = Kind { memory_bytes, task: Task::Stage, without_seccomp: false };
    let _ = spawner().send(Request::Spares { kind, count });
}

/// To the thread that starts workers.
fn spawner() -> &'static Sender<Request> {
    SPAWNER.get_or_init(|| {
        let (requests, heard) = channel();
        // Where no thread can be made the request's answer never comes, which
        // its receiver sees at once.
        let _ = std::thread::Builder::new().name("fp-spawner".to_owned()).spawn(|| serve(heard));
        requests
    })
}

/// A worker for a stream: the service's; or a spare, where there is one, and
/// another is made; else a new one.
pub(super) fn worker(seat: Option<&Arc<Seat>>, options: &WorkerOptions) -> Result<Worker, HostError> {
    let worker = match seat {
        Some(seat) => seat.worker()?,
        None => {
            let (answer, worker) = channel();
            let without_seccomp = options.sandbox == SandboxChoice::Allow;
            let kind = Kind { memory_bytes: options.memory_bytes, task: options.task(), without_seccomp };
            let unanswered = || HostError::NotOpened { what: "was not started" };
            spawner().send(Request::Worker { kind, answer }).map_err(|_| unanswered())?;
            worker.recv().map_err(|_| unanswered())??
        }
    };
    options.sandbox.check(worker.layers)?;
    Ok(worker)
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

    fn fill(&mut self, kind: &Kind, zygote: &mut Option<Arc<ZygoteProcess>>) {
        while self.made.len() < self.count {
            match start(kind, zygote) {
                Ok(spare) => self.made.push_back(spare),
                // Who needs one is told why there is none.
                Err(_) => return,
            }
        }
    }
}

/// Starts workers on request, and some ahead.
fn serve(requests: Receiver<Request>) {
    // Its waits for workers end with the program.
    let _interruptible = signal::interruptible();
    let mut zygote = None;
    let mut all: HashMap<Kind, Spares> = HashMap::new();
    let mut unfilled: Option<Kind> = None;
    loop {
        let request = match &unfilled {
            Some(_) => requests.recv_timeout(SETTLED),
            None => requests.recv().map_err(RecvTimeoutError::from),
        };
        let request = match (request, unfilled.take()) {
            (Err(RecvTimeoutError::Disconnected), _) => return,
            (Err(RecvTimeoutError::Timeout), kind) => {
                if let Some((kind, spares)) = kind.and_then(|kind| all.get_mut(&kind).map(|s| (kind, s))) {
                    spares.fill(&kind, &mut zygote);
                }
                continue;
            }
            (Ok(request), kind) => {
                unfilled = kind;
                request
            }
        };
        match request {
            Request::Worker { kind, answer } => {
                let spares = all.entry(kind.clone()).or_default();
                let worker = spares.take().map_or_else(|| start(&kind, &mut zygote).and_then(ready), Ok);
                // Who asked is waiting; that it gave up is no harm, the worker goes.
                let _ = answer.send(worker);
                // The spares of another kind are made with its next worker.
                unfilled = Some(kind);
            }
            Request::Spares { kind, count } => {
                let spares = all.entry(kind.clone()).or_default();
                spares.count = count;
                spares.fill(&kind, &mut zygote);
            }
            Request::DismissSpares { done } => {
                all.values_mut().for_each(|spares| spares.made.clear());
                (zygote, unfilled) = (None, None);
                // Who asked may have given up.
                let _ = done.send(());
            }
        }
    }
}

/// A worker of `zygote`, which is started where it is not there. Where the
/// environment names a program, each worker is that program, started anew.
fn start(kind: &Kind, zygote: &mut Option<Arc<ZygoteProcess>>) -> Result<Worker, HostError> {
    if program::named().is_some() {
        let Started { process, socket, program } = start_program(kind)?;
        let layers = process.layers();
        let process = Process { pid: process.pid(), kind: Parent::Us(Mutex::new(process)) };
        return Ok(Worker { socket: Arc::new(socket), process: Arc::new(process), program, layers });
    }
    let had_one = zygote.is_some();
    match spawn(kind, zygote) {
        // The one that was there has died, or can fork no more: another is
        // started, once.
        Err(_) if had_one => spawn(kind, zygote),
        other => other,
    }
}

fn spawn(kind: &Kind, kept: &mut Option<Arc<ZygoteProcess>>) -> Result<Worker, HostError> {
    let zygote = match kept {
        Some(zygote) => zygote.clone(),
        None => kept.insert(Arc::new(ZygoteProcess::start()?)).clone(),
    };
    match zygote.spawn(kind) {
        Ok(spawned) => {
            let process = Process {
                pid: spawned.pid,
                kind: Parent::Zygote { process: spawned.process, _zygote: zygote },
            };
            let (socket, process) = (Arc::new(spawned.socket), Arc::new(process));
            let program = PathBuf::new();
            Ok(Worker { socket, process, program, layers: spawned.layers })
        }
        Err(error) => {
            // What it says later would be taken for the answer to another
            // request. Its workers keep it alive.
            *kept = None;
            Err(error)
        }
    }
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
    let mut args = vec![OsStr::new(program::WORKER), OsStr::new("--memory"), OsStr::new(&memory)];
    match &kind.task {
        Task::Stage => {}
        Task::Device => args.push(OsStr::new("--device")),
        Task::Plugin(plugin) => args.extend([OsStr::new("--plugin"), plugin.as_os_str()]),
    }
    if kind.without_seccomp {
        args.push(OsStr::new("--without-seccomp"));
    }
    let process = spawn_bounded(&program.file, &args, theirs.as_fd(), kind.bounds())?;
    Ok(Started { process, socket: ours, program: program.name })
}

/// Waits until the worker has locked itself in.
fn ready(worker: Worker) -> Result<Worker, HostError> {
    let heard = hear_within(&worker.socket, LOADING).map_err(|error| error.of_worker(&worker.program));
    match heard? {
        Some((Message::Ready { layers }, _)) => {
            let entered = Layers::from_bits(layers).unwrap_or_default();
            Ok(Worker { layers: worker.layers.and(entered), ..worker })
        }
        Some((Message::Refused { text }, _)) => Err(HostError::Refused { text }),
        Some(_) => Err(HostError::NotOpened { what: "said something else" }),
        None => Err(HostError::NotOpened { what: "died" }),
    }
}
