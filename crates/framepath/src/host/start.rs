// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting workers, and keeping some ready.
//!
//! The kernel ends a worker with the thread that started it, so all are
//! started by one thread that lives as long as the process: the spawner.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use framepath_os::crossing::Socket;
use framepath_os::signal;
use framepath_os::spawn::{WorkerProcess, spawn_bounded};

use super::kind::WorkerKind;
use super::process::{Parent, Process, Worker};
use super::seat::Seat;
use super::spares::{Spare, Spares};
use super::zygote::ZygoteProcess;
use super::{HostError, WorkerOptions, program};

/// A spare is made when no worker was wanted for so long: a short run makes none,
/// and a stream's first frame does not wait for it.
const SETTLED: Duration = Duration::from_millis(100);

enum Request {
    Worker { kind: WorkerKind, answer: Sender<Result<Worker, HostError>> },
    Spares { kind: WorkerKind, count: usize },
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
pub fn keep_ready(memory_bytes: u64, count: usize) {
    // Where the thread is gone, who wants a worker is told so.
    let _ = spawner().send(Request::Spares { kind: WorkerKind::of_stage(memory_bytes), count });
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
            let kind = options.kind.clone();
            let unanswered = || HostError::NotOpened { what: "was not started" };
            spawner().send(Request::Worker { kind, answer }).map_err(|_| unanswered())?;
            worker.recv().map_err(|_| unanswered())??
        }
    };
    options.sandbox.check(worker.layers)?;
    let by = if seat.is_some() { "the service" } else { "this program" };
    log::info!("worker {} of {by} takes a stream", worker.process().pid());
    Ok(worker)
}

/// A worker's process as its parent holds it.
type Made = Spare<Arc<Process>>;

/// Workers of one kind, and how many are to be ready.
struct Pool {
    count: usize,
    spares: Spares<Arc<Process>>,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool { count: 1, spares: Spares::default() }
    }
}

impl Pool {
    fn fill(&mut self, kind: &WorkerKind, zygote: &mut Option<Arc<ZygoteProcess>>) {
        // Where one cannot be made, the stream that needs one is told why.
        if let Err(error) = self.spares.fill(self.count, || start(kind, zygote)) {
            log::debug!("no spare worker: {error}");
        }
    }

    /// One that is ready: the oldest, or a new one.
    fn take(
        &mut self,
        kind: &WorkerKind,
        zygote: &mut Option<Arc<ZygoteProcess>>,
    ) -> Result<Worker, HostError> {
        let spare = match self.spares.take_waiting() {
            Some(spare) => spare,
            None => {
                let mut made = start(kind, zygote)?;
                made.wait()?;
                made
            }
        };
        let Spare { process, socket, layers, .. } = spare;
        Ok(Worker { socket: Arc::new(socket), process, layers })
    }
}

/// Starts workers on request, and some ahead.
fn serve(requests: Receiver<Request>) {
    // Its waits for workers end with the program.
    let _interruptible = signal::interruptible();
    let mut zygote = None;
    let mut all: HashMap<WorkerKind, Pool> = HashMap::new();
    let mut unfilled: Option<WorkerKind> = None;
    loop {
        let request = match &unfilled {
            Some(_) => requests.recv_timeout(SETTLED),
            None => requests.recv().map_err(RecvTimeoutError::from),
        };
        let request = match (request, unfilled.take()) {
            (Err(RecvTimeoutError::Disconnected), _) => return,
            (Err(RecvTimeoutError::Timeout), kind) => {
                if let Some((kind, pool)) = kind.and_then(|kind| all.get_mut(&kind).map(|pool| (kind, pool)))
                {
                    pool.fill(&kind, &mut zygote);
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
                let worker = all.entry(kind.clone()).or_default().take(&kind, &mut zygote);
                // Who asked is waiting; that it gave up is no harm, the worker goes.
                let _ = answer.send(worker);
                // The spares of another kind are made with its next worker.
                unfilled = Some(kind);
            }
            Request::Spares { kind, count } => {
                let pool = all.entry(kind.clone()).or_default();
                pool.count = count;
                pool.fill(&kind, &mut zygote);
            }
            Request::DismissSpares { done } => {
                all.values_mut().for_each(|pool| pool.spares = Spares::default());
                (zygote, unfilled) = (None, None);
                // Who asked may have given up.
                let _ = done.send(());
            }
        }
    }
}

/// A worker of `zygote`, which is started where it is not there. Where the
/// environment names a program, each worker is that program, started anew.
fn start(kind: &WorkerKind, zygote: &mut Option<Arc<ZygoteProcess>>) -> Result<Made, HostError> {
    if program::named().is_some() {
        let Spare { process, socket, program, layers, .. } = start_program(kind)?;
        let process = Process { pid: process.pid(), kind: Parent::Us(Mutex::new(process)) };
        return Ok(Spare::new(Arc::new(process), socket, program, layers));
    }
    let had_one = zygote.is_some();
    match spawn(kind, zygote) {
        // The one that was there has died, or can fork no more: another is
        // started, once.
        Err(_) if had_one => spawn(kind, zygote),
        other => other,
    }
}

fn spawn(kind: &WorkerKind, kept: &mut Option<Arc<ZygoteProcess>>) -> Result<Made, HostError> {
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
            Ok(Spare::new(Arc::new(process), spawned.socket, PathBuf::new(), spawned.layers))
        }
        Err(error) => {
            // What it says later would be taken for the answer to another
            // request. Its workers keep it alive.
            *kept = None;
            Err(error)
        }
    }
}

/// Starts a worker as a new program, which shares no address with this process.
pub fn start_program(kind: &WorkerKind) -> Result<Spare<WorkerProcess>, HostError> {
    let program = program::find()?;
    let failed = |source| HostError::Start { program: program.name.display().to_string(), source };
    let (ours, theirs) = Socket::pair().map_err(failed)?;
    let text = kind.to_string();
    let args = [program::WORKER, &text].map(OsStr::new);
    let process = spawn_bounded(&program.file, &args, theirs.as_fd(), kind.bounds())?;
    let layers = process.layers();
    Ok(Spare::new(process, ours, program.name, layers))
}
