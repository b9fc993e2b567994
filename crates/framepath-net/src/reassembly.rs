// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reassembly: RTP packets into frames, in order, without damage.
//!
//! A packet that is missing is awaited for the latency, because the network may have reordered it and the sender may
//! send it again. Afterwards it counts as lost. A frame with a lost packet is not handed on, and neither is any frame
//! behind it up to the next random access point, because decoders would show damaged pictures without an error.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use framepath_model::access_point::{AccessPoints, Leading, RandomAccess};
use framepath_model::access_unit::{Coding, nals};
use framepath_model::frame_number::frame_number;
use framepath_os::measure::meter;

use crate::error::WebrtcError;
use crate::payload::{PayloadJoiner, begins_frame, has_parameter_sets, joiners};

/// Largest frame, bytes. A larger one is dropped, so that no sender can fill the memory.
const LARGEST_FRAME: usize = 64 << 20;
/// Maximum number of packets that wait behind a missing one. With more, the missing one counts as lost.
const MOST_WAITING: usize = 8192;
/// Largest distance of a sequence number from the highest so far. One in front of the stream's first number wraps to a number near
/// the largest.
const MOST_AHEAD: u64 = 1 << 16;

/// Sequence number of the first packet of a sender that exchanges its ledger. In front of it are empty packets from number 1 on, at the
/// start of a session whose stream does not follow the network: a packet that is lost in front of all others would not be missed, and str0m would not ask for it.
pub(crate) const FIRST_SEQ: u64 = 4;

/// RTP packet that has arrived.
#[derive(Clone, Debug)]
pub struct RtpArrival {
    /// Sequence number, extended so that it never wraps.
    pub seq: u64,
    /// RTP timestamp, 90 kHz, extended so that it never wraps.
    pub time: u64,
    /// Marker bit: true for the last packet of a frame.
    pub marker: bool,
    /// Number of the frame at the sender; `None` if the packet has none.
    pub number: Option<u64>,
    /// Payload.
    pub payload: Arc<[u8]>,
    /// CLOCK_MONOTONIC time of the arrival, nanoseconds.
    pub arrived_ns: u64,
}

/// Whole frame.
#[derive(Debug, PartialEq, Eq)]
pub struct ReassembledFrame {
    /// Bytes for a decoder: H.264 and HEVC with start codes, a frame of VP8 or VP9, or a temporal unit of AV1 without its delimiter.
    pub bytes: Vec<u8>,
    /// RTP timestamp, 90 kHz, extended so that it never wraps.
    pub time: u64,
    /// True if decoding can start here.
    pub key: bool,
    /// CLOCK_MONOTONIC time of the arrival of the frame's first packet, nanoseconds.
    pub arrived_ns: u64,
    /// CLOCK_MONOTONIC time of the arrival of the frame's last packet, nanoseconds. It is that of a packet that was sent again, if
    /// the frame waited for it.
    pub last_arrived_ns: u64,
    /// Number of the frame at the sender; `None` if the sender does not give it.
    pub number: Option<u64>,
}

/// Losses of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReassemblyCounts {
    /// Number of packets that did not arrive in time.
    pub lost_packets: u64,
    /// Number of frames that were not handed on, because a packet of them was lost or a frame that they depend on.
    /// Several frames in a row that lost all their packets count as one, up to the end of a stream whose sender says how many it had.
    pub lost_frames: u64,
    /// Number of those frames that lost no packet, and whose payloads are not valid.
    pub invalid_frames: u64,
    /// Number of those frames that the sender has dropped, as it says at the stream's end.
    pub unsent_frames: u64,
}

/// Frame of which the last packet has not arrived.
struct PartialFrame {
    time: u64,
    bytes: Vec<u8>,
    /// Size of all payloads so far, bytes. The joiner keeps those of a unit that has not ended.
    payload_bytes: usize,
    arrived_ns: u64,
    last_arrived_ns: u64,
    number: Option<u64>,
    joiner: Box<dyn PayloadJoiner>,
    /// True if a packet is missing.
    broken: bool,
    /// True if the payloads are not valid, or the frame is too large.
    invalid: bool,
}

