// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input frames of a stage in a worker, and the output frames that answer them.

use std::collections::BTreeMap;

use framepath_model::stream::FrameMeta;
use framepath_model::wire::FrameTime;

/// Maximum number of inputs without output that are remembered. A later output of an older input is an
/// extra frame.
const MOST_UNANSWERED: usize = 1024;

/// Inputs of which no frame came out yet. The process that runs the path counts losses by the inputs that
/// have no output, so it must know which output frame is the first of its input, and which is extra.
#[derive(Default)]
pub(super) struct FrameInputs {
    /// Number of the newest input; 0 before the first.
    newest: u64,
    /// Times of the last [`MOST_UNANSWERED`] inputs without output, by number.
    unanswered: BTreeMap<u64, Option<i64>>,
}

impl FrameInputs {
    /// Records an input frame.
    pub(super) fn input(&mut self, seq: u64, pts: Option<i64>) {
        self.newest = seq;
        self.unanswered.insert(seq, pts);
        if self.unanswered.len() > MOST_UNANSWERED {
            // Stages that choose frames never output some of them.
            self.unanswered.pop_first();
        }
    }

    /// True if no frame of input `seq` came out yet.
    pub(super) fn is_unanswered(&self, seq: u64) -> bool {
        self.unanswered.contains_key(&seq)
    }

    /// Records an output frame. Returns the number for its completion, and its time if the completion alone
    /// would stand for another one.
    pub(super) fn output(&mut self, meta: &FrameMeta) -> (u64, Option<FrameTime>) {
        let FrameMeta { seq, pts, .. } = *meta;
        match self.unanswered.remove(&seq) {
            Some(of_input) if of_input == pts => (seq, None),
            Some(_) => (seq, Some(FrameTime { seq, pts, is_extra: false })),
            None => (self.newest, Some(FrameTime { seq, pts, is_extra: true })),
        }
    }

    /// Forgets all inputs, because a flush has discarded them.
    pub(super) fn flush(&mut self) {
        self.unanswered.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_frame_of_an_input_answers_it() {
        let mut inputs = FrameInputs::default();
        let meta = |seq, pts| FrameMeta { seq, pts: Some(pts), ..FrameMeta::default() };
        let time = |seq, pts, is_extra| Some(FrameTime { seq, pts: Some(pts), is_extra });
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
        for seq in 3..4 + MOST_UNANSWERED as u64 {
            inputs.input(seq, None);
        }
        assert!(!inputs.is_unanswered(3) && inputs.is_unanswered(4));
    }
}
