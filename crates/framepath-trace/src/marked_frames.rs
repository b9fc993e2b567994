// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of frames that a program names itself, by the functions of framepath_frame.h.
//!
//! A stage's time begins with its mark and ends with the frame's next one. It is the time of the thread that set the mark;
//! if another thread sets the next one, then the frame was handed over, at the latest when the first one waits or goes on with
//! another frame.

use std::collections::{BTreeMap, HashMap};

use crate::attribution::{Part, PartUntil, TraceFacts};
use crate::calls::{Call, NO_PTS};
use crate::frame_ledger::{MOST_STREAMS, StreamLedger, complete};
use crate::mark::Mark;
use crate::spans::CallSpan;
use crate::stage_limits::cut;

/// Greatest number of marks of one frame: a program that never ends its frames is no reason to keep all.
const LONGEST: usize = 100;

/// Frames in the marks of a recording.
#[derive(Debug, Default)]
pub(crate) struct MarkedFrames<'a> {
    /// Marks of each frame that has left its last stage, in their order, with that end.
    ended: Vec<Vec<&'a Mark>>,
    /// First mark of each frame that did not.
    others: Vec<&'a Mark>,
}

impl<'a> MarkedFrames<'a> {
    /// Finds the frames in `marks`, which are in the order of their times.
    pub(crate) fn of(marks: &'a [Mark]) -> MarkedFrames<'a> {
        let mut found = MarkedFrames::default();
        let mut open: BTreeMap<(i32, u64), Vec<&Mark>> = BTreeMap::new();
        for mark in marks {
            let key = (mark.process, mark.frame);
            let Some(stage) = &mark.stage else {
                // Without a stage, the frame began before the recording.
                if let Some(mut frame) = open.remove(&key) {
                    frame.push(mark);
                    found.ended.push(frame);
                }
                continue;
            };
            let frame = open.entry(key).or_default();
            let is_new = frame.first().is_some_and(|first| first.stage.as_ref() == Some(stage));
            if is_new || frame.len() >= LONGEST {
                found.others.push(frame[0]);
                frame.clear();
            }
            frame.push(mark);
        }
        found.others.extend(open.into_values().map(|frame| frame[0]));
        found
    }

    /// Makes the ledger of each way through a process's stages, the one with the most frames first.
    pub(crate) fn ledgers(&self, facts: &TraceFacts<'_>) -> Vec<StreamLedger> {
        let mut streams: BTreeMap<(i32, Vec<&str>), Vec<&[&Mark]>> = BTreeMap::new();
        for frame in &self.ended {
            let names = frame.iter().filter_map(|mark| mark.stage.as_deref()).collect();
            streams.entry((frame[0].process, names)).or_default().push(frame);
        }
        let mut ledgers: Vec<StreamLedger> =
            streams.iter().map(|((process, names), frames)| ledger(*process, names, frames, facts)).collect();
        ledgers.sort_by_key(|ledger| std::cmp::Reverse(ledger.frames));
        for mark in &self.others {
            // A frame that was dropped on its way counts where most of those went that began as it did.
            let first = |ledger: &&mut StreamLedger| {
                ledger.process == mark.process && ledger.from == mark.stage.as_deref().unwrap_or_default()
            };
            if let Some(ledger) = ledgers.iter_mut().take(MOST_STREAMS).find(first) {
                ledger.others += 1;
            }
        }
        ledgers.retain(|ledger| ledger.frames > 0);
        ledgers
    }
}

/// Returns the times in which threads had frames, as calls: each from a mark to the next one of its frame or thread. `marks`
/// are in the order of their times.
pub(crate) fn mark_spans(marks: &[Mark]) -> Vec<CallSpan> {
    let (mut next_of_thread, mut next_of_frame) = (HashMap::new(), HashMap::new());
    let mut spans = Vec::new();
    for mark in marks.iter().rev() {
        let of_thread = next_of_thread.insert(mark.thread, mark.at_ns);
        let of_frame = next_of_frame.insert((mark.process, mark.frame), mark.at_ns);
        if mark.stage.is_none() || mark.is_queue() {
            continue;
        }
        spans.push(CallSpan {
            call: Call::Mark,
            process: mark.process,
            thread: mark.thread,
            enter_ns: mark.at_ns,
            leave_ns: of_thread.into_iter().chain(of_frame).min().unwrap_or(mark.at_ns),
            object: mark.frame,
            data: 1,
            pts: NO_PTS,
            result: 0,
        });
    }
    spans.reverse();
    spans
}

fn ledger(process: i32, names: &[&str], frames: &[&[&Mark]], facts: &TraceFacts<'_>) -> StreamLedger {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut ledger = StreamLedger { process, from: names[0].clone(), ..StreamLedger::default() };
    let Some(range) = facts.limits.of(&names) else { return ledger };
    ledger.limit(names, &range);
    let mut frames = frames.to_vec();
    frames.sort_by_key(|frame| frame[0].at_ns);
    for (number, frame) in frames.into_iter().enumerate() {
        let stages = frame.windows(2).map(|pair| (stage(pair[0], pair[1], facts), pair[0].thread)).collect();
        let (birth_ns, stages) = cut(stages, range.clone(), frame[0].at_ns);
        facts.add_frame(&mut ledger, number as u64, birth_ns, stages);
    }
    complete(&mut ledger, facts);
    ledger
}

/// Returns the parts of the time between two marks of a frame.
fn stage(mark: &Mark, next: &Mark, facts: &TraceFacts<'_>) -> Vec<PartUntil> {
    let (from, to) = (mark.thread, next.thread);
    let way = (Part::Way { from, to }, next.at_ns);
    if mark.is_queue() {
        return vec![way];
    }
    let own_ns = facts.own_until((from, mark.at_ns), (to, next.at_ns));
    vec![(Part::Thread { thread: from, pool: None }, own_ns), way]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ObjectNames;
    use crate::timeline::{Doing, ThreadStretch, Timeline};

    fn mark(at_ns: u64, thread: i32, frame: u64, stage: &str) -> Mark {
        let stage = (!stage.is_empty()).then(|| stage.to_owned());
        Mark { at_ns, process: 1, thread, frame, stage }
    }

    /// Returns the ledgers of these marks, of threads that always run.
    fn ledgers(marks: &[Mark]) -> Vec<StreamLedger> {
        let found = MarkedFrames::of(marks);
        let spans = mark_spans(marks);
        let running = ThreadStretch {
            from_ns: 0,
            to_ns: 10_000,
            doing: Doing::Running,
            by: 0,
            stolen_ns: 0,
            faults: 0,
        };
        let timelines = HashMap::from([1, 2].map(|thread| (thread, Timeline::of(vec![running]))));
        let names = ObjectNames::default();
        found.ledgers(&TraceFacts::new(&spans, &timelines, &names, &[]))
    }

    #[test]
    fn frames_that_are_dropped_or_go_another_way_are_told_apart() {
        let marks = [
            mark(5, 1, 9, ""),
            mark(10, 1, 1, "capture"),
            mark(20, 1, 1, "show"),
            mark(30, 1, 1, ""),
            mark(40, 1, 2, "capture"),
            mark(50, 1, 2, "capture"),
            mark(60, 1, 2, "scale"),
            mark(70, 1, 2, "show"),
            mark(80, 1, 2, ""),
            mark(90, 1, 1, "capture"),
            mark(95, 1, 1, "show"),
            mark(99, 1, 1, ""),
            mark(100, 1, 3, "capture"),
        ];
        let seen: Vec<(String, u64, u64)> =
            ledgers(&marks).into_iter().map(|l| (l.stages.join(","), l.frames, l.others)).collect();
        assert_eq!(seen, [("capture,show".to_owned(), 2, 2), ("capture,scale,show".to_owned(), 1, 0)]);
    }

    #[test]
    fn a_frame_waits_for_a_thread_that_has_others() {
        // The second thread has frame 1 until 100; the first one gives it frame 2 at 60, by a mark or by going on at 70.
        for (stage, ends) in [("queue", [60, 100, 130]), ("send", [60, 100, 130])] {
            let marks = [
                mark(10, 2, 1, "show"),
                mark(20, 1, 2, "capture"),
                mark(60, 1, 2, stage),
                mark(70, 1, 3, "capture"),
                mark(100, 2, 1, ""),
                mark(100, 2, 2, "show"),
                mark(130, 2, 2, ""),
            ];
            let ledgers = ledgers(&marks);
            let ledger = ledgers.iter().find(|ledger| ledger.stages.len() == 3).unwrap();
            let seen: Vec<(u64, u64, u64)> =
                ledger.rows.iter().map(|row| (row.leave_ns, row.compute_ns, row.queue_ns)).collect();
            let own_ns = if stage == "queue" { 0 } else { 10 };
            assert_eq!(seen, [(ends[0], 40, 0), (ends[1], own_ns, 40 - own_ns), (ends[2], 30, 0)], "{stage}");
        }
    }
}