/// Reassembly of the frames of one stream.
pub struct Reassembly {
    coding: Coding,
    new_joiner: fn() -> Box<dyn PayloadJoiner>,
    points: AccessPoints,
    latency_ns: u64,
    /// Packets that have arrived and wait for an earlier one.
    waiting: BTreeMap<u64, RtpArrival>,
    /// Sequence number of the next packet; `None` before the first.
    next: Option<u64>,
    /// Largest sequence number so far; `None` before the first packet.
    highest: Option<u64>,
    /// True if a packet came behind a missing one since the last [`Reassembly::take_gap`].
    has_gap: bool,
    /// CLOCK_MONOTONIC time at which packet `next` was found missing, nanoseconds.
    missing_since_ns: Option<u64>,
    partial: Option<PartialFrame>,
    /// Whole frames that were not returned yet: at most two.
    ready: VecDeque<ReassembledFrame>,
    /// True if the first packet of a frame has the frame's number.
    is_numbered: bool,
    /// Number of frames that this viewer was to get, and of those that the sender has dropped; `None` before the stream's end.
    sent: Option<(u64, u64)>,
    /// Number of frames that were ready, or were skipped because no viewer can decode them.
    complete: u64,
    /// True if the last packet ended a frame, so that the next one begins a frame.
    at_boundary: bool,
    /// True until the next random access point: the frames before it cannot be decoded.
    needs_key: bool,
    /// True behind a random access point at which decoding has started, up to the first picture that is shown behind it. Pictures that
    /// are shown before it may refer to pictures that were not handed on.
    skips_leading: bool,
    /// True after the first frame, and after the first loss.
    has_begun: bool,
    counts: ReassemblyCounts,
}

impl Reassembly {
    /// Starts the reassembly of a stream. A missing packet is awaited for `latency_ns` nanoseconds.
    ///
    /// # Errors
    /// WebRTC cannot carry the codec.
    pub fn new(coding: Coding, latency_ns: u64) -> Result<Reassembly, WebrtcError> {
        Ok(Reassembly {
            coding,
            new_joiner: joiners(coding)?,
            points: AccessPoints::new(coding, &[]),
            latency_ns,
            waiting: BTreeMap::new(),
            next: None,
            highest: None,
            has_gap: false,
            missing_since_ns: None,
            partial: None,
            ready: VecDeque::new(),
            is_numbered: false,
            sent: None,
            complete: 0,
            at_boundary: false,
            needs_key: true,
            skips_leading: false,
            has_begun: false,
            counts: ReassemblyCounts::default(),
        })
    }

    /// Expects packet [`FIRST_SEQ`] as the stream's first, and the frame's number in each frame's first packet, as a sender that exchanges
    /// its ledger has it. Without this, the first packet that arrives is the first.
    pub(crate) fn expect_first(&mut self) {
        self.is_numbered = true;
        self.next = Some(FIRST_SEQ);
        self.highest = Some(FIRST_SEQ - 1);
    }

    /// Takes a packet. Ignores a duplicate, a packet that already counts as lost, and an impossible sequence number.
    pub fn push(&mut self, packet: RtpArrival) {
        let highest = self.highest.unwrap_or(packet.seq);
        if packet.seq > highest.saturating_add(MOST_AHEAD) || packet.seq == u64::MAX {
            return;
        }
        let next = *self.next.get_or_insert(packet.seq);
        self.has_gap |= packet.seq > highest + 1;
        self.highest = Some(highest.max(packet.seq));
        if packet.seq >= next {
            self.waiting.entry(packet.seq).or_insert(packet);
        }
    }

