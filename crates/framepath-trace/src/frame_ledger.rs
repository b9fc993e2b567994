// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of a traced program's frames: where the time of each went, by stage and cause.
//!
//! The time of a frame, from the begin of its demuxing to the end of its last call, is divided at the calls that had the
//! frame. Each part belongs to one thread, whose timeline says what it did. A stage has its own calls, and the way to
//! them from the stage before.

use std::collections::{BTreeMap, HashMap, HashSet};

use framepath_model::ledger::{Row, flag};
use framepath_os::measure::process_events::{ThreadEvent, ThreadEventKind};

use crate::calls::Call;
use crate::identify::{Identified, TracedFrame};
use crate::names::Names;
use crate::spans::Span;
use crate::timeline::{Doing, Stretch, Timeline, WaitReason};

/// Ledger of one video stream of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamLedger {
    /// Stages in the order in which frames pass them: `demux mov,mp4,m4a`, `decode h264`, `filter scale`.
    pub stages: Vec<String>,
    /// One row for each frame and stage; hops are indices in `stages`, threads are indices in `threads`.
    pub rows: Vec<Row>,
    /// Ids of the threads.
    pub threads: Vec<i32>,
    /// Number of frames that left the last stage.
    pub frames: u64,
    /// Number of packets whose frames did not: dropped inside, hidden, or still in the program at the end.
    pub others: u64,
    /// Mean time for which a frame was blocked in each stage, by what it waited for, nanoseconds.
    pub blocked: BTreeMap<(u16, &'static str), f64>,
}

/// Facts from which ledgers are made.
pub(crate) struct Facts<'a> {
    pub(crate) spans: &'a [Span],
    pub(crate) timelines: &'a HashMap<i32, Timeline>,
    pub(crate) names: &'a Names,
    pub(crate) events: &'a [ThreadEvent],
}

/// Stages, in the order of a frame's way.
const STAGES: [&str; 5] = ["demux", "decode", "filter", "encode", "mux"];

/// Makes the ledger of each stream, the one with the most frames first.
pub(crate) fn ledgers(found: &Identified, facts: &Facts<'_>) -> Vec<StreamLedger> {
    let mut streams: BTreeMap<(i32, u64), Vec<&TracedFrame>> = BTreeMap::new();
    for frame in &found.frames {
        streams.entry(frame.decoder).or_default().push(frame);
    }
    let pools = pools(facts);
    let by_thread = by_thread(facts.spans);
    let mut ledgers: Vec<StreamLedger> =
        streams.values().map(|frames| Stream { facts, pools: &pools, by_thread: &by_thread, frames }.ledger()).collect();
    ledgers.sort_by_key(|ledger| std::cmp::Reverse(ledger.frames));
    ledgers
}

/// Returns the codecs that have threads of their own, with these threads: they were started while it was opened.
fn pools(facts: &Facts<'_>) -> HashMap<(i32, u64), HashSet<i32>> {
    let mut pools: HashMap<(i32, u64), HashSet<i32>> = HashMap::new();
    let opens: Vec<&Span> = facts.spans.iter().filter(|span| span.call == Call::OpenCodec).collect();
    for event in facts.events {
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

struct Stream<'a> {
    facts: &'a Facts<'a>,
    pools: &'a HashMap<(i32, u64), HashSet<i32>>,
    by_thread: &'a HashMap<i32, Vec<usize>>,
    frames: &'a [&'a TracedFrame],
}

/// Part of a frame's time.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// A thread works on the frame. With `pool`, its waits are for the codec's own threads.
    Thread { thread: i32, pool: bool },
    /// The frame is on the way from one thread to another, or to the same one.
    Way { from: i32, to: i32 },
    /// The codec keeps the frame.
    Held,
    /// The codec's own threads share the frames.
    Pool,
}

