// SPDX-License-Identifier: MIT OR Apache-2.0
//! The caller's side of the protocol, played by test code against a real worker.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use framepath_codec::{Demuxer, Packet};
use framepath_model::format::Layout;
use framepath_model::orientation::Orientation;
use framepath_model::stream::{PictureFlags, Preroll, Rational, StreamInfo};
use framepath_model::wire::{Completion, EncoderRequests, MESSAGE_BYTES, Message, Open, Submission};
use framepath_os::crossing::{
    CellReader, CellWriter, PacketArea, SharedArea, Sizes, Socket, completions, submissions,
};
use framepath_os::memory::commit;
use framepath_os::memory::pool::GiveBackWords;
use framepath_os::process::children::ResourceUsage;
use framepath_os::process::spawn::{WorkerProcess, spawn};

use super::peer::Word;

/// Timeout of every operation of a worker; a worker that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Size of the packet area in bytes: several times the largest packet of the clip.
pub const PACKET_BYTES: u64 = 1 << 20;

/// A worker of `framepath` in its sandbox, and the socket to it.
pub struct Caller {
    process: WorkerProcess,
    /// Caller's end of the socket to the worker; `None` after [`Caller::leave`].
    socket: Option<Arc<Socket>>,
}

/// Caller's side of a stream that is open in the worker.
pub struct Stream {
    pub area: Arc<SharedArea>,
    pub writer: CellWriter,
    pub reader: CellReader,
    pub packets: PacketArea,
    socket: Arc<Socket>,
    /// Number of memory grants sent so far.
    granted: u32,
    /// Function that returns the memory to grant for a request of a number of bytes; if it returns
    /// `None`, the request has no answer.
    pub grants: fn(u64) -> Option<OwnedFd>,
    /// File of the shared area, for writes at any offset.
    pub words: File,
    /// Packets of the clip.
    clip: Vec<Packet>,
    /// Number of submitted packets.
    next: u64,
    /// Number of received frames.
    pub frames: u64,
}

/// Message that opens a stream, the stream's shared area, and the packets to send.
pub struct Opening {
    pub open: Open,
    pub area: Arc<SharedArea>,
    packets: PacketArea,
    clip: Vec<Packet>,
}

impl Caller {
    /// Starts a worker and waits until the worker is ready. The worker ends with the calling thread.
    pub fn start() -> Caller {
        Caller::of(&["framepath-worker", "stage memory=1073741824"])
    }

    /// Starts a worker that decodes with a device, and waits until the worker is ready.
    pub fn of_device_worker() -> Caller {
        Caller::of(&["framepath-worker", "device memory=1073741824 /dev/null"])
    }

    fn of(args: &[&str]) -> Caller {
        let (ours, theirs) = Socket::pair().unwrap();
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        let program = Path::new(env!("CARGO_BIN_EXE_framepath"));
        let process = spawn(program, &args, theirs.as_fd()).unwrap();
        drop(theirs);
        let caller = Caller { process, socket: Some(Arc::new(ours)) };
        assert!(matches!(caller.hear(), Some(Message::Ready { .. })));
        caller
    }

    pub fn socket(&self) -> &Socket {
        self.socket.as_deref().expect("this side is there")
    }

    pub fn say(&self, message: &Message, fd: Option<BorrowedFd<'_>>) {
        let mut bytes = [0; MESSAGE_BYTES];
        message.encode(&mut bytes);
        self.send(&bytes, fd);
    }

    /// Sends a record. Ignores errors, because the worker may have ended.
    pub fn send(&self, record: &[u8], fd: Option<BorrowedFd<'_>>) {
        let _ = self.socket().send(record, fd);
    }

    /// Receives the worker's next message; `None` if the worker has ended. Panics after [`PATIENCE`].
    pub fn hear(&self) -> Option<Message> {
        assert!(self.socket().readable_within(PATIENCE).unwrap(), "the worker says nothing");
        let mut bytes = [0; MESSAGE_BYTES];
        match self.socket().receive(&mut bytes) {
            Ok((MESSAGE_BYTES, _)) => Some(Message::decode(&bytes).unwrap()),
            _ => None,
        }
    }

