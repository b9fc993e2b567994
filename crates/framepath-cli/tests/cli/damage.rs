// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams with a lost or unreadable part: `decode damage=show|skip|stop`, beside ffmpeg.

use std::fs;
use std::path::{Path, PathBuf};

use framepath_testkit::{CommandOutput, ffmpeg, ffmpeg_output, md5_lines, run};
use serde_json::Value;
use tempfile::TempDir;

/// Size of a packet of a transport stream, bytes.
const TS_PACKET: usize = 188;

/// Number of pictures between two keyframes.
const GROUP: usize = 10;

/// Number of the damaged picture. The demuxer notices the loss at the next start of a unit, when the picture before
/// is not yet complete for its parser, so that picture is marked as damaged, too.
const DAMAGED: usize = GROUP + 4;

/// Makes a transport stream of five groups of ten H.264 pictures.
fn whole(folder: &TempDir) -> PathBuf {
    let file = folder.path().join("whole.ts");
    let source = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=2"];
    let encoder = ["-c:v", "libx264", "-preset", "veryfast", "-g", "10", "-bf", "0", "-pix_fmt", "yuv420p"];
    ffmpeg(&[&source[..], &encoder, &[file.to_str().unwrap()]].concat());
    file
}

/// Makes a copy of `file` without the transport packet in the middle of the video packet `number`.
fn without_a_packet_of(file: &Path, number: usize) -> PathBuf {
    let bytes = fs::read(file).unwrap();
    let video: Vec<&[u8]> = bytes.chunks(TS_PACKET).collect();
    let is_video = |packet: &[u8]| (packet[1] & 0x1f, packet[2]) == (1, 0);
    let starts: Vec<usize> =
        (0..video.len()).filter(|at| is_video(video[*at]) && video[*at][1] & 0x40 != 0).collect();
    let inside: Vec<usize> =
        (starts[number] + 1..starts[number + 1]).filter(|at| is_video(video[*at])).collect();
    let lost = inside[inside.len() / 2];
    let cut = file.with_file_name("lost.ts");
    fs::write(&cut, [&bytes[..lost * TS_PACKET], &bytes[(lost + 1) * TS_PACKET..]].concat()).unwrap();
    cut
}

fn hashes(framemd5: &str) -> Vec<String> {
    md5_lines(framemd5).iter().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
}

fn by_ffmpeg(file: &Path) -> Vec<String> {
    let file = file.to_str().unwrap();
    let output =
        ffmpeg_output(&["-threads", "1", "-i", file, "-fps_mode", "passthrough", "-f", "framemd5", "-"]);
    hashes(&String::from_utf8(output.stdout).unwrap())
}

/// Runs `framepath run` on `file` with these options of `decode` and of the command.
fn decoded(file: &Path, decode: &str, options: &[&str]) -> CommandOutput {
    let path = format!("file '{}' ! decode {decode} ! framemd5 -", file.display());
    run(&[&["run", "--quiet", &path], options].concat())
}

#[test]
fn a_lost_transport_packet_is_concealed_as_in_ffmpeg() {
    let folder = tempfile::tempdir().unwrap();
    let file = without_a_packet_of(&whole(&folder), DAMAGED);
    let expected = by_ffmpeg(&file);
    assert_eq!(expected.len(), 50);
    for host in ["inline", "process"] {
        let ran = decoded(&file, &format!("threads=1 host={host}"), &[]).ended(0);
        assert_eq!(hashes(&ran.stdout), expected, "{host}");
        assert!(
            ran.stderr.starts_with("framepath: run: damaged stream: 0 packets undecodable, "),
            "{ran:#?}"
        );
        assert!(ran.stderr.contains("concealed, first at 0.5"), "{ran:#?}");
        let ran = decoded(&file, &format!("threads=3 host={host}"), &["--strict"]).ended(3);
        assert_eq!(hashes(&ran.stdout).len(), 50, "{host}");
    }
}

