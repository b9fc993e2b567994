// SPDX-License-Identifier: MIT OR Apache-2.0
//! `encode` and `mux` in the command: with workers, pipes and signals.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use framepath_os::process::children;
use framepath_testkit::{clip, ffmpeg, ffprobe, finish, framepath, md5_lines, run, until, wait};

/// Returns the hashes of the frames of `file` as ffmpeg decodes them.
fn hashes(file: &Path) -> Vec<String> {
    let text = ffmpeg(&["-i", file.to_str().unwrap(), "-map", "0:v", "-f", "framemd5", "-"]);
    let hash = |line: String| line.rsplit_once(' ').unwrap().1.to_owned();
    md5_lines(&String::from_utf8(text).unwrap()).into_iter().map(hash).collect()
}

#[test]
fn a_demuxer_in_a_worker_gives_a_muxer_the_same_packets() {
    let folder = tempfile::tempdir().unwrap();
    let [source, copy] =
        ["source.mp4", "copy.mp4"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let picture = "testsrc2=s=320x180:r=30000/1001:d=1";
    ffmpeg(&["-f", "lavfi", "-i", picture, "-pix_fmt", "yuv420p", "-c:v", "libx264", "-bf", "3", &source]);
    run(&["run", &format!("file {source} host=process ! mux {copy}")]).ended(0);
    // The decoding times do not cross the process; they are made from the presentation times.
    let packets = |file: &str| ffprobe(file, "packet=pts,dts,size,flags");
    assert_eq!(packets(&copy), packets(&source));
}

#[test]
fn a_worker_decodes_what_the_path_encodes() {
    let folder = tempfile::tempdir().unwrap();
    let [inline, hosted, file] = ["inline", "hosted", "out.mkv"].map(|name| folder.path().join(name));
    let source = format!("file {} ! decode host=process ! encode h264 threads=1", clip("vp9-180p8.ivf"));
    let md5 = |decode: &str, to: &Path| format!("{source} ! {decode} ! framemd5 {}", to.display());
    run(&["run", &md5("decode", &inline)]).ended(0);
    let tee = format!(
        "tee ( queue ! mux {} ) ( decode host=process ! framemd5 {} )",
        file.display(),
        hosted.display()
    );
    run(&["run", &format!("{source} ! {tee}")]).ended(0);
    let [inline, hosted] = [inline, hosted].map(|file| md5_lines(&fs::read_to_string(file).unwrap()));
    assert_eq!(hosted, inline);
    let hash = |line: &String| line.rsplit_once(' ').unwrap().1.to_owned();
    assert_eq!(hashes(&file), inline.iter().map(hash).collect::<Vec<_>>());
}

#[test]
fn standard_output_takes_containers_that_need_no_seek() {
    let folder = tempfile::tempdir().unwrap();
    let path = |mux: &str| format!("test frames=20 size=64x48 ! encode h264 ! mux {mux}");
    for format in ["mkv", "ts"] {
        let file = folder.path().join(format);
        let mut command = framepath(&["run", "--quiet", &path(&format!("- format={format}"))]);
        command.stdout(Stdio::from(fs::File::create(&file).unwrap()));
        finish(command).ended(0);
        assert_eq!(hashes(&file).len(), 20, "{format}");
    }
    let text = "standard output: mp4 needs an output that can seek, not a pipe; use format=mkv or format=ts";
    run(&["run", "--quiet", &path("- format=mp4")]).ended(1).prints(text);
    run(&["run", "--quiet", &path("-")]).ended(1).prints("the name has no known ending");
}

#[test]
fn a_signal_leaves_a_file_that_plays() {
    let folder = tempfile::tempdir().unwrap();
    for ending in ["mp4", "mkv"] {
        let file = folder.path().join(format!("out.{ending}"));
        let path = format!("test rate=100 frames=1000000 size=64x48 ! encode h264 ! mux {}", file.display());
        let child = framepath(&["run", "--quiet", &path]).spawn().unwrap();
        until("the file exists", || file.exists());
        children::signal(&child, 2).unwrap();
        wait(child, &path).ended(130);
        assert!(!hashes(&file).is_empty(), "{ending}");
    }
}

#[test]
fn a_packet_in_the_far_future_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [source, copy] =
        ["source.ivf", "copy.mp4"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let mut bytes = fs::read(clip("av1-180p8.ivf")).unwrap();
    // Behind the file's head of 32 bytes, each packet has a head with its size and its time.
    let mut at = 32;
    for _ in 0..5 {
        at += 12 + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    }
    bytes[at + 4..at + 12].copy_from_slice(&(1_u64 << 62).to_le_bytes());
    fs::write(&source, &bytes).unwrap();
    let run = run(&["run", &format!("file {source} ! mux {copy}")]).ended(1);
    assert!(run.stderr.contains("packet 5 has a time of more than 2147483648 s"), "{}", run.stderr);
}