    /// Opens a stream as an honest caller does, with the changes of `change` to the
    /// message. Returns `None` if the worker rejects the message or exits.
    pub fn open(&self, stage: &str, change: impl FnOnce(&mut Open)) -> Option<Stream> {
        let mut opening = Opening::new(stage);
        change(&mut opening.open);
        self.say(&Message::Open(opening.open.clone()), Some(opening.area.fd()));
        match self.hear() {
            Some(Message::Opened { .. }) => Some(opening.stream(self.socket.clone().expect("this side"))),
            Some(Message::Refused { .. }) | None => None,
            other => panic!("{other:?}"),
        }
    }

    pub fn decode(&self) -> Stream {
        self.open("decode threads=2", |_| ()).expect("it opens")
    }

    /// Opens a stream of the stage `threshold`, which takes frames.
    pub fn threshold(&self) -> Stream {
        self.open("threshold level=99", |_| ()).expect("it opens")
    }

    /// Closes the caller's side of the socket.
    pub fn leave(&mut self) {
        if let Some(socket) = self.socket.take() {
            // The socket is also shut down, because a stream may hold a clone.
            socket.shut();
        }
    }

    /// Waits until the worker ends by itself, and returns its resource usage. Panics after [`PATIENCE`].
    pub fn ended(&mut self) -> ResourceUsage {
        let since = Instant::now();
        loop {
            if let Some(usage) = self.process.try_wait().unwrap() {
                return usage;
            }
            assert!(since.elapsed() < PATIENCE, "the worker hangs");
            sleep(Duration::from_millis(1));
        }
    }
}

impl Opening {
    pub fn new(stage: &str) -> Opening {
        let clip = framepath_testkit::in_checkout("clips/h264-180p8-high.h264");
        let mut demuxer = Demuxer::open(&clip).unwrap();
        let mut clip = Vec::new();
        while let Some(packet) = demuxer.read().unwrap() {
            clip.push(packet);
        }
        let takes_packets = stage.starts_with("decode");
        let sizes = Sizes { cells: 64, packet_bytes: if takes_packets { PACKET_BYTES } else { 0 } };
        let area = Arc::new(SharedArea::new(sizes).unwrap());
        let mut packets = PacketArea::new(area.clone());
        let track = if takes_packets { demuxer.info().to_bytes() } else { Vec::new() };
        assert!(!takes_packets || packets.keep(&track));
        let open = Open {
            stage: stage.to_owned(),
            level: 1,
            lent: false,
            track_bytes: track.len() as u32,
            frames_behind: 2,
            stream: if takes_packets { demuxer.info().stream } else { stream_info() },
            cells: sizes.cells,
            packet_bytes: sizes.packet_bytes,
            faults: String::new(),
        };
        Opening { open, area, packets, clip }
    }

    fn stream(self, socket: Arc<Socket>) -> Stream {
        let Opening { area, packets, clip, .. } = self;
        let words = File::from(area.fd().try_clone_to_owned().unwrap());
        let (writer, reader) = (submissions(&area).0, completions(&area).1);
        Stream {
            area,
            writer,
            reader,
            packets,
            socket,
            granted: 0,
            grants: |bytes| commit::grant(bytes).ok(),
            words,
            clip,
            next: 0,
            frames: 0,
        }
    }
}

/// Returns the description of a stream of frames with the layout of `peer::layout`.
fn stream_info() -> StreamInfo {
    StreamInfo {
        format: Some(framepath_model::format::PixelFormat::Yuv420p),
        width: 64,
        height: 36,
        time_base: Rational::new(1, 30),
        frame_rate: Rational::new(30, 1),
        sample_aspect: Rational::new(1, 1),
        orientation: Orientation::Upright,
    }
}

impl Stream {
    /// Writes a cell to the ring of submissions; does nothing if the ring is full or invalid.
    pub fn cell(&mut self, cell: [u64; 8]) {
        let _ = self.writer.push(&cell);
    }

