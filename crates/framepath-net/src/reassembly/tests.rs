// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the reassembly.

use framepath_model::frame_number::insert_frame_number;
use proptest::prelude::*;

use super::*;
use crate::packetizer::Packetizer;
use crate::payload::CODINGS;

const SPS: &[u8] = &[0x67, 0x42, 0xc0, 0x1f, 1];
const PPS: &[u8] = &[0x68, 0xce, 1];

/// Makes a frame with about `size` bytes. A keyframe has parameter sets. H.264 and HEVC have one slice.
fn frame(coding: Coding, is_key: bool, number: u8, size: usize) -> Vec<u8> {
    let contents = vec![number | 0x80; size];
    match (coding, is_key) {
        // Slice type 7 (I), with first_mb_in_slice 0.
        (Coding::H264, true) => units(&[SPS, PPS, &[&[0x65, 0x88], &contents[..]].concat()]),
        // Slice type 5 (P).
        (Coding::H264, false) => units(&[&[&[0x41, 0x98], &contents[..]].concat()]),
        (Coding::Hevc, true) => hevc_key(0x26, &contents),
        (Coding::Hevc, false) => units(&[&[&[0x02, 1, 0x80], &contents[..]].concat()]),
        (Coding::Vp8, true) => [&[0x10, 0, 0, 0x9d, 1, 0x2a, 64, 0, 48, 0, 5], &contents[..]].concat(),
        (Coding::Vp8, false) => [&[0x11, 0, 0], &contents[..]].concat(),
        // Profile 0, a keyframe that is shown; BT.709; 352x288.
        (Coding::Vp9, true) => {
            [&[0x82, 0x49, 0x83, 0x42, 0x20, 0x15, 0xf0, 0x11, 0xf0, 0], &contents[..]].concat()
        }
        (Coding::Vp9, false) => [&[0x86, 0, 0], &contents[..]].concat(),
        (_, is_key) => {
            // A sequence header, and a frame.
            let sequence: &[u8] = if is_key { &[0x0a, 2, 7, 8] } else { &[] };
            let size = size + 1;
            let size = if size < 128 { vec![size as u8] } else { vec![size as u8 | 0x80, (size >> 7) as u8] };
            [sequence, &[0x32], &size, &[if is_key { 0x10 } else { 0x30 }], &contents].concat()
        }
    }
}

/// Puts a start code in front of each NAL unit.
fn units(nals: &[&[u8]]) -> Vec<u8> {
    nals.iter().flat_map(|nal| [&[0, 0, 0, 1], *nal].concat()).collect()
}

/// Makes a keyframe of HEVC whose slice has the first byte `kind`.
fn hevc_key(kind: u8, contents: &[u8]) -> Vec<u8> {
    units(&[&[0x40, 1, 7], &[0x42, 1, 8], &[0x44, 1, 9], &[&[kind, 1, 0x80], contents].concat()])
}

/// Makes ten frames, with a keyframe every five; some have several packets.
fn frames(coding: Coding) -> Vec<Vec<u8>> {
    let size = |number: u8| if number % 2 == 0 { 3000 } else { 50 };
    (0..10).map(|number| frame(coding, number % 5 == 0, number, size(number))).collect()
}

