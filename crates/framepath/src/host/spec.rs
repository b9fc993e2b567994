// SPDX-License-Identifier: MIT OR Apache-2.0
//! Description of the work of a stream's workers.

use std::sync::Arc;

use framepath_codec::TrackInfo;
use framepath_model::path;
use framepath_model::stream::StreamInfo;
use framepath_os::crossing::Sizes;

use super::borrow::Lends;
use super::policy::CELLS;
use super::seat::Seat;
use super::{Faults, WorkerOptions};

/// Least room for packets.
const LEAST_PACKET_BYTES: u64 = 8 << 20;

/// Work of a worker.
pub struct Spec {
    /// The hop, to be run inline by the worker.
    pub hop: path::Hop,
    /// Track that the stage is given, where it is compressed.
    pub track: Option<TrackInfo>,
    /// Frames that the hops behind it may hold.
    pub frames_behind: u32,
    /// Frames that the hops behind it hold, at the least, while it waits for a slot of its
    /// pool; a worker that waits with fewer of them out stands still.
    pub least_out: u32,
    /// How its worker is kept.
    pub options: WorkerOptions,
    /// Where the workers come from the service, the stream's place there.
    pub seat: Option<Arc<Seat>>,
    /// Provider of the memory for the workers' frames.
    pub lends: Option<Arc<dyn Lends>>,
}

impl Spec {
    /// The hop without what is the caller's business.
    pub(super) fn stage_text(&self, attempt: Attempt) -> String {
        let hop = self.hop.without_hosting();
        match attempt {
            Attempt::SingleThreaded => hop.with_count("threads", 1).to_string(),
            Attempt::First | Attempt::Again => hop.to_string(),
        }
    }

    /// The faults that strike a worker of this attempt.
    pub(super) fn faults(&self, attempt: Attempt) -> Faults {
        match attempt {
            Attempt::First => self.options.faults.clone(),
            Attempt::Again | Attempt::SingleThreaded => self.options.faults.of_replacement(),
        }
    }
}

/// The sizes of the memory shared with a worker of `memory_bytes`. The room for packets
/// is at most `most` and an eighth of what the worker may take. Memory is taken only
/// where packets reach.
pub(super) fn area_sizes(memory_bytes: u64, most: u64) -> Sizes {
    Sizes { cells: CELLS, packet_bytes: (memory_bytes / 8).clamp(LEAST_PACKET_BYTES, most) & !0xfff }
}

/// Facts that are known only when the path starts.
#[derive(Clone, Copy)]
pub(super) struct Start {
    /// The stream in front of the stage.
    pub(super) stream: StreamInfo,
    /// The ledger's level, as the wire has it.
    pub(super) level: u8,
}

/// Which of a stream's workers is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    Again,
    /// On one thread, so that the packet that kills it can be told.
    SingleThreaded,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_packets_is_an_eighth_of_the_memory_between_two_bounds() {
        let bytes = |memory| area_sizes(memory, 64 << 20).packet_bytes;
        assert_eq!((bytes(0), bytes(u64::MAX)), (8 << 20, 64 << 20));
        assert_eq!(bytes((256 << 20) + 8 * 4097), (32 << 20) + 4096);
    }
}
