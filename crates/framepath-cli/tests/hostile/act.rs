// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks of hostile workers, one act each.

use std::os::fd::AsFd;
use std::thread::{sleep, yield_now};
use std::time::Duration;

use framepath_model::format::{Layout, PixelFormat};
use framepath_model::orientation::Orientation;
use framepath_model::stream::{PictureFlags, Rational, StreamInfo};
use framepath_model::wire::{
    Completion, FrameTime, MAX_BIT_RATE, MESSAGE_BYTES, Message, SAME_FRAME, UpstreamRequest, VERSION,
    WorkerTime,
};
use framepath_os::crossing::Socket;
use rustix::fs::SealFlags;

use super::peer::*;

/// Attack of a hostile worker.
pub struct Act {
    pub name: &'static str,
    pub part: Part,
    pub then: Then,
    pub play: fn(Socket),
}

/// Part of the path that the hostile worker runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The demuxer of the source `file`.
    File,
    /// A decoder, which takes packets.
    Packets,
    /// A decoder whose frames the caller converts to another format.
    Converted,
    /// A filter, which takes frames.
    Frames,
}

/// Expected result of `framepath`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// An error if every worker is hostile; success without a lost frame if only the first worker is.
    Broken,
    /// An error at the start if every worker is hostile, because no stream is open yet. If only the
    /// first worker is, success or an error.
    Opening,
    /// An error if every worker is hostile. If only the first worker is, success or an error, and
    /// frames may be wrong or missing.
    Wrong,
    /// Success or an error; `framepath` must only end in time.
    Anything,
}

const fn packets(name: &'static str, then: Then, play: fn(Socket)) -> Act {
    Act { name, part: Part::Packets, then, play }
}

const fn converted(name: &'static str, then: Then, play: fn(Socket)) -> Act {
    Act { name, part: Part::Converted, then, play }
}

const fn frames(name: &'static str, then: Then, play: fn(Socket)) -> Act {
    Act { name, part: Part::Frames, then, play }
}

/// Returns the ready message of a release with a later version of the wire format.
fn of_another_version() -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    Message::Ready { layers: 0 }.encode(&mut bytes);
    bytes[4..6].copy_from_slice(&(VERSION + 1).to_le_bytes());
    bytes
}

/// Repeats `step` without end.
pub fn endlessly(mut step: impl FnMut()) -> ! {
    loop {
        step();
    }
}

fn cell(cell: [u64; 8]) -> impl Fn(Socket) {
    move |socket| {
        let mut peer = opened(socket);
        peer.cell(cell);
        stay()
    }
}

fn offers(bytes: u64, seals: SealFlags, slots: u32, slot_bytes: u64) -> impl Fn(Socket) {
    move |socket| {
        let mut peer = opened(socket);
        peer.pool_of(0, bytes, seals, slots, slot_bytes);
        stay()
    }
}

fn extra_frame(mut peer: Peer, newest: u64) -> ! {
    peer.names();
    peer.complete(&Completion::FrameTime(FrameTime { seq: 0, pts: Some(5), is_extra: true }));
    peer.frame(newest, 0);
    stay()
}

fn wild_words(socket: Socket) -> ! {
    let mut peer = opened(socket);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    peer.names();
    endlessly(|| {
        let word = WORDS[random.next() as usize % WORDS.len()];
        let value = random.next() >> (random.next() % 64);
        peer.set(word, value);
    })
}

