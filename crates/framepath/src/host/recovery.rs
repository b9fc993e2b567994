// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of each replacement of a worker: how long the stream had no worker and no new frame.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use framepath_model::wire::WorkerTime;
use framepath_os::time::now_ns;

use super::process::SharedProcess;

/// Maximum number of recoveries to keep. A further recovery removes the oldest.
const REMEMBERED: usize = 4096;

/// Time line of one replacement of a worker. Fields whose name ends with `_ns` are CLOCK_MONOTONIC times,
/// nanoseconds, except `first_work_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Number of the worker that ended, among the workers of the stream, from 0.
    pub worker: u64,
    /// Time when the collect end began to replace the worker. If the worker ended by itself or was killed,
    /// the collect end had taken all completions of the worker before this time.
    pub seen_ns: u64,
    /// Time when the next worker had opened the stream, just before the history was submitted to it.
    pub opened_ns: u64,
    /// Time when the collect end took the next worker's first frame, which may be a repetition of a delivered
    /// frame.
    pub first_ns: u64,
    /// Time that the next worker spent on its first frame, from receipt to completion, nanoseconds; 0 if
    /// the ledger is off.
    pub first_work_ns: u64,
    /// Time when the collect end took the first frame of the next worker that it then delivered.
    pub new_ns: u64,
}

/// A stream's recoveries, and its present worker.
#[derive(Debug, Default)]
pub struct Recoveries(Mutex<RecoveryState>);

#[derive(Debug, Default)]
struct RecoveryState {
    /// Number of workers that have opened the stream.
    opened: u64,
    present: Weak<SharedProcess>,
    /// The recovery since the last death, until its first new frame; else `None`.
    begun: Option<Recovery>,
    done: VecDeque<Recovery>,
}

impl Recoveries {
    /// Kills the present worker by SIGKILL (a worker of the service by a request to the service) without
    /// informing the stream, to measure a recovery. Returns the worker's number in the stream and the time
    /// of the kill (CLOCK_MONOTONIC, nanoseconds); `None` if there is no worker. Any thread may call it.
    pub fn kill_present(&self) -> Option<(u64, u64)> {
        let state = self.locked();
        let process = state.present.upgrade()?;
        let at_ns = now_ns();
        process.kill();
        Some((state.opened.checked_sub(1)?, at_ns))
    }

    /// Returns the last 4096 recoveries that reached a new frame, oldest first. If the new worker ended
    /// before its first new frame, only the following recovery is in the list.
    pub fn done(&self) -> Vec<Recovery> {
        self.locked().done.iter().copied().collect()
    }

    pub(super) fn opened(&self, process: &Arc<SharedProcess>) {
        let mut state = self.locked();
        state.opened += 1;
        state.present = Arc::downgrade(process);
        if let Some(recovery) = &mut state.begun {
            recovery.opened_ns = now_ns();
        }
    }

    pub(super) fn finish(&self) {
        let mut state = self.locked();
        state.present = Weak::new();
        let worker = state.opened.saturating_sub(1);
        state.begun = Some(Recovery { worker, seen_ns: now_ns(), ..Recovery::default() });
    }

    /// Records a frame that arrived during a recovery. `is_new` is true if the frame was not delivered
    /// before; such a frame ends the recovery. Does nothing outside a recovery.
    pub(super) fn arrived(&self, work: &WorkerTime, is_new: bool) {
        let mut state = self.locked();
        let Some(recovery) = &mut state.begun else { return };
        if recovery.first_ns == 0 {
            recovery.first_ns = now_ns();
            recovery.first_work_ns = work.leave_ns.saturating_sub(work.enter_ns);
        }
        if is_new {
            let done = Recovery { new_ns: now_ns(), ..*recovery };
            state.begun = None;
            if state.done.len() == REMEMBERED {
                state.done.pop_front();
            }
            state.done.push_back(done);
        }
    }

    /// Locks the state, even if it is poisoned: a panic leaves the state consistent.
    fn locked(&self) -> MutexGuard<'_, RecoveryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_ends_with_the_first_new_frame() {
        let recoveries = Recoveries::default();
        assert_eq!(recoveries.kill_present(), None);
        let frame = |enter_ns, leave_ns| WorkerTime { enter_ns, leave_ns, ..WorkerTime::default() };
        recoveries.arrived(&frame(1, 2), true);
        assert_eq!(recoveries.done(), []);
        recoveries.finish();
        recoveries.arrived(&frame(10, 17), false);
        recoveries.arrived(&frame(20, 29), false);
        assert_eq!(recoveries.done(), []);
        recoveries.arrived(&frame(30, 31), true);
        recoveries.arrived(&frame(40, 41), true);
        let [one] = recoveries.done()[..] else { panic!("one recovery") };
        assert_eq!((one.worker, one.first_work_ns), (0, 7));
        assert!(one.seen_ns <= one.first_ns && one.first_ns <= one.new_ns);
    }
}
