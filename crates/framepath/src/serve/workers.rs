// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service's workers, from their start until they are reaped.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use framepath_model::wire::figures::FIGURE_WORDS;
use framepath_model::wire::{Figures, Message};
use framepath_os::clock::{cpu_ns_of, now_ns};
use framepath_os::crossing::{Page, Socket};
use framepath_os::sandbox::Layers;
use framepath_os::spawn::WorkerProcess;

use crate::host::HostError;
use crate::host::kind::{Kind, LOADING, Task};
use crate::host::say::{hear, say};
use crate::host::start::{Started, start_program};

/// The broker's name for a worker.
pub(super) type WorkerId = u64;

/// What the kernel and the worker's page say it did.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) figures: Figures,
    pub(super) cpu_ns: u64,
}

/// All workers.
#[derive(Debug)]
pub(super) struct Workers {
    kind: Kind,
    all: BTreeMap<WorkerId, Worker>,
    next: WorkerId,
}

#[derive(Debug)]
struct Worker {
    process: WorkerProcess,
    /// For errors.
    program: PathBuf,
    page: Page,
    /// Of its sandbox, once it is ready.
    layers: Layers,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Has not yet said that it is locked in.
    Loading { socket: Socket, until_ns: u64 },
    /// Waits for a stream.
    Ready { socket: Socket },
    /// A client's.
    Granted,
    /// Killed, and not yet gone.
    Ending,
}

/// What became of a worker that was waited for.
#[derive(Debug)]
pub(super) enum Ended {
    /// It was told to end, or had a stream.
    Used(Box<Work>),
    /// It died before it had one.
    Unused,
}

