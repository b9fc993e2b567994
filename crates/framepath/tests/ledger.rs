// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contents of the ledger at each level, and its counts, which are exact.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use framepath::{Level, Options, Report};
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::ledger::{Cause, flag};
use framepath_testkit::pipeline::{at, run};
use framepath_testkit::{clip, md5_lines};

fn pixel_bytes(format: PixelFormat, width: u32, height: u32) -> u64 {
    Layout::packed(format, width, height).unwrap().pixel_bytes() as u64
}

/// Returns the sum of the copied bytes in all rows of hop `hop`.
fn copied_by(report: &Report, hop: u16) -> u64 {
    report.rows.iter().filter(|r| r.hop == hop).map(|r| r.copied_bytes).sum()
}

#[test]
fn level_off_has_no_rows_and_counts_copies() {
    for link in ["", "! queue depth=2 "] {
        let text = format!("test size=64x48 format=grey frames=10 {link}! copy bytes=1000 ! null");
        let mut report = run(&text, &at(Level::Off));
        assert_eq!((report.frames, report.rows.len(), report.overwritten), (10, 0, 0));
        assert_eq!(report.copied_bytes, 10_000);
        let digest = report.digest();
        assert_eq!((digest.frames, digest.latency), (0, None));
    }
}

#[test]
fn level_times_has_a_row_per_frame_and_hop_and_no_counters() {
    let text = "test size=64x48 format=grey frames=20 ! copy bytes=9 ! queue depth=2 ! encode raw ! null";
    let mut report = run(text, &at(Level::Times));
    assert_eq!(report.rows.len(), 20 * 5);
    assert!(report.rows.iter().all(|r| !r.has(flag::COUNTED) && r.compute_ns == 0 && r.preempted_ns == 0));
    assert_eq!(report.rows.iter().filter(|r| r.has(flag::LAST)).count(), 20);
    assert_eq!(report.rows.iter().filter(|r| r.has(flag::LINK)).count(), 20);
    let digest = report.digest();
    for unknown in [Cause::Compute, Cause::Preempted, Cause::Unexplained, Cause::Device, Cause::Network] {
        assert_eq!(digest.causes[unknown], None, "{unknown:?}");
    }
    for known in [Cause::Copy, Cause::Queue, Cause::Wakeup, Cause::Blocked] {
        assert!(digest.causes[known].is_some(), "{known:?}");
    }
    assert_eq!(digest.switches, None);
    assert!(digest.hops.iter().all(|h| h.frames == 20 && h.switches.is_none()));
}

#[test]
fn level_full_counts_every_stage() {
    let text = "test size=64x48 format=grey frames=20 ! queue depth=2 ! encode raw ! null";
    let mut report = run(text, &at(Level::Full));
    assert_eq!(report.rows.len(), 20 * 4);
    assert!(report.rows.iter().all(|r| r.has(flag::COUNTED) != r.has(flag::LINK)));
    let digest = report.digest();
    for known in [Cause::Compute, Cause::Preempted, Cause::Unexplained] {
        assert!(digest.causes[known].is_some(), "{known:?}");
    }
    assert!(digest.switches.is_some());
    assert_eq!(report.threads.len(), 2);
    assert!(report.rows.iter().all(|r| usize::from(r.thread) == usize::from(r.hop > 0)));
}

/// Checks the rows of `decode` in a path without a link: decoding is compute of the picture's own frame on
/// whichever thread it ran, and nothing waits in a queue.
#[test]
fn time_inside_a_decoder_is_decoding_held_or_pool_and_never_queue() {
    // H.264 with B-frames is reordered, VP9 is not; dav1d's threads share the pictures.
    for (name, threads, is_reordered, is_pool) in [
        ("h264-180p8-high.h264", 1, true, false),
        ("h264-180p8-high.h264", 3, true, false),
        ("vp9-180p8.ivf", 1, false, false),
        ("vp9-180p8.ivf", 3, false, false),
        ("av1-180p8.ivf", 1, false, false),
        ("av1-180p8.ivf", 3, false, true),
    ] {
        let report = run(&format!("file {} ! decode threads={threads} ! null", clip(name)), &at(Level::Full));
        let rows: Vec<_> = report.rows.iter().filter(|r| r.hop == 1).collect();
        assert_eq!(rows.len() as u64, report.frames);
        assert!(report.rows.iter().all(|r| r.queue_ns == 0), "{name} threads={threads}");
        assert_eq!(rows.iter().any(|r| r.pool_ns > 0), is_pool, "{name} threads={threads}");
        if is_reordered {
            assert!(rows.iter().any(|r| r.held_ns > 0), "{name} threads={threads}");
        }
        if !is_pool {
            // The first picture of each frame thread has no clock yet. A hidden picture takes a turn as well.
            let known = rows.iter().filter(|r| r.compute_ns > 0).count();
            assert!(known + threads >= rows.len(), "{name} threads={threads}: {known} of {}", rows.len());
        }
    }
}

