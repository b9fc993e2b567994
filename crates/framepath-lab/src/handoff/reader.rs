// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sink of the hand-off: receives the worker's frames, counts them and takes their latencies.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use framepath::{HopFailure, Item, Out, Stage, StageError};
use framepath_model::stream::StreamInfo;
use framepath_os::process::running::{self, Used};
use framepath_os::time::now_ns;

use super::trigger::Meeting;

/// Counts and latencies of the measured frames.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceivedFrames {
    pub(super) received: u64,
    pub(super) duplicated: u64,
    pub(super) out_of_order: u64,
    /// Time at which the last frame arrived, CLOCK_MONOTONIC nanoseconds.
    pub(super) end_ns: u64,
    /// Resources that this process used from its start until the last frame arrived.
    pub(super) used: Used,
    /// Latency by frame number, nanoseconds, from the worker's timestamp to the arrival; 0 for a
    /// frame that did not arrive.
    pub(super) latency_ns: Vec<u64>,
}

/// Sink that reads the sequence number and the timestamp in the first 16 bytes of every frame, like
/// `handoff_saw` in `peers/handoff/handoff.h`.
pub(super) struct HeaderReader {
    seen: ReceivedFrames,
    /// Lowest number of a measured frame that would be in order: one more than the highest received.
    next: u64,
    meeting: Arc<Meeting>,
    done: Sender<ReceivedFrames>,
}

impl HeaderReader {
    pub(super) fn new(frames: u64, meeting: Arc<Meeting>, done: Sender<ReceivedFrames>) -> HeaderReader {
        let seen = ReceivedFrames { latency_ns: vec![0; frames as usize], ..ReceivedFrames::default() };
        HeaderReader { seen, next: 0, meeting, done }
    }

    /// Records that the measured frame `number`, with the worker's timestamp `stamp_ns`, arrived at
    /// `now` (both CLOCK_MONOTONIC nanoseconds). When the frame with the last number arrives, sends the
    /// counts to `done` and resets them.
    ///
    /// # Errors
    /// `number` is not below the number of measured frames, or the frame with the last number has arrived
    /// already.
    fn record_frame(&mut self, number: u64, stamp_ns: u64, now: u64) -> Result<(), StageError> {
        let seen = &mut self.seen;
        let last = number + 1 == seen.latency_ns.len() as u64;
        let Some(latency) = seen.latency_ns.get_mut(number as usize) else {
            return Err(StageError::Option(format!("frame {number} is not one of the awaited frames")));
        };
        if *latency > 0 {
            seen.duplicated += 1;
        } else {
            // 0 means that the frame did not arrive, so the smallest latency is 1.
            *latency = now.saturating_sub(stamp_ns).max(1);
            seen.received += 1;
        }
        if number < self.next {
            seen.out_of_order += 1;
        } else {
            self.next = number + 1;
        }
        if last {
            seen.used = running::own_usage();
            seen.end_ns = now;
            // A missing receiver means that the run was cancelled.
            let _ = self.done.send(std::mem::take(seen));
        }
        Ok(())
    }
}

impl Stage for HeaderReader {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let now = now_ns();
        let Item::Frame(frame) = item else {
            let (takes, gets, advice) = ("frames", "packets", "`fill` emits frames");
            return Err(out.fail(StageError::WrongInput { takes, gets, advice }));
        };
        let mut head = [[0; 8]; 2];
        frame.plane(0).sub(0..16).copy_to(head.as_flattened_mut());
        let [seq, stamp_ns] = head.map(u64::from_ne_bytes);
        // Acquire: pairs with the Release of the trigger.
        match seq.checked_sub(self.meeting.first.load(Ordering::Acquire)) {
            Some(number) => self.record_frame(number, stamp_ns, now).map_err(|e| out.fail(e)),
            None => {
                // Release: pairs with the Acquire of the trigger.
                self.meeting.warm.fetch_add(1, Ordering::Release);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn seen(numbers: &[u64]) -> Result<ReceivedFrames, StageError> {
        let (done, is_done) = channel();
        let mut reader = HeaderReader::new(4, Arc::default(), done);
        numbers.iter().try_for_each(|number| reader.record_frame(*number, 100, 100 + number))?;
        Ok(is_done.try_recv().expect("the last frame arrived"))
    }

    #[test]
    fn lost_duplicated_and_reordered_frames_are_counted() {
        let all = seen(&[0, 1, 2, 3]).unwrap();
        assert_eq!((all.received, all.duplicated, all.out_of_order), (4, 0, 0));
        assert_eq!((all.latency_ns, all.end_ns), (vec![1, 1, 2, 3], 103));
        let some = seen(&[0, 2, 2, 1, 3]).unwrap();
        assert_eq!((some.received, some.duplicated, some.out_of_order), (4, 1, 2));
        let few = seen(&[0, 3]).unwrap();
        assert_eq!((few.received, few.latency_ns), (2, vec![1, 0, 0, 3]));
        assert!(matches!(seen(&[0, 4]), Err(StageError::Option(_))));
    }
}
