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

/// Number of ranks.
const RANKS: usize = 5;

/// Returns what the busiest thread does, from the number of threads of each rank and what they do.
fn busiest(now: &[(u32, Option<Doing>); RANKS]) -> Option<Doing> {
    now.iter().rev().find(|(threads, _)| *threads > 0).and_then(|(_, doing)| *doing)
}

/// Adds a part of a time to `shares`, or makes the last one longer. Without effect for an empty time.
fn push_share(shares: &mut Vec<PoolShare>, from_ns: u64, to_ns: u64, doing: Option<Doing>) {
    match shares.last_mut() {
        _ if from_ns >= to_ns => {}
        Some(last) if last.doing == doing && last.to_ns == from_ns => last.to_ns = to_ns,
        _ => shares.push(PoolShare { from_ns, to_ns, doing }),
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
        let stretches = threads.flat_map(|thread| self.stretches(*thread, from_ns, to_ns));
        // Begins and ends: time, what the thread did, and true for a begin.
        let mut moments: Vec<(u64, Doing, bool)> = stretches
            .filter(|stretch| rank(stretch.doing) > 0)
            .flat_map(|stretch| {
                [(stretch.from_ns, stretch.doing, true), (stretch.to_ns, stretch.doing, false)]
            })
            .collect();
        moments.sort_unstable_by_key(|(at_ns, ..)| *at_ns);
        let mut now = [(0u32, None); RANKS];
        let (mut shares, mut at_ns) = (Vec::new(), from_ns);
        for (moment_ns, doing, is_begin) in moments {
            push_share(&mut shares, at_ns, moment_ns, busiest(&now));
            at_ns = moment_ns;
            let (threads, _) = now[usize::from(rank(doing))];
            let threads = if is_begin { threads + 1 } else { threads.saturating_sub(1) };
            now[usize::from(rank(doing))] = (threads, Some(doing));
        }
        push_share(&mut shares, at_ns, to_ns, None);
        shares
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use framepath_os::measure::process_events::{ThreadEvent, ThreadEventKind};

    use super::*;
    use crate::attribution::Part;
    use crate::calls::{Call, NO_PTS};
    use crate::names::ObjectNames;
    use crate::spans::CallSpan;
    use crate::timeline::{Timeline, line, waiting};
    use crate::wait_reason::WaitReason;

    const CALLER: i32 = 1;
    const CODEC: CodecId = (1, 9);

    /// Returns the row of a frame that has `part` from 100 to 200. Threads 2 and 3 are the codec's own.
    fn row(part: Part, lines: [Timeline; 3]) -> Row {
        let open = CallSpan {
            call: Call::OpenCodec,
            process: 1,
            thread: CALLER,
            enter_ns: 0,
            leave_ns: 10,
            object: 9,
            data: 0,
            pts: NO_PTS,
            result: 0,
        };
        let started = |thread| ThreadEvent {
            process: 1,
            thread: CALLER,
            at_ns: 5,
            kind: ThreadEventKind::Started { thread, process: 1 },
        };
        let timelines: HashMap<i32, Timeline> = (1..).zip(lines).collect();
        let (spans, names) = ([open], ObjectNames::default());
        let facts = TraceFacts::new(&spans, &timelines, &names, &[started(2), started(3)]);
        let mut ledger = StreamLedger::default();
        facts.add_frame(&mut ledger, 0, 100, vec![(vec![(part, 200)], CALLER)]);
        ledger.rows[0]
    }

    /// A pool counts while one of its threads runs; then what they could do, and what their caller does.
    #[test]
    fn a_pool_counts_only_while_one_of_its_threads_runs() {
        let lock = waiting(WaitReason::Lock);
        let caller = line(&[(0, 160, Doing::Running, 0), (160, 300, waiting(WaitReason::Socket), 0)]);
        let first = line(&[(90, 110, Doing::Running, 0), (110, 300, lock, 0)]);
        let second = line(&[
            (0, 105, lock, 0),
            (105, 120, Doing::Running, 0),
            (120, 130, Doing::Preempted, 0),
            (130, 135, Doing::Throttled, 0),
            (135, 300, Doing::Stopped, 0),
        ]);
        let row = row(Part::Pool { caller: CALLER, codec: CODEC }, [caller, first, second]);
        assert_eq!([row.pool_ns, row.preempted_ns, row.throttled_ns], [20, 10, 5]);
        assert_eq!([row.held_ns, row.blocked_ns, row.stopped_ns], [25, 40, 0]);
    }

    /// A caller that waits for such threads waits for what they wait for.
    #[test]
    fn a_wait_for_a_pool_is_followed_to_its_threads() {
        let caller = line(&[(50, 200, waiting(WaitReason::Lock), 2)]);
        let first = line(&[
            (0, 130, Doing::Running, 0),
            (130, 150, waiting(WaitReason::Mutex), 7),
            (150, 180, Doing::Stopped, 0),
            (180, 300, Doing::Running, 0),
        ]);
        let part = Part::Thread { thread: CALLER, pool: Some(CODEC) };
        let row = row(part, [caller, first, Timeline::default()]);
        assert_eq!([row.pool_ns, row.blocked_ns, row.stopped_ns, row.held_ns], [50, 20, 30, 0]);
    }

    /// A frame that a codec keeps is held only while the thread that would have it go on works, or waits for one that does.
    #[test]
    fn a_kept_frame_is_held_up_by_what_stops_its_caller() {
        let caller = line(&[(0, 110, Doing::Running, 0), (110, 200, waiting(WaitReason::Lock), 2)]);
        let producer = line(&[
            (0, 130, Doing::Running, 0),
            (130, 160, waiting(WaitReason::Timer), 0),
            (160, 170, Doing::Throttled, 0),
            (170, 300, waiting(WaitReason::Lock), CALLER),
        ]);
        let row = row(Part::Held { caller: CALLER }, [caller, producer, Timeline::default()]);
        assert_eq!([row.held_ns, row.paced_ns, row.throttled_ns], [60, 30, 10]);
    }
}
