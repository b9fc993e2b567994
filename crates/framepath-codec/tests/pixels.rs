// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the pictures, times and copied bytes for every codec, depth and output format.

mod common;

use std::path::Path;

use common::{Clips, FRAMES, decode, hash, hashes, options, reference, reference_times};
use framepath_codec::{Codec, DecoderThreads, Demuxer, OutputFormat, bare};
use framepath_model::colors::{BT2020, ColorRange, Colors, SMPTE170M};
use framepath_model::format::PixelFormat;
use framepath_os::measure::meter;

/// Decodes `path` natively and converted, with one thread, two threads, and the library's own
/// choice. Compares pictures and times with those of the `ffmpeg` tool, and the copied bytes with
/// the size of the planes that have to be converted.
fn check(path: &Path, codec: Codec, (width, height): (usize, usize), ten_bits: bool) {
    let demuxer = Demuxer::open(path).unwrap();
    assert_eq!(demuxer.info().codec, codec);
    assert_eq!(
        (demuxer.info().stream.width as usize, demuxer.info().stream.height as usize),
        (width, height)
    );
    let (native, converted, output) = if ten_bits {
        (PixelFormat::Yuv420p10, PixelFormat::P010, OutputFormat::P010)
    } else {
        (PixelFormat::Yuv420p, PixelFormat::Nv12, OutputFormat::Nv12)
    };
    let chroma = 2 * width.div_ceil(2) * height.div_ceil(2);
    let copied = if ten_bits { 2 * (width * height + chroma) } else { chroma };
    let times = reference_times(path);
    let outputs = [
        (OutputFormat::Native, native, if ten_bits { "yuv420p10le" } else { "yuv420p" }, 0),
        (output, converted, if ten_bits { "p010le" } else { "nv12" }, copied),
    ];
    for (output, format, name, copied) in outputs {
        let wanted = reference(path, name);
        assert_eq!(wanted.len(), FRAMES);
        for threads in [DecoderThreads::Count(1), DecoderThreads::Count(2), DecoderThreads::Auto] {
            let mut options = options(1, output);
            options.threads = threads;
            let (mut got, mut pts, mut seqs) = (Vec::new(), Vec::new(), Vec::new());
            meter::take();
            decode(path, &options, |frame| {
                assert_eq!(frame.layout().format, format);
                assert_eq!(meter::take().copied_bytes, copied as u64, "{name}");
                assert_eq!(frame.meta().birth_ns, frame.meta().seq * 7);
                got.push(hash(&frame));
                pts.extend(frame.meta().pts);
                seqs.push(frame.meta().seq);
            })
            .unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(got, wanted, "{name}, {threads:?}");
            if pts.len() == FRAMES {
                assert_eq!(pts, times, "{name}, {threads:?}");
            }
            seqs.sort_unstable();
            seqs.dedup();
            assert_eq!(seqs.len(), FRAMES, "each frame has the number of a packet of its own");
        }
    }
    for threads in [DecoderThreads::Count(1), DecoderThreads::Auto] {
        assert_eq!(bare::decode(path, threads).unwrap(), FRAMES as u64);
    }
}

#[test]
fn h264_baseline() {
    let clips = Clips::new();
    let path = clips.make("a.mp4", "160x90", "-c:v libx264 -profile:v baseline -pix_fmt yuv420p");
    check(&path, Codec::H264, (160, 90), false);
}

#[test]
fn h264_with_reordering() {
    let clips = Clips::new();
    let path = clips.make(
        "a.mkv",
        "176x98",
        "-c:v libx264 -bf 4 -b_strategy 0 -refs 5 -x264-params b-pyramid=normal -pix_fmt yuv420p",
    );
    check(&path, Codec::H264, (176, 98), false);
}

#[test]
fn h264_as_a_raw_stream() {
    let clips = Clips::new();
    let path = clips.make("a.h264", "160x90", "-c:v libx264 -bf 2 -g 7 -pix_fmt yuv420p");
    check(&path, Codec::H264, (160, 90), false);
}

#[test]
fn hevc() {
    let clips = Clips::new();
    let path =
        clips.make("a.mkv", "160x90", "-c:v libx265 -x265-params log-level=none:bframes=3 -pix_fmt yuv420p");
    check(&path, Codec::Hevc, (160, 90), false);
}

