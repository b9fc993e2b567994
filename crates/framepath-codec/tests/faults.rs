// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of bad input: the result is an error that names the object, never a panic.

mod common;

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use common::{Clips, FRAMES, decode, hash, options, reference, reference_of_damaged};
use framepath_codec::{
    CodecError, Decoder, DecoderOptions, DecoderThreads, Demuxer, MediaFile, OutputFormat,
};

fn open_error(path: &Path) -> String {
    Demuxer::open(path).expect_err("must not open").to_string()
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let clips = Clips::new();
    let folder = clips.path("folder");
    fs::create_dir(&folder).unwrap();
    assert_eq!(open_error(&folder), format!("{}: is a directory, not a video file", folder.display()));

    let missing = clips.path("missing.mp4");
    let text = open_error(&missing);
    assert!(text.starts_with(&format!("{}: cannot open: No such file", missing.display())), "{text}");

    let empty = clips.path("empty.mp4");
    fs::write(&empty, "").unwrap();
    assert_eq!(open_error(&empty), format!("{}: empty file", empty.display()));

    // A file of /proc reports the size 0. It is opened at its first byte.
    let name = MediaFile::open(Path::new("/proc/self/comm")).unwrap();
    let comm = io::read_to_string(fs::File::from(name.as_fd().try_clone_to_owned().unwrap())).unwrap();
    assert_eq!(comm, fs::read_to_string("/proc/self/comm").unwrap());
    assert_eq!(
        open_error(Path::new("/proc/self/mem")),
        "/proc/self/mem: cannot read: Input/output error (os error 5)"
    );

    let text_file = clips.path("notes.txt");
    fs::write(&text_file, "these are words, not pictures\n".repeat(100)).unwrap();
    let text = open_error(&text_file);
    assert!(text.starts_with(&text_file.display().to_string()), "{text}");

    let sound = clips.path("sound.wav");
    framepath_testkit::ffmpeg(&["-f", "lavfi", "-i", "sine=duration=0.2", sound.to_str().unwrap()]);
    assert!(matches!(
        Demuxer::open(&sound),
        Err(CodecError::UnsupportedContainer { container, .. }) if container == "wav"
    ));

    let mute = clips.path("mute.mp4");
    framepath_testkit::ffmpeg(&["-f", "lavfi", "-i", "sine=duration=0.2", mute.to_str().unwrap()]);
    assert_eq!(open_error(&mute), format!("{}: no video stream", mute.display()));
}

#[test]
fn a_wrong_output_is_named_with_the_right_one() {
    let clips = Clips::new();
    let eight = clips.make("8.mp4", "64x64", "-c:v libx264 -pix_fmt yuv420p");
    let ten = clips.make("10.webm", "64x64", "-c:v libvpx-vp9 -pix_fmt yuv420p10le -deadline realtime");
    for (path, output, wanted) in [
        (&eight, OutputFormat::P010, "h264: cannot convert YUV420P to p010; use format=nv12"),
        (&ten, OutputFormat::Nv12, "vp9: cannot convert YUV420P10 to nv12; use format=p010"),
    ] {
        let demuxer = Demuxer::open(path).unwrap();
        let error = Decoder::open(demuxer.info(), &options(1, output)).unwrap_err();
        assert_eq!(error.to_string(), wanted);
    }
}

const CLIPS: [(&str, &str); 7] = [
    ("a.mp4", "-c:v libx264 -bf 2 -pix_fmt yuv420p -movflags faststart"),
    ("b.mkv", "-c:v libx264 -bf 2 -pix_fmt yuv420p"),
    ("c.h264", "-c:v libx264 -bf 2 -pix_fmt yuv420p"),
    ("d.ivf", "-c:v libvpx -b:v 200k"),
    ("e.webm", "-c:v libvpx-vp9 -b:v 200k -deadline realtime"),
    ("f.ivf", "-c:v libsvtav1 -preset 10 -crf 40 -pix_fmt yuv420p"),
    ("g.hevc", "-c:v libx265 -x265-params log-level=none -pix_fmt yuv420p"),
];

/// A file that is cut anywhere yields correct frames before the cut, and decoding ends. A cut
/// that the syntax does not show is not detected (libavcodec 7 outputs a raw HEVC picture whose
/// last slice is cut, with old memory contents in the lower part). Only that picture may differ;
/// pictures decoded before it but shown after it are correct again.
#[test]
fn truncated_files_give_the_frames_before_the_cut() {
    let clips = Clips::new();
    for (name, encoder) in CLIPS {
        let whole = clips.make(name, "160x90", encoder);
        let bytes = fs::read(&whole).unwrap();
        let right = reference(&whole, "yuv420p");
        for share in [1, 10, 35, 60, 85, 99] {
            let path = clips.path(&format!("cut-{share}-{name}"));
            fs::write(&path, &bytes[..bytes.len() * share / 100]).unwrap();
            let tool = reference_of_damaged(&path, "yuv420p");
            for threads in [1, 2] {
                let mut got = Vec::new();
                let result =
                    decode(&path, &options(threads, OutputFormat::Native), |frame| got.push(hash(&frame)));
                assert!(share < 50 || got.len() > 2, "{name} {share}%: {result:?}");
                assert!(
                    right.starts_with(&got) || tool.starts_with(&got) || right_but_one(&right, &got),
                    "{name} {share}%, {threads} threads: {result:?}"
                );
            }
        }
    }
}

