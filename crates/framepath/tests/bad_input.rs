// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bad input ends in an error that names the cause; the good frames before it are
//! delivered and in the ledger.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use framepath::{Level, Report};
use framepath_model::ledger::flag;
use framepath_testkit::pipeline::{at, run, try_run};
use framepath_testkit::{clip, md5_lines};
use tempfile::TempDir;

/// Runs a path that must fail. Returns the error, and the report of the run
/// (`None` if the path could not be built or started).
#[track_caller]
fn fails(text: &str) -> (String, Option<Report>) {
    match try_run(text, &at(Level::Full)) {
        Err(error) => (error.to_string(), None),
        Ok(mut report) => {
            let error = report.error.take().unwrap_or_else(|| panic!("{text}: no error"));
            let ended = report.rows.iter().filter(|r| r.has(flag::LAST)).count() as u64;
            assert_eq!(ended, report.frames, "{text}: the ledger has what was delivered");
            (error.to_string(), Some(report))
        }
    }
}

/// Asserts that the error is one line, begins with `hop`, and contains `words`.
#[track_caller]
fn assert_names(error: &str, hop: &str, words: &[&str]) {
    assert!(error.starts_with(&format!("{hop}: ")) || error.starts_with(&format!("{hop} ")), "{error}");
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
    assert!(!error.contains('\n'), "{error:?}");
}

fn made(folder: &TempDir, name: &str, bytes: &[u8]) -> String {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    word(&path)
}

fn word(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

fn random_bytes(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..count).map(|_| next()).collect()
}

fn hashes(framemd5: &str) -> Vec<String> {
    md5_lines(framemd5).iter().map(|line| line.rsplit(' ').next().expect("a hash").to_owned()).collect()
}

/// Returns the hashes of the frames that ffmpeg decodes from a damaged file; ffmpeg may fail on it.
fn ffmpeg_hashes(file: &str) -> Vec<String> {
    let output = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "quiet", "-i", file, "-fps_mode", "passthrough", "-f", "framemd5", "-"])
        .output()
        .unwrap_or_else(|error| panic!("this test needs the `ffmpeg` tool (apt install ffmpeg): {error}"));
    hashes(&String::from_utf8(output.stdout).expect("framemd5 is text"))
}

#[test]
fn files_that_cannot_be_opened_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let empty = made(&folder, "empty.mp4", b"");
    let missing = word(&folder.path().join("missing.mp4"));
    let text = made(&folder, "words.txt", &b"these are words, not pictures\n".repeat(200));
    for (file, says) in [
        (&empty, "empty file"),
        (&missing, "No such file"),
        (&word(folder.path()), "is a directory"),
        (&text, "words.txt"),
    ] {
        let (error, report) = fails(&format!("file {file} ! decode ! null"));
        assert_names(&error, "file", &[file, says]);
        assert!(report.is_none());
    }
}

#[test]
fn random_bytes_end_in_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = random_bytes(100_000);
    for ending in ["mp4", "mkv", "ivf", "h264", "hevc", "webm", "bin"] {
        let file = made(&folder, &format!("random.{ending}"), &bytes);
        let (error, report) = fails(&format!("file {file} ! decode ! null"));
        assert!(error.contains(&file) || error.starts_with("decode: "), "{error}");
        assert_eq!(report.map_or(0, |r| r.frames), 0, "{ending}");
    }
    // A valid first half, followed by noise.
    for name in ["vp9-180p8.ivf", "av1-180p8.ivf", "h264-180p8-high.h264", "hevc-180p8-container.mkv"] {
        let mut noisy = fs::read(clip(name)).unwrap();
        let half = noisy.len() / 2;
        noisy.truncate(half);
        noisy.extend(&bytes);
        let file = made(&folder, name, &noisy);
        for threads in ["1", "auto"] {
            let report =
                try_run(&format!("file {file} ! decode threads={threads} ! null"), &at(Level::Times))
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(report.frames > 0, "{name}: {:?}", report.error);
            assert!(report.rows.len() as u64 >= report.frames * 3);
            assert!(report.error.is_none_or(|error| !error.to_string().is_empty()));
        }
    }
}

