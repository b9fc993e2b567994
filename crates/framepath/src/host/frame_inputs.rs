// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input frames of a stage in a worker, and the output frames that answer them.

use std::collections::BTreeMap;

use framepath_model::stream::FrameMeta;
use framepath_model::wire::FrameTime;

/// Maximum number of inputs that are remembered: as many as the process that runs the path remembers. For a stage that
/// is not replayable, an output of an older input is an extra frame.
const REMEMBERED: usize = 16 * 1024;

/// Last inputs of a stage that takes frames. The process that runs the path counts losses by the inputs that have
/// no output, so it must know which output frame is the first of its input, and which is
/// [extra](FrameTime::is_extra). A replayable stage has no extra frames: the process counts the frames of each
/// input, to drop those that another worker repeats.
pub(super) struct FrameInputs {
    is_replayable: bool,
    /// Number of the newest input; 0 before the first.
    newest: u64,
    /// The last [`REMEMBERED`] inputs, by number; for a stage that is not replayable, those without output.
    last: BTreeMap<u64, FrameInput>,
}

struct FrameInput {
    pts: Option<i64>,
    /// True if a frame of this input came out.
    is_answered: bool,
}

impl FrameInputs {
    pub(super) fn new(is_replayable: bool) -> FrameInputs {
        FrameInputs { is_replayable, newest: 0, last: BTreeMap::new() }
    }

    /// Records an input frame.
    pub(super) fn input(&mut self, seq: u64, pts: Option<i64>) {
        self.newest = seq;
        self.last.insert(seq, FrameInput { pts, is_answered: false });
        if self.last.len() > REMEMBERED {
            self.last.pop_first();
        }
    }

    /// True if no frame of input `seq` came out yet.
    pub(super) fn is_unanswered(&self, seq: u64) -> bool {
        self.last.get(&seq).is_some_and(|input| !input.is_answered)
    }

    /// Records an output frame. Returns the number for its completion, and its time if the completion alone
    /// would stand for another one.
    pub(super) fn output(&mut self, meta: &FrameMeta) -> (u64, Option<FrameTime>) {
        let FrameMeta { seq, pts, .. } = *meta;
        match self.last.get_mut(&seq) {
            Some(input) => {
                let time = (input.pts != pts).then_some(FrameTime { seq, pts, is_extra: false });
                input.is_answered = true;
                if !self.is_replayable {
                    self.last.remove(&seq);
                }
                (seq, time)
            }
            None if self.is_replayable => (seq, None),
            None => (self.newest, Some(FrameTime { seq, pts, is_extra: true })),
        }
    }

    /// Forgets all inputs, because a flush has discarded them.
    pub(super) fn flush(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(seq: u64, pts: i64) -> FrameMeta {
        FrameMeta { seq, pts: Some(pts), ..FrameMeta::default() }
    }

    fn time(seq: u64, pts: i64, is_extra: bool) -> Option<FrameTime> {
        Some(FrameTime { seq, pts: Some(pts), is_extra })
    }

    #[test]
    fn only_the_first_frame_of_an_input_answers_it() {
        let mut inputs = FrameInputs::new(false);
        for seq in 0..3 {
            inputs.input(seq, Some(seq as i64 * 10));
        }
        assert_eq!(inputs.output(&meta(0, 0)), (0, None));
        assert_eq!(inputs.output(&meta(0, 5)), (2, time(0, 5, true)));
        assert!(!inputs.is_unanswered(0) && inputs.is_unanswered(1));
        assert_eq!(inputs.output(&meta(1, 12)), (1, time(1, 12, false)));
        inputs.flush();
        assert_eq!(inputs.output(&meta(2, 20)), (2, time(2, 20, true)));
        // The oldest inputs are forgotten.
        for seq in 3..4 + REMEMBERED as u64 {
            inputs.input(seq, None);
        }
        assert!(!inputs.is_unanswered(3) && inputs.is_unanswered(4));
    }

    #[test]
    fn all_frames_of_a_replayable_stage_belong_to_their_inputs() {
        let mut inputs = FrameInputs::new(true);
        inputs.input(0, Some(0));
        inputs.input(1, Some(10));
        assert_eq!(inputs.output(&meta(0, 0)), (0, None));
        assert_eq!(inputs.output(&meta(0, 5)), (0, time(0, 5, false)));
        assert!(!inputs.is_unanswered(0));
        inputs.flush();
        assert_eq!(inputs.output(&meta(0, 5)), (0, None));
    }
}
