// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start of workers, and spare workers.
//!
//! The kernel kills a worker when the thread that started it ends. So one thread, the spawner, starts all
//! workers of this program, or the zygote that forks them. The spawner lives as long as the process. A
//! service starts its workers itself.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use framepath_os::crossing::Socket;
use framepath_os::process::priority::HighPriority;
use framepath_os::process::signal;
use framepath_os::process::spawn::{WorkerProcess, spawn_bounded, spawn_with_network};

use super::kind::WorkerKind;
use super::process::{Parent, SharedProcess, Worker};
use super::service_stream::ServiceStream;
use super::spares::{Spare, Spares};
use super::zygote::ZygoteProcess;
use super::{HostError, WorkerOptions, program};

/// Time that the spawner waits after a request for a worker, before it starts spare workers of this worker's
/// kind; a further request for a worker restarts the wait, for the kind of that worker. So a short run starts
/// no spare workers, and their start does not delay a stream's first frame. Kinds that reach the network have
/// no spare workers.
const SETTLED: Duration = Duration::from_millis(100);

enum Request {
    Worker { kind: WorkerKind, answer: Sender<Result<Worker, HostError>> },
    Spares { kind: WorkerKind, count: usize },
    DismissSpares { done: Sender<()> },
}

/// Channel for requests to the spawner; set at the first request.
static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();

/// Ends the spare workers of this program, and the zygote if no stream uses a worker of the zygote. Waits
/// until these processes have ended. A zygote whose workers are in use ends with the last of them. The next
/// stream then has to wait for the start of its worker. Any thread may call this function.
pub fn dismiss_spares() {
    let Some(spawner) = SPAWNER.get() else { return };
    let (done, dismissed) = channel();
    if spawner.send(Request::DismissSpares { done }).is_ok() {
        // Fails only if the thread is gone, and its spares with it.
        let _ = dismissed.recv();
    }
}

/// Keeps `count` spare workers of this program for plain stages that require seccomp, so that streams do not
/// wait for a start. Each worker may use `memory_bytes` bytes of address space. The spawner starts the
/// workers; this function returns at once. A worker that cannot be started is only logged. Spare workers
/// above a new, smaller `count` stay until streams use them or [`dismiss_spares`] ends them.
pub fn keep_ready(memory_bytes: u64, count: usize) {
    // If the thread is gone, the next request for a worker fails.
    let _ = spawner().send(Request::Spares { kind: WorkerKind::stage(memory_bytes), count });
}

/// Returns the channel to the thread that starts workers; starts the thread at the first call.
fn spawner() -> &'static Sender<Request> {
    SPAWNER.get_or_init(|| {
        let (requests, received) = channel();
        // If no thread can be started, `received` is dropped, and each request fails at once.
        let _ = std::thread::Builder::new().name("fp-spawner".to_owned()).spawn(|| serve(received));
        requests
    })
}

/// Returns a worker for a stream: a worker of the service if the stream uses `service`; else a spare worker,
/// which the spawner replaces later; else a new worker. A worker that reaches the network is always new.
/// Waits until the worker is inside its sandbox.
///
/// # Errors
/// No worker can be started, the service cannot be used or grants none, or the worker's sandbox lacks a
/// required layer.
pub(super) fn worker(
    service: Option<&Arc<ServiceStream>>,
    options: &WorkerOptions,
) -> Result<Worker, HostError> {
    let worker = match service {
        Some(service) => service.worker()?,
        None => {
            let (answer, worker) = channel();
            let kind = options.kind.clone();
            let unanswered = || HostError::NotOpened {
                what: "start worker: the thread that starts workers is not running",
            };
            spawner().send(Request::Worker { kind, answer }).map_err(|_| unanswered())?;
            worker.recv().map_err(|_| unanswered())??
        }
    };
    options.sandbox.check(options.kind.judged(worker.layers))?;
    let by = if service.is_some() { "the service" } else { "this program" };
    log::info!("worker {} of {by} takes a stream", worker.process().pid());
    Ok(worker)
}

/// A worker that this program or its zygote has started.
type LocalSpare = Spare<Arc<SharedProcess>>;

/// Spare workers of one kind, and the number to keep ready: 1, unless [`keep_ready`] sets another number. The
/// pool of a kind that reaches the network is never filled.
struct Pool {
    count: usize,
    spares: Spares<Arc<SharedProcess>>,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool { count: 1, spares: Spares::default() }
    }
}

impl Pool {
    fn fill(&mut self, kind: &WorkerKind, zygote: &mut Option<Arc<ZygoteProcess>>) {
        // Only logged, because the stream that needs a worker gets the error.
        if let Err(error) = self.spares.fill(self.count, || start(kind, zygote)) {
            log::debug!("no spare worker: {error}");
        }
    }

