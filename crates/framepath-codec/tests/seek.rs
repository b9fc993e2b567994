// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of seeks in every codec and kind of container: the frames after a seek equal those of a
//! decode of the whole file.

mod common;

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use common::{Clips, hash};
use framepath_codec::{
    CodecError, Decoder, DecoderOptions, DecoderOutput, DecoderThreads, Demuxer, Formats, MediaFile,
};
use framepath_model::stream::{Rational, SeekTo};
use framepath_testkit::ffmpeg;

/// Presentation time and hash of a frame.
type Shown = (Option<i64>, String);

/// Number of frames of each clip, which has 25 frames per second.
const FRAMES: u32 = 60;

/// Targets of successive seeks, in milliseconds: times of frames, the start, times between frames,
/// times before the previous target, and a time after the end.
const TARGETS: [u64; 10] = [1000, 0, 1330, 1341, 2360, 90_000, 40, 19, 1999, 720];

const X264: &str = "-c:v libx264 -preset veryfast -pix_fmt yuv420p";

fn make(clips: &Clips, name: &str, options: &str) -> std::path::PathBuf {
    let path = clips.path(name);
    let source = "testsrc2=size=128x96:rate=25,noise=alls=6:allf=t";
    let frames = FRAMES.to_string();
    let mut words = vec!["-f", "lavfi", "-i", source, "-frames:v", &frames];
    words.extend(options.split_whitespace());
    words.push(path.to_str().unwrap());
    ffmpeg(&words);
    path
}

/// Decodes the rest of the stream. Returns its frames.
fn rest(demuxer: &mut Demuxer, decoder: &mut Decoder) -> Vec<Shown> {
    let mut shown = Vec::new();
    let mut take = |decoder: &mut Decoder| {
        while let DecoderOutput::Frame(frame) = decoder.receive().unwrap() {
            shown.push((frame.meta().pts, hash(&frame)));
        }
    };
    while let Some(packet) = demuxer.read().unwrap() {
        decoder.send(packet).unwrap();
        take(decoder);
    }
    decoder.drain().unwrap();
    take(decoder);
    shown
}

/// Returns true if a frame of the whole stream is not before `target`, which counts from `start`. A
/// frame without a presentation time gets the time of its `number`, at 25 frames per second.
fn is_wanted(number: usize, pts: Option<i64>, start: i64, base: Rational, target: Duration) -> bool {
    let nanoseconds = match pts {
        Some(pts) => i128::from(pts - start) * i128::from(base.num) * 1_000_000_000 / i128::from(base.den),
        None => number as i128 * 40_000_000,
    };
    // Time bases of whole milliseconds round, and so do their nanoseconds.
    nanoseconds >= target.as_nanos() as i128
}

fn check(path: &Path, threads: u32) {
    check_by(path, threads, Formats::Known);
}

/// Checks the seeks of a demuxer that uses the demuxers and decoders of `formats`.
fn check_by(path: &Path, threads: u32, formats: Formats) {
    let name = path.display();
    let options = DecoderOptions { threads: DecoderThreads::Count(threads), ..DecoderOptions::default() };
    let mut demuxer = Demuxer::open_track(MediaFile::open(path).unwrap(), None, formats).unwrap();
    let info = demuxer.info().clone();
    let mut decoder = Decoder::open(&info, &options).unwrap();
    let whole = rest(&mut demuxer, &mut decoder);
    assert!(whole.len() >= 40, "{name}: {} frames", whole.len());
    let start = whole.iter().filter_map(|(pts, _)| *pts).min().unwrap_or(0);
    let keys: Vec<Option<i64>> = {
        let mut demuxer = Demuxer::open(path).unwrap();
        let packets = std::iter::from_fn(|| demuxer.read().unwrap());
        packets.filter(|packet| packet.is_key()).map(|packet| packet.meta().pts).collect()
    };
    assert!(keys.len() > 1, "{name}: one random access point");
    for to in TARGETS.map(Duration::from_millis) {
        let wanted: Vec<usize> = (0..whole.len())
            .filter(|n| is_wanted(*n, whole[*n].0, start, info.stream.time_base, to))
            .collect();
        let first = wanted.first().copied().unwrap_or(whole.len());
        // Also from inside the stream, while the decoder has pending frames.
        for read_before in [0, 7] {
            for _ in 0..read_before {
                let Some(packet) = demuxer.read().unwrap() else { break };
                decoder.send(packet).unwrap();
                while let DecoderOutput::Frame(_) = decoder.receive().unwrap() {}
            }
            demuxer.seek(to, SeekTo::Exact).unwrap();
            decoder.flush();
            let shown = rest(&mut demuxer, &mut decoder);
            let expected = &whole[first..];
            assert!(
                shown == expected,
                "{name} exactly to {to:?}: {} frames from {:?}, expected {} from {:?}",
                shown.len(),
                shown.first(),
                expected.len(),
                expected.first()
            );
        }
        demuxer.seek(to, SeekTo::KeyframeBefore).unwrap();
        decoder.flush();
        let shown = rest(&mut demuxer, &mut decoder);
        assert!(whole.ends_with(&shown) && !shown.is_empty(), "{name} before {to:?}: {:?}", shown.first());
        let from = whole.len() - shown.len();
        assert!(from <= first, "{name} before {to:?}: from frame {from}, not before {first}");
        if let Some(start) = whole[0].0 {
            // The last random access point that is shown by then.
            let is_by_then = |pts: &i64| {
                let nanoseconds =
                    i128::from(pts - start) * i128::from(info.stream.time_base.num) * 1_000_000_000;
                nanoseconds <= to.as_nanos() as i128 * i128::from(info.stream.time_base.den)
            };
            let last = keys.iter().flatten().copied().filter(is_by_then).max();
            // An edit list may exclude that point.
            assert_eq!(shown[0].0, last.max(Some(start)).or(whole[0].0), "{name} before {to:?}");
        }
    }
}

