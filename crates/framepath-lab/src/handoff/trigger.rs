// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of the hand-off: makes the worker emit frames, and reads the clocks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use framepath::host::WorkerStats;
use framepath::{HopFailure, Item, Out, RunError, Source, StageError};
use framepath_model::format::Layout;
use framepath_model::stream::{FrameMeta, Rational, StreamInfo};
use framepath_os::memory::pool::Pool;
use framepath_os::process::running::{self, Used};
use framepath_os::process::signal;
use framepath_os::time::{now_ns, sleep_until};

use super::Handoff;
use super::reader::ReceivedFrames;

/// Smallest number of frames of the warm-up: so many frames use every slot of the worker twice.
const WARM_UP_FRAMES: u64 = 16;
/// Time between two frames of the warm-up, nanoseconds.
const WARM_UP_PERIOD_NS: u64 = 1_000_000;
/// Shortest warm-up, nanoseconds. The library starts a spare worker after the first worker; this time
/// lets the spare worker finish its start-up.
const WARM_UP_LEAST_NS: u64 = 250_000_000;
/// Size of a trigger frame (the small frame sent to the worker), bytes.
const TRIGGER_BYTES: usize = 64;
/// Number of slots for trigger frames: more than the ring to the worker has, so that the worker's own pool
/// of 8 frames limits the frames in flight.
const TRIGGERS: u32 = 128;
const SECOND_NS: u64 = 1_000_000_000;

/// State shared by the trigger source and the reader.
#[derive(Debug)]
pub(super) struct Meeting {
    /// Number of warm-up frames that reached the reader.
    pub(super) warm: AtomicU64,
    /// Sequence number of the first measured frame; `u64::MAX` during the warm-up.
    pub(super) first: AtomicU64,
}

impl Default for Meeting {
    fn default() -> Meeting {
        Meeting { warm: AtomicU64::new(0), first: AtomicU64::new(u64::MAX) }
    }
}

/// Clock readings of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// Start of the measurement, with no frame in flight; CLOCK_MONOTONIC nanoseconds.
    pub(super) start_ns: u64,
    /// Resources that this process used from its own start until the start of the measurement.
    pub(super) own: Used,
    /// Resources that the worker used from the start to the end of the measurement. Before the end
    /// this field has those that the worker used until the start.
    pub(super) worker: Used,
}

/// Source that sends the worker a small frame whenever a large frame is due.
pub(super) struct TriggerSource {
    pool: Pool,
    info: StreamInfo,
    frames: u64,
    rate: u64,
    begun_ns: Option<u64>,
    clocks: Option<Clocks>,
    next_seq: u64,
    meeting: Arc<Meeting>,
    worker: Arc<OnceLock<Arc<WorkerStats>>>,
    is_done: Receiver<ReceivedFrames>,
    results: Sender<(ReceivedFrames, Clocks)>,
}

impl TriggerSource {
    /// Creates the source. At the end of the run the source receives the reader's counts from `seen`
    /// and sends them with the clocks to `results`.
    ///
    /// # Errors
    /// The pool of trigger frames cannot be created.
    pub(super) fn new(
        handoff: &Handoff,
        meeting: Arc<Meeting>,
        seen: Receiver<ReceivedFrames>,
        results: Sender<(ReceivedFrames, Clocks)>,
    ) -> Result<TriggerSource, RunError> {
        let layout = Layout::opaque(TRIGGER_BYTES);
        let frame_rate = Rational::new(i32::try_from(handoff.rate.max(1)).unwrap_or(i32::MAX), 1);
        let pool = Pool::new(TRIGGER_BYTES, TRIGGERS)
            .map_err(|error| RunError::Stage { hop: "trigger".to_owned(), error: error.into() })?;
        Ok(TriggerSource {
            pool,
            info: StreamInfo::from_layout(&layout, frame_rate),
            frames: handoff.frames,
            rate: handoff.rate,
            begun_ns: None,
            clocks: None,
            next_seq: 0,
            meeting,
            worker: Arc::default(),
            is_done: seen,
            results,
        })
    }