    /// Takes the oldest spare worker that becomes ready. If none does, starts a new worker and waits until it
    /// is ready.
    ///
    /// # Errors
    /// The new worker cannot be started, or does not become ready.
    fn take(
        &mut self,
        kind: &WorkerKind,
        zygote: &mut Option<Arc<ZygoteProcess>>,
    ) -> Result<Worker, HostError> {
        let spare = match self.spares.take_waiting() {
            Some(spare) => spare,
            None => {
                let mut spare = start(kind, zygote)?;
                spare.wait()?;
                spare
            }
        };
        let Spare { process, socket, layers, .. } = spare;
        Ok(Worker { socket: Arc::new(socket), process, layers })
    }
}

/// Runs the spawner: starts workers on request, and spare workers in advance. Call this function in the
/// spawner's thread.
fn serve(requests: Receiver<Request>) {
    // A signal that ends the program ends the waits for workers.
    let _interruptible = signal::interruptible();
    // A worker is not trusted, so it must not take the processors from other programs.
    HighPriority::disinherit();
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
                // If the sender of the request gave up, the worker is dropped.
                let _ = answer.send(worker);
                // A process that reaches the network is started only for a stream. Of the other kinds, only
                // the pool of the last one is filled; another pool is filled after the next request for its
                // kind.
                unfilled = (!kind.has_network()).then_some(kind);
            }
            Request::Spares { kind, count } => {
                let pool = all.entry(kind.clone()).or_default();
                pool.count = count;
                pool.fill(&kind, &mut zygote);
            }
            Request::DismissSpares { done } => {
                all.values_mut().for_each(|pool| pool.spares = Spares::default());
                (zygote, unfilled) = (None, None);
                // The sender of the request may have given up.
                let _ = done.send(());
            }
        }
    }
}

/// Starts a worker by forking `zygote`; starts the zygote first if there is none. If FRAMEPATH_WORKER names a
/// worker program, which may be unable to fork workers, or if the worker reaches the network, starts the
/// worker program instead. If an existing zygote fails, tries once more with a new
/// zygote. The worker is still loading when this function returns.
fn start(kind: &WorkerKind, zygote: &mut Option<Arc<ZygoteProcess>>) -> Result<LocalSpare, HostError> {
    // The zygote's workers have no network.
    if program::in_variable().is_some() || kind.has_network() {
        let Spare { process, socket, program, layers, .. } = start_program(kind)?;
        let process = SharedProcess { pid: process.pid(), kind: Parent::Us(Mutex::new(process)) };
        return Ok(Spare::new(Arc::new(process), socket, program, layers));
    }
    let had_one = zygote.is_some();
    match spawn(kind, zygote) {
        // The old zygote has died or cannot fork any more: tries once with a new zygote.
        Err(_) if had_one => spawn(kind, zygote),
        other => other,
    }
}

fn spawn(kind: &WorkerKind, kept: &mut Option<Arc<ZygoteProcess>>) -> Result<LocalSpare, HostError> {
    let zygote = match kept {
        Some(zygote) => zygote.clone(),
        None => kept.insert(Arc::new(ZygoteProcess::start()?)).clone(),
    };
    match zygote.spawn(kind) {
        Ok(spawned) => {
            let process = SharedProcess {
                pid: spawned.pid,
                kind: Parent::Zygote { process: spawned.process, _zygote: zygote },
            };
            Ok(Spare::new(Arc::new(process), spawned.socket, PathBuf::new(), spawned.layers))
        }
        Err(error) => {
            // Drops the zygote, because a late answer would be taken for the answer to the next request.
            // Its workers keep it alive.
            *kept = None;
            Err(error)
        }
    }
}

/// Starts a worker of this kind as a new program, so that it shares no addresses with this process. The
/// worker is still loading when this function returns.
///
/// # Errors
/// The program cannot be found or started, or the socket to it cannot be made.
pub fn start_program(kind: &WorkerKind) -> Result<Spare<WorkerProcess>, HostError> {
    let program = program::find()?;
    let failed = |source| HostError::Start { program: program.name.display().to_string(), source };
    let (ours, theirs) = Socket::pair().map_err(failed)?;
    let text = kind.to_string();
    let args = [program::WORKER, &text].map(OsStr::new);
    let spawn = if kind.has_network() { spawn_with_network } else { spawn_bounded };
    let process = spawn(&program.file, &args, theirs.as_fd(), kind.bounds())?;
    let layers = process.layers();
    Ok(Spare::new(process, ours, program.name, layers))
}