/// Splits the frames, every fifth of which is a keyframe. Only those of AV1 are numbered, because their payloads alone do not show
/// where a frame begins.
fn packets(coding: Coding, frames: &[Vec<u8>]) -> Vec<RtpArrival> {
    let mut packetizer = Packetizer::new(coding).unwrap();
    let mut packets = Vec::new();
    for (number, bytes) in frames.iter().enumerate() {
        let split = packetizer.packetize(bytes, number as u32 * 3000).unwrap();
        assert_eq!(split.key, number % 5 == 0);
        for (at, payload) in split.payloads.iter().enumerate() {
            let (time, payload) = (u64::from(split.time), payload.clone());
            let marker = at + 1 == split.payloads.len();
            let is_numbered = at == 0 && coding == Coding::Av1;
            packets.push(RtpArrival {
                seq: packets.len() as u64 + 1,
                time,
                marker,
                number: is_numbered.then_some(number as u64),
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
    coding: Coding,
    packets: impl IntoIterator<Item = RtpArrival>,
    all: &[Vec<u8>],
) -> (Vec<usize>, ReassemblyCounts) {
    let mut reassembly = Reassembly::new(coding, 1000).unwrap();
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
    for coding in CODINGS {
        let all = frames(coding);
        let packets = packets(coding, &all);
        assert!(packets.len() >= 20, "{}", packets.len());
        let whole = ((0..10).collect(), ReassemblyCounts::default());
        assert_eq!(numbers(coding, packets.clone(), &all), whole, "{coding:?}");
        // Pairs in the wrong order, and everything twice. The first packet comes first.
        let mut mixed = packets.clone();
        mixed[1..].chunks_mut(2).for_each(<[_]>::reverse);
        let twice = mixed.into_iter().flat_map(|packet| [packet.clone(), packet]);
        assert_eq!(numbers(coding, twice, &all), whole, "{coding:?}");
    }
}

#[test]
fn missing_frames_are_counted_if_the_sender_says_how_many_there_were() {
    let all = frames(Coding::Av1);
    let packets = packets(Coding::Av1, &all);
    let first_of_frame = |frame: u64| packets.iter().position(|packet| packet.number == Some(frame)).unwrap();
    let counts = |arrived: &[RtpArrival], sent: Option<(u64, u64)>| {
        let mut reassembly = Reassembly::new(Coding::Av1, 1000).unwrap();
        arrived.iter().for_each(|packet| reassembly.push(packet.clone()));
        sent.into_iter().for_each(|(frames, dropped)| reassembly.set_sent(frames, dropped));
        while reassembly.finish().is_some() {}
        let ReassemblyCounts { lost_packets, lost_frames, unsent_frames, .. } = reassembly.counts();
        (lost_packets, lost_frames, unsent_frames)
    };
    assert_eq!(counts(&packets, Some((10, 0))), (0, 0, 0));
    for kept in 6..9 {
        let arrived = &packets[..first_of_frame(kept + 1)];
        let all_sent = [None, Some((kept + 1, 0)), Some((10, 0))].map(|sent| counts(arrived, sent));
        assert_eq!(all_sent, [(0, 0, 0), (0, 0, 0), (1, 9 - kept, 0)]);
        // The sender has dropped all the others, or all but one.
        assert_eq!(counts(arrived, Some((10, 9 - kept))), (0, 9 - kept, 9 - kept));
        assert_eq!(counts(arrived, Some((11, 9 - kept))), (1, 10 - kept, 9 - kept));
        // A frame without its last packet, and those behind it.
        let frame = kept.next_multiple_of(2);
        let cut = &packets[..=first_of_frame(frame)];
        assert_eq!([None, Some((10, 0))].map(|sent| counts(cut, sent)), [(1, 1, 0), (1, 10 - frame, 0)]);
    }
    // No packet is there that could show the loss of the first group of pictures.
    assert_eq!(counts(&packets[first_of_frame(5)..], Some((10, 0))), (1, 5, 0));
    // A sender that says nonsense.
    assert_eq!(counts(&packets, Some((3, u64::MAX))), (0, 0, 0));
    assert_eq!(counts(&packets, Some((u64::MAX, 0))), (1, u64::MAX - 10, 0));
}

#[test]
fn a_lost_packet_costs_the_frames_up_to_the_next_keyframe() {
    for coding in CODINGS {
        let all = frames(coding);
        let packets = packets(coding, &all);
        // Any packet but the last: the loss of that one does not show without another packet behind it.
        for lost in &packets[..packets.len() - 1] {
            let rest = packets.iter().filter(|packet| packet.seq != lost.seq).cloned();
            let frame = (lost.time / 3000) as usize;
            let next_key = frame.next_multiple_of(5).max(if frame % 5 == 0 { frame + 5 } else { 0 });
            let (got, counts) = numbers(coding, rest, &all);
            let expected: Vec<usize> = (0..frame).chain(next_key..10).collect();
            let lost_frames = (10 - expected.len()) as u64;
            assert_eq!((got, counts.lost_frames), (expected, lost_frames), "{coding:?}, packet {lost:?}");
        }
    }
}

#[test]
fn without_numbers_a_lost_packet_of_av1_lets_no_damaged_frame_pass() {
    let all = frames(Coding::Av1);
    let packets: Vec<_> =
        packets(Coding::Av1, &all).into_iter().map(|packet| RtpArrival { number: None, ..packet }).collect();
    let whole = ((0..10).collect(), ReassemblyCounts::default());
    assert_eq!(numbers(Coding::Av1, packets.clone(), &all), whole);
    for lost in &packets[1..packets.len() - 1] {
        let rest = packets.iter().filter(|packet| packet.seq != lost.seq).cloned();
        let frame = (lost.time / 3000) as usize;
        let next_key = (frame / 5 + 1) * 5;
        let (got, counts) = numbers(Coding::Av1, rest, &all);
        assert_eq!(got, (0..frame).chain(next_key..10).collect::<Vec<usize>>(), "packet {lost:?}");
        assert!(counts.lost_frames > 0, "packet {lost:?}");
    }
}

#[test]
fn pictures_shown_before_the_keyframe_of_a_start_are_left_out() {
    // An open group: a picture that others in front of it do not need (CRA), two pictures that are shown before it (RASL), and one behind
    // it, twice. In H.264: an I picture with a recovery point, and B pictures.
    let hevc = [hevc_key(0x2a, &[0x81; 50]), units(&[&[0x12, 1, 0x81]]), units(&[&[0x02, 1, 0x82]])];
    let h264 = [
        units(&[SPS, PPS, &[6, 6, 1, 0xc4, 0x80], &[0x41, 0x88, 0x81]]),
        units(&[&[0x01, 0x9e, 0x81]]),
        units(&[&[0x41, 0x98, 0x82]]),
    ];
    for (coding, group) in [(Coding::Hevc, hevc), (Coding::H264, h264)] {
        let mut all = Vec::new();
        for _ in 0..2 {
            all.extend([0, 1, 1, 2, 2].map(|at| group[at].clone()));
        }
        let packets = packets(coding, &all);
        assert_eq!(packets.iter().filter(|packet| packet.marker).count(), 10);
        // A viewer that starts there has lost nothing; the second group is whole.
        let got = numbers(coding, packets.clone(), &all);
        assert_eq!(got, (vec![0, 3, 4, 5, 6, 7, 8, 9], ReassemblyCounts::default()), "{coding:?}");
        let rest = packets.iter().filter(|packet| packet.time != 4 * 3000).cloned();
        let (got, counts) = numbers(coding, rest, &all);
        assert_eq!((got, counts.lost_frames), (vec![0, 3, 5, 8, 9], 3), "{coding:?}");
    }
}

#[test]
fn a_frame_has_the_times_of_its_first_and_last_packet_and_gaps_are_found_once() {
    let all = [frame(Coding::H264, true, 0, 3000), frame(Coding::H264, false, 1, 50)];
    let mut packets = packets(Coding::H264, &all);
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
    for coding in CODINGS {
        let all = frames(coding);
        let late = packets(coding, &all).into_iter().filter(|packet| packet.time >= 2 * 3000);
        let late = late.map(|packet| RtpArrival { number: None, ..packet });
        let expected = ((5..10).collect(), ReassemblyCounts::default());
        assert_eq!(numbers(coding, late, &all), expected, "{coding:?}");
    }
}

#[test]
fn a_sender_may_leave_out_the_marker() {
    for coding in CODINGS {
        let all = frames(coding);
        let unmarked = packets(coding, &all).into_iter().map(|packet| RtpArrival { marker: false, ..packet });
        // The end of the last frame does not show.
        let (got, counts) = numbers(coding, unmarked, &all);
        assert_eq!((got, counts.lost_frames), ((0..9).collect(), 1), "{coding:?}");
    }
}

#[test]
fn a_frame_whose_last_unit_has_no_end_is_not_handed_on() {
    for coding in [Coding::Hevc, Coding::Vp9, Coding::Av1] {
        let all = frames(coding);
        let mut packets = packets(coding, &all);
        // The sender leaves out the last packet of frame 2, without a gap in the numbers.
        let at = packets.iter().position(|packet| packet.time == 2 * 3000 && packet.marker).unwrap();
        packets.remove(at);
        packets[at - 1].marker = true;
        for (seq, packet) in (1..).zip(&mut packets) {
            packet.seq = seq;
        }
        let (got, counts) = numbers(coding, packets, &all);
        let expected =
            ReassemblyCounts { lost_packets: 0, lost_frames: 3, invalid_frames: 1, unsent_frames: 0 };
        assert_eq!((got, counts), (vec![0, 1, 5, 6, 7, 8, 9], expected), "{coding:?}");
    }
}

#[test]
fn a_frame_with_an_invalid_payload_counts_as_such() {
    for coding in [Coding::H264, Coding::Hevc, Coding::Vp8, Coding::Vp9, Coding::Av1] {
        let all = frames(coding);
        let mut packets = packets(coding, &all);
        for packet in packets.iter_mut().filter(|packet| packet.time == 2 * 3000) {
            packet.payload = Arc::new([]);
        }
        let (got, counts) = numbers(coding, packets, &all);
        let expected =
            ReassemblyCounts { lost_packets: 0, lost_frames: 3, invalid_frames: 1, unsent_frames: 0 };
        assert_eq!((got, counts), (vec![0, 1, 5, 6, 7, 8, 9], expected), "{coding:?}");
    }
}

#[test]
fn a_keyframe_without_all_parameter_sets_starts_nothing() {
    for (coding, sets) in [(Coding::H264, 1), (Coding::Hevc, 3)] {
        let key = frame(coding, true, 0, 50);
        for left_out in 0..sets {
            let nals: Vec<&[u8]> =
                nals(&key).enumerate().filter(|(at, _)| *at != left_out).map(|(_, nal)| nal).collect();
            let all = [units(&nals)];
            let (got, _) = numbers(coding, packets(coding, &all), &all);
            assert_eq!(got, [], "{coding:?} {left_out}");
        }
    }
    let key = frame(Coding::Av1, true, 0, 50);
    let all = [key[4..].to_vec()];
    assert_eq!(numbers(Coding::Av1, packets(Coding::Av1, &all), &all).0, []);
}

#[test]
fn the_number_in_user_data_is_that_of_a_frame_without_another() {
    for coding in [Coding::H264, Coding::Hevc] {
        let mut bytes = frame(coding, true, 0, 3000);
        insert_frame_number(coding, &mut bytes, 77);
        let mut reassembly = Reassembly::new(coding, 0).unwrap();
        packets(coding, &[bytes]).into_iter().for_each(|packet| reassembly.push(packet));
        assert_eq!(reassembly.poll(0).and_then(|frame| frame.number), Some(77), "{coding:?}");
    }
}

#[test]
fn several_parameter_sets_of_one_kind_pass() {
    let mut bytes = Vec::new();
    for nal in [SPS, PPS, &[0x68, 0x77, 2], &[0x65, 0x88, 1, 2, 3]] {
        bytes.extend_from_slice(&[0, 0, 0, 1]);
        bytes.extend_from_slice(nal);
    }
    let all = [bytes];
    assert_eq!(numbers(Coding::H264, packets(Coding::H264, &all), &all).0, [0]);
}

#[test]
fn numbers_in_front_of_the_first_are_ignored() {
    let all = frames(Coding::H264);
    let mut arrived = packets(Coding::H264, &all);
    // The session extends 65535 behind 0 to the first, and 40000 to the second.
    for (at, seq) in [(1, u64::MAX), (4, u64::MAX - 25_535)] {
        let packet = RtpArrival { seq, ..arrived[at].clone() };
        arrived.insert(at, packet);
    }
    let (got, counts) = numbers(Coding::H264, arrived, &all);
    assert_eq!((got, counts), ((0..10).collect(), ReassemblyCounts::default()));
}

#[test]
fn fragments_without_an_end_are_kept_up_to_the_largest_frame() {
    // The first payload of a frame, and the head of a fragment, neither the first nor the last.
    let hostile: [(Coding, &[u8], &[u8]); 4] = [
        (Coding::H264, SPS, &[0x7c, 0x05]),
        (Coding::Hevc, &[0x62, 1, 0x80 | 1, 0x80], &[0x62, 1, 1]),
        (Coding::Vp9, &[8, 0x82], &[0]),
        (Coding::Av1, &[0x58, 0x08], &[0xd0]),
    ];
    for (coding, first, head) in hostile {
        let mut reassembly = Reassembly::new(coding, 0).unwrap();
        let is_invalid = |reassembly: &Reassembly| reassembly.partial.as_ref().map(|partial| partial.invalid);
        let mut seq = 0;
        let mut push = |reassembly: &mut Reassembly, payload: &Arc<[u8]>| {
            seq += 1;
            let payload = payload.clone();
            reassembly.push(RtpArrival { seq, time: 0, marker: false, number: None, payload, arrived_ns: 0 });
            assert_eq!(reassembly.poll(0), None);
        };
        push(&mut reassembly, &first.into());
        let fragment: Arc<[u8]> = [head, &vec![0x88; 1 << 20][..]].concat().into();
        for _ in 0..LARGEST_FRAME >> 20 {
            assert_eq!(is_invalid(&reassembly), Some(false), "{coding:?}");
            push(&mut reassembly, &fragment);
        }
        assert_eq!(is_invalid(&reassembly), Some(true), "{coding:?}");
    }
}

#[test]
fn a_codec_that_webrtc_does_not_carry_is_refused_by_name() {
    let error = Packetizer::new(Coding::Mpeg2).unwrap_err().to_string();
    assert_eq!(error, "codec mpeg2 is not supported over WebRTC; supported: h264, hevc, vp8, vp9, av1");
}

proptest! {
    #[test]
    fn no_loss_lets_a_damaged_frame_pass(
        coding in proptest::sample::select(&CODINGS),
        is_numbered: bool,
        lost in proptest::collection::vec(any::<bool>(), 64),
        swaps in proptest::collection::vec(0..63usize, 0..16),
    ) {
        let all = frames(coding);
        let mut packets = packets(coding, &all);
        if !is_numbered {
            packets.iter_mut().for_each(|packet| packet.number = None);
        }
        let mut arrived: Vec<_> =
            packets.iter().zip(lost.iter().cycle()).filter(|(_, lost)| !**lost).map(|(packet, _)| packet.clone()).collect();
        for at in swaps {
            if at + 1 < arrived.len() {
                arrived.swap(at, at + 1);
            }
        }
        // Compares each frame with the original.
        let (got, _) = numbers(coding, arrived, &all);
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
        coding in proptest::sample::select(&CODINGS),
    ) {
        let mut reassembly = Reassembly::new(coding, 5).unwrap();
        for (at, (seq, time, marker, payload)) in packets.into_iter().enumerate() {
            reassembly.push(RtpArrival { seq, time, marker, number: None, payload: payload.into(), arrived_ns: 0 });
            while reassembly.poll(at as u64).is_some() {}
        }
        while reassembly.finish().is_some() {}
    }
}

#[test]
fn a_first_packet_that_is_late_or_lost_is_missed() {
    let frames = frames(Coding::H264);
    let mut packets = packets(Coding::H264, &frames);
    let (mut number, mut begins) = (0, true);
    for (seq, packet) in (FIRST_SEQ..).zip(&mut packets) {
        packet.seq = seq;
        packet.number = begins.then_some(number);
        begins = packet.marker;
        number += u64::from(begins);
    }
    let first = packets.remove(0);
    for is_late in [true, false] {
        let mut reassembly = Reassembly::new(Coding::H264, 1000).unwrap();
        reassembly.expect_first();
        packets.iter().for_each(|packet| reassembly.push(packet.clone()));
        assert_eq!(reassembly.poll(0), None);
        assert_eq!((reassembly.missing(), reassembly.take_gap()), (Some(FIRST_SEQ), true));
        if is_late {
            reassembly.push(first.clone());
        }
        let whole: Vec<_> = std::iter::from_fn(|| reassembly.poll(2000)).map(|frame| frame.bytes).collect();
        let expected = if is_late { &frames[..] } else { &frames[5..] };
        assert_eq!(whole, expected);
        let lost = if is_late { (0, 0) } else { (1, 5) };
        assert_eq!((reassembly.counts().lost_packets, reassembly.counts().lost_frames), lost);
    }
}
