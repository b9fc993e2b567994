// SPDX-License-Identifier: MIT OR Apache-2.0
//! Description of the work of a stream's workers.

use std::sync::Arc;

use framepath_codec::{Codec, TrackInfo};
use framepath_model::path;
use framepath_model::stream::StreamInfo;
use framepath_os::crossing::Sizes;

use super::buffer_provider::BufferProvider;
use super::policy::CELLS;
use super::service_stream::ServiceStream;
use super::{InjectedFaults, WorkerOptions};

/// Minimum size of the shared memory for packets of one worker, bytes.
const LEAST_PACKET_BYTES: u64 = 8 << 20;

/// Work of a stream's workers, and the way to start them.
pub struct Spec {
    /// The hop, which the worker runs inline.
    pub hop: path::Hop,
    /// Description of the stage's compressed input; `None` for frames.
    pub track: Option<TrackInfo>,
    /// Codec of the packets that the stage makes of frames; `None` for a stage that emits frames.
    pub encodes: Option<Codec>,
    /// Number of the stage's frames that the hops behind the stage may keep at a time, for the size of the
    /// stage's pool. Frames inside workers behind the stage are not counted.
    pub frames_behind: u32,
    /// Minimum number of frames of the stage that this process holds while an honest stage waits for a slot
    /// of its pool; 0 counts as 1. A worker that waits for a slot while this process holds fewer frames
    /// counts as making no progress, so that the watchdog may kill it.
    pub least_out: u32,
    /// Options for starting and watching the workers.
    pub options: WorkerOptions,
    /// The stream's connection to the service that provides the workers; `None` if this program starts
    /// them.
    pub service: Option<Arc<ServiceStream>>,
    /// Provider of the buffers for the workers' frames; `None` if the workers have pools of their own.
    pub provider: Option<Arc<dyn BufferProvider>>,
}

impl Spec {
    /// Returns the hop's text for the worker, without the options that only the caller uses. For a
    /// single-threaded attempt, sets `threads=1` if the stage has that option.
    pub(super) fn stage_text(&self, attempt: Attempt) -> String {
        let hop = self.hop.without_hosting();
        match attempt {
            Attempt::SingleThreaded => hop.with_count("threads", 1).to_string(),
            Attempt::First | Attempt::Again => hop.to_string(),
        }
    }

    /// Returns the faults to inject into a worker of this attempt: all for the first worker, only those of
    /// kind `poison` for its replacements.
    pub(super) fn faults(&self, attempt: Attempt) -> InjectedFaults {
        match attempt {
            Attempt::First => self.options.faults.clone(),
            Attempt::Again | Attempt::SingleThreaded => self.options.faults.for_replacement(),
        }
    }
}

/// Returns the sizes of the memory shared with a worker of `memory_bytes` bytes. The room for packets is an
/// eighth of the worker's memory, but at least 8 MiB and at most `most` bytes, rounded down to a multiple of
/// 4096 bytes. Unless `vm.overcommit_memory` is 2, the kernel allocates only the pages that packets reach.
pub(super) fn area_sizes(memory_bytes: u64, most: u64) -> Sizes {
    Sizes { cells: CELLS, packet_bytes: (memory_bytes / 8).clamp(LEAST_PACKET_BYTES, most) & !0xfff }
}

/// Parameters of a stream that are known only when the path starts.
#[derive(Clone, Copy)]
pub(super) struct Start {
    /// Description of the stage's input.
    pub(super) stream: StreamInfo,
    /// The ledger's level, as a number of the wire format: 0 `off`, 1 `times`, 2 `full`.
    pub(super) level: u8,
}

/// Way in which a worker of a stream is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The stream's first worker, with all injected faults.
    First,
    /// A replacement, opened like the first worker, but only with the faults of kind `poison`.
    Again,
    /// A replacement with one thread, so that the packet that kills the worker can be identified; also only
    /// with the faults of kind `poison`.
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
