// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caller's connection to one worker. Both ends of a stream share the connection.
//!
//! The fields do not change during the worker's life, except for the counts and flags in `health`.

use std::sync::Arc;

use framepath_model::stream::StreamInfo;
use framepath_os::crossing::{SharedArea, Socket, Watcher};
use framepath_os::process::sandbox::Layers;

use super::health::WorkerHealth;
use super::process::{SharedProcess, Worker};

/// One worker with an open stream.
pub(super) struct WorkerStream {
    /// Number of the worker among those of the stream, from 0.
    pub(super) number: u64,
    pub(super) area: Arc<SharedArea>,
    pub(super) socket: Arc<Socket>,
    pub(super) health: Arc<WorkerHealth>,
    pub(super) watcher: Watcher,
    pub(super) worker: Worker,
    /// Number of threads of the stage, as the worker has reported it.
    pub(super) threads: u32,
    /// True if the stage's inputs can be submitted again to another worker, as this worker has reported it.
    pub(super) replayable: bool,
    /// Description of the stage's output stream.
    pub(super) stream: StreamInfo,
}

impl WorkerStream {
    /// Marks the worker as gone, kills it, and wakes both ends of the stream.
    pub(super) fn break_off(&self) {
        self.health.end();
        self.kill();
    }

    /// Kills the worker (a worker of the service by a request to the service), and shuts its socket. The
    /// worker's completed cells can still be taken.
    pub(super) fn kill(&self) {
        self.worker.process().kill();
        self.socket.shut();
    }

    /// Returns the worker's process.
    pub(super) fn process(&self) -> Arc<SharedProcess> {
        self.worker.process()
    }

    /// Returns the worker's process id; 0 if it is not visible to this program.
    pub(super) fn pid(&self) -> u32 {
        self.worker.process.pid()
    }

    /// Returns the layers of the worker's sandbox.
    pub(super) fn layers(&self) -> Layers {
        self.worker.layers
    }

    /// Returns the CPU time that the worker has used, nanoseconds; 0 if the process is gone, or is not
    /// visible to this program.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.worker.process().cpu_ns()
    }
}