fn check_all(kinds: &[(&str, &str)]) {
    let clips = Clips::new();
    for (name, options) in kinds {
        let path = make(&clips, name, options);
        check(&path, 1);
        check(&path, 3);
    }
}

#[test]
fn h264_seeks_are_exact() {
    let closed = &format!("{X264} -bf 3 -g 12 -sc_threshold 0");
    let open = &format!("{X264} -bf 3 -g 12 -sc_threshold 0 -x264-params open-gop=1:b-pyramid=normal");
    let plain = &format!("{X264} -bf 0 -g 12");
    check_all(&[
        ("closed.mp4", closed),
        ("open.mp4", open),
        ("open.mkv", open),
        ("open.ts", open),
        ("closed.flv", closed),
        ("plain.avi", plain),
        ("closed.avi", closed),
        ("closed.h264", closed),
        ("open.h264", open),
    ]);
}

#[test]
fn hevc_seeks_are_exact() {
    let closed = "-c:v libx265 -preset ultrafast -bf 3 -g 12 -pix_fmt yuv420p \
                  -x265-params log-level=none:bframes=3:open-gop=0:scenecut=0:keyint=12";
    let open = "-c:v libx265 -preset ultrafast -bf 3 -g 12 -pix_fmt yuv420p \
                -x265-params log-level=none:bframes=3:b-adapt=0:open-gop=1:scenecut=0:keyint=12";
    check_all(&[
        ("closed.mkv", closed),
        ("open.mp4", open),
        ("open.ts", open),
        ("closed.hevc", closed),
        ("open.hevc", open),
    ]);
}

#[test]
fn vp8_and_vp9_seeks_are_exact() {
    let vp8 = "-c:v libvpx -b:v 300k -g 12 -auto-alt-ref 1 -lag-in-frames 9 -cpu-used 8 -deadline realtime";
    let vp9 = "-c:v libvpx-vp9 -b:v 300k -g 12 -auto-alt-ref 1 -lag-in-frames 9 -cpu-used 8";
    check_all(&[("a.webm", vp8), ("a.ivf", vp8), ("b.webm", vp9), ("b.ivf", vp9), ("b.mp4", vp9)]);
}

#[test]
fn av1_seeks_are_exact() {
    let av1 = "-c:v libsvtav1 -preset 12 -g 12 -pix_fmt yuv420p";
    check_all(&[("a.mp4", av1), ("a.mkv", av1), ("a.ivf", av1), ("a.obu", av1)]);
}

/// Returns the number in the EBML length field at the start of `bytes`, and the size of the field.
fn ebml_length(bytes: &[u8]) -> (usize, usize) {
    let size = bytes[0].leading_zeros() as usize + 1;
    let rest = bytes[1..size].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    (((usize::from(bytes[0]) & (0xff >> size)) << (8 * (size - 1))) | rest, size)
}

