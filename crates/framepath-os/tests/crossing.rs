// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes: one owns a pool, the other reads its frames and returns them while the owner
//! sleeps.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use framepath_model::format::Layout;
use framepath_model::stream::FrameMeta;
use framepath_os::memory::pool::{ForeignPool, Frame, GiveBack, GiveBackWords, Pool, PoolMemory, Returns};
use rustix::mm::{MapFlags, ProtFlags, mmap};

const SLOTS: u32 = 3;
const FRAMES: u64 = 500;
const BYTES: usize = 3 * 4096;
/// Environment variable with the reader's arguments: the owner's process id, and the owner's descriptors
/// of the control file and of the pool's memory.
const ARGUMENTS: &str = "FRAMEPATH_TEST_CROSSING";

/// Content of the control file, which both processes map: the words by which frames are returned.
#[repr(C)]
struct Control {
    waits: AtomicU32,
    counts: [AtomicU32; SLOTS as usize],
    summary: [AtomicU64; 1],
}

/// Maps the control file for as long as the process lives, and returns its words.
fn words(control: &File) -> GiveBackWords<'static> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address the kernel chooses, never unmapped;
    // any bytes are valid atomics, and the file is as long as a Control.
    let control = unsafe {
        let base = mmap(std::ptr::null_mut(), size_of::<Control>(), protection, MapFlags::SHARED, control, 0);
        &*base.unwrap().cast::<Control>()
    };
    GiveBackWords::new(&control.waits, &control.summary, &control.counts).unwrap()
}

fn pixels(seq: u64) -> Vec<u8> {
    (0..BYTES).map(|n| (seq as usize * 31 + n / 64) as u8).collect()
}

#[test]
fn frames_cross_to_another_process_and_back() {
    let control = framepath_os::memory::memory_file("test-control").unwrap();
    control.set_len(size_of::<Control>() as u64).unwrap();
    let give_back: &'static GiveBack = Box::leak(Box::new(GiveBack::new(words(&control))));
    let mut pool = Pool::new_shared(BYTES, SLOTS, give_back).unwrap();

    let mut next = |seq: u64| -> Frame {
        let mut frame = pool.acquire().unwrap();
        frame.plane_mut(0).copy_from_slice(&pixels(seq));
        frame.freeze(FrameMeta { seq, ..FrameMeta::default() })
    };
    let first = next(0);
    let PoolMemory { fd, slots, slot_bytes, .. } = first.read_only_memory().unwrap();
    assert_eq!((slots, slot_bytes), (SLOTS, BYTES));
    let mut reader = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "reader", "--ignored", "--nocapture"])
        .env(ARGUMENTS, format!("{} {} {}", std::process::id(), control.as_raw_fd(), fd.as_raw_fd()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut wire = reader.stdin.take().unwrap();
    let mut send = |frame: Frame, seq| {
        let slot = frame.export().unwrap().slot;
        writeln!(wire, "{slot} {seq}").unwrap();
    };
    send(first, 0);
    for seq in 1..FRAMES {
        let frame = next(seq);
        if seq % 7 == 0 {
            // Sent twice.
            send(frame.share(), seq);
        }
        send(frame, seq);
    }
    drop(wire);
    assert!(reader.wait().unwrap().success(), "the reader found something wrong");
    give_back.collect();
    assert_eq!((give_back.exported(), give_back.breaches()), (0, 0));
}

struct Back(GiveBackWords<'static>);

impl Returns for Back {
    fn give_back(&self, slot: u32) {
        self.0.give_back(slot);
    }
}

#[test]
#[ignore = "the other process of frames_cross_to_another_process_and_back"]
fn reader() {
    let arguments = std::env::var(ARGUMENTS).expect("started by the other test");
    let numbers: Vec<u32> = arguments.split(' ').map(|word| word.parse().unwrap()).collect();
    let path = |fd: u32| format!("/proc/{}/fd/{fd}", numbers[0]);
    let control = File::options().read(true).write(true).open(path(numbers[1])).unwrap();
    // Even a descriptor opened for writing provides no writable pixels.
    let memory = File::options().read(true).write(true).open(path(numbers[2])).unwrap();
    let writable = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: would be a new mapping at an address the kernel chooses.
    let refused = unsafe { mmap(std::ptr::null_mut(), BYTES, writable, MapFlags::SHARED, &memory, 0) };
    assert_eq!(refused.unwrap_err(), rustix::io::Errno::PERM);

    let back = Arc::new(Back(words(&control)));
    let pool = ForeignPool::new(memory.into(), BYTES, SLOTS, 0, back).unwrap();
    let (give, take) = std::sync::mpsc::channel::<Frame>();
    let dropper = std::thread::spawn(move || take.into_iter().for_each(drop));
    for line in BufReader::new(std::io::stdin()).lines() {
        let line = line.unwrap();
        let (slot, seq) = line.split_once(' ').unwrap();
        let meta = FrameMeta { seq: seq.parse().unwrap(), ..FrameMeta::default() };
        let frame = pool.frame(slot.parse().unwrap(), &Layout::opaque(BYTES), meta).unwrap();
        assert_eq!(frame.plane(0).to_vec(), pixels(frame.meta().seq));
        give.send(frame).unwrap();
    }
    drop(give);
    dropper.join().unwrap();
}