pub const ACTS: &[Act] = &[
    // Acts before the stream is open.
    packets("exits-at-start", Then::Opening, |_| ()),
    packets("is-never-ready", Then::Opening, |socket| {
        let _socket = socket;
        stay()
    }),
    packets("says-ready-in-part", Then::Opening, |socket| {
        socket.send(b"FPWM", None).unwrap();
        stay()
    }),
    packets("says-too-much", Then::Opening, |socket| {
        socket.send(&[b'F'; 4 * MESSAGE_BYTES], None).unwrap();
        stay()
    }),
    packets("says-nothing-at-length", Then::Opening, |socket| {
        socket.send(&[], None).unwrap();
        stay()
    }),
    packets("speaks-another-version", Then::Opening, |socket| {
        socket.send(&of_another_version(), None).unwrap();
        stay()
    }),
    packets("refuses-in-colours", Then::Opening, |socket| {
        say(&socket, &Message::Refused { text: "\x1b[31mred\x07\n\u{202e}".to_owned() }, None);
        stay()
    }),
    packets("exits-when-ready", Then::Opening, |socket| ready(&socket)),
    packets("never-opens", Then::Opening, |socket| {
        ready(&socket);
        hear_open(&socket);
        stay()
    }),
    packets("exits-at-open", Then::Opening, |socket| {
        ready(&socket);
        hear_open(&socket);
    }),
    packets("is-ready-twice", Then::Opening, |socket| {
        ready(&socket);
        ready(&socket);
        stay()
    }),
    packets("opens-an-impossible-stream", Then::Anything, |socket| {
        ready(&socket);
        hear_open(&socket);
        let nothing = Rational::new(0, 0);
        let stream = StreamInfo {
            format: None,
            width: u32::MAX,
            height: u32::MAX,
            time_base: nothing,
            frame_rate: Rational::new(i32::MIN, -1),
            sample_aspect: nothing,
            orientation: Orientation::Upright,
        };
        let opened = Message::Opened { threads: u32::MAX, stream, replayable: true, takes_packets: true };
        say(&socket, &opened, None);
        stay()
    }),
    packets("exits-when-open", Then::Broken, |socket| drop(opened_quietly(socket, true))),
    packets("exits-and-cannot-be-replayed", Then::Anything, |socket| drop(opened_quietly(socket, false))),
    // Acts on positions and bells.
    packets("exits-at-a-packet", Then::Broken, |socket| drop(opened(socket))),
    packets("never-takes", Then::Broken, |socket| {
        let _peer = opened_quietly(socket, true);
        stay()
    }),
    packets("claims-to-have-taken-all", Then::Broken, |socket| {
        let peer = opened(socket);
        peer.set(Word::SubmissionHead, u64::MAX);
        stay()
    }),
    packets("gives-cells-back", Then::Broken, |socket| {
        let peer = opened(socket);
        endlessly(|| {
            peer.set(Word::SubmissionHead, 0);
            peer.set(Word::SubmissionHead, 1);
            sleep(Duration::from_micros(50));
        })
    }),
    packets("completes-what-cannot-be", Then::Broken, |socket| {
        let peer = opened(socket);
        peer.set(Word::CompletionTail, 1 << 40);
        stay()
    }),
    packets("takes-all-and-lets-the-caller-sleep", Then::Broken, |socket| {
        let peer = opened_quietly(socket, true);
        // If the ring is full, the thread that fills the ring sleeps.
        while peer.get(Word::RoomBell) == 0 {
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_millis(5));
        let submitted = u64::from(peer.area.sizes().cells) - 1;
        peer.set(Word::WorkerBell, 1);
        peer.set(Word::SubmissionHead, submitted);
        stay()
    }),
    packets("releases-what-it-never-had", Then::Broken, |socket| {
        let mut peer = opened(socket);
        peer.set(Word::PacketsReleased, 1 << 50);
        endlessly(|| _ = peer.next())
    }),
    packets("takes-and-gives-nothing", Then::Broken, |socket| {
        let mut peer = opened(socket);
        endlessly(|| _ = peer.next())
    }),
    packets("keeps-the-bells-at-odd-values", Then::Broken, |socket| {
        let peer = opened(socket);
        endlessly(|| {
            for word in [Word::WorkerBell, Word::CallerBell, Word::RoomBell, Word::PacketBell, Word::SlotBell]
            {
                peer.set(word, 0x8000_0007);
            }
        })
    }),
    packets("writes-wild-words", Then::Wrong, |socket| wild_words(socket)),
    packets("hangs-up-and-stays", Then::Broken, |socket| {
        let peer = opened(socket);
        peer.socket.shut();
        stay()
    }),
    // Acts with cells.
    packets("writes-random-cells", Then::Broken, |socket| {
        let mut peer = opened(socket);
        let mut random = Random(88_172_645_463_325_252);
        endlessly(|| peer.cell(std::array::from_fn(|_| random.next())))
    }),
    packets("writes-an-unknown-kind", Then::Broken, |socket| cell([200, 0, 0, 0, 0, 0, 0, 0])(socket)),
    packets("gives-a-frame-of-no-pool", Then::Broken, |socket| cell(frame(0, 0).encode())(socket)),
    packets("gives-a-frame-of-no-layout", Then::Broken, |socket| {
        let mut peer = opened(socket);
        peer.pool(0);
        peer.frame(0, 0);
        stay()
    }),
    packets("gives-a-slot-out-of-range", Then::Broken, |socket| {
        let mut peer = opened(socket);
        peer.names();
        peer.frame(0, 4);
        stay()
    }),
    packets("gives-a-frame-of-the-future", Then::Broken, |socket| {
        let mut peer = opened(socket);
        peer.names();
        peer.frame(1 << 40, 0);
        stay()
    }),
    packets("gives-one-frame-for-ever", Then::Wrong, |socket| {
        let mut peer = opened(socket);
        peer.names();
        endlessly(|| peer.frame(0, 1))
    }),
    packets("gives-a-frame-and-dies", Then::Wrong, |socket| {
        let mut peer = opened(socket);
        peer.names();
        peer.frame(0, 1);
        peer.frame(0, 1);
    }),
    packets("gives-back-what-was-a-packet", Then::Broken, |socket| {
        let mut peer = opened(socket);
        peer.complete(&Completion::Frame {
            picture: PictureFlags::default(),
            seq: 0,
            pool: SAME_FRAME,
            slot: 0,
            layout: 0,
            work: WorkerTime::default(),
        });
        stay()
    }),
    packets("stamps-the-future", Then::Wrong, |socket| {
        let mut peer = opened(socket);
        peer.names();
        let most = u32::MAX;
        let work = WorkerTime {
            enter_ns: u64::MAX,
            leave_ns: u64::MAX,
            inside_ns: most,
            is_pool: false,
            idle_ns: most,
            wakeup_ns: most,
            held_depth_ns: most,
            blocked_ns: most,
            compute_ns: most,
            preempted_ns: most,
            copy_ns: most,
            copied_bytes: most,
            voluntary_switches: u16::MAX,
            involuntary_switches: u16::MAX,
        };
        peer.complete(&Completion::Frame {
            picture: PictureFlags::default(),
            seq: 0,
            pool: 0,
            slot: 0,
            layout: 0,
            work,
        });
        stay()
    }),
    packets("claims-to-have-skipped-every-packet", Then::Broken, |socket| {
        let mut peer = opened(socket);
        for _ in 0..2 {
            peer.complete(&Completion::Undecoded { seq: 0, skipped: u64::MAX });
        }
        stay()
    }),
    packets("passes-for-ever", Then::Broken, |socket| {
        let mut peer = opened(socket);
        endlessly(|| peer.complete(&Completion::Passed { seq: 0 }))
    }),
    packets("names-65536-layouts", Then::Broken, |socket| {
        let mut peer = opened(socket);
        for n in 0..65_536u32 {
            let layout = Layout::packed(PixelFormat::Grey, 1 + n % 256, 1 + n / 256).unwrap();
            peer.complete(&Completion::Layout { id: n as u8, layout });
        }
        stay()
    }),
    packets("says-a-layout-for-ever", Then::Broken, |socket| {
        let mut peer = opened(socket);
        endlessly(|| peer.layout(layout()))
    }),
    packets("gives-a-layout-larger-than-a-slot", Then::Broken, |socket| {
        let mut peer = opened(socket);
        peer.pool(0);
        peer.layout(Layout::packed(PixelFormat::Yuv420p, 4096, 4096).unwrap());
        peer.frame(0, 0);
        stay()
    }),
    packets("gives-another-format-in-another-size", Then::Wrong, |socket| {
        let mut peer = opened(socket);
        let layout = Layout::packed(PixelFormat::P010, 2, 2).unwrap();
        peer.pool(0);
        peer.layout(layout);
        peer.frame(0, 0);
        stay()
    }),
    // libswscale aborts at such strides.
    converted("names-rows-of-an-odd-number-of-bytes", Then::Broken, |socket| {
        let mut peer = opened(socket);
        let layout = Layout::packed(PixelFormat::Yuv420p10, 32, 20).unwrap();
        let mut words = Completion::Layout { id: 0, layout }.encode();
        for stride in [3, 5, 7] {
            words[stride] += 1;
        }
        peer.pool(0);
        peer.cell(words);
        peer.frame(0, 0);
        stay()
    }),
    packets("ends-before-the-end", Then::Anything, |socket| {
        let mut peer = opened(socket);
        peer.complete(&Completion::End);
        stay()
    }),
    packets("ends-and-ends", Then::Anything, |socket| {
        let mut peer = opened(socket);
        endlessly(|| peer.complete(&Completion::End))
    }),
    packets("requests-keyframes-for-ever", Then::Broken, |socket| {
        let mut peer = opened(socket);
        let keyframe = Completion::Request(UpstreamRequest::Keyframe);
        endlessly(|| peer.complete(&keyframe))
    }),
    frames("requests-bit-rates-for-ever", Then::Broken, |socket| {
        let mut peer = opened(socket);
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        endlessly(|| {
            let bits = 1 + random.next() % MAX_BIT_RATE;
            peer.complete(&Completion::Request(UpstreamRequest::BitRate(bits)));
        })
    }),
    packets("requests-before-it-has-taken-anything", Then::Broken, |socket| {
        let mut peer = opened_quietly(socket, true);
        let keyframe = Completion::Request(UpstreamRequest::Keyframe);
        endlessly(|| peer.complete(&keyframe))
    }),
    packets("requests-now-and-then-and-takes-nothing", Then::Broken, |socket| {
        let mut peer = opened_quietly(socket, true);
        let keyframe = Completion::Request(UpstreamRequest::Keyframe);
        endlessly(|| {
            peer.complete(&keyframe);
            std::thread::sleep(std::time::Duration::from_millis(300));
        })
    }),
    // Invalid values of a request: a keyframe with a bit rate, no bit rate, a bit rate above the
    // limit, a seek.
    packets("requests-a-keyframe-at-a-bit-rate", Then::Broken, |socket| {
        cell([138 | 1 << 8, 1, 0, 0, 0, 0, 0, 0])(socket);
    }),
    packets("requests-no-bit-rate", Then::Broken, |socket| {
        cell([138 | 2 << 8, 0, 0, 0, 0, 0, 0, 0])(socket);
    }),
    packets("requests-every-bit-there-is", Then::Broken, |socket| {
        cell([138 | 2 << 8, u64::MAX, 0, 0, 0, 0, 0, 0])(socket);
    }),
    packets("requests-a-seek", Then::Broken, |socket| cell([138 | 3 << 8, 0, 0, 0, 0, 0, 0, 0])(socket)),
    packets("fails-without-a-word", Then::Broken, |socket| cell(Completion::Failed.encode())(socket)),
    packets("fails-in-colours", Then::Wrong, |socket| {
        let mut peer = opened(socket);
        let text = "\x1b]0;title\x07\x1b[2J".to_owned();
        say(&peer.socket, &Message::Failed { text, seq: Some(0) }, None);
        peer.complete(&Completion::Failed);
        stay()
    }),
    // Acts with pools.
    packets("offers-a-pool-without-memory", Then::Broken, |socket| {
        cell(Completion::Pool { pool: 0, slots: 4, slot_bytes: 64, first_slot: 0 }.encode())(socket);
    }),
    packets("offers-a-pool-in-memory-it-was-not-granted", Then::Broken, |socket| {
        let mut peer = opened(socket);
        say(&peer.socket, &Message::PoolMemory { pool: 0, memory: 0 }, None);
        peer.complete(&Completion::Pool { pool: 0, slots: 4, slot_bytes: 64, first_slot: 0 });
        stay()
    }),
    packets("offers-the-memory-of-another-pool-again", Then::Broken, |socket| {
        let mut peer = opened(socket);
        peer.pool(0);
        say(&peer.socket, &Message::PoolMemory { pool: 1, memory: 0 }, None);
        peer.complete(&Completion::Pool { pool: 1, slots: 4, slot_bytes: slot_bytes(), first_slot: 4 });
        stay()
    }),
    packets("offers-a-descriptor-of-its-own", Then::Broken, |socket| {
        let mut peer = opened(socket);
        let own = memory(4 * slot_bytes(), SealFlags::empty());
        say(&peer.socket, &Message::PoolMemory { pool: 0, memory: 0 }, Some(own.as_fd()));
        peer.complete(&Completion::Pool { pool: 0, slots: 4, slot_bytes: slot_bytes(), first_slot: 0 });
        stay()
    }),
    packets("offers-memory-to-write", Then::Broken, |socket| {
        offers(4 * slot_bytes(), SealFlags::empty(), 4, slot_bytes())(socket);
    }),
    packets("offers-too-little-memory", Then::Broken, |socket| {
        offers(4 * slot_bytes() - 1, sealed(), 4, slot_bytes())(socket);
    }),
    packets("offers-the-address-space", Then::Broken, |socket| {
        offers(4096, sealed(), u32::MAX, 1 << 31)(socket);
    }),
    packets("wants-memory-for-ever", Then::Broken, |socket| {
        let mut peer = opened(socket);
        endlessly(|| drop(peer.want_memory(4096)))
    }),
    packets("wants-memory-and-receives-none", Then::Broken, |socket| {
        let mut peer = opened(socket);
        endlessly(|| {
            say(&peer.socket, &Message::RequestMemory { bytes: 4096 }, None);
            peer.complete(&Completion::MemoryRequest);
        })
    }),
    packets("wants-more-memory-than-it-may-have", Then::Broken, |socket| {
        let mut peer = opened(socket);
        // The request is denied, and the peer exits.
        peer.want_memory(1 << 40);
    }),
    packets("wants-memory-and-says-nothing", Then::Broken, |socket| {
        cell(Completion::MemoryRequest.encode())(socket);
    }),
    packets("wants-memory-for-ever-before-its-stream", Then::Opening, |socket| {
        ready(&socket);
        hear_open(&socket);
        endlessly(|| say(&socket, &Message::RequestMemory { bytes: 4096 }, None))
    }),
    packets("offers-pools-backwards", Then::Broken, |socket| {
        let mut peer = opened(socket);
        for number in (0..u16::MAX).rev() {
            peer.pool(number);
        }
        stay()
    }),
    packets("offers-pools-for-ever", Then::Broken, |socket| {
        let mut peer = opened(socket);
        let mut number = 0u16;
        endlessly(|| {
            peer.pool(number);
            number = number.wrapping_add(1);
        })
    }),
    packets("fills-the-socket", Then::Broken, |socket| {
        let peer = opened(socket);
        let memory = memory(4096, sealed());
        endlessly(|| say(&peer.socket, &Message::PoolMemory { pool: 0, memory: 0 }, Some(memory.as_fd())))
    }),
    // `flood` also plays this act, beside an honest stream of the same user.
    packets(super::flood::ACT, Then::Broken, |socket| super::flood::play(&opened(socket).socket)),
    // Acts of a stage that takes frames.
    frames("takes-frames-and-gives-nothing", Then::Broken, |socket| {
        let mut peer = opened(socket);
        endlessly(|| _ = peer.next())
    }),
    frames("exits-at-a-frame", Then::Broken, |socket| drop(opened(socket))),
    frames("passes-frames-for-ever", Then::Wrong, |socket| {
        let mut peer = opened(socket);
        endlessly(|| peer.complete(&Completion::Passed { seq: 0 }))
    }),
    frames("gives-a-frame-back-twice", Then::Wrong, |socket| {
        let mut peer = opened(socket);
        let same = Completion::Frame {
            picture: PictureFlags::default(),
            seq: 0,
            pool: SAME_FRAME,
            slot: 0,
            layout: 0,
            work: WorkerTime::default(),
        };
        endlessly(|| peer.complete(&same))
    }),
    frames("gives-extra-frames-of-a-replayable-stage", Then::Broken, |socket| extra_frame(opened(socket), 0)),
    frames("gives-an-extra-frame-of-an-input-to-come", Then::Wrong, |socket| {
        let mut peer = opened_quietly(socket, false);
        peer.next();
        extra_frame(peer, 1 << 40)
    }),
    frames("gives-the-time-of-another-frame", Then::Broken, |socket| {
        let mut peer = opened(socket);
        peer.names();
        peer.complete(&Completion::FrameTime(FrameTime { seq: 1, pts: None, is_extra: false }));
        peer.frame(0, 0);
        stay()
    }),
    frames("gives-times-without-frames", Then::Broken, |socket| {
        let mut peer = opened(socket);
        let time = FrameTime { seq: 0, pts: Some(i64::MIN), is_extra: false };
        endlessly(|| peer.complete(&Completion::FrameTime(time)))
    }),
    packets("gives-the-time-of-a-decoded-frame", Then::Broken, |socket| {
        let mut peer = opened(socket);
        peer.names();
        peer.complete(&Completion::FrameTime(FrameTime { seq: 0, pts: None, is_extra: false }));
        peer.frame(0, 0);
        stay()
    }),
    frames("claims-frames-and-sleeps", Then::Broken, |socket| {
        let peer = opened_quietly(socket, true);
        endlessly(|| {
            peer.set(Word::WorkerBell, 1);
            peer.set(Word::SubmissionHead, peer_tail(&peer));
            yield_now();
        })
    }),
    frames("writes-wild-words-about-frames", Then::Wrong, |socket| wild_words(socket)),
];

/// Returns the number of submitted cells that `peer` has not read; 0 if the ring is invalid.
fn peer_tail(peer: &Peer) -> u64 {
    peer.reader.available().unwrap_or(0)
}
