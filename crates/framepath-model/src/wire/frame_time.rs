// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time of a frame that a stage made from frames.

/// Number and time of an output frame that is not the first of its input frame, or has another time
/// than its input frame. Only for a stage that takes frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTime {
    /// Number of the input frame from which the frame was made.
    pub seq: u64,
    /// Presentation time in ticks of the stream's time base; `None` if not known.
    pub pts: Option<i64>,
    /// True if the frame is no answer for its input frame: this one has yielded a frame before, or
    /// is too old.
    pub is_extra: bool,
}
