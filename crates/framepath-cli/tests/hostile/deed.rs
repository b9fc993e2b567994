// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks of hostile callers on a worker, one deed each.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use framepath_model::format::{Layout, PixelFormat};
use framepath_model::stream::{Preroll, Rational};
use framepath_model::wire::{MESSAGE_BYTES, Message, Open, Submission};
use framepath_os::crossing::Page;
use rustix::fs::SealFlags;

use super::caller::*;
use super::peer::{Random, WORDS, Word, layout, memory, sealed, slot_bytes};

/// Attack of a hostile caller.
pub struct Deed {
    pub name: &'static str,
    pub then: Then,
    pub play: fn(&mut Caller),
}

/// Expected result of the worker. In every case the worker ends without a signal or a
/// panic, at the latest when its caller ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The worker ends by itself before its caller.
    Ends,
    /// The worker continues, or ends.
    Anything,
}

const fn deed(name: &'static str, then: Then, play: fn(&mut Caller)) -> Deed {
    Deed { name, then, play }
}

/// Duration of an attack on a decoding worker.
const A_WHILE: Duration = Duration::from_millis(300);

/// Returns a valid message that opens a decoder, with its area and packets, and the encoded message.
fn opening() -> (Opening, [u8; MESSAGE_BYTES]) {
    let opening = Opening::new("decode");
    let mut bytes = [0; MESSAGE_BYTES];
    Message::Open(opening.open.clone()).encode(&mut bytes);
    (opening, bytes)
}

/// Returns an attack that opens a decoder with the message changed by `change`. Checks that the worker
/// rejects the message, or ends.
fn refused(change: impl FnOnce(&mut Open)) -> impl FnOnce(&mut Caller) {
    move |caller| assert!(caller.open("decode", change).is_none(), "the worker accepted an invalid message")
}

/// Returns an attack that opens a decoder with invalid memory as the shared area. Checks that the
/// worker rejects it.
fn refused_memory(fd: impl FnOnce(&Opening) -> OwnedFd) -> impl FnOnce(&mut Caller) {
    move |caller| {
        let (opening, bytes) = opening();
        caller.send(&bytes, Some(fd(&opening).as_fd()));
        assert!(
            matches!(caller.hear(), Some(Message::Refused { .. })),
            "the worker accepted an invalid message"
        );
    }
}

/// Opens a decoder and grants the invalid memory that `memory` returns for a number of bytes; with
/// `None`, does not answer the request. Checks that no frame arrives.
fn grants(caller: &mut Caller, memory: fn(u64) -> Option<OwnedFd>) {
    let mut stream = caller.decode();
    stream.grants = memory;
    stream.work(A_WHILE);
    assert_eq!(stream.frames, 0);
}

fn refused_stage(stage: &str) -> impl FnOnce(&mut Caller) {
    refused(move |open| stage.clone_into(&mut open.stage))
}

/// Returns the size in bytes of the shared area of `opening`.
fn area_bytes(opening: &Opening) -> u64 {
    File::from(opening.area.fd().try_clone_to_owned().unwrap()).metadata().unwrap().len()
}

fn fixed_size() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW
}

fn device(name: &str) -> OwnedFd {
    File::options().read(true).write(true).open(name).unwrap().into()
}

/// Decodes the clip for [`A_WHILE`], while another thread calls `wrong` to damage the shared area.
fn while_it_decodes(caller: &mut Caller, wrong: impl Fn(&File, &mut Random) + Sync) {
    let mut stream = caller.decode();
    let (words, done) = (stream.words.try_clone().unwrap(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(0x9e37_79b9_7f4a_7c15);
            while !done.load(Ordering::Relaxed) {
                wrong(&words, &mut random);
            }
        });
        stream.work(A_WHILE);
        done.store(true, Ordering::Relaxed);
    });
}

fn write(words: &File, value: u64, at: u64) {
    words.write_all_at(&value.to_le_bytes(), at).unwrap();
}

