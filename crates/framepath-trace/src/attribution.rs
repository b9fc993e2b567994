// SPDX-License-Identifier: MIT OR Apache-2.0
//! Causes of a part of a frame's time: from what the part is, and from the timelines of its threads.

use std::collections::{BTreeMap, HashMap, HashSet};

use framepath_model::ledger::{Row, flag};
use framepath_os::measure::process_events::{ThreadEvent, ThreadEventKind};

use crate::calls::Call;
use crate::frame_ledger::StreamLedger;
use crate::names::Names;
use crate::spans::Span;
use crate::timeline::{Doing, Stretch, Timeline, WaitReason};

/// Facts from which ledgers are made.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) spans: &'a [Span],
    pub(crate) timelines: &'a HashMap<i32, Timeline>,
    pub(crate) names: &'a Names,
    /// Codecs that have threads of their own, with these threads.
    pub(crate) pools: HashMap<(i32, u64), HashSet<i32>>,
    /// Indices of each thread's calls that have an item, in the order of their begins.
    by_thread: HashMap<i32, Vec<usize>>,
}

/// Part of a frame's time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// A thread works on the frame. With `pool`, its waits are for the codec's own threads.
    Thread { thread: i32, pool: bool },
    /// The frame is on the way from one thread to another, or to the same one.
    Way { from: i32, to: i32 },
    /// The codec keeps the frame.
    Held,
    /// The codec's own threads share the frames.
    Pool,
}

/// Part of a frame's time and the time at which it ends, CLOCK_MONOTONIC nanoseconds.
pub(crate) type PartUntil = (Part, u64);

