// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of frames that a program exchanges with V4L2 devices.
//!
//! A captured frame is born at the driver's time stamp; a decoded one when the device gets its packet. The device has it until
//! the driver is done with it; then it waits for the thread that gets it. The thread has it until its buffer goes back.

use std::collections::HashMap;

use crate::attribution::{Part, PartUntil, TraceFacts};
use crate::calls::{Call, NO_PTS};
use crate::device_calls::{DeviceCall, DeviceFile};
use crate::device_frames::{DequeuedFrame, DeviceFrames, DeviceStream, DeviceWork};
use crate::frame_ledger::{StreamLedger, complete};
use crate::spans::CallSpan;
use crate::stage_limits::cut;
use crate::timeline::{Doing, ThreadStretch};
use crate::wait_reason::WaitReason;

impl DeviceFrames {
    /// Returns the times in which threads had frames, as calls: from the call that got a frame to the thread's next one; in a
    /// thread that gives a frame back which another one got, from the call before. They are in the order of their begins.
    pub(crate) fn spans(&self) -> Vec<CallSpan> {
        let mut calls: HashMap<i32, Vec<u64>> = HashMap::new();
        for frame in self.frames() {
            for call in [&frame.taken, &frame.back] {
                calls.entry(call.thread).or_default().push(call.at_ns);
            }
        }
        calls.values_mut().for_each(|calls| calls.sort_unstable());
        let mut spans = Vec::new();
        for frame in self.frames() {
            let DequeuedFrame { taken, back, .. } = frame;
            let span = |thread: i32, enter_ns: u64, leave_ns: u64| CallSpan {
                call: Call::Mark,
                process: taken.file.process,
                thread,
                enter_ns,
                leave_ns,
                object: u64::from(taken.sequence),
                data: 1,
                pts: NO_PTS,
                result: 0,
            };
            let of_thread = &calls[&taken.thread];
            let next = of_thread.get(of_thread.partition_point(|at_ns| *at_ns <= taken.at_ns));
            let until_ns = next.copied().unwrap_or(back.at_ns).min(back.at_ns);
            spans.push(span(taken.thread, taken.at_ns, until_ns));
            if back.thread != taken.thread {
                let of_thread = &calls[&back.thread];
                let before = of_thread.partition_point(|at_ns| *at_ns < back.at_ns).checked_sub(1);
                let from_ns = before.map_or(0, |before| of_thread[before]).max(taken.at_ns);
                spans.push(span(back.thread, from_ns, back.at_ns));
            }
        }
        spans.sort_by_key(|span| span.enter_ns);
        spans
    }

    /// Makes the ledger of each open file of a device, the one with the most frames first.
    pub(crate) fn ledgers(&self, facts: &TraceFacts<'_>) -> Vec<StreamLedger> {
        let mut ledgers: Vec<StreamLedger> =
            self.streams.iter().map(|(file, stream)| ledger(file, stream, facts)).collect();
        ledgers.retain(|ledger| ledger.frames > 0);
        ledgers.sort_by_key(|ledger| std::cmp::Reverse(ledger.frames));
        ledgers
    }

    fn frames(&self) -> impl Iterator<Item = &DequeuedFrame> {
        self.streams.values().flat_map(|stream| &stream.frames)
    }
}

fn ledger(file: &DeviceFile, stream: &DeviceStream, facts: &TraceFacts<'_>) -> StreamLedger {
    let from = match stream.work {
        None => "capture",
        Some(DeviceWork::Decode) => "decode",
        Some(DeviceWork::Encode) => "encode",
        Some(DeviceWork::Convert) => "convert",
    };
    let device = file.minor.and_then(|minor| facts.names.device(minor));
    let names = vec![device.map_or(from.to_owned(), |name| format!("{from} {name}")), "process".to_owned()];
    let (process, others) = (file.process, stream.others);
    let mut ledger = StreamLedger { process, from: from.to_owned(), others, ..StreamLedger::default() };
    let Some(range) = facts.limits.of(&names) else { return ledger };
    ledger.limit(names, &range);
    for (number, frame) in stream.frames.iter().enumerate() {
        let (birth_ns, parts) = device_parts(frame, facts);
        let stages = vec![(parts, frame.taken.thread), (process_parts(frame, facts), frame.taken.thread)];
        let (birth_ns, stages) = cut(stages, range.clone(), birth_ns);
        facts.add_frame(&mut ledger, number as u64, birth_ns, stages);
    }
    complete(&mut ledger, facts);
    ledger
}

