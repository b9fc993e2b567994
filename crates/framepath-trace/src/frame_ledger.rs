// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of a traced program's frames: where the time of each went, by stage and cause.
//!
//! The time of a frame, from the begin of its demuxing to the end of its last call, is divided at the calls that had the
//! frame. Each part belongs to one thread, whose timeline says what it did. A stage has its own calls, and the way to
//! them from the stage before.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use framepath_model::ledger::{Row, Span, SpanPlace, flag};

use crate::attribution::{Part, PartUntil, TraceFacts};
use crate::copy_functions::SAMPLE_NS;
use crate::identify::Identified;
use crate::stage_limits::cut;
use crate::stage_wait::{StageWait, WaitKey};
use crate::stream_ways::ways;
use crate::timeline::ThreadStretch;
use crate::traced_frame::TracedFrame;

/// Ledger of one video stream of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamLedger {
    /// Process of the stream.
    pub process: i32,
    /// Where the frames begin: `demux`, `decode`, or the first element of a pipeline.
    pub from: String,
    /// Stages in the order in which frames pass them: `demux mov`, `decode h264`, `filter scale`, or elements.
    pub stages: Vec<String>,
    /// One row for each frame and stage; hops are indices in `stages`, threads are indices in `threads`.
    pub rows: Vec<Row>,
    /// Parts of the time of each row, as in the ledger of framepath's own paths.
    pub spans: Vec<Span>,
    /// Ids of the threads.
    pub threads: Vec<i32>,
    /// Number of frames that left the last stage.
    pub frames: u64,
    /// Number of packets whose frames did not: dropped inside, hidden, or still in the program at the end.
    pub others: u64,
    /// Waits of the frames in each stage, the longest first: named when the recording has ended.
    pub stage_waits: Vec<StageWait>,
    /// Mean time for which a frame waited in each stage, by what it waited for, nanoseconds.
    pub(crate) waits: BTreeMap<(u16, WaitKey), f64>,
    /// Number of samples in which a frame's thread copied memory.
    pub copy_samples: u64,
}

impl StreamLedger {
    /// Returns the way of the stream's frames, such as `demux to mux`.
    pub fn way(&self) -> String {
        let last = self.stages.last().map_or("", |stage| stage.split(' ').next().unwrap_or_default());
        format!("{} to {last}", self.from)
    }

    /// Sets the stages to those of `names` in `range`.
    pub(crate) fn limit(&mut self, names: Vec<String>, range: &Range<usize>) {
        if range.start > 0 {
            self.from = names[range.start].split(' ').next().unwrap_or_default().to_owned();
        }
        self.stages = names;
        self.stages.truncate(range.end);
        self.stages.drain(..range.start);
    }

    /// Returns the index of thread `id` in `threads`. With more than [`MOST_THREADS`], the last one stands for all further ones.
    pub(crate) fn thread(&mut self, id: i32) -> u16 {
        let known = self.threads.iter().position(|thread| *thread == id);
        let index = known.unwrap_or_else(|| {
            if self.threads.len() < MOST_THREADS {
                self.threads.push(id);
            }
            self.threads.len() - 1
        });
        index as u16
    }

    /// Takes the copies, which the rows have by their samples, out of the time on a CPU. A frame that was on a CPU for too
    /// short a time for samples of its own gets the share that such frames have in this stage together.
    fn divide_copies(&mut self) {
        let is_long = |row: &Row| row.compute_ns >= LONG_NS;
        // Sampled time and time on a CPU of the short rows.
        let mut short: BTreeMap<u16, [u64; 2]> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| !is_long(row)) {
            let [copy_ns, running_ns] = short.entry(row.hop).or_default();
            *copy_ns += row.copy_ns;
            *running_ns += row.compute_ns;
        }
        self.copy_samples = self.rows.iter().map(|row| row.copy_ns / SAMPLE_NS).sum();
        for row in &mut self.rows {
            let copy_ns = match is_long(row) {
                true => row.copy_ns,
                false => {
                    let [copy_ns, running_ns] = short[&row.hop];
                    (row.compute_ns as f64 * copy_ns as f64 / running_ns.max(1) as f64) as u64
                }
            };
            row.copy_ns = copy_ns.min(row.compute_ns);
            row.compute_ns -= row.copy_ns;
            row.flags |= flag::SAMPLED;
        }
    }

    /// Adds a part of the time of `row`.
    pub(crate) fn span(&mut self, row: &Row, place: SpanPlace, start_ns: u64, end_ns: u64) {
        if start_ns < end_ns && self.spans.len() < MOST_SPANS {
            self.spans.push(Span { seq: row.seq, start_ns, end_ns, hop: row.hop, place });
        }
    }
}

