// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a file can make its caller take: little, whatever it claims to be.

use std::fs;

use crate::ffmpeg;
use crate::harness::{framepath, wait};

/// Most memory of the caller, bytes.
const MOST: u64 = 100 << 20;

/// Four tracks that a demuxer looks into by decoding a picture of 141 megapixels
/// each.
#[test]
fn four_huge_tracks_take_no_memory_of_the_caller() {
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
            // Until it has ended: a zombie has no memory to tell of.
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

/// Peak resident memory; `None` where the process has ended.
fn peak_of(status: &str) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().split(' ').next()?.parse::<u64>().ok()? << 10)
}