/// Returns the birth of a frame, and the parts of its time until the program gets it.
fn device_parts(frame: &DequeuedFrame, facts: &TraceFacts<'_>) -> (u64, Vec<PartUntil>) {
    let DeviceCall { at_ns, thread, done_ns, .. } = frame.taken;
    let born_ns = frame.given_ns.or(frame.taken.captured_ns());
    // A driver without videobuf2 does not tell when it was done: at the latest when it ended the thread's wait.
    let is_for_device = |wait: &ThreadStretch| {
        let reasons = [WaitReason::Ioctl, WaitReason::Device, WaitReason::Poll, WaitReason::Unknown];
        matches!(wait.doing, Doing::Waiting(wait) if reasons.contains(&wait.reason))
    };
    let line = facts.timelines.get(&thread);
    let woken_ns = || line?.last_end(born_ns.unwrap_or(at_ns), at_ns, is_for_device);
    let done_ns = done_ns.or_else(woken_ns);
    let birth_ns = born_ns.into_iter().chain(done_ns).min().unwrap_or(at_ns);
    let done_ns = done_ns.unwrap_or(if frame.given_ns.is_some() { at_ns } else { birth_ns });
    (birth_ns, vec![(Part::Device, done_ns), (Part::Way { from: thread, to: thread }, at_ns)])
}