impl Stream<'_> {
    fn ledger(&self) -> StreamLedger {
        let uses = |stage: usize| self.frames.iter().filter(|frame| self.has(frame, stage)).count();
        let most = (0..STAGES.len()).map(uses).max().unwrap_or(0);
        // A stage that few frames reach is none of the stream's: packets of the end, a first try.
        let stages: Vec<usize> = (0..STAGES.len()).filter(|stage| 2 * uses(*stage) > most).collect();
        let mut ledger = StreamLedger {
            stages: stages.iter().map(|stage| self.name(*stage)).collect(),
            ..StreamLedger::default()
        };
        let works = self.works();
        let mut threads: Vec<i32> = Vec::new();
        for (number, frame) in self.frames.iter().enumerate() {
            if !stages.iter().all(|stage| self.has(frame, *stage)) {
                ledger.others += 1;
                continue;
            }
            ledger.frames += 1;
            let first = &self.facts.spans[frame.read.unwrap_or(frame.send)];
            let mut at_ns = first.enter_ns;
            for (hop, stage) in stages.iter().enumerate() {
                let mut row = Row {
                    seq: number as u64,
                    birth_ns: first.enter_ns,
                    enter_ns: at_ns,
                    flags: flag::COUNTED,
                    hop: hop as u16,
                    ..Row::default()
                };
                let (parts, thread) = self.parts(frame, *stage, &works);
                for (part, until_ns) in parts {
                    // Calls of one frame may overlap: a thread has its result before the other one has returned.
                    if until_ns > at_ns {
                        self.add(&mut row, part, at_ns, until_ns, &mut ledger.blocked);
                        at_ns = until_ns;
                    }
                }
                row.leave_ns = at_ns;
                if hop + 1 == stages.len() {
                    row.flags |= flag::LAST;
                }
                let known = threads.iter().position(|id| *id == thread);
                row.thread = known.unwrap_or_else(|| {
                    threads.push(thread);
                    threads.len() - 1
                }) as u16;
                ledger.rows.push(row);
            }
        }
        for ns in ledger.blocked.values_mut() {
            *ns /= ledger.frames.max(1) as f64;
        }
        ledger.threads = threads;
        ledger
    }

    /// True if the frame has passed the stage.
    fn has(&self, frame: &TracedFrame, stage: usize) -> bool {
        match stage {
            0 => frame.read.is_some(),
            1 => frame.receive.is_some(),
            2 => frame.filter.is_some_and(|(_, output)| output.is_some()),
            3 => frame.encode.is_some_and(|(_, output)| output.is_some()),
            _ => frame.write.is_some(),
        }
    }

    fn name(&self, stage: usize) -> String {
        let spans = self.facts.spans;
        let frame = self.frames.iter().find(|frame| self.has(frame, stage));
        let call = frame.and_then(|frame| match stage {
            0 => frame.read,
            1 => Some(frame.send),
            2 => frame.filter.map(|(input, _)| input),
            3 => frame.encode.map(|(input, _)| input),
            _ => frame.write,
        });
        let name = call.and_then(|call| {
            let span = &spans[call];
            let object = match stage {
                2 => self.facts.names.graph(span.process, span.object)?,
                _ => span.object,
            };
            self.facts.names.of(span.process, object)
        });
        match name.map(|named| named.name.as_str()) {
            // The names of a demuxer are those of all its formats.
            Some(name) if stage == 0 => format!("demux {}", name.split(',').next().unwrap_or_default()),
            Some(name) if !name.is_empty() => format!("{} {name}", STAGES[stage]),
            _ => STAGES[stage].to_owned(),
        }
    }

    /// Returns the time in which a thread of the decoder worked on each frame, by the call of its buffer: only where
    /// threads have frames of their own.
    fn works(&self) -> HashMap<usize, (u64, u64)> {
        let spans = self.facts.spans;
        let mut of_thread: HashMap<i32, Vec<(&TracedFrame, usize)>> = HashMap::new();
        for frame in self.frames {
            if let Some(buffer) = frame.buffer.filter(|buffer| spans[*buffer].thread != spans[frame.send].thread) {
                of_thread.entry(spans[buffer].thread).or_default().push((frame, buffer));
            }
        }
        let mut works = HashMap::new();
        for (thread, mut frames) in of_thread {
            frames.sort_by_key(|(_, buffer)| spans[*buffer].enter_ns);
            let Some(line) = self.facts.timelines.get(&thread) else { continue };
            // The thread begins with a frame when it wakes up behind the sending of the packet, or has the packet and goes on.
            let begins: Vec<u64> = frames
                .iter()
                .map(|(frame, buffer)| {
                    let (send, buffer) = (&spans[frame.send], &spans[*buffer]);
                    line.last_wake_up(send.enter_ns, buffer.enter_ns).unwrap_or(send.enter_ns)
                })
                .collect();
            for (index, (frame, buffer)) in frames.iter().enumerate() {
                let received_ns = frame.receive.map_or(u64::MAX, |receive| spans[receive].leave_ns);
                let until_ns = begins.get(index + 1).copied().unwrap_or(u64::MAX).min(received_ns);
                let from_ns = begins[index];
                // The wait that goes on then is for the next packet.
                let end_ns = line.wait_at(until_ns).filter(|end| *end > from_ns).unwrap_or(until_ns);
                works.insert(*buffer, (from_ns, end_ns));
            }
        }
        works
    }

    /// Returns the parts of a frame's time up to the end of a stage, each with its end, and the thread of the stage's first call.
    fn parts(
        &self,
        frame: &TracedFrame,
        stage: usize,
        works: &HashMap<usize, (u64, u64)>,
    ) -> (Vec<(Part, u64)>, i32) {
        let spans = self.facts.spans;
        let before = |at: Option<usize>| at.map(|index| spans[index].thread);
        match stage {
            0 => {
                let read = &spans[frame.read.unwrap_or(frame.send)];
                (vec![(Part::Thread { thread: read.thread, pool: false }, read.leave_ns)], read.thread)
            }
            1 => {
                let send = &spans[frame.send];
                let from = before(frame.read).unwrap_or(send.thread);
                let has_pool = self.pools.contains_key(&(send.process, send.object));
                let mut parts = vec![(Part::Way { from, to: send.thread }, send.enter_ns)];
                let work = frame.buffer.and_then(|buffer| works.get(&buffer).map(|work| (buffer, work)));
                let caller = |thread| Part::Thread { thread, pool: has_pool };
                let receive = frame.receive.map(|receive| &spans[receive]);
                match work {
                    Some((buffer, (from_ns, to_ns))) => {
                        parts.push((caller(send.thread), *from_ns));
                        parts.push((Part::Thread { thread: spans[buffer].thread, pool: false }, *to_ns));
                    }
                    None => parts.push((caller(send.thread), send.leave_ns)),
                }
                if let Some(receive) = receive {
                    let is_next = receive.thread == send.thread && !self.is_busy(send.thread, send.leave_ns, receive.enter_ns);
                    let between = match (work, has_pool) {
                        (None, _) if is_next => Part::Thread { thread: send.thread, pool: has_pool },
                        (None, true) => Part::Pool,
                        _ => Part::Held,
                    };
                    parts.push((between, receive.enter_ns));
                    parts.push((caller(receive.thread), receive.leave_ns));
                }
                (parts, send.thread)
            }
            2 => self.through(frame.filter, frame.receive, false),
            3 => self.through(frame.encode, frame.filter.and_then(|(_, output)| output).or(frame.receive), true),
            _ => {
                let write = &spans[frame.write.unwrap_or(frame.send)];
                let from = before(frame.encode.and_then(|(_, output)| output)).unwrap_or(write.thread);
                let way = (Part::Way { from, to: write.thread }, write.enter_ns);
                (vec![way, (Part::Thread { thread: write.thread, pool: false }, write.leave_ns)], write.thread)
            }
        }
    }

    /// Returns the parts of a stage into which one call puts the frame, and from which another one takes it.
    fn through(
        &self,
        calls: Option<(usize, Option<usize>)>,
        before: Option<usize>,
        is_codec: bool,
    ) -> (Vec<(Part, u64)>, i32) {
        let spans = self.facts.spans;
        let Some((input, Some(output))) = calls else { return (Vec::new(), 0) };
        let (input, output) = (&spans[input], &spans[output]);
        let from = before.map_or(input.thread, |index| spans[index].thread);
        let pool = is_codec && self.pools.contains_key(&(input.process, input.object));
        let caller = |thread| Part::Thread { thread, pool };
        let is_next = input.thread == output.thread && !self.is_busy(input.thread, input.leave_ns, output.enter_ns);
        let between = match pool {
            _ if is_next => caller(input.thread),
            true => Part::Pool,
            false => Part::Held,
        };
        let parts = vec![
            (Part::Way { from, to: input.thread }, input.enter_ns),
            (caller(input.thread), input.leave_ns),
            (between, output.enter_ns),
            (caller(output.thread), output.leave_ns),
        ];
        (parts, input.thread)
    }

    /// True if the thread began a call with another item between the two times.
    fn is_busy(&self, thread: i32, from_ns: u64, to_ns: u64) -> bool {
        self.calls_between(thread, from_ns, to_ns).any(|span| span.enter_ns > from_ns && span.enter_ns < to_ns)
    }

    /// Returns the thread's calls with items that overlap the time.
    fn calls_between(&self, thread: i32, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Span> {
        let spans = self.facts.spans;
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
        self.facts.timelines.get(&thread).into_iter().flat_map(move |line| line.between(from_ns, to_ns))
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
