// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that no code writes to the slot of a frame that is held, and tests of the errors of a pool
//! with too few slots.

mod common;

use common::{Clips, FRAMES, decode, hash, options, reference};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use framepath_codec::{
    CodecError, Decoder, DecoderOptions, DecoderOutput, DecoderThreads, Demuxer, OutputFormat,
};

const CLIPS: [(&str, &str); 4] = [
    ("a.mp4", "-c:v libx264 -bf 3 -refs 6 -pix_fmt yuv420p"),
    ("b.webm", "-c:v libvpx-vp9 -b:v 200k -deadline realtime"),
    ("c.webm", "-c:v libvpx -b:v 200k"),
    ("d.ivf", "-c:v libsvtav1 -preset 10 -crf 40 -pix_fmt yuv420p"),
];

#[test]
fn held_frames_keep_their_pixels_while_decoding_goes_on() {
    let clips = Clips::new();
    for (name, encoder) in CLIPS {
        let path = clips.make(name, "160x90", encoder);
        for (output, format) in [(OutputFormat::Native, "yuv420p"), (OutputFormat::Nv12, "nv12")] {
            let wanted = reference(&path, format);
            for threads in [1, 2] {
                let options = DecoderOptions { downstream_frames: FRAMES as u32, ..options(threads, output) };
                let mut held = Vec::new();
                decode(&path, &options, |frame| held.push(frame)).unwrap();
                let got: Vec<_> = held.iter().map(hash).collect();
                assert_eq!(got, wanted, "{name}, {output}, {threads} threads");
            }
        }
    }
}

#[test]
fn frames_dropped_late_by_another_thread_are_back_pressure() {
    let clips = Clips::new();
    let path = clips.make("a.mp4", "160x90", "-c:v libx264 -profile:v baseline -refs 1 -pix_fmt yuv420p");
    let wanted = reference(&path, "nv12");
    for threads in [1, 2] {
        let options = DecoderOptions { pool_slots: Some(12), ..options(threads, OutputFormat::Nv12) };
        let (give, take) = std::sync::mpsc::sync_channel(64);
        let reader = std::thread::spawn(move || {
            let mut hashes = Vec::new();
            for frame in take {
                std::thread::sleep(std::time::Duration::from_millis(2));
                hashes.push(hash(&frame));
            }
            hashes
        });
        decode(&path, &options, |frame| give.send(frame).unwrap()).unwrap();
        drop(give);
        assert_eq!(reader.join().unwrap(), wanted);
    }
}

#[test]
fn a_pool_that_is_too_small_is_named() {
    let clips = Clips::new();
    for (name, encoder) in CLIPS {
        let path = clips.make(name, "160x90", encoder);
        for threads in [1, 2] {
            let options = DecoderOptions { pool_slots: Some(1), ..options(threads, OutputFormat::Native) };
            let mut frames = 0;
            let result = decode(&path, &options, |_| frames += 1);
            match result {
                Err(CodecError::PoolTooSmall { slots: 1, advised, .. }) => assert!(advised > 8, "{name}"),
                other => panic!("{name}, {threads} threads: {other:?}"),
            }
            assert!(frames < FRAMES);
        }
    }
}

/// After the error of a pool with too few slots, the advised number of slots is sufficient. The
/// frames before the error are those of the stream.
#[test]
fn a_pool_that_is_a_little_too_small_gives_what_it_can() {
    let clips = Clips::new();
    for (name, encoder) in CLIPS {
        let path = clips.make(name, "160x90", encoder);
        let wanted = reference(&path, "yuv420p");
        for slots in 2..10 {
            let options = DecoderOptions {
                pool_slots: Some(slots),
                threads: DecoderThreads::Count(1),
                ..DecoderOptions::default()
            };
            let mut got = Vec::new();
            let advised = match decode(&path, &options, |frame| got.push(hash(&frame))) {
                Err(CodecError::PoolTooSmall { advised, .. }) => advised,
                Ok(()) => {
                    assert_eq!(got, wanted, "{name}, {slots} slots");
                    break;
                }
                Err(other) => panic!("{name}, {slots} slots: {other}"),
            };
            assert_eq!(got, wanted[..got.len()], "{name}, {slots} slots");
            let mut got = Vec::new();
            let options = DecoderOptions { pool_slots: Some(advised), ..options };
            decode(&path, &options, |frame| got.push(hash(&frame))).unwrap();
            assert_eq!(got, wanted, "{name}, {advised} slots");
        }
    }
}

enum Told {
    Dropping,
    Dropped,
}

/// The caller drops the decoder while it holds all frames and a thread of the library waits in the
/// pool for one of them.
#[test]
fn a_decoder_is_dropped_while_all_its_frames_are_held() {
    let clips = Clips::new();
    let path = clips.make("a.mp4", "160x90", "-c:v libx264 -profile:v baseline -refs 1 -pix_fmt yuv420p");
    let wanted = reference(&path, "yuv420p");
    let options = DecoderOptions { pool_slots: Some(8), ..options(3, OutputFormat::Native) };
    let mut dropped_with_frames_held = 0;
    for packets in 1..FRAMES {
        let held = Arc::new(Mutex::new(Vec::new()));
        let (tell, told) = std::sync::mpsc::channel();
        let mut demuxer = Demuxer::open(&path).unwrap();
        let mut decoder = Decoder::open(demuxer.info(), &options).unwrap();
        let frames = held.clone();
        let caller = std::thread::spawn(move || {
            for _ in 0..packets {
                decoder.send(demuxer.read().unwrap().unwrap()).unwrap();
                while let DecoderOutput::Frame(frame) = decoder.receive().unwrap() {
                    frames.lock().unwrap().push(frame);
                }
            }
            tell.send(Told::Dropping).unwrap();
            drop(decoder);
            tell.send(Told::Dropped).unwrap();
        });
        let first = loop {
            match told.recv_timeout(Duration::from_millis(100)) {
                Ok(first) => break first,
                // The caller itself waits for one of the frames, as expected.
                Err(RecvTimeoutError::Timeout) => held.lock().unwrap().clear(),
                Err(RecvTimeoutError::Disconnected) => panic!("the caller failed"),
            }
        };
        assert!(matches!(first, Told::Dropping));
        let end = told.recv_timeout(Duration::from_secs(60));
        assert!(matches!(end, Ok(Told::Dropped)), "{packets} packets: the decoder's end waits for a frame");
        caller.join().unwrap();
        let held = held.lock().unwrap();
        dropped_with_frames_held += usize::from(held.len() > 3);
        let hashes: Vec<_> = held.iter().map(hash).collect();
        assert!(wanted.ends_with(&hashes) || wanted.windows(hashes.len().max(1)).any(|w| w == hashes));
    }
    assert!(dropped_with_frames_held > 0, "no round came to the point");
}
