// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sink `mux`: files that other programs read, with the times, colours and frames of the source.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use framepath::{HopFailure, Item, Options, Out, Pipeline, Report, Stage, StageError, StreamInfo};
use framepath_testkit::pipeline::{run, try_run};
use framepath_testkit::{clip, ffmpeg, ffprobe, md5_lines};

/// Entries of ffprobe for the properties of a stream.
const STREAM: &str = "stream=codec_name,width,height,pix_fmt,sample_aspect_ratio,avg_frame_rate,color_range,\
                      color_space,color_transfer,color_primaries,nb_read_frames";

/// Makes a video with B-frames, 30000/1001 pictures per second, pixels of 4:3 and colours of HDR.
fn video(folder: &Path) -> String {
    let file = path(folder, "source.mp4");
    let picture = "testsrc2=s=320x180:r=30000/1001:d=1,format=yuv420p,setsar=4/3";
    let colors = ["-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc"];
    let mut arguments = vec!["-f", "lavfi", "-i", picture, "-c:v", "libx264", "-bf", "2", "-g", "15"];
    arguments.extend(["-color_range", "tv"]);
    arguments.extend(colors);
    arguments.push(&file);
    ffmpeg(&arguments);
    file
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// Returns what ffprobe says of the video stream of `file`. An MPEG-TS file lists its stream twice.
fn stream(file: &str) -> Vec<String> {
    let mut lines = ffprobe(file, STREAM);
    lines.dedup();
    let [line] = &lines[..] else { panic!("{file}: {lines:?}") };
    line.clone()
}

/// Returns the presentation times of the frames of `file` in milliseconds, counted from the first.
fn times(file: &str) -> Vec<i64> {
    let lines = ffprobe(file, "frame=best_effort_timestamp_time");
    let seconds = lines.iter().map(|line| line[0].parse::<f64>().unwrap());
    let ms: Vec<i64> = seconds.map(|s| (s * 1000.0).round() as i64).collect();
    ms.iter().map(|time| time - ms[0]).collect()
}

/// Returns the hashes of the frames of `file` as ffmpeg decodes them.
fn hashes(file: &str) -> Vec<String> {
    let text = ffmpeg(&["-i", file, "-map", "0:v", "-f", "framemd5", "-"]);
    let hash = |line: String| line.rsplit_once(' ').unwrap().1.to_owned();
    md5_lines(&String::from_utf8(text).unwrap()).into_iter().map(hash).collect()
}

/// Returns the hashes of the frames of the path `text`.
fn own_hashes(folder: &Path, text: &str) -> Vec<String> {
    let file = path(folder, "own-md5");
    run(&format!("{text} ! framemd5 {file}"), &Options::default());
    let hash = |line: String| line.rsplit_once(' ').unwrap().1.to_owned();
    md5_lines(&fs::read_to_string(file).unwrap()).into_iter().map(hash).collect()
}

#[test]
fn encoded_files_have_the_frames_times_and_colours_of_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let source = video(folder.path());
    let (expected, expected_times) = (stream(&source), times(&source));
    for (codec, endings) in [
        ("h264", &["mkv", "mp4", "mov", "ts"][..]),
        ("hevc", &["mkv", "mp4", "mov", "ts"]),
        ("vp8", &["mkv", "webm"]),
        ("vp9", &["mkv", "webm", "mp4"]),
        ("av1", &["mkv", "webm", "mp4"]),
    ] {
        for ending in endings {
            let file = path(folder.path(), &format!("out.{ending}"));
            let encode = format!("file {source} ! decode ! encode {codec} threads=1 bitrate=2M");
            run(&format!("{encode} ! mux {file}"), &Options::default());
            let mut wanted = expected.clone();
            wanted[0] = codec.to_owned();
            let is = stream(&file);
            if *ending == "webm" {
                // WebM has the size of the picture on the screen, in whole pixels: 427 for 426.7.
                wanted[3] = "427:320".to_owned();
            }
            assert_eq!(is, wanted, "{codec} in {ending}");
            let both = times(&file).into_iter().zip(&expected_times);
            assert!(
                both.clone().all(|(is, was)| (is - was).abs() <= 1),
                "{codec} in {ending}: {:?}",
                both.collect::<Vec<_>>()
            );
            let own = own_hashes(folder.path(), &format!("file {file} ! decode"));
            assert_eq!(hashes(&file), own, "{codec} in {ending}");
            assert_eq!(own.len(), expected_times.len());
        }
    }
}

