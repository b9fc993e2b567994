// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the reassembly.

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
    (0..10).map(|number| frame(number % 5 == 0, number, if number % 2 == 0 { 3000 } else { 50 })).collect()
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
fn numbers(packets: impl IntoIterator<Item = RtpArrival>, all: &[Vec<u8>]) -> (Vec<usize>, ReassemblyCounts) {
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