/// What a worker is waited for by poll(2).
pub(super) enum Waits<'a> {
    /// For its end.
    End(BorrowedFd<'a>),
    /// For its word that it is ready.
    Word(BorrowedFd<'a>),
}

impl Workers {
    pub(super) fn new(memory_bytes: u64) -> Workers {
        Workers {
            kind: Kind { memory_bytes, task: Task::Stage, without_seccomp: false },
            all: BTreeMap::new(),
            next: 0,
        }
    }

    /// Starts one; it is ready later.
    pub(super) fn start(&mut self) -> Result<(), HostError> {
        let page = Page::new()
            .map_err(|errno| HostError::Socket { operation: "making a page for", source: errno.into() })?;
        let Started { process, socket, program } = start_program(&self.kind)?;
        // Before anybody else has the socket.
        say(&socket, &Message::Page, Some(page.fd()))?;
        let until_ns = now_ns() + LOADING.as_nanos() as u64;
        let layers = process.layers();
        let state = State::Loading { socket, until_ns };
        self.all.insert(self.next, Worker { process, program, page, layers, state });
        self.next += 1;
        Ok(())
    }

    /// A worker that waits for a stream.
    pub(super) fn ready(&self) -> Option<WorkerId> {
        self.all.iter().find(|(_, worker)| matches!(worker.state, State::Ready { .. })).map(|(id, _)| *id)
    }

    /// How many are ready.
    pub(super) fn spares(&self) -> usize {
        self.all.values().filter(|worker| matches!(worker.state, State::Ready { .. })).count()
    }

    /// How many are ready or will be.
    pub(super) fn unused(&self) -> usize {
        let unused = |worker: &&Worker| matches!(worker.state, State::Ready { .. } | State::Loading { .. });
        self.all.values().filter(unused).count()
    }

    /// Gives a ready worker away: its process id, the layers of its sandbox, and
    /// the caller's end of its socket, of which nothing stays here.
    pub(super) fn grant(&mut self, id: WorkerId) -> Option<(u32, Layers, OwnedFd)> {
        let worker = self.all.get_mut(&id)?;
        match std::mem::replace(&mut worker.state, State::Granted) {
            State::Ready { socket } => Some((worker.process.pid(), worker.layers, socket.into())),
            other => {
                worker.state = other;
                None
            }
        }
    }

    /// What worker `id` has done so far.
    pub(super) fn work(&self, id: WorkerId) -> Option<Work> {
        let worker = self.all.get(&id)?;
        let cpu_ns = cpu_ns_of(worker.process.pid()).unwrap_or(0);
        Some(Work { figures: worker.figures(), cpu_ns })
    }

    /// The process of worker `id`.
    pub(super) fn pid(&self, id: WorkerId) -> Option<u32> {
        self.all.get(&id).map(|worker| worker.process.pid())
    }

    /// Kills it. It is gone when [`Workers::reap`] says so.
    pub(super) fn end(&mut self, id: WorkerId) {
        if let Some(worker) = self.all.get_mut(&id) {
            // It fails only where there is no such process any more.
            let _ = worker.process.kill();
            worker.state = State::Ending;
        }
    }

    /// Kills workers without a stream until there are `most`; those that are
    /// not ready yet go first.
    pub(super) fn end_unused(&mut self, most: usize) {
        let mut surplus = self.unused().saturating_sub(most);
        for wants_loading in [true, false] {
            for worker in self.all.values_mut() {
                let fits = match worker.state {
                    State::Loading { .. } => wants_loading,
                    State::Ready { .. } => !wants_loading,
                    State::Granted | State::Ending => false,
                };
                if fits && surplus > 0 {
                    let _ = worker.process.kill();
                    worker.state = State::Ending;
                    surplus -= 1;
                }
            }
        }
    }

    /// What to wait for, for every worker.
    pub(super) fn waits(&self) -> impl Iterator<Item = (WorkerId, Waits<'_>)> {
        self.all.iter().flat_map(|(id, worker)| {
            let word = match &worker.state {
                State::Loading { socket, .. } => Some((*id, Waits::Word(socket.as_fd()))),
                _ => None,
            };
            word.into_iter().chain([(*id, Waits::End(worker.process.pidfd()))])
        })
    }

    /// Hears what a loading worker says: that it is ready; or why it is not,
    /// and then it is ended.
    pub(super) fn hear(&mut self, id: WorkerId) -> Option<Result<(), String>> {
        let worker = self.all.get_mut(&id)?;
        let State::Loading { socket, .. } = &worker.state else { return None };
        let refusal = match hear(socket) {
            Ok(Some((Message::Ready { layers }, _))) => {
                worker.layers = worker.layers.and(Layers::from_bits(layers).unwrap_or_default());
                if let State::Loading { socket, .. } = std::mem::replace(&mut worker.state, State::Ending) {
                    worker.state = State::Ready { socket };
                }
                return Some(Ok(()));
            }
            Ok(Some((Message::Refused { text }, _))) => text,
            Ok(Some(_)) => "a worker said something else than that it is ready".to_owned(),
            Ok(None) => "a worker died while it was loading".to_owned(),
            Err(error) => error.of_worker(&worker.program).to_string(),
        };
        self.end(id);
        Some(Err(refusal))
    }

    /// Reaps a worker that has ended; `None` where it has not.
    pub(super) fn reap(&mut self, id: WorkerId) -> Option<Ended> {
        let worker = self.all.get_mut(&id)?;
        let usage = match worker.process.try_wait() {
            Ok(Some(usage)) => usage,
            Ok(None) => return None,
            // Somebody else waited for it: it is gone all the same.
            Err(_) => Default::default(),
        };
        let work = Work { figures: worker.figures(), cpu_ns: usage.cpu_ns };
        let unused = matches!(worker.state, State::Ready { .. } | State::Loading { .. });
        self.all.remove(&id);
        Some(if unused { Ended::Unused } else { Ended::Used(Box::new(work)) })
    }

    /// Ends those that load for too long; how many.
    pub(super) fn end_late(&mut self, now_ns: u64) -> usize {
        let late =
            |worker: &Worker| matches!(worker.state, State::Loading { until_ns, .. } if until_ns <= now_ns);
        let late: Vec<WorkerId> =
            self.all.iter().filter(|(_, worker)| late(worker)).map(|(id, _)| *id).collect();
        late.iter().for_each(|id| self.end(*id));
        late.len()
    }

    /// When the next one is late.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let until = |worker: &Worker| match worker.state {
            State::Loading { until_ns, .. } => Some(until_ns),
            _ => None,
        };
        self.all.values().filter_map(until).min()
    }
}

impl Worker {
    fn figures(&self) -> Figures {
        let words: [u64; FIGURE_WORDS] = std::array::from_fn(|at| self.page.get(at));
        Figures::from_words(&words)
    }
}