/// Returns true if `got` begins as `right` does, has one picture that is not in `right`, and then
/// only pictures of `right` in order.
///
/// # Panics
/// `right` begins with all of `got`.
fn right_but_one(right: &[String], got: &[String]) -> bool {
    let same = right.iter().zip(got).take_while(|(right, got)| right == got).count();
    let mut later = right[same..].iter();
    !right.contains(&got[same]) && got[same + 1..].iter().all(|hash| later.any(|right| right == hash))
}

/// A container that says how long its packets are: the demuxer marks the last packet as damaged, or returns an
/// error that names the file.
#[test]
fn a_cut_container_is_noticed() {
    let clips = Clips::new();
    for (name, encoder) in [CLIPS[0], CLIPS[3], CLIPS[5]] {
        let whole = clips.make(name, "160x90", encoder);
        let bytes = fs::read(&whole).unwrap();
        let path = clips.path(&format!("cut-{name}"));
        fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
        let mut demuxer = Demuxer::open(&path).unwrap();
        let mut is_noticed = false;
        loop {
            match demuxer.read() {
                Ok(Some(packet)) => is_noticed |= packet.is_damaged(),
                Ok(None) => break,
                Err(error) => {
                    assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
                    is_noticed = true;
                    break;
                }
            }
        }
        assert!(is_noticed, "{name}");
    }
}

/// Tests files with bytes overwritten at random: decoding ends, with or without an error, and no
/// frame is outside its memory.
#[test]
fn damaged_files_do_no_harm() {
    let clips = Clips::new();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut errors = 0;
    for (name, encoder) in CLIPS {
        let whole = clips.make(name, "160x90", encoder);
        let bytes = fs::read(&whole).unwrap();
        for round in 0..8 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + round * 4 {
                let at = 40 + random() as usize % (damaged.len() - 40);
                damaged[at] = random() as u8;
            }
            let path = clips.path(&format!("damaged-{round}-{name}"));
            fs::write(&path, damaged).unwrap();
            for threads in [1, 2] {
                let mut frames = 0;
                let result = decode(&path, &options(threads, OutputFormat::Nv12), |frame| {
                    hash(&frame);
                    frames += 1;
                });
                if let Err(error) = result {
                    errors += 1;
                    assert!(!error.to_string().is_empty());
                }
                assert!(frames <= 4 * FRAMES);
            }
        }
        let noise: Vec<u8> = (0..20_000).map(|_| random() as u8).collect();
        let path = clips.path(&format!("noise-{name}"));
        fs::write(&path, noise).unwrap();
        let _ = decode(&path, &options(2, OutputFormat::Native), |frame| {
            hash(&frame);
        });
    }
    assert!(errors > 0, "no damage was noticed at all");
}

#[test]
fn a_rejected_packet_is_told_once_and_after_the_frames_before_it() {
    let clips = Clips::new();
    for (name, encoder) in [CLIPS[1], CLIPS[3], CLIPS[4]] {
        let path = clips.make(name, "160x90", encoder);
        let wanted = reference(&path, "yuv420p");
        // The eighth packet is from a stream of another codec.
        let foreign = if name == "b.mkv" { CLIPS[3] } else { CLIPS[1] };
        let foreign = clips.make(&format!("foreign-{}", foreign.0), "64x64", foreign.1);
        let mut demuxer = Demuxer::open(&path).unwrap();
        let mut other = Demuxer::open(&foreign).unwrap();
        let options = DecoderOptions { threads: DecoderThreads::Count(1), ..DecoderOptions::default() };
        let mut decoder = Decoder::open(demuxer.info(), &options).unwrap();
        let (mut got, mut errors) = (Vec::new(), 0);
        let mut sent = 0;
        loop {
            let packet = if sent == 8 { other.read() } else { demuxer.read() };
            sent += 1;
            match packet.unwrap() {
                Some(packet) => decoder.send(packet).unwrap(),
                None => decoder.drain().unwrap(),
            }
            let mut ended = false;
            loop {
                match decoder.receive() {
                    Ok(framepath_codec::DecoderOutput::Frame(frame)) => got.push(hash(&frame)),
                    Ok(framepath_codec::DecoderOutput::Undecoded { .. }) => panic!("{name}: not asked for"),
                    Ok(framepath_codec::DecoderOutput::NeedsPacket) => break,
                    Ok(framepath_codec::DecoderOutput::End) => {
                        ended = true;
                        break;
                    }
                    Err(error) => {
                        errors += 1;
                        assert_eq!(got, wanted[..got.len()], "{name}");
                        assert!(got.len() >= 5, "{name}: {} frames before {error}", got.len());
                        assert!(error.to_string().contains("packet 8 "), "{name}: {error}");
                    }
                }
            }
            if ended {
                break;
            }
        }
        assert_eq!(errors, 1, "{name}");
    }
}

#[test]
fn a_damaged_av1_packet_is_named() {
    let clips = Clips::new();
    let path = clips.make("a.ivf", "160x90", CLIPS[5].1);
    let wanted = reference(&path, "yuv420p");
    let mut bytes = fs::read(&path).unwrap();
    // IVF: a head of 32 bytes; each packet has its length and 8 more bytes in front.
    let mut at = 32;
    for _ in 0..8 {
        at += 12 + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    }
    let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    bytes[at + 12..at + 12 + length].fill(0xff);
    fs::write(&path, bytes).unwrap();
    for threads in [1, 2] {
        let mut got = Vec::new();
        let error = decode(&path, &options(threads, OutputFormat::Native), |frame| got.push(hash(&frame)))
            .unwrap_err();
        assert!(error.to_string().starts_with("av1: packet 8 "), "{error}");
        assert_eq!(got, wanted[..8]);
    }
}
