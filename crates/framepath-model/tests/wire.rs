// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the wire format: an encoded value is decoded unchanged, every value has exactly one
//! encoding, and no input makes decoding panic.

use framepath_model::buffer_request::{BufferRequest, MOST_BUFFERS, ProvidedFormat};
use framepath_model::colors::{ColorRange, Colors};
use framepath_model::format::{Layout, PixelFormat, PlaneLayout};
use framepath_model::ledger::Row;
use framepath_model::orientation::Orientation;
use framepath_model::stream::{FieldOrder, PictureFlags, Preroll, Rational, SeekTo, StreamInfo};
use framepath_model::wire::figures::{BUCKETS, LABEL_BYTES};
use framepath_model::wire::{
    BYTES_PER_FRAME, ByteAnswer, ByteRequest, Cell, Completion, Demux, DemuxNetwork, DemuxPosition,
    EncodedPart, EncoderRequests, FAULTS_BYTES, Figures, FrameTime, Histogram, InputBytes, MAGIC,
    MAX_BIT_RATE, MAX_CELLS, MAX_LEVEL, MESSAGE_BYTES, MOST_INVOLUNTARY, MOST_REQUESTED_BYTES, Message,
    NETWORK_TEXT_BYTES, NetworkTransport, Open, STAGE_BYTES, StreamStatus, Submission, TEXT_BYTES, Totals,
    UpstreamRequest, VERSION, WireError, WorkerTime,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn format() -> impl Strategy<Value = PixelFormat> {
    select(PixelFormat::ALL.to_vec())
}

fn layout() -> impl Strategy<Value = Layout> {
    let side = 1..=Layout::MAX_SIDE;
    let gaps = vec((0..1usize << 40, 0..1usize << 12), 4);
    let laid_out = (format(), side.clone(), side, gaps).prop_map(|(format, width, height, gaps)| {
        let planes: Vec<PlaneLayout> = format
            .plane_sizes(width, height)
            .into_iter()
            .zip(gaps)
            .map(|((width, rows), (offset, pad))| {
                let sample = format.luma_bytes();
                PlaneLayout { offset: offset * sample, stride: width + pad * sample, width, rows }
            })
            .collect();
        Layout::from_planes(format, width, height, &planes).unwrap()
    });
    (laid_out, colors()).prop_map(|(layout, colors)| layout.with_colors(colors))
}

fn colors() -> impl Strategy<Value = Colors> {
    let range = select(vec![ColorRange::Unknown, ColorRange::Limited, ColorRange::Full]);
    (any::<[u8; 3]>(), range).prop_map(|([primaries, transfer, matrix], range)| Colors {
        primaries,
        transfer,
        matrix,
        range,
    })
}

fn work() -> impl Strategy<Value = WorkerTime> {
    // Times of 20 bits, as a cell keeps them.
    let time = (any::<u32>(), 0..=12_u32).prop_map(|(bits, shift)| (bits >> 12) << shift);
    let times = proptest::array::uniform8(time);
    (any::<[u64; 2]>(), times, any::<u32>(), any::<[u16; 2]>()).prop_map(|(ends, n, bytes, switches)| {
        WorkerTime {
            enter_ns: ends[0].min(ends[1]),
            leave_ns: ends[0].max(ends[1]),
            inside_ns: n[0],
            idle_ns: n[1],
            blocked_ns: n[2],
            compute_ns: n[3],
            preempted_ns: n[4],
            copy_ns: n[5],
            wakeup_ns: n[6],
            held_depth_ns: n[7],
            copied_bytes: bytes,
            voluntary_switches: switches[0],
            involuntary_switches: (switches[1] >> 1).min(MOST_INVOLUNTARY),
            is_pool: switches[1] % 2 != 0,
        }
    })
}

fn submission() -> impl Strategy<Value = Submission> {
    prop_oneof![
        (any::<(u64, Option<i64>, u32, bool, bool)>(), 0..=u64::MAX - u64::from(u32::MAX), preroll())
            .prop_map(|((seq, pts, len, key, is_damaged), offset, preroll)| Submission::Packet {
                is_damaged,
                seq,
                pts,
                offset,
                len,
                key,
                preroll
            }),
        (
            (any::<u64>(), requests()),
            any::<Option<i64>>(),
            any::<u16>(),
            any::<u32>(),
            any::<u8>(),
            picture()
        )
            .prop_map(|((seq, requests), pts, pool, slot, layout, picture)| Submission::Frame {
                seq,
                pts,
                pool,
                slot,
                layout,
                picture,
                requests
            }),
        (any::<u8>(), layout()).prop_map(|(id, layout)| Submission::Layout { id, layout }),
        Just(Submission::Drain),
        any::<u64>().prop_map(|seq| Submission::Flush { seq }),
        (any::<u64>(), place()).prop_map(|(number, to)| Submission::Seek { number, to }),
    ]
}

fn requests() -> impl Strategy<Value = EncoderRequests> {
    let bits = || option::of(1..=u64::MAX);
    (any::<bool>(), bits(), bits()).prop_map(|(key, bit_rate, bandwidth)| EncoderRequests {
        key,
        bit_rate,
        bandwidth,
    })
}

fn picture() -> impl Strategy<Value = PictureFlags> {
    let orders = vec![FieldOrder::Progressive, FieldOrder::TopFirst, FieldOrder::BottomFirst];
    (any::<bool>(), select(orders), select(Orientation::ALL.to_vec())).prop_map(
        |(is_damaged, field_order, orientation)| PictureFlags { is_damaged, field_order, orientation },
    )
}

fn preroll() -> impl Strategy<Value = Preroll> {
    any::<(bool, bool, u64)>().prop_map(|(restarts, discarded, skipped)| Preroll {
        restarts,
        discarded,
        skipped,
    })
}

fn place() -> impl Strategy<Value = DemuxPosition> {
    prop_oneof![
        any::<u64>().prop_map(|ns| DemuxPosition::Time(ns, SeekTo::Exact)),
        any::<u64>().prop_map(|ns| DemuxPosition::Time(ns, SeekTo::KeyframeBefore)),
        Just(DemuxPosition::NextKey),
    ]
}

fn completion() -> impl Strategy<Value = Completion> {
    prop_oneof![
        ((any::<u64>(), picture()), any::<u16>(), any::<u32>(), any::<u8>(), work()).prop_map(
            |((seq, picture), pool, slot, layout, work)| Completion::Frame {
                seq,
                pool,
                slot,
                layout,
                picture,
                work
            }
        ),
        any::<(u64, u64)>().prop_map(|(seq, skipped)| Completion::Undecoded { seq, skipped }),
        (any::<u8>(), layout()).prop_map(|(id, layout)| Completion::Layout { id, layout }),
        (any::<u16>(), 1..1u32 << 20, 1..1u64 << 40, 0..1u32 << 31).prop_map(
            |(pool, slots, slot_bytes, first_slot)| Completion::Pool { pool, slots, slot_bytes, first_slot }
        ),
        Just(Completion::Failed),
        Just(Completion::End),
        Just(Completion::MemoryRequest),
        any::<u64>().prop_map(|seq| Completion::Passed { seq }),
        any::<(u64, Option<i64>, bool)>().prop_map(|(seq, pts, is_extra)| Completion::FrameTime(FrameTime {
            seq,
            pts,
            is_extra
        })),
        any::<u64>().prop_map(|number| Completion::Flushed { number }),
        Just(Completion::Request(UpstreamRequest::Keyframe)),
        (1..=MAX_BIT_RATE).prop_map(|bits| Completion::Request(UpstreamRequest::BitRate(bits))),
        packet(),
        encoded(),
    ]
}

fn encoded() -> impl Strategy<Value = Completion> {
    let parts = vec![EncodedPart::Track, EncodedPart::Packet, EncodedPart::KeyPacket];
    (select(parts), 0..=u64::MAX - u64::from(u32::MAX), any::<(u32, u32)>())
        .prop_map(|(part, offset, (len, id))| Completion::Encoded { part, offset, len, id })
}

fn packet() -> impl Strategy<Value = Completion> {
    let (flags, numbers) = (any::<[bool; 3]>(), any::<(i64, u32, u32, u32)>());
    (any::<Option<i64>>(), 0..=u64::MAX - u64::from(u32::MAX), flags, numbers, preroll()).prop_map(
        |(pts, offset, [key, transit, is_damaged], (duration, len, id, lost), preroll)| Completion::Packet {
            lost,
            is_damaged,
            pts,
            duration,
            offset,
            len,
            id,
            key,
            transit,
            preroll,
        },
    )
}

fn stream() -> impl Strategy<Value = StreamInfo> {
    let orientation = select(Orientation::ALL.to_vec());
    (option::of(format()), any::<[u32; 2]>(), any::<[i32; 6]>(), orientation).prop_map(
        |(format, size, f, orientation)| StreamInfo {
            orientation,
            format,
            width: size[0],
            height: size[1],
            time_base: Rational::new(f[0], f[1]),
            frame_rate: Rational::new(f[2], f[3]),
            sample_aspect: Rational::new(f[4], f[5]),
        },
    )
}

/// Returns a strategy for texts of at most `most` bytes of UTF-8.
fn text(most: usize) -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..=most / 4).prop_map(String::from_iter)
}