#[test]
fn damage_skip_delivers_nothing_up_to_the_next_keyframe() {
    let folder = tempfile::tempdir().unwrap();
    let whole = whole(&folder);
    let file = without_a_packet_of(&whole, DAMAGED);
    let all = by_ffmpeg(&whole);
    let kept = [&all[..DAMAGED - 1], &all[2 * GROUP..]].concat();
    for host in ["inline", "process"] {
        for threads in ["1", "3"] {
            let ran = decoded(&file, &format!("damage=skip threads={threads} host={host}"), &[]).ended(0);
            assert_eq!(hashes(&ran.stdout), kept, "{host} {threads}");
            assert!(ran.stderr.contains(" skipped up to random access points"), "{ran:#?}");
        }
    }
}

/// A worker dies behind the damage; the next worker finds the damage again in the replay, and skips the same packets.
#[test]
fn a_restart_counts_no_skipped_packet_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = without_a_packet_of(&whole(&folder), DAMAGED);
    let ran =
        |fault: &str| decoded(&file, &format!("damage=skip threads=1 host=process {fault}"), &[]).ended(0);
    let without_fault = ran("");
    assert!(
        without_fault.stderr.contains(" packets skipped up to random access points"),
        "{without_fault:?}"
    );
    for at in DAMAGED..2 * GROUP + 2 {
        let restarted = ran(&format!("fault=crash@{at}"));
        assert_eq!(hashes(&restarted.stdout), hashes(&without_fault.stdout), "crash@{at}");
        assert_eq!(restarted.stderr, without_fault.stderr, "crash@{at}");
    }
}

#[test]
fn damage_stop_ends_the_run_at_the_damage() {
    let folder = tempfile::tempdir().unwrap();
    let whole = whole(&folder);
    let file = without_a_packet_of(&whole, DAMAGED);
    for host in ["inline", "process"] {
        let ran = decoded(&file, &format!("damage=stop threads=1 host={host}"), &[]).ended(1);
        assert_eq!(hashes(&ran.stdout), by_ffmpeg(&whole)[..DAMAGED - 1], "{host}");
        assert!(ran.stderr.contains("packet 13 is damaged or cut short"), "{ran:#?}");
    }
}

#[test]
fn the_counts_of_damage_are_in_the_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = without_a_packet_of(&whole(&folder), DAMAGED);
    let json = folder.path().join("run.json");
    let counts = |decode: &str| {
        decoded(&file, decode, &["--json", json.to_str().unwrap()]).ended(0);
        let run: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        let count = |name: &str| run["rows"][0][name].as_f64().unwrap();
        (count("undecodable"), count("concealed"))
    };
    let (undecodable, concealed) = counts("threads=1");
    assert_eq!((undecodable, concealed), (0.0, 2.0));
    let (undecodable, concealed) = counts("threads=1 damage=skip");
    assert_eq!((undecodable, concealed), (1.0, 0.0));
}

#[test]
fn the_frames_before_an_unreadable_rest_are_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = fs::read(framepath_testkit::clip("vp9-180p8.ivf")).unwrap();
    let file = folder.path().join("cut.ivf");
    fs::write(&file, &bytes[..bytes.len() * 2 / 3]).unwrap();
    let expected = by_ffmpeg(&file);
    assert!((10..30).contains(&expected.len()), "{}", expected.len());
    for host in ["inline", "process"] {
        for (strict, code) in [(&[][..], 0), (&["--strict"][..], 3)] {
            let ran = decoded(&file, &format!("threads=1 host={host}"), strict).ended(code);
            assert_eq!(hashes(&ran.stdout), expected, "{host}");
            assert!(ran.stderr.contains("damaged stream: "), "{ran:#?}");
        }
    }
}

/// Reads a file whose pictures are all destroyed: the container is intact, and no packet can be decoded.
#[test]
fn a_stream_without_a_decodable_frame_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(framepath_testkit::clip("vp9-180p8.ivf")).unwrap();
    let mut at = 32;
    while at + 12 <= bytes.len() {
        let size = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        bytes[at + 12..at + 12 + size].fill(0xff);
        at += 12 + size;
    }
    let file = folder.path().join("nothing.ivf");
    fs::write(&file, bytes).unwrap();
    for host in ["inline", "process"] {
        for damage in ["show", "skip"] {
            let ran = decoded(&file, &format!("damage={damage} host={host}"), &[]).ended(1);
            assert!(ran.stderr.contains("no frame was delivered; "), "{ran:#?}");
        }
    }
}
