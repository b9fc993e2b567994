// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that workers are forked from.
//!
//! A program that stands on the codec libraries takes tens of milliseconds of
//! CPU to load. The nursery is a copy of this process from before it did
//! anything: it holds the loaded libraries and nothing else, does nothing but
//! fork, and a worker costs a millisecond.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use framepath_model::shown::shown;
use framepath_model::wire::Message;
use framepath_os::crossing::Socket;
use framepath_os::spawn::{Remote, Standing, WorkerProcess, fork, tend};

use super::say::{hear, hear_within, say};
use super::start::{Kind, Task};
use super::{HostError, worker};

/// How long the nursery may take to make a worker.
const RAISING: Duration = Duration::from_secs(10);

/// The nursery of this process, where there is one.
static OPEN: Mutex<Option<Arc<Socket>>> = Mutex::new(None);

fn open() -> MutexGuard<'static, Option<Arc<Socket>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the nursery; when it is dropped, the nursery and what is left of its
/// workers end and are waited for, so that their CPU time counts as ours.
#[derive(Debug)]
pub struct Nursery {
    socket: Arc<Socket>,
    process: WorkerProcess,
}

/// Makes the nursery. Without one a worker is a new program each time.
///
/// # Errors
/// This process has more than one thread already, or makes no other.
pub fn prepare() -> Result<Nursery, HostError> {
    let failed = |source| HostError::Socket { operation: "making a socket for", source };
    let (ours, theirs) = Socket::pair().map_err(failed)?;
    let process = fork(theirs.as_fd(), Standing::Ours, |socket| match nurse(&Socket::from(socket)) {
        Ok(()) => 0,
        Err(_) => 1,
    })?;
    let socket = Arc::new(ours);
    *open() = Some(socket.clone());
    Ok(Nursery { socket, process })
}

impl Drop for Nursery {
    fn drop(&mut self) {
        *open() = None;
        self.socket.shut();
        // Where it cannot be waited for it is gone.
        let _ = self.process.wait();
    }
}

/// A worker just made: its process id, its process and its socket.
pub(super) type Raised = (u32, Remote, Socket);

/// A worker from the nursery; `None` where there is none.
pub(super) fn raise(kind: &Kind) -> Option<Result<Raised, HostError>> {
    // Held for the whole conversation: answers come in the order of questions.
    let mut nursery = open();
    let raised = ask(nursery.as_ref()?, kind);
    if !matches!(raised, Ok(_) | Err(HostError::Refused { .. })) {
        // What it says later would be taken for the answer to another question.
        *nursery = None;
    }
    Some(raised)
}

fn ask(nursery: &Socket, kind: &Kind) -> Result<Raised, HostError> {
    let plugin = match &kind.task {
        Task::Plugin(file) => file.display().to_string(),
        Task::Stage | Task::Device => String::new(),
    };
    let (memory_bytes, by_device) = (kind.memory_bytes, kind.task == Task::Device);
    say(nursery, &Message::Raise { memory_bytes, plugin, by_device }, None)?;
    let granted = || match hear_within(nursery, RAISING)? {
        Some((Message::Grant { pid, .. }, Some(fd))) => Ok((pid, fd)),
        Some((Message::Denied { text }, _)) => Err(HostError::Refused { text }),
        _ => Err(HostError::NotOpened { what: "was not made" }),
    };
    let (pid, socket) = granted()?;
    let (_, pidfd) = granted()?;
    Ok((pid, Remote::from(pidfd), Socket::from(socket)))
}

/// What the nursery does until its caller is gone.
fn nurse(caller: &Socket) -> Result<(), HostError> {
    let failed = |source| HostError::Socket { operation: "waiting for", source };
    let mut children = Vec::new();
    loop {
        tend(caller, &mut children).map_err(failed)?;
        let Some((message, _)) = hear(caller)? else { return Ok(()) };
        let Message::Raise { memory_bytes, plugin, by_device } = message else { continue };
        let task = match (plugin.is_empty(), by_device) {
            (false, _) => Task::Plugin(PathBuf::from(plugin)),
            (true, true) => Task::Device,
            (true, false) => Task::Stage,
        };
        match make(&Kind { memory_bytes, task }) {
            Ok((child, socket)) => {
                let granted = Message::Grant { stream: 0, pid: child.pid() };
                say(caller, &granted, Some(socket.as_fd()))?;
                say(caller, &granted, Some(child.pidfd()))?;
                children.push(child);
            }
            Err(error) => say(caller, &Message::Denied { text: error.to_string() }, None)?,
        }
    }
}

fn make(kind: &Kind) -> Result<(WorkerProcess, Socket), HostError> {
    let failed = |source| HostError::Socket { operation: "making a socket for", source };
    let (callers, workers) = Socket::pair().map_err(failed)?;
    let child = fork(workers.as_fd(), Standing::Isolated, |socket| work(socket, kind))?;
    Ok((child, callers))
}

/// The whole life of a worker; its exit code.
fn work(socket: OwnedFd, kind: &Kind) -> i32 {
    match worker::lock_in_and_serve(socket, kind.memory_bytes, kind.task.clone()) {
        Ok(()) => 0,
        Err(error) => {
            // Seen only where the caller asked to keep standard error.
            eprintln!("framepath: worker: {}", shown(&error.to_string()));
            1
        }
    }
}