/// Most streams of a recording that are shown, those with the most frames: a program can make any number of them.
pub(crate) const MOST_STREAMS: usize = 64;

/// Most parts of the times of a stream's frames that are kept for its pictures: the sums have all.
const MOST_SPANS: usize = 4 << 20;

/// Most threads of a stream.
const MOST_THREADS: usize = 1024;

/// Time on a CPU from which on a frame's own samples count, nanoseconds.
const LONG_NS: u64 = 4 * SAMPLE_NS;

/// Stages, in the order of a frame's way.
const STAGES: [&str; 6] = ["demux", "decode", "filter", "encode", "mux", PRESENT];

/// Name of the stage that ends when the frame has been given to the display or its server.
pub(crate) const PRESENT: &str = "present";

/// Makes the ledger of each stream, the one with the most frames first.
pub(crate) fn ledgers(found: &Identified, facts: &TraceFacts<'_>) -> Vec<StreamLedger> {
    let mut decoders: BTreeMap<(i32, u64), Vec<&TracedFrame>> = BTreeMap::new();
    for frame in &found.frames {
        decoders.entry(frame.decoder).or_default().push(frame);
    }
    let streams = decoders.values().flat_map(|frames| ways(frames, facts.spans));
    let mut ledgers: Vec<StreamLedger> =
        streams.map(|frames| Stream { facts, frames: &frames }.ledger()).collect();
    ledgers.retain(|ledger| !ledger.stages.is_empty());
    ledgers.sort_by_key(|ledger| std::cmp::Reverse(ledger.frames));
    ledgers
}

/// Most pictures of a stream that counts as single pictures.
const MOST_SINGLE: u64 = 2;

/// Takes single pictures that were decoded beside a stream of the same process out of `streams`: icons and covers. Returns their number.
pub(crate) fn leave_out_single(streams: &mut Vec<StreamLedger>) -> u64 {
    let mut most: HashMap<i32, u64> = HashMap::new();
    for stream in &*streams {
        let most = most.entry(stream.process).or_default();
        *most = stream.frames.max(*most);
    }
    let is_single = |stream: &StreamLedger| {
        let is_at_end = stream.stages.last().is_some_and(|stage| stage.starts_with(STAGES[1]));
        is_at_end && stream.frames <= MOST_SINGLE && 10 * stream.frames <= most[&stream.process]
    };
    let single = streams.iter().filter(|stream| is_single(stream)).map(|stream| stream.frames).sum();
    streams.retain(|stream| !is_single(stream));
    single
}

/// Completes a ledger that has all its frames: turns the sums of waits into means per frame, and takes the copies
/// out of the time on CPUs.
pub(crate) fn complete(ledger: &mut StreamLedger, facts: &TraceFacts<'_>) {
    for ns in ledger.waits.values_mut() {
        *ns /= ledger.frames.max(1) as f64;
    }
    match facts.sampled.contains(&ledger.process) {
        true => ledger.divide_copies(),
        false => ledger.rows.iter_mut().for_each(|row| row.copy_ns = 0),
    }
}

struct Stream<'a> {
    facts: &'a TraceFacts<'a>,
    frames: &'a [&'a TracedFrame],
}

