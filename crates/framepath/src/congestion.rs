// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drop of frames in front of an encoder while encoded ones wait for the network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use framepath_model::stream::FrameMeta;

use crate::notes::Notes;
use crate::out::Out;
use crate::outcomes::Outcomes;
use crate::request::Answered;

/// State of an encoder's congestion, and the count of the frames that were dropped because of it. A stage in a worker has it in
/// front of the worker, so that dropped frames do not cross.
pub(crate) struct Congestion {
    /// True while frames are dropped.
    is_congested: bool,
    /// True if the last frame was dropped.
    misses_frame: bool,
    /// Number of dropped frames, for the report, and since the last note.
    congested: Arc<AtomicU64>,
    dropped: u64,
    notes: Notes,
}

impl Congestion {
    /// Makes the state of an encoder without congestion, which reports to `outcomes`.
    pub(crate) fn new(outcomes: &Outcomes) -> Congestion {
        let (congested, notes) = (outcomes.congested.clone(), outcomes.notes.clone());
        Congestion { is_congested: false, misses_frame: false, congested, dropped: 0, notes }
    }

    /// Returns true if the frame with `meta` is to be dropped, and then counts it and writes its last row. The first frame of
    /// an encoder, with `is_first`, is not dropped: a viewer sees nothing without it.
    pub(crate) fn drops(&mut self, meta: &FrameMeta, is_first: bool, out: &mut Out<'_>) -> bool {
        self.misses_frame = self.is_congested && !is_first;
        if self.misses_frame {
            self.congested.fetch_add(1, Ordering::Relaxed);
            self.dropped += 1;
            out.dropped_by_congestion(meta);
        }
        self.misses_frame
    }

    /// Handles [`Request::Congested`](crate::Request::Congested).
    pub(crate) fn request(&mut self, is_congested: bool) -> Answered {
        self.is_congested = is_congested;
        // A screen that stands still now has not shown its last change.
        if self.misses_frame && !is_congested { Answered::PassOn } else { Answered::Done }
    }

    /// Adds a note about the dropped frames, if there are any.
    pub(crate) fn report(&mut self) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let s = if dropped == 1 { "" } else { "s" };
            self.notes.add(format!(
                "encode: dropped {dropped} frame{s} before they were encoded, because of congestion: the network of a \
                 viewer, or this computer, is slower than the stream; lower min_bitrate=, or the frame rate"
            ));
        }
    }
}