#[test]
fn irregular_times_and_full_range_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let [source, file] = ["source.mkv", "out.mkv"].map(|name| path(folder.path(), name));
    let picture = "testsrc2=s=320x180:r=30:d=2,select='not(mod(n,3)*mod(n,5))',format=yuvj420p";
    ffmpeg(&[
        "-f",
        "lavfi",
        "-i",
        picture,
        "-vsync",
        "vfr",
        "-c:v",
        "libx264",
        "-color_range",
        "pc",
        &source,
    ]);
    let expected = times(&source);
    for codec in ["h264", "hevc", "vp9"] {
        run(&format!("file {source} ! decode ! encode {codec} ! mux {file}"), &Options::default());
        assert_eq!(times(&file), expected, "{codec}");
        assert_eq!(stream(&file)[5], "pc", "{codec}");
    }
}

#[test]
fn a_remux_keeps_packets_times_and_order() {
    let folder = tempfile::tempdir().unwrap();
    let source = video(folder.path());
    let (expected, expected_stream) = (hashes(&source), stream(&source));
    for ending in ["mkv", "mp4", "mov", "ts"] {
        let file = path(folder.path(), &format!("out.{ending}"));
        run(&format!("file {source} ! mux {file}"), &Options::default());
        assert_eq!(hashes(&file), expected, "{ending}");
        assert_eq!(stream(&file), expected_stream, "{ending}");
        assert!(times(&file).into_iter().zip(times(&source)).all(|(is, was)| (is - was).abs() <= 1));
    }
    let packets = |file: &str| ffprobe(file, "packet=pts,dts,size,flags");
    assert_eq!(packets(&path(folder.path(), "out.mp4")), packets(&source));
}

#[test]
fn other_sources_are_remuxed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["vp9-180p8.ivf", "av1-180p8.ivf", "vp8-180p8-container.webm", "hevc-180p8-container.mkv"] {
        let file = path(folder.path(), "out.mkv");
        run(&format!("file {} ! mux {file}", clip(name)), &Options::default());
        assert_eq!(hashes(&file), hashes(&clip(name)), "{name}");
    }
    // A bare stream has no times; without B-frames they are not needed.
    let file = path(folder.path(), "baseline.mp4");
    run(&format!("file {} ! mux {file}", clip("h264-180p8-baseline.h264")), &Options::default());
    assert_eq!(hashes(&file), hashes(&clip("h264-180p8-baseline.h264")));
    let file = path(folder.path(), "high.mp4");
    let error = error_of(&format!("file {} ! mux {file}", clip("h264-180p8-high.h264")));
    assert!(error.contains("has no presentation time, and the pictures are not in the order"), "{error}");
}

#[test]
fn times_go_on_where_a_file_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let source = video(folder.path());
    for (path_text, frames) in [("", 60), ("! decode ! encode h264", 60)] {
        let file = path(folder.path(), "loop.mkv");
        run(&format!("file {source} loop=2 {path_text} ! mux {file}"), &Options::default());
        let times = times(&file);
        assert_eq!(times.len(), frames);
        assert!(times.windows(2).all(|pair| (33..=34).contains(&(pair[1] - pair[0]))), "{times:?}");
    }
}

#[test]
fn a_stream_is_recorded_and_decoded_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one.mkv", "two.mp4"].map(|name| path(folder.path(), name));
    let md5 = path(folder.path(), "md5");
    let source = format!("file {} ! decode ! encode h264 threads=1", video(folder.path()));
    let sinks = format!("( queue ! mux {one} ) ( queue ! mux {two} ) ( decode ! framemd5 {md5} )");
    run(&format!("{source} ! tee {sinks}"), &Options::default());
    let hash = |line: String| line.rsplit_once(' ').unwrap().1.to_owned();
    let own: Vec<_> = md5_lines(&fs::read_to_string(md5).unwrap()).into_iter().map(hash).collect();
    assert_eq!((hashes(&one), hashes(&two)), (own.clone(), own));
}

/// Returns the text of the error that ends the run of `text`, before it starts or during it.
fn error_of(text: &str) -> String {
    let error = |report: Report| report.error.unwrap_or_else(|| panic!("{text}: no error"));
    try_run(text, &Options::default()).map_or_else(|error| error, error).to_string()
}

