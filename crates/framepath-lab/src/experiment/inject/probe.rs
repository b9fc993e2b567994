// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stages and records of `inject`. The stages inject a cost and record it themselves, without the ledger; a
//! hook in a decoder uses the same records.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use framepath::{HopFailure, Item, Out, Stage, StageError};
use framepath_model::stream::StreamInfo;
use framepath_os::measure::meter;
use framepath_os::time::{now_ns, sleep_until, thread_cpu_ns};

use super::preempter::Preempter;

/// Record, made by a stage or by a hook in a decoder, of the work that it injected into one frame.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Time before the injected work, nanoseconds of the monotonic clock.
    start_ns: u64,
    /// Time after the injected work, nanoseconds of the monotonic clock; in a [`PreemptStage`] the
    /// time just before the frame is passed on, while the preemption lasts.
    end_ns: u64,
    /// CPU time of the thread between `start_ns` and `end_ns`, nanoseconds; 0 in a
    /// [`PreemptStage`].
    cpu_ns: u64,
    /// Start and end of the preemption, nanoseconds of the monotonic clock; `None` if the injected work has
    /// no preemption.
    taken: Option<(u64, u64)>,
}

/// Records of one stage, or of a hook in a decoder, by the frames' sequence numbers. Clones share the records,
/// so that the caller can read them after the run.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<HashMap<u64, Entry>>>);

impl Log {
    /// Runs `inject`, which injects work into frame `seq` and returns the start and the end of a preemption, if
    /// there was one. Records the times and the CPU time of the calling thread.
    pub(super) fn record(&self, seq: u64, inject: impl FnOnce() -> Option<(u64, u64)>) {
        let (cpu, start_ns) = (thread_cpu_ns(), now_ns());
        let taken = inject();
        let (end_ns, cpu_ns) = (now_ns(), thread_cpu_ns() - cpu);
        self.add(seq, Entry { start_ns, end_ns, cpu_ns, taken });
    }

    fn add(&self, seq: u64, entry: Entry) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(seq, entry);
    }

    fn get(&self, seq: u64) -> Option<Entry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&seq).copied()
    }

    /// Returns the CPU time of the work injected into frame `seq`, nanoseconds; `None` if not
    /// recorded.
    pub(super) fn cpu_ns(&self, seq: u64) -> Option<f64> {
        self.get(seq).map(|e| e.cpu_ns as f64)
    }

    /// Returns the wall time of the work injected into frame `seq`, nanoseconds; `None` if not
    /// recorded.
    pub(super) fn wall_ns(&self, seq: u64) -> Option<f64> {
        self.get(seq).map(|e| (e.end_ns - e.start_ns) as f64)
    }

    /// Returns the time after the work for frame `seq`, nanoseconds of the monotonic clock; `None` if
    /// not recorded.
    pub(super) fn end_ns(&self, seq: u64) -> Option<u64> {
        self.get(seq).map(|e| e.end_ns)
    }

    /// Returns how long the real-time thread occupied the CPU for frame `seq`, nanoseconds; `None` if
    /// the frame is not recorded or had no preemption.
    pub(super) fn taken_ns(&self, seq: u64) -> Option<f64> {
        self.get(seq)?.taken.map(|(from, to)| (to - from) as f64)
    }

    /// Returns the time in nanoseconds from just before a [`PreemptStage`] passed frame `seq` on
    /// (`end_ns`) to the end of the preemption; 0 if the preemption ended first; `None` if the frame is not
    /// recorded or had no preemption.
    pub(super) fn until_released_ns(&self, seq: u64) -> Option<f64> {
        let entry = self.get(seq)?;
        Some(entry.taken?.1.saturating_sub(entry.end_ns) as f64)
    }
}

/// Cost that an [`InjectStage`] injects into every frame.
pub(super) enum InjectedCost {
    /// CPU time to burn, nanoseconds.
    Burn(u64),
    /// CPU time to burn, nanoseconds; after half of it the real-time thread preempts the stage.
    BurnUnder(u64, Arc<Preempter>),
    /// A copy from the first buffer to the second, counted by the ledger.
    Copy(Vec<u8>, Vec<u8>),
    /// A sleep, nanoseconds, which the ledger sees as a known wait.
    Sleep(u64),
}

