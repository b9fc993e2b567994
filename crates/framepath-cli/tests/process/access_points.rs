// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files with false flags of random access points.

use std::fs;
use std::path::Path;
use std::process::Command;

use framepath_testkit::{in_checkout, run};

pub(super) fn ffmpeg(arguments: &[&str]) {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-y"]).args(arguments);
    let status = command.status().unwrap_or_else(|error| panic!("ffmpeg (apt install ffmpeg): {error}"));
    assert!(status.success(), "{command:?}");
}

/// Decodes the file with these options. Returns the lines of `framemd5` for its frames, and the exit
/// code.
fn decoded(file: &Path, options: &str) -> (Vec<String>, Option<i32>) {
    let hashes = file.with_extension("framemd5");
    let path = format!("file '{}' ! decode {options} ! framemd5 '{}'", file.display(), hashes.display());
    let code = run(&["run", &path]).code;
    let text = fs::read_to_string(&hashes).unwrap();
    (text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect(), code)
}

/// Creates a copy in MP4 without the box that lists the random access points, so that all packets
/// count as random access points.
fn all_flagged(clip: &str, folder: &Path) -> std::path::PathBuf {
    let file = folder.join("flagged.mp4");
    let clip = in_checkout(clip);
    ffmpeg(&["-i", clip.to_str().unwrap(), "-c", "copy", file.to_str().unwrap()]);
    let mut bytes = fs::read(&file).unwrap();
    let boxes: Vec<usize> = (0..bytes.len() - 4).filter(|at| &bytes[*at..at + 4] == b"stss").collect();
    assert_eq!(boxes.len(), 1);
    bytes[boxes[0]..boxes[0] + 4].copy_from_slice(b"free");
    fs::write(&file, bytes).unwrap();
    file
}

/// Creates a copy with a recovery point SEI of 0 frames in each access unit. The SEI claims that all
/// following pictures are correct.
fn all_recovery_points(clip: &str, folder: &Path) -> std::path::PathBuf {
    let bytes = fs::read(in_checkout(clip)).unwrap();
    let mut changed = Vec::new();
    for at in 0..bytes.len() {
        // The first slice of a picture has `first_mb_in_slice` 0.
        let is_first = bytes[at..].starts_with(&[0, 0, 1])
            && bytes
                .get(at + 3..at + 5)
                .is_some_and(|head| matches!(head[0] & 0x1f, 1 | 5) && head[1] >= 0x80);
        if is_first {
            changed.extend([0, 0, 1, 6, 6, 1, 0xc4, 0x80, 0]);
        }
        changed.push(bytes[at]);
    }
    assert!(changed.len() >= bytes.len() + 30 * 9);
    let file = folder.join("recovery.h264");
    fs::write(&file, changed).unwrap();
    file
}

#[test]
fn false_random_access_flags_lose_no_frame() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        all_flagged("clips/hevc-180p8-container.mkv", folder.path()),
        all_recovery_points("clips/h264-180p8-high.h264", folder.path()),
    ];
    for file in files {
        let inline = decoded(&file, "threads=1");
        assert_eq!((inline.0.len(), inline.1), (30, Some(0)), "{}", file.display());
        for options in ["host=process", "host=process threads=1", "host=process threads=1 fault=crash@20"] {
            assert_eq!(decoded(&file, options), inline, "{} {options}", file.display());
        }
    }
}

/// A flag that the bytes refute begins neither a resumption behind a loss nor a seek: the frames are
/// those of the file with right flags.
#[test]
fn refuted_flags_begin_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let right = folder.path().join("right.mp4");
    let source = ["-f", "lavfi", "-i", "testsrc2=size=128x96:rate=25", "-frames:v", "60", "-c:v", "libx265"];
    let gops = "log-level=none:bframes=3:b-adapt=0:open-gop=1:scenecut=0:keyint=12";
    let encoder = ["-preset", "ultrafast", "-pix_fmt", "yuv420p", "-x265-params", gops];
    ffmpeg(&[&source[..], &encoder, &[right.to_str().unwrap()]].concat());
    let flagged = all_flagged(right.to_str().unwrap(), folder.path());
    for options in ["host=process fault=poison@3", "host=process fault=poison@40,crash@41"] {
        let expected = decoded(&right, options);
        assert_eq!(expected.1, Some(3), "{options}");
        assert!(expected.0.len() > 40, "{options}: {} frames", expected.0.len());
        assert_eq!(decoded(&flagged, options), expected, "{options}");
    }
}