#[test]
fn hevc_main10() {
    let clips = Clips::new();
    let path = clips.make(
        "a.mp4",
        "160x90",
        "-c:v libx265 -x265-params log-level=none:bframes=3 -pix_fmt yuv420p10le",
    );
    check(&path, Codec::Hevc, (160, 90), true);
}

#[test]
fn vp8_with_hidden_frames() {
    let clips = Clips::new();
    let path = clips.make("a.webm", "160x90", "-c:v libvpx -auto-alt-ref 1 -lag-in-frames 10 -b:v 200k");
    check(&path, Codec::Vp8, (160, 90), false);
}

#[test]
fn vp9_with_hidden_frames() {
    let clips = Clips::new();
    let path = clips.make(
        "a.webm",
        "160x90",
        "-c:v libvpx-vp9 -auto-alt-ref 1 -lag-in-frames 10 -b:v 200k -deadline good -cpu-used 4",
    );
    check(&path, Codec::Vp9, (160, 90), false);
}

#[test]
fn vp9_ten_bits() {
    let clips = Clips::new();
    let path = clips.make(
        "a.ivf",
        "160x90",
        "-c:v libvpx-vp9 -pix_fmt yuv420p10le -b:v 200k -deadline good -cpu-used 4",
    );
    check(&path, Codec::Vp9, (160, 90), true);
}

#[test]
fn av1() {
    let clips = Clips::new();
    let path = clips.make("a.ivf", "160x90", "-c:v libsvtav1 -preset 10 -crf 40 -pix_fmt yuv420p");
    check(&path, Codec::Av1, (160, 90), false);
}

#[test]
fn av1_ten_bits() {
    let clips = Clips::new();
    let path = clips.make("a.mp4", "160x90", "-c:v libsvtav1 -preset 10 -crf 40 -pix_fmt yuv420p10le");
    check(&path, Codec::Av1, (160, 90), true);
}

#[test]
fn av1_with_film_grain() {
    let clips = Clips::new();
    let path = clips.make(
        "a.mkv",
        "160x90",
        "-c:v libsvtav1 -preset 10 -crf 40 -pix_fmt yuv420p -svtav1-params film-grain=30",
    );
    check(&path, Codec::Av1, (160, 90), false);
}

#[test]
fn odd_sizes() {
    let clips = Clips::new();
    let odd = "-vf scale=99:57,format=yuv420p";
    let path = clips.make("a.webm", "160x90", &format!("{odd} -c:v libvpx -b:v 200k"));
    check(&path, Codec::Vp8, (99, 57), false);
    let path = clips.make(
        "b.webm",
        "160x90",
        &format!("{odd} -c:v libvpx-vp9 -b:v 200k -deadline good -cpu-used 4"),
    );
    check(&path, Codec::Vp9, (99, 57), false);
    let path = clips.make("c.ivf", "160x90", &format!("{odd} -c:v libaom-av1 -cpu-used 8 -crf 40 -b:v 0"));
    check(&path, Codec::Av1, (99, 57), false);
}

#[test]
fn cropped_on_all_sides() {
    let clips = Clips::new();
    let whole = clips.make("whole.mp4", "160x96", "-c:v libx264 -bf 2 -pix_fmt yuv420p");
    let path = clips.path("cropped.mp4");
    framepath_testkit::ffmpeg(&[
        "-i",
        whole.to_str().unwrap(),
        "-c",
        "copy",
        "-bsf:v",
        "h264_metadata=crop_left=64:crop_right=6:crop_top=4:crop_bottom=10",
        path.to_str().unwrap(),
    ]);
    check(&path, Codec::H264, (90, 82), false);
}

#[test]
fn full_range_keeps_its_bytes() {
    let clips = Clips::new();
    let path = clips.make("a.mp4", "160x90", "-c:v libx264 -pix_fmt yuvj420p");
    assert_eq!(hashes(&path, &options(1, OutputFormat::Native)), reference(&path, "yuvj420p"));
}

