// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ledger of frames that a program exchanges with V4L2 devices.
//!
//! A captured frame is born at the driver's time stamp; a decoded one when the driver gets its packet. The device has it until
//! the driver is done with it; then it waits for the thread that gets it. The thread has it until its buffer goes back.

use std::collections::HashMap;

use crate::attribution::{Part, PartUntil, TraceFacts};
use crate::calls::{Call, NO_PTS};
use crate::device_calls::{DeviceCall, DeviceFile};
use crate::device_frames::{DeviceFrame, DeviceFrames, DeviceStream, DeviceWork};
use crate::frame_ledger::{StreamLedger, mean_blocked};
use crate::spans::CallSpan;
use crate::stage_limits::cut;
use crate::timeline::{Doing, ThreadStretch, WaitReason};

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
            let DeviceFrame { taken, back, .. } = frame;
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

    fn frames(&self) -> impl Iterator<Item = &DeviceFrame> {
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
    mean_blocked(&mut ledger);
    ledger
}

/// Returns the birth of a frame, and the parts of its time until the program gets it.
fn device_parts(frame: &DeviceFrame, facts: &TraceFacts<'_>) -> (u64, Vec<PartUntil>) {
    let DeviceCall { at_ns, thread, driver_ns, .. } = frame.taken;
    let born_ns = frame.given_ns.or(frame.taken.captured_ns());
    // A driver without videobuf2 does not tell when it was done: at the latest when it ended the thread's wait.
    let is_for_device = |wait: &ThreadStretch| {
        matches!(wait.doing, Doing::Waiting(WaitReason::Ioctl | WaitReason::Poll | WaitReason::Unknown))
    };
    let line = facts.timelines.get(&thread);
    let woken_ns = || line?.last_end(born_ns.unwrap_or(at_ns), at_ns, is_for_device);
    let done_ns = driver_ns.or_else(woken_ns);
    let birth_ns = born_ns.into_iter().chain(done_ns).min().unwrap_or(at_ns);
    let done_ns = done_ns.unwrap_or(if frame.given_ns.is_some() { at_ns } else { birth_ns });
    (birth_ns, vec![(Part::Device, done_ns), (Part::Way { from: thread, to: thread }, at_ns)])
}

/// Returns the parts of a frame's time in the program.
fn process_parts(frame: &DeviceFrame, facts: &TraceFacts<'_>) -> Vec<PartUntil> {
    let DeviceFrame { taken, back, .. } = frame;
    let (from, to) = (taken.thread, back.thread);
    let own_ns = facts.own_until((from, taken.at_ns), (to, back.at_ns));
    let own = (Part::Thread { thread: from, pool: false }, own_ns);
    if from == to {
        return vec![own, (Part::Way { from, to }, back.at_ns)];
    }
    // The second thread has the frame when it has given back the one before.
    let free_ns = facts.last_call(to, back.at_ns).unwrap_or(own_ns).max(own_ns);
    vec![own, (Part::Way { from, to }, free_ns), (Part::Thread { thread: to, pool: false }, back.at_ns)]
}
