// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reassembly: RTP packets into frames, in order, without damage.
//!
//! A packet that is missing is awaited for the latency, because the network may have reordered it and the sender may
//! send it again. Afterwards it counts as lost. A frame with a lost packet is not handed on, and neither is any frame
//! behind it up to the next random access point, because decoders would show damaged pictures without an error.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use framepath_model::access_point::{AccessPoints, RandomAccess};
use framepath_model::access_unit::{Coding, nals};
use framepath_model::frame_number::{frame_number, is_frame_number};
use framepath_os::measure::meter;
use str0m::format::CodecExtra;
use str0m::unversioned::{Depacketizer, H264Depacketizer, Vp8Depacketizer};

use crate::error::WebrtcError;

/// Largest frame, bytes. A larger one is dropped, so that no sender can fill the memory.
const LARGEST_FRAME: usize = 64 << 20;
/// Maximum number of packets that wait behind a missing one. With more, the missing one counts as lost.
const MOST_WAITING: usize = 8192;
/// Largest distance of a sequence number from the highest so far. One in front of the stream's first number wraps to a number near
/// the largest.
const MOST_AHEAD: u64 = 1 << 16;

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
    /// Bytes for a decoder: H.264 with start codes, or a VP8 frame.
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
    /// Several frames in a row that lost all their packets count as one.
    pub lost_frames: u64,
}

/// Frame of which the last packet has not arrived.
struct PartialFrame {
    time: u64,
    bytes: Vec<u8>,
    /// Size of all payloads so far, bytes. The depacketizer keeps those of a unit that has not ended.
    payload_bytes: usize,
    arrived_ns: u64,
    last_arrived_ns: u64,
    number: Option<u64>,
    depacketizer: Box<dyn Depacketizer + Send>,
    /// True if a packet is missing, or the payloads are not valid.
    broken: bool,
}

/// Reassembly of the frames of one stream.
pub struct Reassembly {
    coding: Coding,
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
    /// True if the last packet ended a frame, so that the next one begins a frame.
    at_boundary: bool,
    /// True until the next random access point: the frames before it cannot be decoded.
    needs_key: bool,
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
        if !matches!(coding, Coding::H264 | Coding::Vp8) {
            return Err(WebrtcError::Codec(format!("{coding:?}").to_lowercase()));
        }
        Ok(Reassembly {
            coding,
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
            at_boundary: false,
            needs_key: true,
            has_begun: false,
            counts: ReassemblyCounts::default(),
        })
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

    /// Ends the stream: packets that are still missing count as lost, and so does a frame without an end. Returns the
    /// next whole frame; call it again until it returns `None`.
    pub fn finish(&mut self) -> Option<ReassembledFrame> {
        self.latency_ns = 0;
        let frame = self.poll(u64::MAX);
        if frame.is_none() && self.partial.take().is_some() {
            self.lose_frame();
        }
        frame
    }