#[test]
fn colours_are_what_the_stream_says() {
    let clips = Clips::new();
    let x265 = "-c:v libx265 -x265-params log-level=none:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc:range=full";
    let tags = "-color_primaries bt2020 -color_trc smpte2084 -colorspace bt2020nc -color_range pc";
    let x264 = format!("-c:v libx264 {tags}");
    let aom = format!("-c:v libaom-av1 -cpu-used 8 -crf 50 -b:v 0 {tags}");
    let told = Colors { primaries: BT2020, transfer: 16, matrix: BT2020, range: ColorRange::Full };
    // VP9 has a matrix and a range, and nothing else.
    let vp9 = "-c:v libvpx-vp9 -cpu-used 8 -colorspace smpte170m -color_range tv";
    let sd = Colors { matrix: SMPTE170M, range: ColorRange::Limited, ..Colors::UNKNOWN };
    for (name, encoder, wanted) in [
        ("a.mp4", x264.as_str(), told),
        ("b.mp4", x265, told),
        ("c.ivf", &aom, told),
        ("d.ivf", vp9, sd),
        ("e.h264", "-c:v libx264", Colors::UNKNOWN),
    ] {
        for output in [OutputFormat::Native, OutputFormat::Nv12] {
            let path = clips.make(name, "160x90", &format!("-pix_fmt yuv420p {encoder}"));
            let mut frames = 0;
            decode(&path, &options(2, output), |frame| {
                assert_eq!(frame.layout().colors, wanted, "{name}");
                frames += 1;
            })
            .unwrap();
            assert_eq!(frames, FRAMES, "{name}");
        }
    }
}

#[test]
fn grey() {
    let clips = Clips::new();
    for (name, encoder) in [
        ("a.mp4", "-c:v libx265 -x265-params log-level=none -pix_fmt gray"),
        ("b.ivf", "-c:v libaom-av1 -cpu-used 8 -crf 50 -b:v 0 -pix_fmt gray"),
    ] {
        let path = clips.make(name, "160x90", encoder);
        let mut got = Vec::new();
        decode(&path, &options(2, OutputFormat::Native), |frame| {
            assert_eq!(frame.layout().format, PixelFormat::Grey);
            got.push(hash(&frame));
        })
        .unwrap();
        assert_eq!(got, reference(&path, "gray"), "{name}");
    }
}

#[test]
fn a_size_change_in_mid_stream() {
    let clips = Clips::new();
    for (encoder, ending) in [
        ("libx264 -bf 2 -pix_fmt yuv420p", "h264"),
        ("libx265 -x265-params log-level=none", "hevc"),
        ("libsvtav1 -preset 10 -pix_fmt yuv420p", "obu"),
    ] {
        let sizes = ["160x90", "320x180", "96x64"];
        let mut stream = Vec::new();
        let (mut native, mut converted) = (Vec::new(), Vec::new());
        for size in sizes {
            let part = clips.make(&format!("{size}.{ending}"), size, &format!("-c:v {encoder}"));
            stream.extend(std::fs::read(&part).unwrap());
            native.extend(reference(&part, "yuv420p"));
            converted.extend(reference(&part, "nv12"));
        }
        let path = clips.path(&format!("all.{ending}"));
        std::fs::write(&path, stream).unwrap();
        for threads in [1, 2, 5] {
            assert_eq!(hashes(&path, &options(threads, OutputFormat::Native)), native, "{ending}, {threads}");
            assert_eq!(
                hashes(&path, &options(threads, OutputFormat::Nv12)),
                converted,
                "{ending}, {threads}"
            );
        }
    }
}

/// Tests a stream of libaom with two spatial layers (L2T1, 8 pictures), each layer in a packet of its own.
#[test]
fn the_highest_spatial_layer_is_output_with_any_number_of_threads() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/av1-two-layers.ivf");
    let outputs = [1, 2, 3].map(|threads| {
        let mut frames = Vec::new();
        decode(&path, &options(threads, OutputFormat::Native), |frame| {
            frames.push((frame.meta().seq, frame.layout().planes()[0].rows, hash(&frame)));
        })
        .unwrap();
        frames
    });
    let numbers: Vec<_> = outputs[0].iter().map(|(seq, rows, _)| (*seq, *rows)).collect();
    assert_eq!(numbers, (0..8).map(|unit| (101 + 2 * unit, 48)).collect::<Vec<_>>());
    assert!(outputs[1..].iter().all(|output| *output == outputs[0]), "{outputs:?}");
}