/// Returns the parts of a frame's time in the program.
fn process_parts(frame: &DequeuedFrame, facts: &TraceFacts<'_>) -> Vec<PartUntil> {
    let DequeuedFrame { taken, back, .. } = frame;
    let (from, to) = (taken.thread, back.thread);
    let own_ns = facts.own_until((from, taken.at_ns), (to, back.at_ns));
    let own = (Part::Thread { thread: from, pool: None }, own_ns);
    if from == to {
        return vec![own, (Part::Way { from, to }, back.at_ns)];
    }
    // The second thread has the frame when it has given back the one before.
    let free_ns = facts.last_call(to, back.at_ns).unwrap_or(own_ns).max(own_ns);
    vec![own, (Part::Way { from, to }, free_ns), (Part::Thread { thread: to, pool: None }, back.at_ns)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_calls::DeviceQueue;
    use crate::device_frames::tests::call;
    use crate::names::ObjectNames;
    use crate::timeline::{line, waiting};
    use framepath_model::ledger::Row;

    const POLL: Doing = waiting(WaitReason::Poll);
    const LOCK: Doing = waiting(WaitReason::Lock);

    /// Flag of a time stamp of CLOCK_MONOTONIC.
    const MONOTONIC: u32 = 0x2000;

    fn take(at_ns: u64, index: u32) -> DeviceCall {
        call(at_ns, DeviceQueue::Capture, true, index, 0)
    }

    fn back(at_ns: u64, index: u32) -> DeviceCall {
        call(at_ns, DeviceQueue::Capture, false, index, 0)
    }

    /// Stretches of a thread: begin, end, activity, and the thread that ended a wait.
    type Line<'a> = (i32, &'a [(u64, u64, Doing, i32)]);

    /// Returns the stages and the rows of these calls.
    fn rows(calls: &[DeviceCall], lines: &[Line<'_>]) -> (String, Vec<Row>) {
        let found = DeviceFrames::of(calls);
        let spans = found.spans();
        let timelines = lines.iter().map(|(thread, stretches)| (*thread, line(stretches))).collect();
        let names = ObjectNames::default();
        let mut ledgers = found.ledgers(&TraceFacts::new(&spans, &timelines, &names, &[]));
        let ledger = ledgers.remove(0);
        (ledger.stages.join(","), ledger.rows)
    }

    /// Times of a row: device, queue, wakeup, compute.
    fn times(row: &Row) -> [u64; 4] {
        [row.device_ns, row.queue_ns, row.wakeup_ns, row.compute_ns]
    }

    #[test]
    fn a_device_has_a_frame_until_its_driver_is_done() {
        let stamped = |call: DeviceCall, ns: i64, done_ns| DeviceCall {
            timestamp: (0, ns / 1000),
            flags: MONOTONIC,
            done_ns,
            ..call
        };
        let line: &[_] =
            &[(0, 14_000, POLL, 0), (14_000, 15_000, Doing::Woken, 0), (15_000, 90_000, Doing::Running, 0)];
        // The thread waits for the first frame; the second one waits for the thread.
        let calls = [
            stamped(take(16_000, 0), 10_000, Some(13_000)),
            back(26_000, 0),
            stamped(take(28_000, 1), 20_000, Some(21_000)),
            back(30_000, 1),
        ];
        let (stages, first) = rows(&calls, &[(1, line)]);
        assert_eq!(stages, "capture,process");
        assert_eq!(
            first.iter().map(|row| row.birth_ns).collect::<Vec<_>>(),
            [10_000, 10_000, 20_000, 20_000]
        );
        let seen: Vec<[u64; 4]> = first.iter().map(times).collect();
        assert_eq!(seen[..2], [[3000, 0, 1000, 1000], [0, 0, 0, 10_000]]);
        assert_eq!(seen[2..], [[1000, 5000, 0, 2000], [0, 0, 0, 2000]]);
        // A driver that does not tell: it was done when the wait ended, and, without a wait, at the stamp.
        let untold = calls.map(|call| DeviceCall { done_ns: None, ..call });
        let (_, second) = rows(&untold, &[(1, line)]);
        let seen: Vec<[u64; 4]> = second.iter().map(times).collect();
        assert_eq!((seen[0], seen[2]), ([4000, 0, 1000, 1000], [0, 6000, 0, 2000]));
        // Without a stamp of this clock, the frame is born when the driver is done.
        let copied = calls.map(|call| DeviceCall { flags: 0x4000, ..call });
        let (_, third) = rows(&copied, &[(1, line)]);
        assert_eq!((third[0].birth_ns, times(&third[0])), (13_000, [0, 0, 1000, 1000]));
    }

    #[test]
    fn a_device_has_a_packet_until_the_frame_is_decoded() {
        let sized = |call: DeviceCall, bytes, done_ns| DeviceCall { bytes, done_ns, ..call };
        let give =
            |at_ns, second, bytes| sized(call(at_ns, DeviceQueue::Output, false, 0, second), bytes, None);
        let taken = |at_ns, index, second, done_ns| {
            sized(call(at_ns, DeviceQueue::Capture, true, index, second), 1000, Some(done_ns))
        };
        let calls = [
            give(90, 1, 10),
            give(190, 2, 20),
            taken(400, 0, 2, 350),
            back(450, 0),
            taken(500, 1, 1, 480),
            back(520, 1),
        ];
        let (stages, rows) = rows(&calls, &[(1, &[(0, 900, Doing::Running, 0)])]);
        assert_eq!(stages, "decode,process");
        let seen: Vec<(u64, [u64; 4])> = rows.iter().map(|row| (row.birth_ns, times(row))).collect();
        assert_eq!(seen[..2], [(190, [160, 0, 0, 50]), (190, [0, 0, 0, 50])]);
        assert_eq!(seen[2..], [(90, [390, 0, 0, 20]), (90, [0, 0, 0, 20])]);
    }

    #[test]
    fn another_thread_may_give_the_buffer_back() {
        // The second thread works on frame 0 until 300, gets frame 1 then, and gives it back at 360.
        let by_other = |call: DeviceCall| DeviceCall { thread: 2, ..call };
        let calls = [take(100, 0), take(200, 1), by_other(back(300, 0)), by_other(back(360, 1))];
        let first: &[_] = &[
            (0, 120, Doing::Running, 0),
            (120, 200, POLL, 0),
            (200, 230, Doing::Running, 0),
            (230, 900, POLL, 0),
        ];
        let second: &[_] = &[(0, 110, LOCK, 1), (110, 115, Doing::Woken, 0), (115, 900, Doing::Running, 0)];
        let (_, rows) = rows(&calls, &[(1, first), (2, second)]);
        // Frame 0: 10 of its first thread until it woke the second one. Frame 1: the first thread until it waits, then the queue.
        assert_eq!(times(&rows[1]), [0, 0, 5, 10 + 185]);
        assert_eq!(times(&rows[3]), [0, 70, 0, 30 + 60]);
    }
}