impl Facts<'_> {
    pub(crate) fn new<'a>(
        spans: &'a [Span],
        timelines: &'a HashMap<i32, Timeline>,
        names: &'a Names,
        events: &[ThreadEvent],
    ) -> Facts<'a> {
        Facts { spans, timelines, names, pools: pools(spans, events), by_thread: by_thread(spans) }
    }

    /// Adds a frame to `ledger`: its number, its birth, and for each stage the parts of its time and the thread of its
    /// first call. Parts that end before the part in front of them are left out: the calls of one frame may overlap.
    pub(crate) fn add_frame(
        &self,
        ledger: &mut StreamLedger,
        seq: u64,
        birth_ns: u64,
        stages: Vec<(Vec<PartUntil>, i32)>,
    ) {
        ledger.frames += 1;
        let mut at_ns = birth_ns;
        let last = stages.len().saturating_sub(1);
        for (hop, (parts, thread)) in stages.into_iter().enumerate() {
            let mut row = Row {
                seq,
                birth_ns,
                enter_ns: at_ns,
                flags: flag::COUNTED | if hop == last { flag::LAST } else { 0 },
                hop: hop as u16,
                ..Row::default()
            };
            for (part, until_ns) in parts {
                if until_ns > at_ns {
                    self.add(&mut row, part, at_ns, until_ns, &mut ledger.blocked);
                    at_ns = until_ns;
                }
            }
            row.leave_ns = at_ns;
            let known = ledger.threads.iter().position(|id| *id == thread);
            row.thread = known.unwrap_or_else(|| {
                ledger.threads.push(thread);
                ledger.threads.len() - 1
            }) as u16;
            ledger.rows.push(row);
        }
    }

    /// True if the thread began a call with another item between the two times.
    pub(crate) fn is_busy(&self, thread: i32, from_ns: u64, to_ns: u64) -> bool {
        self.calls_between(thread, from_ns, to_ns)
            .any(|span| span.enter_ns > from_ns && span.enter_ns < to_ns)
    }

    /// Returns the thread's calls with items that overlap the time.
    fn calls_between(&self, thread: i32, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Span> {
        let spans = self.spans;
        let indices = self.by_thread.get(&thread).map_or(&[][..], Vec::as_slice);
        // Calls of a thread follow one another, so their ends are in order, too.
        let first = indices.partition_point(|index| spans[*index].leave_ns <= from_ns);
        indices[first..].iter().map(|index| &spans[*index]).take_while(move |span| span.enter_ns < to_ns)
    }

    /// Adds the time of a part to the row, by cause.
    fn add(
        &self,
        row: &mut Row,
        part: Part,
        from_ns: u64,
        to_ns: u64,
        blocked: &mut BTreeMap<(u16, &'static str), f64>,
    ) {
        match part {
            Part::Held => row.held_ns += to_ns - from_ns,
            Part::Pool => row.pool_ns += to_ns - from_ns,
            Part::Thread { thread, pool } => self.add_thread(row, thread, pool, from_ns, to_ns, blocked),
            Part::Way { from, to } => {
                // While the thread that takes the frame has calls for others, the frame waits in a queue.
                let calls = self.calls_between(to, from_ns, to_ns);
                let busy_ns = calls.map(|span| span.leave_ns.min(to_ns)).max().unwrap_or(from_ns);
                row.queue_ns += busy_ns - from_ns;
                if from == to {
                    return self.add_thread(row, to, false, busy_ns, to_ns, blocked);
                }
                for stretch in self.stretches(to, busy_ns, to_ns) {
                    match stretch.doing {
                        // The other thread hands over the frame.
                        Doing::Waiting(_) => {
                            self.add_thread(row, from, false, stretch.from_ns, stretch.to_ns, blocked);
                        }
                        _ => self.add_thread(row, to, false, stretch.from_ns, stretch.to_ns, blocked),
                    }
                }
            }
        }
    }

    fn stretches(&self, thread: i32, from_ns: u64, to_ns: u64) -> impl Iterator<Item = Stretch> {
        self.timelines.get(&thread).into_iter().flat_map(move |line| line.between(from_ns, to_ns))
    }

    fn add_thread(
        &self,
        row: &mut Row,
        thread: i32,
        pool: bool,
        from_ns: u64,
        to_ns: u64,
        blocked: &mut BTreeMap<(u16, &'static str), f64>,
    ) {
        for stretch in self.stretches(thread, from_ns, to_ns) {
            let ns = stretch.to_ns - stretch.from_ns;
            match stretch.doing {
                Doing::Running => row.compute_ns += ns,
                Doing::Preempted => row.preempted_ns += ns,
                Doing::Woken => row.wakeup_ns += ns,
                Doing::Waiting(WaitReason::Timer) => row.paced_ns += ns,
                Doing::Waiting(WaitReason::Lock | WaitReason::Unknown) if pool => row.pool_ns += ns,
                Doing::Waiting(reason) => {
                    row.blocked_ns += ns;
                    *blocked.entry((row.hop, reason.name())).or_default() += ns as f64;
                }
            }
        }
    }
}

/// Returns the codecs that have threads of their own, with these threads: they were started while it was opened.
fn pools(spans: &[Span], events: &[ThreadEvent]) -> HashMap<(i32, u64), HashSet<i32>> {
    let mut pools: HashMap<(i32, u64), HashSet<i32>> = HashMap::new();
    let opens: Vec<&Span> = spans.iter().filter(|span| span.call == Call::OpenCodec).collect();
    for event in events {
        let ThreadEventKind::Started { thread, process } = event.kind else { continue };
        // The last one: encoders open codecs inside.
        let is_inside = |span: &&&Span| {
            span.thread == event.thread && (span.enter_ns..span.leave_ns).contains(&event.at_ns)
        };
        if let Some(open) = opens.iter().rev().find(is_inside) {
            pools.entry((process, open.object)).or_default().insert(thread);
        }
    }
    pools
}

/// Returns the indices of each thread's spans that have an item, in the order of their begins.
fn by_thread(spans: &[Span]) -> HashMap<i32, Vec<usize>> {
    let mut by_thread: HashMap<i32, Vec<usize>> = HashMap::new();
    for (index, span) in spans.iter().enumerate() {
        if span.data != 0 && span.call != Call::GetBuffer {
            by_thread.entry(span.thread).or_default().push(index);
        }
    }
    by_thread
}
