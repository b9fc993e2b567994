// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers that a worker has to send: one for each drain and each flush, in order.
//!
//! This module is pure arithmetic. An answer that was not requested breaks the rules.

use std::collections::VecDeque;

use framepath_os::crossing::Breach;

/// Maximum number of frames that a stage may emit for one input, repetitions after a worker's death included.
pub(super) const OUTPUTS: u32 = 256;

/// Maximum number of frames of flushed inputs, per flush, that count as progress of the worker. It covers
/// the packets of the ring and the reorder delay of any decoder. Further frames are accepted, but do not
/// reset the watchdog.
const TIMELY: u64 = 96;

/// A drain or flush that was submitted to the worker, and that the worker has not answered.
enum Question {
    Drain,
    Flush(Flush),
}

/// A flush that was not submitted to the worker yet, or that the worker has not answered.
struct Flush {
    /// Number of the flush. Inputs and flushes share one sequence of numbers.
    seq: u64,
    /// Number of outputs for inputs before the flush that the worker may still send until it answers the
    /// flush.
    outputs_left: u64,
    /// Number of those outputs, from the next one on, that count as progress of the worker.
    timely_left: u64,
}

/// Classification of a worker's output by its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputCheck {
    /// The input was not flushed: the output belongs to the stream.
    Wanted,
    /// The input is from before a flush that the worker has not answered: the output is dropped.
    Flushed {
        /// True if the output counts as progress of the worker.
        is_timely: bool,
    },
    /// The worker cannot have this input, because a flush came after the input and the worker has answered
    /// the flush, or because the input came after a flush that the worker has not answered. Or the worker has
    /// sent too many outputs of flushed inputs.
    Impossible,
}

/// Meaning of a worker's answer to a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputsEnd {
    /// A flush came after the drain: the stream continues.
    Flushed,
    /// No flush came after the drain: the stream has ended.
    Last,
}

/// Drains and flushes that the present worker has to answer, and a flush that is still to be sent.
#[derive(Default)]
pub(super) struct Answers {
    /// Drains and flushes that were sent to the worker and not answered, oldest first.
    owed: VecDeque<Question>,
    /// Last flush, until it is submitted to the worker or the worker is replaced; else `None`.
    unsent: Option<Flush>,
    /// Number of the last flush that a worker has answered; 0 before the first. The present worker cannot
    /// have an earlier input.
    forgotten: u64,
}

impl Answers {
    /// Records a flush with the number `seq` among the inputs, which has to be sent to the worker. The new
    /// flush replaces an earlier flush that was not sent, and keeps the earlier flush's counts of outputs. At
    /// most `kept` earlier inputs are inside the worker.
    pub(super) fn flush(&mut self, seq: u64, kept: u64) {
        // The worker never got the inputs after an unsent flush, so that flush's counts still apply.
        let inside = self.unsent.take().map_or((kept * u64::from(OUTPUTS), kept.min(TIMELY)), |older| {
            (older.outputs_left, older.timely_left)
        });
        let (outputs_left, timely_left) = inside;
        self.unsent = Some(Flush { seq, outputs_left, timely_left });
    }

    /// Returns the number of the flush that has to be sent to the worker; `None` if there is none.
    pub(super) fn first_unreported(&self) -> Option<u64> {
        self.unsent.as_ref().map(|flush| flush.seq)
    }

    /// Records that the flush of [`Answers::first_unreported`] was sent to the worker.
    pub(super) fn flush_submitted(&mut self) {
        self.owed.extend(self.unsent.take().map(Question::Flush));
    }

    /// Records that a drain was sent to the worker.
    pub(super) fn drain_submitted(&mut self) {
        self.owed.push_back(Question::Drain);
    }

    /// Resets the state for a new worker, which has no drain or flush to answer and needs no flush.
    pub(super) fn begin(&mut self) {
        self.owed.clear();
        self.unsent = None;
    }

