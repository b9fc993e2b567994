// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker's process, as its caller holds it.

use std::sync::{Arc, Mutex, PoisonError};

use framepath_os::crossing::Socket;
use framepath_os::process::sandbox::Layers;
use framepath_os::process::spawn::{Remote, WorkerProcess};
use framepath_os::time::cpu_ns_of;

use super::service_stream::{ServiceStream, WorkerNumber};
use super::zygote::ZygoteProcess;

/// A worker inside its sandbox, as its caller holds it.
pub(super) struct Worker {
    pub(super) socket: Arc<Socket>,
    pub(super) process: Arc<SharedProcess>,
    /// Layers of the worker's sandbox.
    pub(super) layers: Layers,
}

/// A worker's process, for any thread. Dropping the last handle kills the process and waits for its end,
/// unless the process belongs to the service: the service ends its processes itself.
#[derive(Debug)]
pub(super) struct SharedProcess {
    /// Process id, as this process sees it; 0 if it is not visible to this process.
    pub(super) pid: u32,
    /// The process that has started the worker.
    pub(super) kind: Parent,
}

/// The process that has started a worker, with the handle by which this process ends the worker.
#[derive(Debug)]
pub(super) enum Parent {
    /// This process.
    Us(Mutex<WorkerProcess>),
    /// The zygote of this process. The handles of the workers keep the zygote alive.
    Zygote { process: Remote, _zygote: Arc<ZygoteProcess> },
    /// The service, at the other end of this connection, and the number of the worker there.
    Service(Arc<ServiceStream>, WorkerNumber),
}

impl SharedProcess {
    /// Returns the process id, as this process sees it; 0 if it is not visible to this process.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Kills the process, or requests that from the service; does not wait for the end of the process.
    pub(super) fn kill(&self) {
        // Fails only if the process is gone already.
        let _ = match &self.kind {
            Parent::Us(process) => process.lock().unwrap_or_else(PoisonError::into_inner).kill(),
            Parent::Zygote { process, .. } => process.kill(),
            Parent::Service(service, number) => service.kill(*number),
        };
    }

    /// Kills the process. Waits until the process has ended, unless the process belongs to the service.
    pub(super) fn end(&self) {
        self.kill();
        match &self.kind {
            Parent::Us(process) => {
                // Waiting fails only if the process is gone already.
                let _ = process.lock().unwrap_or_else(PoisonError::into_inner).wait();
            }
            Parent::Zygote { process, .. } => process.wait(),
            Parent::Service(..) => {}
        }
    }

    /// Kills the process and waits until the process has ended. Does nothing if the process belongs to the
    /// service. The caller has shut the socket to the worker before.
    pub(super) fn finish(&self) {
        match &self.kind {
            Parent::Us(_) | Parent::Zygote { .. } => self.end(),
            Parent::Service(..) => {}
        }
    }

    /// Returns the CPU time that the process has used, nanoseconds; 0 if the process is gone, or is not
    /// visible to this program.
    pub(super) fn cpu_ns(&self) -> u64 {
        // The pid is 0 if it is not visible here; the kernel takes 0 as this process.
        if self.pid == 0 { 0 } else { cpu_ns_of(self.pid).unwrap_or(0) }
    }
}

impl Drop for SharedProcess {
    fn drop(&mut self) {
        // The fields of the other variants end their process: `WorkerProcess` kills it, and
        // `ServiceStream` closes the connection to the service.
        if let Parent::Zygote { process, .. } = &self.kind {
            if process.kill().is_ok() {
                process.wait();
            }
        }
    }
}

impl Worker {
    /// Makes the handle of a worker that the service granted.
    pub(super) fn from_service(
        socket: Socket,
        pid: u32,
        layers: Layers,
        service: Arc<ServiceStream>,
        number: WorkerNumber,
    ) -> Worker {
        let process = SharedProcess { pid, kind: Parent::Service(service, number) };
        let (socket, process) = (Arc::new(socket), Arc::new(process));
        Worker { socket, process, layers }
    }

    pub(super) fn process(&self) -> Arc<SharedProcess> {
        self.process.clone()
    }
}