#[test]
fn what_cannot_be_written_is_an_error_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let test = "test frames=3 size=64x48";
    for (name, encode, text) in [
        (
            "out.avi",
            "encode h264",
            "the name has no known ending; use a name that ends in one of .mkv, .webm, .mp4, .mov, .ts, or format=",
        ),
        ("out", "encode h264", "the name has no known ending"),
        ("out.webm", "encode h264", "webm cannot hold h264; use a name that ends in .mkv"),
        ("out.ts", "convert format=yuv420p ! encode vp9", "ts cannot hold vp9"),
        ("out.mp4", "convert format=rgba ! encode h264", "libx264 does not take RGBA frames"),
        ("out.mkv", "threshold", "takes packets, but frames arrive: put `encode h264` in front"),
        ("no-such-folder/out.mkv", "encode h264", "No such file or directory"),
    ] {
        let file = path(folder.path(), name);
        let error = error_of(&format!("{test} ! {encode} ! mux {file}"));
        assert!(error.contains(text), "{name}: {error}");
        assert!(!Path::new(&file).exists(), "{name}");
    }
    let folder_name = folder.path().to_str().unwrap();
    assert!(
        error_of(&format!("{test} ! encode h264 ! mux {folder_name} format=mkv")).contains("Is a directory")
    );
    // The format overrides the name.
    let file = path(folder.path(), "out.avi");
    run(&format!("{test} ! encode h264 ! mux {file} format=mkv"), &Options::default());
    assert_eq!(stream(&file)[0], "h264");
}

#[test]
fn a_run_without_a_packet_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "out.mkv");
    fs::write(&file, "old").unwrap();
    error_of(&format!("test frames=3 size=65x48 format=yuv420p ! encode h264 ! mux {file}"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
}

#[test]
fn frames_of_another_size_do_not_fit_the_track() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "out.mkv");
    let error =
        error_of(&format!("file {} ! decode ! encode h264 ! mux {file}", clip("vp9-resize-180p8.ivf")));
    assert!(error.contains("the pictures change from 320x180 to "), "{error}");
    // The frames before the change are in the file.
    assert!(hashes(&file).len() > 1);
}

#[test]
fn a_full_device_is_the_systems_error() {
    let error =
        error_of("test frames=300 size=640x480 ! encode h264 bitrate=100M ! mux /dev/full format=mkv");
    assert!(error.ends_with("No space left on device (os error 28)"), "{error}");
    let error = error_of("test frames=3 size=64x48 ! encode h264 ! mux /dev/full format=mp4");
    assert!(
        error.contains("mp4 needs an output that can seek, not a pipe; use format=mkv or format=ts"),
        "{error}"
    );
}

/// Stage that fails after some items.
struct FailsAfter(u32);

impl Stage for FailsAfter {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if self.0 == 0 {
            return Err(out.fail(StageError::Option("the end".to_owned())));
        }
        self.0 -= 1;
        out.push(item)
    }
}

#[test]
fn a_run_that_fails_leaves_a_file_that_plays() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "out.mp4");
    let pipeline = Pipeline::parse("test size=64x48").unwrap().stage(FailsAfter(20));
    let report =
        pipeline.append(&format!("encode h264 ! mux {file}")).unwrap().run(&Options::default()).unwrap();
    assert!(report.error.is_some());
    assert_eq!(hashes(&file).len(), 20);
}

#[test]
fn a_stopped_run_leaves_a_file_that_plays() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "out.mp4");
    let options = Options::default();
    let (stop, reached) = (options.stop.clone(), Arc::new(AtomicBool::new(false)));
    let progress = options.progress.clone();
    let done = reached.clone();
    let stopper = std::thread::spawn(move || {
        while progress.load(Ordering::Relaxed) < 5 && !done.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        stop.stop();
    });
    let text = format!("test size=64x48 frames=1000000 rate=200 ! encode h264 ! mux {file}");
    let report = run(&text, &options);
    reached.store(true, Ordering::Relaxed);
    stopper.join().unwrap();
    assert!(report.frames >= 5);
    assert_eq!(hashes(&file).len() as u64, report.frames);
}

#[test]
fn a_small_file_system_fills_up_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=100k", "none"]).arg(folder.path()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        // Only root can mount; the device `/dev/full` has the same error.
        return;
    }
    let file = path(folder.path(), "out.mkv");
    let text = format!("test frames=300 size=640x480 ! encode h264 bitrate=50M ! mux {file}");
    let error = std::panic::catch_unwind(|| error_of(&text));
    Command::new("umount").arg(folder.path()).status().unwrap();
    assert!(error.unwrap().ends_with("No space left on device (os error 28)"));
}