fn open() -> impl Strategy<Value = Open> {
    (
        text(STAGE_BYTES),
        (0..=MAX_LEVEL, any::<bool>()),
        any::<u32>(),
        any::<u32>(),
        stream(),
        1..=MAX_CELLS,
        u64::from(u32::MAX)..=i64::MAX as u64,
        text(FAULTS_BYTES),
    )
        .prop_map(
            |(stage, (level, lent), track_bytes, frames_behind, stream, cells, packet_bytes, faults)| Open {
                stage,
                level,
                lent,
                track_bytes,
                frames_behind,
                stream,
                cells,
                packet_bytes,
                faults,
            },
        )
}

fn status() -> impl Strategy<Value = StreamStatus> {
    let numbers = (any::<[u32; 6]>(), any::<[u64; 5]>(), any::<[u64; 6]>());
    (numbers, text(LABEL_BYTES), vec(any::<u64>(), BUCKETS)).prop_map(|((n, m, causes_ns), stage, counts)| {
        StreamStatus {
            stream: n[0],
            client_pid: n[1],
            client_uid: n[2],
            worker_pid: n[3],
            crashes: m[0],
            cpu_ns: m[1],
            figures: Figures {
                frames: m[2],
                inputs: m[3],
                latency_sum_ns: m[4],
                causes_ns,
                width: n[4],
                height: n[5],
                stage,
                latency: Histogram(counts.try_into().unwrap()),
            },
        }
    })
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        open().prop_map(Message::Open),
        (any::<u16>(), 1..1u32 << 20, 1..1u64 << 40)
            .prop_map(|(pool, slots, slot_bytes)| Message::InputPool { pool, slots, slot_bytes }),
        any::<u32>().prop_map(|layers| Message::Ready { layers }),
        (any::<u32>(), stream(), any::<bool>(), any::<bool>()).prop_map(
            |(threads, stream, replayable, takes_packets)| Message::Opened {
                threads,
                stream,
                replayable,
                takes_packets
            }
        ),
        text(TEXT_BYTES).prop_map(|text| Message::Refused { text }),
        (text(TEXT_BYTES), any::<Option<u64>>()).prop_map(|(text, seq)| Message::Failed { text, seq }),
        (any::<u16>(), any::<u32>()).prop_map(|(pool, memory)| Message::PoolMemory { pool, memory }),
        any::<u32>().prop_map(|number| Message::Memory { number }),
        (1..=1u64 << 40).prop_map(|bytes| Message::RequestMemory { bytes }),
        (any::<bool>(), 1..=MOST_BUFFERS).prop_map(|(packed, buffers)| Message::ProvideBuffers {
            lent: if packed { ProvidedFormat::Packed } else { ProvidedFormat::Native },
            buffers
        }),
        (0..MOST_BUFFERS).prop_map(|index| Message::Buffer { index }),
        (any::<bool>(), 1..=4096u32, 1..=4096u32, 1..=MOST_BUFFERS, any::<u8>(), colors()).prop_map(
            |(deep, width, height, buffers, more, colors)| {
                let (stride, rows) = (width.next_multiple_of(64) * 2, height.next_multiple_of(2));
                Message::RequestBuffers(BufferRequest {
                    decoded: if deep { PixelFormat::Yuv420p10 } else { PixelFormat::Yuv420p },
                    width,
                    height,
                    stride,
                    rows,
                    native_bytes: stride * rows * 3 / 2,
                    packed_bytes: stride * rows * 3 / 2 + u32::from(more),
                    buffers,
                    colors,
                })
            }
        ),
        text(TEXT_BYTES).prop_map(|kind| Message::Spawn { kind }),
        text(TEXT_BYTES).prop_map(|node| Message::Device { node }),
        text(TEXT_BYTES).prop_map(|name| Message::File { name }),
        (
            (any::<bool>(), 1..=u64::MAX, option::of(0..u32::MAX), any::<u64>()),
            (
                1..=MAX_CELLS,
                0..=i64::MAX as u64,
                text(FAULTS_BYTES),
                option::of(option::of(0..u64::MAX)),
                any::<bool>()
            )
        )
            .prop_map(
                |((seekable, loops, track, start_ns), (cells, packet_bytes, faults, size, pictures))| {
                    let whole = if pictures { InputBytes::Pictures } else { InputBytes::File };
                    let bytes = size.map_or(whole, |size| InputBytes::Requested { size });
                    Message::Demux(Demux {
                        seekable,
                        bytes,
                        loops,
                        track,
                        start_ns,
                        cells,
                        packet_bytes,
                        faults,
                    })
                }
            ),
        (
            (0..3usize, 1..=NETWORK_TEXT_BYTES, option::of(0..u32::MAX), any::<[u64; 2]>()),
            (1..=MAX_CELLS, u64::from(NETWORK_TEXT_BYTES)..=i64::MAX as u64, text(FAULTS_BYTES))
        )
            .prop_map(|((transport, text_bytes, track, times), (cells, packet_bytes, faults))| {
                let transports =
                    [NetworkTransport::RtspTcp, NetworkTransport::RtspUdp, NetworkTransport::Sdp];
                let ([latency_ns, timeout_ns], transport) = (times, transports[transport]);
                Message::DemuxNetwork(DemuxNetwork {
                    transport,
                    text_bytes,
                    track,
                    latency_ns,
                    timeout_ns,
                    cells,
                    packet_bytes,
                    faults,
                })
            }),
        (1..=u32::MAX, stream(), any::<u64>()).prop_map(|(track_bytes, stream, duration_ns)| {
            Message::Demuxed { track_bytes, stream, duration_ns }
        }),
        any::<u16>().prop_map(|version| Message::Hello { version }),
        any::<[u32; 3]>().prop_map(|[stream, pid, layers]| Message::Grant { stream, pid, layers }),
        (any::<u32>(), any::<bool>()).prop_map(|(stream, kill)| Message::Replace { stream, kill }),
        any::<u32>().prop_map(|stream| Message::Release { stream }),
        text(TEXT_BYTES).prop_map(|text| Message::Denied { text }),
        Just(Message::Page),
        any::<u32>().prop_map(|from| Message::Watch { from }),
        status().prop_map(|status| Message::Status(Box::new(status))),
        (any::<[u32; 3]>(), any::<[u64; 5]>()).prop_map(|(n, m)| Message::Totals(Totals {
            streams: n[0],
            connections: n[1],
            spares: n[2],
            granted: m[0],
            denied: m[1],
            crashes: m[2],
            frames: m[3],
            cpu_ns: m[4],
        })),
    ]
}