/// Offset in the shared area of the words for released frames.
const GIVE_BACK: u64 = 128 * 16;
/// Offset in the shared area of the cells.
const CELLS: u64 = GIVE_BACK + 512 + 4096 * 4;
/// Offset in the shared area of the packets.
const PACKETS: u64 = (CELLS + 2 * 64 * 64).next_multiple_of(4096);

/// Announces a pool of input frames, and sends its memory; with `None`, sends no memory.
fn input_pool(caller: &Caller, pool: u16, slots: u32, slot_bytes: u64, memory: Option<OwnedFd>) {
    caller.say(&Message::InputPool { pool, slots, slot_bytes }, memory.as_ref().map(|fd| fd.as_fd()));
}

fn good_pool(caller: &Caller) {
    input_pool(caller, 0, 4, slot_bytes(), Some(memory(4 * slot_bytes(), sealed())));
}

/// Returns an attack that announces an invalid pool and submits a frame in it.
fn frame_of(slots: u32, slot_bytes: u64, memory: impl Fn() -> Option<OwnedFd>) -> impl Fn(&mut Caller) {
    move |caller| {
        let mut stream = caller.threshold();
        input_pool(caller, 0, slots, slot_bytes, memory());
        stream.layout(0, layout());
        stream.frame(0, 0, 0);
    }
}