#[test]
fn level_times_leaves_the_time_inside_a_threaded_decoder_empty() {
    let text = format!("file {} ! decode threads=3 ! null", clip("h264-180p8-high.h264"));
    let mut report = run(&text, &at(Level::Times));
    let causes = report.digest().causes;
    for unknown in [Cause::Held, Cause::Pool, Cause::Compute, Cause::Unexplained] {
        assert_eq!(causes[unknown], None, "{unknown:?}");
    }
    assert_eq!(causes[Cause::Queue], Some(0.0));
}

#[test]
fn a_full_ledger_keeps_the_last_rows_and_says_how_many_went() {
    let options = Options { rows: 16, ..at(Level::Times) };
    let mut report = run("test size=16x16 format=grey frames=100 ! encode raw ! null", &options);
    assert_eq!((report.rows.len(), report.overwritten), (16, 300 - 16));
    // Three rows a frame: five whole frames and one row of a sixth.
    let written: Vec<(u64, u16)> = report.rows.iter().map(|r| (r.seq, r.hop)).collect();
    let expected: Vec<(u64, u16)> = (0..300).map(|n| (n / 3, (n % 3) as u16)).skip(300 - 16).collect();
    assert_eq!(written, expected);
    let digest = report.digest();
    assert_eq!(digest.totals.iter().map(|t| t.seq).collect::<Vec<_>>(), [95, 96, 97, 98, 99]);

    let mut report =
        run("test size=16x16 format=grey frames=100 ! queue depth=3 ! encode raw ! null", &options);
    assert_eq!(report.rows.len(), 32);
    // One row a frame in the first thread, three in the second.
    assert_eq!(report.overwritten, (100 - 16) + (300 - 16));
    assert_eq!(report.digest().totals.iter().map(|t| t.seq).collect::<Vec<_>>(), [95, 96, 97, 98, 99]);
}

/// Checks that the digest leaves out each frame that lost a row. Frames that leave a decoder in another
/// order than their packets came lose their rows in another order too.
#[test]
fn a_frame_that_lost_a_row_is_in_no_figure() {
    let text = format!("file {} ! decode threads=1 ! queue depth=4 ! null", clip("h264-180p8-high.h264"));
    let mut torn_somewhere = false;
    for rows in 8..40 {
        let mut report = run(&text, &Options { rows, ..at(Level::Times) });
        assert!(report.overwritten > 0);
        let mut hops: BTreeMap<u64, Vec<u16>> = BTreeMap::new();
        for row in &report.rows {
            hops.entry(row.seq).or_default().push(row.hop);
        }
        let whole: Vec<u64> = hops.iter().filter(|(_, hops)| hops.len() == 4).map(|(seq, _)| *seq).collect();
        torn_somewhere |= hops.len() > whole.len();
        let digested: Vec<u64> = report.digest().totals.iter().map(|t| t.seq).collect();
        assert_eq!(digested, whole, "{rows} rows");
    }
    assert!(torn_somewhere);
}

#[test]
fn dropped_frames_have_their_row_and_no_latency() {
    for leaky in ["upstream", "downstream"] {
        let text = format!(
            "test size=16x16 format=grey frames=200 pool=8 ! queue depth=2 leaky={leaky} ! block time=1ms ! null"
        );
        let mut report = run(&text, &at(Level::Full));
        assert!(report.dropped > 0);
        assert_eq!(report.frames + report.dropped, 200);
        let is_dropped = |seq| move |r: &&framepath_model::ledger::Row| r.seq == seq && r.has(flag::DROPPED);
        let rows = report.rows.clone();
        let digest = report.digest();
        assert_eq!(digest.frames, report.frames);
        assert_eq!(digest.hops[1].dropped, report.dropped);
        assert_eq!(digest.hops[1].frames, report.frames);
        assert!(digest.totals.iter().all(|t| !rows.iter().any(|r| is_dropped(t.seq)(&r))));
        assert_eq!(rows.iter().filter(|r| r.has(flag::DROPPED)).count() as u64, report.dropped);
    }
}

#[test]
fn copies_are_counted_to_the_byte() {
    let frame = pixel_bytes(PixelFormat::Nv12, 64, 48);
    let odd = pixel_bytes(PixelFormat::Yuv420p10, 99, 57);
    for (path, bytes) in [
        ("test size=64x48 frames=7 ! copy bytes=12345 ! null", 12_345),
        ("test size=64x48 frames=7 ! copy bytes=1000 ! copy bytes=24 ! null", 1_024),
        ("test size=64x48 frames=7 ! encode raw ! null", 0),
        ("test size=64x48 frames=7 ! encode raw copy=1 ! null", frame),
        ("test size=64x48 frames=7 ! encode raw copy=1 ! encode raw copy=1 ! null", 2 * frame),
        ("test size=99x57 format=yuv420p10 frames=7 ! encode raw copy=1 ! null", odd),
        ("test bytes=70000 frames=7 ! encode raw copy=1 ! null", 70_000),
        ("test size=64x48 frames=7 ! threshold level=100 ! null", 0),
        ("test size=64x48 frames=7 ! queue depth=2 ! threshold level=100 roi=3,3,9,9 ! null", 0),
        ("test size=64x48 frames=7 ! framemd5 /dev/null", 0),
    ] {
        for level in [Level::Off, Level::Times, Level::Full] {
            let mut report = run(path, &at(level));
            assert_eq!(report.copied_bytes, 7 * bytes, "{path}");
            if level != Level::Off {
                assert_eq!(report.rows.iter().map(|r| r.copied_bytes).sum::<u64>(), 7 * bytes, "{path}");
                assert_eq!(report.digest().copied_bytes, bytes as f64, "{path}");
            }
        }
    }
}