/// Creates a clip of 60 frames with a keyframe every 12. `name` ends with the container.
fn clip(folder: &Path, name: &str, encoder: &str) -> std::path::PathBuf {
    let file = folder.join(name);
    let source =
        ["-f", "lavfi", "-i", "testsrc2=size=352x288:rate=25,noise=alls=6:allf=t", "-frames:v", "60"];
    let encoder: Vec<&str> = encoder.split_whitespace().collect();
    ffmpeg(&[&source[..], &encoder, &["-g", "12", file.to_str().unwrap()]].concat());
    file
}

/// Decodes the file from `start` on. Returns the hashes of the frames.
fn hashes_from(file: &Path, start: &str, options: &str) -> Vec<String> {
    let hashes = file.with_extension("from");
    let path =
        format!("file '{}' {start} ! decode {options} ! framemd5 '{}'", file.display(), hashes.display());
    run(&["run", &path]).ended(0);
    let text = fs::read_to_string(&hashes).unwrap();
    let hash = |line: &str| line.rsplit(' ').next().unwrap().to_owned();
    text.lines().filter(|line| !line.starts_with('#')).map(hash).collect()
}

/// The containers of these files flag every packet. AVI does so for H.263 and H.261 by itself.
#[test]
fn false_flags_of_older_codecs_cost_no_frame_and_show_no_wrong_one() {
    let folder = tempfile::tempdir().unwrap();
    let flagged = |name: &str, encoder: &str| {
        let right = clip(folder.path(), &format!("right-{name}"), encoder);
        let into = folder.path().join(name);
        fs::create_dir(&into).unwrap();
        all_flagged(right.to_str().unwrap(), &into)
    };
    let files = [
        flagged("1.mp4", "-c:v mpeg1video -bf 2 -b:v 800k"),
        flagged("2.mp4", "-c:v mpeg2video -bf 2 -b:v 800k"),
        flagged("4.mp4", "-c:v mpeg4 -bf 2 -b:v 800k"),
        clip(folder.path(), "h263.avi", "-c:v h263 -b:v 800k"),
        clip(folder.path(), "h263p.avi", "-c:v h263p -b:v 800k"),
        clip(folder.path(), "h261.avi", "-c:v h261 -b:v 800k"),
    ];
    for file in files {
        let name = file.display();
        let whole = hashes_from(&file, "", "host=process");
        assert_eq!(whole.len(), 60, "{name}");
        for first in [1, 13, 20, 35, 59] {
            let start = format!("start={}ms", first * 40);
            for options in ["host=process threads=1", "host=inline"] {
                assert!(hashes_from(&file, &start, options) == whole[first..], "{name} {start} {options}");
            }
        }
        // Delivered frames are right, and missing ones are counted.
        for fault in ["poison@3", "poison@13,crash@40"] {
            let hashes = file.with_extension("fault");
            let path = format!(
                "file '{name}' ! decode host=process fault={fault} ! framemd5 '{}'",
                hashes.display()
            );
            let ran = run(&["run", &path]).ended(3);
            let text = fs::read_to_string(&hashes).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            let frames: Vec<&str> = lines.filter_map(|line| line.rsplit(' ').next()).collect();
            let is_right = frames.iter().all(|frame| whole.iter().any(|right| right == frame));
            assert!(is_right && frames.len() + skipped(&ran.stderr) == 60, "{name} {fault}: {}", ran.stderr);
        }
    }
}

/// The decoder cannot decode the first picture of a refresh whose frame number is 0, so the frames are right
/// when the next refresh is complete.
#[test]
fn frames_behind_a_loss_in_a_gradual_refresh_are_right_or_counted() {
    let folder = tempfile::tempdir().unwrap();
    for keyint in [16, 24] {
        let file = folder.path().join(format!("{keyint}.mkv"));
        let x264 = format!("intra-refresh=1:keyint={keyint}:bframes=0");
        let source =
            ["-f", "lavfi", "-i", "testsrc2=s=320x240:r=25", "-frames:v", "120", "-pix_fmt", "yuv420p"];
        ffmpeg(&[&source[..], &["-c:v", "libx264", "-x264-params", &x264, file.to_str().unwrap()]].concat());
        let whole = hashes_from(&file, "", "host=process");
        assert_eq!(whole.len(), 120);
        for fault in ["poison@3", "poison@17"] {
            let hashes = folder.path().join("hashes");
            let path = format!(
                "file '{}' ! decode host=process fault={fault} ! framemd5 '{}'",
                file.display(),
                hashes.display()
            );
            let ran = run(&["run", &path]).ended(3);
            let text = fs::read_to_string(&hashes).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            let frames: Vec<&str> = lines.filter_map(|line| line.rsplit(' ').next()).collect();
            let wrong = frames.iter().filter(|frame| !whole.iter().any(|right| right == *frame)).count();
            assert_eq!(
                (wrong, frames.len() + skipped(&ran.stderr)),
                (0, 120),
                "{keyint} {fault}: {}",
                ran.stderr
            );
            assert!(frames.len() > 50 && frames.last().copied() == whole.last().map(String::as_str));
        }
    }
}

