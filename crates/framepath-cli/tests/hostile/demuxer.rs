// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks of hostile demuxers, one act each.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use framepath_codec::{Codec, TrackInfo};
use framepath_model::orientation::Orientation;
use framepath_model::stream::{PictureFlags, Preroll, Rational, StreamInfo};
use framepath_model::wire::{Completion, Demux, MESSAGE_BYTES, Message, WorkerTime};
use framepath_os::crossing::{
    CellWriter, PACKET_IDS, PacketPool, Placed, SharedArea, Sizes, Socket, completions,
};

use super::act::{Act, Part, Then, endlessly};
use super::peer::{Random, WORDS, ready, say, stay};

const fn file(name: &'static str, then: Then, play: fn(Socket)) -> Act {
    Act { name, part: Part::File, then, play }
}

/// Hostile demuxer that has received its file.
struct Peer {
    socket: Socket,
    writer: CellWriter,
    area: Arc<SharedArea>,
    /// File of the shared area, for writes at any offset.
    words: File,
}

fn hear(socket: &Socket) -> (Message, OwnedFd) {
    let mut bytes = [0; MESSAGE_BYTES];
    match socket.receive(&mut bytes) {
        Ok((MESSAGE_BYTES, Some(fd))) => (Message::decode(&bytes).unwrap(), fd),
        _ => std::process::exit(0),
    }
}

fn given(socket: Socket) -> Peer {
    ready(&socket);
    let (Message::File { .. }, _file) = hear(&socket) else { std::process::exit(0) };
    let (Message::Demux(Demux { cells, packet_bytes, .. }), memory) = hear(&socket) else {
        std::process::exit(0)
    };
    let words = File::from(memory.try_clone().unwrap());
    let area = Arc::new(SharedArea::open(memory, Sizes { cells, packet_bytes }).unwrap());
    Peer { socket, writer: completions(&area).0, area, words }
}

fn stream() -> StreamInfo {
    StreamInfo {
        format: None,
        width: 64,
        height: 36,
        time_base: Rational::new(1, 30),
        frame_rate: Rational::new(30, 1),
        sample_aspect: Rational::new(1, 1),
        orientation: Orientation::Upright,
    }
}

impl Peer {
    /// Describes an H.264 track, as an honest demuxer would. Returns this demuxer, and the pool for its
    /// packets.
    fn open(self) -> (Peer, PacketPool) {
        let track = TrackInfo::from_codec(Codec::H264, stream()).unwrap().to_bytes();
        let pool = PacketPool::new(self.area.clone(), &track).unwrap();
        self.demuxed(track.len() as u32);
        (self, pool)
    }

    fn demuxed(&self, track_bytes: u32) {
        say(&self.socket, &Message::Demuxed { track_bytes, stream: stream(), duration_ns: u64::MAX }, None);
    }

    fn cell(&mut self, cell: [u64; 8]) {
        while !self.writer.push(&cell).unwrap_or_else(|_| std::process::exit(0)) {
            std::thread::yield_now();
        }
    }

    fn packet(&mut self, offset: u64, len: u32, id: u32) {
        let (pts, duration, key, transit) = (Some(0), 1, true, false);
        let preroll = Preroll::default();
        self.cell(
            Completion::Packet {
                is_damaged: false,
                pts,
                duration,
                offset,
                len,
                id,
                key,
                transit,
                preroll,
                lost: 0,
            }
            .encode(),
        );
    }
}

/// Returns an act that describes an H.264 track, then writes one cell.
fn cell(completion: Completion) -> impl Fn(Socket) {
    move |socket| {
        let (mut peer, _pool) = given(socket).open();
        peer.cell(completion.encode());
        stay()
    }
}

/// Returns an act that describes an H.264 track, then sends one invalid packet.
fn packet(offset: u64, len: u32, id: u32) -> impl Fn(Socket) {
    move |socket| {
        let (mut peer, _pool) = given(socket).open();
        peer.packet(offset, len, id);
        stay()
    }
}