/// Compares the frames before the cut with ffmpeg's. In a raw stream the cut may leave no trace in the
/// syntax, and then neither program reports it. Versions of the ffmpeg tool withhold a different number of
/// the last frames, so only the frames of both programs are compared.
#[test]
fn truncated_clips_deliver_the_frames_before_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    let out = word(&folder.path().join("frames.md5"));
    for name in [
        "h264-180p8-baseline.h264",
        "h264-180p8-high.h264",
        "hevc-180p8.hevc",
        "hevc-180p8-container.mkv",
        "vp8-180p8-container.webm",
        "vp9-180p8.ivf",
        "vp9-180p10.ivf",
        "av1-180p8.ivf",
        "av1-180p8-grain.ivf",
    ] {
        let bytes = fs::read(clip(name)).unwrap();
        let cut = made(&folder, name, &bytes[..bytes.len() * 6 / 10]);
        let expected = ffmpeg_hashes(&cut);
        for threads in ["1", "auto"] {
            let text = format!("file {cut} ! decode threads={threads} damage=stop ! framemd5 {out}");
            let report = try_run(&text, &at(Level::Full)).unwrap_or_else(|error| panic!("{name}: {error}"));
            let got = hashes(&fs::read_to_string(&out).unwrap());
            assert_eq!(got.len() as u64, report.frames, "{name}");
            assert!(got.len() > 5 && got.len() < 30, "{name}: {} frames", got.len());
            let both = got.len().min(expected.len());
            assert!(both > 5, "{name}: ffmpeg gives {} frames", expected.len());
            assert_eq!(got[..both], expected[..both], "{name}: {:?}", report.error);
            assert_eq!(report.rows.iter().filter(|r| r.has(flag::LAST)).count(), got.len());
            if let Some(error) = report.error {
                let error = error.to_string();
                assert!(error.starts_with("file ") || error.starts_with("decode "), "{error}");
            }
        }
    }
    // The index of these files is at their end, or declares more data than there is.
    for name in ["h264-180p8-container.mp4", "av1-180p8-container.mp4"] {
        let bytes = fs::read(clip(name)).unwrap();
        let cut = made(&folder, name, &bytes[..bytes.len() * 6 / 10]);
        let (error, _) = fails(&format!("file {cut} ! decode ! null"));
        assert_names(&error, "file", &[&cut]);
    }
}

#[test]
fn a_stream_that_changes_size_decodes_and_stops_only_a_y4m() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["h264-resize-180p8.h264", "vp9-resize-180p8.ivf", "av1-resize-180p8.ivf"] {
        for threads in ["1", "auto"] {
            let file = clip(name);
            let decode = format!("file {file} ! decode threads={threads}");
            assert_eq!(run(&format!("{decode} ! null"), &at(Level::Full)).frames, 24);
            assert_eq!(run(&format!("{decode} ! encode raw copy=1 ! null"), &at(Level::Full)).frames, 24);
            assert_eq!(run(&format!("{decode} ! threshold level=9 ! null"), &at(Level::Full)).frames, 24);
            for link in ["", "! queue depth=3 "] {
                let out = word(&folder.path().join("out.y4m"));
                let (error, report) = fails(&format!("{decode} {link}! y4m {out}"));
                assert_names(&error, "y4m", &[&out, "320x180 YUV420P", "192x108 YUV420P"]);
                assert_eq!(report.map(|r| r.frames), Some(12), "{name}");
                let (width, height) = (320, 180);
                let frame = width * height * 3 / 2 + "FRAME\n".len();
                let written = fs::read(&out).unwrap();
                let head = written.iter().position(|b| *b == b'\n').unwrap() + 1;
                assert_eq!(written.len(), head + 12 * frame, "{name}: frames before it are in the file");
            }
        }
    }
}

/// Decodes a file of two joined raw streams of different codecs.
#[test]
fn a_stream_that_changes_codec_delivers_the_frames_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(clip("h264-180p8-baseline.h264")).unwrap();
    bytes.extend(fs::read(clip("hevc-180p8.hevc")).unwrap());
    let file = made(&folder, "both.h264", &bytes);
    for threads in ["1", "auto"] {
        let text = format!("file {file} ! decode threads={threads} ! null");
        let report = try_run(&text, &at(Level::Full)).unwrap_or_else(|error| panic!("{error}"));
        assert!((29..=31).contains(&report.frames), "{} frames, {:?}", report.frames, report.error);
        if let Some(error) = report.error {
            assert_names(&error.to_string(), "decode", &["h264"]);
        }
    }
}