    /// Returns the CLOCK_MONOTONIC time, nanoseconds, at which [`poll`](Reassembly::poll) has to be called if no
    /// packet arrives; `None` if no packet is missing.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.missing_since_ns.map(|since_ns| since_ns.saturating_add(self.latency_ns))
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
            self.at_boundary = self.partial.as_ref().is_some_and(|partial| !partial.broken);
            self.finish_frame();
        }
        let (coding, at_boundary) = (self.coding, self.at_boundary);
        let behind_loss = self.counts.lost_packets > 0;
        let begins = at_boundary || self.begins(number, &payload, behind_loss);
        let partial = self.partial.get_or_insert_with(|| PartialFrame {
            time,
            bytes: Vec::new(),
            payload_bytes: 0,
            arrived_ns,
            last_arrived_ns: arrived_ns,
            number: None,
            depacketizer: match coding {
                Coding::H264 => Box::<H264Depacketizer>::default(),
                _ => Box::<Vp8Depacketizer>::default(),
            },
            broken: !begins,
        });
        // The network may have reordered the packets, and a packet may have been sent again.
        partial.arrived_ns = partial.arrived_ns.min(arrived_ns);
        partial.last_arrived_ns = partial.last_arrived_ns.max(arrived_ns);
        partial.number = partial.number.or(number);
        if !partial.broken {
            partial.payload_bytes += payload.len();
            let PartialFrame { bytes, depacketizer, .. } = partial;
            let is_valid = meter::copy(payload.len(), || {
                depacketizer.depacketize(&payload, bytes, &mut CodecExtra::None).is_ok()
            });
            partial.broken = !is_valid || partial.bytes.len().max(partial.payload_bytes) > LARGEST_FRAME;
        }
        self.at_boundary = marker;
        if marker {
            self.finish_frame();
        }
    }

    /// Ends the partial frame, which is ready if it is whole and can be decoded.
    fn finish_frame(&mut self) {
        let Some(PartialFrame { time, bytes, arrived_ns, last_arrived_ns, number, broken, .. }) =
            self.partial.take()
        else {
            return;
        };
        if broken || bytes.is_empty() {
            self.lose_frame();
            return;
        }
        let key = self.points.inspect(&bytes, true, true) == Some(RandomAccess::Point);
        // Behind a loss and at the start, a decoder needs the parameter sets.
        let has_sets = || self.coding != Coding::H264 || nals(&bytes).any(|nal| nal[0] & 0x1f == 7);
        if self.needs_key && !(key && has_sets()) {
            // A viewer that joins between two keyframes has lost nothing.
            self.counts.lost_frames += u64::from(self.has_begun);
            return;
        }
        (self.needs_key, self.has_begun) = (false, true);
        let number = number.or_else(|| frame_number(self.coding, &bytes));
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

/// Returns true if a payload begins a frame, by the payload alone. `behind_loss` is true if packets in front of it were
/// lost: then it is false in doubt, because parameter sets may be among them.
fn begins_frame(coding: Coding, payload: &[u8], behind_loss: bool) -> bool {
    let begins_unit = |kind: u8, bytes: &[u8]| match kind {
        // The first bit behind the header of a slice is 1 for the first slice of a picture (`first_mb_in_slice` is 0).
        1 => bytes.first().is_some_and(|byte| byte & 0x80 != 0),
        // The sender's frame number is in front of the first slice, and only parameter sets may be in front of it.
        6 => !behind_loss || is_frame_number(bytes),
        // A sequence parameter set, which every keyframe has, or a delimiter.
        7 | 9 => true,
        _ => false,
    };
    match coding {
        Coding::H264 => match payload {
            // Aggregated units: the first one decides. Two bytes are its size.
            [first, _, _, header, rest @ ..] if first & 0x1f == 24 => begins_unit(header & 0x1f, rest),
            // A fragment of a unit: the first one has the bit S.
            [first, header, rest @ ..] if first & 0x1f == 28 => {
                header & 0x80 != 0 && begins_unit(header & 0x1f, rest)
            }
            [first, rest @ ..] => begins_unit(first & 0x1f, rest),
            [] => false,
        },
        // The bit S with partition 0.
        _ => payload.first().is_some_and(|first| first & 0x17 == 0x10),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packetizer::Packetizer;

    const SPS: &[u8] = &[0x67, 0x42, 0xc0, 0x1f, 1];
    const PPS: &[u8] = &[0x68, 0xce, 1];

    /// Makes an H.264 frame of one slice with `size` bytes, and parameter sets if it is a keyframe.
    fn frame(is_key: bool, number: u8, size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Slice type 7 (I) or 5 (P), with first_mb_in_slice 0.
        let slice: &[u8] = if is_key { &[0x65, 0x88] } else { &[0x41, 0x98] };
        let (key, inter) = ([SPS, PPS, slice], [slice]);
        for nal in if is_key { &key[..] } else { &inter[..] } {
            bytes.extend_from_slice(&[0, 0, 0, 1]);
            bytes.extend_from_slice(nal);
        }
        bytes.extend(std::iter::repeat_n(number | 0x80, size));
        bytes
    }

    /// Makes ten frames, with a keyframe every five; some have several packets.
    fn frames() -> Vec<Vec<u8>> {
        (0..10)
            .map(|number| frame(number % 5 == 0, number, if number % 2 == 0 { 3000 } else { 50 }))
            .collect()
    }

    fn packets(frames: &[Vec<u8>]) -> Vec<RtpArrival> {
        let mut packetizer = Packetizer::new(Coding::H264).unwrap();
        let mut packets = Vec::new();
        for (number, bytes) in frames.iter().enumerate() {
            let split = packetizer.packetize(bytes, number as u32 * 3000).unwrap();
            assert_eq!(split.key, number % 5 == 0);
            for (at, payload) in split.payloads.iter().enumerate() {
                let (time, payload) = (u64::from(split.time), payload.clone());
                let marker = at + 1 == split.payloads.len();
                packets.push(RtpArrival {
                    seq: packets.len() as u64 + 1,
                    time,
                    marker,
                    number: None,
                    payload,
                    arrived_ns: 0,
                });
            }
        }
        packets
    }

    /// Reassembles the packets, all of which arrive at time 0; then the time of the latency passes, and the stream
    /// ends. Returns the numbers of the frames, and the losses.
    fn numbers(
        packets: impl IntoIterator<Item = RtpArrival>,
        all: &[Vec<u8>],
    ) -> (Vec<usize>, ReassemblyCounts) {
        let mut reassembly = Reassembly::new(Coding::H264, 1000).unwrap();
        let mut got = Vec::new();
        for packet in packets {
            reassembly.push(packet);
            got.extend(std::iter::from_fn(|| reassembly.poll(0)));
        }
        got.extend(std::iter::from_fn(|| reassembly.poll(1000)));
        got.extend(std::iter::from_fn(|| reassembly.finish()));
        let number_of = |frame: &ReassembledFrame| {
            let number = (frame.time / 3000) as usize;
            assert_eq!(frame.bytes, all[number]);
            assert_eq!(frame.key, number % 5 == 0);
            number
        };
        (got.iter().map(number_of).collect(), reassembly.counts())
    }

    #[test]
    fn all_frames_pass_unchanged() {
        let all = frames();
        let packets = packets(&all);
        assert!(packets.len() > 20, "{}", packets.len());
        let whole = ((0..10).collect(), ReassemblyCounts::default());
        assert_eq!(numbers(packets.clone(), &all), whole);
        // Pairs in the wrong order, and everything twice. The first packet comes first.
        let mut mixed = packets.clone();
        mixed[1..].chunks_mut(2).for_each(<[_]>::reverse);
        let twice = mixed.into_iter().flat_map(|packet| [packet.clone(), packet]);
        assert_eq!(numbers(twice, &all), whole);
    }

    #[test]
    fn a_lost_packet_costs_the_frames_up_to_the_next_keyframe() {
        let all = frames();
        let packets = packets(&all);
        // Not the last packet: without another one behind it, its loss does not show.
        for lost in &packets[..packets.len() - 1] {
            let rest = packets.iter().filter(|packet| packet.seq != lost.seq).cloned();
            let frame = (lost.time / 3000) as usize;
            let next_key = frame.next_multiple_of(5).max(if frame % 5 == 0 { frame + 5 } else { 0 });
            let (got, counts) = numbers(rest, &all);
            let expected: Vec<usize> = (0..frame).chain(next_key..10).collect();
            let lost_frames = (10 - expected.len()) as u64;
            assert_eq!((got, counts.lost_frames), (expected, lost_frames), "packet {lost:?}");
        }
    }

    #[test]
    fn a_frame_has_the_times_of_its_first_and_last_packet_and_gaps_are_found_once() {
        let all = [frame(true, 0, 3000), frame(false, 1, 50)];
        let mut packets = packets(&all);
        let first = packets.iter().filter(|packet| packet.time == 0).count();
        assert!(first >= 5, "{first}");
        for (at, packet) in packets.iter_mut().enumerate() {
            packet.arrived_ns = 100 + at as u64;
        }
        // One packet comes last, as one that was sent again does.
        packets[3].arrived_ns = 500;
        let late = packets.remove(3);
        let mut reassembly = Reassembly::new(Coding::H264, 1000).unwrap();
        let gaps: Vec<bool> = packets
            .into_iter()
            .chain([late])
            .map(|packet| {
                reassembly.push(packet);
                reassembly.take_gap()
            })
            .collect();
        let expected: Vec<bool> = (0..gaps.len()).map(|at| at == 3).collect();
        assert_eq!(gaps, expected);
        let frames: Vec<_> = std::iter::from_fn(|| reassembly.poll(500)).collect();
        let times: Vec<_> = frames.iter().map(|frame| (frame.arrived_ns, frame.last_arrived_ns)).collect();
        let last = 100 + first as u64;
        assert_eq!(times, [(100, 500), (last, last)]);
    }

    #[test]
    fn a_viewer_that_joins_between_keyframes_has_lost_nothing() {
        let all = frames();
        let late = packets(&all).into_iter().filter(|packet| packet.time >= 2 * 3000);
        assert_eq!(numbers(late, &all), ((5..10).collect(), ReassemblyCounts::default()));
    }

    #[test]
    fn a_sender_may_leave_out_the_marker() {
        let all = frames();
        let unmarked = packets(&all).into_iter().map(|packet| RtpArrival { marker: false, ..packet });
        // The end of the last frame does not show.
        let (got, counts) = numbers(unmarked, &all);
        assert_eq!((got, counts.lost_frames), ((0..9).collect(), 1));
    }

    #[test]
    fn several_parameter_sets_of_one_kind_pass() {
        let mut bytes = Vec::new();
        for nal in [SPS, PPS, &[0x68, 0x77, 2], &[0x65, 0x88, 1, 2, 3]] {
            bytes.extend_from_slice(&[0, 0, 0, 1]);
            bytes.extend_from_slice(nal);
        }
        let all = [bytes];
        assert_eq!(numbers(packets(&all), &all).0, [0]);
    }

    #[test]
    fn vp8_frames_pass_and_a_loss_waits_for_a_keyframe() {
        // Heads of a keyframe and of another frame.
        let (key, inter) = ([0x10, 0, 0, 0x9d, 1, 0x2a, 64, 0, 48, 0, 5], [0x11, 0, 0]);
        let mut packetizer = Packetizer::new(Coding::Vp8).unwrap();
        let mut reassembly = Reassembly::new(Coding::Vp8, 0).unwrap();
        let (mut seq, mut got) = (0, Vec::new());
        for number in 0..6u64 {
            let head: &[u8] = if number % 3 == 0 { &key } else { &inter };
            let bytes = [head, &vec![number as u8; 2000]].concat();
            let split = packetizer.packetize(&bytes, 0).unwrap();
            assert_eq!((split.key, split.payloads.len()), (number % 3 == 0, 2));
            for (at, payload) in split.payloads.iter().enumerate() {
                seq += 1;
                // The first half of frame 1.
                if (number, at) != (1, 0) {
                    let (marker, payload) = (at == 1, payload.clone());
                    reassembly.push(RtpArrival {
                        seq,
                        time: number,
                        marker,
                        number: None,
                        payload,
                        arrived_ns: 0,
                    });
                }
                got.extend(
                    std::iter::from_fn(|| reassembly.poll(0))
                        .inspect(|frame| {
                            assert!(frame.time != number || frame.bytes == bytes);
                        })
                        .map(|frame| frame.time),
                );
            }
        }
        assert_eq!(got, [0, 3, 4, 5]);
        assert_eq!(reassembly.counts(), ReassemblyCounts { lost_packets: 1, lost_frames: 2 });
    }

    #[test]
    fn numbers_in_front_of_the_first_are_ignored() {
        let all = frames();
        let mut arrived = packets(&all);
        // The session extends 65535 behind 0 to the first, and 40000 to the second.
        for (at, seq) in [(1, u64::MAX), (4, u64::MAX - 25_535)] {
            let packet = RtpArrival { seq, ..arrived[at].clone() };
            arrived.insert(at, packet);
        }
        let (got, counts) = numbers(arrived, &all);
        assert_eq!((got, counts), ((0..10).collect(), ReassemblyCounts::default()));
    }

    #[test]
    fn fragments_without_an_end_are_kept_up_to_the_largest_frame() {
        let mut reassembly = Reassembly::new(Coding::H264, 0).unwrap();
        let is_broken = |reassembly: &Reassembly| reassembly.partial.as_ref().map(|partial| partial.broken);
        let mut seq = 0;
        let mut push = |reassembly: &mut Reassembly, payload: &Arc<[u8]>| {
            seq += 1;
            let payload = payload.clone();
            reassembly.push(RtpArrival { seq, time: 0, marker: false, number: None, payload, arrived_ns: 0 });
            assert_eq!(reassembly.poll(0), None);
        };
        push(&mut reassembly, &SPS.into());
        // A fragment of an IDR slice, neither the first nor the last.
        let fragment: Arc<[u8]> = [&[0x7c, 0x05], &vec![0x88; 1 << 20][..]].concat().into();
        for _ in 0..LARGEST_FRAME >> 20 {
            assert_eq!(is_broken(&reassembly), Some(false));
            push(&mut reassembly, &fragment);
        }
        assert_eq!(is_broken(&reassembly), Some(true));
    }

    #[test]
    fn a_codec_that_webrtc_does_not_carry_is_refused_by_name() {
        let error = Packetizer::new(Coding::Mpeg2).unwrap_err().to_string();
        assert_eq!(error, "codec mpeg2 is not supported over WebRTC; supported: h264, vp8");
    }

    proptest! {
        #[test]
        fn no_loss_lets_a_damaged_frame_pass(
            lost in proptest::collection::vec(any::<bool>(), 64),
            swaps in proptest::collection::vec(0..63usize, 0..16),
        ) {
            let all = frames();
            let packets = packets(&all);
            let mut arrived: Vec<_> =
                packets.iter().zip(lost.iter().cycle()).filter(|(_, lost)| !**lost).map(|(packet, _)| packet.clone()).collect();
            for at in swaps {
                if at + 1 < arrived.len() {
                    arrived.swap(at, at + 1);
                }
            }
            // Compares each frame with the original.
            let (got, _) = numbers(arrived, &all);
            for (at, &number) in got.iter().enumerate() {
                let continues = at > 0 && got[at - 1] + 1 == number;
                prop_assert!(number % 5 == 0 || continues, "{got:?}");
            }
        }

        #[test]
        fn any_payload_does_no_harm(
            packets in proptest::collection::vec(
                (0..40u64, 0..4u64, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..60,
            ),
            vp8: bool,
        ) {
            let coding = if vp8 { Coding::Vp8 } else { Coding::H264 };
            let mut reassembly = Reassembly::new(coding, 5).unwrap();
            for (at, (seq, time, marker, payload)) in packets.into_iter().enumerate() {
                reassembly.push(RtpArrival { seq, time, marker, number: None, payload: payload.into(), arrived_ns: 0 });
                while reassembly.poll(at as u64).is_some() {}
            }
            while reassembly.finish().is_some() {}
        }
    }
}
