// SPDX-License-Identifier: MIT OR Apache-2.0
//! Causes of a part of a frame's time: from what the part is, and from the timelines of its threads.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use framepath_model::ledger::{Cause, Row, SpanPlace, flag};
use framepath_os::measure::process_events::{ThreadEvent, ThreadEventKind};

use crate::calls::Call;
use crate::copy_functions::SAMPLE_NS;
use crate::frame_ledger::StreamLedger;
use crate::names::ObjectNames;
use crate::spans::CallSpan;
use crate::stage_limits::StageLimits;
use crate::stage_wait::WaitKey;
use crate::timeline::{Doing, ThreadStretch, Timeline};
use crate::wait_reason::WaitReason;

/// Facts from which ledgers are made.
#[derive(Debug)]
pub(crate) struct TraceFacts<'a> {
    pub(crate) spans: &'a [CallSpan],
    pub(crate) timelines: &'a HashMap<i32, Timeline>,
    pub(crate) names: &'a ObjectNames,
    /// Stages that ledgers show.
    pub(crate) limits: StageLimits,
    /// Codecs that have threads of their own, with these threads.
    pub(crate) pools: HashMap<CodecId, HashSet<i32>>,
    /// Processes of which `copying` has all samples.
    pub(crate) sampled: HashSet<i32>,
    /// Times of each thread's samples in functions that copy, in their order.
    copying: HashMap<i32, Vec<u64>>,
    /// Indices of each thread's calls that have an item and are not inside another one, in the order of their begins and
    /// ends.
    calls: HashMap<i32, Vec<usize>>,
    /// Indices of each thread's calls of codecs with threads of their own, in the same order.
    pool_calls: HashMap<i32, Vec<usize>>,
    /// Indices of each thread's waits for the time of a buffer, in the order of their begins.
    clock_waits: HashMap<i32, Vec<usize>>,
    /// Number of stretches of threads that were given to frames, and of looks for them.
    steps: Cell<u64>,
    /// Number of spans that the ledgers keep.
    kept: Cell<usize>,
}

/// Part of a frame's time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// A thread works on the frame. With `pool`, it waits for the threads of that codec.
    Thread { thread: i32, pool: Option<CodecId> },
    /// The frame is on the way from one thread to another, or to the same one.
    Way { from: i32, to: i32 },
    /// The frame is on the way to a thread that shows it at its time.
    WayToWindow { from: i32, to: i32 },
    /// The codec, filter or element keeps the frame. It would give it back if this thread went on.
    Held { caller: i32 },
    /// The codec's own threads share the frames. Where none of them runs, the codec keeps the frame.
    Pool { caller: i32, codec: CodecId },
    /// A device has the frame.
    Device,
}

/// Most stretches of threads that are given to frames, some seconds of work: further frames are left out.
const MOST_STEPS: u64 = 50_000_000;

/// Most parts of frames' times that all ledgers keep for their pictures.
const MOST_SPANS: usize = 8 << 20;

/// Most threads of a codec.
const MOST_POOL: usize = 1024;

/// Process and address of a codec.
pub(crate) type CodecId = (i32, u64);

/// Part of a frame's time and the time at which it ends, CLOCK_MONOTONIC nanoseconds.
pub(crate) type PartUntil = (Part, u64);

