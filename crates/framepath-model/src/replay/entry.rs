// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of the replay log.

use crate::access_point::RandomAccess;

/// Packet in the log, which may have to be submitted again.
#[derive(Debug)]
pub struct ReplayEntry<P> {
    pub(super) seq: u64,
    pub(super) pts: Option<i64>,
    pub(super) access: RandomAccess,
    pub(super) packet: P,
    /// Number of frames that workers sent and that were delivered to the reader or withheld from
    /// it. A repetition in a replay does not count.
    pub(super) delivered: u32,
    /// Number of frames received from the present worker.
    pub(super) received: u32,
    /// True if the packet had yielded no frame when the history's start moved to the random access
    /// point before it, and is shown before this point: in a replay its references are missing. The
    /// first worker that got the packet may still output its frame; that of a later worker is
    /// dropped.
    pub(super) closed: bool,
    /// True if the packet is decoded only as reference for later packets, because its own
    /// references were lost. Such a packet counts as skipped, unless its frame was delivered before
    /// the loss or a seek leaves the frame out.
    pub(super) withheld: bool,
    /// True if workers do not output the packet's frame, because a seek or an edit list discards it.
    pub(super) discarded: bool,
    /// True if the stream resumes at this packet: packets directly before it are lost.
    pub(super) after_loss: bool,
}

impl<P> ReplayEntry<P> {
    /// Creates the entry of a packet that was not submitted yet. `discarded` is true if workers do
    /// not output its frame.
    pub(super) fn new(
        seq: u64,
        pts: Option<i64>,
        access: RandomAccess,
        discarded: bool,
        packet: P,
    ) -> ReplayEntry<P> {
        ReplayEntry {
            seq,
            pts,
            access,
            packet,
            delivered: 0,
            received: 0,
            closed: false,
            withheld: false,
            discarded,
            after_loss: false,
        }
    }

    /// Returns the number of the packet.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the presentation time in ticks of the track's time base; `None` if not known.
    pub fn pts(&self) -> Option<i64> {
        self.pts
    }

    /// Returns the class of the packet, which says whether a decoder can start at it.
    pub fn access(&self) -> RandomAccess {
        self.access
    }

    /// Returns true if packets directly before this one are lost: the decoder has to output its
    /// pending frames and restart, because the numbers of the pictures do not continue.
    pub fn is_after_loss(&self) -> bool {
        self.after_loss
    }

    /// Returns true if the reader may still miss a frame of the packet: the packet has yielded
    /// none, and its frame is neither discarded nor withheld.
    pub(super) fn is_outstanding(&self) -> bool {
        self.delivered == 0 && !self.withheld && !self.discarded
    }

    /// Returns true if the packet is a random access point that its bytes confirm.
    pub(super) fn is_point(&self) -> bool {
        self.access == RandomAccess::Point
    }

    /// Returns the appended packet.
    pub fn packet(&self) -> &P {
        &self.packet
    }

    /// Returns `Some(true)` if the packet is shown before the random access point whose pts is
    /// `key`, and `Some(false)` if not. Returns `None` if `key` or the packet's pts is not known.
    pub(super) fn shown_before(&self, key: Option<i64>) -> Option<bool> {
        Some(self.pts? < key?)
    }
}
