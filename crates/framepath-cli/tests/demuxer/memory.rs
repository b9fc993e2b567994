// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that a file can make its caller allocate is bounded.

use std::fs;
use std::path::Path;

use crate::{ffmpeg, frames_of};
use framepath_testkit::{finish, framepath, in_checkout, wait};

/// Limit of the caller's peak resident memory, in bytes.
const MOST: u64 = 100 << 20;

/// A demuxer decodes a picture of 141 megapixels for each of the four tracks while it
/// probes the file.
#[test]
fn four_huge_tracks_allocate_no_memory_in_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let (one, four) = (folder.path().join("one.mkv"), folder.path().join("four.mkv"));
    let (one, four) = (one.to_str().unwrap(), four.to_str().unwrap());
    let source = "color=size=16384x8640:rate=1,format=yuv420p";
    let encoder = ["-frames:v", "1", "-c:v", "libx264", "-preset", "ultrafast", "-threads", "1"];
    ffmpeg(&[&["-f", "lavfi", "-i", source][..], &encoder, &[one]].concat());
    ffmpeg(&["-i", one, "-map", "0", "-map", "0", "-map", "0", "-map", "0", "-c", "copy", four]);
    for memory in ["64MiB", "4GiB"] {
        let path = format!("file {four} ! decode host=process memory={memory} threads=1 ! null");
        let child = framepath(&["run", &path]).spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        let watcher = std::thread::spawn(move || {
            let mut most = 0;
            // Polls until the process has ended: a zombie has no memory figures.
            while let Some(peak) = peak_of(&status) {
                most = most.max(peak);
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            most
        });
        let ran = wait(child, &path);
        let most = watcher.join().unwrap();
        assert!(matches!(ran.code, Some(0 | 1)), "{ran:#?}");
        assert!(!ran.stderr.contains("panicked"), "{ran:#?}");
        println!("memory={memory}: the caller's peak is {} KiB; exit {:?}", most >> 10, ran.code);
        assert!((1 << 20..=MOST).contains(&most), "memory={memory}: {most} bytes");
    }
}

/// Returns the peak resident memory in bytes; `status` is the process's status file in /proc. `None`
/// if the process has ended.
fn peak_of(status: &str) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().split(' ').next()?.parse::<u64>().ok()? << 10)
}

/// libavformat's Matroska demuxer drops a block if it has no memory for the block, and
/// continues: the frames of that cluster would be missing.
#[test]
fn a_demuxer_without_memory_for_a_block_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large-block.mkv");
    fs::write(&file, matroska(Large::Block(80 << 20))).unwrap();
    let file = file.to_str().unwrap();
    let frames = |memory: &str, code: i32| {
        let listing = folder.path().join(format!("{memory}.framemd5"));
        let listing = listing.to_str().unwrap();
        let path =
            format!("file {file} ! decode host=process memory={memory} threads=1 ! framemd5 {listing}");
        let ran = finish(framepath(&["run", "--quiet", &path])).ended(code);
        (frames_of(Path::new(listing)), ran.stderr)
    };
    let (whole, stderr) = frames("1GiB", 0);
    assert_eq!((whole.len(), stderr.as_str()), (30, ""));
    let (some, stderr) = frames("64MiB", 1);
    assert!(stderr.contains("out of memory") && stderr.contains(file), "{stderr}");
    assert!(some.len() < 30 && some == whole[..some.len()], "{some:#?}");
}

/// Without memory for a track's description, the demuxer would continue with another track.
#[test]
fn a_demuxer_without_memory_for_a_track_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large-track.mkv");
    fs::write(&file, matroska(Large::Track(80 << 20))).unwrap();
    let path = format!("file {} ! decode host=process memory=64MiB ! framemd5 -", file.display());
    let ran = finish(framepath(&["run", "--quiet", &path])).ended(1).prints("out of memory");
    assert_eq!(ran.frames().len(), 0, "{ran:#?}");
}

/// The part of a file that needs much memory.
enum Large {
    /// A block of a sound track in the second cluster; its length in bytes.
    Block(usize),
    /// The codec data of a video track before the track with the frames; its length in bytes.
    Track(usize),
}

/// Returns a Matroska file of a clip's VP9 frames in clusters of ten, with the large part.
fn matroska(large: Large) -> Vec<u8> {
    let ivf = fs::read(in_checkout("clips/vp9-180p8.ivf")).unwrap();
    let number = |at: usize, length: usize| {
        ivf[at..at + length].iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
    };
    let side = |id, at: usize| element(id, &(number(at, 2) as u16).to_be_bytes());
    let track = |number: u8, content: &[Vec<u8>]| {
        let head = [element(0xd7, &[number]), element(0x73c5, &[number]), element(0x83, &[number])];
        element(0xae, &[head.concat(), content.concat()].concat())
    };
    let vp9 = || vec![element(0x86, b"V_VP9"), element(0xe0, &[side(0xb0, 12), side(0xba, 14)].concat())];
    let video = track(1, &vp9());
    let sound = track(2, &[element(0x86, b"A_PCM/INT/LIT"), element(0xe1, &element(0x6264, &[16]))]);
    let mut tracks = element(0x1654_ae6b, &[video, sound].concat());
    if let Large::Track(bytes) = large {
        let one = track(3, &[vp9(), vec![element(0x63a2, &vec![0; bytes])]].concat());
        tracks = [element(0x1654_ae6b, &one), tracks].concat();
    }
    let mut file = element(0x1a45_dfa3, &element(0x4282, b"webm"));
    // A segment of unknown size.
    file.extend([0x18, 0x53, 0x80, 0x67, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    file.extend(element(0x1549_a966, &element(0x2a_d7b1, &1_000_000_u32.to_be_bytes())));
    file.extend(tracks);
    let mut at = number(6, 2);
    for cluster in 0..3_u16 {
        let mut content = element(0xe7, &(cluster * 330).to_be_bytes());
        for frame in 0..10_u16 {
            let length = number(at, 4);
            let key = if (cluster, frame) == (0, 0) { 0x80 } else { 0 };
            let [high, low] = (frame * 33).to_be_bytes();
            content
                .extend(element(0xa3, &[&[0x81, high, low, key], &ivf[at + 12..at + 12 + length]].concat()));
            at += 12 + length;
            if let (Large::Block(bytes), (1, 4)) = (&large, (cluster, frame)) {
                content.extend(element(0xa3, &[&[0x82, high, low, 0x80][..], &vec![0; bytes - 4]].concat()));
            }
        }
        file.extend(element(0x1f43_b675, &content));
    }
    file
}

/// Returns an EBML element (RFC 8794), whose length field has eight bytes.
fn element(id: u32, content: &[u8]) -> Vec<u8> {
    let id: Vec<u8> = id.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
    let length = (content.len() as u64 | 1 << 56).to_be_bytes();
    [&id, &length[..], content].concat()
}