impl TraceFacts<'_> {
    pub(crate) fn new<'a>(
        spans: &'a [CallSpan],
        timelines: &'a HashMap<i32, Timeline>,
        names: &'a ObjectNames,
        events: &[ThreadEvent],
    ) -> TraceFacts<'a> {
        let pools = pools(spans, events);
        // These are inside other calls, with the same items.
        let is_inside = |call| matches!(call, Call::GetBuffer | Call::FinishFrame | Call::PopBuffer);
        let is_call = |span: &CallSpan| span.data != 0 && !is_inside(span.call);
        let has_pool = |span: &CallSpan| is_call(span) && pools.contains_key(&(span.process, span.object));
        TraceFacts {
            spans,
            timelines,
            names,
            limits: StageLimits::default(),
            sampled: HashSet::new(),
            copying: copying(events),
            calls: by_thread(spans, is_call),
            pool_calls: by_thread(spans, has_pool),
            clock_waits: by_thread(spans, |span| span.call == Call::ClockWait),
            pools,
            steps: Cell::new(0),
            kept: Cell::new(0),
        }
    }

    /// Returns the names of the codecs of all threads that codecs have started.
    pub(crate) fn codecs(&self) -> HashMap<i32, String> {
        let named = self.pools.iter().filter_map(|((process, codec), threads)| {
            let name = &self.names.of(*process, *codec)?.name;
            Some(threads.iter().map(|thread| (*thread, name.clone())))
        });
        named.flatten().collect()
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
        // A program can leave any number of frames open for any time.
        if self.steps.get() > MOST_STEPS || self.kept.get() > MOST_SPANS {
            ledger.others += 1;
            return;
        }
        ledger.frames += 1;
        let before = ledger.spans.len();
        let mut at_ns = birth_ns;
        let last = stages.len().saturating_sub(1);
        for (hop, (parts, thread)) in stages.into_iter().enumerate() {
            let mut row = Row {
                seq,
                birth_ns,
                enter_ns: at_ns,
                flags: flag::COUNTED | flag::TRACED | flag::SPLIT | if hop == last { flag::LAST } else { 0 },
                hop: hop as u16,
                ..Row::default()
            };
            for (part, until_ns) in parts {
                if until_ns > at_ns {
                    self.add(&mut row, part, at_ns, until_ns, ledger);
                    at_ns = until_ns;
                }
            }
            row.leave_ns = at_ns;
            row.thread = ledger.thread(thread);
            ledger.rows.push(row);
        }
        self.kept.set(self.kept.get() + ledger.spans.len() - before);
    }

    /// True if the thread began a call with another item between the two times.
    pub(crate) fn is_busy(&self, thread: i32, from_ns: u64, to_ns: u64) -> bool {
        self.next_call(thread, from_ns + 1).is_some_and(|enter_ns| enter_ns < to_ns)
    }

    /// Returns the time until which a frame belongs to the thread `from`, which has it at `from_ns`. The thread `to`, which
    /// may be the same one, has it at `to_ns`: it got it at the latest when the first one waits or goes on with another frame.
    pub(crate) fn own_until(&self, (from, from_ns): (i32, u64), (to, to_ns): (i32, u64)) -> u64 {
        let other_ns = self.next_call(from, from_ns + 1).filter(|at_ns| *at_ns < to_ns);
        let limit_ns = other_ns.unwrap_or(to_ns);
        if from == to {
            return limit_ns;
        }
        let wakes = |wait: &ThreadStretch| wait.may_be_ended_by(from);
        let woken_ns = self.timelines.get(&to).and_then(|line| line.last_end(from_ns, limit_ns, wakes));
        let waits = |stretch: &ThreadStretch| matches!(stretch.doing, Doing::Waiting(_));
        let line = self.timelines.get(&from);
        let waits_ns = line.and_then(|line| line.between(from_ns, limit_ns).find(waits));
        woken_ns.or(waits_ns.map(|wait| wait.from_ns)).unwrap_or(limit_ns)
    }

    /// Returns the end of the thread's last call with an item that ended before `at_ns`.
    pub(crate) fn last_call(&self, thread: i32, at_ns: u64) -> Option<u64> {
        let indices = self.calls.get(&thread)?;
        let next = indices.partition_point(|index| self.spans[*index].leave_ns < at_ns);
        next.checked_sub(1).map(|last| self.spans[indices[last]].leave_ns)
    }

    /// Returns the begin of the thread's first call with an item that begins at `from_ns` or later.
    fn next_call(&self, thread: i32, from_ns: u64) -> Option<u64> {
        let indices = self.calls.get(&thread)?;
        let next = indices.partition_point(|index| self.spans[*index].enter_ns < from_ns);
        indices.get(next).map(|index| self.spans[*index].enter_ns)
    }

    /// Adds the time of a part to the row, by cause, and its stretches to the ledger.
    fn add(&self, row: &mut Row, part: Part, from_ns: u64, to_ns: u64, ledger: &mut StreamLedger) {
        match part {
            Part::Held { caller } => self.add_held(row, caller, from_ns, to_ns, ledger),
            Part::Pool { caller, codec } => self.add_pool(row, (caller, codec), from_ns, to_ns, ledger),
            Part::Device => {
                row.device_ns += to_ns - from_ns;
                ledger.span(row, SpanPlace::Inside(Cause::Device), from_ns, to_ns);
            }
            Part::Thread { thread, pool } => {
                let place = SpanPlace::Thread(ledger.thread(thread));
                ledger.span(row, place, from_ns, to_ns);
                self.add_thread(row, thread, pool, from_ns, to_ns, ledger);
            }
            Part::Way { from, to } | Part::WayToWindow { from, to } if from == to => {
                // While the thread has calls for others, the frame waits for it.
                let busy_ns = self.busy_until(to, from_ns, to_ns);
                row.queue_ns += busy_ns - from_ns;
                ledger.span(row, SpanPlace::Inside(Cause::Queue), from_ns, busy_ns);
                self.add(row, Part::Thread { thread: to, pool: None }, busy_ns, to_ns, ledger);
            }
            Part::Way { from, to } => self.add_way(row, (from, to), (from_ns, to_ns), false, ledger),
            Part::WayToWindow { from, to } => self.add_way(row, (from, to), (from_ns, to_ns), true, ledger),
        }
    }

    /// Returns the end of the thread's last call with an item between the two times, `to_ns` at most.
    fn busy_until(&self, thread: i32, from_ns: u64, to_ns: u64) -> u64 {
        // Calls of a thread come one after the other.
        let indices = self.calls.get(&thread).map_or(&[][..], Vec::as_slice);
        let before = indices.partition_point(|index| self.spans[*index].enter_ns < to_ns);
        let last = before.checked_sub(1).map(|last| self.spans[indices[last]].leave_ns);
        last.map_or(from_ns, |leave_ns| leave_ns.clamp(from_ns, to_ns))
    }

    /// Adds the time in which a frame passes from one thread to another one, which shows it or not.
    fn add_way(
        &self,
        row: &mut Row,
        (from, to): (i32, i32),
        (from_ns, to_ns): (u64, u64),
        is_shown: bool,
        ledger: &mut StreamLedger,
    ) {
        // The first thread has handed over the frame before it goes on with another one. If it had to wake up the second
        // one for that, the frame was its own until then.
        let next_ns = self.next_call(from, from_ns).filter(|next_ns| *next_ns < to_ns).unwrap_or(to_ns);
        let line = self.timelines.get(&to);
        let handed_ns = line
            .and_then(|line| line.last_end(from_ns, next_ns, |wait| wait.may_be_ended_by(from)))
            .unwrap_or(from_ns);
        let place = SpanPlace::Thread(ledger.thread(from));
        ledger.span(row, place, from_ns, handed_ns);
        for stretch in self.stretches(from, from_ns, handed_ns) {
            match stretch.doing {
                // The second thread had to make room.
                _ if stretch.is_ended_by(to) => row.queue_ns += stretch.to_ns - stretch.from_ns,
                _ => self.add_thread(row, from, None, stretch.from_ns, stretch.to_ns, ledger),
            }
        }
        // While the second thread has calls for others, the frame waits in a queue. It leaves a full one at the latest when
        // the second thread ends the first one's wait for room. A player makes room behind its wait for the frame's own time.
        let busy_ns = self.busy_until(to, handed_ns, to_ns);
        let line = self.timelines.get(&from).filter(|_| !is_shown);
        let busy_ns = line
            .and_then(|line| line.last_end(busy_ns, to_ns, |wait| wait.is_ended_by(to)))
            .unwrap_or(busy_ns);
        row.queue_ns += busy_ns - handed_ns;
        ledger.span(row, SpanPlace::Inside(Cause::Queue), handed_ns, busy_ns);
        ledger.span(row, SpanPlace::Inside(Cause::Wakeup), busy_ns, to_ns);
        for stretch in self.stretches(to, busy_ns, to_ns) {
            // The first thread may be late with the frame all the same. Other threads end other waits.
            let thread = if stretch.may_be_ended_by(from) { from } else { to };
            self.add_thread(row, thread, None, stretch.from_ns, stretch.to_ns, ledger);
        }
    }

    /// True if the thread waits at this time until the time of a buffer has come.
    fn is_clock_wait(&self, thread: i32, at_ns: u64) -> bool {
        let waits = self.clock_waits.get(&thread).map_or(&[][..], Vec::as_slice);
        let next = waits.partition_point(|index| self.spans[*index].enter_ns <= at_ns);
        next.checked_sub(1).is_some_and(|last| self.spans[waits[last]].leave_ns > at_ns)
    }

    /// Returns the codec with threads of its own that this thread called first between the two times.
    pub(crate) fn pool(&self, thread: i32, from_ns: u64, to_ns: u64) -> Option<CodecId> {
        let indices = self.pool_calls.get(&thread)?;
        let first = indices.partition_point(|index| self.spans[*index].leave_ns <= from_ns);
        let call =
            indices.get(first).map(|index| &self.spans[*index]).filter(|call| call.enter_ns < to_ns)?;
        Some((call.process, call.object))
    }

    /// Returns the codec if it has threads of its own.
    pub(crate) fn with_pool(&self, codec: CodecId) -> Option<CodecId> {
        self.pools.contains_key(&codec).then_some(codec)
    }

    /// Returns the number of the thread's samples in functions that copy.
    fn copies(&self, thread: i32, from_ns: u64, to_ns: u64) -> u64 {
        let samples = self.copying.get(&thread).map_or(&[][..], Vec::as_slice);
        let before = |until_ns: u64| samples.partition_point(|at_ns| *at_ns < until_ns);
        before(to_ns).saturating_sub(before(from_ns)) as u64
    }

    pub(crate) fn stretches(
        &self,
        thread: i32,
        from_ns: u64,
        to_ns: u64,
    ) -> impl Iterator<Item = ThreadStretch> {
        self.steps.set(self.steps.get() + 1);
        let stretches = self.timelines.get(&thread).into_iter();
        let stretches = stretches.flat_map(move |line| line.between(from_ns, to_ns));
        stretches.inspect(|_| self.steps.set(self.steps.get() + 1))
    }

    fn add_thread(
        &self,
        row: &mut Row,
        thread: i32,
        pool: Option<CodecId>,
        from_ns: u64,
        to_ns: u64,
        ledger: &mut StreamLedger,
    ) {
        for stretch in self.stretches(thread, from_ns, to_ns) {
            let begins_inside = u32::from(stretch.from_ns > from_ns);
            match stretch.doing {
                Doing::Waiting(_) => row.voluntary_switches += begins_inside,
                Doing::Preempted | Doing::Throttled | Doing::Stopped => {
                    row.involuntary_switches += begins_inside;
                }
                Doing::Running | Doing::Woken => {}
            }
            match (stretch.doing, pool) {
                (Doing::Running, _) => {
                    row.compute_ns += stretch.to_ns - stretch.from_ns - stretch.stolen_ns;
                    row.stolen_ns += stretch.stolen_ns;
                    row.copy_ns += SAMPLE_NS * self.copies(thread, stretch.from_ns, stretch.to_ns);
                    row.minor_faults += stretch.faults;
                }
                (Doing::Waiting(wait), Some(codec))
                    if matches!(wait.reason, WaitReason::Lock | WaitReason::Mutex | WaitReason::Unknown) =>
                {
                    self.add_pool_wait(row, thread, codec, &stretch, ledger);
                }
                _ => _ = self.add_stretch(row, thread, &stretch, ledger),
            }
        }
    }

    /// Adds a stretch in which the thread was on no CPU to the row. Returns its cause.
    pub(crate) fn add_stretch(
        &self,
        row: &mut Row,
        thread: i32,
        stretch: &ThreadStretch,
        ledger: &mut StreamLedger,
    ) -> Cause {
        let ns = stretch.to_ns.saturating_sub(stretch.from_ns);
        let (cause, sum) = match stretch.doing {
            Doing::Running => (Cause::Compute, &mut row.compute_ns),
            Doing::Preempted => (Cause::Preempted, &mut row.preempted_ns),
            Doing::Throttled => (Cause::Throttled, &mut row.throttled_ns),
            Doing::Stopped => (Cause::Stopped, &mut row.stopped_ns),
            Doing::Woken => (Cause::Wakeup, &mut row.wakeup_ns),
            Doing::Waiting(wait) if wait.reason == WaitReason::Timer => (Cause::Paced, &mut row.paced_ns),
            Doing::Waiting(_) if self.is_clock_wait(thread, stretch.from_ns) => {
                (Cause::Paced, &mut row.paced_ns)
            }
            Doing::Waiting(_) => (Cause::Blocked, &mut row.blocked_ns),
        };
        *sum += ns;
        if let (Doing::Waiting(wait), true) = (stretch.doing, ns > 0) {
            let by = if wait.reason.has_waker() { stretch.by } else { 0 };
            *ledger.waits.entry((row.hop, WaitKey { cause, wait, by })).or_default() += ns as f64;
        }
        cause
    }
}

