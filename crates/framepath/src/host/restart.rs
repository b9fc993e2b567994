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
    /// Ends the worker and goes on with another: submits the inputs that have no output yet.
    pub(super) fn replace(&mut self, why: HostError) -> Result<(), HostError> {
        if self.session.is_abandoned() || signal::overdue() {
            return Err(HostError::Abandoned);
        }
        if why.is_of_caller() {
            // The worker did nothing wrong: no packet of it is to blame.
            return Err(why);
        }
        log::warn!("worker {} ended, another takes its stream: {why}", self.link.pid());
        *self.session.stats.last_death.lock().unwrap_or_else(PoisonError::into_inner) = why.to_string();
        self.count_cpu();
        // From now on this worker gets no more inputs. The log has those it got.
        self.link.break_off();
        self.session.stats.recoveries.finish();
        self.is_recovering = true;
        self.session.stats.deaths.fetch_add(1, Ordering::Relaxed);
        self.history.read_log();
        let attempt = self.plan()?;
        let spec = &self.session.spec;
        if spec.options.kind.device().is_some() {
            // The worker has the device until the process is gone.
            self.link.process().end();
        }
        let which = (self.link.number + 1, attempt);
        let (link, sending, receiving) = Restarts::open(|| {
            let worker = start::worker(spec.seat.as_ref(), &spec.options)?;
            opening::open(worker, spec, self.start, which)
        })?;
        self.session.resume_with(&link);
        self.history.begin(sending);
        let old = std::mem::replace(&mut self.link, link.clone());
        let _receiving = std::mem::replace(&mut self.receiving, receiving);
        // Fails only if the submit end is gone, which has then logged its last entry.
        let _ = self.ways.send(SubmitCommand::Next(link));
        self.submit_rest()?;
        // Waits for the old process while the new one works. The submit end may keep its handle on the
        // old one until its next input.
        old.process().finish();
        Ok(())
    }

    /// Adds the worker's CPU time and traffic to the stream's statistics. Call it before the worker is
    /// ended: a process that was reaped has no CPU clock.
    pub(super) fn count_cpu(&self) {
        self.session.stats.cpu_ns.fetch_add(self.link.cpu_ns(), Ordering::Relaxed);
        self.session.stats.traffic.add(&self.link.health.traffic);
    }

    /// Records how many inputs the book has skipped so far.
    pub(super) fn count_skipped(&self) {
        self.session.stats.skipped.store(self.history.book.skipped(), Ordering::Relaxed);
    }

    /// Decides how to go on after a death.
    fn plan(&mut self) -> Result<Attempt, HostError> {
        self.restarts.died()?;
        let stats = &self.session.stats;
        let taken = self.history.last_taken(self.link.health.taken());
        let book = &mut self.history.book;
        let first = |place: &std::sync::atomic::AtomicU64, seq: u64| {
            let _ = place.compare_exchange(0, seq + 1, Ordering::Relaxed, Ordering::Relaxed);
        };
        if !self.link.replayable {
            let lost = book.abandon(taken);
            stats.lost.fetch_add(lost.count, Ordering::Relaxed);
            if let Some(seq) = lost.first {
                first(&stats.first_lost, seq);
            }
            return Ok(Attempt::Again);
        }
        match book.died(taken, self.link.threads == 1) {
            RestartPlan::Replay { single_threaded: false } => Ok(Attempt::Again),
            RestartPlan::Replay { single_threaded: true } => Ok(Attempt::SingleThreaded),
            RestartPlan::Skip { poisoned, .. } => {
                first(&stats.first_poisoned, poisoned);
                Ok(Attempt::SingleThreaded)
            }
            RestartPlan::GiveUp => Err(HostError::NotOpened { what: "died again and again" }),
        }
    }
}

impl Drop for CollectEnd {
    fn drop(&mut self) {
        self.count_cpu();
        self.session.stats.replayed.store(self.history.book.replayed(), Ordering::Relaxed);
        self.count_skipped();
        self.session.is_over();
        // Wakes a submit end that waits for room. Frames that will not be submitted again
        // go back to their pool with the history; a hop in front may wait for one of them.
        self.link.health.end();
        // The submit end may keep its handle until its next input.
        self.link.socket.shut();
        self.link.process().finish();
    }
}
