// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time in which a codec, filter or element keeps a frame: held, in the codec's own threads, or held up by something outside.

use framepath_model::ledger::{Cause, Row, SpanPlace};

use crate::attribution::{CodecId, TraceFacts};
use crate::frame_ledger::StreamLedger;
use crate::timeline::{Doing, ThreadStretch};

/// Greatest number of threads that are followed from a wait to the next one.
const MOST_WAKERS: u32 = 4;

/// Part of a time by what a codec's own threads did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PoolShare {
    from_ns: u64,
    to_ns: u64,
    /// Activity of the busiest one; `None` if none of them ran or could run.
    doing: Option<Doing>,
}

/// Returns a number that is greater for the busier one of two threads, and 0 for one that could not run.
fn rank(doing: Doing) -> u8 {
    match doing {
        Doing::Running => 4,
        Doing::Woken => 3,
        Doing::Preempted => 2,
        Doing::Throttled => 1,
        Doing::Stopped | Doing::Waiting(_) => 0,
    }
}

/// Adds a time in which the busiest thread of a codec did this. Returns its cause.
fn add_busy(row: &mut Row, doing: Doing, ns: u64) -> Cause {
    let (cause, sum) = match doing {
        Doing::Preempted => (Cause::Preempted, &mut row.preempted_ns),
        Doing::Throttled => (Cause::Throttled, &mut row.throttled_ns),
        _ => (Cause::Pool, &mut row.pool_ns),
    };
    *sum += ns;
    cause
}

