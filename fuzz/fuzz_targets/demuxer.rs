// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz target of a demuxer's worker and its caller, in one process. The target opens a
//! file of arbitrary bytes, reads it to its end, and reads it again. It encodes the
//! description of the track and decodes it as the caller does.
//!
//! The first byte of the input selects the file's name and its type: a memfd, like a
//! descriptor sent to a worker, or a pipe, which cannot seek.
#![no_main]

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;

use framepath_codec::{Demuxer, MediaFile, TrackInfo};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, memfd_create};

/// File name extensions, by which libavformat guesses some containers.
const ENDINGS: [&str; 12] =
    ["mp4", "mkv", "avi", "ts", "flv", "ivf", "obu", "h264", "hevc", "ogg", "mxf", "bin"];
/// Maximum number of packets that one pass reads.
const MOST_PACKETS: usize = 2000;
/// Maximum number of bytes written into the pipe: less than its capacity of 64 KiB,
/// because the pipe is not read at the same time.
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