    /// Returns the next whole frame; `None` if more packets are needed. Call it again until it returns `None`.
    pub fn poll(&mut self, now_ns: u64) -> Option<ReassembledFrame> {
        while self.ready.is_empty() {
            let (&seq, _) = self.waiting.first_key_value()?;
            let next = self.next.unwrap_or(seq);
            if seq > next {
                let since_ns = *self.missing_since_ns.get_or_insert(now_ns);
                let is_awaited = now_ns < since_ns.saturating_add(self.latency_ns);
                if is_awaited && self.waiting.len() <= MOST_WAITING {
                    return None;
                }
                self.counts.lost_packets += seq - next;
                self.skip_to(seq);
            }
            self.missing_since_ns = None;
            let (seq, packet) = self.waiting.pop_first()?;
            self.next = Some(seq + 1);
            self.take(packet);
        }
        self.ready.pop_front()
    }

    /// Sets the number of frames that this viewer was to get, from its first keyframe on, and of those that the sender has dropped. No
    /// packet shows the loss of a stream's first and last frames, or a frame that was dropped.
    pub fn set_sent(&mut self, frames: u64, dropped: u64) {
        self.sent = Some((frames, dropped));
    }

    /// Ends the stream: packets that are still missing count as lost, and so do a frame without an end and the frames behind it. Returns
    /// the next whole frame; call it again until it returns `None`.
    pub fn finish(&mut self) -> Option<ReassembledFrame> {
        self.latency_ns = 0;
        let frame = self.poll(u64::MAX);
        if frame.is_none() {
            if self.partial.take().is_some() {
                // At least.
                self.counts.lost_packets += 1;
                self.lose_frame();
            }
            if let Some((frames, dropped)) = self.sent.take() {
                self.count_missing(frames.saturating_sub(self.complete), dropped);
            }
        }
        frame
    }

    /// Counts frames that are missing at the end of the stream, of which the sender has dropped some.
    fn count_missing(&mut self, missing: u64, dropped: u64) {
        let counts = &mut self.counts;
        counts.unsent_frames = dropped.min(missing);
        if missing > counts.lost_frames.saturating_add(counts.unsent_frames) {
            // At least.
            counts.lost_packets = counts.lost_packets.max(1);
        }
        counts.lost_frames = counts.lost_frames.max(missing);
    }

