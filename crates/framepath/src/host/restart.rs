// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restart of a stream in another worker, after the death of its worker.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use framepath_model::replay::RestartPlan;
use framepath_os::process::signal;

use super::between::SubmitCommand;
use super::collect::CollectEnd;
use super::policy::Restarts;
use super::spec::Attempt;
use super::{HostError, opening, start};

impl CollectEnd {
    /// Ends the worker, starts another, and submits the inputs that a replay needs, as far as the new worker
    /// has room. `why` is the reason for the replacement.
    ///
    /// # Errors
    /// The stream was abandoned, the grace period of a signal ended, this process caused the error or lacks a
    /// resource now, no worker can be started or open the stream, or too many workers have ended.
    pub(super) fn replace(&mut self, why: HostError) -> Result<(), HostError> {
        if self.session.is_abandoned() || signal::overdue() {
            return Err(HostError::Abandoned);
        }
        if why.is_of_caller() {
            // The caller caused the error: another worker would not help, and no packet is poisoned.
            return Err(why);
        }
        log::warn!("worker {} is replaced: {why}", self.link.pid());
        *self.session.stats.last_death.lock().unwrap_or_else(PoisonError::into_inner) = why.to_string();
        self.count_cpu();
        // From here on this worker gets no inputs, so the log has all inputs that the worker got.
        self.link.break_off();
        self.session.stats.recoveries.finish();
        self.is_recovering = true;
        self.session.stats.deaths.fetch_add(1, Ordering::Relaxed);
        self.history.read_log();
        let attempt = self.plan()?;
        let spec = &self.session.spec;
        if spec.options.kind.device().is_some() {
            // The device stays busy until the process is gone.
            self.link.process().end();
        }
        let which = (self.link.number + 1, attempt);
        let (link, sending, receiving) = Restarts::open(|| {
            let worker = start::worker(spec.service.as_ref(), &spec.options)?;
            opening::open(worker, spec, self.start, which)
        })?;
        self.session.set_worker(&link);
        self.history.begin(sending);
        let old = std::mem::replace(&mut self.link, link.clone());
        let _receiving = std::mem::replace(&mut self.receiving, receiving);
        // Fails only if the submit end is gone, which has then logged its last entry.
        let _ = self.commands.send(SubmitCommand::Next(link));
        self.submit_rest()?;
        // Waits for the old process only now, while the new worker works. Dropping `old` would not end
        // it, because the submit end may keep its handle until its next input.
        old.process().finish();
        Ok(())
    }

    /// Adds the present worker's CPU time and traffic to the stream's statistics. Call it before the
    /// worker's process is reaped, because the CPU clock is gone then.
    pub(super) fn count_cpu(&self) {
        self.session.stats.cpu_ns.fetch_add(self.link.cpu_ns(), Ordering::Relaxed);
        self.session.stats.traffic.add(&self.link.health.traffic);
    }

    /// Sets the stream's count of skipped inputs to that of the replay log.
    pub(super) fn count_skipped(&self) {
        self.session.stats.skipped.store(self.history.book.skipped(), Ordering::Relaxed);
    }

    /// Counts a death, decides how to open the next worker, and records the losses in the statistics and the
    /// replay log.
    ///
    /// # Errors
    /// Too many workers have ended in a row: without a new frame, or before they took an input.
    fn plan(&mut self) -> Result<Attempt, HostError> {
        self.restarts.died()?;
        let stats = &self.session.stats;
        stats.takes_frames.store(self.session.spec.track.is_none(), Ordering::Relaxed);
        let taken = self.history.last_taken(self.link.health.taken());
        let kept = std::mem::take(&mut self.kept);
        let book = &mut self.history.book;
        let first = |place: &std::sync::atomic::AtomicU64, seq: u64| {
            let _ = place.compare_exchange(0, seq + 1, Ordering::Relaxed, Ordering::Relaxed);
        };
        if !self.link.replayable {
            let took_input = self.link.health.taken() > 0;
            stats.lost_states.fetch_add(took_input.into(), Ordering::Relaxed);
            let lost = book.abandon(taken);
            stats.lost.fetch_add(lost.count, Ordering::Relaxed);
            if let Some(seq) = lost.first {
                first(&stats.first_lost, seq);
            }
            return Ok(Attempt::Again);
        }
        // An encoder that keeps frames has copied them, and this process cannot send them again.
        stats.lost.fetch_add(kept.count(), Ordering::Relaxed);
        if let Some(seq) = kept.first() {
            first(&stats.first_lost, seq);
        }
        match book.died(taken, self.link.threads == 1) {
            RestartPlan::Replay { single_threaded: false } => Ok(Attempt::Again),
            RestartPlan::Replay { single_threaded: true } => Ok(Attempt::SingleThreaded),
            RestartPlan::Skip { poisoned, .. } => {
                first(&stats.first_poisoned, poisoned);
                Ok(Attempt::SingleThreaded)
            }
            RestartPlan::GiveUp => Err(HostError::NotOpened {
                what: "the worker ended too often in a row before it took an input",
            }),
        }
    }
}

impl Drop for CollectEnd {
    fn drop(&mut self) {
        self.count_cpu();
        self.session.stats.replayed.store(self.history.book.replayed(), Ordering::Relaxed);
        self.count_skipped();
        self.session.clear_worker();
        // Wakes a submit end that waits for room. Dropping the history returns frames to their pools,
        // for which a hop in front may wait.
        self.link.health.end();
        // Needed, because the submit end may keep its handle until its next input.
        self.link.socket.shut();
        self.link.process().finish();
    }
}
