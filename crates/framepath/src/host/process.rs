// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker's process, as its caller has it.

use std::sync::{Arc, Mutex, PoisonError};

use framepath_os::clock::cpu_ns_of;
use framepath_os::crossing::Socket;
use framepath_os::sandbox::Layers;
use framepath_os::spawn::{Remote, WorkerProcess};

use super::seat::{Seat, Turn};
use super::zygote::ZygoteProcess;

/// A worker that is loaded and locked in, and has no stream yet.
pub(super) struct Worker {
    pub(super) socket: Arc<Socket>,
    pub(super) process: Arc<Process>,
    /// The layers of its sandbox.
    pub(super) layers: Layers,
}

/// A worker's process, for any thread. Dropping the last one ends it, and
/// returns when it has ended.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) kind: Parent,
}

/// Which process a worker is a child of.
#[derive(Debug)]
pub(super) enum Parent {
    Us(Mutex<WorkerProcess>),
    /// The zygote lives as long as its last worker.
    Zygote {
        process: Remote,
        _zygote: Arc<ZygoteProcess>,
    },
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
            Parent::Zygote { process, .. } => process.kill(),
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
            Parent::Zygote { process, .. } => process.wait(),
            Parent::Service(..) => {}
        }
    }

    /// Ends it where nothing else does once its connection is shut, and returns when it
    /// has ended. The service ends its own workers.
    pub(super) fn finish(&self) {
        match &self.kind {
            Parent::Us(_) | Parent::Zygote { .. } => self.end(),
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
        if let Parent::Zygote { process, .. } = &self.kind {
            if process.kill().is_ok() {
                process.wait();
            }
        }
    }
}

impl Worker {
    /// A worker that the service granted.
    pub(super) fn of_service(
        socket: Socket,
        pid: u32,
        layers: Layers,
        seat: Arc<Seat>,
        turn: Turn,
    ) -> Worker {
        let process = Process { pid, kind: Parent::Service(seat, turn) };
        let (socket, process) = (Arc::new(socket), Arc::new(process));
        Worker { socket, process, layers }
    }

    pub(super) fn process(&self) -> Arc<Process> {
        self.process.clone()
    }
}
