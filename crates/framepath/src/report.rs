// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run leaves behind.

use std::sync::atomic::{AtomicU64, Ordering};

use framepath_model::ledger::{Digest, Row, digest, flag};
use framepath_os::meter::Level;

use crate::error::RunError;
use crate::host::WorkerStats;
use crate::loss::{Loss, LossReason};
use crate::outcomes::Played;

/// One hop of the path that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HopInfo {
    /// As it stands in the path: `decode format=nv12`.
    pub text: String,
    /// Whether it is a link.
    pub link: bool,
    /// True for parts of the caller's own: the ledger has their copies only where
    /// they copy by methods of this crate.
    pub own: bool,
}

impl HopInfo {
    /// A stage, source or sink of framepath's.
    pub fn new(text: impl Into<String>) -> HopInfo {
        HopInfo { text: text.into(), link: false, own: false }
    }
}

/// What became of one hop's workers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerReport {
    /// The hop's index.
    pub hop: u16,
    /// Workers that died, hung or broke the rules, and were replaced.
    pub deaths: u64,
    /// Packets or frames that were given again to a new worker.
    pub replayed: u64,
    /// Packets given up because they, or what they need, kill every worker.
    pub skipped: u64,
    /// The first packet that was found to kill every worker.
    pub poisoned: Option<u64>,
    /// Frames lost because the stage cannot be replayed.
    pub lost: u64,
    /// The first of them.
    pub first_lost: Option<u64>,
    /// Why the last of them was replaced; empty where none was.
    pub last_death: String,
    /// Messages on sockets to them and from them, from each stream's opening on.
    pub messages: (u64, u64),
    /// Cells of the rings to them and from them.
    pub cells: (u64, u64),
}

impl WorkerReport {
    pub(crate) fn of(hop: u16, stats: &WorkerStats) -> WorkerReport {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        WorkerReport {
            hop,
            deaths: load(&stats.deaths),
            replayed: load(&stats.replayed),
            skipped: load(&stats.skipped),
            poisoned: load(&stats.first_poisoned).checked_sub(1),
            lost: load(&stats.lost),
            first_lost: load(&stats.first_lost).checked_sub(1),
            last_death: stats.last_death.lock().unwrap_or_else(|e| e.into_inner()).clone(),
            messages: (load(&stats.traffic.messages_out), load(&stats.traffic.messages_in)),
            cells: (load(&stats.traffic.cells_out), load(&stats.traffic.cells_in)),
        }
    }
}

/// What a `play` has shown. Frames that came are `shown` and `late` together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlayReport {
    /// Frames that were shown.
    pub shown: u64,
    /// Frames that were dropped because they came too late.
    pub late: u64,
    /// Whether the viewer ended it.
    pub ended: bool,
}

impl PlayReport {
    pub(crate) fn of(played: &Played) -> PlayReport {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        PlayReport { shown: load(&played.shown), late: load(&played.late), ended: load(&played.ended) > 0 }
    }
}

/// A finished run. The default is a run of no hops.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Frames (or packets) that reached the sink.
    pub frames: u64,
    /// Frames that full queues with `leaky=` dropped, as they were asked to.
    pub dropped: u64,
    /// Frames and packets that a seek or flush discarded on their way.
    pub flushed: u64,
    /// Frames that the source's device dropped.
    pub missed: u64,
    /// Bytes the CPU copied, all frames together.
    pub copied_bytes: u64,
    /// From start to end, nanoseconds.
    pub wall_ns: u64,
    /// CPU time of the whole process meanwhile, and of its workers from their
    /// start on, nanoseconds.
    pub cpu_ns: u64,
    /// What became of the workers, for each hop that ran in one.
    pub workers: Vec<WorkerReport>,
    /// What was shown, where the path ends in `play`.
    pub played: Option<PlayReport>,
    /// The level the ledger was kept at.
    pub level: Level,
    /// The hops, in path order.
    pub hops: Vec<HopInfo>,
    /// Names of the threads, as [`Row::thread`] counts them.
    pub threads: Vec<String>,
    /// The ledger: all rows that were kept, oldest first within a thread.
    pub rows: Vec<Row>,
    /// Rows that were overwritten because the ledger's memory was full.
    pub overwritten: u64,
    /// What stages had to say that is no error, a line each.
    pub notes: Vec<String>,
    /// Whether Ctrl-C ended the run early.
    pub interrupted: bool,
    /// Why the run stopped early, if it did.
    pub error: Option<RunError>,
}

impl Report {
    /// The path that ran, as one would type it.
    pub fn path(&self) -> String {
        let hops: Vec<&str> = self.hops.iter().map(|h| h.text.as_str()).collect();
        hops.join(" ! ")
    }

    /// What was lost although nobody asked for that: not what a queue with `leaky=`
    /// dropped ([`Report::dropped`]), nor what a seek discarded ([`Report::flushed`]), nor what `play` found too late
    /// ([`PlayReport::late`](crate::PlayReport::late)).
    pub fn losses(&self) -> Vec<Loss> {
        let mut losses = Vec::new();
        if self.missed > 0 {
            let hop = self.hops[0].text.clone();
            losses.push(Loss { hop, count: self.missed, first: None, reason: LossReason::Device });
        }
        for worker in &self.workers {
            let (hop, last_death) = (&self.hops[usize::from(worker.hop)].text, &worker.last_death);
            if worker.skipped > 0 {
                let last_death = last_death.clone();
                let reason = match worker.poisoned {
                    Some(_) => LossReason::Poisoned { last_death },
                    None if worker.deaths == 0 => LossReason::TooLate,
                    None => LossReason::TooLargeToReplay { last_death },
                };
                losses.push(Loss { hop: hop.clone(), count: worker.skipped, first: worker.poisoned, reason });
            }
            if worker.lost > 0 {
                let reason = LossReason::WorkerDied { last_death: last_death.clone() };
                losses.push(Loss { hop: hop.clone(), count: worker.lost, first: worker.first_lost, reason });
            }
        }
        losses
    }

    /// The ledger in a few figures. Rows of frames whose other rows were
    /// overwritten are left out.
    pub fn digest(&mut self) -> Digest {
        if self.overwritten > 0 {
            self.drop_torn_frames();
        }
        digest(&mut self.rows, self.hops.len())
    }

    /// Removes frames that lost a row: those whose hops, from the source to
    /// where the frame ended, are not all there. (Threads write different
    /// numbers of rows, and decoders change the order of frames, so the oldest
    /// row that is left says nothing of the frames after it.)
    fn drop_torn_frames(&mut self) {
        self.rows.sort_unstable_by_key(|r| (r.seq, r.hop));
        let mut whole = Vec::with_capacity(self.rows.len());
        for frame in self.rows.chunk_by(|a, b| a.seq == b.seq) {
            let ended = frame.iter().any(|r| r.has(flag::LAST) || r.has(flag::DROPPED));
            let gapless = frame[0].hop == 0 && frame.windows(2).all(|w| w[1].hop <= w[0].hop + 1);
            if ended && gapless {
                whole.extend_from_slice(frame);
            }
        }
        self.rows = whole;
    }
}