impl Stream<'_> {
    fn ledger(&self) -> StreamLedger {
        let stages = self.stages();
        let mut ledger = StreamLedger {
            process: self.frames.first().map_or(0, |frame| frame.decoder.0),
            from: stages.first().map_or("", |stage| STAGES[*stage]).to_owned(),
            ..StreamLedger::default()
        };
        let names: Vec<String> = stages.iter().map(|stage| self.name(*stage)).collect();
        let Some(range) = self.facts.limits.of(&names) else { return ledger };
        ledger.limit(names, &range);
        let works = self.works();
        for (number, frame) in self.frames.iter().enumerate() {
            if !stages.iter().all(|stage| self.has(frame, *stage)) {
                ledger.others += 1;
                continue;
            }
            let birth_ns = self.facts.spans[frame.read.unwrap_or(frame.send)].enter_ns;
            let parts = stages.iter().map(|stage| self.parts(frame, *stage, &works)).collect();
            let (birth_ns, parts) = cut(parts, range.clone(), birth_ns);
            self.facts.add_frame(&mut ledger, number as u64, birth_ns, parts);
        }
        complete(&mut ledger, self.facts);
        ledger
    }

    /// Returns the stages of the way: those that most of the frames have passed that got to its end. Few may: a filter can drop
    /// most of them.
    fn stages(&self) -> Vec<usize> {
        let uses = |stage: usize| self.frames.iter().filter(|frame| self.has(frame, stage)).count();
        let end = (0..STAGES.len()).rev().find(|stage| uses(*stage) > 0).unwrap_or(0);
        let whole: Vec<&&TracedFrame> = self.frames.iter().filter(|frame| self.has(frame, end)).collect();
        let has_most =
            |stage: &usize| 2 * whole.iter().filter(|frame| self.has(frame, *stage)).count() > whole.len();
        (0..=end).filter(has_most).collect()
    }

    /// True if the frame has passed the stage.
    fn has(&self, frame: &TracedFrame, stage: usize) -> bool {
        match stage {
            0 => frame.read.is_some(),
            1 => frame.receive.is_some(),
            2 => frame.filter.is_some_and(|(_, output)| output.is_some()),
            3 => frame.encode.is_some_and(|(_, output)| output.is_some()),
            4 => frame.write.is_some(),
            _ => frame.present.is_some(),
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
            4 => frame.write,
            _ => None,
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
            if let Some(buffer) =
                frame.buffer.filter(|buffer| spans[*buffer].thread != spans[frame.send].thread)
            {
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
                    // Other threads end waits inside the work on the frame.
                    let is_for_packet = |wait: &ThreadStretch| wait.may_be_ended_by(send.thread);
                    line.last_end(send.enter_ns, buffer.enter_ns, is_for_packet).unwrap_or(send.enter_ns)
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
    ) -> (Vec<PartUntil>, i32) {
        let spans = self.facts.spans;
        let before = |at: Option<usize>| at.map(|index| spans[index].thread);
        match stage {
            0 => {
                let read = &spans[frame.read.unwrap_or(frame.send)];
                (vec![(Part::Thread { thread: read.thread, pool: None }, read.leave_ns)], read.thread)
            }
            1 => {
                let send = &spans[frame.send];
                let from = before(frame.read).unwrap_or(send.thread);
                let pool = self.facts.with_pool((send.process, send.object));
                let mut parts = vec![(Part::Way { from, to: send.thread }, send.enter_ns)];
                let work = frame.buffer.and_then(|buffer| works.get(&buffer).map(|work| (buffer, work)));
                let caller = |thread| Part::Thread { thread, pool };
                let receive = frame.receive.map(|receive| &spans[receive]);
                match work {
                    Some((buffer, (from_ns, to_ns))) => {
                        parts.push((caller(send.thread), *from_ns));
                        parts.push((Part::Thread { thread: spans[buffer].thread, pool: None }, *to_ns));
                    }
                    None => parts.push((caller(send.thread), send.leave_ns)),
                }
                if let Some(receive) = receive {
                    let is_next = receive.thread == send.thread
                        && !self.facts.is_busy(send.thread, send.leave_ns, receive.enter_ns);
                    let between = match (work, pool) {
                        (None, _) if is_next => caller(send.thread),
                        (None, Some(codec)) => Part::Pool { caller: send.thread, codec },
                        _ => Part::Held { caller: send.thread },
                    };
                    parts.push((between, receive.enter_ns));
                    parts.push((caller(receive.thread), receive.leave_ns));
                }
                (parts, send.thread)
            }
            2 => self.through(frame.filter, frame.receive, false),
            3 => self.through(
                frame.encode,
                frame.filter.and_then(|(_, output)| output).or(frame.receive),
                true,
            ),
            4 => {
                let write = &spans[frame.write.unwrap_or(frame.send)];
                let from = before(frame.encode.and_then(|(_, output)| output)).unwrap_or(write.thread);
                let way = (Part::Way { from, to: write.thread }, write.enter_ns);
                // A muxer that is a window shows the frame inside.
                let shown = frame.present.map(|(upload, present)| spans[upload.unwrap_or(present)].enter_ns);
                let end_ns = shown.unwrap_or(write.leave_ns).min(write.leave_ns);
                (vec![way, (Part::Thread { thread: write.thread, pool: None }, end_ns)], write.thread)
            }
            _ => {
                let (upload, present) = frame.present.unwrap_or((None, frame.send));
                let first = &spans[upload.unwrap_or(present)];
                let graph = frame.filter.and_then(|(_, output)| output);
                let last = frame.write.or(graph).or(frame.receive);
                let from = before(last).unwrap_or(first.thread);
                let way = (Part::WayToWindow { from, to: first.thread }, first.enter_ns);
                let show = (Part::Thread { thread: first.thread, pool: None }, spans[present].leave_ns);
                (vec![way, show], first.thread)
            }
        }
    }

    /// Returns the parts of a stage into which one call puts the frame, and from which another one takes it.
    fn through(
        &self,
        calls: Option<(usize, Option<usize>)>,
        before: Option<usize>,
        is_codec: bool,
    ) -> (Vec<PartUntil>, i32) {
        let spans = self.facts.spans;
        let Some((input, Some(output))) = calls else { return (Vec::new(), 0) };
        let (input, output) = (&spans[input], &spans[output]);
        let from = before.map_or(input.thread, |index| spans[index].thread);
        let pool = self.facts.with_pool((input.process, input.object)).filter(|_| is_codec);
        let caller = |thread| Part::Thread { thread, pool };
        let is_next = input.thread == output.thread
            && !self.facts.is_busy(input.thread, input.leave_ns, output.enter_ns);
        let between = match pool {
            _ if is_next => caller(input.thread),
            Some(codec) => Part::Pool { caller: input.thread, codec },
            None => Part::Held { caller: input.thread },
        };
        let parts = vec![
            (Part::Way { from, to: input.thread }, input.enter_ns),
            (caller(input.thread), input.leave_ns),
            (between, output.enter_ns),
            (caller(output.thread), output.leave_ns),
        ];
        (parts, input.thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long rows have their own samples, short ones a share of those of all short rows of their stage.
    #[test]
    fn copies_are_taken_out_of_the_time_on_a_cpu() {
        let row = |hop, ms: u64, samples| Row {
            hop,
            compute_ns: ms * 1_000_000,
            copy_ns: samples * SAMPLE_NS,
            ..Row::default()
        };
        // 6 ms with 5 samples; short ones with 1 of 10 ms; more samples than time; another stage without a sample.
        let rows = vec![row(0, 6, 5), row(0, 3, 0), row(0, 2, 1), row(0, 5, 9), row(1, 2, 0)];
        let mut ledger = StreamLedger { rows, ..StreamLedger::default() };
        ledger.divide_copies();
        let copies: Vec<u64> = ledger.rows.iter().map(|row| row.copy_ns).collect();
        assert_eq!(copies, [5 * SAMPLE_NS, SAMPLE_NS * 3 / 5, SAMPLE_NS * 2 / 5, 5_000_000, 0]);
        let sums: Vec<u64> = ledger.rows.iter().map(|row| row.copy_ns + row.compute_ns).collect();
        assert_eq!(sums, [6_000_000, 3_000_000, 2_000_000, 5_000_000, 2_000_000]);
        assert_eq!(ledger.copy_samples, 15);
        assert!(ledger.rows.iter().all(|row| row.has(flag::SAMPLED)));
    }
}