impl TraceFacts<'_> {
    /// Adds a time in which the threads of a codec share the frames: `pool` while one of them runs. Where none could run, the codec
    /// keeps the frame; the caller is the thread that would get it back.
    pub(crate) fn add_pool(
        &self,
        row: &mut Row,
        (caller, codec): (i32, CodecId),
        from_ns: u64,
        to_ns: u64,
        ledger: &mut StreamLedger,
    ) {
        for share in self.shares(codec, from_ns, to_ns) {
            match share.doing {
                None => self.add_held(row, caller, share.from_ns, share.to_ns, ledger),
                Some(doing) => {
                    let cause = add_busy(row, doing, share.to_ns - share.from_ns);
                    ledger.span(row, SpanPlace::Inside(cause), share.from_ns, share.to_ns);
                }
            }
        }
    }

    /// Divides a time by what the codec's own threads did: what the busiest one of them did.
    fn shares(&self, codec: CodecId, from_ns: u64, to_ns: u64) -> Vec<PoolShare> {
        let threads = self.pools.get(&codec).into_iter().flatten();
        let stretches: Vec<ThreadStretch> = threads
            .flat_map(|thread| self.stretches(*thread, from_ns, to_ns))
            .filter(|stretch| rank(stretch.doing) > 0)
            .collect();
        let mut borders: Vec<u64> =
            stretches.iter().flat_map(|stretch| [stretch.from_ns, stretch.to_ns]).collect();
        borders.extend([from_ns, to_ns]);
        borders.sort_unstable();
        borders.dedup();
        let share = |border: &[u64]| {
            let inside =
                stretches.iter().filter(|stretch| stretch.from_ns <= border[0] && stretch.to_ns >= border[1]);
            let doing = inside.map(|stretch| stretch.doing).max_by_key(|doing| rank(*doing));
            PoolShare { from_ns: border[0], to_ns: border[1], doing }
        };
        borders.windows(2).map(share).collect()
    }

    /// Adds a time in which a codec, filter or element kept the frame: it is held, except while the thread that would have it go on
    /// is held up itself.
    pub(crate) fn add_held(
        &self,
        row: &mut Row,
        caller: i32,
        from_ns: u64,
        to_ns: u64,
        ledger: &mut StreamLedger,
    ) {
        let mut held_up = Vec::new();
        self.held_up(caller, from_ns, to_ns, MOST_WAKERS, &mut held_up);
        let mut at_ns = from_ns;
        for (thread, stretch) in held_up {
            self.add_only_held(row, at_ns, stretch.from_ns, ledger);
            let cause = self.add_stretch(row, thread, &stretch, ledger);
            ledger.span(row, SpanPlace::Inside(cause), stretch.from_ns, stretch.to_ns);
            at_ns = stretch.to_ns;
        }
        self.add_only_held(row, at_ns, to_ns, ledger);
    }

    fn add_only_held(&self, row: &mut Row, from_ns: u64, to_ns: u64, ledger: &mut StreamLedger) {
        row.held_ns += to_ns.saturating_sub(from_ns);
        ledger.span(row, SpanPlace::Inside(Cause::Held), from_ns, to_ns);
    }

    /// Finds the stretches in which a thread could not go on for a reason outside of the program's own work: it was stopped,
    /// had no CPU, or waited for what no thread of the process brings. A wait for another thread is followed to that one, at most
    /// `wakers` times. Each stretch comes with its thread, in the order of time.
    fn held_up(
        &self,
        thread: i32,
        from_ns: u64,
        to_ns: u64,
        wakers: u32,
        found: &mut Vec<(i32, ThreadStretch)>,
    ) {
        for stretch in self.stretches(thread, from_ns, to_ns) {
            match stretch.doing {
                Doing::Running | Doing::Woken => {}
                Doing::Preempted | Doing::Throttled | Doing::Stopped => found.push((thread, stretch)),
                Doing::Waiting(wait) if wait.reason.is_outside() => found.push((thread, stretch)),
                Doing::Waiting(_) if wakers > 0 && stretch.by != thread => {
                    self.held_up(stretch.by, stretch.from_ns, stretch.to_ns, wakers - 1, found);
                }
                Doing::Waiting(_) => {}
            }
        }
    }

    /// Adds the wait of a thread for the threads of a codec: `pool` while one of them runs, and otherwise what keeps them from
    /// it.
    pub(crate) fn add_pool_wait(
        &self,
        row: &mut Row,
        thread: i32,
        codec: CodecId,
        wait: &ThreadStretch,
        ledger: &mut StreamLedger,
    ) {
        for share in self.shares(codec, wait.from_ns, wait.to_ns) {
            if let Some(doing) = share.doing {
                add_busy(row, doing, share.to_ns - share.from_ns);
                continue;
            }
            let own = ThreadStretch { from_ns: share.from_ns, to_ns: share.to_ns, ..*wait };
            let (mut at_ns, mut waits) = (share.from_ns, Vec::new());
            self.pool_waits(wait.by, codec, (share.from_ns, share.to_ns), MOST_WAKERS, &mut waits);
            for (worker, stretch) in waits {
                let before = ThreadStretch { from_ns: at_ns, to_ns: stretch.from_ns, ..own };
                self.add_stretch(row, thread, &before, ledger);
                self.add_stretch(row, worker, &stretch, ledger);
                at_ns = stretch.to_ns;
            }
            self.add_stretch(row, thread, &ThreadStretch { from_ns: at_ns, ..own }, ledger);
        }
    }

    /// Finds what a thread of a codec waited for; a wait for another one of them is followed to that one, at most `wakers` times.
    fn pool_waits(
        &self,
        thread: i32,
        codec: CodecId,
        (from_ns, to_ns): (u64, u64),
        wakers: u32,
        found: &mut Vec<(i32, ThreadStretch)>,
    ) {
        let is_of_pool = |thread: i32| self.pools.get(&codec).is_some_and(|pool| pool.contains(&thread));
        for stretch in self.stretches(thread, from_ns, to_ns).filter(|_| is_of_pool(thread)) {
            match stretch.doing {
                Doing::Waiting(wait) if wait.reason.has_waker() && is_of_pool(stretch.by) && wakers > 0 => {
                    let time = (stretch.from_ns, stretch.to_ns);
                    self.pool_waits(stretch.by, codec, time, wakers - 1, found);
                }
                Doing::Waiting(_) | Doing::Stopped => found.push((thread, stretch)),
                _ => {}
            }
        }
    }
}
