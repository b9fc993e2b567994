// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stretches of a frame's time in a hop, where one row has several of them.

use super::Cause;

/// Place in which a frame spent the time of a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SpanPlace {
    /// A thread of the path worked on the frame: its index, as in [`Row::thread`](super::Row::thread).
    Thread(u16),
    /// A decoder's thread or a worker worked on the frame: its index in the run's list of such
    /// helpers.
    Helper(u16),
    /// The frame waited inside the hop, or it is not known which thread worked on it. The field is
    /// the cause of this time.
    Inside(Cause),
}

/// One stretch of the time of a frame in a hop. A row with [`flag::SPLIT`](super::flag::SPLIT) has several.
///
/// Stretches of one thread or helper do not overlap. Stretches of one frame in one hop may overlap: a thread of
/// the path waits for a decoder's thread while that thread works on the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Number of the frame, or of the packet that it comes from.
    pub seq: u64,
    /// Start of the stretch, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// End of the stretch, CLOCK_MONOTONIC nanoseconds.
    pub end_ns: u64,
    /// Index of the hop in the path.
    pub hop: u16,
    /// Place in which the frame spent this time: a thread, a helper, or inside the hop without a
    /// known thread.
    pub place: SpanPlace,
}
