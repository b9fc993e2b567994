// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers that a worker owes: one for each drain and each flush, in order.
//!
//! Pure arithmetic. An answer that was not requested is a breach.

use std::collections::VecDeque;

use framepath_os::crossing::Breach;

/// Most frames that one packet or frame may become.
pub(super) const OUTPUTS: u32 = 256;

/// Frames from before a flush that count as progress of the worker: the packets of the ring
/// and more than a decoder holds back. Further frames are accepted, but do not reset the watchdog.
const TIMELY: u64 = 96;

/// A drain or flush that the worker has not answered.
enum Question {
    Drain,
    Flush(Flush),
}

/// A flush that the worker has not answered.
struct Flush {
    /// Its number among the inputs.
    seq: u64,
    /// Outputs that the worker may still give for inputs before it.
    may_come: u64,
    /// The part of `may_come` that counts as progress.
    timely: u64,
}

/// An output that came for an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputCheck {
    Wanted,
    /// The input is from before a flush that is not answered.
    Flushed {
        /// True if the output counts as progress.
        is_timely: bool,
    },
    /// The worker cannot have this input: it has reported that it has forgotten the input, or will not
    /// be given it before it has answered.
    Impossible,
}

/// An end of inputs that the worker reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputsEnd {
    /// The end of inputs that a flush follows.
    Flushed,
    /// The end of the stream.
    Last,
}

/// Drains and flushes that the present worker has to answer, and the flush to announce to it.
#[derive(Default)]
pub(super) struct Answers {
    /// Questions that the worker was sent, in that order.
    owed: VecDeque<Question>,
    /// The flush that the worker was not sent yet.
    untold: Option<Flush>,
    /// Inputs before this number are forgotten: the present worker has reported that, or never
    /// had them.
    forgotten: u64,
}

impl Answers {
    /// Notes a flush: the inputs before number `seq` are not wanted any more, and the worker has to be
    /// sent the flush. At most `kept` of them may be inside.
    pub(super) fn flush(&mut self, seq: u64, kept: u64) {
        // The worker never got the inputs behind a flush that was not sent to it.
        let inside = self
            .untold
            .take()
            .map_or((kept * u64::from(OUTPUTS), kept.min(TIMELY)), |older| (older.may_come, older.timely));
        let (may_come, timely) = inside;
        self.untold = Some(Flush { seq, may_come, timely });
    }

    /// Returns the number of the flush that has to be sent to the worker.
    pub(super) fn first_unreported(&self) -> Option<u64> {
        self.untold.as_ref().map(|flush| flush.seq)
    }

    /// Notes that this flush was sent.
    pub(super) fn flush_submitted(&mut self) {
        self.owed.extend(self.untold.take().map(Question::Flush));
    }

    /// Notes that the worker was told to drain.
    pub(super) fn drain_submitted(&mut self) {
        self.owed.push_back(Question::Drain);
    }

    /// Starts anew for another worker, which owes no answer and has no flush to be sent.
    pub(super) fn begin(&mut self) {
        self.owed.clear();
        self.untold = None;
    }