#[test]
fn a_gradual_refresh_is_replayed_completely_or_is_the_resume_point() {
    let folder = tempfile::tempdir().unwrap();
    for reordered in ["0", "2"] {
        let file = folder.path().join("gradual.mkv");
        let x264 = format!("intra-refresh=1:keyint=20:bframes={reordered}:threads=1");
        ffmpeg(&[
            "-f",
            "lavfi",
            "-i",
            "testsrc2=s=160x96:r=25:d=4",
            "-pix_fmt",
            "yuv420p",
            "-c:v",
            "libx264",
            "-x264-params",
            &x264,
            file.to_str().unwrap(),
        ]);
        let inline = decoded(&file, "threads=1");
        assert_eq!((inline.0.len(), inline.1), (100, Some(0)));
        for options in ["host=process", "host=process fault=crash@50", "host=process fault=crash@35,crash@70"]
        {
            assert_eq!(decoded(&file, options), inline, "{reordered} {options}");
        }
        // Losses are counted, delivered frames are correct, and the stream continues.
        let (frames, code) = decoded(&file, "host=process fault=poison@30");
        assert_eq!(code, Some(3));
        let wrong: Vec<_> = frames.iter().filter(|frame| !inline.0.contains(frame)).collect();
        assert!(wrong.is_empty(), "{reordered}: {wrong:?} of {}", frames.len());
        assert!((50..90).contains(&frames.len()) && frames.last() == inline.0.last(), "{}", frames.len());
    }
}

/// Splits a byte stream into NAL units, each with its start code.
fn units(bytes: &[u8]) -> Vec<&[u8]> {
    let starts: Vec<usize> = (0..bytes.len() - 3).filter(|at| bytes[*at..].starts_with(&[0, 0, 1])).collect();
    let ends = starts[1..].iter().copied().chain([bytes.len()]);
    starts.iter().zip(ends).map(|(start, end)| &bytes[*start..end]).collect()
}

/// Creates one stream of two encodings, each given by options of the ffmpeg tool. The second encoding
/// has its own parameter sets, only at its first random access point. `is_set` returns true for the
/// first byte of a parameter set's NAL unit.
fn two_encodings(
    folder: &Path,
    extension: &str,
    encodings: [&str; 2],
    is_set: fn(u8) -> bool,
) -> std::path::PathBuf {
    let mut stream = Vec::new();
    for (number, encoder) in encodings.iter().enumerate() {
        let file = folder.join(format!("{number}.{extension}"));
        let source = format!("testsrc2=size=128x96:rate=25,hue=h={}", number * 90);
        let mut arguments = vec!["-f", "lavfi", "-i", &source, "-frames:v", "48", "-threads", "1"];
        arguments.extend(encoder.split_whitespace());
        arguments.push(file.to_str().unwrap());
        ffmpeg(&arguments);
        let bytes = fs::read(&file).unwrap();
        let mut has_picture = false;
        for unit in units(&bytes) {
            // Only the first picture keeps the sets.
            if is_set(unit[3]) && number == 1 && has_picture {
                continue;
            }
            has_picture |= !is_set(unit[3]) && unit.len() > 100;
            stream.extend_from_slice(unit);
        }
    }
    let file = folder.join(format!("two.{extension}"));
    fs::write(&file, stream).unwrap();
    file
}