/// Returns the codecs that have threads of their own, with these threads: they were started while it was opened.
fn pools(spans: &[CallSpan], events: &[ThreadEvent]) -> HashMap<(i32, u64), HashSet<i32>> {
    let mut pools: HashMap<(i32, u64), HashSet<i32>> = HashMap::new();
    // One after the other on each thread: an encoder opens codecs inside, which are left out.
    let mut opens: HashMap<i32, Vec<&CallSpan>> = HashMap::new();
    for span in spans.iter().filter(|span| span.call == Call::OpenCodec) {
        opens.entry(span.thread).or_default().push(span);
    }
    for event in events {
        let ThreadEventKind::Started { thread, process } = event.kind else { continue };
        let opens = opens.get(&event.thread).map_or(&[][..], Vec::as_slice);
        let before = opens.partition_point(|span| span.enter_ns <= event.at_ns);
        if let Some(open) = before.checked_sub(1).map(|last| opens[last]) {
            if event.at_ns < open.leave_ns {
                let pool = pools.entry((process, open.object)).or_default();
                if pool.len() < MOST_POOL {
                    pool.insert(thread);
                }
            }
        }
    }
    pools
}

/// Returns the times of each thread's samples.
fn copying(events: &[ThreadEvent]) -> HashMap<i32, Vec<u64>> {
    let mut times: HashMap<i32, Vec<u64>> = HashMap::new();
    for event in events.iter().filter(|event| matches!(event.kind, ThreadEventKind::Sampled { .. })) {
        times.entry(event.thread).or_default().push(event.at_ns);
    }
    times
}

