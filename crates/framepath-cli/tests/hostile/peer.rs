// SPDX-License-Identifier: MIT OR Apache-2.0
//! The worker's side of the protocol, played by test code.

use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use framepath_model::format::{Layout, PixelFormat};
use framepath_model::orientation::Orientation;
use framepath_model::stream::{PictureFlags, Rational, StreamInfo};
use framepath_model::wire::{Completion, MESSAGE_BYTES, Message, Open, Submission, WorkerTime};
use framepath_os::crossing::{CellReader, CellWriter, SharedArea, Sizes, Socket, completions, submissions};
use framepath_os::process::sandbox::{Layer, LayerState, Layers};
use framepath_os::process::spawn::take_socket;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::act::ACTS;

/// A word of the shared area. The value is the number of its line of 128 bytes in `crossing::area`.
#[derive(Clone, Copy)]
pub enum Word {
    SubmissionTail = 0,
    SubmissionHead = 1,
    CompletionTail = 2,
    CompletionHead = 3,
    WorkerBell = 4,
    CallerBell = 5,
    RoomBell = 6,
    CompletionRoomBell = 7,
    PacketBell = 8,
    PacketsReleased = 9,
    SlotBell = 10,
}

pub const WORDS: [Word; 10] = [
    Word::SubmissionHead,
    Word::CompletionTail,
    Word::CompletionHead,
    Word::WorkerBell,
    Word::CallerBell,
    Word::RoomBell,
    Word::CompletionRoomBell,
    Word::PacketBell,
    Word::PacketsReleased,
    Word::SlotBell,
];

/// Hostile worker that is ready and has a stream.
pub struct Peer {
    pub socket: Socket,
    pub writer: CellWriter,
    pub reader: CellReader,
    /// File of the shared area, for writes at any offset.
    pub words: File,
    pub area: Arc<SharedArea>,
}

/// Plays the act named by the file name of `own`. If a link `honest` is beside `own`, only the first
/// process plays the act; the others execute the program behind the link.
pub fn run(own: &Path) -> ! {
    let honest = own.with_file_name("honest");
    if honest.exists() && File::create_new(own.with_file_name("taken")).is_err() {
        let arguments = std::env::args_os().skip(1);
        panic!("{}", Command::new(honest.read_link().unwrap()).args(arguments).exec());
    }
    let name = own.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut acts =
        ACTS.iter().chain(super::demuxer::ACTS).chain(super::pools::ACTS).chain(super::flush::ACTS);
    let act = acts.find(|act| act.name == name).expect("a known act");
    let socket = Socket::from(take_socket().unwrap());
    (act.play)(socket);
    std::process::exit(0)
}

/// Sleeps until this process is killed.
pub fn stay() -> ! {
    loop {
        sleep(Duration::from_secs(3600));
    }
}

pub fn say(socket: &Socket, message: &Message, fd: Option<BorrowedFd<'_>>) {
    let mut bytes = [0; MESSAGE_BYTES];
    message.encode(&mut bytes);
    if socket.send(&bytes, fd).is_err() {
        std::process::exit(0);
    }
}

pub fn ready(socket: &Socket) {
    // Claims that every layer is in force, as a hostile worker would.
    let all = Layer::ALL.into_iter().fold(Layers::default(), |all, layer| all.with(layer, LayerState::Given));
    say(socket, &Message::Ready { layers: all.bits() }, None);
}

/// Waits for the message that opens the stream. Returns the message and the shared area's descriptor;
/// exits at another message or the end of the connection.
pub fn hear_open(socket: &Socket) -> (Open, OwnedFd) {
    let mut bytes = [0; MESSAGE_BYTES];
    let Ok((MESSAGE_BYTES, Some(fd))) = socket.receive(&mut bytes) else { std::process::exit(0) };
    match Message::decode(&bytes) {
        Ok(Message::Open(open)) => (open, fd),
        _ => std::process::exit(0),
    }
}

/// Opens a stream as an honest worker would, and waits for the first input.
pub fn opened(socket: Socket) -> Peer {
    let mut peer = opened_quietly(socket, true);
    peer.next();
    peer
}