#[test]
fn a_replay_includes_parameter_sets_of_earlier_packets() {
    let folder = tempfile::tempdir().unwrap();
    let x264 = "-c:v libx264 -pix_fmt yuv420p -g 12 -sc_threshold 0 -x264-params";
    let x265 =
        "-c:v libx265 -pix_fmt yuv420p -x265-params log-level=error:repeat-headers=1:keyint=12:min-keyint=12";
    let [a, b] = ["repeat-headers=1:ref=1:cabac=0", "repeat-headers=1:ref=4:qp=30"];
    let h264 = [format!("{x264} {a}"), format!("{x264} {b}")];
    // The second encoding has the same picture set as the first, with another sequence set.
    let level = ["3.0", "4.0"].map(|level| format!("{x264} repeat-headers=1:level={level}"));
    let [a, b] = ["ref=1", "ref=3:sao=0:ctu=16:amp=1"];
    let hevc = [format!("{x265}:{a}"), format!("{x265}:{b}")];
    let same_picture_set = folder.path().join("same");
    fs::create_dir(&same_picture_set).unwrap();
    let files = [
        two_encodings(&same_picture_set, "h264", level.each_ref().map(String::as_str), |head| {
            matches!(head & 0x1f, 7 | 8)
        }),
        two_encodings(folder.path(), "h264", h264.each_ref().map(String::as_str), |head| {
            matches!(head & 0x1f, 7 | 8)
        }),
        two_encodings(folder.path(), "hevc", hevc.each_ref().map(String::as_str), |head| {
            matches!(head >> 1 & 0x3f, 32..=34)
        }),
    ];
    for file in files {
        let inline = decoded(&file, "threads=1");
        assert_eq!((inline.0.len(), inline.1), (96, Some(0)), "{}", file.display());
        for fault in ["crash@30", "crash@47", "crash@50", "crash@80", "crash@85", "crash@95"] {
            for threads in ["", "threads=1"] {
                let replayed = decoded(&file, &format!("host=process {threads} fault={fault}"));
                assert_eq!(replayed, inline, "{} {fault} {threads}", file.display());
            }
        }
        // The packet with the sets is skipped; later delivered frames are correct.
        let (frames, code) = decoded(&file, "host=process threads=1 fault=poison@48");
        assert_eq!(code, Some(3), "{}", file.display());
        let hash = |line: &String| line.rsplit(' ').next().unwrap().to_owned();
        let right: Vec<String> = inline.0.iter().map(hash).collect();
        assert!((70..96).contains(&frames.len()), "{}", frames.len());
        assert!(frames.iter().all(|line| right.contains(&hash(line))), "{}", file.display());
    }
}

/// Returns the video tags of an FLV file, without the end tag.
fn video_tags(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut at, mut tags) = (13, Vec::new());
    while at + 11 < bytes.len() {
        let size =
            usize::from(bytes[at + 1]) << 16 | usize::from(bytes[at + 2]) << 8 | usize::from(bytes[at + 3]);
        let tag = &bytes[at..at + 11 + size + 4];
        if tag[0] == 9 && tag[12] != 2 {
            tags.push(tag.to_vec());
        }
        at += tag.len();
    }
    tags
}

#[test]
fn a_configuration_change_inside_a_file_reaches_the_workers() {
    let folder = tempfile::tempdir().unwrap();
    let mut joined = Vec::new();
    for (number, options) in ["ref=1:cabac=0", "ref=4:qp=30"].iter().enumerate() {
        let file = folder.path().join(format!("{number}.flv"));
        let source = format!("testsrc2=size=128x96:rate=25,hue=h={}", number * 90);
        let x264 = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-g", "12", "-x264-params", options];
        let mut arguments = vec!["-f", "lavfi", "-i", &source, "-frames:v", "48"];
        arguments.extend(x264);
        arguments.push(file.to_str().unwrap());
        ffmpeg(&arguments);
        let bytes = fs::read(&file).unwrap();
        if number == 0 {
            joined.extend_from_slice(&bytes[..13]);
        }
        for mut tag in video_tags(&bytes) {
            let time = u32::from_be_bytes([0, tag[4], tag[5], tag[6]]) + number as u32 * 2000;
            tag[4..7].copy_from_slice(&time.to_be_bytes()[1..]);
            joined.extend(tag);
        }
    }
    let file = folder.path().join("joined.flv");
    fs::write(&file, joined).unwrap();
    let inline = decoded(&file, "threads=1");
    assert_eq!((inline.0.len(), inline.1), (96, Some(0)));
    for options in ["host=process", "host=process threads=1", "host=process threads=1 fault=crash@80"] {
        assert_eq!(decoded(&file, options), inline, "{options}");
    }
}

/// Returns the number of packets that a run's standard error first reports as skipped. Panics if it
/// reports none.
pub(super) fn skipped(stderr: &str) -> usize {
    let count = stderr.split_once("skipped ").and_then(|(_, rest)| rest.split(' ').next());
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count in {stderr}"))
}

