// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deaths of a worker in streams with pictures that a seek or an edit list leaves out.

use std::path::Path;

use framepath_testkit::{md5_lines, run};

use super::access_points::{ffmpeg, skipped};

const SOURCE: [&str; 6] = ["-f", "lavfi", "-i", "testsrc2=s=128x96:r=25:d=1.6", "-pix_fmt", "yuv420p"];
const X264: &str = "keyint=10:min-keyint=10:scenecut=0:open-gop=1:bframes=2:threads=1";
const X265: &str =
    "keyint=10:min-keyint=10:scenecut=0:open-gop=1:bframes=2:pools=1:frame-threads=1:log-level=none";

/// Decodes the file with the options `start` of the stage `file` and `options` of `decode`. Returns the
/// hashes of the frames, the exit code and standard error.
fn decoded(file: &Path, start: &str, options: &str) -> (Vec<String>, Option<i32>, String) {
    let hashes = file.with_extension("framemd5");
    let path =
        format!("file '{}' {start} ! decode {options} ! framemd5 '{}'", file.display(), hashes.display());
    let ran = run(&["run", &path]);
    let text = std::fs::read_to_string(&hashes).unwrap();
    let hash = |line: String| line.rsplit(' ').next().unwrap().to_owned();
    (md5_lines(&text).into_iter().map(hash).collect(), ran.code, ran.stderr)
}

#[test]
fn frames_skipped_by_a_seek_without_times_stay_skipped_after_a_death() {
    let folder = tempfile::tempdir().unwrap();
    for (name, encoder, parameters, values) in
        [("bare.h264", "libx264", "-x264-params", X264), ("bare.hevc", "libx265", "-x265-params", X265)]
    {
        let file = folder.path().join(name);
        ffmpeg(&[&SOURCE[..], &["-c:v", encoder, parameters, values, file.to_str().unwrap()]].concat());
        for (start, frames) in [("start=0.6s", 25), ("start=0.6s loop=2", 50)] {
            let (inline, code, _) = decoded(&file, start, "");
            assert_eq!((inline.len(), code), (frames, Some(0)), "{name}");
            for fault in ["crash@5", "crash@27", "crash@38", "poison@0", "poison@2", "poison@9"] {
                for threads in ["", "threads=1"] {
                    let options = format!("host=process fault={fault} {threads}");
                    let (got, code, stderr) = decoded(&file, start, &options);
                    assert_eq!(code, Some(0), "{name} {start} {options}: {stderr}");
                    assert_eq!(got, inline, "{name} {start} {options}");
                }
            }
            // The packets from here on are lost up to the next random access point.
            let (got, code, stderr) = decoded(&file, start, "host=process fault=poison@25");
            assert_eq!((code, got.len() + skipped(&stderr)), (Some(3), frames), "{name} {start}: {stderr}");
            assert!(got.iter().all(|frame| inline.contains(frame)), "{name} {start}");
        }
    }
}

/// Returns a box of an MP4 file.
fn mp4_box(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32 + 8).to_be_bytes()[..], name, content].concat()
}

/// Returns the offset in `bytes` of the first MP4 box `name`, which begins with its size. Panics if
/// there is no such box.
fn place(bytes: &[u8], name: &[u8; 4]) -> usize {
    bytes.windows(4).position(|window| window == name).unwrap() - 4
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn packets_discarded_by_an_edit_list_are_no_loss() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("repeated.mp4");
    ffmpeg(&[&SOURCE[..], &["-c:v", "libx265", "-x265-params", X265, file.to_str().unwrap()]].concat());
    // The edit list shows the first 20 pictures, and then shows them again.
    let mut bytes = std::fs::read(&file).unwrap();
    let (movie, track, edits) = (place(&bytes, b"moov"), place(&bytes, b"trak"), place(&bytes, b"edts"));
    assert!(place(&bytes, b"mdat") < movie, "the places of the samples do not change");
    let old = number(&bytes, edits) as usize;
    // Box sizes, name, version and the number of entries; then duration, time and rate.
    let entry =
        [800_u32.to_be_bytes(), bytes[edits + 28..edits + 32].try_into().unwrap(), [0, 1, 0, 0]].concat();
    let list = [&[0; 4][..], &2_u32.to_be_bytes(), &entry, &entry].concat();
    let new = mp4_box(b"edts", &mp4_box(b"elst", &list));
    for at in [movie, track] {
        let size = number(&bytes, at) + (new.len() - old) as u32;
        bytes[at..at + 4].copy_from_slice(&size.to_be_bytes());
    }
    bytes.splice(edits..edits + old, new);
    std::fs::write(&file, bytes).unwrap();

    let (inline, code, _) = decoded(&file, "", "");
    assert_eq!((inline.len(), code), (40, Some(0)));
    for packet in 20..42 {
        let (got, code, stderr) = decoded(&file, "", &format!("host=process fault=crash@{packet}"));
        assert_eq!(code, Some(0), "crash@{packet}: {stderr}");
        assert_eq!(got, inline, "crash@{packet}");
    }
}