    /// Returns the cell for the worker's statistics, which the caller must set before the run.
    pub(super) fn worker(&self) -> Arc<OnceLock<Arc<WorkerStats>>> {
        self.worker.clone()
    }

    /// Returns true if the warm-up is over and no frame is in flight. The first call starts the
    /// warm-up.
    fn is_quiet(&mut self) -> bool {
        let now = now_ns();
        let begun = *self.begun_ns.get_or_insert(now);
        // Acquire: pairs with the Release of the reader.
        let seen = self.meeting.warm.load(Ordering::Acquire);
        now - begun >= WARM_UP_LEAST_NS && seen >= WARM_UP_FRAMES && seen == self.next_seq
    }

    /// Returns the resources that the worker has used since its start.
    ///
    /// # Errors
    /// The worker died, even if another one replaced it; its usage cannot be read; or the cell of
    /// [`TriggerSource::worker`] is empty.
    fn worker_used(&self) -> Result<Used, StageError> {
        let io = |error| StageError::Io { what: "reading the worker's CPU time".to_owned(), error };
        let gone = || io(std::io::ErrorKind::NotFound.into());
        let stats = self.worker.get().ok_or_else(gone)?;
        if stats.deaths.load(Ordering::Relaxed) > 0 {
            return Err(StageError::Option(
                "the worker died during the run; its figures are incomplete".to_owned(),
            ));
        }
        running::of(stats.pid.load(Ordering::Relaxed)).map_err(io)
    }

    fn start(&mut self) -> Result<Clocks, StageError> {
        let worker = self.worker_used()?;
        // Release: pairs with the Acquire of the reader. The ring in between
        // synchronizes too.
        self.meeting.first.store(self.next_seq, Ordering::Release);
        let clocks = Clocks { worker, own: running::own_usage(), start_ns: now_ns() };
        self.clocks = Some(clocks);
        Ok(clocks)
    }

    /// Waits until the reader has the last frame, then reads the worker's clock and sends the results.
    /// SIGINT, SIGTERM or a failure of the reader ends the wait without results and without an error.
    /// Fails if the worker died or its usage cannot be read.
    fn finish(&self, mut clocks: Clocks) -> Result<(), StageError> {
        while !signal::interrupted() {
            match self.is_done.recv_timeout(Duration::from_millis(100)) {
                Ok(seen) => {
                    clocks.worker = self.worker_used()?.since(clocks.worker);
                    // A cancelled run has no receiver.
                    let _ = self.results.send((seen, clocks));
                    break;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(())
    }

    fn push(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let frame = self.pool.acquire().map_err(|e| out.fail(e))?;
        let meta = FrameMeta { seq: self.next_seq, birth_ns: out.birth(), ..FrameMeta::default() };
        self.next_seq += 1;
        out.push(Item::Frame(frame.freeze(meta)))
    }
}

impl Source for TriggerSource {
    fn info(&self) -> StreamInfo {
        self.info
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        let clocks = match self.clocks {
            Some(clocks) => clocks,
            None => {
                if !self.is_quiet() {
                    self.push(out)?;
                    sleep_until(now_ns() + WARM_UP_PERIOD_NS);
                    return Ok(true);
                }
                self.start().map_err(|e| out.fail(e))?
            }
        };
        let number = self.next_seq - self.meeting.first.load(Ordering::Relaxed);
        if number == self.frames {
            self.finish(clocks).map_err(|e| out.fail(e))?;
            return Ok(false);
        }
        if let Some(offset) = ((number + 1) * SECOND_NS).checked_div(self.rate) {
            let due = clocks.start_ns + offset;
            while now_ns() < due && !signal::interrupted() {
                sleep_until(due);
            }
        }
        self.push(out)?;
        Ok(true)
    }
}
