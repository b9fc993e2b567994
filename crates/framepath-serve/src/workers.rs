// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service's workers, from their start until they are reaped.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use framepath_model::wire::figures::FIGURE_WORDS;
use framepath_model::wire::{Figures, Message};
use framepath_os::crossing::Page;
use framepath_os::process::running::is_exiting;
use framepath_os::process::sandbox::Layers;
use framepath_os::process::spawn::WorkerProcess;
use framepath_os::time::cpu_ns_of;

use framepath::host::for_serve::{HostError, Spare, Spares, WorkerKind, send, start_program};

/// Number by which the broker names a worker: from 0, not reused.
pub(super) type WorkerId = u64;

/// Work done by a worker: CPU time from the kernel, and the counters that the worker writes into its page, memory
/// that it shares with the service.
#[derive(Debug, Default)]
pub(super) struct WorkerActivity {
    /// Counters from the worker's page.
    pub(super) figures: Figures,
    /// CPU time of the worker's process, nanoseconds; 0 if it is unknown.
    pub(super) cpu_ns: u64,
}

/// All workers that the broker has started and not yet reaped. Workers for the device are not among them.
#[derive(Debug)]
pub(super) struct Workers {
    kind: WorkerKind,
    /// Workers without a stream, loading or ready.
    spares: Spares<Worker>,
    /// Workers that were granted to a stream, and spare workers that the service has killed; each until it is
    /// reaped.
    used: BTreeMap<WorkerId, Worker>,
    next: WorkerId,
}

#[derive(Debug)]
struct Worker {
    id: WorkerId,
    process: WorkerProcess,
    page: Page,
    /// Number of the stream that the worker was granted to; `None` for a worker that never had a stream.
    stream: Option<u32>,
    /// True if the service has killed the worker before the worker had begun to end by itself.
    killed: bool,
}

/// Result of reaping a worker: its work if it had a stream or was killed, or the fact that it ended unused.
#[derive(Debug)]
pub(super) enum WorkerEnd {
    /// The worker had a stream, or was a spare worker to which the service had sent SIGKILL.
    Used {
        /// Work of the worker.
        work: Box<WorkerActivity>,
        /// Death of the worker; `None` if the worker exited with 0, or if the service has killed it before
        /// it had begun to end by itself.
        death: Option<WorkerDeath>,
    },
    /// The worker ended before it had a stream, and the service had not killed it.
    Unused(WorkerDeath),
}

/// End of a worker that the service did not cause.
#[derive(Debug)]
pub(super) struct WorkerDeath {
    pid: u32,
    stream: Option<u32>,
    /// Number of the signal that ended the worker; `None` if the worker exited, or if the cause is
    /// not known.
    signal: Option<i32>,
    /// Exit code of the worker; `None` if a signal ended it, or if the code is not known.
    exit_code: Option<i32>,
}

/// Formats the death, for example as `stream 3: worker 4711 killed by signal 11 (SIGSEGV)` or, for a worker
/// without a stream, as `worker 4711 exited with code 1`.
impl fmt::Display for WorkerDeath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stream) = self.stream {
            write!(f, "stream {stream}: ")?;
        }
        write!(f, "worker {} ", self.pid)?;
        match (self.signal, self.exit_code) {
            (Some(number), _) => match signal_name(number) {
                Some(name) => write!(f, "killed by signal {number} ({name})"),
                None => write!(f, "killed by signal {number}"),
            },
            (None, Some(code)) => write!(f, "exited with code {code}"),
            (None, None) => f.write_str("ended"),
        }
    }
}