impl InjectedCost {
    /// Creates a copy of `bytes` bytes between two buffers, both already written, so that the copy
    /// causes no page faults.
    pub(super) fn copy(bytes: usize) -> InjectedCost {
        InjectedCost::Copy(vec![1; bytes], vec![2; bytes])
    }
}

/// Sink that injects its cost into every frame, records it, and drops the frame.
pub(super) struct InjectStage {
    work: InjectedCost,
    log: Log,
}

impl InjectStage {
    pub(super) fn new(work: InjectedCost) -> (InjectStage, Log) {
        let log = Log::default();
        (InjectStage { work, log: log.clone() }, log)
    }

    fn inject(&mut self) {
        match &mut self.work {
            InjectedCost::Burn(ns) => burn(*ns),
            InjectedCost::BurnUnder(ns, preempter) => {
                burn(*ns / 2);
                preempter.ask();
                burn(*ns / 2);
            }
            InjectedCost::Copy(from, to) => {
                meter::copy_bytes(to, std::hint::black_box(from));
                std::hint::black_box(to);
            }
            InjectedCost::Sleep(ns) => meter::blocked(|| sleep_until(now_ns() + *ns)),
        }
    }
}

/// Uses at least `ns` nanoseconds of the calling thread's CPU time.
pub(super) fn burn(ns: u64) {
    let until = thread_cpu_ns() + ns;
    while thread_cpu_ns() < until {
        std::hint::spin_loop();
    }
}

impl Stage for InjectStage {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, _: &mut Out<'_>) -> Result<(), HopFailure> {
        let (cpu, start_ns) = (thread_cpu_ns(), now_ns());
        self.inject();
        let (end_ns, cpu_ns) = (now_ns(), thread_cpu_ns() - cpu);
        let taken = match &self.work {
            InjectedCost::BurnUnder(_, preempter) => Some(preempter.taken()),
            _ => None,
        };
        self.log.add(item.meta().seq, Entry { start_ns, end_ns, cpu_ns, taken });
        Ok(())
    }
}

/// Stage that makes a real-time thread occupy the consumer's CPU just before the stage passes each frame
/// on, and records when the thread released the CPU.
pub(super) struct PreemptStage {
    preempter: Arc<Preempter>,
    log: Log,
    before_first: Option<Prepare>,
}

/// Function that a [`PreemptStage`] calls once, before its first frame. An error fails the run.
type Prepare = Box<dyn FnOnce() -> std::io::Result<()> + Send>;

impl PreemptStage {
    pub(super) fn new(preempter: Arc<Preempter>) -> (PreemptStage, Log) {
        let log = Log::default();
        (PreemptStage { preempter, log: log.clone(), before_first: None }, log)
    }

    /// Sets `prepare` as the function to be called once, before the first frame.
    pub(super) fn before_first(&mut self, prepare: impl FnOnce() -> std::io::Result<()> + Send + 'static) {
        self.before_first = Some(Box::new(prepare));
    }
}

impl Stage for PreemptStage {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if let Some(prepare) = self.before_first.take() {
            let io = |error| StageError::Io { what: "pinning the worker to a CPU".to_owned(), error };
            prepare().map_err(|error| out.fail(io(error)))?;
        }
        let start_ns = now_ns();
        self.preempter.ask();
        self.preempter.wait_until_running();
        let seq = item.meta().seq;
        let end_ns = now_ns();
        out.push(item)?;
        let taken = Some(self.preempter.taken());
        self.log.add(seq, Entry { start_ns, end_ns, cpu_ns: 0, taken });
        Ok(())
    }
}

/// Sink that drops every frame.
pub(super) struct DropSink;

impl Stage for DropSink {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, _: Item, _: &mut Out<'_>) -> Result<(), HopFailure> {
        Ok(())
    }
}