#[test]
fn pictures_lost_behind_a_poisoned_packet_of_an_open_gop_are_all_counted() {
    let folder = tempfile::tempdir().unwrap();
    let x264 = "keyint=10:min-keyint=10:scenecut=0:open-gop=1:bframes=3:threads=1";
    let x265 =
        "keyint=10:min-keyint=10:scenecut=0:open-gop=1:bframes=3:pools=1:frame-threads=1:log-level=none";
    let deep = "keyint=20:min-keyint=20:scenecut=0:open-gop=1:bframes=5:b-pyramid=normal:ref=4:threads=1";
    // With times, with times and a gap in the pictures' order, and twice without times.
    let streams = [
        ("short.mp4", "libx264", "-x264-params", x264, ["poison@4", "poison@0", "poison@23"]),
        ("deep.mp4", "libx264", "-x264-params", deep, ["poison@20", "poison@0", "poison@30"]),
        ("bare.h264", "libx264", "-x264-params", x264, ["poison@4", "poison@0", "poison@23"]),
        ("bare.hevc", "libx265", "-x265-params", x265, ["poison@4", "poison@0", "poison@23"]),
    ];
    let source = ["-f", "lavfi", "-i", "testsrc2=s=192x112:r=25:d=1.6", "-pix_fmt", "yuv420p"];
    for (name, encoder, parameters, values, faults) in streams {
        let file = folder.path().join(name);
        ffmpeg(&[&source[..], &["-c:v", encoder, parameters, values, file.to_str().unwrap()]].concat());
        let hash = |line: &String| line.rsplit(' ').next().unwrap().to_owned();
        let (inline, code) = decoded(&file, "threads=1");
        assert_eq!((inline.len(), code), (40, Some(0)), "{name}");
        let right: Vec<String> = inline.iter().map(hash).collect();
        for fault in faults {
            let hashes = folder.path().join("hashes");
            let ran = run(&[
                "run",
                &format!(
                    "file '{}' ! decode host=process fault={fault} ! framemd5 '{}'",
                    file.display(),
                    hashes.display()
                ),
            ])
            .ended(3);
            let text = fs::read_to_string(&hashes).unwrap();
            let frames: Vec<String> = text
                .lines()
                .filter(|line| !line.starts_with('#'))
                .map(|line| hash(&line.to_owned()))
                .collect();
            assert!(frames.iter().all(|frame| right.contains(frame)), "{name} {fault}: wrong pictures");
            assert_eq!(frames.len() + skipped(&ran.stderr), 40, "{name} {fault}: {}", ran.stderr);
        }
    }
}

#[test]
fn the_last_pictures_behind_an_open_gop_keyframe_are_output() {
    let folder = tempfile::tempdir().unwrap();
    for frames in [41, 42, 43] {
        let file = folder.path().join(format!("{frames}.mp4"));
        let count = frames.to_string();
        ffmpeg(&[
            "-f",
            "lavfi",
            "-i",
            "testsrc2=s=64x64:r=25",
            "-frames:v",
            &count,
            "-pix_fmt",
            "yuv420p",
            "-c:v",
            "libx264",
            "-bf",
            "3",
            "-b_strategy",
            "0",
            "-x264-params",
            "open-gop=1:keyint=18:min-keyint=18:scenecut=0:ref=3:threads=1",
            file.to_str().unwrap(),
        ]);
        let inline = decoded(&file, "threads=1");
        assert_eq!((inline.0.len(), inline.1), (frames, Some(0)));
        // A worker that dies at one of the last packets: the next one starts at the last keyframe, and
        // is drained a few packets behind it.
        for last in frames - 4..frames {
            let killed = decoded(&file, &format!("host=process threads=1 fault=crash@{last}"));
            assert_eq!(killed, inline, "{frames} crash@{last}");
        }
        // The same by a seek.
        for start in frames - 5..frames {
            let hashes = folder.path().join("hashes");
            let path = format!(
                "file '{}' start={}ms ! decode ! framemd5 '{}'",
                file.display(),
                start * 40,
                hashes.display()
            );
            run(&["run", &path]).ended(0);
            let text = fs::read_to_string(&hashes).unwrap();
            let hash = |line: &str| line.rsplit(' ').next().unwrap().to_owned();
            let got: Vec<String> = text.lines().filter(|line| !line.starts_with('#')).map(hash).collect();
            let all: Vec<String> = inline.0.iter().map(|line| hash(line)).collect();
            assert_eq!(got, all[start..], "{frames} start={start}");
        }
    }
}