fn bytes_of(message: &Message) -> [u8; MESSAGE_BYTES] {
    // Old bytes of the buffer must not remain.
    let mut bytes = [0xa5; MESSAGE_BYTES];
    message.encode(&mut bytes);
    bytes
}

/// Asserts that a cell which decodes as a submission or completion has no other encoding.
fn canonical_cell(cell: &Cell) {
    if let Ok(submission) = Submission::decode(cell) {
        assert_eq!(submission.encode(), *cell);
    }
    if let Ok(completion) = Completion::decode(cell) {
        assert_eq!(completion.encode(), *cell);
    }
}

fn canonical_message(bytes: &[u8]) {
    if let Ok(message) = Message::decode(bytes) {
        assert_eq!(bytes_of(&message), bytes);
    }
}

proptest! {
    #[test]
    fn cells_come_back(submission in submission(), completion in completion()) {
        prop_assert_eq!(Submission::decode(&submission.encode()), Ok(submission));
        prop_assert_eq!(Completion::decode(&completion.encode()), Ok(completion));
        // A cell of one family is never decoded as the other.
        prop_assert!(Completion::decode(&submission.encode()).is_err());
        prop_assert!(Submission::decode(&completion.encode()).is_err());
    }

    #[test]
    fn messages_come_back(message in message()) {
        prop_assert_eq!(Message::decode(&bytes_of(&message)), Ok(message));
    }

    #[test]
    fn any_cell_is_read_or_refused(mut cell in any::<Cell>(), kind in any::<u8>(), kept in 0..=8usize) {
        canonical_cell(&cell);
        cell[0] = cell[0] & !0xff | u64::from(kind);
        canonical_cell(&cell);
        // Zeros after `kept` words: the shape of most records.
        cell[kept..].fill(0);
        canonical_cell(&cell);
    }

    #[test]
    fn a_changed_cell_is_read_or_refused(
        submission in submission(), completion in completion(), word in 0..8usize, bits in any::<u64>(),
    ) {
        for mut cell in [submission.encode(), completion.encode()] {
            cell[word] ^= bits;
            canonical_cell(&cell);
            cell[word] ^= bits ^ (1 << (bits % 64));
            canonical_cell(&cell);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..2 * MESSAGE_BYTES)) {
        prop_assert!(Message::decode(&bytes).is_err());
        let mut whole = [0; MESSAGE_BYTES];
        let kept = bytes.len().min(MESSAGE_BYTES);
        whole[..kept].copy_from_slice(&bytes[..kept]);
        whole[..4].copy_from_slice(&MAGIC);
        whole[4..6].copy_from_slice(&VERSION.to_le_bytes());
        for kind in 0..64u16 {
            whole[6..8].copy_from_slice(&kind.to_le_bytes());
            canonical_message(&whole);
        }
    }

    #[test]
    fn a_changed_message_is_read_or_refused(
        message in message(), at in 0..MESSAGE_BYTES, value in any::<u8>(), near in 0..128usize,
    ) {
        let mut bytes = bytes_of(&message);
        bytes[at] = value;
        canonical_message(&bytes);
        bytes[near] ^= value;
        canonical_message(&bytes);
    }

    #[test]
    fn long_texts_are_cut_between_characters(text in vec(any::<char>(), 0..2000).prop_map(String::from_iter)) {
        let cut = match Message::decode(&bytes_of(&Message::Refused { text: text.clone() })) {
            Ok(Message::Refused { text }) => text,
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        prop_assert!(text.starts_with(&cut));
        // A text that fits is not cut: a character has at most four bytes.
        prop_assert!(cut == text || cut.len() > TEXT_BYTES - 4);
    }
}

const NO_PREROLL: Preroll = Preroll { restarts: false, discarded: false, skipped: 0 };
const PACKET: Submission = Submission::Packet {
    is_damaged: false,
    seq: 7,
    pts: None,
    offset: 16,
    len: 9,
    key: true,
    preroll: NO_PREROLL,
};

#[test]
fn the_words_are_those_of_the_tables() {
    assert_eq!(PACKET.encode(), [9 << 32 | 2 << 8 | 1, 7, 0, 16, 0, 0, 0, 0]);
    let preroll = Preroll { restarts: true, discarded: true, skipped: 3 };
    let discarded =
        Submission::Packet { is_damaged: false, seq: 7, pts: None, offset: 16, len: 9, key: true, preroll };
    assert_eq!(discarded.encode(), [9 << 32 | 26 << 8 | 1, 7, 0, 16, 3, 0, 0, 0]);
    let seek = Submission::Seek { number: 2, to: DemuxPosition::Time(9, SeekTo::KeyframeBefore) };
    assert_eq!(seek.encode(), [1 << 8 | 6, 2, 9, 0, 0, 0, 0, 0]);
    assert_eq!((Submission::Flush { seq: 8 }).encode(), [5, 8, 0, 0, 0, 0, 0, 0]);
    assert_eq!((Completion::Flushed { number: 8 }).encode(), [137, 8, 0, 0, 0, 0, 0, 0]);
    let keyframe = Completion::Request(UpstreamRequest::Keyframe);
    assert_eq!(keyframe.encode(), [1 << 8 | 138, 0, 0, 0, 0, 0, 0, 0]);
    let bit_rate = Completion::Request(UpstreamRequest::BitRate(9));
    assert_eq!(bit_rate.encode(), [2 << 8 | 138, 9, 0, 0, 0, 0, 0, 0]);
    let work = WorkerTime {
        enter_ns: 5,
        leave_ns: 6,
        copied_bytes: 8,
        involuntary_switches: 3,
        is_pool: true,
        ..WorkerTime::default()
    };
    let picture = PictureFlags::default();
    let frame = Completion::Frame { picture, seq: 4, pool: 2, slot: 11, layout: 1, work };
    assert_eq!(frame.encode(), [11 << 32 | 2 << 16 | 1 << 8 | 129, 4, 5, 6, 0, 0, 0, 1 << 63 | 3 << 48 | 8]);
    let times = WorkerTime {
        inside_ns: 1,
        idle_ns: 2,
        blocked_ns: 3,
        compute_ns: 4,
        preempted_ns: 5,
        copy_ns: 6,
        wakeup_ns: 0x80_0010,
        held_depth_ns: 8,
        ..WorkerTime::default()
    };
    let timed = Completion::Frame { picture, seq: 4, pool: 2, slot: 11, layout: 1, work: times };
    // 0x800010 has 24 bits: 20 of them, and the number 4.
    assert_eq!(timed.encode()[4..], [1 << 48 | 2 << 24 | 1, 0x848 << 48 | 4 << 24 | 3, 6 << 24 | 5, 0]);
    let picture = PictureFlags {
        is_damaged: true,
        field_order: FieldOrder::BottomFirst,
        orientation: Orientation::Rotated90,
    };
    let damaged = Completion::Frame { picture, seq: 4, pool: 2, slot: 11, layout: 1, work }.encode();
    assert_eq!(damaged[..2], [11 << 32 | 2 << 16 | 1 << 8 | 139, 4]);
    assert_eq!(damaged[7], 1 << 63 | 5 << 60 | 2 << 58 | 3 << 48 | 8);
    let requests = EncoderRequests::default();
    let submitted = |requests| Submission::Frame {
        seq: 4,
        pts: Some(6),
        pool: 2,
        slot: 11,
        layout: 1,
        picture,
        requests,
    };
    let word = 11 << 32 | 2 << 16 | 1 << 8 | 2;
    assert_eq!(submitted(requests).encode(), [word, 4, 6, 5 << 10 | 2 << 8 | 33, 0, 0, 0, 0]);
    let requests = EncoderRequests { key: true, bit_rate: Some(7), bandwidth: Some(8) };
    assert_eq!(submitted(requests).encode(), [word, 4, 6, 5 << 10 | 2 << 8 | 35, 7, 8, 0, 0]);
    let encoded = Completion::Encoded { part: EncodedPart::KeyPacket, offset: 4, len: 5, id: 6 };
    assert_eq!(encoded.encode(), [5 << 32 | 2 << 8 | 142, 0, 0, 4, 6, 0, 0, 0]);
    assert_eq!(Completion::Undecoded { seq: 4, skipped: 2 }.encode(), [140, 4, 2, 0, 0, 0, 0, 0]);
    let extra = Completion::FrameTime(FrameTime { seq: 4, pts: Some(6), is_extra: true });
    assert_eq!(extra.encode(), [65 << 8 | 141, 4, 6, 0, 0, 0, 0, 0]);
    let layout = Layout::packed(PixelFormat::Nv12, 16, 8).unwrap();
    let layout_record = Completion::Layout { id: 5, layout };
    assert_eq!(
        layout_record.encode(),
        [2 << 40 | 2 << 32 | 2 << 24 | 23 << 16 | 5 << 8 | 130, 8 << 32 | 16, 0, 128, 0, 0, 16 << 32 | 16, 0]
    );
    let bytes = bytes_of(&Message::Replace { stream: 258, kill: true });
    assert_eq!(bytes[..16], *b"FPWM\x0e\0\x22\0\x02\x01\0\0\x01\0\0\0");
    assert!(bytes[16..].iter().all(|byte| *byte == 0));
    const { assert!(BYTES_PER_FRAME <= 128) };
}

#[test]
fn byte_requests_and_their_answers_have_one_encoding() {
    let request = ByteRequest { offset: 0x1_0000_0002, len: 4096 };
    assert_eq!(request.encode(), *b"\x02\0\0\0\x01\0\0\0\0\x10\0\0\0\0\0\0");
    assert_eq!(ByteRequest::decode(&request.encode()), Ok(request));
    let with = |at: usize, value: u8| {
        let mut bytes = request.encode();
        bytes[at] = value;
        ByteRequest::decode(&bytes).unwrap_err()
    };
    for (at, value, wrong) in [(7, 0x80, "offset"), (9, 0, "length"), (11, 1, "length")] {
        assert!(matches!(with(at, value), WireError::Field { field, .. } if field == wrong), "{at}");
    }
    assert!(matches!(with(12, 1), WireError::Reserved { .. }));
    for wrong in [&request.encode()[..15], &[0; 17][..], &[][..]] {
        assert!(matches!(ByteRequest::decode(wrong), Err(WireError::Field { field: "size", .. })));
    }
    let mut answer = ByteAnswer::Bytes(3).encode().to_vec();
    assert_eq!(answer, *b"\0\0\0\0\x03\0\0\0");
    assert!(ByteAnswer::decode(&answer).is_err());
    answer.extend(b"abc");
    assert_eq!(ByteAnswer::decode(&answer), Ok((ByteAnswer::Bytes(3), b"abc".as_slice())));
    answer.push(0);
    assert!(ByteAnswer::decode(&answer).is_err());
    let failed = ByteAnswer::Failed.encode();
    assert_eq!(ByteAnswer::decode(&failed), Ok((ByteAnswer::Failed, [].as_slice())));
    for head in [[2, 0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 1, 0, 0, 0]] {
        assert!(ByteAnswer::decode(&head).is_err());
    }
    let mut long = ByteAnswer::Bytes(MOST_REQUESTED_BYTES + 1).encode().to_vec();
    long.resize(8 + MOST_REQUESTED_BYTES as usize + 1, 0);
    assert!(ByteAnswer::decode(&long).is_err());
}

#[test]
fn another_version_is_named_before_anything_else_is_read() {
    let mut bytes = [0xff; MESSAGE_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&(VERSION + 1).to_le_bytes());
    assert_eq!(Message::decode(&bytes), Err(WireError::Version { ours: VERSION, theirs: VERSION + 1 }));
    assert_eq!(Message::decode(&bytes[1..]), Err(WireError::Length(MESSAGE_BYTES - 1)));
    bytes[0] = b'f';
    assert_eq!(Message::decode(&bytes), Err(WireError::Magic(*b"fPWM")));
}

#[test]
fn wrong_numbers_are_refused_by_name() {
    let field = |cell: Cell| match Completion::decode(&cell).unwrap_err() {
        WireError::Field { field, .. } => field,
        other => panic!("{other:?}"),
    };
    let request = |what: u64, bits: u64| [what << 8 | 138, bits, 0, 0, 0, 0, 0, 0];
    assert_eq!((field(request(0, 0)), field(request(3, 0))), ("request", "request"));
    assert_eq!((field(request(2, 0)), field(request(2, MAX_BIT_RATE + 1))), ("bit rate", "bit rate"));
    let pool = Completion::Pool { pool: 0, slots: 4, slot_bytes: 4096, first_slot: 0 }.encode();
    let with = |word: usize, value: u64| {
        let mut cell = pool;
        cell[word] = value;
        cell
    };
    assert_eq!(field(with(0, 131)), "slots");
    assert_eq!(field(with(1, 0)), "slot bytes");
    assert_eq!(field(with(1, 1 << 62)), "slot bytes");
    assert_eq!(field(with(2, u64::from(u32::MAX) - 1)), "first slot");
    assert_eq!(field([129, 0, 2, 1, 0, 0, 0, 0]), "leave");
    assert_eq!(field([129, 0, 1, 1, 0, 0, 0, 3 << 58]), "field order");
    assert_eq!(field([130, 1 << 32 | 1, 0, 1, 0, 0, 0, 0]), "format");
    assert_eq!(field([1 << 16 | 130, 1 << 32 | 1, 1 << 63, 1, 0, 0, 0, 0]), "offset");

    let layout = |words: [u64; 3]| {
        let cell = [1 << 16 | 130, words[0], words[1], 0, 0, 0, words[2], 0];
        matches!(Completion::decode(&cell), Err(WireError::Layout(_)))
    };
    assert!(layout([1 << 32, 0, 1]), "width 0");
    assert!(layout([2 << 32 | 16385, 0, 16385]), "width beyond the largest");
    assert!(layout([1 << 32 | 8, 0, 7]), "stride below width");
    assert!(layout([2 << 32 | 8, i64::MAX as u64 - 8, 8]), "a plane beyond the address space");
    assert!(layout([2 << 32 | 8, 0, 1 << 31]), "a stride of 2 GiB");
    assert!(!layout([2 << 32 | 8, 0, 8]));

    assert!(matches!(
        Submission::decode(&[3 << 8 | 6, 0, 0, 0, 0, 0, 0, 0]),
        Err(WireError::Field { field: "mode", .. })
    ));
    assert!(Submission::decode(&[2 << 8 | 6, 0, 1, 0, 0, 0, 0, 0]).is_err(), "a place has no time");
    let mut packet = PACKET.encode();
    packet[3] = u64::MAX;
    assert!(matches!(Submission::decode(&packet), Err(WireError::Field { field: "offset", .. })));
    assert_eq!(Submission::decode(&[0; 8]), Err(WireError::Kind { family: "submission", kind: 0 }));
}

#[test]
fn bytes_without_a_picture_cross_whatever_their_number() {
    for bytes in [1, 64, 16_384, 16_385, 1 << 20] {
        let layout_record = Completion::Layout { id: 3, layout: Layout::opaque(bytes) };
        assert_eq!(Completion::decode(&layout_record.encode()), Ok(layout_record));
    }
}

#[test]
fn a_row_crosses_as_work() {
    let row = Row {
        enter_ns: 10,
        leave_ns: 20,
        held_ns: 1,
        held_depth_ns: 1,
        compute_ns: 1 << 40,
        copied_bytes: u64::MAX,
        voluntary_switches: 70_000,
        involuntary_switches: 2,
        ..Row::default()
    };
    let work = WorkerTime::from(&row);
    assert_eq!((work.compute_ns, work.copied_bytes), (u32::MAX, u32::MAX));
    assert_eq!((work.voluntary_switches, work.involuntary_switches), (u16::MAX, 2));
    assert_eq!((work.enter_ns, work.leave_ns, work.inside_ns, work.idle_ns), (10, 20, 1, 0));
    assert!(!work.is_pool);
    let frame =
        Completion::Frame { picture: PictureFlags::default(), seq: 4, pool: 2, slot: 11, layout: 1, work };
    let Ok(Completion::Frame { work: decoded, .. }) = Completion::decode(&frame.encode()) else { panic!() };
    assert_eq!((decoded.compute_ns, decoded.held_depth_ns), (u32::MAX - 0xfff, 1));
    let pooled = WorkerTime::from(&Row { held_ns: 0, pool_ns: 7, involuntary_switches: 1 << 20, ..row });
    assert_eq!((pooled.inside_ns, pooled.is_pool), (7, true));
    assert_eq!(pooled.involuntary_switches, MOST_INVOLUNTARY);
}
