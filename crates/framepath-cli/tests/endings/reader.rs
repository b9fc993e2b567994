// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader that is slower than the decoder.

use std::io::Read;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use framepath_testkit::framepath;

const FRAMES: usize = 300;
/// Size of a frame in Y4M, bytes: the line `FRAME` and a 4:2:0 picture of 320x240.
const FRAME_BYTES: usize = 320 * 240 * 3 / 2 + "FRAME\n".len();

/// The stream has one keyframe and packets of about 140 kB, so the size limit of the replay log is
/// below the bytes in flight. The caller keeps some packets for a replay, and drops others whose
/// frames the reader has not received yet.
pub fn a_slow_reader_of_a_stream_without_keyframes_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one-keyframe.mkv");
    let file = file.to_str().unwrap();
    let source = format!("testsrc2=size=320x240:rate=30,noise=alls=100:allf=t,trim=end_frame={FRAMES}");
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-v", "error", "-f", "lavfi", "-i", &source, "-c:v", "libx264"]);
    ffmpeg.args(["-preset", "ultrafast", "-qp", "9", "-g", "9999", "-pix_fmt", "yuv420p", file]);
    assert!(ffmpeg.status().expect("ffmpeg (apt install ffmpeg)").success());

    let path = format!("file {file} ! decode host=process memory=64MiB ! y4m -");
    let mut child = framepath(&["run", "--quiet", &path]).spawn().unwrap();
    let mut video = child.stdout.take().unwrap();
    let (mut bytes, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        let count = video.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        bytes += count;
        // Lets the decoder run ahead of the reader, up to its limit.
        sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(bytes / FRAME_BYTES, FRAMES, "{bytes} bytes");
}