pub fn opened_quietly(socket: Socket, replayable: bool) -> Peer {
    ready(&socket);
    let (open, fd) = hear_open(&socket);
    let words = File::from(fd.try_clone().unwrap());
    let sizes = Sizes { cells: open.cells, packet_bytes: open.packet_bytes };
    let area = Arc::new(SharedArea::open(fd, sizes).unwrap());
    let stream = StreamInfo {
        format: Some(PixelFormat::Yuv420p),
        width: 64,
        height: 36,
        time_base: Rational::new(1, 30),
        frame_rate: Rational::new(30, 1),
        sample_aspect: Rational::new(1, 1),
        orientation: Orientation::Upright,
    };
    say(&socket, &Message::Opened { threads: 1, stream, replayable, takes_packets: true }, None);
    let (writer, reader) = (completions(&area).0, submissions(&area).1);
    Peer { socket, writer, reader, words, area }
}

impl Peer {
    /// Waits for the next input of the worker, and returns it. Exits if the ring is invalid.
    pub fn next(&mut self) -> Submission {
        loop {
            match self.reader.pop() {
                Ok(Some(cell)) => return Submission::decode(&cell).unwrap(),
                Ok(None) => {
                    self.reader.sleep(|| false, Some(Duration::from_secs(1)));
                }
                Err(_) => std::process::exit(0),
            }
        }
    }

    /// Writes a completion; waits while the ring is full.
    pub fn complete(&mut self, completion: &Completion) {
        self.cell(completion.encode());
    }

    pub fn cell(&mut self, cell: [u64; 8]) {
        while !self.writer.push(&cell).unwrap_or_else(|_| std::process::exit(0)) {
            std::thread::yield_now();
        }
    }

    pub fn set(&self, word: Word, value: u64) {
        self.words.write_all_at(&value.to_le_bytes(), word as u64 * 128).unwrap();
    }

    pub fn get(&self, word: Word) -> u64 {
        let mut bytes = [0; 8];
        self.words.read_exact_at(&mut bytes, word as u64 * 128).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Requests memory; returns its number and descriptor. Exits if the caller denies the request.
    pub fn want_memory(&mut self, bytes: u64) -> (u32, OwnedFd) {
        say(&self.socket, &Message::RequestMemory { bytes }, None);
        self.complete(&Completion::MemoryRequest);
        let mut reply = [0; MESSAGE_BYTES];
        let Ok((MESSAGE_BYTES, Some(fd))) = self.socket.receive(&mut reply) else { std::process::exit(0) };
        match Message::decode(&reply) {
            Ok(Message::Memory { number }) => (number, fd),
            _ => std::process::exit(0),
        }
    }

    /// Announces pool `number` with four slots in valid memory.
    pub fn pool(&mut self, number: u16) {
        self.pool_of(number, 4 * slot_bytes(), sealed(), 4, slot_bytes());
    }

    /// Announces a pool in granted memory of `bytes` bytes, with `seals` added.
    pub fn pool_of(&mut self, number: u16, bytes: u64, seals: SealFlags, slots: u32, slot_bytes: u64) {
        let (memory, fd) = self.want_memory(bytes);
        fcntl_add_seals(&fd, seals).unwrap();
        say(&self.socket, &Message::PoolMemory { pool: number, memory }, None);
        self.complete(&Completion::Pool { pool: number, slots, slot_bytes, first_slot: 0 });
    }

    pub fn layout(&mut self, layout: Layout) {
        self.complete(&Completion::Layout { id: 0, layout });
    }

    /// Announces the valid pool 0 and a valid layout, as an honest worker does before its first frame.
    pub fn names(&mut self) {
        self.pool(0);
        self.layout(layout());
    }

    pub fn frame(&mut self, seq: u64, slot: u32) {
        self.complete(&frame(seq, slot));
    }
}

pub fn frame(seq: u64, slot: u32) -> Completion {
    Completion::Frame {
        picture: PictureFlags::default(),
        seq,
        pool: 0,
        slot,
        layout: 0,
        work: WorkerTime::default(),
    }
}

pub fn layout() -> Layout {
    Layout::packed(PixelFormat::Yuv420p, 64, 36).unwrap()
}

pub fn slot_bytes() -> u64 {
    layout().size as u64
}

pub fn sealed() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL
}

pub fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, bytes).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

/// Generator of reproducible pseudo-random numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