/// Sets the key flag of every SimpleBlock in the Matroska elements `bytes`. Returns their number.
fn flag_simple_blocks(bytes: &mut [u8]) -> usize {
    let (mut at, mut flagged) = (0, 0);
    while at < bytes.len() {
        let id = bytes[at].leading_zeros() as usize + 1;
        let (length, size) = ebml_length(&bytes[at + id..]);
        let (kind, body) = (bytes[at..at + id].to_vec(), at + id + size);
        // A length of ones only stands for the rest.
        let end = body.saturating_add(length).min(bytes.len());
        match kind.as_slice() {
            // Segment and cluster.
            [0x18, 0x53, 0x80, 0x67] | [0x1f, 0x43, 0xb6, 0x75] => {
                flagged += flag_simple_blocks(&mut bytes[body..end]);
            }
            [0xa3] => {
                // A track number of one byte, a time of two bytes, and the flags.
                bytes[body + 3] |= 0x80;
                flagged += 1;
            }
            _ => {}
        }
        at = end;
    }
    flagged
}

/// Makes the container flag every packet of the file: sets the key flags of Matroska, and removes
/// the table of the random access points (`stss`) of MP4.
fn flag_all(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    if bytes.starts_with(&[0x1a, 0x45, 0xdf, 0xa3]) {
        assert_eq!(flag_simple_blocks(&mut bytes), FRAMES as usize, "{}", path.display());
    } else {
        let table = bytes.windows(4).position(|word| word == b"stss").unwrap();
        bytes[table..table + 4].copy_from_slice(b"free");
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn seeks_are_exact_in_files_that_flag_every_packet() {
    let x264 = &format!("{X264} -bf 3 -g 12 -sc_threshold 0 -x264-params open-gop=1");
    let x265 = "-c:v libx265 -preset ultrafast -bf 3 -g 12 -pix_fmt yuv420p \
                -x265-params log-level=none:bframes=3:b-adapt=0:open-gop=1:scenecut=0:keyint=12";
    let vp8 = "-c:v libvpx -b:v 300k -g 12 -cpu-used 8 -deadline realtime";
    let vp9 = "-c:v libvpx-vp9 -b:v 300k -g 12 -cpu-used 8";
    let av1 = "-c:v libsvtav1 -preset 12 -g 12 -pix_fmt yuv420p";
    let clips = Clips::new();
    for (name, options) in [
        ("264.mkv", x264.as_str()),
        ("264.mp4", x264),
        ("265.mkv", x265),
        ("265.mp4", x265),
        ("8.mkv", vp8),
        ("9.mkv", vp9),
        ("av1.mkv", av1),
    ] {
        let path = make(&clips, name, options);
        let keys = |path: &Path| {
            let mut demuxer = Demuxer::open(path).unwrap();
            let packets = std::iter::from_fn(|| demuxer.read().unwrap());
            packets.map(|packet| packet.is_key()).collect::<Vec<bool>>()
        };
        let before = keys(&path);
        flag_all(&path);
        assert_eq!(keys(&path), before, "{name}: the bytes refute the false flags");
        check(&path, 1);
        // libavformat's index depends on the decoders, and grows while it reads.
        check_by(&path, 3, Formats::All);
    }
}

/// A cut without re-encoding starts at a picture that needs earlier pictures. They are in the
/// file, and its edit list excludes them.
#[test]
fn seeks_in_files_with_an_edit_list_are_exact() {
    let clips = Clips::new();
    for encoder in [
        format!("{X264} -bf 3 -g 12 -sc_threshold 0"),
        "-c:v libsvtav1 -preset 12 -g 12 -pix_fmt yuv420p".to_owned(),
    ] {
        let whole = make(&clips, "whole.mp4", &encoder);
        let cut = clips.path("cut.mp4");
        ffmpeg(&["-ss", "0.3", "-i", whole.to_str().unwrap(), "-c", "copy", cut.to_str().unwrap()]);
        let mut demuxer = Demuxer::open(&cut).unwrap();
        let left_out =
            std::iter::from_fn(|| demuxer.read().unwrap()).filter(|packet| packet.preroll().discarded);
        assert!(left_out.count() > 0, "the cut has an edit list");
        check(&cut, 1);
        check(&cut, 3);
    }
}

#[test]
fn seeks_in_files_whose_times_begin_below_or_above_zero_are_exact() {
    let clips = Clips::new();
    let closed = format!("{X264} -bf 3 -g 12 -sc_threshold 0");
    let whole = make(&clips, "whole.nut", &closed);
    for (name, offset) in [("below.ts", "-3.2"), ("above.ts", "1000"), ("above.mkv", "7")] {
        let shifted = clips.path(name);
        let words = ["-itsoffset", offset, "-i", whole.to_str().unwrap(), "-c", "copy"];
        let last = ["-avoid_negative_ts", "disabled", shifted.to_str().unwrap()];
        ffmpeg(&[&words[..], &last[..]].concat());
        let mut demuxer = Demuxer::open(&shifted).unwrap();
        let first = demuxer.read().unwrap().unwrap().meta().pts.unwrap();
        assert_eq!(first < 0, offset.starts_with('-'), "{name} begins at {first}");
        check(&shifted, 2);
    }
}

#[test]
fn a_track_is_chosen_by_its_number() {
    let clips = Clips::new();
    let path = clips.path("two.mkv");
    ffmpeg(&[
        "-f",
        "lavfi",
        "-i",
        "testsrc2=size=64x48:rate=25:duration=1",
        "-f",
        "lavfi",
        "-i",
        "testsrc2=size=96x64:rate=25:duration=1",
        "-map",
        "0",
        "-map",
        "1",
        "-c:v",
        "libx264",
        path.to_str().unwrap(),
    ]);
    let open = |track| Demuxer::open_track(MediaFile::open(&path).unwrap(), track, Formats::Known);
    for (track, width) in [(Some(0), 64), (Some(1), 96)] {
        let mut demuxer = open(track).unwrap();
        assert_eq!(demuxer.info().stream.width, width);
        demuxer.seek(Duration::from_millis(500), SeekTo::Exact).unwrap();
        let mut decoder = Decoder::open(&demuxer.info().clone(), &DecoderOptions::default()).unwrap();
        assert_eq!(rest(&mut demuxer, &mut decoder).len(), 12, "track {track:?}");
        demuxer.rewind().unwrap();
        decoder.flush();
        assert_eq!(rest(&mut demuxer, &mut decoder).len(), 25, "track {track:?}");
    }
    assert!(matches!(open(Some(2)), Err(CodecError::NoTrack { track: 2, tracks: 2, .. })));
}

#[test]
fn seeks_count_from_the_position_at_which_a_demuxer_gets_its_file() {
    let clips = Clips::new();
    for name in ["a.ts", "a.mp4", "a.mkv", "a.h264"] {
        let path = make(&clips, name, &format!("{X264} -g 12"));
        let bytes = std::fs::read(&path).unwrap();
        let twice = clips.path("twice");
        std::fs::write(&twice, [&bytes[..], &bytes[..]].concat()).unwrap();
        let mut file = File::open(&twice).unwrap();
        file.seek(SeekFrom::Start(bytes.len() as u64)).unwrap();
        let at_offset = MediaFile::from_fd(file.into(), name.to_owned(), true);
        let mut demuxers = [Demuxer::new(at_offset).unwrap(), Demuxer::open(&path).unwrap()];
        for to in [None, Some(1330), Some(0), None] {
            let [offset, plain] = demuxers.each_mut().map(|demuxer| {
                match to.map(Duration::from_millis) {
                    Some(to) => demuxer.seek(to, SeekTo::Exact).unwrap(),
                    None => demuxer.rewind().unwrap(),
                }
                let packets = std::iter::from_fn(|| demuxer.read().unwrap());
                packets
                    .map(|packet| (packet.meta().pts, packet.bytes().unwrap().to_vec()))
                    .collect::<Vec<_>>()
            });
            assert!(plain.len() > 20, "{name} {to:?}");
            assert!(offset == plain, "{name} {to:?}: {} packets; expected {}", offset.len(), plain.len());
        }
    }
}

#[test]
fn a_pipe_cannot_seek() {
    let clips = Clips::new();
    let path = make(&clips, "a.ts", &format!("{X264} -g 12"));
    let mut cat =
        std::process::Command::new("cat").arg(&path).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pipe = std::os::fd::OwnedFd::from(cat.stdout.take().unwrap());
    let mut demuxer = Demuxer::new(MediaFile::from_fd(pipe, "a.ts".to_owned(), false)).unwrap();
    assert!(!demuxer.is_seekable());
    let refused = demuxer.seek(Duration::ZERO, SeekTo::Exact);
    assert!(matches!(refused, Err(CodecError::CannotSeek { .. })), "{refused:?}");
    // The error changes nothing.
    assert_eq!(std::iter::from_fn(|| demuxer.read().unwrap()).count() as u32, FRAMES);
    cat.wait().unwrap();
}