pub const ACTS: &[Act] = &[
    file("takes-the-file-and-exits", Then::Opening, |socket| drop(given(socket))),
    file("takes-the-file-and-says-nothing", Then::Opening, |socket| {
        let _peer = given(socket);
        stay()
    }),
    file("computes-before-it-is-open", Then::Opening, |socket| {
        let _peer = given(socket);
        endlessly(|| {
            std::hint::black_box(0);
        })
    }),
    file("describes-a-track-without-end", Then::Opening, |socket| {
        given(socket).demuxed(u32::MAX);
        stay()
    }),
    file("describes-a-track-beyond-the-area", Then::Opening, |socket| {
        given(socket).demuxed(4 << 20);
        stay()
    }),
    file("describes-no-codec", Then::Opening, |socket| {
        let peer = given(socket);
        let _pool = PacketPool::new(peer.area.clone(), &[0xff; 64]).unwrap();
        peer.demuxed(64);
        stay()
    }),
    file("describes-a-head-of-noise", Then::Anything, |socket| {
        let peer = given(socket);
        let mut random = Random(7);
        let mut track = TrackInfo::from_codec(Codec::H264, stream()).unwrap().to_bytes();
        track.extend((0..4096).map(|_| random.next() as u8));
        let _pool = PacketPool::new(peer.area.clone(), &track).unwrap();
        peer.demuxed(track.len() as u32);
        stay()
    }),
    file("opens-as-a-stage", Then::Opening, |socket| {
        let peer = given(socket);
        let opened = Message::Opened { threads: 1, stream: stream(), replayable: true, takes_packets: true };
        say(&peer.socket, &opened, None);
        stay()
    }),
    file("exits-when-demuxing", Then::Broken, |socket| drop(given(socket).open())),
    file("computes-for-ever", Then::Broken, |socket| {
        let _peer = given(socket).open();
        endlessly(|| {
            std::hint::black_box(0);
        })
    }),
    file("gives-nothing", Then::Broken, |socket| {
        let _peer = given(socket).open();
        stay()
    }),
    file("a-packet-outside", Then::Broken, |socket| packet(u64::MAX - u64::from(u32::MAX), 1, 0)(socket)),
    file("a-packet-of-4-gib", Then::Broken, |socket| packet(0, u32::MAX, 0)(socket)),
    file("a-packet-of-no-id", Then::Broken, |socket| packet(0, 1, PACKET_IDS)(socket)),
    file("a-packet-of-the-last-id", Then::Broken, |socket| packet(0, 1, u32::MAX)(socket)),
    file("two-packets-of-one-id", Then::Anything, |socket| {
        let (mut peer, _pool) = given(socket).open();
        // No decoder understands the packet, and a stream does not end for that.
        for _ in 0..2000 {
            peer.packet(0, 1, 3);
        }
        peer.cell(Completion::End.encode());
        stay()
    }),
    file("a-frame", Then::Broken, |socket| {
        cell(Completion::Frame {
            picture: PictureFlags::default(),
            seq: 0,
            pool: 0,
            slot: 0,
            layout: 0,
            work: WorkerTime::default(),
        })(socket)
    }),
    file("a-pool", Then::Broken, |socket| {
        cell(Completion::Pool { pool: 0, slots: 4, slot_bytes: 4096, first_slot: 0 })(socket)
    }),
    file("a-want", Then::Broken, |socket| cell(Completion::MemoryRequest)(socket)),
    file("a-failure-without-a-word", Then::Broken, |socket| cell(Completion::Failed)(socket)),
    file("a-failure-in-colours", Then::Broken, |socket| {
        let (mut peer, _pool) = given(socket).open();
        let text = "\x1b[31mred\x07\n\u{202e}".to_owned();
        say(&peer.socket, &Message::Failed { text, seq: None }, None);
        peer.cell(Completion::Failed.encode());
        stay()
    }),
    file("an-end-at-once", Then::Anything, |socket| cell(Completion::End)(socket)),
    file("cells-of-noise", Then::Broken, |socket| {
        let (mut peer, _pool) = given(socket).open();
        let mut random = Random(11);
        endlessly(|| peer.cell([(); 8].map(|()| random.next())))
    }),
    file("positions-of-noise", Then::Broken, |socket| {
        let (peer, _pool) = given(socket).open();
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        endlessly(|| {
            let word = WORDS[random.next() as usize % WORDS.len()];
            let value = random.next() >> (random.next() % 64);
            peer.words.write_all_at(&value.to_le_bytes(), word as u64 * 128).unwrap();
        })
    }),
    file("packets-of-noise", Then::Anything, |socket| {
        let (mut peer, mut pool) = given(socket).open();
        let mut random = Random(13);
        for _ in 0..500 {
            let bytes: Vec<u8> = (0..random.next() % 5000).map(|_| random.next() as u8).collect();
            while let Ok(placed) = pool.push(&bytes) {
                if let Some(Placed { offset, id, .. }) = placed {
                    peer.packet(offset, bytes.len() as u32, id);
                    break;
                }
                pool.wait(None);
            }
        }
        peer.cell(Completion::End.encode());
        stay()
    }),
    file("packets-that-change", Then::Anything, |socket| {
        let (mut peer, mut pool) = given(socket).open();
        let words = peer.words.try_clone().unwrap();
        let packets = words.metadata().unwrap().len() - peer.area.sizes().packet_bytes;
        std::thread::spawn(move || {
            let mut random = Random(17);
            endlessly(|| {
                let (place, byte) = (random.next() % (64 << 10), random.next() as u8);
                words.write_all_at(&[byte], packets + 4096 + place).unwrap();
            })
        });
        for _ in 0..500 {
            while let Ok(placed) = pool.push(&[0, 0, 1, 0x67, 0x42, 0, 0x1e, 0xab, 0x40, 0x50]) {
                if let Some(Placed { offset, id, .. }) = placed {
                    peer.packet(offset, 10, id);
                    break;
                }
                pool.wait(None);
            }
        }
        peer.cell(Completion::End.encode());
        stay()
    }),
];