    /// Returns the CLOCK_MONOTONIC time, nanoseconds, at which [`poll`](Reassembly::poll) has to be called if no
    /// packet arrives; `None` if no packet is missing.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.missing_since_ns.map(|since_ns| since_ns.saturating_add(self.latency_ns))
    }

    /// Returns the sequence number of the first missing packet, behind which others have arrived; `None` if there is none.
    /// Call it when [`poll`](Reassembly::poll) has returned `None`.
    pub fn missing(&self) -> Option<u64> {
        self.next.filter(|_| !self.waiting.is_empty())
    }

    /// Returns true if packets were found missing since the last call, so that the sender has to be asked for them.
    pub fn take_gap(&mut self) -> bool {
        std::mem::take(&mut self.has_gap)
    }

    /// Returns true if the sender has to be asked for a keyframe.
    pub fn needs_key(&self) -> bool {
        self.needs_key
    }

    /// Returns the losses so far.
    pub fn counts(&self) -> ReassemblyCounts {
        self.counts
    }

    /// Continues at packet `seq` behind lost ones.
    fn skip_to(&mut self, seq: u64) {
        let following = self.waiting.get(&seq);
        let begins = following.is_some_and(|packet| self.begins(packet.number, &packet.payload, true));
        match &mut self.partial {
            Some(partial) => partial.broken = true,
            // The lost packets are whole frames. Otherwise the frame of the following packet lacks its start.
            None if begins => self.lose_frame(),
            None => self.needs_key = true,
        }
        self.at_boundary = false;
    }

    /// Adds the next packet in order to its frame, which is ready if the packet is its last.
    fn take(&mut self, packet: RtpArrival) {
        let RtpArrival { time, marker, number, payload, arrived_ns, .. } = packet;
        self.is_numbered |= number.is_some();
        if self.partial.as_ref().is_some_and(|partial| partial.time != time) {
            // A sender may leave out the marker.
            self.at_boundary =
                self.partial.as_ref().is_some_and(|partial| !partial.broken && !partial.invalid);
            self.finish_frame();
        }
        let (new_joiner, at_boundary) = (self.new_joiner, self.at_boundary);
        let behind_loss = self.counts.lost_packets > 0;
        let begins = at_boundary || self.begins(number, &payload, behind_loss);
        let partial = self.partial.get_or_insert_with(|| PartialFrame {
            time,
            bytes: Vec::new(),
            payload_bytes: 0,
            arrived_ns,
            last_arrived_ns: arrived_ns,
            number: None,
            joiner: new_joiner(),
            broken: !begins,
            invalid: false,
        });
        // The network may have reordered the packets, and a packet may have been sent again.
        partial.arrived_ns = partial.arrived_ns.min(arrived_ns);
        partial.last_arrived_ns = partial.last_arrived_ns.max(arrived_ns);
        partial.number = partial.number.or(number);
        if !partial.broken && !partial.invalid {
            partial.payload_bytes += payload.len();
            let PartialFrame { bytes, joiner, .. } = partial;
            let is_valid = meter::copy(payload.len(), || joiner.push(&payload, bytes)).is_some();
            partial.invalid = !is_valid || partial.bytes.len().max(partial.payload_bytes) > LARGEST_FRAME;
        }
        self.at_boundary = marker;
        if marker {
            self.finish_frame();
        }
    }

    /// Ends the partial frame, which is ready if it is whole and can be decoded.
    fn finish_frame(&mut self) {
        let Some(partial) = self.partial.take() else { return };
        let PartialFrame {
            time, bytes, arrived_ns, last_arrived_ns, number, joiner, broken, invalid, ..
        } = partial;
        if broken || invalid || bytes.is_empty() || !joiner.is_complete() {
            self.counts.invalid_frames += u64::from(!broken);
            self.lose_frame();
            return;
        }
        let access = self.points.inspect(&bytes, true, true);
        let key = access == Some(RandomAccess::Point);
        if self.needs_key {
            // Behind a loss and at the start, a decoder needs the parameter sets.
            if !(key && has_parameter_sets(self.coding, &bytes)) {
                // A viewer that joins between two keyframes has lost nothing.
                self.counts.lost_frames += u64::from(self.has_begun);
                return;
            }
            self.skips_leading =
                self.coding == Coding::Hevc || self.coding == Coding::H264 && !has_idr(&bytes);
        } else if self.skips_leading {
            if matches!(access, Some(RandomAccess::Picture { leading: Leading::Skipped, .. })) {
                let is_lost = self.counts.lost_packets > 0;
                self.counts.lost_frames += u64::from(is_lost);
                self.complete += u64::from(!is_lost);
                return;
            }
            self.skips_leading =
                matches!(access, Some(RandomAccess::Picture { leading: Leading::Decodable, .. }));
        }
        (self.needs_key, self.has_begun) = (false, true);
        let number = number.or_else(|| frame_number(self.coding, &bytes));
        self.complete += 1;
        self.ready.push_back(ReassembledFrame { bytes, time, key, arrived_ns, last_arrived_ns, number });
    }

    /// Returns true if a packet begins a frame, as [`begins_frame`]. Where first packets have the frame's number, only these do.
    fn begins(&self, number: Option<u64>, payload: &[u8], behind_loss: bool) -> bool {
        number.is_some() || !self.is_numbered && begins_frame(self.coding, payload, behind_loss)
    }

    fn lose_frame(&mut self) {
        self.counts.lost_frames += 1;
        (self.needs_key, self.has_begun) = (true, true);
    }
}

/// Returns true if a frame of H.264 is an IDR picture, which no picture behind it refers past.
fn has_idr(frame: &[u8]) -> bool {
    nals(frame).any(|nal| nal[0] & 0x1f == 5)
}

#[cfg(test)]
mod tests;