    pub fn submit(&mut self, submission: &Submission) {
        self.cell(submission.encode());
    }

    /// Submits a packet of `len` bytes at `offset` of the packet area; both may be invalid.
    pub fn packet_at(&mut self, offset: u64, len: u32) {
        self.submit(&Submission::Packet {
            is_damaged: false,
            seq: 0,
            pts: None,
            offset,
            len,
            key: true,
            preroll: Preroll::default(),
        });
    }

    /// Submits the next packet of the clip, which repeats without end. Returns false if the ring or the
    /// packet area has no room.
    pub fn feed(&mut self) -> bool {
        let packet = &self.clip[self.next as usize % self.clip.len()];
        if self.writer.room().unwrap_or(0) == 0 {
            return false;
        }
        let bytes = packet.bytes().unwrap();
        let Ok(Some(offset)) = self.packets.push(bytes) else { return false };
        let (seq, len, key) = (self.next, bytes.len() as u32, packet.is_key());
        self.submit(&Submission::Packet {
            is_damaged: false,
            seq,
            pts: Some(seq as i64),
            offset,
            len,
            key,
            preroll: Preroll::default(),
        });
        self.next += 1;
        true
    }

    /// Receives one completion; releases its frame, or answers its request for memory, immediately.
    /// `None` if there is no valid completion.
    pub fn take(&mut self) -> Option<Completion> {
        let cell = self.reader.pop().ok().flatten()?;
        let completion = Completion::decode(&cell).ok()?;
        match completion {
            Completion::Frame { slot, .. } => {
                self.frames += 1;
                self.give_back(slot);
            }
            Completion::MemoryRequest => self.grant(),
            _ => {}
        }
        Some(completion)
    }

    /// Receives a request for memory, and sends the memory that `grants` returns.
    fn grant(&mut self) {
        let mut bytes = [0; MESSAGE_BYTES];
        let Ok((MESSAGE_BYTES, _)) = self.socket.receive(&mut bytes) else { return };
        let Ok(Message::RequestMemory { bytes: wanted }) = Message::decode(&bytes) else { return };
        let Some(memory) = (self.grants)(wanted) else { return };
        Message::Memory { number: self.granted }.encode(&mut bytes);
        self.granted += 1;
        let _ = self.socket.send(&bytes, Some(memory.as_fd()));
    }

    /// Releases the frame in slot `slot` to the worker.
    pub fn give_back(&self, slot: u32) {
        let area = &self.area;
        let words = GiveBackWords::new(area.slot_bell(), area.slot_summary(), area.slot_counts());
        words.unwrap().give_back(slot);
    }

    /// Submits packets and receives completions for the time `limit`.
    pub fn work(&mut self, limit: Duration) {
        let since = Instant::now();
        while since.elapsed() < limit {
            if !self.feed() && self.take().is_none() {
                sleep(Duration::from_micros(100));
            }
        }
    }

    /// Decodes the clip once; panics if a frame is missing or the worker hangs.
    pub fn play(&mut self) {
        let (since, wanted) = (Instant::now(), self.clip.len() as u64);
        while self.next < wanted {
            assert!(since.elapsed() < PATIENCE, "no room");
            self.feed();
            self.take();
        }
        self.submit(&Submission::Drain);
        while !matches!(self.take(), Some(Completion::End)) {
            assert!(since.elapsed() < PATIENCE, "no end");
        }
        assert_eq!(self.frames, wanted);
    }

    pub fn set(&self, word: Word, value: u64) {
        self.words.write_all_at(&value.to_le_bytes(), word as u64 * 128).unwrap();
        // Wakes the worker, which may sleep.
        self.writer.bell().ring_out();
    }

    pub fn layout(&mut self, id: u8, layout: Layout) {
        self.submit(&Submission::Layout { id, layout });
    }

    pub fn frame(&mut self, pool: u16, slot: u32, layout: u8) {
        self.submit(&Submission::Frame {
            seq: 0,
            pts: None,
            pool,
            slot,
            layout,
            picture: PictureFlags::default(),
            requests: EncoderRequests::default(),
        });
    }
}