pub const DEEDS: &[Deed] = &[
    // A run without an attack: the other results are meaningless if it fails.
    deed("does-nothing-wrong", Then::Anything, |caller| caller.decode().play()),
    // Deeds before the stream is open.
    deed("goes-away-at-once", Then::Ends, Caller::leave),
    deed("says-nothing", Then::Anything, |_| ()),
    deed("grants-no-memory", Then::Anything, |caller| grants(caller, |_| None)),
    deed("grants-a-device-for-memory", Then::Anything, |caller| {
        grants(caller, |_| Some(device("/dev/zero")))
    }),
    deed("grants-memory-that-can-shrink", Then::Anything, |caller| {
        grants(caller, |bytes| Some(memory(bytes, SealFlags::GROW)));
    }),
    deed("grants-too-little-memory", Then::Anything, |caller| {
        grants(caller, |_| Some(memory(4096, fixed_size())));
    }),
    deed("grants-memory-that-cannot-be-written", Then::Anything, |caller| {
        grants(caller, |bytes| Some(memory(bytes, fixed_size() | SealFlags::WRITE)));
    }),
    deed("says-rubbish", Then::Ends, |caller| caller.send(&[0xa5; MESSAGE_BYTES], None)),
    deed("opens-in-part", Then::Ends, |caller| caller.send(&opening().1[..MESSAGE_BYTES / 2], None)),
    deed("opens-with-a-byte-more", Then::Ends, |caller| {
        let (opening, bytes) = opening();
        caller.send(&[&bytes[..], &[0]].concat(), Some(opening.area.fd()));
    }),
    deed("opens-with-nothing-at-length", Then::Ends, |caller| caller.send(&[], None)),
    deed("speaks-another-version", Then::Ends, |caller| {
        let (opening, mut bytes) = opening();
        bytes[4] ^= 0x55;
        caller.send(&bytes, Some(opening.area.fd()));
    }),
    deed("says-what-others-say", Then::Ends, |caller| {
        caller.say(&Message::Hello { version: 1 }, None);
    }),
    deed("gives-a-page-and-nothing-else", Then::Ends, |caller| {
        caller.say(&Message::Page, None);
    }),
    deed("gives-a-page-that-is-none", Then::Ends, |caller| {
        caller.say(&Message::Page, Some(device("/dev/zero").as_fd()));
    }),
    deed("gives-a-page-that-can-shrink", Then::Ends, |caller| {
        caller.say(&Message::Page, Some(memory(4096, SealFlags::empty()).as_fd()));
    }),
    deed("gives-two-pages", Then::Ends, |caller| {
        let page = Page::new().unwrap();
        caller.say(&Message::Page, Some(page.fd()));
        caller.say(&Message::Page, Some(page.fd()));
    }),
    deed("gives-a-device-to-who-takes-none", Then::Ends, |caller| {
        caller.say(&Message::Device { node: "/dev/zero".to_owned() }, Some(device("/dev/zero").as_fd()));
    }),
    deed("gives-a-device-that-is-none", Then::Anything, |caller| {
        *caller = Caller::of_device_worker();
        caller.say(&Message::Device { node: "/dev/zero".to_owned() }, Some(device("/dev/zero").as_fd()));
        assert!(caller.open("decode", |_| ()).is_none(), "it decodes by that");
    }),
    deed("gives-two-devices", Then::Ends, |caller| {
        *caller = Caller::of_device_worker();
        for _ in 0..2 {
            caller.say(&Message::Device { node: "/dev/zero".to_owned() }, Some(device("/dev/zero").as_fd()));
        }
    }),
    // Deeds with the area.
    deed("opens-without-memory", Then::Ends, |caller| caller.send(&opening().1, None)),
    deed("opens-with-a-device", Then::Anything, |caller| refused_memory(|_| device("/dev/zero"))(caller)),
    deed("opens-with-a-folder", Then::Anything, |caller| {
        refused_memory(|_| File::open("/").unwrap().into())(caller);
    }),
    deed("opens-with-a-socket", Then::Anything, |caller| {
        refused_memory(|_| framepath_os::crossing::Socket::pair().unwrap().0.into())(caller);
    }),
    deed("opens-with-unsealed-memory", Then::Anything, |caller| {
        refused_memory(|opening| memory(area_bytes(opening), SealFlags::empty()))(caller);
    }),
    deed("opens-with-memory-that-can-shrink", Then::Anything, |caller| {
        refused_memory(|opening| memory(area_bytes(opening), SealFlags::GROW))(caller);
    }),
    deed("opens-with-memory-it-cannot-write", Then::Anything, |caller| {
        refused_memory(|opening| memory(area_bytes(opening), fixed_size() | SealFlags::WRITE))(caller);
    }),
    deed("opens-with-too-little-memory", Then::Anything, |caller| {
        refused_memory(|opening| memory(area_bytes(opening) - 1, fixed_size()))(caller);
    }),
    deed("opens-with-no-memory-at-all", Then::Anything, |caller| {
        refused_memory(|_| memory(0, fixed_size()))(caller);
    }),
    deed("opens-with-three-cells", Then::Anything, |caller| refused(|open| open.cells = 3)(caller)),
    deed("opens-with-most-cells", Then::Anything, |caller| refused(|open| open.cells = 65_536)(caller)),
    deed("opens-with-more-cells", Then::Ends, |caller| refused(|open| open.cells = u32::MAX)(caller)),
    deed("opens-with-odd-packets", Then::Anything, |caller| refused(|open| open.packet_bytes += 1)(caller)),
    deed("opens-with-endless-packets", Then::Anything, |caller| {
        refused(|open| open.packet_bytes = i64::MAX as u64)(caller);
    }),
    deed("opens-with-a-track-of-zeros", Then::Anything, |caller| {
        refused(|open| open.track_bytes = PACKET_BYTES as u32)(caller);
    }),
    deed("opens-with-a-track-beyond-its-memory", Then::Ends, |caller| {
        refused(|open| open.track_bytes = u32::MAX)(caller);
    }),
    // Deeds with the stage.
    deed("opens-no-stage", Then::Anything, |caller| refused_stage("")(caller)),
    deed("opens-a-source", Then::Anything, |caller| refused_stage("file /etc/passwd")(caller)),
    deed("opens-a-sink", Then::Anything, |caller| refused_stage("y4m /tmp/framepath-hostile")(caller)),
    deed("opens-a-path", Then::Anything, |caller| refused_stage("decode ! null")(caller)),
    deed("opens-a-plugin-of-its-own", Then::Anything, |caller| {
        refused_stage("plugin frei0r:invert0r")(caller);
    }),
    deed("opens-a-worker-in-a-worker", Then::Anything, |caller| {
        caller.open("decode host=process", |_| ());
    }),
    deed("opens-with-faults-nobody-knows", Then::Anything, |caller| {
        refused(|open| "explode@1".clone_into(&mut open.faults))(caller);
    }),
    deed("wants-256-threads", Then::Anything, |caller| {
        caller.open("decode threads=256 pool=4096", |_| ());
    }),
    deed("keeps-frames-without-end", Then::Anything, |caller| {
        caller.open("decode", |open| open.frames_behind = u32::MAX);
    }),
    deed("opens-an-impossible-stream", Then::Anything, |caller| {
        let stream = caller.open("decode", |open| {
            open.stream.width = u32::MAX;
            open.stream.height = 0;
            open.stream.time_base = Rational::new(0, 0);
            open.stream.frame_rate = Rational::new(i32::MIN, -1);
        });
        if let Some(mut stream) = stream {
            stream.work(A_WHILE);
        }
    }),
    // Deeds that disconnect at each step.
    deed("goes-away-while-it-opens", Then::Ends, |caller| {
        let (opening, bytes) = opening();
        caller.send(&bytes, Some(opening.area.fd()));
        caller.leave();
    }),
    deed("goes-away-when-it-is-open", Then::Ends, |caller| {
        caller.decode();
        caller.leave();
    }),
    deed("goes-away-in-the-middle", Then::Ends, |caller| {
        let mut stream = caller.decode();
        while stream.frames < 5 {
            stream.work(Duration::from_millis(1));
        }
        caller.leave();
    }),
    deed("goes-away-while-it-waits-for-a-pool", Then::Ends, |caller| {
        let mut stream = caller.threshold();
        stream.frame(0, 0, 0);
        sleep(Duration::from_millis(20));
        caller.leave();
    }),
    deed("goes-away-and-takes-nothing", Then::Ends, |caller| {
        let mut stream = caller.decode();
        while stream.feed() {}
        sleep(Duration::from_millis(100));
        caller.leave();
    }),
    // Deeds with positions, bells and cells.
    deed("submits-what-cannot-be", Then::Ends, |caller| {
        caller.decode().set(Word::SubmissionTail, 1 << 40);
    }),
    deed("submits-one-too-many", Then::Ends, |caller| caller.decode().set(Word::SubmissionTail, 65)),
    deed("takes-submissions-back", Then::Ends, |caller| {
        let mut stream = caller.decode();
        while stream.frames < 5 {
            stream.work(Duration::from_millis(1));
        }
        stream.set(Word::SubmissionTail, 1);
        // The worker may wait for the release of its frames first.
        let since = Instant::now();
        while since.elapsed() < A_WHILE {
            stream.take();
            sleep(Duration::from_millis(1));
        }
    }),
    deed("takes-what-was-never-completed", Then::Ends, |caller| {
        let mut stream = caller.decode();
        stream.set(Word::CompletionHead, 1 << 40);
        while stream.feed() {}
    }),
    deed("takes-nothing", Then::Anything, |caller| {
        let mut stream = caller.decode();
        while stream.feed() {}
        sleep(A_WHILE);
    }),
    deed("writes-an-unknown-kind", Then::Ends, |caller| caller.decode().cell([200, 0, 0, 0, 0, 0, 0, 0])),
    deed("writes-what-workers-write", Then::Ends, |caller| {
        caller.decode().cell(framepath_model::wire::Completion::End.encode());
    }),
    deed("writes-random-cells", Then::Ends, |caller| {
        let (mut stream, mut random) = (caller.decode(), Random(88_172_645_463_325_252));
        for _ in 0..32 {
            stream.cell(std::array::from_fn(|_| random.next()));
        }
    }),
    deed("writes-wild-words", Then::Anything, |caller| {
        while_it_decodes(caller, |words, random| {
            let line = [WORDS.as_slice(), &[Word::SubmissionTail]].concat()[random.next() as usize % 11];
            write(words, random.next() >> (random.next() % 64), line as u64 * 128);
        });
    }),
    deed("keeps-the-bells-at-odd-values", Then::Anything, |caller| {
        while_it_decodes(caller, |words, _| {
            for word in [Word::WorkerBell, Word::CompletionRoomBell, Word::SlotBell] {
                write(words, 0x8000_0007, word as u64 * 128);
            }
        });
    }),
    deed("rewrites-cells", Then::Anything, |caller| {
        while_it_decodes(caller, |words, random| {
            write(words, random.next(), CELLS + random.next() % (2 * 64 * 8) * 8);
        });
    }),
    deed("rewrites-packets", Then::Anything, |caller| {
        while_it_decodes(caller, |words, random| {
            write(words, random.next(), PACKETS + random.next() % (PACKET_BYTES / 8) * 8);
        });
    }),
    // Deeds with packets.
    deed("gives-a-packet-behind-the-end", Then::Ends, |caller| caller.decode().packet_at(PACKET_BYTES, 1)),
    deed("gives-a-packet-over-the-end", Then::Ends, |caller| {
        caller.decode().packet_at(PACKET_BYTES - 8, 16);
    }),
    deed("gives-a-packet-far-away", Then::Ends, |caller| caller.decode().packet_at(u64::MAX / 2, 64)),
    deed("gives-a-packet-without-end", Then::Ends, |caller| caller.decode().packet_at(0, u32::MAX)),
    deed("gives-an-empty-packet", Then::Anything, |caller| {
        let mut stream = caller.decode();
        stream.packet_at(0, 0);
        stream.work(A_WHILE);
    }),
    deed("gives-the-track-for-a-packet", Then::Anything, |caller| {
        let mut stream = caller.decode();
        stream.packet_at(0, 4096);
        stream.work(A_WHILE);
    }),
    deed("numbers-packets-as-it-likes", Then::Anything, |caller| {
        let mut stream = caller.decode();
        for seq in [u64::MAX, 0, 0, 1 << 63] {
            let (pts, key) = (Some(i64::MIN), false);
            stream.submit(&Submission::Packet {
                is_damaged: false,
                seq,
                pts,
                offset: 0,
                len: 64,
                key,
                preroll: Preroll::default(),
            });
            stream.work(A_WHILE / 4);
        }
    }),
    deed("drains-and-drains", Then::Anything, |caller| {
        let mut stream = caller.decode();
        for _ in 0..50 {
            stream.submit(&Submission::Drain);
            stream.feed();
            stream.take();
        }
        stream.work(A_WHILE);
    }),
    // Deeds with released frames.
    deed("gives-back-what-it-never-had", Then::Anything, |caller| {
        let mut stream = caller.decode();
        (0..5000).for_each(|slot| stream.give_back(slot));
        stream.work(A_WHILE);
        stream.give_back(u32::MAX);
    }),
    deed("gives-back-twice", Then::Anything, |caller| {
        let mut stream = caller.decode();
        for _ in 0..100 {
            stream.work(A_WHILE / 100);
            (0..64).for_each(|slot| stream.give_back(slot));
        }
    }),
    deed("writes-wild-words-to-give-back", Then::Anything, |caller| {
        while_it_decodes(caller, |words, random| {
            write(words, random.next(), GIVE_BACK + random.next() % ((CELLS - GIVE_BACK) / 8) * 8);
        });
    }),
    deed("gives-nothing-back", Then::Anything, |caller| {
        let mut stream = caller.decode();
        for _ in 0..1000 {
            stream.feed();
            // Receives the completion, and keeps its frame.
            let _ = stream.reader.pop();
            sleep(A_WHILE / 1000);
        }
    }),
    // Deeds with messages outside the rings.
    deed("talks-without-end", Then::Anything, |caller| {
        let mut stream = caller.decode();
        let null = device("/dev/null");
        let question = [0x5a; MESSAGE_BYTES];
        // Only while the socket has room.
        while caller.socket().try_send(&question, Some(null.as_fd())).is_ok_and(|sent| sent) {}
        stream.work(A_WHILE);
    }),
    deed("answers-without-end", Then::Anything, |caller| {
        let mut stream = caller.decode();
        let mut bytes = [0; MESSAGE_BYTES];
        Message::Memory { number: 1 }.encode(&mut bytes);
        for _ in 0..1000 {
            let _ = caller.socket().try_send(&bytes, None);
        }
        stream.work(A_WHILE);
    }),
    deed("says-parts-of-messages", Then::Anything, |caller| {
        let mut stream = caller.decode();
        caller.send(&[0; 1], None);
        caller.send(&[0; 4 * MESSAGE_BYTES], Some(device("/dev/null").as_fd()));
        stream.work(A_WHILE);
    }),
    // Deeds against a stage that takes frames.
    deed("gives-frames-to-a-decoder", Then::Anything, |caller| {
        let mut stream = caller.decode();
        good_pool(caller);
        stream.layout(0, layout());
        stream.frame(0, 0, 0);
        stream.work(A_WHILE);
    }),
    deed("gives-packets-to-a-filter", Then::Anything, |caller| caller.threshold().packet_at(0, 0)),
    deed("gives-a-frame-of-no-layout", Then::Ends, |caller| {
        let mut stream = caller.threshold();
        good_pool(caller);
        stream.frame(0, 0, 7);
    }),
    deed("gives-a-slot-out-of-range", Then::Ends, |caller| {
        let mut stream = caller.threshold();
        good_pool(caller);
        stream.layout(0, layout());
        stream.frame(0, 4, 0);
    }),
    deed("gives-a-layout-larger-than-a-slot", Then::Ends, |caller| {
        let mut stream = caller.threshold();
        good_pool(caller);
        stream.layout(0, Layout::packed(PixelFormat::Yuv420p, 4096, 4096).unwrap());
        stream.frame(0, 3, 0);
    }),
    deed("gives-another-format-in-another-size", Then::Anything, |caller| {
        let mut stream = caller.threshold();
        good_pool(caller);
        stream.layout(0, Layout::packed(PixelFormat::P010, 2, 2).unwrap());
        stream.frame(0, 0, 0);
        stream.layout(0, Layout::packed(PixelFormat::Rgba, 8, 8).unwrap());
        stream.frame(0, 1, 0);
        sleep(A_WHILE);
    }),
    deed("says-something-else-than-the-pool", Then::Ends, |caller| {
        let mut stream = caller.threshold();
        caller.say(&Message::Memory { number: 0 }, None);
        stream.frame(0, 0, 0);
    }),
    deed("gives-a-pool-without-memory", Then::Ends, |caller| {
        frame_of(4, slot_bytes(), || None)(caller);
    }),
    deed("gives-a-pool-on-a-device", Then::Ends, |caller| {
        frame_of(4, slot_bytes(), || Some(device("/dev/zero")))(caller);
    }),
    deed("gives-a-pool-that-can-shrink", Then::Ends, |caller| {
        frame_of(4, slot_bytes(), || Some(memory(4 * slot_bytes(), SealFlags::GROW)))(caller);
    }),
    deed("gives-a-pool-that-is-too-small", Then::Ends, |caller| {
        frame_of(4, slot_bytes(), || Some(memory(4 * slot_bytes() - 1, sealed())))(caller);
    }),
    deed("gives-the-address-space-for-a-pool", Then::Ends, |caller| {
        frame_of(u32::MAX, 1 << 31, || Some(memory(4096, sealed())))(caller);
    }),
    deed("gives-a-pool-twice", Then::Anything, |caller| {
        let mut stream = caller.threshold();
        good_pool(caller);
        good_pool(caller);
        stream.layout(0, layout());
        stream.frame(0, 0, 0);
        stream.frame(1, 0, 0);
        sleep(A_WHILE);
    }),
];
