// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the demuxer's description of a track, of its packets, and of rewinding.

mod common;

use common::{Clips, FRAMES};
use framepath_codec::{Codec, Demuxer};
use framepath_model::format::PixelFormat;
use framepath_model::stream::{FrameMeta, Rational};

#[test]
fn the_track_is_described() {
    let clips = Clips::new();
    let path = clips.make("a.mp4", "160x90", "-c:v libx264 -pix_fmt yuv420p -aspect 4:3");
    let demuxer = Demuxer::open(&path).unwrap();
    let info = demuxer.info();
    assert_eq!(info.codec, Codec::H264);
    assert_eq!(info.codec.to_string(), "h264");
    let stream = info.stream;
    assert_eq!((stream.width, stream.height, stream.format), (160, 90, Some(PixelFormat::Yuv420p)));
    assert_eq!(stream.frame_rate, Rational::new(25, 1));
    assert_eq!(stream.sample_aspect, Rational::new(3, 4));
    assert_eq!(stream.time_base, Rational::new(1, 12800));
}

#[test]
fn only_the_video_is_read() {
    let clips = Clips::new();
    let path = clips.path("a.mkv");
    framepath_testkit::ffmpeg(&[
        "-f",
        "lavfi",
        "-i",
        "sine=duration=1",
        "-f",
        "lavfi",
        "-i",
        "testsrc2=size=64x64:rate=25:duration=0.8",
        "-map",
        "0",
        "-map",
        "1",
        "-c:v",
        "libx264",
        "-c:a",
        "flac",
        path.to_str().unwrap(),
    ]);
    let mut demuxer = Demuxer::open(&path).unwrap();
    let mut count = 0;
    while let Some(packet) = demuxer.read().unwrap() {
        assert!(packet.len() > 8);
        count += 1;
    }
    assert_eq!(count, FRAMES);
}

fn read_all(demuxer: &mut Demuxer) -> Vec<(FrameMeta, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(packet) = demuxer.read().unwrap() {
        all.push((packet.meta(), packet.bytes().unwrap().to_vec()));
    }
    all
}

#[test]
fn a_rewound_file_gives_the_same_packets() {
    let clips = Clips::new();
    let x264 = "-c:v libx264 -bf 3 -g 8 -pix_fmt yuv420p";
    for (name, encoder) in [
        ("a.mp4", x264),
        ("a.mkv", x264),
        ("a.ts", x264),
        ("a.h264", x264),
        ("a.webm", "-c:v libvpx-vp9 -b:v 200k -deadline realtime"),
        ("a.ivf", "-c:v libvpx -b:v 200k -auto-alt-ref 1 -lag-in-frames 9"),
        ("a.obu", "-c:v libsvtav1 -preset 10"),
    ] {
        let path = clips.make(name, "160x90", encoder);
        let mut demuxer = Demuxer::open(&path).unwrap();
        let first = read_all(&mut demuxer);
        assert!(first.len() >= FRAMES, "{name}");
        demuxer.rewind().unwrap();
        assert!(read_all(&mut demuxer) == first, "{name}: after the end");
        demuxer.rewind().unwrap();
        for _ in 0..5 {
            demuxer.read().unwrap();
        }
        demuxer.rewind().unwrap();
        assert!(read_all(&mut demuxer) == first, "{name}: from the middle");
    }
}