#[test]
fn written_pixels_are_counted_where_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.y4m");
    for (format, sizes) in [
        ("grey", [(64, 48), (99, 57)]),
        ("yuv420p", [(64, 48), (99, 57)]),
        ("yuv420p10", [(64, 48), (99, 57)]),
    ] {
        for (width, height) in sizes {
            let bytes = pixel_bytes(format.parse().unwrap(), width, height);
            let source = format!("test size={width}x{height} format={format} frames=6");
            let report = run(&format!("{source} ! y4m {}", file.display()), &at(Level::Times));
            assert_eq!(report.copied_bytes, 6 * bytes, "{source}");
            assert_eq!(copied_by(&report, 1), 6 * bytes, "{source}");
            let written = fs::read(&file).unwrap();
            let header = written.iter().position(|b| *b == b'\n').unwrap() + 1;
            assert_eq!(written.len() as u64, header as u64 + 6 * (bytes + "FRAME\n".len() as u64));

            let pictures = folder.path().join(format!("{format}-{width}"));
            let report = run(&format!("{source} ! pgm {}", pictures.display()), &at(Level::Times));
            let luma = u64::from(width * height) * if format == "yuv420p10" { 2 } else { 1 };
            assert_eq!(copied_by(&report, 1), 6 * luma, "{source}");
            assert_eq!(report.copied_bytes, 6 * luma, "{source}");
            assert_eq!(files_of(&pictures).len(), 6);
            for picture in files_of(&pictures) {
                let head =
                    format!("P5\n{width} {height}\n").len() + if format == "yuv420p10" { 5 } else { 4 };
                assert_eq!(fs::metadata(picture).unwrap().len(), luma + head as u64);
            }
        }
    }
}

fn files_of(folder: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn decoding_copies_nothing_and_conversions_copy_the_minimum() {
    let luma = 320 * 180;
    for (name, format, bytes) in [
        ("h264-180p8-high.h264", "native", 0),
        ("hevc-180p10.hevc", "native", 0),
        ("vp8-180p8-container.webm", "native", 0),
        ("vp9-180p8.ivf", "native", 0),
        ("av1-180p8.ivf", "native", 0),
        ("av1-180p8-grain.ivf", "native", 0),
        // Chroma only.
        ("h264-180p8-high.h264", "nv12", luma / 2),
        ("vp9-180p8.ivf", "nv12", luma / 2),
        ("av1-180p8.ivf", "nv12", luma / 2),
        // The ten bits of all samples move to the other end of their words.
        ("vp9-180p10.ivf", "p010", luma * 3),
        ("av1-180p10.ivf", "p010", luma * 3),
    ] {
        for threads in ["1", "auto"] {
            let text = format!("file {} ! decode format={format} threads={threads} ! null", clip(name));
            let report = run(&text, &at(Level::Times));
            assert_eq!(report.frames, 30, "{text}");
            assert_eq!(report.copied_bytes, 30 * bytes, "{text}");
            assert_eq!(copied_by(&report, 1), 30 * bytes, "{text}");
        }
    }
}

/// Checks that a stage writes to a copy of a picture that the decoder still reads, and counts the copy. A
/// decoder still reads most of its pictures when a stage gets them.
#[test]
fn a_stage_behind_a_decoder_writes_into_a_counted_copy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.md5");
    let frame = pixel_bytes(PixelFormat::Yuv420p, 320, 180);
    for name in ["h264-180p8-baseline.h264", "vp9-180p8.ivf", "av1-180p8.ivf"] {
        let hashes = |inside: &str| {
            let text = format!("file {} ! decode ! {inside} ! framemd5 {}", clip(name), file.display());
            let report = run(&text, &at(Level::Times));
            assert_eq!(report.frames, 30);
            (report, md5_lines(&fs::read_to_string(&file).unwrap()))
        };
        let threshold = "threshold level=90 roi=10,10,200,100";
        let (report, in_place) = hashes(threshold);
        let copied = copied_by(&report, 2);
        assert_eq!(copied, report.copied_bytes);
        assert!(copied > 0 && copied % frame == 0 && copied <= 30 * frame, "{name}: {copied}");
        // A copy made in front of the stage has the right pixels.
        let (report, on_copies) = hashes(&format!("encode raw copy=1 ! {threshold}"));
        assert_eq!(report.copied_bytes, 30 * frame);
        assert_eq!(in_place, on_copies, "{name}");
        assert_ne!(in_place, hashes("encode raw").1);
    }
}
