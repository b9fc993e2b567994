// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker that creates a pool for every frame: the memory of its caller is bounded.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use framepath_model::stream::PictureFlags;
use framepath_model::wire::{Completion, MESSAGE_BYTES, Message, Submission, WorkerTime};
use framepath_os::crossing::Socket;
use rustix::fs::fcntl_add_seals;

use super::Test;
use super::act::{Act, Part, Then};
use super::peer::{layout, opened_quietly, say, sealed, stay};

/// Memory limit of the worker (`memory=`), bytes.
const MEMORY: u64 = 64 << 20;
/// Largest memory that the caller grants for one request, bytes.
const LARGE: u64 = MEMORY / 4;
/// Memory of one page, which is enough for a frame, bytes.
const SMALL: u64 = 4096;
/// Upper limit of the size of the area that caller and worker share, bytes.
const AREA: u64 = 12 << 20;
/// Maximum number of the caller's memfd mappings: 64 pools, the area, and a margin.
const MAPPINGS: usize = 80;
/// Maximum number of the caller's descriptors: 64 pools, 8 grants without a pool yet, a run with one
/// worker, and a margin.
const DESCRIPTORS: usize = 104;

/// One way to exhaust the caller's memory.
struct Taking {
    name: &'static str,
    /// Bytes of each pool.
    bytes: u64,
    /// Number of grants that the worker requests before each frame; the last grant has a pool.
    grants: u32,
    /// Ends of the path after the decoder, each with the expected exit code.
    sinks: &'static [(&'static str, i32)],
}

const TAKINGS: [Taking; 3] = [
    // Frames in the queue keep their memory, so that the next frame has none.
    Taking {
        name: "makes-large-pools",
        bytes: LARGE,
        grants: 1,
        sinks: &[("block time=1ms ! null", 0), ("queue depth=60 ! block time=100ms ! null", 1)],
    },
    Taking { name: "makes-small-pools", bytes: SMALL, grants: 1, sinks: &[("block time=1ms ! null", 0)] },
    Taking {
        name: "wants-more-than-it-makes-pools-of",
        bytes: SMALL,
        grants: 3,
        sinks: &[("block time=1ms ! null", 0)],
    },
];

const fn act(index: usize, play: fn(Socket)) -> Act {
    // Only this test plays these acts, because it counts the caller's holdings.
    Act { name: TAKINGS[index].name, part: Part::Packets, then: Then::Anything, play }
}

pub const ACTS: &[Act] = &[
    act(0, |socket| play(socket, &TAKINGS[0])),
    act(1, |socket| play(socket, &TAKINGS[1])),
    act(2, |socket| play(socket, &TAKINGS[2])),
];

/// Answers each packet with a frame in a pool of its own.
fn play(socket: Socket, taking: &Taking) {
    let mut peer = opened_quietly(socket, true);
    let mut number = 0u16;
    loop {
        let seq = match peer.next() {
            Submission::Packet { seq, .. } => seq,
            _ => {
                peer.complete(&Completion::End);
                stay()
            }
        };
        let mut memory = 0;
        for _ in 0..taking.grants {
            say(&peer.socket, &Message::RequestMemory { bytes: taking.bytes }, None);
            peer.complete(&Completion::MemoryRequest);
            let mut reply = [0; MESSAGE_BYTES];
            let Ok((MESSAGE_BYTES, fd)) = peer.socket.receive(&mut reply) else { std::process::exit(0) };
            match (Message::decode(&reply), fd) {
                (Ok(Message::Memory { number }), Some(fd)) => {
                    fcntl_add_seals(&fd, sealed()).unwrap();
                    memory = number;
                }
                // Ends with the caller's own text, as an honest worker does.
                (Ok(Message::Denied { text }), _) => {
                    say(&peer.socket, &Message::Failed { text, seq: None }, None);
                    peer.complete(&Completion::Failed);
                    stay()
                }
                _ => std::process::exit(0),
            }
        }
        say(&peer.socket, &Message::PoolMemory { pool: number, memory }, None);
        let (slots, slot_bytes, first_slot) = (1, taking.bytes, 0);
        peer.complete(&Completion::Pool { pool: number, slots, slot_bytes, first_slot });
        peer.layout(layout());
        peer.complete(&Completion::Frame {
            picture: PictureFlags::default(),
            seq,
            pool: number,
            slot: 0,
            layout: 0,
            work: WorkerTime::default(),
        });
        number = number.wrapping_add(1);
    }
}

