// SPDX-License-Identifier: MIT OR Apache-2.0
//! Session of one stream, across all its workers: the state that any thread may read.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use framepath_model::wire::UpstreamRequest;
use framepath_os::measure::meter::Level;

use super::WorkerStats;
use super::spec::Spec;
use super::worker_stream::WorkerStream;
use crate::request::Request;
use crate::requests::Upstream;

/// State of one stream across all its workers, for any thread.
pub struct Session {
    pub(super) spec: Spec,
    /// The ledger's level in the workers, as a number of the wire format: 0 `off`, 1 `times`, 2 `full`.
    pub(super) level: AtomicU8,
    /// True after [`Session::abandon`].
    abandoned: AtomicBool,
    /// The present worker, for threads that abandon the stream or wake the collect end; during a replacement
    /// the old worker; `None` before the start and after the end. The thread that starts the stream takes the
    /// lock for the first worker; the collect end takes it for each replacement and at the end of the stream.
    /// The submit end never takes it.
    present: Mutex<Option<Arc<WorkerStream>>>,
    pub(super) stats: Arc<WorkerStats>,
    /// Upstream path of the stage's requests. Set at the first input or flush; never set outside a pipeline.
    upstream: OnceLock<Upstream>,
}

impl Session {
    /// Makes the session of a stream; starts no worker.
    pub fn new(spec: Spec) -> Arc<Session> {
        Arc::new(Session {
            spec,
            level: AtomicU8::new(0),
            abandoned: AtomicBool::new(false),
            present: Mutex::new(None),
            stats: Arc::default(),
            upstream: OnceLock::new(),
        })
    }

    /// True if the session's workers decode with a device.
    pub(crate) fn is_by_device(&self) -> bool {
        self.spec.options.kind.device().is_some()
    }

    /// Sets the ledger's level inside the workers. Call it before the stream starts: later calls have
    /// no effect, and replacements use the level of the first worker.
    pub fn set_level(&self, level: Level) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// Returns the statistics of the stream's workers.
    pub(crate) fn stats(&self) -> Arc<WorkerStats> {
        self.stats.clone()
    }

    /// Ends the stream, from any thread: kills the present worker. A worker that is being started is killed
    /// when it has opened the stream. The collect end returns the frames that the worker had completed, and
    /// then fails with `HostError::Abandoned`, unless the worker had completed the whole stream. A collect
    /// end that waits at a held end goes on waiting, and fails only after a flush. Once the collect end is
    /// dropped, the submit end fails with `SubmitError::Closed`.
    pub fn abandon(&self) {
        // Release: pairs with the Acquire in `is_abandoned`.
        self.abandoned.store(true, Ordering::Release);
        if let Some(link) = &*self.present() {
            link.break_off();
        }
    }

    /// Wakes the collect end, from any thread, to check for requests. Does nothing before the stream has its
    /// first worker and after the stream has ended.
    pub(crate) fn request_attention(&self) {
        if let Some(link) = &*self.present() {
            link.health.request_attention();
        }
    }

    /// Sets the upstream path of the stage's requests. Only the first call has an effect.
    pub(super) fn set_upstream(&self, upstream: Upstream) {
        // A further call would set the same path, because a session belongs to one run.
        let _ = self.upstream.set(upstream);
    }

    /// Sends a request of the stage in the worker to the hops in front, as if the stage ran in this process.
    /// Drops the request before the first input or flush, after the end of the run, and outside a pipeline.
    pub(super) fn request(&self, request: UpstreamRequest) {
        let request = match request {
            UpstreamRequest::Keyframe => Request::Keyframe,
            UpstreamRequest::BitRate(bits) => Request::BitRate(bits),
        };
        if let Some(upstream) = self.upstream.get() {
            let _ = upstream.send(request);
        }
    }

    /// True once [`Session::abandon`] was called.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Records the stream's new worker, also in the statistics. Kills this worker at once if the stream was
    /// abandoned before.
    pub(super) fn set_worker(&self, link: &Arc<WorkerStream>) {
        self.stats.pid.store(link.pid(), Ordering::Relaxed);
        self.stats.recoveries.opened(&link.process());
        *self.present() = Some(link.clone());
        if self.is_abandoned() {
            // The stream was abandoned before this worker was recorded.
            link.break_off();
        }
    }

    /// Records that the stream has ended and has no worker.
    pub(super) fn clear_worker(&self) {
        *self.present() = None;
    }

    fn present(&self) -> MutexGuard<'_, Option<Arc<WorkerStream>>> {
        // A panic leaves the value consistent.
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
