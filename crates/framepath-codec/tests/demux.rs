// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the demuxer's description of a track, of its packets, and of rewinding.

mod common;

use common::{Clips, FRAMES};
use framepath_codec::{Codec, CodecError, Demuxer, Formats, MediaFile};
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

/// Makes a file with sound and a PNG picture as its cover; with `video`, also with an H.264 track.
fn with_cover(clips: &Clips, name: &str, video: bool) -> std::path::PathBuf {
    let path = clips.path(name);
    let lavfi = |graph| ["-f", "lavfi", "-i", graph];
    let mut arguments = Vec::new();
    arguments.extend(lavfi("sine=duration=1"));
    arguments.extend(lavfi("testsrc2=size=64x48:rate=1:duration=1"));
    arguments.extend(lavfi("testsrc2=size=64x64:rate=25:duration=0.8"));
    arguments.extend(["-map", "0", "-map", "1", "-c:a", "aac", "-c:v:0", "png"]);
    arguments.extend(["-disposition:v:0", "attached_pic"]);
    if video {
        arguments.extend(["-map", "2", "-c:v:1", "libx264"]);
    }
    arguments.push(path.to_str().unwrap());
    framepath_testkit::ffmpeg(&arguments);
    path
}

#[test]
fn a_file_with_only_a_cover_is_not_examined_with_the_known_codecs() {
    let clips = Clips::new();
    let path = with_cover(&clips, "cover.m4a", false);
    let open = |track, formats| Demuxer::open_track(MediaFile::open(&path).unwrap(), track, formats);
    let error = open(None, Formats::Known).unwrap_err();
    assert!(matches!(error, CodecError::OtherCodec { .. }), "{error}");
    let mut demuxer = open(None, Formats::All).unwrap();
    assert_eq!(demuxer.info().codec.to_string(), "png");
    assert!(demuxer.read().unwrap().is_some());
    let error = open(Some(0), Formats::All).unwrap_err().to_string();
    assert!(error.ends_with("only a cover picture, which has no number; leave out track="), "{error}");
}

#[test]
fn a_cover_beside_a_video_track_changes_nothing() {
    let clips = Clips::new();
    let path = with_cover(&clips, "both.mp4", true);
    let mut demuxer = Demuxer::open(&path).unwrap();
    assert_eq!(demuxer.info().codec, Codec::H264);
    assert_eq!(std::iter::from_fn(|| demuxer.read().unwrap()).count(), FRAMES);
}

/// libavformat adds a track that the map leaves out while it searches the packets of another track, and runs the MPEG-2
/// parser on it.
#[test]
fn gxf_is_read_only_with_all_formats() {
    let clips = Clips::new();
    let path = clips.make("a.gxf", "720x576", "-c:v mpeg2video");
    let refuse = |path: &std::path::Path| {
        let error = Demuxer::open(path).unwrap_err();
        assert!(
            matches!(&error, CodecError::UnsupportedContainer { container, .. } if container == "gxf"),
            "{error}"
        );
    };
    refuse(&path);
    // The map's first track becomes track 9 with the codec H.264.
    let mut bytes = std::fs::read(&path).unwrap();
    let material = usize::from(u16::from_be_bytes([bytes[18], bytes[19]]));
    let first = &mut bytes[22 + material..][..2];
    assert_eq!(first[1], 0xc0, "track 0");
    first.copy_from_slice(&[0x80 | 29, 0xc0 | 9]);
    let hidden = clips.path("hidden.gxf");
    std::fs::write(&hidden, bytes).unwrap();
    refuse(&hidden);
    // The attack works: the demuxer adds the track with its codec.
    let open = |track| Demuxer::open_track(MediaFile::open(&hidden).unwrap(), Some(track), Formats::All);
    assert_eq!(open(0).unwrap().info().codec, Codec::H264);
    assert_eq!(open(1).unwrap().info().codec.to_string(), "mpeg2video");
}

#[test]
fn a_codec_that_shows_after_the_head_is_not_decoded_with_the_known_ones() {
    let clips = Clips::new();
    // The head of a program stream names no codec.
    let path = clips.make("a.mpg", "64x48", "-c:v mpeg2video");
    let error = Demuxer::open(&path).unwrap_err();
    assert!(matches!(error, CodecError::OtherCodec { .. }), "{error}");
    let error = framepath_codec::bare::decode(&path, framepath_codec::DecoderThreads::Count(1)).unwrap_err();
    assert!(matches!(error, CodecError::OtherCodec { .. }), "{error}");
}

#[test]
fn a_codec_without_a_decoder_is_not_parsed_with_the_known_ones() {
    let clips = Clips::new();
    let path = clips.make("a.mkv", "64x48", "-c:v mpeg2video");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(7).position(|name| name == b"V_MPEG2").unwrap();
    bytes[at..at + 7].copy_from_slice(b"V_AVS2\0");
    std::fs::write(&path, bytes).unwrap();
    let error = Demuxer::open(&path).unwrap_err();
    assert!(matches!(error, CodecError::OtherCodec { .. }), "{error}");
    let error = Demuxer::open_track(MediaFile::open(&path).unwrap(), None, Formats::All).unwrap_err();
    assert!(matches!(error, CodecError::UnsupportedCodec { .. }), "{error}");
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