/// A worker's event to wait for by poll(2).
pub(super) enum WorkerWait<'a> {
    /// The end of the worker's process.
    End(BorrowedFd<'a>),
    /// The message by which a loading worker reports that it is ready, or an error.
    Message(BorrowedFd<'a>),
}

impl Workers {
    pub(super) fn new(memory_bytes: u64) -> Workers {
        let kind = WorkerKind::stage(memory_bytes);
        Workers { kind, spares: Spares::default(), used: BTreeMap::new(), next: 0 }
    }

    /// Starts spare workers until `count` are ready or loading.
    ///
    /// # Errors
    /// A worker cannot be started.
    pub(super) fn fill(&mut self, count: usize) -> Result<(), HostError> {
        let (kind, next) = (&self.kind, &mut self.next);
        self.spares.fill(count, || {
            let page = Page::new().map_err(|errno| HostError::Socket {
                operation: "make the page of counters for the worker",
                source: errno.into(),
            })?;
            let Spare { process, socket, program, layers, .. } = start_program(kind)?;
            // The page is sent now, while only the service holds the socket; after the grant, the
            // client holds it.
            send(&socket, &Message::Page, Some(page.fd()))?;
            let id = *next;
            *next += 1;
            let worker = Worker { id, process, page, stream: None, killed: false };
            Ok(Spare::new(worker, socket, program, layers))
        })
    }

    /// Returns the oldest ready worker without a stream; `None` if there is none. A worker that is ending
    /// is not ready, even if wait4(2) does not report its end yet.
    pub(super) fn ready(&self) -> Option<WorkerId> {
        // Without /proc (ProtectProc=), a client may be granted a worker that is ending, and its stream fails.
        let is_ending = |worker: &Worker| is_exiting(worker.process.pid()).unwrap_or(false);
        self.spares
            .ready()
            .map(|spare| &spare.process)
            .find(|worker| !is_ending(worker))
            .map(|worker| worker.id)
    }

    /// Returns the number of ready workers without a stream.
    pub(super) fn spares(&self) -> usize {
        self.spares.ready().count()
    }

    /// Grants ready worker `id` to a client for the stream with number `stream`. Returns the worker's
    /// process id, the layers of its sandbox, and the socket by which the client reaches the worker;
    /// `None` if there is no such worker or the worker is not ready. The service keeps no copy of the
    /// socket.
    pub(super) fn grant(&mut self, id: WorkerId, stream: u32) -> Option<(u32, Layers, OwnedFd)> {
        let spare = self.spares.take(|spare| spare.process.id == id && spare.is_ready())?;
        let Spare { process: mut worker, socket, layers, .. } = spare;
        worker.stream = Some(stream);
        let pid = worker.process.pid();
        self.used.insert(id, worker);
        Some((pid, layers, socket.into()))
    }

    /// Returns the work that worker `id` has done so far; `None` for a worker that is spare, reaped or
    /// unknown.
    pub(super) fn work(&self, id: WorkerId) -> Option<WorkerActivity> {
        let worker = self.used.get(&id)?;
        let cpu_ns = cpu_ns_of(worker.process.pid()).unwrap_or(0);
        Some(WorkerActivity { figures: worker.figures(), cpu_ns })
    }

    /// Returns the process id of worker `id`; `None` for a worker that is spare, reaped or unknown.
    pub(super) fn pid(&self, id: WorkerId) -> Option<u32> {
        self.used.get(&id).map(|worker| worker.process.pid())
    }

    /// Kills worker `id`, without waiting for its end; [`Workers::reap`] later returns the end. Does nothing
    /// for a worker that is spare, reaped or unknown.
    pub(super) fn end(&mut self, id: WorkerId) {
        if let Some(worker) = self.used.get_mut(&id) {
            // A worker that has ended, or begun to end, before this call is not marked as killed, so its
            // death is reported. This case is common: the client sees the closed socket, and releases or
            // replaces the worker, before wait4(2) reports the end.
            let is_ending = is_exiting(worker.process.pid())
                // Without /proc (ProtectProc=), wait4(2) decides.
                .unwrap_or_else(|_| !matches!(worker.process.try_wait(), Ok(None)));
            worker.killed |= !is_ending;
            // Fails only if the process is gone already.
            let _ = worker.process.kill();
        }
    }

    /// Moves a spare worker, which was taken from `spares`, to the used workers, and kills it.
    fn end_spare(&mut self, spare: Spare<Worker>) {
        let id = spare.process.id;
        self.used.insert(id, spare.process);
        self.end(id);
    }

    /// Kills spare workers, ready or loading, until there are at most `most`. Kills loading workers first.
    pub(super) fn end_unused(&mut self, most: usize) {
        while let Some(spare) = self.spares.take_surplus(most) {
            self.end_spare(spare);
        }
    }

    /// Returns the events to wait for, for every worker.
    pub(super) fn waits(&self) -> impl Iterator<Item = (WorkerId, WorkerWait<'_>)> {
        let messages =
            self.spares.loading().map(|(spare, socket)| (spare.process.id, WorkerWait::Message(socket)));
        let spares = self.spares.iter().map(|spare| &spare.process);
        let ends = spares.chain(self.used.values());
        messages.chain(ends.map(|worker| (worker.id, WorkerWait::End(worker.process.pidfd()))))
    }

    /// Receives the message of loading worker `id`. Returns `Ok` if the worker is ready; an error text, after
    /// killing the worker, if it cannot become ready; `None` if no such worker is loading.
    pub(super) fn recv(&mut self, id: WorkerId) -> Option<Result<(), String>> {
        let spare = self.spares.get_mut(|spare| spare.process.id == id && !spare.is_ready())?;
        let received = spare.recv();
        if received.is_err() {
            if let Some(spare) = self.spares.take(|spare| spare.process.id == id) {
                self.end_spare(spare);
            }
        }
        Some(received.map_err(|error| match error {
            // The text alone, without the prefix that `HostError::Refused` would add.
            HostError::Refused { text } => text,
            error => error.to_string(),
        }))
    }

    /// Reaps worker `id` and returns its end; `None` if the worker still runs or is unknown.
    pub(super) fn reap(&mut self, id: WorkerId) -> Option<WorkerEnd> {
        let spare = self.spares.get_mut(|spare| spare.process.id == id);
        let is_spare = spare.is_some();
        let worker = spare.map(|spare| &mut spare.process).or_else(|| self.used.get_mut(&id))?;
        let usage = match worker.process.try_wait() {
            Ok(Some(usage)) => usage,
            Ok(None) => return None,
            // Another wait has reaped the process, so its usage is unknown.
            Err(_) => Default::default(),
        };
        let work = Box::new(WorkerActivity { figures: worker.figures(), cpu_ns: usage.cpu_ns });
        let death = WorkerDeath {
            pid: worker.process.pid(),
            stream: worker.stream,
            signal: usage.signal,
            exit_code: usage.exit_code,
        };
        let is_regular = worker.killed || usage.exit_code == Some(0);
        if is_spare {
            self.spares.take(|spare| spare.process.id == id);
            return Some(WorkerEnd::Unused(death));
        }
        self.used.remove(&id);
        Some(WorkerEnd::Used { work, death: (!is_regular).then_some(death) })
    }

    /// Kills the workers whose time limit for loading is over at `now_ns` (CLOCK_MONOTONIC). Returns their
    /// number.
    pub(super) fn end_late(&mut self, now_ns: u64) -> usize {
        let mut late = 0;
        while let Some(spare) = self.spares.take_late(now_ns) {
            self.end_spare(spare);
            late += 1;
        }
        late
    }

    /// Returns the earliest deadline of a loading worker, CLOCK_MONOTONIC nanoseconds; `None` if no worker
    /// is loading.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.spares.deadline_ns()
    }
}

/// Returns the name of the signal with Linux's number `number`, for the signals that most often end
/// a process; `None` for every other signal.
fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

impl Worker {
    fn figures(&self) -> Figures {
        let words: [u64; FIGURE_WORDS] = std::array::from_fn(|at| self.page.get(at));
        Figures::from_words(&words)
    }
}
