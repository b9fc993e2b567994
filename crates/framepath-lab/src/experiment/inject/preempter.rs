// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real-time thread that occupies one CPU for a known time on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use framepath_os::process::affinity;
use framepath_os::time::now_ns;

use crate::error::LabError;

/// Counters and timestamps that the real-time thread shares with its callers.
#[derive(Default)]
struct Shared {
    /// Number of requests made.
    asked: AtomicU64,
    /// Number of requests for which the thread began to occupy the CPU.
    began: AtomicU64,
    /// Number of requests for which the thread has released the CPU.
    served: AtomicU64,
    /// Time at which the thread began to occupy the CPU for the last request, nanoseconds of the
    /// monotonic clock.
    start_ns: AtomicU64,
    /// Time at which the thread released the CPU after the last served request, nanoseconds of the
    /// monotonic clock.
    end_ns: AtomicU64,
    /// True once the thread must end.
    stop: AtomicBool,
}

/// Handle of the real-time thread. Dropping the handle stops the thread and waits for its end.
pub(super) struct Preempter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Preempter {
    /// Starts the thread, pinned to `cpu`. Each request makes it occupy that CPU for `ns`
    /// nanoseconds.
    ///
    /// # Errors
    /// [`LabError::Missing`] without the right to real-time priority, or if the thread cannot be
    /// pinned; [`LabError::Io`] if no thread can be created.
    pub(super) fn start(cpu: usize, ns: u64) -> Result<Preempter, LabError> {
        let shared = Arc::new(Shared::default());
        let (ready, started) = mpsc::channel();
        let of_thread = shared.clone();
        let thread = thread::Builder::new().name("preempter".to_owned()).spawn(move || {
            let set_up = affinity::pin_to(cpu).and_then(|()| affinity::become_realtime());
            let go = set_up.is_ok();
            if ready.send(set_up).is_ok() && go {
                serve(&of_thread, ns);
            }
        });
        let thread = thread.map_err(LabError::io("starting the real-time thread"))?;
        let preempter = Preempter { shared, thread: Some(thread) };
        match started.recv() {
            Ok(Ok(())) => Ok(preempter),
            Ok(Err(error)) => Err(LabError::Missing(format!(
                "no pinned thread with real-time priority ({error}); run as root, or raise RLIMIT_RTPRIO"
            ))),
            Err(_) => Err(LabError::Missing("the real-time thread did not start".to_owned())),
        }
    }

    /// Requests that the real-time thread occupies its CPU once. A caller on that CPU is preempted before
    /// this function returns; a caller on another CPU continues, and may call
    /// [`Preempter::wait_until_running`].
    pub(super) fn ask(&self) {
        self.shared.asked.fetch_add(1, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Spins until the real-time thread has begun to occupy its CPU for the last request. Call this on
    /// another CPU only.
    pub(super) fn wait_until_running(&self) {
        while self.shared.began.load(Ordering::Acquire) < self.shared.asked.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }

    /// Waits until the thread has served the last request. Returns the start and the end of its
    /// occupation of the CPU, nanoseconds of the monotonic clock.
    pub(super) fn taken(&self) -> (u64, u64) {
        while self.shared.served.load(Ordering::Acquire) < self.shared.asked.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        (self.shared.start_ns.load(Ordering::Relaxed), self.shared.end_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Preempter {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread never panics, so its result is ignored.
            let _ = thread.join();
        }
    }
}

fn serve(shared: &Shared, ns: u64) {
    while !shared.stop.load(Ordering::Acquire) {
        if shared.served.load(Ordering::Relaxed) == shared.asked.load(Ordering::Acquire) {
            thread::park();
            continue;
        }
        let start = now_ns();
        shared.start_ns.store(start, Ordering::Relaxed);
        shared.began.fetch_add(1, Ordering::Release);
        while now_ns() - start < ns {
            std::hint::spin_loop();
        }
        shared.end_ns.store(now_ns(), Ordering::Relaxed);
        shared.served.fetch_add(1, Ordering::Release);
    }
}