/// Returns the indices of each thread's spans for which `is_wanted` holds, in the order of their begins, without those
/// inside another one.
fn by_thread(spans: &[CallSpan], is_wanted: impl Fn(&CallSpan) -> bool) -> HashMap<i32, Vec<usize>> {
    let mut by_thread: HashMap<i32, Vec<usize>> = HashMap::new();
    for (index, span) in spans.iter().enumerate().filter(|(_, span)| is_wanted(span)) {
        let indices = by_thread.entry(span.thread).or_default();
        if indices.last().is_none_or(|last| spans[*last].leave_ns <= span.enter_ns) {
            indices.push(index);
        }
    }
    by_thread
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::NO_PTS;
    use crate::timeline::{line, waiting};

    const FIRST: i32 = 1;
    const SECOND: i32 = 2;
    const OTHER: i32 = 3;
    const LOCK: Doing = waiting(WaitReason::Lock);
    const TIMER: Doing = waiting(WaitReason::Timer);

    /// Returns the causes of a frame's way from the first thread to the second one, from 100 to 200: compute, queue, wakeup,
    /// blocked, paced. The second thread has a call for another frame until `busy_ns`; the first one's next call
    /// begins at `next_ns`.
    fn way(first: Timeline, second: Timeline, busy_ns: u64, next_ns: u64) -> [u64; 5] {
        causes(Part::Way { from: FIRST, to: SECOND }, first, second, busy_ns, next_ns)
    }

    /// Returns the causes of this way.
    fn causes(part: Part, first: Timeline, second: Timeline, busy_ns: u64, next_ns: u64) -> [u64; 5] {
        let span = |thread, enter_ns, leave_ns| CallSpan {
            call: Call::SendFrame,
            process: 1,
            thread,
            enter_ns,
            leave_ns,
            object: 9,
            data: 8,
            pts: NO_PTS,
            result: 0,
        };
        let spans = [span(SECOND, 50, busy_ns), span(FIRST, next_ns, next_ns + 10)];
        let (timelines, names) = (HashMap::from([(FIRST, first), (SECOND, second)]), ObjectNames::default());
        let facts = TraceFacts::new(&spans, &timelines, &names, &[]);
        let mut ledger = StreamLedger::default();
        facts.add_frame(&mut ledger, 0, 100, vec![(vec![(part, 200)], SECOND)]);
        let row = ledger.rows[0];
        [row.compute_ns, row.queue_ns, row.wakeup_ns, row.blocked_ns, row.paced_ns]
    }

    #[test]
    fn a_frame_is_its_producers_until_the_idle_consumer_is_woken_up() {
        let first = line(&[(0, 120, Doing::Running, 0), (120, 130, TIMER, 0), (130, 300, Doing::Running, 0)]);
        let second =
            line(&[(60, 150, LOCK, FIRST), (150, 160, Doing::Woken, 0), (160, 200, Doing::Running, 0)]);
        assert_eq!(way(first, second, 60, 170), [80, 0, 10, 0, 10]);
    }

    #[test]
    fn a_consumers_other_waits_are_not_the_hand_over() {
        let first = line(&[(0, 300, Doing::Running, 0)]);
        // A lock that another thread has; a timer whose interrupt met the first thread.
        let second = [
            (60, 110, LOCK, FIRST),
            (110, 150, LOCK, OTHER),
            (150, 190, TIMER, FIRST),
            (190, 200, Doing::Running, 0),
        ];
        assert_eq!(way(first, line(&second), 60, 120), [20, 0, 0, 40, 40]);
    }

    #[test]
    fn a_frame_leaves_a_full_queue_when_the_producers_wait_for_room_ends() {
        let first =
            line(&[(0, 110, Doing::Running, 0), (110, 170, LOCK, SECOND), (170, 300, Doing::Running, 0)]);
        let second =
            line(&[(0, 130, Doing::Running, 0), (130, 165, TIMER, 0), (165, 200, Doing::Running, 0)]);
        assert_eq!(way(first.clone(), second.clone(), 130, 180), [30, 70, 0, 0, 0]);
        // A window's thread waits for the frame's own time before it makes room.
        let shown = Part::WayToWindow { from: FIRST, to: SECOND };
        assert_eq!(causes(shown, first, second, 130, 180), [35, 30, 0, 0, 35]);
    }

    #[test]
    fn a_level_without_wakers_takes_a_consumers_wait_for_the_hand_over() {
        let first = line(&[(0, 300, Doing::Running, 0)]);
        let second = line(&[(60, 150, waiting(WaitReason::Unknown), 0), (150, 200, Doing::Running, 0)]);
        assert_eq!(way(first, second, 60, 170), [100, 0, 0, 0, 0]);
    }
}