#[test]
fn packets_and_frames_are_not_mixed_up() {
    let (error, _) = fails("test frames=3 ! decode ! null");
    assert_names(&error, "decode", &["packets", "frames"]);
    let file = clip("vp9-180p8.ivf");
    for stage in ["threshold level=9", "encode raw"] {
        let (error, report) = fails(&format!("file {file} ! {stage} ! null"));
        assert_names(&error, stage, &["takes frames", "packets", "`decode`"]);
        assert_eq!(report.map(|r| r.frames), Some(0));
    }
    for sink in ["framemd5 /dev/null", "y4m /dev/null"] {
        let (error, _) = fails(&format!("file {file} ! {sink}"));
        assert_names(&error, sink, &["takes frames", "packets", "`decode`"]);
    }
    let (error, _) = fails(&format!("file {file} ! decode ! decode ! null"));
    assert_names(&error, "decode", &["takes packets", "frames"]);
    assert_eq!(run(&format!("file {file} ! null"), &at(Level::Full)).frames, 30);
}

#[test]
fn the_error_of_a_small_pool_names_a_sufficient_size() {
    for (name, codec) in [
        ("h264-180p8-high.h264", "h264"),
        ("hevc-180p8.hevc", "hevc"),
        ("vp8-180p8-container.webm", "vp8"),
        ("vp9-180p8.ivf", "vp9"),
        ("av1-180p8.ivf", "av1"),
    ] {
        for threads in ["1", "auto"] {
            let file = clip(name);
            for link in ["", "! queue depth=8 "] {
                let text =
                    |pool: &str| format!("file {file} ! decode pool={pool} threads={threads} {link}! null");
                let (error, report) = fails(&text("1"));
                assert_names(&error, "decode", &[codec, "pool of 1 slots is too small"]);
                assert!(report.is_some_and(|r| r.frames < 30), "{name}");
                // The number in the error's advice is enough.
                let advised =
                    error.split("use pool=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
                assert!(advised.parse::<u32>().is_ok_and(|slots| slots > 1), "{error}");
                assert_eq!(run(&text(advised), &at(Level::Full)).frames, 30, "{name}");
            }
        }
    }
}

#[test]
fn a_full_disk_names_the_file() {
    let small = "test size=16x16 format=grey frames=5";
    let large = "test size=640x480 format=grey frames=50";
    let decoded = format!("file {} ! decode", clip("h264-180p8-high.h264"));
    for source in [small, large, &decoded] {
        for sink in ["framemd5", "y4m"] {
            for link in ["", "! queue depth=2 "] {
                let (error, report) = fails(&format!("{source} {link}! {sink} /dev/full"));
                assert_names(&error, sink, &["/dev/full", "No space left on device"]);
                assert_eq!(error.matches("No space left").count(), 1, "{error}");
                assert!(report.is_some_and(|r| !r.rows.is_empty()), "{source} {link}! {sink}");
            }
        }
    }
}

#[test]
fn outputs_that_cannot_be_made_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = made(&folder, "file", b"in the way");
    let no_folder = word(&folder.path().join("no-folder/out"));
    let inside_a_file = word(&PathBuf::from(&file).join("pictures"));
    for (sink, name) in
        [("framemd5", &no_folder), ("y4m", &no_folder), ("pgm", &inside_a_file), ("pgm", &file)]
    {
        let (error, report) = fails(&format!("test frames=3 ! {sink} {name}"));
        assert_names(&error, sink, &[name]);
        assert!(report.is_none_or(|r| r.frames == 0));
    }
    let out = word(&folder.path().join("out.y4m"));
    let (error, _) = fails(&format!("test frames=3 format=nv12 ! y4m {out}"));
    assert_names(&error, "y4m", &["NV12", "YUV420P"]);
    let (error, _) = fails("test frames=3 format=rgba ! threshold level=3 ! null");
    assert_names(&error, "threshold level=3", &["RGBA", "GREY"]);
}
