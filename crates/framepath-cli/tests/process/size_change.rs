// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deaths of a worker in streams whose size changes where times restart.

use framepath_testkit::{ffmpeg, md5_lines, run};

/// Decodes MPEG-TS bytes of two encodings, 40 pictures and 25 larger ones with the same times, by the
/// encoder's options. Asserts that a death at each of `packets` loses none of the `frames` frames.
fn check(encoder: &str, frames: usize, packets: impl Iterator<Item = usize>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.ts");
    let bytes = [("176x144", "40"), ("320x240", "25")].map(|(size, pictures)| {
        let source = format!("testsrc2=size={size}:rate=25");
        let mut arguments = vec!["-f", "lavfi", "-i", &source, "-frames:v", pictures, "-c:v"];
        arguments.extend(encoder.split_whitespace());
        arguments.extend(["-g", "10", "-bf", "2", "-threads", "1", "-f", "mpegts", "pipe:1"]);
        ffmpeg(&arguments)
    });
    std::fs::write(&file, bytes.concat()).unwrap();
    let decoded = |options: &str| {
        let ran = run(&["run", &format!("file '{}' ! decode {options} ! framemd5 -", file.display())]);
        (md5_lines(&ran.stdout), ran.code, ran.stderr)
    };
    let (inline, code, stderr) = decoded("");
    assert_eq!((inline.len(), code), (frames, Some(0)), "{encoder}: {stderr}");
    for packet in packets {
        let (got, code, stderr) = decoded(&format!("host=process fault=crash@{packet}"));
        assert_eq!(code, Some(0), "{encoder} crash@{packet}: {stderr}");
        assert_eq!(got, inline, "{encoder} crash@{packet}");
    }
}

/// Checks deaths behind a size change at packet 40. The decoders of MPEG-2 and MPEG-4 drop there the
/// last reference picture before it.
#[test]
fn a_picture_that_the_decoder_drops_at_a_size_change_is_no_loss_of_a_death() {
    check("mpeg2video", 64, (50..65).step_by(2));
    check("mpeg4", 64, (50..65).step_by(2));
    check("libx264", 65, (50..65).step_by(2));
}