    /// True while the worker has to answer a drain or flush.
    pub(super) fn is_owed(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Classifies an output of input `seq`, and counts the output if the input was flushed. `wanted_from`
    /// is the number of the first input that was not flushed.
    pub(super) fn check_output(&mut self, seq: u64, wanted_from: u64) -> OutputCheck {
        let forgotten = self.forgotten;
        let Some(flush) = self.next_flush() else {
            return if seq >= wanted_from { OutputCheck::Wanted } else { OutputCheck::Impossible };
        };
        if !(forgotten..flush.seq).contains(&seq) || flush.outputs_left == 0 {
            return OutputCheck::Impossible;
        }
        flush.outputs_left -= 1;
        let is_timely = flush.timely_left > 0;
        flush.timely_left = flush.timely_left.saturating_sub(1);
        OutputCheck::Flushed { is_timely }
    }

    /// Accepts the worker's answer to a drain. Returns [`InputsEnd::Flushed`] if a flush came after the
    /// drain, else [`InputsEnd::Last`].
    ///
    /// # Errors
    /// The worker has to answer no drain, or has to answer a flush first.
    pub(super) fn take_end(&mut self) -> Result<InputsEnd, Breach> {
        match self.owed.front() {
            Some(Question::Drain) => _ = self.owed.pop_front(),
            _ => return Err(Breach("an end of the stream without a drain")),
        }
        Ok(if self.next_flush().is_some() { InputsEnd::Flushed } else { InputsEnd::Last })
    }

    /// Accepts the worker's answer to the flush with the number `seq`.
    ///
    /// # Errors
    /// The worker has to answer no such flush, or has to answer another drain or flush first.
    pub(super) fn flushed(&mut self, seq: u64) -> Result<(), Breach> {
        match self.owed.front() {
            Some(Question::Flush(flush)) if flush.seq == seq => _ = self.owed.pop_front(),
            _ => return Err(Breach("an answer to a flush that was not sent")),
        }
        self.forgotten = seq;
        Ok(())
    }

    /// Returns the oldest flush that is not answered, sent or unsent; `None` if there is none.
    fn next_flush(&mut self) -> Option<&mut Flush> {
        let sent = self.owed.iter_mut().find_map(|question| match question {
            Question::Flush(flush) => Some(flush),
            Question::Drain => None,
        });
        sent.or(self.unsent.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMELY_ONE: OutputCheck = OutputCheck::Flushed { is_timely: true };
    const LATE_ONE: OutputCheck = OutputCheck::Flushed { is_timely: false };

    /// Makes the `Answers` of a worker that was sent flush `seq`, with `kept` packets inside.
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
        // A drain whose inputs are flushed.
        answers.drain_submitted();
        answers.flush(5, 5);
        answers.flush_submitted();
        assert!(answers.flushed(5).is_err(), "the drain comes first");
        assert_eq!(answers.take_end(), Ok(InputsEnd::Flushed));
        assert!(answers.take_end().is_err(), "one drain was sent");
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
        assert!(another.flushed(5).is_err(), "the new worker was sent no flush");
    }

    #[test]
    fn frames_belong_to_inputs_that_the_worker_can_have() {
        let mut answers = submitted(5, 5);
        answers.flush(9, 3);
        answers.flush_submitted();
        let check = |answers: &mut Answers, seq| answers.check_output(seq, 10);
        assert_eq!(check(&mut answers, 4), TIMELY_ONE);
        for early in [5, 6, 10] {
            assert_eq!(check(&mut answers, early), OutputCheck::Impossible, "{early}: not answered yet");
        }
        answers.flushed(5).unwrap();
        assert_eq!(check(&mut answers, 4), OutputCheck::Impossible, "forgotten");
        assert_eq!(check(&mut answers, 6), TIMELY_ONE);
        answers.flushed(9).unwrap();
        assert_eq!(check(&mut answers, 6), OutputCheck::Impossible);
        assert_eq!(check(&mut answers, 10), OutputCheck::Wanted);
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
