// SPDX-License-Identifier: MIT OR Apache-2.0
//! A demuxer's worker and its caller, in one process: a file of any bytes is
//! opened, read to its end, and read again; what it says of its track is written
//! down and read back as the caller does.
//!
//! Packets are read from a memfd, as a worker reads a descriptor it was sent, or
//! from a pipe, which cannot seek.
#![no_main]

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;

use framepath_codec::{Demuxer, MediaFile, TrackInfo};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, memfd_create};

/// Ends of names: some containers are guessed by them.
const ENDINGS: [&str; 12] =
    ["mp4", "mkv", "avi", "ts", "flv", "ivf", "obu", "h264", "hevc", "ogg", "mxf", "bin"];
/// Packets of one reading.
const MOST_PACKETS: usize = 2000;
/// Bytes that a pipe takes without a reader.
const PIPE_BYTES: usize = 60 << 10;

fn read_all(demuxer: &mut Demuxer) -> usize {
    let mut packets = 0;
    while packets < MOST_PACKETS {
        match demuxer.read() {
            Ok(Some(packet)) => assert!(packet.bytes().is_some_and(|bytes| bytes.len() == packet.len())),
            Ok(None) | Err(_) => break,
        }
        packets += 1;
    }
    packets
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, bytes)) = bytes.split_first() else { return };
    let name = format!("file.{}", ENDINGS[usize::from(how >> 1) % ENDINGS.len()]);
    let seekable = how & 1 == 0;
    let file = if seekable {
        let mut file = File::from(memfd_create("file", MemfdFlags::CLOEXEC).expect("memory"));
        file.write_all(bytes).expect("memory");
        file.rewind().expect("it can seek");
        OwnedFd::from(file)
    } else {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        File::from(writer).write_all(&bytes[..bytes.len().min(PIPE_BYTES)]).expect("it fits");
        reader
    };
    let Ok(mut demuxer) = Demuxer::new(MediaFile::from_fd(file, name, seekable)) else { return };
    let described = demuxer.info().to_bytes();
    let track = TrackInfo::from_bytes(&described, demuxer.info().stream).expect("its own description");
    assert_eq!(track.to_bytes(), described);
    read_all(&mut demuxer);
    if demuxer.rewind().is_ok() {
        assert!(seekable);
        read_all(&mut demuxer);
    }
});
