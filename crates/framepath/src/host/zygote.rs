// SPDX-License-Identifier: MIT OR Apache-2.0
//! Zygote: the process that workers are forked from. This module is the caller's handle on the zygote.
//!
//! A program that is linked with the codec libraries takes tens of milliseconds of
//! CPU to load. The zygote is the worker program, started at the first request for a worker that it can fork.
//! The zygote loads the libraries and then only forks, so a worker costs a millisecond. The zygote and its
//! workers share no address and no stack canary with the caller, and of its environment only LANG and
//! LD_LIBRARY_PATH. The zygote forks no worker that reaches the network, and none if FRAMEPATH_WORKER names a
//! worker program.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use framepath_model::wire::Message;
use framepath_os::crossing::Socket;
use framepath_os::process::sandbox::Layers;
use framepath_os::process::spawn::{Remote, WorkerProcess, spawn_zygote};

use super::kind::WorkerKind;
use super::message_io::{recv_within, send};
use super::policy::LOADING;
use super::{HostError, program};

/// Time limit for each of the two messages by which the zygote answers a request, the time to load included.
const SPAWNING: Duration = LOADING;

/// Time that the zygote has to end its workers and itself, before it is killed.
const ENDING: Duration = Duration::from_secs(1);

/// The caller's handle on the zygote. Dropping the handle ends the zygote, which first ends its remaining
/// workers, and waits for the zygote's end, so that the kernel adds the CPU time of all of them to that of
/// the caller's children. A zygote that does not end within 1 s is killed; the kernel then kills its workers.
#[derive(Debug)]
pub(super) struct ZygoteProcess {
    socket: Socket,
    process: WorkerProcess,
    /// Path of the program, for errors.
    program: PathBuf,
    /// True once it has forked a worker, and from the start if its program is this one.
    is_proven: AtomicBool,
}

/// A worker that was just forked.
pub(super) struct Spawned {
    pub(super) pid: u32,
    pub(super) process: Remote,
    pub(super) socket: Socket,
    /// Layers of the worker's sandbox that the zygote made: the namespaces and the cgroup.
    pub(super) layers: Layers,
}

impl ZygoteProcess {
    /// Starts the zygote, which is still loading when this function returns. The kernel kills the zygote
    /// when the calling thread ends.
    ///
    /// # Errors
    /// The worker program cannot be found or started, or the socket to it cannot be made.
    pub(super) fn start() -> Result<ZygoteProcess, HostError> {
        let program = program::find()?;
        let failed = |source| HostError::Start { program: program.name.display().to_string(), source };
        let (ours, theirs) = Socket::pair().map_err(failed)?;
        let process = spawn_zygote(&program.file, &[OsStr::new(program::ZYGOTE)], theirs.as_fd())?;
        let is_proven = AtomicBool::new(program.is_own());
        Ok(ZygoteProcess { socket: ours, process, program: program.name, is_proven })
    }

    /// Makes the zygote fork a worker, and waits until the zygote has forked the worker. Call this function
    /// from one thread at a time, because answers arrive in the order of requests.
    ///
    /// # Errors
    /// The zygote denied the request, ended, or sent no valid answer in time; or the socket failed.
    pub(super) fn spawn(&self, kind: &WorkerKind) -> Result<Spawned, HostError> {
        let ended = || match self.is_proven.load(Ordering::Relaxed) {
            true => HostError::NotOpened {
                what: "start worker: the process that forks workers (zygote) has ended, perhaps for lack of processes \
                       or memory; end some processes of this user, or raise `ulimit -u` or the memory's limit",
            },
            false => HostError::NeverReady { program: self.program.display().to_string() },
        };
        send(&self.socket, &Message::Spawn { kind: kind.to_string() }, None).map_err(
            |error| match error {
                HostError::Socket { .. } => ended(),
                other => other,
            },
        )?;
        let granted = || match recv_within(&self.socket, SPAWNING)? {
            Some((Message::Grant { pid, layers, .. }, Some(fd))) => Ok((pid, layers, fd)),
            Some((Message::Denied { text }, _)) => Err(HostError::NotForked { text }),
            None => Err(ended()),
            Some(_) => Err(HostError::NotOpened { what: "start worker: the zygote sent no valid answer" }),
        };
        let (pid, layers, socket) = granted()?;
        let (_, _, pidfd) = granted()?;
        self.is_proven.store(true, Ordering::Relaxed);
        let layers = Layers::from_bits(layers).unwrap_or_default();
        Ok(Spawned { pid, process: Remote::from(pidfd), socket: Socket::from(socket), layers })
    }
}

impl Drop for ZygoteProcess {
    fn drop(&mut self) {
        self.socket.shut();
        // A stopped zygote (SIGSTOP) does not end. The kernel kills its workers with it.
        if !self.process.ends_within(ENDING) {
            let _ = self.process.kill();
        }
        // Waiting fails only if the process is gone already.
        let _ = self.process.wait();
    }
}