    /// True while the worker owes an answer.
    pub(super) fn is_owed(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Classifies an output that came for input `seq`; inputs from `wanted_from` on are wanted.
    pub(super) fn check_output(&mut self, seq: u64, wanted_from: u64) -> OutputCheck {
        let forgotten = self.forgotten;
        let Some(flush) = self.next_flush() else {
            return if seq >= wanted_from { OutputCheck::Wanted } else { OutputCheck::Impossible };
        };
        if !(forgotten..flush.seq).contains(&seq) || flush.may_come == 0 {
            return OutputCheck::Impossible;
        }
        flush.may_come -= 1;
        let is_timely = flush.timely > 0;
        flush.timely = flush.timely.saturating_sub(1);
        OutputCheck::Flushed { is_timely }
    }

    /// Accepts the worker's answer to a drain.
    ///
    /// # Errors
    /// The next answer that the worker owes is not that to a drain.
    pub(super) fn take_end(&mut self) -> Result<InputsEnd, Breach> {
        match self.owed.front() {
            Some(Question::Drain) => _ = self.owed.pop_front(),
            _ => return Err(Breach("an end of the stream that it was not asked for")),
        }
        Ok(if self.next_flush().is_some() { InputsEnd::Flushed } else { InputsEnd::Last })
    }

    /// Accepts the worker's answer to the flush with the number `seq`.
    ///
    /// # Errors
    /// The next answer that the worker owes is not that to this flush.
    pub(super) fn flushed(&mut self, seq: u64) -> Result<(), Breach> {
        match self.owed.front() {
            Some(Question::Flush(flush)) if flush.seq == seq => _ = self.owed.pop_front(),
            _ => return Err(Breach("an answer to no flush")),
        }
        self.forgotten = seq;
        Ok(())
    }

    /// Returns the first flush that is not answered.
    fn next_flush(&mut self) -> Option<&mut Flush> {
        let told = self.owed.iter_mut().find_map(|question| match question {
            Question::Flush(flush) => Some(flush),
            Question::Drain => None,
        });
        told.or(self.untold.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMELY_ONE: OutputCheck = OutputCheck::Flushed { is_timely: true };
    const LATE_ONE: OutputCheck = OutputCheck::Flushed { is_timely: false };

    /// Answers of a worker that was sent flush `seq`, with `kept` packets inside.
    fn submitted(seq: u64, kept: u64) -> Answers {
        let mut answers = Answers::default();
        answers.flush(seq, kept);
        assert_eq!((answers.first_unreported(), answers.is_owed()), (Some(seq), false));
        answers.flush_submitted();
        assert_eq!((answers.first_unreported(), answers.is_owed()), (None, true));
        answers
    }

    #[test]
    fn each_drain_is_answered_by_one_end() {
        let mut answers = Answers::default();
        assert!(answers.take_end().is_err(), "no drain");
        answers.drain_submitted();
        assert_eq!(answers.take_end(), Ok(InputsEnd::Last));
        assert!(answers.take_end().is_err() && !answers.is_owed());
        // A drain whose inputs are not wanted any more.
        answers.drain_submitted();
        answers.flush(5, 5);
        answers.flush_submitted();
        assert!(answers.flushed(5).is_err(), "the drain comes first");
        assert_eq!(answers.take_end(), Ok(InputsEnd::Flushed));
        assert!(answers.take_end().is_err(), "it was told of one drain");
        assert_eq!(answers.flushed(5), Ok(()));
        answers.drain_submitted();
        assert_eq!(answers.take_end(), Ok(InputsEnd::Last));
    }

    #[test]
    fn each_flush_is_answered_once_and_in_order() {
        let mut answers = submitted(5, 5);
        answers.flush(9, 3);
        answers.flush_submitted();
        for wrong in [0, 4, 6, 9] {
            assert!(answers.flushed(wrong).is_err(), "{wrong}");
        }
        assert_eq!(answers.flushed(5), Ok(()));
        assert!(answers.flushed(5).is_err(), "twice");
        assert_eq!(answers.flushed(9), Ok(()));
        assert!(answers.flushed(9).is_err() && !answers.is_owed());
        let mut another = submitted(5, 5);
        another.begin();
        assert!(another.flushed(5).is_err(), "it was told by nobody");
    }

    #[test]
    fn frames_are_of_inputs_that_the_worker_can_have() {
        let mut answers = submitted(5, 5);
        answers.flush(9, 3);
        answers.flush_submitted();
        let standing = |answers: &mut Answers, seq| answers.check_output(seq, 10);
        assert_eq!(standing(&mut answers, 4), TIMELY_ONE);
        for early in [5, 6, 10] {
            assert_eq!(standing(&mut answers, early), OutputCheck::Impossible, "{early}: not answered yet");
        }
        answers.flushed(5).unwrap();
        assert_eq!(standing(&mut answers, 4), OutputCheck::Impossible, "forgotten");
        assert_eq!(standing(&mut answers, 6), TIMELY_ONE);
        answers.flushed(9).unwrap();
        assert_eq!(standing(&mut answers, 6), OutputCheck::Impossible);
        assert_eq!(standing(&mut answers, 10), OutputCheck::Wanted);
    }

    #[test]
    fn frames_from_before_a_flush_are_bounded_for_each_flush() {
        let mut answers = submitted(3, 3);
        // The worker has no inputs from between two flushes that were not sent to it.
        answers.flush(7, 2);
        answers.flush(100, 92);
        answers.flush_submitted();
        let most = 3 * u64::from(OUTPUTS);
        for frame in 0..most {
            let expected = if frame < 3 { TIMELY_ONE } else { LATE_ONE };
            assert_eq!(answers.check_output(2, 101), expected, "{frame}");
        }
        assert_eq!(answers.check_output(2, 101), OutputCheck::Impossible);
        answers.flushed(3).unwrap();
        let most = 2 * u64::from(OUTPUTS);
        assert!((0..most).all(|_| answers.check_output(4, 101) != OutputCheck::Impossible));
        assert_eq!(answers.check_output(4, 101), OutputCheck::Impossible);
        // No packet is inside.
        answers.flushed(100).unwrap();
        answers.flush(101, 0);
        assert_eq!(answers.check_output(100, 102), OutputCheck::Impossible);
    }
}