/// Removes the quantisation tables from all pictures of a raw MJPEG stream but the first.
fn without_later_tables(bytes: &[u8]) -> Vec<u8> {
    let starts: Vec<usize> =
        (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&[0xff, 0xd8, 0xff])).collect();
    let mut kept = bytes[..starts[1]].to_vec();
    for (at, start) in starts.iter().enumerate().skip(1) {
        let picture = &bytes[*start..starts.get(at + 1).copied().unwrap_or(bytes.len())];
        let mut rest = &picture[2..];
        kept.extend(&picture[..2]);
        while rest[1] != 0xda {
            let (segment, behind) = rest.split_at(2 + usize::from(u16::from_be_bytes([rest[2], rest[3]])));
            if segment[1] != 0xdb {
                kept.extend(segment);
            }
            rest = behind;
        }
        kept.extend(rest);
    }
    kept
}

#[test]
fn jpeg_pictures_without_tables_depend_on_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tables.mjpeg");
    let source = ["-f", "lavfi", "-i", "testsrc2=s=160x96:r=25:d=1", "-pix_fmt", "yuvj420p"];
    ffmpeg(&[&source[..], &["-c:v", "mjpeg", "-q:v", "9", file.to_str().unwrap()]].concat());
    let hash = |line: &String| line.rsplit(' ').next().unwrap().to_owned();
    let hashes = |options: &str| {
        let (frames, code) = decoded(&file, options);
        (frames.iter().map(hash).collect::<Vec<String>>(), code)
    };
    let all = hashes("threads=1");
    assert_eq!((all.0.len(), all.1), (25, Some(0)));
    // With its tables, each picture is decoded alone.
    assert_eq!(hashes("host=process fault=poison@5").0, [&all.0[..5], &all.0[6..]].concat());
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, without_later_tables(&bytes)).unwrap();
    assert_eq!(hashes("threads=1"), all);
    assert_eq!(hashes("host=process fault=crash@20"), all);
    assert_eq!(hashes("host=process fault=poison@5"), (all.0[..5].to_vec(), Some(3)));
    let out = folder.path().join("hashes");
    let path = format!("file '{}' start=400ms ! decode ! framemd5 '{}'", file.display(), out.display());
    run(&["run", &path]).ended(0);
    let text = fs::read_to_string(&out).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned);
    assert_eq!(lines.map(|line| hash(&line)).collect::<Vec<String>>(), all.0[10..]);
}

/// Removes the time of each B picture of an MPEG-TS with access unit delimiters. Returns their number.
fn remove_times_of_b_pictures(file: &Path) -> usize {
    let mut bytes = fs::read(file).unwrap();
    let mut count = 0;
    for packet in bytes.chunks_mut(188) {
        let Some(pes) = packet.windows(4).position(|four| four == [0, 0, 1, 0xe0]) else { continue };
        // `primary_pic_type` 2.
        let is_b = packet[pes..].windows(5).any(|five| five == [0, 0, 1, 9, 0x50]);
        if is_b {
            packet[pes + 7] &= 0x3f;
            count += 1;
        }
    }
    fs::write(file, bytes).unwrap();
    count
}

#[test]
fn b_pictures_without_times_are_kept_behind_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("times.ts");
    let source = ["-f", "lavfi", "-i", "testsrc2=s=160x96:r=25:d=2.4", "-pix_fmt", "yuv420p"];
    let x264 =
        "keyint=20:min-keyint=20:scenecut=0:bframes=3:b-pyramid=normal:b-adapt=0:ref=3:aud=1:threads=1";
    ffmpeg(&[&source[..], &["-c:v", "libx264", "-x264-params", x264, file.to_str().unwrap()]].concat());
    assert!(remove_times_of_b_pictures(&file) > 30);
    let inline = decoded(&file, "threads=1");
    assert_eq!((inline.0.len(), inline.1), (60, Some(0)));
    let hash = |line: &String| line.rsplit(' ').next().unwrap().to_owned();
    let right: Vec<String> = inline.0.iter().map(hash).collect();
    // Packets 20 to 39 are lost; no picture of the other groups is.
    let (frames, code) = decoded(&file, "host=process fault=poison@20");
    let frames: Vec<String> = frames.iter().map(hash).collect();
    assert_eq!((frames.as_slice(), code), ([&right[..20], &right[40..]].concat().as_slice(), Some(3)));
}