pub fn tests() -> impl Iterator<Item = (String, Test)> {
    TAKINGS.iter().flat_map(|taking| {
        taking.sinks.iter().map(move |(sink, code)| {
            let name = format!("a-caller-of-one-that-{}-and-ends-with-{code}", taking.name);
            (name, Box::new(move || bounded(taking, sink, *code)) as Test)
        })
    })
}

/// Resources of a process: bytes and number of its memfd mappings, and number of its descriptors.
#[derive(Clone, Copy, Debug, Default)]
struct Holdings {
    bytes: u64,
    mappings: usize,
    descriptors: usize,
}

fn bounded(taking: &Taking, sink: &str, code: i32) {
    let folder = tempfile::tempdir().unwrap();
    let worker = folder.path().join(taking.name);
    symlink(std::env::current_exe().unwrap(), &worker).unwrap();
    let clip = framepath_testkit::in_checkout("clips/h264-180p8-high.h264");
    let decode = format!("decode threads=1 host=process watchdog=10s memory={}MiB", MEMORY >> 20);
    let path = format!("file {} loop=6 host=inline ! {decode} ! {sink}", clip.display());
    let mut command = framepath_testkit::framepath(&["run", "--quiet", &path]);
    command.env("FRAMEPATH_WORKER", &worker);
    let child = command.spawn().unwrap();
    let (ended, watched) = channel();
    let most = watch(&child, watched);
    let ran = framepath_testkit::wait(child, &path);
    drop(ended);
    let most = most.join().unwrap();
    let ran = ran.ended(code);
    if code == 1 {
        // The limit that the caller sent to the worker.
        assert!(ran.stderr.contains(&format!("({MEMORY} bytes)")), "{ran:#?}");
    }
    let name = taking.name;
    println!("{name}: {most:?}");
    // Checks that the holdings grew, so that the following bounds are meaningful.
    assert!(most.bytes > 3 * taking.bytes && most.mappings > 3 && most.descriptors > 3, "{name}: {most:?}");
    assert!(most.bytes <= MEMORY + AREA, "{name}: {most:?}");
    assert!(most.mappings <= MAPPINGS && most.descriptors <= DESCRIPTORS, "{name}: {most:?}");
}

/// Starts a thread that samples the resources of `child` until the sender of `ended` is dropped. The
/// thread returns the maximum of each.
fn watch(child: &Child, ended: Receiver<()>) -> thread::JoinHandle<Holdings> {
    let process = Path::new("/proc").join(child.id().to_string());
    thread::spawn(move || {
        let mut most = Holdings::default();
        while ended.try_recv() == Err(TryRecvError::Empty) {
            let now = holdings(&process);
            most.bytes = most.bytes.max(now.bytes);
            most.mappings = most.mappings.max(now.mappings);
            most.descriptors = most.descriptors.max(now.descriptors);
            thread::sleep(Duration::from_millis(1));
        }
        most
    })
}

fn holdings(process: &Path) -> Holdings {
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    let sizes = maps.lines().filter(|line| line.contains("/memfd:framepath")).map(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        u64::from_str_radix(end, 16).unwrap() - u64::from_str_radix(start, 16).unwrap()
    });
    let sizes: Vec<u64> = sizes.collect();
    let descriptors = fs::read_dir(process.join("fd")).map_or(0, Iterator::count);
    Holdings { bytes: sizes.iter().sum(), mappings: sizes.len(), descriptors }
}
